"""``ingest``: looks first, runs stale partitions on the Dagster instance, reports what it did."""

from __future__ import annotations

import subprocess
import sys

import dagster as dg
import pytest

from rag_assets.changes import nothing_changed
from rag_assets.defs.in_process import open_instance
from rag_assets.errors import FingerprintMismatch, IndexDamaged
from rag_assets.ingest import ingest, plan
from rag_assets_tests.pipeline.test_incremental import contents, page
from rag_assets_tests.project import STUB, Project


@pytest.fixture
def indexed(project: Project) -> Project:
    """A project of three pages, ingested."""
    for number in range(3):
        project.write(f"{number}.md", page(number))
    report = ingest(project.path)
    assert report.status == "ok"
    return project


def run_count(project: Project) -> int:
    """How many runs the Dagster instance of the project knows."""
    with open_instance(project.config) as instance:
        return len(instance.get_run_records())


def test_first_ingest_reports_counts_and_its_run_is_on_the_instance(project):
    """Counts, run id and status; the run is where the UI reads."""
    for number in range(3):
        project.write(f"{number}.md", page(number))
    project.write("blank.md", "  \n")
    report = ingest(project.path)
    [part] = report.partitions
    assert (part.partition, part.status, report.status) == ("docs", "ok", "ok")
    assert (part.documents_seen, part.documents_indexed, part.documents_excluded) == (3, 3, 1)
    assert part.chunks_embedded == project.embedded() == report.chunks_embedded
    with open_instance(project.config) as instance:
        run = instance.get_run_by_id(part.run_id)
        assert run is not None
        assert run.status == dg.DagsterRunStatus.SUCCESS
        events = instance.fetch_materializations(dg.AssetKey("vector_index"), limit=5).records
        assert len(events) == 1
        assert events[0].partition_key == "docs"


def test_second_ingest_runs_nothing(indexed):
    """Nothing changed: no run, no text embedded, told so."""
    runs, texts = run_count(indexed), indexed.embedded()
    assert ingest(indexed.path).status == "unchanged"
    assert (run_count(indexed), indexed.embedded()) == (runs, texts)


def test_unchanged_ingest_imports_neither_dagster_nor_pyarrow_nor_pydantic(indexed):
    """The cheap look is cheap because it imports nothing heavy."""
    code = (
        "import sys; from rag_assets.ingest import ingest; "
        f"assert ingest({str(indexed.path)!r}).status == 'unchanged'; "
        "heavy = {'dagster', 'pyarrow', 'pydantic', 'numpy', 'apsw', 'pathspec', 'rich'}; "
        "print(sorted(heavy & sys.modules.keys()))"
    )
    ingest(indexed.path)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_one_changed_file_embeds_its_changed_passages_only(indexed):
    """Of a page with four passages, the one that changed is embedded."""
    before = indexed.embedded()
    indexed.write("1.md", page(1).replace("mot1x2", "autrement"))
    report = ingest(indexed.path)
    assert (report.documents_indexed, report.documents_skipped) == (1, 2)
    assert report.chunks_embedded == indexed.embedded() - before == 1
    assert report.chunks_unchanged == 4 * 3 - 1


def test_back_to_earlier_contents_is_a_change(indexed):
    """A, then B, then A again: the index follows both times, and A is not embedded again."""
    whole = contents(indexed)
    indexed.write("1.md", page(9))
    ingest(indexed.path)
    before = indexed.embedded()
    indexed.write("1.md", page(1))
    report = ingest(indexed.path)
    assert report.status == "ok"
    assert contents(indexed) == whole
    assert indexed.embedded() == before


def test_configuration_edit_that_changes_nothing_runs_nothing(indexed):
    """A setting that no stage depends on makes no partition stale."""
    runs = run_count(indexed)
    indexed.configure(retrieval={"k": 3})
    assert not nothing_changed(indexed.path), "the file is another one: look closer"
    assert ingest(indexed.path).status == "unchanged"
    assert nothing_changed(indexed.path), "and remember the answer"
    assert run_count(indexed) == runs


def test_excluded_path_added_to_the_configuration_takes_effect(indexed):
    """Governance is part of what makes a partition stale."""
    indexed.configure(source={"excluded_paths": ["1.md"]})
    report = ingest(indexed.path)
    assert report.documents_removed == 1
    assert "1.md" not in contents(indexed)


def test_another_model_is_refused_until_a_full_ingest(indexed):
    """Vectors of two models never meet; the message has the way out; nothing was written."""
    whole, texts = contents(indexed), indexed.embedded()
    options = {**indexed.settings["embedding"]["options"], "model": "other"}
    indexed.configure(embedding={"backend": STUB, "options": options})
    with pytest.raises(FingerprintMismatch, match="ingest --full"):
        ingest(indexed.path)
    assert (contents(indexed), indexed.embedded()) == (whole, texts)
    report = ingest(indexed.path, incremental=False)
    assert report.status == "ok"
    assert report.chunks_embedded == texts
    assert len(indexed.search(page(1))) == 5
    assert indexed.problems() == []


def test_another_chunker_is_refused_until_a_full_ingest(indexed):
    """Likewise for the chunker; texts that stay the same are not embedded again."""
    indexed.configure(chunk={"size": 100, "overlap": 0})
    texts = indexed.embedded()
    with pytest.raises(FingerprintMismatch, match="chunker"):
        ingest(indexed.path)
    assert ingest(indexed.path, incremental=False).status == "ok"
    assert indexed.embedded() == texts


def test_full_ingest_builds_a_new_generation_and_forgets_the_old(indexed):
    """Everything is processed again, nothing is embedded again, one file remains."""
    whole, texts = contents(indexed), indexed.embedded()
    report = ingest(indexed.path, incremental=False)
    assert report.documents_indexed == 3
    assert (contents(indexed), indexed.embedded()) == (whole, texts)
    files = list((indexed.folder / ".rag_assets/index").glob("index-*.sqlite"))
    assert [f.name for f in files] == ["index-000002.sqlite"]
    assert ingest(indexed.path).status == "unchanged"


@pytest.mark.parametrize("damage", [b"", b"not a database at all", "truncated"])
def test_damaged_index_is_told_and_rebuilt_by_a_full_ingest(indexed, damage):
    """A damaged file is an error with its way out, never an empty index."""
    whole = contents(indexed)
    [file] = (indexed.folder / ".rag_assets/index").glob("index-*.sqlite")
    file.write_bytes(file.read_bytes()[:20_000] if damage == "truncated" else damage)
    with pytest.raises(IndexDamaged, match="ingest --full"):
        ingest(indexed.path)
    assert ingest(indexed.path, incremental=False).status == "ok"
    assert contents(indexed) == whole


def test_failed_source_is_reported_and_the_others_are_indexed(project, tmp_path):
    """A missing root fails its own partition, with a row in ingest_run and a run in Dagster."""
    project.write("a.md", page(1))
    missing = {"name": "gone", "root": "nowhere", "acl": {"default": ["public"]}}
    project.configure(sources=[project.settings["sources"][0], missing])
    report = ingest(project.path)
    assert report.status == "failed"
    by_key = {part.partition: part for part in report.partitions}
    assert by_key["docs"].status == "ok"
    assert by_key["gone"].status == "failed"
    assert "nowhere" in (by_key["gone"].error or "")
    store = project.reader()
    rows = {(run.partition, run.status) for run in store.runs()}
    store.close()
    assert rows == {("docs", "ok"), ("gone", "failed")}


def test_plan_says_what_an_ingest_then_does(indexed):
    """The plan's numbers are those of the run, and planning changes nothing."""
    indexed.write("1.md", page(1).replace("mot1x2", "autrement"))
    indexed.write("new.md", page(8))
    (indexed.root / "2.md").unlink()
    runs, texts = run_count(indexed), indexed.embedded()
    [part] = plan(indexed.path).partitions
    assert (part.documents_added, part.documents_changed, part.documents_removed) == (1, 1, 1)
    assert part.estimated_tokens > 0
    assert (run_count(indexed), indexed.embedded()) == (runs, texts)
    assert ingest(indexed.path).chunks_embedded == part.chunks_to_embed == 5
    assert plan(indexed.path).to_json()["status"] == "unchanged"


def test_run_of_a_killed_process_is_closed_by_the_next_ingest(indexed):
    """The UI never shows a run as started whose process is gone."""
    from rag_assets.defs.running import PROCESS_TAG
    from rag_assets.project import process_name

    host, _, start = process_name().rsplit(":", 2)
    with open_instance(indexed.config) as instance:
        run = instance.create_run_for_job(
            _any_job(),
            tags={PROCESS_TAG: f"{host}:999999999:{start}"},
            status=dg.DagsterRunStatus.STARTED,
        )
    indexed.write("1.md", page(7))
    ingest(indexed.path)
    with open_instance(indexed.config) as instance:
        closed = instance.get_run_by_id(run.run_id)
        assert closed is not None
        assert closed.status == dg.DagsterRunStatus.FAILURE


def _any_job() -> dg.JobDefinition:
    @dg.op
    def nothing() -> None: ...

    @dg.job(name="ingest")
    def job() -> None:
        nothing()

    return job


def test_several_first_ingests_at_once_leave_one_sound_index(project):
    """A fresh instance and a fresh index survive several processes that create them at once."""
    for number in range(5):
        project.write(f"{number}.md", page(number))
    code = (
        f"from rag_assets.ingest import ingest; r = ingest({str(project.path)!r}); print(r.status)"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    answers = [process.communicate()[0].strip() for process in started]
    assert set(answers) <= {"ok", "unchanged"}
    assert project.problems() == []

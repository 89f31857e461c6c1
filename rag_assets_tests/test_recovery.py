"""After trouble of any kind, a plain ingest makes index, tables and answers agree again."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from rag_assets.cli.commands import cli
from rag_assets.components import replacing
from rag_assets.errors import (
    AssetError,
    ConfigurationError,
    FingerprintMismatch,
    RemovalRefused,
)
from rag_assets.ingest import ingest, plan
from rag_assets.pipeline.pipeline import Pipeline, RunOptions
from rag_assets.project import process_name
from rag_assets.retrieval import open_retriever
from rag_assets.testing import StubEmbedder
from rag_assets_tests.pipeline.test_incremental import contents, page
from rag_assets_tests.project import STUB, Project

CANARY = "CANARI_SECRET_61"


@pytest.fixture
def indexed(project: Project) -> Project:
    """Three pages, indexed."""
    for number in range(3):
        project.write(f"{number}.md", page(number))
    project.run()
    return project


def bytes_of(project: Project, text: str) -> list[Path]:
    """Files of the data folder that hold the text."""
    data = project.folder / ".rag_assets"
    return [p for p in data.rglob("*") if p.is_file() and text.encode() in p.read_bytes()]


def run_until(project: Project, last: str) -> None:
    """The steps up to ``last``, as a run that dies after it leaves them."""
    pipeline = Pipeline(project.config)
    partition, options = project.config.partition("docs"), RunOptions("dies")
    made = pipeline.source_files(partition, pipeline.files.read("source_files", "docs"), options)
    pipeline.files.write("source_files", "docs", made.table)
    for asset in ("parsed_documents", "chunks", "embeddings"):
        if last == "source_files":
            return
        step = getattr(pipeline, asset)
        of = () if asset == "embeddings" else (partition,)
        made = step(*of, made.table, pipeline.files.read(asset, "docs"), options)
        pipeline.files.write(asset, "docs", made.table)
        if asset == last:
            return


@pytest.mark.parametrize("last", ["source_files", "parsed_documents", "chunks", "embeddings"])
def test_edit_taken_back_after_a_run_that_died_leaves_nothing(indexed, last):
    """Tables ahead of the index are stale even when the source is what the index holds."""
    whole = contents(indexed)
    indexed.write("1.md", f"# Autre\n\n{CANARY}\n")
    run_until(indexed, last)
    assert bytes_of(indexed, CANARY)
    indexed.write("1.md", page(1))
    assert ingest(indexed.path).status == "ok"
    assert contents(indexed) == whole
    assert indexed.problems() == []
    assert bytes_of(indexed, CANARY) == []
    assert ingest(indexed.path).status == "unchanged"


@pytest.mark.parametrize("how", ["deleted", "truncated", "garbage"])
@pytest.mark.parametrize("asset", ["source_files", "parsed_documents", "chunks", "embeddings"])
def test_lost_or_damaged_table_is_made_again(indexed, asset, how):
    """``ingest`` notices, and what is not lost is not embedded again."""
    ingest(indexed.path)
    texts = indexed.embedded()
    file = indexed.folder / ".rag_assets/assets" / asset / "docs.parquet"
    if how == "deleted":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:100] if how == "truncated" else b"garbage")
    assert ingest(indexed.path).status == "ok"
    assert indexed.problems() == []
    assert indexed.embedded() == texts


def test_damaged_table_of_another_partition_does_not_fail_a_run(tmp_path):
    """Only its own partition has to make it again."""
    project = Project(tmp_path / "p")
    project.configure(source={"shards": 2})
    for number in range(6):
        project.write(f"{number}.md", page(number, 1))
    project.run()
    (project.folder / ".rag_assets/assets/embeddings/docs-2of2.parquet").write_bytes(b"PAR1")
    pipeline = Pipeline(project.config)
    run = pipeline.run(project.config.partition("docs-1of2"), RunOptions("one"))
    assert run.status == "ok"


def test_settings_put_back_after_a_failed_full_ingest_heal(tmp_path):
    """The way out that the documentation offers works."""
    project = Project(tmp_path / "p")
    project.write("a.md", page(1))
    other = {"name": "other", "root": "other", "acl": {"default": ["public"]}}
    (project.folder / "other").mkdir()
    project.configure(sources=[project.settings["sources"][0], other])
    assert ingest(project.path).status == "ok"
    whole = contents(project)
    (project.folder / "other").rename(project.folder / "away")
    project.configure(chunk={"size": 40, "overlap": 0})
    assert ingest(project.path, incremental=False).status == "failed"
    (project.folder / "away").rename(project.folder / "other")
    project.configure(chunk={})
    assert ingest(project.path).status == "ok"
    assert contents(project) == whole
    assert project.problems() == []


def test_tables_of_other_settings_are_not_indexed(indexed):
    """Vectors of one model never get the label of another, not even in a new index."""
    shutil.rmtree(indexed.folder / ".rag_assets/index")
    options = {**indexed.settings["embedding"]["options"], "model": "other"}
    indexed.configure(embedding={"backend": STUB, "options": options})
    pipeline = Pipeline(indexed.config)
    parsed, chunked, embedded = (
        pipeline.files.read(name, "docs") for name in ("parsed_documents", "chunks", "embeddings")
    )
    with pytest.raises(AssetError, match=r"embeddings was made .* with other settings"):
        pipeline.vector_index(
            indexed.config.partition("docs"), parsed, chunked, embedded, RunOptions("x")
        )


def test_build_that_was_killed_leaves_no_text_after_the_next_run(indexed):
    """An unfinished generation of a dead process goes with the next run, deleted text and all."""
    host, _, start = process_name().rsplit(":", 2)
    indexed.write("secret.md", f"# S\n\n{CANARY}\n")
    indexed.run()
    killed = RunOptions("full", build_id=f"b@{host}:999999999:{start}", reprocess=True)
    pipeline = Pipeline(indexed.config)
    pipeline._promote_when_complete = lambda *_: None  # type: ignore[method-assign]
    pipeline.run(indexed.config.partition("docs"), killed)
    (indexed.root / "secret.md").unlink()
    indexed.run()
    assert bytes_of(indexed, CANARY) == []


def test_build_under_way_survives_a_run_beside_it(indexed):
    """An incremental run between two partitions of a full one does not delete its generation."""
    pipeline = Pipeline(indexed.config)
    pipeline._promote_when_complete = lambda *_: None  # type: ignore[method-assign]
    build = RunOptions("full", build_id=f"b@{process_name()}", reprocess=True)
    pipeline.run(indexed.config.partition("docs"), build)
    indexed.write("0.md", page(8))
    indexed.run()
    assert len(list((indexed.folder / ".rag_assets/index").glob("index-*.sqlite"))) == 2


def test_source_taken_out_before_a_full_ingest_leaves_no_file(tmp_path):
    """Tables and states of what is not configured any more go with the promotion."""
    project = Project(tmp_path / "p")
    project.write("a.md", page(1))
    Project(tmp_path / "p", root="other").write("b.md", f"# B\n\n{CANARY}\n")
    both = [project.settings["sources"][0],
            {"name": "other", "root": "other", "acl": {"default": ["public"]}}]  # fmt: skip
    project.configure(sources=both)
    project.run()
    assert bytes_of(project, CANARY)
    project.configure(sources=both[:1])
    ingest(project.path, incremental=False)
    assert bytes_of(project, CANARY) == []
    assert not (project.folder / ".rag_assets/state/other.json").exists()


def test_removal_of_a_source_from_the_configuration_is_planned_and_reported(tmp_path):
    """Neither the plan nor the run says that nothing changed."""
    project = Project(tmp_path / "p")
    project.write("a.md", page(1))
    Project(tmp_path / "p", root="other").write("b.md", page(2))
    both = [project.settings["sources"][0],
            {"name": "other", "root": "other", "acl": {"default": ["public"]}}]  # fmt: skip
    project.configure(sources=both)
    ingest(project.path)
    project.configure(sources=both[:1])
    planned = {part.partition: part for part in plan(project.path).partitions}
    assert planned["other"].unconfigured
    report = ingest(project.path)
    assert (report.status, report.documents_removed) == ("ok", 1)
    assert ingest(project.path).status == "unchanged"


def documents_of(project: Project, key: str) -> int:
    """How many documents the partition's table has."""
    return len(Pipeline(project.config).files.column("source_files", key, "path"))


@pytest.mark.parametrize("shards", [2, 5])
def test_emptied_root_of_a_sharded_source_is_refused(tmp_path, shards):
    """Small shards of a source that is not small are not emptied one by one."""
    project = Project(tmp_path / "p")
    project.configure(source={"shards": shards})
    for number in range(12):
        project.write(f"{number}.md", page(number, 1))
    project.run()
    filled = [p for p in project.config.partitions() if documents_of(project, p.key)]
    for file in project.root.glob("*.md"):
        file.unlink()
    for partition in filled:
        with pytest.raises(RemovalRefused):
            Pipeline(project.config).run(partition, RunOptions("x"))


def test_failed_partition_makes_no_other_one_stale(tmp_path):
    """What a failure writes into the ledger is not a change of the others."""
    from rag_assets.changes import partition_changed, up_to_date
    from rag_assets.project import DataFolder

    project = Project(tmp_path / "p")
    project.write("a.md", page(1))
    (project.folder / "other").mkdir()
    other = {"name": "other", "root": "other", "acl": {"default": ["public"]}}
    project.configure(sources=[project.settings["sources"][0], other])
    ingest(project.path)
    (project.folder / "other").rmdir()
    assert ingest(project.path, source="other").status == "failed"
    data = DataFolder(project.config.data_dir)
    version = up_to_date(data, project.path).get("docs", "")
    assert not partition_changed(data, "docs", version)


def test_retriever_notices_that_the_index_was_deleted_and_made_again(indexed):
    """Same folder, same file name, another index: no answer from the old one."""
    with open_retriever(indexed.path) as retriever:
        assert "0.md" in {h.path for h in retriever.retrieve("x", 50, acl_tags=["public"])}
        shutil.rmtree(indexed.folder / ".rag_assets")
        (indexed.root / "0.md").unlink()
        indexed.run()
        assert "0.md" not in {h.path for h in retriever.retrieve("x", 50, acl_tags=["public"])}
    with pytest.raises(ConfigurationError, match="closed"):
        retriever.retrieve("x", acl_tags=["public"])


def test_object_in_place_of_the_embedder_is_never_taken_for_the_configured_one(indexed):
    """What was remembered of the configured embedder says nothing about another."""
    ingest(indexed.path)
    with replacing(embedder=StubEmbedder(32, model="mine")), pytest.raises(FingerprintMismatch):
        ingest(indexed.path)


def test_full_ingest_waits_for_a_writer_of_the_live_index(indexed):
    """A rebuild does not replace an index in the middle of somebody's writing."""
    indexed.configure(index={"wait_seconds": 1})
    store = indexed.writer()
    with store.writing(run_id="mine", partition="docs", wait_seconds=1):
        report = ingest(indexed.path, incremental=False)
    store.close()
    assert report.status == "failed"
    assert "mine" in (report.partitions[0].error or "")
    assert ingest(indexed.path, incremental=False).status == "ok"


def test_row_of_a_killed_run_is_closed_by_the_next(indexed):
    """Nobody is still writing whose lease is gone."""
    from rag_assets.models import IngestRun

    store = indexed.writer()
    store.record_run(IngestRun("dead", "docs", "docs", "2026-01-01T00:00:00Z", None, "running"))
    store.close()
    indexed.write("0.md", page(9))
    indexed.run()
    reader = indexed.reader()
    states = {run.run_id: run.status for run in reader.runs()}
    reader.close()
    assert states["dead"] == "failed"


@pytest.mark.parametrize(
    "content", ["{}", "[]", "null", '{"code": 1}', '{"version": 1, "look": {"format": 1}}', "\0"]
)
@pytest.mark.parametrize("file", ["docs.json", "indexed.json"])
def test_state_files_are_hints_whatever_they_hold(indexed, file, content):
    """A damaged hint costs a closer look, nothing else."""
    ingest(indexed.path)
    (indexed.folder / ".rag_assets/state" / file).write_text(content)
    assert ingest(indexed.path).status in ("unchanged", "ok")
    assert indexed.problems() == []


@pytest.mark.parametrize(
    "text",
    ["sources: [\n", "a: 1\n---\nb: 2\n", "a: !x y\n", "data_dir: 2020-99-99\nsources: []\n",
     'data_dir: "a\\0b"\nsources: [{name: a, root: b}]\n',
     "sources: [{name: a, root: b}]\nautomation: {reconcile_cron: '99 99 * * *'}\n",
     "sources: [{name: a, root: b}]\nembedding: {backend: 'no.where:X'}\n"],
)  # fmt: skip
@pytest.mark.parametrize("command", ["ingest", "search x"])
def test_wrong_configuration_is_told_alike_by_every_command(project, text, command):
    """Exit 2, the file's name, no "unexpected", one JSON object."""
    project.path.write_text(text)
    arguments = ["--config", str(project.path), *command.split(), "--json"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2, result.output
    assert json.loads(result.stdout)["error"]["type"] == "ConfigurationError"
    assert "rag_assets.yaml" in result.stderr
    assert "unexpected" not in result.stderr


@pytest.mark.parametrize("arguments", [["ingest", "--bogus"], ["search"], ["nocmd"]])
def test_usage_error_is_json_too(project, arguments):
    """Whoever reads JSON gets JSON."""
    result = CliRunner().invoke(cli, ["--config", str(project.path), *arguments, "--json"])
    assert result.exit_code == 2
    assert json.loads(result.stdout)["status"] == "error"


def test_plan_says_what_ingest_would_refuse(project):
    """A removal beyond the limit, and another chunker."""
    for number in range(12):
        project.write(f"{number}.md", page(number, 1))
    ingest(project.path)
    for number in range(10):
        (project.root / f"{number}.md").unlink()
    [part] = plan(project.path).partitions
    assert part.documents_removed == 10
    assert "--confirm-removals" in (part.blocked or "")
    project.configure(chunk={"size": 50, "overlap": 0})
    with pytest.raises(FingerprintMismatch):
        plan(project.path)


def test_partial_run_lists_what_it_left_out_and_explain_lists_all(project):
    """Nobody has to guess a path."""
    project.write("good.md", page(1))
    project.write("bad.md", b"caf\xe9\n")
    project.write("legacy/x.md", "# X\n")
    run = CliRunner().invoke(cli, ["--config", str(project.path), "ingest"])
    assert run.exit_code == 0
    assert "docs/bad.md: quarantined, not_text" in run.output
    assert "legacy" not in run.output
    every = CliRunner().invoke(cli, ["--config", str(project.path), "explain"])
    assert "docs/legacy/: excluded, hard_exclusion" in every.output


def test_interrupt_in_the_middle_of_a_run_says_so_and_exits_130(project):
    """Ctrl-C is not a failure of the source, and the next ingest goes on."""
    options = {"log_path": str(project.log), "seconds_per_text": 0.2, "batch_size": 2}
    project.configure(embedding={"backend": STUB, "options": options})
    for number in range(30):
        project.write(f"{number}.md", page(number))
    command = [sys.executable, "-m", "rag_assets.cli", "--config", str(project.path), "ingest"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 90
    while project.embedded() < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted" in err.splitlines()[-1]

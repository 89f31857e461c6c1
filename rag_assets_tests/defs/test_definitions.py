"""The Dagster side: assets, data versions, early cut-off, sensor, schedule, automation."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from rag_assets.defs import build_definitions
from rag_assets.defs.automation import JOB_NAME
from rag_assets.defs.in_process import open_instance
from rag_assets.defs.running import CONFIRM_TAG
from rag_assets.ingest import ingest
from rag_assets_tests.peers.bookstack import BookStack
from rag_assets_tests.pipeline.test_incremental import page
from rag_assets_tests.project import Project

ASSETS = ["source_files", "parsed_documents", "chunks", "embeddings", "vector_index"]


@pytest.fixture
def indexed(project: Project) -> Project:
    """Two pages, ingested."""
    project.write("a.md", page(1))
    project.write("b.md", page(2))
    assert ingest(project.path).status == "ok"
    return project


@pytest.fixture
def instance(project: Project) -> Iterator[dg.DagsterInstance]:
    """The project's instance."""
    with open_instance(project.config) as opened:
        yield opened


def versions(instance: dg.DagsterInstance) -> dict[str, str]:
    """Latest data version of every asset."""
    found = {}
    for name in ASSETS:
        record = instance.fetch_materializations(dg.AssetKey(name), limit=1).records[0]
        assert record.asset_materialization is not None
        tags = record.asset_materialization.tags or {}
        found[name] = tags["dagster/data_version"]
    return found


def metadata(instance: dg.DagsterInstance, asset: str) -> dict[str, Any]:
    """Metadata of the latest materialisation."""
    record = instance.fetch_materializations(dg.AssetKey(asset), limit=1).records[0]
    assert record.asset_materialization is not None
    return {k: v.value for k, v in record.asset_materialization.metadata.items()}


def materialize(project: Project, instance: dg.DagsterInstance, *assets: str, **tags: str) -> bool:
    """Materialise only these assets of the one partition."""
    definitions = build_definitions(project.config)
    job = definitions.resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(
        instance=instance,
        partition_key="docs",
        asset_selection=[dg.AssetKey(name) for name in assets],
        raise_on_error=False,
        tags=tags,
    )
    return result.success


def test_definitions_are_complete(project):
    """Five assets, partitioned alike, with group, kinds, owners, descriptions, code versions."""
    definitions = build_definitions(project.config)
    graph = definitions.resolve_asset_graph()
    assert {key.to_user_string() for key in graph.get_all_asset_keys()} == set(ASSETS)
    for name in ASSETS:
        node = graph.get(dg.AssetKey(name))
        assert node.group_name == "ingest"
        assert node.kinds
        assert node.owners
        assert node.description
        assert node.code_version
        assert node.partitions_def is not None
        assert list(node.partitions_def.get_partition_keys()) == ["docs"]


def test_each_asset_can_be_materialised_alone(indexed, instance):
    """One after the other, each in a run of its own, to the same data versions."""
    before = versions(instance)
    for name in ASSETS:
        assert materialize(indexed, instance, name)
    assert versions(instance) == before
    assert indexed.problems() == []


def test_edit_that_changes_no_passage_stops_at_chunks(indexed, instance):
    """Early cut-off: chunks and embeddings keep their data version, documents get a new one."""
    before = versions(instance)
    indexed.write("a.md", "---\nteam: x\n---\n" + page(1))
    indexed.write("b.md", page(2).replace("\n", "\r\n"))
    ingest(indexed.path)
    after = versions(instance)
    changed = {name for name in ASSETS if before[name] != after[name]}
    assert "embeddings" not in changed
    assert {"source_files", "parsed_documents", "vector_index"} <= changed


def test_index_refuses_tables_that_do_not_belong_together(indexed, instance):
    """Indexing new documents with old passages is refused, and says what to materialise."""
    indexed.write("a.md", page(5))
    assert materialize(indexed, instance, "source_files", "parsed_documents")
    assert not materialize(indexed, instance, "vector_index")
    store = indexed.reader()
    run = store.runs()[0]
    store.close()
    assert run.status == "failed"
    assert "materialise chunks" in (run.error or "")
    assert materialize(indexed, instance, "chunks", "embeddings", "vector_index")
    assert indexed.problems() == []


def test_metadata_shows_what_a_person_wants_to_see(project, instance):
    """Counts as numbers, left-out files and passages as tables, the model, the run."""
    project.write("a.md", page(1))
    project.write("legacy/x.md", "# X\n")
    project.write("bad.md", b"\xff\n")
    ingest(project.path)
    listed = metadata(instance, "source_files")
    assert (listed["documents"], listed["added"], listed["read"]) == (1, 1, 2)
    reasons = {row.data["path"]: row.data["reason"] for row in listed["left_out_files"].records}
    assert reasons == {"legacy/": "hard_exclusion", "bad.md": "not_text"}
    assert metadata(instance, "parsed_documents")["quarantined"] == 1
    chunked = metadata(instance, "chunks")
    assert chunked["chunks"] == 4
    first = chunked["passages"].records[0].data
    assert (first["path"], first["start_line"]) == ("a.md", 1)
    assert "sample" not in chunked
    assert metadata(instance, "embeddings")["model"] == "stub"
    indexed = metadata(instance, "vector_index")
    assert indexed["status"] == "partial"
    assert indexed["ingest_run"]["documents_indexed"] == 1


def dagster_files_with(project: Project, text: str) -> list[str]:
    """Names of the files in Dagster's home that hold the text."""
    home = project.folder / ".rag_assets" / "dagster"
    files = [path for path in home.rglob("*") if path.is_file()]
    assert files
    return [path.name for path in files if text.encode() in path.read_bytes()]


@pytest.mark.parametrize("how", ["source", "rule", "document"])
def test_text_that_is_not_public_never_reaches_metadata(project, how):
    """Even where samples are asked for, they come from public documents only."""
    project.configure(automation={"text_samples": True})
    acl = ""
    if how == "source":
        project.configure(source={"acl": {"default": ["service:hr"]}})
    elif how == "rule":
        rules = [{"paths": "a.md", "tags": "service:hr"}]
        project.configure(source={"acl": {"default": ["public"], "rules": rules}})
    else:
        acl = "acl: service:hr\n"
    project.write("a.md", f"---\n{acl}temoin_clef: [x]\n---\n# A\n\nSECRET_TEMOIN_77\n")
    ingest(project.path)
    assert dagster_files_with(project, "SECRET_TEMOIN_77") == []
    assert dagster_files_with(project, "temoin_clef") == []


def test_samples_of_public_text_are_shown_only_where_they_are_asked_for(project, instance):
    """Passages, headings and warnings stay in Dagster's history, so that is a choice."""
    project.write("a.md", "---\ntemoin_clef: [x]\n---\n# TITRE_TEMOIN\n\nTEXTE_TEMOIN\n")
    words = ("TEXTE_TEMOIN", "TITRE_TEMOIN", "titre_temoin", "temoin_clef")
    ingest(project.path)
    assert metadata(instance, "parsed_documents")["warnings"] == 1
    assert [word for word in words if dagster_files_with(project, word)] == []
    project.configure(automation={"text_samples": True})
    project.write("a.md", (project.root / "a.md").read_bytes() + b"\nplus\n")
    ingest(project.path)
    assert "TEXTE_TEMOIN" in metadata(instance, "chunks")["sample"]
    assert "temoin_clef" in metadata(instance, "parsed_documents")["warning_texts"]


def evaluate(project: Project, instance: dg.DagsterInstance, cursor: str | None) -> Any:
    """One tick of the sensor."""
    definitions = build_definitions(project.config)
    sensor = definitions.resolve_sensor_def("source_changes")
    context = dg.build_sensor_context(instance=instance, cursor=cursor, definitions=definitions)
    return sensor(context)


def test_sensor_asks_for_a_run_only_when_something_changed(indexed, instance):
    """No change: no run. A change: one run, with the same key until it has run."""
    result = evaluate(indexed, instance, None)
    assert result.run_requests == []
    indexed.write("a.md", page(3))
    [first] = evaluate(indexed, instance, result.cursor).run_requests
    [again] = evaluate(indexed, instance, result.cursor).run_requests
    assert first.partition_key == "docs"
    assert first.run_key == again.run_key
    ingest(indexed.path)
    assert evaluate(indexed, instance, None).run_requests == []
    indexed.write("a.md", page(1))
    [back] = evaluate(indexed, instance, None).run_requests
    assert back.run_key != first.run_key, "going back to earlier contents is a change"


def test_sensor_waits_after_a_failed_run(indexed, instance):
    """A source that keeps failing does not fill the run list."""
    for path in indexed.root.glob("*.md"):
        path.unlink()
    indexed.root.rmdir()
    indexed.write("a.md", b"# A\n")
    indexed.configure(source={"max_file_bytes": 5_000})
    os.rename(indexed.root, indexed.folder / "away")
    assert ingest(indexed.path).status == "failed"
    os.rename(indexed.folder / "away", indexed.root)
    assert evaluate(indexed, instance, None).run_requests == []


def test_sensor_asks_a_server_now_and_then_and_fetches_no_content(project, monkeypatch):
    """Its own rhythm, kept in the cursor; a change on the server asks for one run."""
    with BookStack() as wiki:
        page = wiki.add_page(wiki.add_book("Guide"), "Accueil", markdown="# Accueil\n\nBonjour.\n")
        monkeypatch.setenv("WIKI_TOKEN", wiki.admin.token)
        server = {"kind": "bookstack", "base_url": wiki.address, "token": {"env": "WIKI_TOKEN"}}
        project.configure(sources=[{"name": "wiki", **server}])
        assert ingest(project.path).status == "ok"
        with open_instance(project.config) as instance:
            with wiki.counting() as asked:
                tick = evaluate(project, instance, None)
            assert (tick.run_requests, asked["pages"], asked["page"]) == ([], 1, 0)
            wiki.edit(page, markdown="# Accueil\n\nBonsoir.\n")
            with wiki.counting() as asked:
                assert evaluate(project, instance, tick.cursor).run_requests == []
            assert asked.total() == 0, "it was asked a moment ago"
            [request] = evaluate(project, instance, None).run_requests
            assert request.partition_key == "wiki"


def test_schedule_reconciles_every_partition_by_content(project):
    """One request per partition, told to read every file again."""
    project.configure(source={"shards": 2})
    definitions = build_definitions(project.config)
    schedule = definitions.resolve_schedule_def("reconcile")
    context = dg.build_schedule_context(
        scheduled_execution_time=_now(), repository_def=definitions.get_repository_def()
    )
    tick = schedule.evaluate_tick(context)
    assert tick.run_requests is not None
    assert {request.partition_key for request in tick.run_requests} == {"docs-1of2", "docs-2of2"}
    assert all(r.tags["rag_assets/reread"] == "true" for r in tick.run_requests)


def _now() -> Any:
    from datetime import datetime, timezone

    return datetime.fromtimestamp(time.time(), timezone.utc)


def test_removals_can_be_confirmed_by_a_run_tag(project, instance):
    """What the command line's flag does, a tag does from the UI."""
    for number in range(12):
        project.write(f"{number}.md", page(number, 1))
    ingest(project.path)
    for number in range(10):
        (project.root / f"{number}.md").unlink()
    assert not materialize(project, instance, *ASSETS)
    assert materialize(project, instance, *ASSETS, **{CONFIRM_TAG: "true"})
    store = project.reader()
    assert store.stats().documents == 2
    store.close()


def test_automation_requests_nothing_after_a_complete_run(indexed, instance):
    """Declarative automation looks at data versions: same data, no request."""
    definitions = build_definitions(indexed.config)
    first = dg.evaluate_automation_conditions(definitions, instance=instance)
    assert materialize(indexed, instance, "source_files")
    again = dg.evaluate_automation_conditions(definitions, instance=instance, cursor=first.cursor)
    assert again.total_requested == 0
    indexed.write("a.md", page(6))
    assert materialize(indexed, instance, "source_files")
    after = dg.evaluate_automation_conditions(definitions, instance=instance, cursor=again.cursor)
    assert after.get_num_requested(dg.AssetKey("parsed_documents")) == 1
    assert JOB_NAME == "ingest"

"""Incremental truth: whatever happens to a tree, the index says what a fresh build would say."""

from __future__ import annotations

import os
import random
import sqlite3
from functools import partial
from pathlib import Path

import apsw
import pytest
import sqlite_vec

from rag_assets.errors import RemovalRefused, Unavailable
from rag_assets.index.base import IndexedDocument
from rag_assets_tests.project import Project


def page(number: int, sections: int = 3) -> str:
    """A page with a few sections."""
    body = "\n\n".join(
        f"## Section {i}\n\nPage {number}, mot{number}x{i}." for i in range(sections)
    )
    return f"# Page {number}\n\n{body}\n"


def contents(project: Project) -> dict[str, tuple[object, ...]]:
    """Everything the index says, comparable."""
    store = project.reader()
    try:
        found: dict[str, tuple[object, ...]] = {"": tuple(map(repr, store.left_out()))}
        for item in documents(store):
            rows = [(repr(c), c.content) for c in item.chunks]
            document = item.document
            found[document.path] = (
                document.content_hash, document.title, document.url, document.acl_tags,
                tuple(sorted(document.metadata.items())), tuple(rows), item.vectors.tobytes(),
            )  # fmt: skip
        return found
    finally:
        store.close()


def documents(store: object) -> list[IndexedDocument]:
    """All documents of the index."""
    return list(store.documents())  # type: ignore[attr-defined]


def edit_vectors(project: Project, sql: str) -> None:
    """Change the index behind its back."""
    connection = apsw.Connection(str(next((project.folder / ".rag_assets/index").glob("*.sqlite"))))
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())
    connection.execute(sql)
    connection.close()


def test_moved_file_is_found_under_its_new_path_only(project):
    """INC-01: the move keeps the content and drops the old citation."""
    project.write("a.md", page(1))
    project.run()
    (project.root / "sub").mkdir()
    (project.root / "a.md").rename(project.root / "sub/a.md")
    project.run()
    assert {hit.path for hit in project.search("mot1x0")} == {"sub/a.md"}


def test_file_that_spans_batches_embeds_nothing_twice(project):
    """INC-03: 250 chunks in batches of 100, run twice: the second asks the embedder for nothing."""
    project.configure(embedding={**project.settings["embedding"], "batch_size": 100})
    project.settings["embedding"]["options"]["batch_size"] = 100
    project.configure()
    project.write("a.md", page(1, 250))
    project.run()
    before = project.embedded()
    assert before >= 250
    row = project.run()
    assert (project.embedded(), row.chunks_embedded) == (before, 0)


@pytest.mark.parametrize("share", [2, 10])
def test_vectors_deleted_by_hand_are_noticed_and_written_again(project, share):
    """INC-05, INC-09: ledger and store are compared; verify says what is missing."""
    for number in range(10):
        project.write(f"{number}.md", page(number))
    project.run()
    whole = contents(project)
    edit_vectors(project, f"DELETE FROM chunk_vector WHERE rowid % {share} = 0")
    assert project.problems()
    before = project.embedded()
    project.run()
    assert project.problems() == []
    assert contents(project) == whole
    assert project.embedded() == before, "the vectors are still in the tables"


def test_run_that_dies_before_the_index_is_finished_by_the_next(project):
    """INC-07: dying between any two steps leaves nothing marked as done."""
    from rag_assets.pipeline.pipeline import Pipeline, RunOptions

    project.write("a.md", page(1))
    project.run()
    project.write("a.md", page(2))
    pipeline = Pipeline(project.config)
    partition = project.config.partition("docs")
    options = RunOptions("dies")
    made = pipeline.source_files(partition, pipeline.files.read("source_files", "docs"), options)
    pipeline.files.write("source_files", "docs", made.table)
    for asset, step in (
        ("parsed_documents", partial(pipeline.parsed_documents, partition)),
        ("chunks", partial(pipeline.chunks, partition)),
        ("embeddings", pipeline.embeddings),
    ):
        made = step(made.table, pipeline.files.read(asset, "docs"), options)
        pipeline.files.write(asset, "docs", made.table)
        assert "mot1x0" in project.search("mot1x0", 1)[0].content, "the index is as it was"
    project.run()
    assert "mot2x0" in project.search("mot2x0", 1)[0].content
    assert project.problems() == []


def test_same_size_edit_with_its_time_put_back_is_found(project):
    """INC-11: the change marker is not only size and mtime."""
    file = project.write("a.md", "# A\n\naaaa\n")
    project.run()
    times = (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    file.write_text("# A\n\nbbbb\n")
    os.utime(file, ns=times)
    project.run()
    assert "bbbb" in project.search("bbbb", 1)[0].content


def test_renamed_file_leaves_no_ghost(project):
    """INC-13: no hit comes from the old name."""
    project.write("tarifs.md", "# Tarifs\n\nLe prix est de 10 €.\n")
    project.run()
    (project.root / "tarifs.md").rename(project.root / "prix.md")
    project.run()
    assert {hit.path for hit in project.search("prix")} == {"prix.md"}


def test_superseded_and_deleted_documents_leave_no_vector(project):
    """INC-15: v1, v2, deleted: no vector remains."""
    project.write("a.md", page(1))
    project.write("b.md", "# B\n\nreste\n")
    project.run()
    project.write("a.md", page(2))
    project.run()
    (project.root / "a.md").unlink()
    project.run()
    store = project.reader()
    held = store.stats()
    store.close()
    assert (held.documents, held.chunks, held.vectors) == (1, 1, 1)


def test_renaming_a_hundred_files_embeds_nothing(project):
    """INC-17: vectors belong to texts, not to paths; citations follow the files."""
    for number in range(100):
        project.write(f"old/{number}.md", page(number, 1))
    project.run()
    before = project.embedded()
    (project.root / "old").rename(project.root / "new")
    row = project.run()
    assert project.embedded() == before
    assert row.documents_removed == 100
    assert {hit.path for hit in project.search(page(7, 1), 1)} == {"new/7.md"}


@pytest.mark.parametrize("first", ["empty", "full"])
def test_partition_may_become_empty_and_full_again(project, first):
    """No document, no passage, no vector: every table of a partition may have no row."""
    if first == "full":
        project.write("a.md", page(1))
    project.run()
    for number in range(2):
        project.write("a.md", page(number))
        assert project.run().documents_seen == 1
        (project.root / "a.md").unlink()
        assert project.run().documents_seen == 0
    assert project.search("Page") == []
    assert project.problems() == []


def test_touched_file_writes_nothing(project):
    """A new time stamp on old content is no change."""
    file = project.write("a.md", page(1))
    project.run()
    os.utime(file)
    row = project.run()
    assert (row.documents_indexed, row.documents_skipped, row.chunks_embedded) == (0, 1, 0)


def test_front_matter_edit_rewrites_the_document_and_embeds_nothing(project):
    """An ACL or metadata change costs no embedding, and is there at once."""
    project.write("a.md", "---\nteam: a\n---\n# A\n\ntexte\n")
    project.run()
    before = project.embedded()
    project.write("a.md", "---\nteam: b\nacl: service:hr\n---\n# A\n\ntexte\n")
    row = project.run()
    assert (row.documents_indexed, project.embedded()) == (1, before)
    assert project.search("texte", acl_tags=["public"]) == []
    assert len(project.search("texte", acl_tags=["service:hr"])) == 1


def test_losing_most_documents_needs_to_be_confirmed(project):
    """A disk that is half mounted must not empty the index."""
    for number in range(12):
        project.write(f"{number}.md", page(number, 1))
    project.run()
    for number in range(8):
        (project.root / f"{number}.md").unlink()
    with pytest.raises(RemovalRefused, match=r"8 of 12 documents are gone.*--confirm-removals"):
        project.run()
    assert project.search(page(3, 1), 1)[0].path == "3.md"
    assert project.run(removals_confirmed=True).documents_removed == 8


def test_excluding_most_documents_by_rule_needs_no_confirmation(project):
    """What a rule takes away was taken away on purpose, and goes at once."""
    for number in range(12):
        project.write(f"private/{number}.md", page(number, 1))
    project.write("a.md", "# A\n\nreste\n")
    project.run()
    project.configure(source={"excluded_paths": ["private"]})
    row = project.run()
    assert row.documents_removed == 12
    assert {hit.path for hit in project.search("mot3x0")} == {"a.md"}


def test_embedder_that_fails_leaves_the_index_as_it_was(project, monkeypatch):
    """Nothing is deleted before its replacement is embedded; what was embedded is kept."""
    project.write("a.md", page(1))
    project.run()
    whole = contents(project)
    project.write("a.md", page(2))
    monkeypatch.setattr(
        "rag_assets_tests.pipeline.failing.FAILS_AFTER_TEXTS", project.embedded() + 1, raising=True
    )
    project.configure(
        embedding={
            "backend": "rag_assets_tests.pipeline.failing:FailingEmbedder",
            "options": {"log_path": str(project.log), "batch_size": 1},
        }
    )
    with pytest.raises(Unavailable):
        project.run()
    assert contents(project) == whole
    monkeypatch.setattr("rag_assets_tests.pipeline.failing.FAILS_AFTER_TEXTS", None)
    row = project.run()
    assert row.chunks_embedded == 4 - 1, "one of the four texts was kept by the failed run"


def test_text_that_the_embedder_refuses_quarantines_one_document(project):
    """One bad text costs one document, with its lines and the reason in the ledger."""
    project.configure(
        embedding={"backend": "rag_assets_tests.pipeline.failing:PickyEmbedder", "options": {}}
    )
    project.write("good.md", page(1))
    project.write("bad.md", "# Bad\n\nINDIGESTE\n")
    row = project.run()
    assert row.status == "partial"
    store = project.reader()
    [item] = store.left_out()
    store.close()
    assert (item.path, item.status, item.reason) == ("bad.md", "quarantined", "embedding_rejected")
    assert "lines 1-3" in item.rule
    assert {hit.path for hit in project.search("Page Bad")} == {"good.md"}


def test_random_edits_equal_a_fresh_build(tmp_path: Path):
    """Replay equals rebuild: documents, passages, vectors, ledger, after every round of edits."""
    rng = random.Random(7)
    project = Project(tmp_path / "incremental")
    seen: set[str] = set()
    for round_ in range(12):
        for _ in range(8):
            random_edit(project, rng)
        before = project.embedded()
        project.run(removals_confirmed=True)
        fresh = Project(tmp_path / f"fresh-{round_}")
        fresh.root.rmdir()
        fresh.root.symlink_to(project.root)
        fresh.run()
        assert contents(project) == contents(fresh)
        hashes = chunk_hashes(fresh)
        assert project.embedded() - before == len(hashes - seen)
        seen |= hashes
        assert project.problems() == []


def random_edit(project: Project, rng: random.Random) -> None:
    """One thing that people do to files."""
    files = sorted(p for p in project.root.rglob("*.md") if p.is_file())
    name = f"{rng.choice(['a', 'b/c', 'legacy', 'é'])}/{rng.randint(0, 30)}.md"
    action = rng.randint(0, 6)
    if action <= 2 or not files:
        project.write(name, page(rng.randint(0, 50), rng.randint(0, 5)))
    elif action == 3:
        rng.choice(files).unlink()
    elif action == 4:
        target = project.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        rng.choice(files).rename(target)
    elif action == 5:
        project.write(".aiignore", rng.choice(["", "b/", "*1.md\n!11.md\n", "é/*"]))
    else:
        file = rng.choice(files)
        file.write_bytes(rng.choice([b"", b"---\nacl: [x]\n---\n# X\n", b"\xff", b"# Neuf\n"]))


def chunk_hashes(project: Project) -> set[str]:
    """Hashes of all passage texts in the index."""
    store = project.reader()
    try:
        return {chunk.content_hash for item in documents(store) for chunk in item.chunks}
    finally:
        store.close()


def test_shards_together_hold_what_one_partition_holds(tmp_path: Path):
    """Splitting a source into shards moves documents, embeds nothing and loses nothing."""
    project = Project(tmp_path / "p")
    for number in range(30):
        project.write(f"{number}.md", page(number, 2))
    project.run()
    whole, before = contents(project), project.embedded()
    project.configure(source={"shards": 4})
    project.run()
    assert contents(project) == whole
    assert project.embedded() == before
    assert project.problems() == []


def test_source_taken_out_of_the_configuration_leaves_the_index(tmp_path: Path):
    """What disappears from the configuration disappears from index, tables and ledger."""
    project = Project(tmp_path / "p")
    project.write("a.md", page(1))
    other = Project(tmp_path / "p", root="other")
    other.write("b.md", "# B\n\nSECRET_TEMOIN\n")
    two = [project.settings["sources"][0],
           {"name": "other", "root": "other", "acl": {"default": ["public"]}}]  # fmt: skip
    project.configure(sources=two)
    project.run()
    assert project.search("SECRET_TEMOIN", 1)[0].source == "other"
    project.configure(sources=two[:1])
    project.run()
    assert {hit.source for hit in project.search("SECRET_TEMOIN")} == {"docs"}
    data = project.folder / ".rag_assets"
    leaks = [p for p in data.rglob("*") if p.is_file() and b"SECRET_TEMOIN" in p.read_bytes()]
    assert leaks == []


def test_deleted_text_leaves_no_byte_in_the_data_folder(project):
    """Index, tables and cache forget the text with the document."""
    project.write("a.md", "# A\n\nCANARI_EFFACE_42 texte\n")
    project.write("b.md", page(1))
    project.run()
    (project.root / "a.md").unlink()
    project.run()
    data = project.folder / ".rag_assets"
    leaks = [p for p in data.rglob("*") if p.is_file() and b"CANARI_EFFACE_42" in p.read_bytes()]
    assert leaks == []


def test_ledger_of_runs_is_readable_by_any_sqlite(project):
    """``ingest_run`` is a plain table: counts, times, status."""
    project.write("a.md", page(1))
    project.run()
    file = next((project.folder / ".rag_assets/index").glob("*.sqlite"))
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    rows = connection.execute(
        "SELECT run_id, partition, status, documents_indexed, chunks_embedded FROM ingest_run"
    ).fetchall()
    connection.close()
    assert rows == [("run-1", "docs", "ok", 1, 4)]

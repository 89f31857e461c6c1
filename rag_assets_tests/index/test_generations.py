"""Generations: numbered files, one pointer, builds found by name, nothing deleted too early."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_assets.acl import EVERYTHING
from rag_assets.errors import IndexDamaged, IndexMissing, VectorStoreError
from rag_assets.index.base import VectorStore
from rag_assets.index.generations import IndexDirectory
from rag_assets.index.live import LiveStore
from rag_assets.index.sqlite import SqliteStore
from rag_assets.models import IndexFingerprint, IngestRun
from rag_assets.testing.documents import FINGERPRINT, indexed_document, unit_vector, write

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def directory(tmp_path: Path) -> IndexDirectory:
    """An index folder with one live document."""
    directory = IndexDirectory(tmp_path / "index")
    store = directory.writable_store()
    store.initialize(FINGERPRINT)
    write(store, indexed_document("a.md", ["ancien"]))
    store.close()
    return directory


def build(directory: IndexDirectory, build_id: str, text: str) -> SqliteStore:
    """A generation of its own with one document."""
    store = directory.writable_store(build_id)
    store.initialize(FINGERPRINT)
    write(store, indexed_document("a.md", [text]))
    return store


def contents(store: VectorStore) -> list[str]:
    """What a search gives."""
    return [hit.content for hit in store.search(unit_vector("x"), 9, acl_tags=EVERYTHING)]


def files(directory: IndexDirectory) -> list[str]:
    """The databases of the folder."""
    return sorted(p.name for p in directory.directory.glob("index-*.sqlite"))


def test_nothing_is_created_by_looking(tmp_path: Path) -> None:
    """A folder that does not exist has no live generation and stays as it is."""
    directory = IndexDirectory(tmp_path / "index")
    assert directory.current() is None
    assert directory.live_store() is None
    assert directory.prune() == []
    assert not directory.directory.exists()


def test_first_generation_is_live_at_once(directory: IndexDirectory) -> None:
    """The first index is readable while it grows."""
    assert files(directory) == ["index-000001.sqlite"]
    assert directory.pointer.read_text() == "index-000001.sqlite\n"
    live = directory.live_store()
    assert live is not None
    assert isinstance(live, VectorStore)
    assert contents(live) == ["ancien"]
    assert live.generation == directory.writable_store().generation


def test_build_is_invisible_until_promoted(directory: IndexDirectory) -> None:
    """Readers keep the old generation until the pointer moves, and then follow it."""
    live = directory.live_store()
    assert live is not None
    assert contents(live) == ["ancien"]
    store = build(directory, "b1", "nouveau")
    assert contents(live) == ["ancien"]
    store.promote()
    store.promote()
    assert contents(live) == ["nouveau"]
    assert live.generation == "index-000002.sqlite"
    assert directory.writable_store("b1").generation == live.generation
    assert directory.writable_store().generation == live.generation


def test_same_build_is_the_same_generation(directory: IndexDirectory) -> None:
    """A build is found by its name; another name is another generation."""
    first = directory.writable_store("b1")
    assert directory.writable_store("b1").generation == first.generation
    assert directory.writable_store("b2").generation != first.generation
    assert len(files(directory)) == 3


def test_finished_build_that_was_replaced_starts_anew(directory: IndexDirectory) -> None:
    """A name used again after other builds gets a fresh file."""
    build(directory, "b1", "un").promote()
    build(directory, "b2", "deux").promote()
    assert directory.writable_store("b1").generation == "index-000004.sqlite"


OPEN = """
import sys
from rag_assets.index.generations import IndexDirectory
build = None if sys.argv[2] == "-" else sys.argv[2]
print(IndexDirectory(sys.argv[1]).writable_store(build).generation)
"""


@pytest.mark.parametrize("build_id", ["-", "b1"])
def test_processes_that_ask_at_once_get_the_same(tmp_path: Path, build_id: str) -> None:
    """Four processes on an empty folder: one file."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, str(tmp_path / "index"), build_id],
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )
        for _ in range(4)
    ]
    names = {process.communicate()[0] for process in processes}
    assert names == {"index-000001.sqlite\n"}


def test_history_of_runs_survives_a_rebuild(directory: IndexDirectory) -> None:
    """Promotion brings the rows of earlier runs along."""
    old = IngestRun("r1", "guides", "guides", "2026-03-01T09:00:00Z", None, "ok")
    directory.writable_store().record_run(old)
    store = build(directory, "b1", "nouveau")
    new = IngestRun("r2", "guides", "guides", "2026-03-02T09:00:00Z", None, "ok")
    store.record_run(new)
    store.promote()
    assert directory.writable_store().runs() == [new, old]


def test_empty_generation_is_not_promoted(directory: IndexDirectory) -> None:
    """A build that was never initialised cannot replace a live index."""
    store = directory.writable_store("b1")
    with pytest.raises(IndexMissing):
        store.promote()
    assert directory.current() == directory.directory / "index-000001.sqlite"


def test_older_generations_are_pruned(directory: IndexDirectory) -> None:
    """Only the live one stays, with its companions; numbers are not used again."""
    build(directory, "b1", "un").promote()
    store = build(directory, "b2", "deux")
    store.promote()
    assert [path.name for path in directory.prune(keep=2)] == ["index-000001.sqlite"]
    assert [path.name for path in directory.prune()] == ["index-000002.sqlite"]
    assert files(directory) == ["index-000003.sqlite"]
    leftovers = {p.name for p in directory.directory.iterdir()} - {"CURRENT", "index.lock"}
    assert all(name.startswith("index-000003.sqlite") for name in leftovers)
    assert directory.writable_store("b3").generation == "index-000004.sqlite"


def test_unfinished_builds_are_pruned_when_old(directory: IndexDirectory) -> None:
    """A build in progress stays, one that nobody wrote to for a week goes."""
    path = directory.writable_store("b1").path
    assert directory.prune() == []
    long_ago = time.time() - 8 * 24 * 3600
    for file in (path, Path(f"{path}-wal")):
        if file.exists():
            os.utime(file, (long_ago, long_ago))
    assert directory.prune() == [path]
    assert not path.exists()


def test_generation_in_use_by_a_writer_is_not_pruned(directory: IndexDirectory) -> None:
    """A slow run that still writes to the former generation does not lose its file."""
    slow = directory.writable_store()
    with slow.writing(run_id="r", partition="guides", wait_seconds=0):
        build(directory, "b1", "nouveau").promote()
        assert directory.prune() == []
    assert len(directory.prune()) == 1


def test_reader_of_a_pruned_generation_goes_on(directory: IndexDirectory) -> None:
    """Deleting the old file disturbs neither an open reader nor the next call."""
    live = directory.live_store()
    assert live is not None
    stream = live.documents()
    assert isinstance(stream, Iterator)
    first = next(stream)
    build(directory, "b1", "nouveau").promote()
    assert len(directory.prune()) == 1
    assert first.chunks[0].content == "ancien"
    assert list(stream) == []
    assert contents(live) == ["nouveau"]


@pytest.mark.parametrize(
    "pointer", [b"", b"index-000009.sqlite\n", b"../../etc/passwd", b"\xff\xfe", b"index-1.sqlite"]
)
def test_broken_pointer_is_told_and_a_build_repairs_it(
    directory: IndexDirectory, pointer: bytes
) -> None:
    """Readers name the pointer and the way out, which then works."""
    live = directory.live_store()
    directory.pointer.write_bytes(pointer)
    with pytest.raises(IndexDamaged, match="--full"):
        directory.current()
    with pytest.raises(IndexDamaged, match="--full"):
        directory.writable_store()
    assert directory.prune() == []
    build(directory, "b1", "nouveau").promote()
    assert live is not None
    assert contents(live) == ["nouveau"]


@pytest.mark.parametrize("damage", [b"", b"text" * 9000])
def test_damaged_live_index_is_replaced_by_a_build(
    directory: IndexDirectory, damage: bytes
) -> None:
    """A damaged live generation refuses to be read or written, and a build takes its place."""
    path = directory.current()
    assert path is not None
    path.write_bytes(damage)
    live = directory.live_store()
    assert live is not None
    with pytest.raises(IndexDamaged, match="--full"):
        live.stats()
    with pytest.raises(IndexDamaged, match="--full"):
        directory.writable_store()
    build(directory, "b1", "nouveau").promote()
    assert contents(live) == ["nouveau"]
    assert directory.prune() == [path]


def test_leftovers_of_a_killed_creation_are_not_used(directory: IndexDirectory) -> None:
    """An empty file that a killed process left behind never becomes a build."""
    (directory.directory / "index-000002.sqlite").write_bytes(b"")
    assert directory.writable_store("b1").generation == "index-000003.sqlite"


def test_live_store_refuses_to_write(directory: IndexDirectory) -> None:
    """Reading and writing are opened by different doors."""
    live = LiveStore(directory)
    for attempt in (
        lambda: live.initialize(FINGERPRINT),
        lambda: live.writing(run_id="r", partition="p", wait_seconds=0),
        lambda: live.upsert_documents([], run_id="r"),
        lambda: live.delete_documents("s", []),
        lambda: live.replace_left_out("s", [], remove=[]),
        lambda: live.record_partition("p", "1"),
        lambda: live.forget_partition("p"),
        lambda: live.record_run(IngestRun("r", "p", "s", "2026-01-01T00:00:00Z", None, "ok")),
        live.repair,
        live.finish,
    ):
        with pytest.raises(VectorStoreError, match="reading only"):
            attempt()
    live.promote()


def test_reads_are_never_mixed_while_generations_change(directory: IndexDirectory) -> None:
    """Promotions and prunings under three reading threads: each answer is of one generation."""
    live = directory.live_store()
    assert live is not None
    done, wrong, answers = threading.Event(), [], []

    def read() -> None:
        while not done.is_set():
            try:
                stats, texts = live.stats(), contents(live)
            except Exception as exc:  # noqa: BLE001 (any failure of a reader is the finding)
                wrong.append(exc)
                return
            answers.append(texts)
            if len(set(texts)) != 1 or stats.chunks != stats.vectors:
                wrong.append(texts)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(15):
        store = directory.writable_store(f"build {n}")
        store.initialize(IndexFingerprint(f"model {n}", 8, "c"))
        write(store, *(indexed_document(f"{m}.md", [f"version {n}"]) for m in range(5)))
        store.promote()
        store.close()
        directory.prune()
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(answers) > 15
    assert files(directory) == ["index-000016.sqlite"]

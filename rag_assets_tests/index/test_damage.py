"""Files that are not an index, and damaged indexes: told, with the way out, and repaired."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw
import pytest

from rag_assets.acl import EVERYTHING
from rag_assets.errors import IndexDamaged, IndexMissing, VectorStoreError
from rag_assets.index.connections import load_sqlite_vec
from rag_assets.index.faults import translated_errors
from rag_assets.index.health import quick_counts, quick_problems
from rag_assets.index.sqlite import SqliteStore
from rag_assets.models import LeftOut
from rag_assets.testing.documents import FINGERPRINT, indexed_document, unit_vector, write

DOCUMENTS = 30
CHUNKS = 4 * DOCUMENTS
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    """A closed store with 30 documents of 4 passages, in two sets of tags."""
    store = SqliteStore(tmp_path / "index.sqlite")
    store.initialize(FINGERPRINT)
    with store.writing(run_id="r", partition="guides", wait_seconds=1):
        store.upsert_documents(
            [
                indexed_document(
                    f"{n}.md",
                    [f"texte {n} {m}" for m in range(4)],
                    tags=["public"] if n % 2 else ["service:rh"],
                )
                for n in range(DOCUMENTS)
            ],
            run_id="r",
        )
        store.record_partition("guides", "v1")
        store.finish()
    store.close()
    return store


@contextmanager
def raw(path: Path) -> Iterator[apsw.Connection]:
    """A connection without any of the store's care."""
    connection = apsw.Connection(str(path))
    load_sqlite_vec(connection)
    try:
        yield connection
    finally:
        connection.close()


def flip_vector_byte(connection: apsw.Connection) -> None:
    """One bit in the vector in slot 7 of the first block."""
    blob = connection.execute("SELECT vectors FROM chunk_vector_vector_chunks00").fetchone()[0]
    changed = bytearray(blob)
    changed[7 * 32 + 5] ^= 1
    connection.execute("UPDATE chunk_vector_vector_chunks00 SET vectors = ?", (bytes(changed),))


def clear_validity_bit(connection: apsw.Connection) -> None:
    """A vector that a search no longer sees."""
    blob = bytearray(connection.execute("SELECT validity FROM chunk_vector_chunks").fetchone()[0])
    blob[0] &= 0xFE
    connection.execute("UPDATE chunk_vector_chunks SET validity = ?", (bytes(blob),))


def swap_rowids(connection: apsw.Connection) -> None:
    """Two vectors that answer for each other."""
    blob = bytearray(connection.execute("SELECT rowids FROM chunk_vector_chunks").fetchone()[0])
    blob[0:8], blob[8:16] = blob[8:16], blob[0:8]
    connection.execute("UPDATE chunk_vector_chunks SET rowids = ?", (bytes(blob),))


SQL_DAMAGE = {
    "half of the vectors deleted": "DELETE FROM chunk_vector WHERE rowid % 2 = 0",
    "ten vectors deleted": "DELETE FROM chunk_vector WHERE rowid <= 10",
    "vector without passage": (
        "INSERT INTO chunk_vector (rowid, embedding, acl_set, source_id) "
        "SELECT 9999, embedding, acl_set, source_id FROM chunk_vector WHERE rowid = 1"
    ),
    "passages deleted": "DELETE FROM chunk WHERE id % 3 = 0",
    "document deleted under its passages": "DELETE FROM document WHERE id = 4",
    "position skipped": "UPDATE chunk SET position = 9 WHERE id = 4",
    "text changed": "UPDATE chunk SET content = 'autre' WHERE id = 5",
    "vector with other tags": "UPDATE chunk_vector SET acl_set = 1 - acl_set + 2 WHERE rowid = 5",
    "vector of another source": "UPDATE chunk_vector SET source_id = 77 WHERE rowid = 5",
    "document with other tags": "UPDATE document SET acl_set = 3 - acl_set WHERE id = 5",
    "document with unknown tags": "UPDATE document SET acl_set = 99 WHERE id = 5",
    "tag added to a set": "INSERT INTO acl_set_tag VALUES ('intrus', 1)",
    "source forgotten": "DELETE FROM source",
    "indexed and left out": (
        "INSERT INTO left_out VALUES ('guides', '3.md', 'excluded', 'aiignore', '', NULL, NULL)"
    ),
    "slot moved in the map": "UPDATE chunk_vector_rowids SET chunk_offset = 200 WHERE rowid = 3",
    "map row deleted": "DELETE FROM chunk_vector_rowids WHERE rowid = 3",
    "vectors of a block deleted": "DELETE FROM chunk_vector_vector_chunks00",
    "vectors of a block cut": (
        "UPDATE chunk_vector_vector_chunks00 SET vectors = substr(vectors, 1, 100)"
    ),
    "tags of a block deleted": "DELETE FROM chunk_vector_metadatachunks00",
    "block deleted": "DELETE FROM chunk_vector_chunks",
    "stray block": "INSERT INTO chunk_vector_vector_chunks00 VALUES (55, zeroblob(8192))",
}
DAMAGE = {
    **SQL_DAMAGE,
    "bit of a vector flipped": flip_vector_byte,
    "bit of validity cleared": clear_validity_bit,
    "row numbers swapped": swap_rowids,
}
COUNTED = {
    "half of the vectors deleted",
    "ten vectors deleted",
    "vector without passage",
    "passages deleted",
    "document deleted under its passages",
    "map row deleted",
    "block deleted",
    "bit of validity cleared",
}
"""Damage that counting alone must show."""


@pytest.mark.parametrize("name", DAMAGE)
def test_planted_damage_is_found_and_repaired(store: SqliteStore, name: str) -> None:
    """``verify`` names it; after ``repair`` the index is sound and holds only whole documents."""
    with raw(store.path) as connection:
        damage = DAMAGE[name]
        if callable(damage):
            damage(connection)
        else:
            connection.execute(damage)
    problems = store.verify()
    assert problems
    assert all(isinstance(problem, str) and problem for problem in problems)
    if name in COUNTED:
        assert store.quick_check()
        assert quick_problems(store.path)
    with store.writing(run_id="r2", partition="guides", wait_seconds=1):
        forgotten = store.repair()
        assert store.repair() == 0
    assert store.verify() == []
    assert store.quick_check() == []
    assert store.partitions() == {}
    stats = store.stats()
    assert stats.documents >= DOCUMENTS - max(forgotten, 1)
    assert stats.chunks == stats.vectors == 4 * stats.documents
    items = [indexed_document(f"{n}.md", [f"texte {n} {m}" for m in range(4)]) for n in range(30)]
    write(store, *items)
    assert store.verify() == []
    assert len(store.search(unit_vector("x"), 1000, acl_tags=["public"])) == CHUNKS


def test_sound_index_needs_no_repair(store: SqliteStore) -> None:
    """``repair`` changes nothing where ``verify`` finds nothing."""
    with store.writing(run_id="r2", partition="guides", wait_seconds=1):
        assert store.repair() == 0
    assert store.partitions() == {"guides": "v1"}
    assert store.stats().documents == DOCUMENTS


def test_many_problems_are_counted_not_listed(store: SqliteStore) -> None:
    """A thousand sentences of one kind help nobody."""
    with raw(store.path) as connection:
        connection.execute("UPDATE chunk SET content = 'x'")
    problems = store.verify()
    assert len(problems) < 40
    assert any("100 more" in problem for problem in problems)


def test_damaged_pages_are_beyond_repair(store: SqliteStore) -> None:
    """Where SQLite's own structure is broken, only a new index helps, and that is said."""
    data = bytearray(store.path.read_bytes())
    for page in range(3, len(data) // 16384):
        data[page * 16384 : page * 16384 + 64] = b"\xff" * 64
    store.path.write_bytes(bytes(data))
    with pytest.raises(IndexDamaged, match="--full"):
        raise IndexDamaged("--full" if store.verify() else "")
    with (
        pytest.raises(IndexDamaged, match="--full"),
        store.writing(run_id="r2", partition="guides", wait_seconds=1),
    ):
        store.repair()


def make_text(path: Path) -> None:
    """A text file."""
    path.write_text("# Notes\n" * 3000, encoding="utf-8")


def make_foreign(path: Path) -> None:
    """Another program's database."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE document (id INTEGER)")
    connection.close()


def make_empty(path: Path) -> None:
    """No byte at all."""
    path.write_bytes(b"")


def make_short(path: Path) -> None:
    """The first half of an index."""
    make_index(path)
    os.truncate(path, path.stat().st_size // 2 // 16384 * 16384)


def make_stump(path: Path) -> None:
    """Less than one page of an index."""
    make_index(path)
    os.truncate(path, 1000)


def make_future(path: Path) -> None:
    """An index of a later version."""
    make_index(path)
    with raw(path) as connection:
        connection.execute("PRAGMA user_version = 99")


def make_folder(path: Path) -> None:
    """A folder of that name."""
    path.mkdir()


def make_index(path: Path) -> None:
    """A sound index."""
    store = SqliteStore(path)
    store.initialize(FINGERPRINT)
    write(store, *(indexed_document(f"{n}.md", ["x " * 2000]) for n in range(50)))
    store.close()


@pytest.mark.parametrize(
    "make", [make_text, make_foreign, make_empty, make_short, make_stump, make_future, make_folder]
)
def test_what_is_not_a_sound_index_is_refused(tmp_path: Path, make: object) -> None:
    """Reading, writing and initialising all refuse it, and none changes it or adds tables."""
    path = tmp_path / "index.sqlite"
    make(path)  # type: ignore[operator]
    before = path.read_bytes() if path.is_file() else None
    store = SqliteStore(path)
    with pytest.raises(IndexDamaged, match="--full"):
        store.search(unit_vector("x"), 3, acl_tags=EVERYTHING)
    with pytest.raises(IndexDamaged, match="--full"):
        store.stats()
    with pytest.raises(IndexDamaged, match="--full"):
        store.initialize(FINGERPRINT)
    with (
        pytest.raises(IndexDamaged, match="--full"),
        store.writing(run_id="r", partition="p", wait_seconds=0),
    ):
        pass
    with pytest.raises(IndexDamaged):
        quick_counts(path)
    assert quick_problems(path)
    assert (path.read_bytes() if path.is_file() else None) == before


def test_missing_index_is_missing_and_stays_so(tmp_path: Path) -> None:
    """No reader creates a file."""
    store = SqliteStore(tmp_path / "index.sqlite")
    with pytest.raises(IndexMissing, match="rag-assets ingest"):
        store.stats()
    with pytest.raises(IndexMissing, match="rag-assets ingest"):
        store.search(unit_vector("x"), 3, acl_tags=EVERYTHING)
    assert list(tmp_path.iterdir()) == []


def test_uninitialised_index_is_not_ready(tmp_path: Path) -> None:
    """A search before the first run says that nothing was written yet."""
    from rag_assets.index.generations import IndexDirectory

    store = IndexDirectory(tmp_path).writable_store()
    with pytest.raises(IndexMissing, match="rag-assets ingest"):
        store.search(unit_vector("x"), 3, acl_tags=EVERYTHING)
    assert store.stats().documents == 0
    assert store.verify() == []
    assert store.quick_check() == []


def test_full_disk_writes_nothing(store: SqliteStore) -> None:
    """SQLITE_FULL becomes one clear sentence, and the transaction is rolled back."""
    with raw(store.path) as connection:
        connection.execute("PRAGMA max_page_count = 1")  # as small as the file is
        connection.execute("BEGIN IMMEDIATE")
        rows = ((f"k{n}", "x" * 5000) for n in range(1000))
        with pytest.raises(VectorStoreError, match="disk is full"), translated_errors(store.path):
            connection.executemany("INSERT INTO meta VALUES (?, ?)", rows)
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    assert store.verify() == []
    assert store.stats().documents == DOCUMENTS


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may mount a small disk"
)
def test_really_full_disk(tmp_path: Path) -> None:
    """On a disk of 2 MB a large batch fails whole; the index stays sound and readable."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True
    )
    if mount.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        store = SqliteStore(disk / "index.sqlite")
        store.initialize(FINGERPRINT)
        write(store, indexed_document("a.md", ["un"]))
        large = [indexed_document(f"{n}.md", ["x" * 20_000]) for n in range(200)]
        with pytest.raises(VectorStoreError, match=r"full|disk"):
            write(store, *large)
        assert store.stats().documents == 1
        assert store.verify() == []
        assert len(store.search(unit_vector("un"), 3, acl_tags=["public"])) == 1
        write(store, indexed_document("b.md", ["deux"]))
        assert store.stats().documents == 2
        store.close()
        _fill(disk)
        with pytest.raises(VectorStoreError):  # nor is a new index half created
            SqliteStore(disk / "other.sqlite").initialize(FINGERPRINT)
        assert not (disk / "other.sqlite").exists()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def _fill(disk: Path) -> None:
    with suppress(OSError), (disk / "fill").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


READ_ONLY = """
import os, sys
from pathlib import Path
import rag_assets.index.writing, rag_assets.index.searching, rag_assets.index.reading
from rag_assets.errors import VectorStoreError
from rag_assets.index.sqlite import SqliteStore
from rag_assets.testing.documents import FINGERPRINT, unit_vector
question = unit_vector("x")
os.setgid(65534); os.setuid(65534)
store = SqliteStore(Path(sys.argv[1]))
print(len(store.search(question, 5, acl_tags=["public"])))
for attempt in (lambda: store.writing(run_id="r", partition="p", wait_seconds=0).__enter__(),
                lambda: SqliteStore(Path(sys.argv[1]).parent / "new").initialize(FINGERPRINT)):
    try:
        attempt()
    except VectorStoreError as exc:
        print(type(exc).__name__, exc)
"""


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs to become another user"
)
def test_read_only_folder_can_be_searched_not_written(store: SqliteStore) -> None:
    """A user without write permission reads the index, and is told why it cannot write."""
    for folder in (store.path.parent, *store.path.parents[1:4]):
        if folder != Path("/tmp") and folder != Path("/"):
            folder.chmod(0o755)
    store.path.chmod(0o644)
    result = subprocess.run(
        [sys.executable, "-c", READ_ONLY, str(store.path)],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={"PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    if "PermissionError" in result.stderr:
        pytest.skip("the other user may not read this checkout")
    lines = result.stdout.splitlines()
    assert lines[:1] == ["5"], result.stderr
    assert "read-only" in lines[1]
    assert len(lines) == 3


def test_ledger_row_is_checked_against_documents(store: SqliteStore) -> None:
    """A caller that leaves out what is indexed is told by ``verify``."""
    row = LeftOut("guides", "1.md", "excluded", "aiignore")
    with store.writing(run_id="r", partition="guides", wait_seconds=0):
        store.replace_left_out("guides", [row], remove=[])
    assert any("1.md" in problem and "left out" in problem for problem in store.verify())

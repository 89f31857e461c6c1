"""The embedding cache: what comes back, what is forgotten, and what damage does to it."""

from __future__ import annotations

import logging
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_assets.embeddings.base import Vectors
from rag_assets.embeddings.cache import SCHEMA, EmbeddingCache
from rag_assets.errors import DimensionMismatch, VectorStoreError
from rag_assets.fingerprints import sha256_hex

SPACE = ("model-a", "passage")


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[EmbeddingCache]:
    cache = EmbeddingCache(tmp_path / "folder" / "embeddings.sqlite")
    yield cache
    cache.close()


def vectors(count: int, dim: int = 16, seed: int = 0) -> Vectors:
    return np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)


def keys(count: int, prefix: str = "text") -> list[str]:
    return [sha256_hex(f"{prefix} {n}") for n in range(count)]


def all_bytes(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(path.parent.iterdir()))


def stamp(path: Path, age_seconds: float) -> None:
    """Make every entry look as if it was last used so long ago."""
    db = apsw.Connection(str(path))
    db.execute("UPDATE entry SET used_at = ?", (int(time.time() - age_seconds),))
    db.close()


def test_vectors_come_back_to_the_bit(cache: EmbeddingCache) -> None:
    """float32 in, the same float32 out; unknown hashes are simply not there."""
    hashes, stored = keys(1200), vectors(1200)
    cache.put_many(*SPACE, hashes, stored)
    found = cache.get_many(*SPACE, [*hashes[::-1], "unknown"])
    assert found.keys() == set(hashes)
    assert all(np.array_equal(found[h], stored[n]) for n, h in enumerate(hashes))
    assert found[hashes[0]].dtype == np.float32


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["m1", "m2"]),
            st.sampled_from(["query", "passage"]),
            st.dictionaries(st.text(min_size=1, max_size=4), st.integers(0, 99), max_size=6),
        ),
        max_size=8,
    )
)
def test_it_behaves_like_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, puts: list[tuple[str, Any, dict[str, int]]]
) -> None:
    """The last value put under (fingerprint, type, hash) is the one that is found."""
    cache = EmbeddingCache(tmp_path_factory.mktemp("c") / "c.sqlite")
    model: dict[tuple[str, str], dict[str, int]] = {}
    for fingerprint, type, values in puts:
        rows = np.array([[v, 1.0] for v in values.values()], np.float32).reshape(-1, 2)
        cache.put_many(fingerprint, type, list(values), rows)
        model.setdefault((fingerprint, type), {}).update(values)
    for (fingerprint, type), values in model.items():
        found = cache.get_many(fingerprint, type, [*values, "absent-key"])  # type: ignore[arg-type]
        assert {h: int(v[0]) for h, v in found.items()} == values
    cache.close()


def test_missing_keeps_order_and_drops_duplicates(cache: EmbeddingCache) -> None:
    """Those that ``get_many`` would not give, each once."""
    cache.put_many(*SPACE, ["b", "d"], vectors(2))
    assert cache.missing(*SPACE, ["e", "b", "a", "e", "d", "c"]) == ["e", "a", "c"]
    assert cache.missing("other", "passage", ["b"]) == ["b"]
    assert cache.missing("model-a", "query", ["b"]) == ["b"]


def test_shapes_that_do_not_fit_are_refused(cache: EmbeddingCache) -> None:
    """As many vectors as hashes, and one dimension for each fingerprint."""
    with pytest.raises(VectorStoreError, match="2 hashes"):
        cache.put_many(*SPACE, ["a", "b"], vectors(3))
    cache.put_many(*SPACE, ["a"], vectors(1))
    with pytest.raises(DimensionMismatch, match=r"dimension 16 for model-a, not 8"):
        cache.put_many(*SPACE, ["b"], vectors(1, dim=8))
    assert cache.missing(*SPACE, ["a", "b"]) == ["b"]


def test_only_one_connection_is_used_for_reading_nothing(cache: EmbeddingCache) -> None:
    """Empty calls need no file."""
    cache.put_many(*SPACE, [], vectors(0))
    cache.touch(*SPACE, [])
    assert not cache.path.exists()


# ---------------------------------------------------------------- forgetting


def test_unused_vectors_leave_no_byte_behind(cache: EmbeddingCache) -> None:
    """After forgetting, neither key nor vector is in any file, with the cache still open."""
    gone, stays = keys(300, "gone"), keys(20, "stays")
    stored = vectors(320)
    cache.put_many(*SPACE, gone + stays, stored)
    assert stored[0].tobytes() in all_bytes(cache.path)
    assert cache.forget_unused("model-a", stays, older_than_seconds=0) == 300
    left = all_bytes(cache.path)
    for content_hash, vector in zip(gone, stored[:300], strict=True):
        assert content_hash.encode() not in left
        assert vector.tobytes() not in left
    assert cache.missing(*SPACE, stays) == []


def test_file_shrinks_when_most_of_it_is_forgotten(cache: EmbeddingCache) -> None:
    """A cache that is mostly empty gives the space back."""
    cache.put_many(*SPACE, keys(5000), vectors(5000, 64))
    before = len(all_bytes(cache.path))
    cache.forget_unused("model-a", keys(50), older_than_seconds=0)
    assert len(all_bytes(cache.path)) < before / 10
    assert len(cache.get_many(*SPACE, keys(50))) == 50


def test_recently_used_vectors_stay(cache: EmbeddingCache) -> None:
    """A vector nobody uses now is kept for a while: the text may come back."""
    cache.put_many(*SPACE, keys(5), vectors(5))
    assert cache.forget_unused("model-a", [], older_than_seconds=3600) == 0
    stamp(cache.path, 7200)
    assert cache.forget_unused("model-a", keys(2), older_than_seconds=3600) == 3
    assert cache.missing(*SPACE, keys(5)) == keys(5)[2:]


def test_being_in_use_renews_the_stamp(cache: EmbeddingCache) -> None:
    """What was in use until yesterday is not the first to go today."""
    cache.put_many(*SPACE, keys(4), vectors(4))
    stamp(cache.path, 40 * 86_400)
    cache.touch(*SPACE, keys(1))
    assert cache.forget_unused("model-a", keys(2), older_than_seconds=30 * 86_400) == 2
    assert cache.forget_unused("model-a", [], older_than_seconds=30 * 86_400) == 0
    assert cache.missing(*SPACE, keys(2)) == []


def test_touching_again_writes_nothing(cache: EmbeddingCache) -> None:
    """A stamp is renewed once a day, so a run that reuses everything hardly writes."""
    cache.put_many(*SPACE, keys(100), vectors(100))
    cache.forget_unused("model-a", keys(100), older_than_seconds=3600)  # empties the log
    cache.touch(*SPACE, keys(100))
    assert cache.path.with_name(cache.path.name + "-wal").stat().st_size == 0


def test_other_models_age_out(cache: EmbeddingCache) -> None:
    """Vectors of a model no longer used go like unused ones, though their texts still exist."""
    cache.put_many("old", "passage", keys(3), vectors(3))
    cache.put_many("new", "passage", keys(3), vectors(3))
    assert cache.forget_unused("new", keys(3), older_than_seconds=3600) == 0
    assert cache.forget_unused("new", keys(3), older_than_seconds=0) == 3
    assert cache.missing("new", "passage", keys(3)) == []


def test_no_text_is_stored() -> None:
    """The schema has no column for one."""
    db = apsw.Connection(":memory:")
    db.execute(SCHEMA)
    columns = {
        row[1]
        for table in ("space", "entry", "vector")
        for row in db.execute(f"PRAGMA table_info({table})")
    }
    assert columns == {
        "id", "fingerprint", "type", "dim", "space_id", "content_hash", "used_at",
        "entry_id", "value", "checksum",
    }  # fmt: skip


# ---------------------------------------------------------------- damage


def filled(path: Path) -> Vectors:
    stored = vectors(400, 32)
    cache = EmbeddingCache(path)
    cache.put_many(*SPACE, keys(400), stored)
    cache.forget_unused("model-a", keys(400), older_than_seconds=0)
    cache.close()
    return stored


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "header": lambda path: overwrite(path, 0, b"\0" * 100),
    "not_sqlite": lambda path: path.write_bytes(b"not a database at all " * 500),
    "half_a_file": lambda path: os.truncate(path, path.stat().st_size // 2),
    "first_page_only": lambda path: os.truncate(path, 4096),
    "random_pages": lambda path: overwrite(path, 8192, os.urandom(40_000)),
    "schema_page": lambda path: overwrite(path, 100, os.urandom(3000)),
    "other_version": lambda path: overwrite(path, 60, (7).to_bytes(4, "big")),
    "tables_dropped": lambda path: apsw.Connection(str(path)).execute("DROP TABLE vector"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_file_is_put_aside_and_begun_anew(
    tmp_path: Path, damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    """Never a wrong vector, never a failed run: a warning, the old file kept, a working cache."""
    path = tmp_path / "c.sqlite"
    stored = filled(path)
    damage(path)
    cache = EmbeddingCache(path)
    with caplog.at_level(logging.WARNING):
        found = cache.get_many(*SPACE, keys(400))
        cache.put_many(*SPACE, keys(10, "new"), vectors(10, 32))
        cache.put_many(*SPACE, keys(400), stored)
    index = {content_hash: n for n, content_hash in enumerate(keys(400))}
    assert all(np.array_equal(vector, stored[index[h]]) for h, vector in found.items())
    assert cache.missing(*SPACE, keys(400) + keys(10, "new")) == []
    assert "c.sqlite is damaged" in caplog.text
    assert (tmp_path / "c.sqlite.damaged").exists()
    cache.close()


def test_emptied_file_is_an_empty_cache(tmp_path: Path) -> None:
    """A file truncated to nothing holds nothing, and works."""
    path = tmp_path / "c.sqlite"
    filled(path)
    os.truncate(path, 0)
    cache = EmbeddingCache(path)
    assert cache.missing(*SPACE, keys(3)) == keys(3)
    cache.put_many(*SPACE, keys(3), vectors(3))
    assert cache.missing(*SPACE, keys(3)) == []
    cache.close()


def test_flipped_byte_is_never_served(tmp_path: Path) -> None:
    """A flipped byte, wherever it is in a vector: that one counts as missing, no other does."""
    path = tmp_path / "c.sqlite"
    stored = filled(path)
    at = path.read_bytes().index(stored[7].tobytes())
    for offset in (0, 1, 64, 127):
        original = path.read_bytes()[at + offset]
        overwrite(path, at + offset, bytes([original ^ 0x40]))
        cache = EmbeddingCache(path)
        assert cache.missing(*SPACE, keys(400)) == [keys(400)[7]]
        assert len(cache.get_many(*SPACE, keys(400))) == 399
        cache.close()
        overwrite(path, at + offset, bytes([original]))
    cache = EmbeddingCache(path)
    overwrite(path, at, b"\xff")
    cache.put_many(*SPACE, [keys(400)[7]], stored[7:8])
    assert np.array_equal(cache.get_many(*SPACE, keys(400))[keys(400)[7]], stored[7])
    cache.close()


def test_vectors_exchanged_between_keys_are_not_served(tmp_path: Path) -> None:
    """The checksum covers the key."""
    path = tmp_path / "c.sqlite"
    filled(path)
    db = apsw.Connection(str(path))
    rows = db.execute("SELECT value, checksum FROM vector WHERE entry_id IN (1, 2)").fetchall()
    for entry, row in zip((2, 1), rows, strict=True):
        db.execute("UPDATE vector SET value = ?, checksum = ? WHERE entry_id = ?", (*row, entry))
    db.close()
    cache = EmbeddingCache(path)
    assert set(cache.missing(*SPACE, keys(400))) == set(keys(2))
    cache.close()


def test_foreign_database_is_refused_and_untouched(tmp_path: Path) -> None:
    """A sound database of another program is not ours to move."""
    path = tmp_path / "c.sqlite"
    db = apsw.Connection(str(path))
    db.execute("CREATE TABLE precious(x); INSERT INTO precious VALUES (1)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(VectorStoreError, match=r"c\.sqlite is a database of something else"):
        EmbeddingCache(path).put_many(*SPACE, keys(1), vectors(1))
    assert path.read_bytes() == before


def test_damaged_file_goes_with_the_next_forgetting(tmp_path: Path) -> None:
    """What was put aside may hold vectors of documents that are gone; a foreign file stays."""
    path, aside = tmp_path / "c.sqlite", tmp_path / "c.sqlite.damaged"
    filled(path)
    overwrite(path, 8192, os.urandom(40_000))
    cache = EmbeddingCache(path)
    cache.put_many(*SPACE, keys(400), vectors(400, 32))
    assert aside.exists()
    cache.forget_unused("model-a", keys(1), older_than_seconds=0)
    assert not aside.exists()
    aside.write_text("somebody's notes")
    cache.forget_unused("model-a", keys(1), older_than_seconds=0)
    assert aside.exists()
    cache.close()


def test_file_removed_under_an_open_cache_is_begun_anew(cache: EmbeddingCache) -> None:
    """``rm`` of the data folder while a process runs: later writes are not lost in a ghost."""
    cache.put_many(*SPACE, keys(2), vectors(2))
    for file in cache.path.parent.iterdir():
        file.unlink()
    cache.put_many(*SPACE, keys(3, "new"), vectors(3))
    other = EmbeddingCache(cache.path)
    assert other.missing(*SPACE, keys(3, "new")) == []
    other.close()


# ---------------------------------------------------------------- the machine says no

FULL_DISK = """
import resource, signal, sys
import numpy as np
from rag_assets.embeddings.cache import EmbeddingCache
from rag_assets.errors import VectorStoreError

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
cache = EmbeddingCache(sys.argv[1])
cache.put_many("m", "passage", ["first"], np.ones((1, 384), np.float32))
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
try:
    for n in range(100):
        names = [f"{n}-{m}" for m in range(50)]
        cache.put_many("m", "passage", names, np.ones((50, 384), np.float32))
except VectorStoreError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(len(cache.missing("m", "passage", ["first", "0-0"])))
cache.put_many("m", "passage", ["later"], np.ones((1, 384), np.float32))
print(len(cache.missing("m", "passage", ["later"])))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a file size limit")
def test_write_that_fails_names_the_file_and_loses_nothing(tmp_path: Path) -> None:
    """At a file size limit: one clear error; what was committed stays; later writes work."""
    path = tmp_path / "c.sqlite"
    run = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, timeout=60
    )
    said, *counts = run.stdout.splitlines()
    assert str(path) in said
    assert "written" in said or "no space left" in said
    assert counts == ["0", "0"], run.stderr
    assert not path.with_name("c.sqlite.damaged").exists()


def test_full_disk_says_so(tmp_path: Path) -> None:
    """On a small file system of its own: no space left, and where."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(place)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs rights")
    try:
        cache = EmbeddingCache(place / "c.sqlite")
        full = r"no space left to write .*small/c\.sqlite"
        with pytest.raises(VectorStoreError, match=full):
            cache.put_many(*SPACE, keys(2000), vectors(2000, 384))
        cache.close()
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_place_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    """A folder where the file should be, and a file where its folder should be."""
    (tmp_path / "c.sqlite").mkdir()
    with pytest.raises(VectorStoreError, match=r"c\.sqlite cannot be read or written"):
        EmbeddingCache(tmp_path / "c.sqlite").missing(*SPACE, keys(1))
    (tmp_path / "file").write_text("x")
    with pytest.raises(VectorStoreError, match=r"file/c\.sqlite cannot be read or written"):
        EmbeddingCache(tmp_path / "file" / "c.sqlite").missing(*SPACE, keys(1))


# ---------------------------------------------------------------- company


def _write_much(path: Path, number: int, start: Any, failures: Any) -> None:
    start.wait()
    try:
        cache = EmbeddingCache(path)
        for n in range(25):
            cache.put_many(*SPACE, keys(20, f"{number} {n}"), vectors(20))
            cache.touch(*SPACE, keys(20, f"{number} {n}"))
            cache.get_many(*SPACE, keys(20, f"0 {n}"))
        cache.close()
    except Exception as error:  # noqa: BLE001
        failures.put(repr(error))


@pytest.mark.slow
def test_processes_may_write_at_once_from_the_first_moment(tmp_path: Path) -> None:
    """Four processes create and fill one file together: no error, nothing lost."""
    path = tmp_path / "c.sqlite"
    context = multiprocessing.get_context("spawn")
    start, failures = context.Barrier(4), context.Queue()
    writers = [
        context.Process(target=_write_much, args=(path, number, start, failures))
        for number in range(4)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(timeout=120)
    assert failures.empty(), failures.get()
    cache = EmbeddingCache(path)
    wanted = [h for number in range(4) for n in range(25) for h in keys(20, f"{number} {n}")]
    assert cache.missing(*SPACE, wanted) == []
    cache.close()


def test_threads_share_one_cache(cache: EmbeddingCache) -> None:
    """Reads and writes from several threads."""
    errors: list[Exception] = []

    def work(number: int) -> None:
        try:
            for n in range(20):
                cache.put_many(*SPACE, keys(5, f"{number} {n}"), vectors(5))
                assert len(cache.get_many(*SPACE, keys(5, f"{number} {n}"))) == 5
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def _use_after_fork(cache: EmbeddingCache, results: Any) -> None:
    cache.put_many(*SPACE, keys(3, "child"), vectors(3))
    results.put(len(cache.get_many(*SPACE, keys(3, "parent") + keys(3, "child"))))


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_child_after_fork_opens_its_own_connection(cache: EmbeddingCache) -> None:
    """SQLite connections do not cross a fork; the cache object may."""
    cache.put_many(*SPACE, keys(3, "parent"), vectors(3))
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_use_after_fork, args=(cache, results))
    child.start()
    assert results.get(timeout=30) == 6
    child.join()
    cache.put_many(*SPACE, keys(1, "after"), vectors(1))
    assert cache.missing(*SPACE, keys(3, "child") + keys(1, "after")) == []


def test_forgetting_while_others_read_is_safe(cache: EmbeddingCache) -> None:
    """A reader of another connection sees either all or what is left, and no error."""
    cache.put_many(*SPACE, keys(500), vectors(500))
    other = EmbeddingCache(cache.path)
    stop = threading.Event()
    counts: set[int] = set()

    def read() -> None:
        while not stop.is_set():
            counts.add(len(other.get_many(*SPACE, keys(500)[:400])))

    reader = threading.Thread(target=read)
    reader.start()
    time.sleep(0.05)
    cache.forget_unused("model-a", keys(100), older_than_seconds=0)
    time.sleep(0.05)
    stop.set()
    reader.join()
    assert counts <= {400, 100}
    other.close()

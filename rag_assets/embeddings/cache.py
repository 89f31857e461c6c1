"""Vectors that were paid for once: (embedder fingerprint, input type, content_hash) -> vector.

One SQLite file, safe for several processes. It holds hashes and numbers, never a text, and nothing
that cannot be made again: a damaged file is put aside and begun anew.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import apsw
import numpy as np

from rag_assets.embeddings.base import InputType, Vectors
from rag_assets.errors import DimensionMismatch, VectorStoreError

APPLICATION_ID: Final = 0x52414543
"""``RAEC``, in the header of the file: how a cache of ours is told from other SQLite files."""
SCHEMA_VERSION: Final = 1
BUSY_TIMEOUT_SECONDS: Final = 30.0
"""How long a writer waits for another process to commit; a commit takes milliseconds."""
KEYS_PER_STATEMENT: Final = 500
STAMP_SECONDS: Final = 86_400
"""A last-used stamp is renewed when it is this old, so using a vector mostly writes nothing."""

# The stamps stand apart from the vectors: renewing one rewrites 100 bytes, not a vector's page.
SCHEMA: Final = f"""
CREATE TABLE space(
    id INTEGER PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    type TEXT NOT NULL,
    dim INTEGER NOT NULL,
    UNIQUE(fingerprint, type)
) STRICT;
CREATE TABLE entry(
    id INTEGER PRIMARY KEY,
    space_id INTEGER NOT NULL REFERENCES space(id),
    content_hash TEXT NOT NULL,
    used_at INTEGER NOT NULL,
    UNIQUE(space_id, content_hash)
) STRICT;
CREATE TABLE vector(
    entry_id INTEGER PRIMARY KEY REFERENCES entry(id),
    value BLOB NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;
PRAGMA application_id={APPLICATION_ID};
PRAGMA user_version={SCHEMA_VERSION};
"""

_SELECT: Final = """
SELECT entry.content_hash, vector.value, vector.checksum
FROM entry JOIN vector ON vector.entry_id = entry.id
WHERE entry.space_id = ? AND entry.content_hash IN ({places})
"""
_TOUCH: Final = """
UPDATE entry SET used_at = ? WHERE space_id = ? AND used_at < ? AND content_hash IN ({places})
"""
_IDS: Final = "SELECT id, content_hash FROM entry WHERE space_id = ?"
_ENTRIES: Final = """
SELECT entry.id, entry.content_hash, entry.used_at, space.fingerprint
FROM entry JOIN space ON space.id = entry.space_id
"""
_PUT_ENTRY: Final = """
INSERT INTO entry(space_id, content_hash, used_at) VALUES (?, ?, ?)
ON CONFLICT(space_id, content_hash) DO UPDATE SET used_at = excluded.used_at
RETURNING id
"""
_PUT_VECTOR: Final = """
INSERT INTO vector(entry_id, value, checksum) VALUES (?, ?, ?)
ON CONFLICT(entry_id) DO UPDATE SET value = excluded.value, checksum = excluded.checksum
"""

_logger = logging.getLogger(__name__)
_T = TypeVar("_T")
_inherited: list[apsw.Connection] = []
"""Connections of a parent process, kept from being closed here: SQLite may not cross a fork."""


class _DamagedError(Exception):
    """The file is not a sound cache."""


_DAMAGE: Final = (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, _DamagedError)
"""``SQLError``: a table or column is gone."""
_ATTEMPTS: Final = 4
"""Other processes may put a damaged file aside while this one is opening it."""


class EmbeddingCache:
    """The cache file at ``path``, made when it is first used, its folder too.

    Safe to share between threads, and after a fork. Every vector carries a checksum: one whose
    bytes changed on disk counts as missing. All methods raise ``VectorStoreError`` (with the path)
    when the file cannot be opened or written: no rights, no space, locked for too long, or another
    program's database.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        self._owner: tuple[int, apsw.Connection] | None = None

    def get_many(
        self, fingerprint: str, type: InputType, hashes: Iterable[str]
    ) -> dict[str, Vectors]:
        """content_hash -> float32 [dim] of those that are cached (read-only arrays)."""
        wanted = list(dict.fromkeys(hashes))

        def read(db: apsw.Connection) -> dict[str, Vectors]:
            return {
                content_hash: np.frombuffer(value, "<f4").astype(np.float32, copy=False)
                for content_hash, value in _sound_rows(db, fingerprint, type, wanted)
            }

        return self._run(read)

    def missing(self, fingerprint: str, type: InputType, hashes: Iterable[str]) -> list[str]:
        """Those of ``hashes`` that ``get_many`` would not give, in their order, each once."""
        wanted = list(dict.fromkeys(hashes))

        def read(db: apsw.Connection) -> list[str]:
            found = {content_hash for content_hash, _ in _sound_rows(db, fingerprint, type, wanted)}
            return [content_hash for content_hash in wanted if content_hash not in found]

        return self._run(read)

    def put_many(
        self, fingerprint: str, type: InputType, hashes: Sequence[str], vectors: Vectors
    ) -> None:
        """Keep float32 [len(hashes), dim], all of it or nothing; committed when this returns.

        Raises:
            DimensionMismatch: vectors of another dimension are kept under this fingerprint.
        """
        if vectors.ndim != 2 or len(vectors) != len(hashes):
            raise VectorStoreError(
                f"{len(hashes)} hashes but vectors of shape {list(vectors.shape)} for {self.path}"
            )
        values = [row.tobytes() for row in np.ascontiguousarray(vectors, "<f4")]

        def write(db: apsw.Connection) -> None:
            space = self._make_space(db, fingerprint, type, vectors.shape[1])
            now = int(time.time())
            for content_hash, value in zip(hashes, values, strict=True):
                entry = db.execute(_PUT_ENTRY, (space, content_hash, now)).get
                db.execute(_PUT_VECTOR, (entry, value, _checksum(content_hash, value)))

        if values:
            self._write(write)

    def touch(self, fingerprint: str, type: InputType, hashes: Iterable[str]) -> None:
        """Remember that these are in use; writes only stamps older than ``STAMP_SECONDS``."""
        used = list(hashes)

        def write(db: apsw.Connection) -> None:
            space = _space(db, fingerprint, type)
            if space is None:
                return
            now = int(time.time())
            for some, places in _portions(used):
                db.execute(
                    _TOUCH.format(places=places),
                    (now, space[0], now - STAMP_SECONDS, *some),
                )

        if used:
            self._write(write)

    def forget(self, fingerprint: str, type: InputType, hashes: Iterable[str]) -> int:
        """Drop these; how many there were."""
        dropped = set(hashes)

        def chosen(db: apsw.Connection) -> list[int]:
            space = _space(db, fingerprint, type)
            rows: Iterable[Any] = db.execute(_IDS, (space[0],)).fetchall() if space else ()
            return [entry for entry, content_hash in rows if content_hash in dropped]

        return self._forget(chosen)

    def forget_unused(
        self, fingerprint: str, used_hashes: Collection[str], older_than_seconds: float
    ) -> int:
        """Drop what is no longer in use and was not for a while; how many vectors.

        In use are the ``used_hashes`` of this fingerprint; those of other embedders are not.
        Afterwards no byte of what was dropped is in any file of the cache (unless another process
        reads on for longer than the busy time-out). Stamps may be a day old, so an age is exact to
        a day; 0 drops at once all that is not in use.
        """
        used = frozenset(used_hashes)
        now = time.time()

        def chosen(db: apsw.Connection) -> list[int]:
            unused: list[int] = []
            worn: list[tuple[int, int]] = []
            for entry, content_hash, used_at, owner in db.execute(_ENTRIES):
                if owner == fingerprint and content_hash in used:
                    if used_at < now - STAMP_SECONDS:
                        worn.append((int(now), entry))
                elif used_at <= now - older_than_seconds:
                    unused.append(entry)
            db.executemany("UPDATE entry SET used_at = ? WHERE id = ?", worn)
            return unused

        return self._forget(chosen)

    def close(self) -> None:
        """Close this process's connection; it is opened again when the cache is used."""
        with self._lock:
            owner, self._owner = self._owner, None
            if owner and owner[0] == os.getpid():
                owner[1].close()

    # ------------------------------------------------------------------ the file

    def _run(self, work: Callable[[apsw.Connection], _T]) -> _T:
        """``work`` on the open file; a damaged one is put aside and ``work`` done on a new one."""
        with self._lock, self._explained():
            for _ in range(_ATTEMPTS - 1):
                try:
                    return work(self._connection())
                except _DAMAGE as error:
                    self._put_aside(error)
                except apsw.Error:
                    if not self._moved():
                        raise
            return work(self._connection())

    def _write(self, work: Callable[[apsw.Connection], None]) -> None:
        def transaction(db: apsw.Connection) -> None:
            with _immediate(db):
                work(db)

        self._run(transaction)

    def _forget(self, chosen: Callable[[apsw.Connection], list[int]]) -> int:
        """Delete the chosen entries and their bytes: zeroed pages, emptied log, no file aside."""

        def delete(db: apsw.Connection) -> int:
            with _immediate(db):
                entries = [(entry,) for entry in chosen(db)]
                db.executemany("DELETE FROM vector WHERE entry_id = ?", entries)
                db.executemany("DELETE FROM entry WHERE id = ?", entries)
            if entries:
                _give_back(db)
            with suppress(apsw.BusyError):
                db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            return len(entries)

        dropped = self._run(delete)
        if _was_ours(self._aside):
            for aside in _files(self._aside):
                aside.unlink(missing_ok=True)
        return dropped

    @property
    def _aside(self) -> Path:
        return self.path.with_name(self.path.name + ".damaged")

    def _connection(self) -> apsw.Connection:
        """This process's connection, to the file that has the path now."""
        if self._owner is not None and self._owner[0] != os.getpid():
            _inherited.append(self._owner[1])
            self._owner = None
        if self._moved():
            # Put aside or removed by somebody else: what is written there is lost.
            self.close()
        if self._owner is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._nobody_opening():
                self._open()
        assert self._owner is not None
        return self._owner[1]

    def _open(self) -> None:
        db = apsw.Connection(str(self.path))
        self._owner = (os.getpid(), db)
        try:
            db.set_busy_timeout(int(BUSY_TIMEOUT_SECONDS * 1000))
            if _pragma(db, "application_id") != APPLICATION_ID:
                self._found(db)
            _check_version(db)
            db.pragma("journal_mode", "wal")
            # A lost commit after a power cut is embedded again; an fsync per batch buys nothing.
            db.pragma("synchronous", "normal")
            db.pragma("secure_delete", True)
        except _DAMAGE:
            raise  # the connection is still needed, to see whether the file has moved
        except BaseException:
            self.close()
            raise

    def _moved(self) -> bool:
        """Whether the file this process has open is no longer the one at the path."""
        if self._owner is None:
            return False
        moved = ctypes.c_int(0)
        known = self._owner[1].file_control(
            "main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(moved)
        )
        return known and bool(moved.value)

    @contextmanager
    def _nobody_opening(self) -> Iterator[None]:
        """Hold the lock under which a file is opened or put aside, never both at once.

        SQLite's own lock on an empty file beside the cache: it ends with the process that holds it.
        """
        lock = apsw.Connection(str(self.path.with_name(self.path.name + ".lock")))
        try:
            lock.set_busy_timeout(int(BUSY_TIMEOUT_SECONDS * 1000))
            lock.execute("BEGIN EXCLUSIVE")
            yield
        finally:
            lock.close()

    def _found(self, db: apsw.Connection) -> None:
        """Make the schema in an empty file; refuse another program's database."""
        with _immediate(db):
            if _pragma(db, "application_id") == APPLICATION_ID:
                return  # made by another process in the meantime
            tables = db.execute("SELECT count(*) FROM sqlite_schema").get
            if tables or _pragma(db, "application_id") or _pragma(db, "user_version"):
                raise VectorStoreError(
                    f"{self.path} is a database of something else, not an embedding cache: "
                    "move it away or set another data_dir"
                )
            db.execute(SCHEMA)

    def _put_aside(self, error: Exception) -> None:
        """Rename the damaged file, log first: a log may never meet a file it does not belong to."""
        with self._nobody_opening():
            moved = self._moved()
            with suppress(apsw.Error):
                self.close()
            if moved:
                return  # another process has done it
            for ours, aside in zip(_files(self.path), _files(self._aside), strict=True):
                aside.unlink(missing_ok=True)
                with suppress(FileNotFoundError):
                    ours.replace(aside)
        _logger.warning(
            "The embedding cache %s is damaged (%s); it is kept as %s and begun anew, so texts "
            "will be embedded again.",
            self.path,
            error,
            self._aside.name,
        )

    def _make_space(self, db: apsw.Connection, fingerprint: str, type: InputType, dim: int) -> int:
        found = _space(db, fingerprint, type)
        if found is None:
            db.execute(
                "INSERT INTO space(fingerprint, type, dim) VALUES (?, ?, ?)",
                (fingerprint, type, dim),
            )
            return db.last_insert_rowid()
        if found[1] != dim:
            raise DimensionMismatch(
                f"{self.path} keeps vectors of dimension {found[1]} for {fingerprint}, not {dim}"
            )
        return found[0]

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """The only place where errors of SQLite and of the file system are translated."""
        try:
            yield
        except apsw.FullError as error:
            raise VectorStoreError(
                f"no space left to write {self.path}: free some on its disk and run again"
            ) from error
        except (apsw.BusyError, apsw.LockedError) as error:
            raise VectorStoreError(
                f"{self.path} has been locked by another process for {BUSY_TIMEOUT_SECONDS:g} s"
            ) from error
        except (apsw.Error, _DamagedError, OSError) as error:
            raise VectorStoreError(
                f"the embedding cache {self.path} cannot be read or written: {error}"
            ) from error


def _sound_rows(
    db: apsw.Connection, fingerprint: str, type: InputType, hashes: Sequence[str]
) -> Iterator[tuple[str, bytes]]:
    """(content_hash, bytes of the vector) of those found whose checksum holds."""
    space = _space(db, fingerprint, type)
    if space is None:
        return
    for some, places in _portions(hashes):
        for content_hash, value, checksum in db.execute(
            _SELECT.format(places=places), (space[0], *some)
        ):
            if len(value) == 4 * space[1] and checksum == _checksum(content_hash, value):
                yield content_hash, value


def _checksum(content_hash: str, value: bytes) -> int:
    """crc32 of the vector under its key, so a value that moved to another key is noticed too."""
    return zlib.crc32(value, zlib.crc32(content_hash.encode("utf-8", "surrogatepass")))


def _space(db: apsw.Connection, fingerprint: str, type: InputType) -> tuple[int, int] | None:
    """(id, dim) of the vectors of one embedder and input type."""
    row = db.execute(
        "SELECT id, dim FROM space WHERE fingerprint = ? AND type = ?", (fingerprint, type)
    ).fetchone()
    return None if row is None else (row[0], row[1])


def _portions(keys: Sequence[str]) -> Iterator[tuple[Sequence[str], str]]:
    """Keys in portions that one statement can bind, with as many question marks."""
    for start in range(0, len(keys), KEYS_PER_STATEMENT):
        some = keys[start : start + KEYS_PER_STATEMENT]
        yield some, ",".join("?" * len(some))


@contextmanager
def _immediate(db: apsw.Connection) -> Iterator[None]:
    """A transaction that takes the write lock at once: one that upgrades later fails when busy."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            with suppress(apsw.Error):
                db.execute("ROLLBACK")
        raise


def _give_back(db: apsw.Connection) -> None:
    """Shrink the file when more than half of it is empty."""
    if _pragma(db, "freelist_count") * 2 > _pragma(db, "page_count"):
        with suppress(apsw.BusyError, apsw.FullError):
            db.execute("VACUUM")


def _check_version(db: apsw.Connection) -> None:
    version = _pragma(db, "user_version")
    if version != SCHEMA_VERSION:
        raise _DamagedError(f"it has schema version {version}, expected {SCHEMA_VERSION}")


def _pragma(db: apsw.Connection, name: str) -> int:
    return int(db.pragma(name))


def _was_ours(path: Path) -> bool:
    """Whether a damaged file still has the header of a cache; what has not is left to its owner."""
    try:
        with path.open("rb") as file:
            header = file.read(72)
    except FileNotFoundError:
        return False
    # https://www.sqlite.org/fileformat2.html: the application id is at offset 68, big-endian
    return header[:16] == b"SQLite format 3\0" and header[68:] == APPLICATION_ID.to_bytes(4, "big")


def _files(path: Path) -> list[Path]:
    """The log, the log's index and the database, in the order in which they may vanish."""
    return [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "")]

"""Connections to an index file: SQLite with sqlite-vec loaded, checked, and pooled for readers."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import quote

import apsw

from rag_assets.errors import ExtensionUnavailable, IndexDamaged, IndexMissing
from rag_assets.index.faults import WAY_OUT, translated_errors
from rag_assets.index.schema import check_stamp

MINIMUM_SQLITE: Final = (3, 51, 3)
"""3.7.0 to 3.51.2 can corrupt a database when the write-ahead log is reset."""
SQLITE_VEC_VERSION: Final = "v0.1.9"
"""0.1.7 and 0.1.8 lose deletes; ``verify`` reads the storage layout of this version."""
BUSY_TIMEOUT_MS: Final = 20_000
"""How long a statement waits for another process's transaction, which takes seconds at most."""
MMAP_BYTES: Final = 1 << 40
"""More than any index: reading vectors through a memory map halves the time of a search."""
MAXIMUM_IDLE: Final = 16
"""Read connections kept open for reuse; more threads than that open and close theirs."""

_HEADER: Final = b"SQLite format 3\0"


def check_versions(sqlite: str, sqlite_vec: str) -> None:
    """Refuse versions with which an index could be corrupted or misread.

    Raises:
        ExtensionUnavailable: SQLite is older than ``MINIMUM_SQLITE``, or sqlite-vec another than
            ``SQLITE_VEC_VERSION``.
    """
    if tuple(int(part) for part in sqlite.split(".")[:3]) < MINIMUM_SQLITE:
        wanted = ".".join(map(str, MINIMUM_SQLITE))
        raise ExtensionUnavailable(
            f"SQLite {sqlite} is too old: from 3.7.0 on, versions before {wanted} can corrupt an "
            "index; install apsw>=3.54"
        )
    if sqlite_vec != SQLITE_VEC_VERSION:
        raise ExtensionUnavailable(
            f"sqlite-vec {sqlite_vec} is installed, this version works with {SQLITE_VEC_VERSION}; "
            f"install sqlite-vec=={SQLITE_VEC_VERSION.lstrip('v')}"
        )


def extension_path() -> str:
    """Where the wheel keeps the extension, found without importing it (that would import numpy).

    Raises:
        ExtensionUnavailable: sqlite-vec is not installed.
    """
    spec = find_spec("sqlite_vec")
    if spec is None or not spec.submodule_search_locations:
        raise ExtensionUnavailable(
            "sqlite-vec is not installed; install it with `pip install "
            f"sqlite-vec=={SQLITE_VEC_VERSION.lstrip('v')}`"
        )
    return str(Path(spec.submodule_search_locations[0]) / "vec0")


def open_for_reading(path: Path) -> apsw.Connection:
    """A read-only connection to an existing index.

    On a medium that cannot be written, where SQLite could not keep its shared-memory file, the
    index is opened as immutable.

    Raises:
        IndexMissing: there is no file.
        IndexDamaged: the file is not a sound index of this package.
        ExtensionUnavailable: SQLite or sqlite-vec is missing or of the wrong version.
    """
    _check_file(path)
    try:
        return _open(path, apsw.SQLITE_OPEN_READONLY)
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        log = Path(f"{path}-wal")
        if os.access(path.parent, os.W_OK) or (log.exists() and log.stat().st_size):
            raise
        return _open(path, apsw.SQLITE_OPEN_READONLY, immutable=True)


def open_for_writing(path: Path) -> apsw.Connection:
    """A connection that may write to an existing index; it never creates a file or a table.

    Raises: as ``open_for_reading``.
    """
    _check_file(path)
    connection = _open(path, apsw.SQLITE_OPEN_READWRITE)
    configure_writer(connection)
    return connection


def configure_writer(connection: apsw.Connection) -> None:
    """Settings of every connection that writes."""
    # Deleted and replaced bytes are overwritten with zeros, in the file and not only in the tree.
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("PRAGMA foreign_keys = ON")
    # In WAL mode NORMAL loses no consistency; a power cut may lose the last commits, which the
    # next run writes again because the state of a partition is committed in the same file.
    connection.execute("PRAGMA synchronous = NORMAL")


def load_sqlite_vec(connection: apsw.Connection) -> None:
    """Load the extension into ``connection`` and check its version and SQLite's."""
    connection.enable_load_extension(True)
    connection.load_extension(extension_path())
    connection.enable_load_extension(False)
    row = connection.execute("SELECT sqlite_version(), vec_version()").fetchone()
    assert row is not None
    check_versions(str(row[0]), str(row[1]))


def _check_file(path: Path) -> None:
    """Tell a missing, empty or foreign file from an index before SQLite makes something of it."""
    try:
        if path.is_dir():
            raise IndexDamaged(f"{path}: a folder stands where the index should be; {WAY_OUT}")
        with path.open("rb") as file:
            header = file.read(len(_HEADER))
    except FileNotFoundError:
        raise IndexMissing(f"{path}: there is no index yet; run `rag-assets ingest`") from None
    if not header:
        raise IndexDamaged(f"{path}: the file is empty (0 bytes); {WAY_OUT}")
    if header != _HEADER:
        raise IndexDamaged(f"{path}: not a SQLite database; {WAY_OUT}")


def _open(path: Path, flags: int, *, immutable: bool = False) -> apsw.Connection:
    name = os.path.abspath(path)
    if immutable:
        name, flags = f"file:{quote(name)}?immutable=1", flags | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(name, flags=flags)
    try:
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        check_stamp(connection, path)
        load_sqlite_vec(connection)
        connection.execute(f"PRAGMA mmap_size = {MMAP_BYTES}")
        connection.execute("PRAGMA temp_store = MEMORY")
    except BaseException:
        connection.close()
        raise
    return connection


class ReaderPool:
    """Read-only connections to one index file, each used by one thread at a time.

    Reusing a connection keeps its prepared statements and its memory map. Connections of before a
    fork are left alone in the child, as SQLite requires.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._idle: list[apsw.Connection] = []
        self._abandoned: list[list[apsw.Connection]] = []
        self._pid = os.getpid()
        self._closed = False

    @contextmanager
    def snapshot(self) -> Iterator[apsw.Connection]:
        """A connection inside a read transaction: all that is read is of one committed state."""
        connection = self._take()
        reusable = False
        try:
            connection.execute("BEGIN")
            try:
                yield connection
                reusable = True
            finally:
                with suppress(apsw.Error):
                    connection.execute("ROLLBACK")
        finally:
            self._give_back(connection, reusable)

    def close(self) -> None:
        """Close what is idle; what is in use is closed when it comes back."""
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
            own = self._pid == os.getpid()
        if own:
            for connection in idle:
                connection.close()

    def _take(self) -> apsw.Connection:
        with self._lock:
            if self._pid != os.getpid():
                self._abandoned.append(self._idle)
                self._idle, self._pid = [], os.getpid()
            if self._idle:
                return self._idle.pop()
        with translated_errors(self._path):
            return open_for_reading(self._path)

    def _give_back(self, connection: apsw.Connection, reusable: bool) -> None:
        with self._lock:
            if reusable and not self._closed and len(self._idle) < MAXIMUM_IDLE:
                self._idle.append(connection)
                return
        connection.close()

"""Generations of the index: numbered files beside one another, and a pointer to the live one.

A rebuild fills a new file while readers use the live one; ``promote`` then points ``CURRENT`` to
it. Files are never renamed or replaced, because a database beside another's write-ahead log is
corrupted, and numbers are never used twice.
"""

# ruff: noqa: S608  (only this package's own names are spelled into SQL; values are always bound)

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw

from rag_assets.errors import IndexDamaged, IndexMissing, VectorStoreError
from rag_assets.index.connections import configure_writer, open_for_reading, open_for_writing
from rag_assets.index.faults import WAY_OUT, translated_errors
from rag_assets.index.lease import DEFAULT_TTL_SECONDS, live_holder
from rag_assets.index.locks import exclusive
from rag_assets.index.records import RUN_COLUMNS
from rag_assets.index.schema import create_index, immediate, read_meta
from rag_assets.index.sqlite import SqliteStore

if TYPE_CHECKING:
    from rag_assets.index.live import LiveStore

POINTER: Final = "CURRENT"
UNFINISHED_SECONDS: Final = 7 * 24 * 3600
"""A rebuild that nobody has written to for so long is given up and its file deleted."""

_NAME: Final = re.compile(r"index-(\d{6,})\.sqlite\Z")
_ANY_FILE: Final = re.compile(r"index-(\d{6,})\.sqlite(-wal|-shm)?\Z")


class IndexDirectory:
    """The folder that holds the generations of one index."""

    def __init__(
        self, directory: Path | str, *, lease_ttl_seconds: float = DEFAULT_TTL_SECONDS
    ) -> None:
        self.directory = Path(directory).absolute()
        self._lease_ttl_seconds = lease_ttl_seconds

    @property
    def pointer(self) -> Path:
        """The file that names the live generation."""
        return self.directory / POINTER

    def current(self) -> Path | None:
        """The file of the live generation, None when nothing was indexed yet.

        Raises:
            IndexDamaged: the pointer names something that is not there.
        """
        with translated_errors(self.pointer):
            try:
                name = self.pointer.read_bytes().decode("utf-8", "replace").strip()
            except FileNotFoundError:
                return None
        if not _NAME.match(name):
            raise IndexDamaged(f"{self.pointer}: names no index file ({name[:80]!r}); {WAY_OUT}")
        path = self.directory / name
        if not path.exists():
            raise IndexDamaged(f"{self.pointer}: names {name}, which is not there; {WAY_OUT}")
        return path

    def live_store(self) -> LiveStore | None:
        """A store for reading that follows the live generation; None when there is none yet."""
        from rag_assets.index.live import LiveStore

        return None if self.current() is None else LiveStore(self)

    def store(self, path: Path) -> SqliteStore:
        """The store of one generation."""
        return SqliteStore(path, directory=self, lease_ttl_seconds=self._lease_ttl_seconds)

    def writable_store(self, build_id: str | None = None) -> SqliteStore:
        """The generation to write to: the live one, or the one that the build ``build_id`` fills.

        Without ``build_id``, the first generation is created and made live if there is none. With
        it, the generation of that build is created if it does not exist; any number of processes
        may ask at the same time and get the same one. A build that was promoted already, and not
        replaced since, is found as well.

        Raises:
            IndexDamaged: without ``build_id``, the live generation is not a sound index.
        """
        with translated_errors(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
            with exclusive(self.directory):
                path = self._live_or_first() if build_id is None else self._of_build(build_id)
        return self.store(path)

    def _live_or_first(self) -> Path:
        path = self.current()
        if path is None:
            path = self._create(None)
            self._point_to(path)
        else:
            open_for_reading(path).close()
        return path

    def _of_build(self, build_id: str) -> Path:
        live = self._live_number()
        for number, path in self._files():
            if number >= live and _build_of(path) == build_id:
                return path
        return self._create(build_id)

    def _create(self, build_id: str | None) -> Path:
        taken = [
            int(match[1]) for match in map(_ANY_FILE.match, os.listdir(self.directory)) if match
        ]
        number = max([self._live_number(), *taken]) + 1
        path = self.directory / f"index-{number:06d}.sqlite"
        create_index(path, build_id=build_id, configure=configure_writer)
        _sync_folder(self.directory)
        return path

    def _files(self) -> list[tuple[int, Path]]:
        """(number, path) of every generation, oldest first."""
        names = (
            (match[1], name) for name in os.listdir(self.directory) if (match := _NAME.match(name))
        )
        return sorted((int(number), self.directory / name) for number, name in names)

    def _live_number(self) -> int:
        """The number of the live generation, 0 when there is none or the pointer is unreadable."""
        try:
            path = self.current()
        except IndexDamaged:
            return 0
        match = _NAME.match(path.name) if path else None
        return int(match[1]) if match else 0

    def promote(self, path: Path) -> None:
        """Make the generation at ``path`` the one that readers open; atomic, idempotent.

        The records of earlier runs go along, so the history survives a rebuild.

        Raises:
            IndexMissing, IndexDamaged: it is not a sound, initialised index.
        """
        with translated_errors(path), exclusive(self.directory):
            connection = open_for_writing(path)
            try:
                if read_meta(connection, "fingerprint") is None:
                    raise IndexMissing(f"{path}: nothing was written to it; it cannot be promoted")
                try:
                    live = self.current()
                except IndexDamaged:
                    live = None
                if live == path:
                    return
                if live is not None:
                    self._copy_runs(live, connection)
                with suppress(apsw.BusyError):  # readers of its own: the log stays and is read
                    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            finally:
                connection.close()
            self._point_to(path)

    def _copy_runs(self, live: Path, connection: apsw.Connection) -> None:
        try:
            old = open_for_reading(live)
        except (apsw.Error, VectorStoreError):
            return  # a rebuild is also the way out of a damaged index
        try:
            rows = old.execute(f"SELECT {RUN_COLUMNS} FROM ingest_run ORDER BY rowid").fetchall()
        except apsw.Error:
            return
        finally:
            old.close()
        marks = ", ".join("?" * len(RUN_COLUMNS.split(", ")))
        with immediate(connection):
            connection.executemany(
                f"INSERT OR IGNORE INTO ingest_run ({RUN_COLUMNS}) VALUES ({marks})", rows
            )

    def _point_to(self, path: Path) -> None:
        fresh = self.directory / f"{POINTER}.{os.getpid()}.new"
        with fresh.open("w", encoding="utf-8") as file:
            file.write(path.name + "\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.pointer)
        _sync_folder(self.directory)

    def prune(
        self,
        keep: int = 1,
        *,
        unfinished_seconds: float = UNFINISHED_SECONDS,
        is_abandoned: Callable[[str], bool] = lambda _: False,
    ) -> list[Path]:
        """Delete generations that are no longer needed; the files deleted.

        ``keep`` counts the live generation and those before it that stay. A later generation is an
        unfinished build and stays, unless nobody has written to it for ``unfinished_seconds`` or
        ``is_abandoned`` says so of its build id. A
        generation whose writer lease is held stays, and so does one the platform will not delete
        while it is open.
        """
        with translated_errors(self.directory):
            if not self.directory.is_dir():
                return []
            with exclusive(self.directory):
                live = self._live_number()
                if not live:
                    return []
                files = self._files()
                older = [path for number, path in files if number < live]
                unwanted = older[: max(0, len(older) - max(0, keep - 1))]
                unwanted += [
                    path
                    for number, path in files
                    if number > live
                    and (
                        _silent_seconds(path) > unfinished_seconds
                        or is_abandoned(_build_of(path) or "")
                    )
                ]
                return [path for path in unwanted if not _is_written(path) and _delete(path)]


def _build_of(path: Path) -> str | None:
    """The build that a generation belongs to; None when it has none or cannot be read."""
    try:
        connection = open_for_reading(path)
    except (apsw.Error, VectorStoreError):
        return None
    try:
        return read_meta(connection, "build_id")
    except apsw.Error:
        return None
    finally:
        connection.close()


def _is_written(path: Path) -> bool:
    try:
        connection = open_for_reading(path)
    except (apsw.Error, VectorStoreError):
        return False
    try:
        return live_holder(connection) is not None
    except apsw.Error:
        return False
    finally:
        connection.close()


def _silent_seconds(path: Path) -> float:
    times = [f.stat().st_mtime for f in (path, Path(f"{path}-wal")) if f.exists()]
    return time.time() - max(times, default=0.0)


def _delete(path: Path) -> bool:
    """Delete a generation, the database first: a log without its database is never read.

    The log is copied into the database before, so a reader that has opened the one and not yet the
    other reads the last state and no earlier one.
    """
    with suppress(apsw.Error, VectorStoreError):
        connection = open_for_writing(path)
        try:
            connection.set_busy_timeout(0)
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            connection.close()
    try:
        path.unlink()
    except FileNotFoundError:
        pass
    except PermissionError:
        return False
    for extra in (Path(f"{path}-wal"), Path(f"{path}-shm")):
        with suppress(OSError):
            extra.unlink()
    return True


def _sync_folder(directory: Path) -> None:
    """Make a new name in ``directory`` durable, where the platform can."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

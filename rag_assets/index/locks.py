"""A lock on an index folder, held for the moment in which generations are created or switched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import apsw

LOCK_NAME: Final = "index.lock"
_WAIT_MS: Final = 60_000


@contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Keep other processes and threads out of ``directory``; the lock of a killed process is gone.

    The lock is SQLite's own on an empty file, which works alike on every platform.
    """
    connection = apsw.Connection(
        str(directory.absolute() / LOCK_NAME),
        flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE,
    )
    try:
        connection.set_busy_timeout(_WAIT_MS)
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.execute("ROLLBACK")
    finally:
        connection.close()

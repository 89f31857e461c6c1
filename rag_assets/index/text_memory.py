"""What a process remembers of the full-text index, for as long as the index does not change."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import chain
from typing import Final

import apsw
import numpy as np
import numpy.typing as npt

from rag_assets.errors import IndexDamaged

MAXIMUM_COUNTS: Final = 50_000
"""Counts of occurrences that are kept, about 10 MB."""

Ids = npt.NDArray[np.int64]
CountKey = tuple[tuple[int, ...] | None, str]
"""The ACL sets that a count was taken over, None for all, and the term."""


class TextMemory:
    """Shared by the connections to one index file, and by threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: Remembered | None = None

    def at(self, connection: apsw.Connection) -> Remembered:
        """What holds for the state that ``connection``'s read transaction sees."""
        row = connection.execute("SELECT version FROM text_version").fetchone()
        version = -1 if row is None else int(row[0])
        with self._lock:
            if self._held is None or self._held.version != version:
                self._held = Remembered(version, connection)
            return self._held


class Remembered:
    """Of one state of the index."""

    def __init__(self, version: int, connection: apsw.Connection) -> None:
        self.version = version
        rows = connection.execute(
            "SELECT chunk_id, terms, source_id FROM text_length ORDER BY chunk_id"
        )
        table = np.fromiter(chain.from_iterable(rows), np.int64).reshape(-1, 3)
        self._ids = np.ascontiguousarray(table[:, 0])
        self._lengths = table[:, 1].astype(np.float64)
        self._sources = table[:, 2].astype(np.int32)
        self._file = connection.db_filename("main")
        self._counts: dict[CountKey, int] = {}

    def lengths(self, ids: Ids) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]:
        """Numbers of terms and sources of these passages.

        Raises:
            IndexDamaged: one of them has no length.
        """
        place = np.searchsorted(self._ids, ids)
        if len(ids) and (not len(self._ids) or place[-1] >= len(self._ids)):
            raise self._damaged(int(ids[-1]))
        unknown = self._ids[place] != ids
        if unknown.any():
            raise self._damaged(int(ids[unknown][0]))
        return self._lengths[place], self._sources[place]

    def count(self, key: CountKey, look: Callable[[], int]) -> int:
        """The count under ``key``, taken by ``look`` when it is not known."""
        known = self._counts.get(key)
        if known is None:
            if len(self._counts) >= MAXIMUM_COUNTS:
                self._counts.clear()
            known = self._counts[key] = look()
        return known

    def _damaged(self, chunk_id: int) -> IndexDamaged:
        return IndexDamaged(
            f"{self._file}: passage {chunk_id} of the full-text index has no length; run "
            "`rag-assets verify`, then `rag-assets ingest`"
        )

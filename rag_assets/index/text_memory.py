"""What a process remembers of the full-text index, for as long as the index does not change."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeAlias

import apsw
import numpy as np
import numpy.typing as npt

from rag_assets.errors import IndexDamaged

MAXIMUM_COUNTS: Final = 50_000
"""Counts of occurrences and numbers of ACL sets that are kept, about 10 MB."""

Ids = npt.NDArray[np.int64]
AclSets: TypeAlias = "tuple[int, ...] | None"
"""What a caller may see, None for everything."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Of some passages, row by row."""

    terms: npt.NDArray[np.float64]
    """How many terms each has."""
    sources: Ids
    acl_sets: Ids


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
            "SELECT chunk_id, terms, source_id, acl_set FROM text_length ORDER BY chunk_id"
        )
        table = np.fromiter(chain.from_iterable(rows), np.int64).reshape(-1, 4)
        self._ids, *columns = (np.ascontiguousarray(column) for column in table.T)
        self._terms, self._sources, self._acl_sets = columns
        self._file = connection.db_filename("main")
        self._counts: dict[AclSets, dict[str, int]] = {}
        self._size = 0

    def lengths(self, ids: Ids) -> Lengths:
        """What is known of these passages.

        Raises:
            IndexDamaged: one of them has no length.
        """
        place = np.searchsorted(self._ids, ids)
        if len(ids) and (not len(self._ids) or place[-1] >= len(self._ids)):
            raise self._damaged(int(ids[-1]))
        unknown = self._ids[place] != ids
        if unknown.any():
            raise self._damaged(int(ids[unknown][0]))
        terms = self._terms[place].astype(np.float64)
        return Lengths(terms, self._sources[place], self._acl_sets[place])

    def count(self, acl_sets: AclSets, term: str, look: Callable[[], int]) -> int:
        """The count of a term for a caller, taken by ``look`` when it is not known."""
        counts = self._counts.get(acl_sets)
        if counts is None:
            counts = {}
            self._size += 1 + len(acl_sets or ())
        known = counts.get(term)
        if known is None:
            if self._size >= MAXIMUM_COUNTS:
                self._counts, self._size = {}, 1 + len(acl_sets or ())
                counts = {}
            known = counts[term] = look()
            self._size += 1
        self._counts[acl_sets] = counts
        return known

    def _damaged(self, chunk_id: int) -> IndexDamaged:
        return IndexDamaged(
            f"{self._file}: passage {chunk_id} of the full-text index has no length; run "
            "`rag-assets verify`, then `rag-assets ingest`"
        )

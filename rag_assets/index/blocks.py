"""sqlite-vec's own storage of vectors, read as it lies: what ``verify`` and compaction work on.

vec0 keeps rows in blocks of ``VECTORS_PER_BLOCK``. For each block, ``chunk_vector_chunks`` has a
bitmap of the slots in use and the rowid of each slot, ``chunk_vector_vector_chunks00`` the vectors,
and one ``chunk_vector_metadatachunks`` table for each filter column its integers;
``chunk_vector_rowids`` maps a rowid to its block and slot. These are plain tables, which
``integrity_check`` finds sound whatever they hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import apsw
import numpy as np
import numpy.typing as npt

_BLOCKS: Final = (
    "SELECT b.chunk_id, b.size, b.validity, b.rowids, v.vectors, m0.data, m1.data "
    "FROM chunk_vector_chunks b "
    "LEFT JOIN chunk_vector_vector_chunks00 v ON v._rowid_ = b.chunk_id "
    "LEFT JOIN chunk_vector_metadatachunks00 m0 ON m0._rowid_ = b.chunk_id "
    "LEFT JOIN chunk_vector_metadatachunks01 m1 ON m1._rowid_ = b.chunk_id "
    "ORDER BY b.chunk_id"
)
STORAGE_TABLES: Final = (
    "chunk_vector_vector_chunks00",
    "chunk_vector_metadatachunks00",
    "chunk_vector_metadatachunks01",
)
"""Tables with one row for each block, keyed by the block's number."""

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Block:
    """The slots in use of one block: row i of every array is one vector."""

    block: int
    slots: Integers
    rowids: Integers
    vectors: npt.NDArray[np.float32]
    """float32 [n, dim]"""
    acl_sets: Integers
    sources: Integers
    size: int
    """Slots allocated."""


@dataclass(frozen=True, slots=True)
class BrokenBlock:
    """A block whose parts are missing or of the wrong length."""

    block: int
    fault: str


def read_blocks(connection: apsw.Connection, dim: int) -> Iterator[Block | BrokenBlock]:
    """Every block, one at a time."""
    for block, size, validity, rowids, vectors, acl_sets, sources in connection.execute(_BLOCKS):
        parts = {
            "bitmap": (validity, size // 8),
            "row numbers": (rowids, size * 8),
            "vectors": (vectors, size * dim * 4),
            "ACL sets": (acl_sets, size * 8),
            "sources": (sources, size * 8),
        }
        faults = [f"its {name} {_length(blob, n)}" for name, (blob, n) in parts.items()
                  if not isinstance(blob, bytes) or len(blob) != n]  # fmt: skip
        if faults or size <= 0:
            yield BrokenBlock(block, "; ".join(faults) or "it has no slots")
            continue
        bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")
        slots = np.flatnonzero(bits).astype(np.int64)
        yield Block(
            block=block,
            slots=slots,
            rowids=np.frombuffer(rowids, "<i8")[slots],
            vectors=np.frombuffer(vectors, "<f4").reshape(size, dim)[slots],
            acl_sets=np.frombuffer(acl_sets, "<i8")[slots],
            sources=np.frombuffer(sources, "<i8")[slots],
            size=size,
        )


def _length(blob: Any, expected: int) -> str:
    if not isinstance(blob, bytes):
        return "are missing"
    return f"have {len(blob)} bytes instead of {expected}"


def fill(connection: apsw.Connection) -> list[tuple[int, int, int]]:
    """(block, slots in use, slots allocated) of every block, oldest first."""
    return [
        (block, int.from_bytes(validity, "little").bit_count(), size)
        for block, validity, size in connection.execute(
            "SELECT chunk_id, validity, size FROM chunk_vector_chunks ORDER BY chunk_id"
        )
    ]

"""A look at an index that takes milliseconds: do the counts of its tables agree?

Imports nothing but apsw: the look for changes runs it in a fresh interpreter every time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import apsw

from rag_assets.errors import VectorStoreError
from rag_assets.index.connections import open_for_reading
from rag_assets.index.faults import translated_errors
from rag_assets.index.schema import read_meta


@dataclass(frozen=True, slots=True)
class QuickCounts:
    """Numbers that must agree in a sound index."""

    documents: int
    chunks: int
    chunks_promised: int
    """The sum of what the documents say they have."""
    vectors: int
    """Slots in use in the blocks that a search reads."""
    vector_rows: int
    """Vectors that sqlite-vec knows by number."""
    texts: int
    """Passages that the full-text index knows."""
    texts_counted: int
    """Passages that text scores are computed over."""

    def problems(self) -> list[str]:
        """One sentence for each pair that differs."""
        found = []
        if self.chunks != self.chunks_promised:
            found.append(
                f"the documents say they have {self.chunks_promised} passages, there are "
                f"{self.chunks}"
            )
        if self.vectors != self.chunks or self.vector_rows != self.chunks:
            found.append(
                f"there are {self.chunks} passages, but {self.vectors} vectors that a search reads "
                f"and {self.vector_rows} that have a number"
            )
        if self.texts != self.chunks or self.texts_counted != self.chunks:
            found.append(
                f"there are {self.chunks} passages, but {self.texts} in the full-text index and "
                f"{self.texts_counted} in its statistics"
            )
        return found


def quick_counts(path: Path) -> QuickCounts:
    """Count what the index at ``path`` holds.

    Raises:
        IndexMissing, IndexDamaged: there is no index, or it cannot be read.
    """
    with translated_errors(path):
        connection = open_for_reading(path)
        try:
            connection.execute("BEGIN")
            return count(connection)
        finally:
            connection.close()


def quick_problems(path: Path) -> list[str]:
    """What counting shows to be wrong with the index at ``path``, unreadable included."""
    try:
        return quick_counts(path).problems()
    except VectorStoreError as exc:
        return [str(exc)]


def count(connection: apsw.Connection) -> QuickCounts:
    """The counts, inside the caller's read transaction."""
    documents, promised = _row(
        connection, "SELECT count(*), ifnull(sum(chunk_count), 0) FROM document"
    )
    (chunks,) = _row(connection, "SELECT count(*) FROM chunk")
    (texts,) = _row(connection, "SELECT count(*) FROM chunk_text_docsize")
    (counted,) = _row(connection, "SELECT ifnull(sum(chunks), 0) FROM text_statistics")
    if read_meta(connection, "fingerprint") is None:
        return QuickCounts(documents, chunks, promised, 0, 0, texts, counted)
    (vector_rows,) = _row(connection, "SELECT count(*) FROM chunk_vector_rowids")
    vectors = sum(
        int.from_bytes(validity, "little").bit_count()
        for (validity,) in connection.execute("SELECT validity FROM chunk_vector_chunks")
    )
    return QuickCounts(documents, chunks, promised, vectors, vector_rows, texts, counted)


def _row(connection: apsw.Connection, sql: str) -> tuple[int, ...]:
    row: tuple[int, ...] | None = connection.execute(sql).fetchone()
    assert row is not None
    return row

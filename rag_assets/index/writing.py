"""Writing documents: each replaced whole, touching only the passages that differ."""

# ruff: noqa: S608  (only this package's own names are spelled into SQL; values are always bound)

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import apsw
import numpy as np

from rag_assets.analysis import analyse
from rag_assets.embeddings.base import Vectors
from rag_assets.errors import DimensionMismatch, VectorStoreError
from rag_assets.fingerprints import document_digest
from rag_assets.index.base import IndexedDocument, UpsertCounts
from rag_assets.index.full_text import term_text
from rag_assets.index.records import (
    CHUNK_COLUMNS,
    DOCUMENT_COLUMNS,
    checksum,
    chunk_row,
    document_row,
    row_checksum,
    storable,
    stored_language,
    tags_text,
)
from rag_assets.index.schema import write_meta
from rag_assets.index.times import utc_now

LENGTH_TOLERANCE: Final = 1e-3
"""How far from 1 the length of a vector may be: half-precision embedders are off by 5e-4."""

_INSERT_DOCUMENT: Final = (
    f"INSERT INTO document ({DOCUMENT_COLUMNS}, digest, acl_set, chunk_count, run_id, indexed_at) "
    f"VALUES ({', '.join('?' * 15)}) RETURNING id"
)
_UPDATE_DOCUMENT: Final = (
    "UPDATE document SET "
    + ", ".join(f"{name} = ?" for name in DOCUMENT_COLUMNS.split(", "))
    + ", digest = ?, acl_set = ?, chunk_count = ?, run_id = ?, indexed_at = ? WHERE id = ?"
)
_INSERT_CHUNK: Final = (
    f"INSERT INTO chunk (id, document_id, {CHUNK_COLUMNS}, row_checksum, vector_checksum, terms) "
    f"VALUES ({', '.join('?' * 14)})"
)
_UPDATE_CHUNK: Final = (
    "UPDATE chunk SET "
    + ", ".join(f"{name} = ?" for name in CHUNK_COLUMNS.split(", "))
    + ", row_checksum = ?, vector_checksum = ? WHERE id = ?"
)
_TAKE_TERMS_OUT: Final = (
    "INSERT INTO chunk_text (chunk_text, rowid, terms) "
    "SELECT 'delete', id, terms FROM chunk WHERE id = ?"
)
_FLUSH: Final = "INSERT INTO chunk_text (chunk_text) VALUES ('flush')"
_UPDATE_TERMS: Final = "UPDATE chunk SET terms = ? WHERE id = ?"
_PUT_TERMS_IN: Final = "INSERT INTO chunk_text (rowid, terms) VALUES (?, ?)"
_INSERT_LENGTH: Final = (
    "INSERT INTO text_length (chunk_id, acl_set, language, source_id, terms, terms_checksum) "
    "VALUES (?, ?, ?, ?, ?, ?)"
)
_DELETE_LENGTH: Final = "DELETE FROM text_length WHERE chunk_id = ?"
_INSERT_VECTOR: Final = (
    "INSERT INTO chunk_vector (rowid, embedding, acl_set, source_id) VALUES (?, ?, ?, ?)"
)
_UPDATE_VECTOR: Final = "UPDATE chunk_vector SET embedding = ? WHERE rowid = ?"
_UPDATE_VECTOR_ACL: Final = "UPDATE chunk_vector SET acl_set = ? WHERE rowid = ?"
_DELETE_VECTOR: Final = "DELETE FROM chunk_vector WHERE rowid = ?"


@dataclass(frozen=True, slots=True)
class Passage:
    """One passage as it will lie in the index."""

    row: tuple[Any, ...]
    """``CHUNK_COLUMNS``; the position first."""
    row_checksum: int
    vector: bytes
    vector_checksum: int
    terms: list[str]
    """What the analyser made of its text."""

    @property
    def content_hash(self) -> str:
        """sha256 of the text embedded."""
        return str(self.row[7])


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document checked and turned into rows, before the transaction begins."""

    source: str
    path: str
    document_row: tuple[Any, ...]
    digest: str
    tags: tuple[str, ...]
    language: str
    passages: list[Passage]


def prepare(items: Sequence[IndexedDocument], dim: int) -> list[Prepared]:
    """Check every document of a batch and turn it into rows.

    Raises:
        VectorStoreError: counts that do not match, positions that are not 0, 1, 2 ..., a vector
            that is not finite, zero or not of unit length, a document given twice.
        DimensionMismatch: vectors of another dimension than ``dim``.
    """
    prepared = [_prepare_one(item, dim) for item in items]
    seen: set[tuple[str, str]] = set()
    for one in prepared:
        if (one.source, one.path) in seen:
            raise VectorStoreError(f"{one.source}/{one.path}: given twice in one batch")
        seen.add((one.source, one.path))
    return prepared


def _prepare_one(item: IndexedDocument, dim: int) -> Prepared:
    document = item.document
    name = f"{document.source}/{document.path}"
    _check_chunks(item, name)
    vectors = checked_vectors(item.vectors, len(item.chunks), dim, name)
    language = stored_language(document.language)
    passages = []
    for chunk, vector in zip(item.chunks, vectors, strict=True):
        row, blob = chunk_row(chunk), vector.tobytes()
        terms = analyse(chunk.text, language)
        passages.append(Passage(row, row_checksum(row), blob, checksum(blob), terms))
    return Prepared(
        source=storable(document.source),
        path=storable(document.path),
        document_row=document_row(document),
        digest=document_digest(document, item.chunks),
        # A tag that cannot be stored as it is would be spelled as another one: it grants nothing.
        tags=tuple(sorted({tag for tag in document.acl_tags if storable(tag) == tag})),
        language=language,
        passages=passages,
    )


def _check_chunks(item: IndexedDocument, name: str) -> None:
    identity = (item.document.source, item.document.path)
    for position, chunk in enumerate(item.chunks):
        if (chunk.source, chunk.path) != identity:
            raise VectorStoreError(f"{name}: given a passage of {chunk.source}/{chunk.path}")
        if chunk.position != position:
            raise VectorStoreError(
                f"{name}: passage {position} says it is at position {chunk.position}; positions "
                "must be 0, 1, 2 ... in order"
            )


def checked_vectors(vectors: Vectors, count: int, dim: int, name: str) -> Vectors:
    """``vectors`` as float32 [count, dim], little-endian, finite and of unit length.

    Raises:
        VectorStoreError: another number of vectors, or one that is not finite, zero or not unit.
        DimensionMismatch: another dimension; the message has both.
    """
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(vectors, dtype="<f4")
    if len(array) != count or (count and array.ndim != 2):
        raise VectorStoreError(
            f"{name}: {count} passages but vectors of shape {list(array.shape)}; one vector for "
            "each passage is required"
        )
    if not count:
        return array.reshape(0, dim)
    if array.shape[1] != dim:
        raise DimensionMismatch(
            f"{name}: the index holds vectors of dimension {dim}, these have {array.shape[1]}"
        )
    lengths = np.sqrt(np.einsum("ij,ij->i", array, array, dtype=np.float64))
    wrong = ~(np.abs(lengths - 1.0) <= LENGTH_TOLERANCE)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise VectorStoreError(f"{name}: the vector of passage {row} {_fault(lengths[row])}")
    return array


def _fault(length: float) -> str:
    if not np.isfinite(length):
        return "is not finite"
    if length == 0.0:
        return "is zero"
    return f"has length {length:.6g}; vectors must have length 1"


@dataclass(slots=True)
class BatchWriter:
    """Writes documents inside one write transaction, which its caller holds."""

    connection: apsw.Connection
    run_id: str
    now: str = field(default_factory=utc_now)
    upserted: int = 0
    unchanged: int = 0
    _next_chunk_id: int = 0
    _acl_sets: dict[tuple[str, ...], int] = field(default_factory=dict)
    _sources: dict[str, int] = field(default_factory=dict)
    _new_chunks: list[tuple[Any, ...]] = field(default_factory=list)
    _new_vectors: list[tuple[Any, ...]] = field(default_factory=list)
    _new_lengths: list[tuple[Any, ...]] = field(default_factory=list)
    _changed_terms: dict[int, str] = field(default_factory=dict)
    """What the full-text index is to hold for passages that it holds otherwise, by id."""

    def write(self, documents: Iterable[Prepared]) -> UpsertCounts:
        """Replace each document whole."""
        row = self.connection.execute("SELECT ifnull(max(id), 0) FROM chunk").fetchone()
        self._next_chunk_id = int(row[0]) + 1 if row else 1
        for document in documents:
            self._write_one(document)
        self._change_terms()
        self.connection.executemany(_INSERT_CHUNK, self._new_chunks)
        self.connection.executemany(_INSERT_VECTOR, self._new_vectors)
        self.connection.executemany(_INSERT_LENGTH, self._new_lengths)
        write_meta(self.connection, "last_indexed_at", self.now)
        return UpsertCounts(chunks_upserted=self.upserted, chunks_unchanged=self.unchanged)

    def _write_one(self, document: Prepared) -> None:
        acl_set = self._acl_set(document.tags)
        self.connection.execute(
            "DELETE FROM left_out WHERE source = ? AND path = ?", (document.source, document.path)
        )
        values = (
            *document.document_row,
            document.digest,
            acl_set,
            len(document.passages),
            self.run_id,
            self.now,
        )
        held = self.connection.execute(
            "SELECT id, acl_set, language FROM document WHERE source = ? AND path = ?",
            (document.source, document.path),
        ).fetchone()
        if held is None:
            inserted = self.connection.execute(_INSERT_DOCUMENT, values).fetchone()
            assert inserted is not None
            self._insert_chunks(int(inserted[0]), document, document.passages, acl_set)
            return
        self.connection.execute(_UPDATE_DOCUMENT, (*values, held[0]))
        renamed = held[1:] != (acl_set, document.language)
        kept = self._replace_chunks(int(held[0]), document, acl_set, every_term=renamed)
        if held[1] != acl_set:
            self.connection.executemany(_UPDATE_VECTOR_ACL, [(acl_set, i) for i in kept])

    def _insert_chunks(
        self, document_id: int, document: Prepared, passages: Iterable[Passage], acl_set: int
    ) -> None:
        source_id = self._source(document.source)
        for passage in passages:
            chunk_id = self._next_chunk_id
            self._next_chunk_id += 1
            terms = term_text(passage.terms, document.language, acl_set)
            self._new_chunks.append(
                (
                    chunk_id,
                    document_id,
                    *passage.row,
                    passage.row_checksum,
                    passage.vector_checksum,
                    terms,
                )
            )
            self._new_vectors.append((chunk_id, passage.vector, acl_set, source_id))
            self._new_lengths.append(self._length_row(chunk_id, passage, document, acl_set, terms))
            self.upserted += 1

    def _replace_chunks(
        self, document_id: int, document: Prepared, acl_set: int, *, every_term: bool
    ) -> list[int]:
        """Make the passages of a known document what they should be; the ids of the rows kept.

        ``every_term``: the marks of the terms changed, so those of unchanged passages did as well.
        """
        rows = self.connection.execute(
            "SELECT id, content_hash, row_checksum, vector_checksum FROM chunk "
            "WHERE document_id = ? ORDER BY position",
            (document_id,),
        ).fetchall()
        pairs, new, extra = _pair(rows, document.passages)
        changed = [pair for pair in pairs if not _same(*pair)]
        self.unchanged += len(pairs) - len(changed)
        self.upserted += len(changed)
        for row in extra:
            self._delete_chunk(row[0])
        # Positions are unique within a document: step aside before taking each other's.
        self.connection.executemany(
            "UPDATE chunk SET position = -1 - position WHERE id = ?",
            [(row[0],) for row, _ in changed],
        )
        for row, passage in changed:
            self.connection.execute(
                _UPDATE_CHUNK,
                (*passage.row, passage.row_checksum, passage.vector_checksum, row[0]),
            )
            if row[3] != passage.vector_checksum:
                self.connection.execute(_UPDATE_VECTOR, (passage.vector, row[0]))
        self._replace_terms(pairs if every_term else changed, document, acl_set)
        self._insert_chunks(document_id, document, new, acl_set)
        return [row[0] for row, _ in pairs]

    def _replace_terms(
        self,
        pairs: Sequence[tuple[tuple[Any, ...], Passage]],
        document: Prepared,
        acl_set: int,
    ) -> None:
        for row, passage in pairs:
            terms = term_text(passage.terms, document.language, acl_set)
            self._changed_terms[row[0]] = terms
            self._new_lengths.append(self._length_row(row[0], passage, document, acl_set, terms))

    def _change_terms(self) -> None:
        """Take the old terms out of the full-text index, flush, and put the new ones in.

        The schema says why they must not be replaced one by one. New passages follow, whose ids
        are higher.
        """
        if not self._changed_terms:
            return
        changed = sorted(self._changed_terms.items())
        ids = [(chunk_id,) for chunk_id, _ in changed]
        self.connection.executemany(_TAKE_TERMS_OUT, ids)
        self.connection.execute(_FLUSH)
        self.connection.executemany(_DELETE_LENGTH, ids)
        self.connection.executemany(_UPDATE_TERMS, [(terms, i) for i, terms in changed])
        self.connection.executemany(_PUT_TERMS_IN, changed)

    def _length_row(
        self, chunk_id: int, passage: Passage, document: Prepared, acl_set: int, terms: str
    ) -> tuple[Any, ...]:
        source_id, count = self._source(document.source), len(passage.terms)
        return chunk_id, acl_set, document.language, source_id, count, checksum(terms.encode())

    def _delete_chunk(self, chunk_id: int) -> None:
        self.connection.execute(_DELETE_VECTOR, (chunk_id,))
        self.connection.execute("DELETE FROM chunk WHERE id = ?", (chunk_id,))

    def _acl_set(self, tags: tuple[str, ...]) -> int:
        if tags not in self._acl_sets:
            self._acl_sets[tags] = intern_acl_set(self.connection, tags)
        return self._acl_sets[tags]

    def _source(self, name: str) -> int:
        if name not in self._sources:
            self._sources[name] = _intern(self.connection, "source", "name", name)[0]
        return self._sources[name]


def _pair(
    rows: Sequence[tuple[Any, ...]], passages: Sequence[Passage]
) -> tuple[list[tuple[tuple[Any, ...], Passage]], list[Passage], list[tuple[Any, ...]]]:
    """Stored rows with the passages they will hold, the passages left over, the rows left over.

    Rows that are equal first, then rows with the same text and vector (a passage that moved), then
    whatever is left: reusing a row writes its vector in place and frees no slot of vec0.
    """
    pairs: list[tuple[tuple[Any, ...], Passage]] = []
    open_rows, open_passages = list(rows), list(passages)
    for row_key, passage_key in (
        (lambda r: r[2:4], lambda p: (p.row_checksum, p.vector_checksum)),
        (lambda r: (r[1], r[3]), lambda p: (p.content_hash, p.vector_checksum)),
        (lambda _: None, lambda _: None),
    ):
        waiting: dict[Any, list[tuple[Any, ...]]] = defaultdict(list)
        for row in reversed(open_rows):
            waiting[row_key(row)].append(row)
        rest = []
        for passage in open_passages:
            candidates = waiting.get(passage_key(passage))
            if candidates:
                pairs.append((candidates.pop(), passage))
            else:
                rest.append(passage)
        taken = {row[0] for row, _ in pairs}
        open_rows = [row for row in open_rows if row[0] not in taken]
        open_passages = rest
    return pairs, open_passages, open_rows


def _same(row: tuple[Any, ...], passage: Passage) -> bool:
    return bool(row[2] == passage.row_checksum and row[3] == passage.vector_checksum)


def intern_acl_set(connection: apsw.Connection, tags: tuple[str, ...]) -> int:
    """The number of a set of tags, given to it now if it is new."""
    acl_set, is_new = _intern(connection, "acl_set", "tags", tags_text(tags))
    if is_new:
        connection.executemany(
            "INSERT INTO acl_set_tag (tag, acl_set) VALUES (?, ?)", [(t, acl_set) for t in tags]
        )
    return acl_set


def _intern(connection: apsw.Connection, table: str, column: str, value: str) -> tuple[int, bool]:
    found = connection.execute(f"SELECT id FROM {table} WHERE {column} = ?", (value,)).fetchone()
    if found is not None:
        return int(found[0]), False
    connection.execute(f"INSERT INTO {table} ({column}) VALUES (?)", (value,))
    return connection.last_insert_rowid(), True


def delete_documents(connection: apsw.Connection, source: str, paths: Iterable[str]) -> int:
    """Remove documents with their passages and vectors inside the caller's transaction."""
    removed = 0
    for document_id in _document_ids(connection, source, paths):
        forget_document(connection, document_id)
        removed += 1
    if removed:
        write_meta(connection, "last_indexed_at", utc_now())
    return removed


def forget_document(connection: apsw.Connection, document_id: int) -> None:
    """Remove one document; the caller holds a write transaction."""
    ids = connection.execute(
        "SELECT id FROM chunk WHERE document_id = ?", (document_id,)
    ).fetchall()
    connection.executemany(_DELETE_VECTOR, ids)
    connection.execute("DELETE FROM chunk WHERE document_id = ?", (document_id,))
    connection.execute("DELETE FROM document WHERE id = ?", (document_id,))


def _document_ids(connection: apsw.Connection, source: str, paths: Iterable[str]) -> Iterator[int]:
    for path in paths:
        row = connection.execute(
            "SELECT id FROM document WHERE source = ? AND path = ?",
            (storable(source), storable(path)),
        ).fetchone()
        if row is not None:
            yield int(row[0])

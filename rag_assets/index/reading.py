"""Everything an index can be asked apart from a search."""

# ruff: noqa: S608  (only this package's own names are spelled into SQL; values are always bound)

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import apsw

from rag_assets.index.base import ExplainedDocument, IndexedDocument
from rag_assets.index.records import (
    CHUNK_COLUMNS,
    DOCUMENT_COLUMNS,
    LEFT_OUT_COLUMNS,
    RUN_COLUMNS,
    chunk_from_row,
    document_from_row,
    left_out_from_row,
    run_from_row,
    storable,
)
from rag_assets.index.schema import read_fingerprint, read_meta
from rag_assets.models import Chunk, IndexStats, IngestRun, LeftOut

_DOCUMENTS = ", ".join(f"d.{name}" for name in DOCUMENT_COLUMNS.split(", "))


def document_hash(connection: apsw.Connection, source: str, path: str) -> str | None:
    """``content_hash`` of an indexed document."""
    row = connection.execute(
        "SELECT content_hash FROM document WHERE source = ? AND path = ?",
        (storable(source), storable(path)),
    ).fetchone()
    return None if row is None else str(row[0])


def document_digests(connection: apsw.Connection, source: str) -> dict[str, str]:
    """Path -> digest of every indexed document of ``source``."""
    rows: list[Any] = connection.execute(
        "SELECT path, digest FROM document WHERE source = ?", (storable(source),)
    ).fetchall()
    return dict(rows)


def left_out(connection: apsw.Connection, source: str | None) -> list[LeftOut]:
    """The ledger, of one source or all."""
    rows = connection.execute(
        f"SELECT {LEFT_OUT_COLUMNS} FROM left_out WHERE ?1 IS NULL OR source = ?1 "
        "ORDER BY source, path",
        (None if source is None else storable(source),),
    )
    return [left_out_from_row(row) for row in rows]


def runs(connection: apsw.Connection, limit: int) -> list[IngestRun]:
    """The latest runs, newest first."""
    rows = connection.execute(
        f"SELECT {RUN_COLUMNS} FROM ingest_run ORDER BY started_at DESC, rowid DESC LIMIT ?",
        (max(0, limit),),
    )
    return [run_from_row(row) for row in rows]


def partitions(connection: apsw.Connection) -> Mapping[str, str]:
    """Partition -> data version."""
    rows: list[Any] = connection.execute(
        "SELECT partition, data_version FROM partition_state ORDER BY partition"
    ).fetchall()
    return dict(rows)


def stats(connection: apsw.Connection, path: Path) -> IndexStats:
    """Counts, and the size of the file with its write-ahead log."""
    per_source = {
        row[0]: {"documents": row[1], "chunks": row[2]}
        for row in connection.execute(
            "SELECT source, count(*), sum(chunk_count) FROM document GROUP BY source"
        )
    }
    fingerprint = read_fingerprint(connection)
    files = (path, Path(f"{path}-wal"))
    return IndexStats(
        documents=_count(connection, "document"),
        chunks=_count(connection, "chunk"),
        vectors=0 if fingerprint is None else _count(connection, "chunk_vector_rowids"),
        last_indexed_at=read_meta(connection, "last_indexed_at"),
        fingerprint=fingerprint,
        size_bytes=sum(file.stat().st_size for file in files if file.exists()),
        sources=per_source,
    )


def _count(connection: apsw.Connection, table: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert row is not None
    return int(row[0])


def explain(connection: apsw.Connection, source: str, path: str) -> ExplainedDocument:
    """What is known of one path; the exact spelling first, then one that is equal under NFC."""
    source, asked = storable(source), storable(path)
    spelled = _spelling(connection, "document", source, asked)
    if spelled is not None:
        return _explain_indexed(connection, source, spelled)
    return ExplainedDocument(
        source, path, None, (), _explain_left_out(connection, source, asked), None, None
    )


def _explain_indexed(connection: apsw.Connection, source: str, path: str) -> ExplainedDocument:
    row = connection.execute(
        f"SELECT d.id, d.run_id, d.indexed_at, a.tags, {_DOCUMENTS} FROM document d "
        "JOIN acl_set a ON a.id = d.acl_set WHERE d.source = ? AND d.path = ?",
        (source, path),
    ).fetchone()
    assert row is not None
    document_id, run_id, indexed_at, tags, *columns = row
    return ExplainedDocument(
        source=source,
        path=path,
        document=document_from_row(columns, tags),
        chunks=_chunks(connection, document_id, source, path),
        left_out=None,
        run_id=run_id,
        indexed_at=indexed_at,
    )


def _chunks(connection: apsw.Connection, document_id: int, source: str, path: str) -> list[Chunk]:
    rows = connection.execute(
        f"SELECT {CHUNK_COLUMNS} FROM chunk WHERE document_id = ? ORDER BY position",
        (document_id,),
    )
    return [chunk_from_row(source, path, row) for row in rows]


def _explain_left_out(connection: apsw.Connection, source: str, path: str) -> LeftOut | None:
    """The entry of the path itself, or of the nearest folder above it that was not entered."""
    candidates = [path]
    parts = path.rstrip("/").split("/")
    candidates += ["/".join(parts[:depth]) + "/" for depth in range(len(parts), 0, -1)]
    for candidate in candidates:
        spelled = _spelling(connection, "left_out", source, candidate)
        if spelled is not None:
            row = connection.execute(
                f"SELECT {LEFT_OUT_COLUMNS} FROM left_out WHERE source = ? AND path = ?",
                (source, spelled),
            ).fetchone()
            assert row is not None
            return left_out_from_row(row)
    return None


def _spelling(connection: apsw.Connection, table: str, source: str, path: str) -> str | None:
    """How ``table`` spells ``path``: as given, or another form that NFC makes equal."""
    row = connection.execute(
        f"SELECT path FROM {table} WHERE source = ? AND path = ?",
        (source, path),
    ).fetchone()
    if row is not None:
        return str(row[0])
    wanted = unicodedata.normalize("NFC", path)
    if wanted.isascii():  # no other spelling can be equal to it
        return None
    for (other,) in connection.execute(
        f"SELECT path FROM {table} WHERE source = ?",
        (source,),
    ):
        if unicodedata.normalize("NFC", other) == wanted:
            return str(other)
    return None


def documents(connection: apsw.Connection, source: str | None) -> Iterator[IndexedDocument]:
    """Every document with passages and vectors, one at a time, ordered by source and path."""
    import numpy as np

    dim = getattr(read_fingerprint(connection), "dim", 0)
    rows = connection.execute(
        f"SELECT d.id, a.tags, {_DOCUMENTS} FROM document d JOIN acl_set a ON a.id = d.acl_set "
        "WHERE ?1 IS NULL OR d.source = ?1 ORDER BY d.source, d.path",
        (None if source is None else storable(source),),
    )
    for document_id, tags, *columns in rows:
        document = document_from_row(columns, tags)
        blobs: list[Any] = connection.execute(
            "SELECT v.embedding FROM chunk c JOIN chunk_vector v ON v.rowid = c.id "
            "WHERE c.document_id = ? ORDER BY c.position",
            (document_id,),
        ).fetchall()
        vectors = np.frombuffer(b"".join(row[0] for row in blobs), dtype="<f4").reshape(-1, dim)
        chunks = _chunks(connection, document_id, document.source, document.path)
        yield IndexedDocument(document, chunks, vectors)

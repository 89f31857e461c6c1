"""Everything an index can be asked apart from a search."""

# ruff: noqa: S608  (only this package's own names are spelled into SQL; values are always bound)

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import apsw

from rag_assets.acl import AclTags, Everything
from rag_assets.filters import Filters
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
from rag_assets.index.visibility import document_conditions, resolve
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


def stats(connection: apsw.Connection, path: Path, acl_tags: AclTags) -> IndexStats:
    """Counts of what the tags may see, and the size of the file with its write-ahead log."""
    where, bindings = document_conditions(resolve(connection, acl_tags, Filters()))
    per_source = {
        row[0]: {"documents": row[1], "chunks": row[2]}
        for row in connection.execute(
            "SELECT d.source, count(*), sum(d.chunk_count) FROM document d "
            f"WHERE {where} GROUP BY d.source",
            bindings,
        )
    }
    fingerprint = read_fingerprint(connection)
    files = (path, Path(f"{path}-wal"))
    everything = isinstance(acl_tags, Everything)
    documents = sum(counts["documents"] for counts in per_source.values())
    chunks = sum(counts["chunks"] for counts in per_source.values())
    return IndexStats(
        documents=documents,
        chunks=_count(connection, "chunk") if everything else chunks,
        vectors=_vectors(connection, fingerprint is not None) if everything else chunks,
        last_indexed_at=_last_indexed_at(connection, where, bindings, everything),
        fingerprint=fingerprint,
        size_bytes=sum(file.stat().st_size for file in files if file.exists()) if everything else 0,
        sources=per_source,
        without_tags=_without_tags(connection) if everything else 0,
    )


def _without_tags(connection: apsw.Connection) -> int:
    row = connection.execute(
        "SELECT count(*) FROM document WHERE acl_set NOT IN (SELECT acl_set FROM acl_set_tag)"
    ).fetchone()
    assert row is not None
    return int(row[0])


def _last_indexed_at(
    connection: apsw.Connection, where: str, bindings: list[Any], everything: bool
) -> str | None:
    """When something was last written; to a caller with tags: something it may see."""
    if everything:
        return read_meta(connection, "last_indexed_at")
    row = connection.execute(
        f"SELECT max(d.indexed_at) FROM document d WHERE {where}", bindings
    ).fetchone()
    return None if row is None else row[0]


def _vectors(connection: apsw.Connection, initialised: bool) -> int:
    return _count(connection, "chunk_vector_rowids") if initialised else 0


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


def visible_document(
    connection: apsw.Connection, source: str, path: str, acl_tags: AclTags
) -> ExplainedDocument | None:
    """A document that the tags may see; None when there is none, or it is not for them."""
    source = storable(source)
    # Only visible documents are looked through: a hidden one that is spelled as asked must not
    # stand before a visible one that is spelled in another form.
    visible = document_conditions(resolve(connection, acl_tags, Filters()))
    spelled = _spelling(connection, "document", source, storable(path), visible)
    return None if spelled is None else _explain_indexed(connection, source, spelled)


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
        left_out=_ledger_row(connection, source, path),  # flagged
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
            return _ledger_row(connection, source, spelled)
    return None


def _ledger_row(connection: apsw.Connection, source: str, path: str) -> LeftOut | None:
    row = connection.execute(
        f"SELECT {LEFT_OUT_COLUMNS} FROM left_out WHERE source = ? AND path = ?", (source, path)
    ).fetchone()
    return None if row is None else left_out_from_row(row)


def _spelling(
    connection: apsw.Connection,
    table: str,
    source: str,
    path: str,
    among: tuple[str, list[Any]] = ("TRUE", []),
) -> str | None:
    """How ``table`` spells ``path``: as given, or the first of the forms that NFC makes equal.

    ``among`` is a condition over the rows ``d`` that count, with its bindings.
    """
    where, bindings = among
    row = connection.execute(
        f"SELECT d.path FROM {table} d WHERE d.source = ? AND d.path = ? AND {where}",
        (source, path, *bindings),
    ).fetchone()
    if row is not None:
        return str(row[0])
    wanted = unicodedata.normalize("NFC", path)
    if wanted.isascii():  # no other spelling can be equal to it
        return None
    for (other,) in connection.execute(
        f"SELECT d.path FROM {table} d WHERE d.source = ? AND {where} ORDER BY d.path",
        (source, *bindings),
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

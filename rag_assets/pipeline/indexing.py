"""The last step: bring one partition of the index to exactly what its tables say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import groupby
from typing import Final

import pyarrow as pa

from rag_assets.embeddings.base import Vectors
from rag_assets.fingerprints import document_digest
from rag_assets.index.base import IndexedDocument, VectorStore
from rag_assets.models import PROBLEM_REASONS, Chunk, Document, IngestRun, LeftOut
from rag_assets.pipeline import tables
from rag_assets.pipeline.progress import Progress
from rag_assets.sources.shards import Shard

CHUNKS_PER_TRANSACTION: Final = 2000
"""Bounds what a killed run has to write again, and the size of the write-ahead log."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a partition of the index has to hold."""

    documents: Sequence[Document]
    chunks: Mapping[str, Sequence[Chunk]]
    """By path."""
    left_out: Sequence[LeftOut]
    vector_rows: Mapping[str, int]
    vectors: Vectors
    """float32 [rows, dim]; row ``vector_rows[chunk.content_hash]`` is the chunk's."""


def wanted(parsed: pa.Table, chunked: pa.Table, embedded: pa.Table) -> Wanted:
    """Join the three tables; a document with a text the embedder refuses is quarantined."""
    rows, vectors = tables.embedding_vectors(embedded)
    rejected = {
        row["content_hash"]: row["rejected"]
        for row in embedded.select(["content_hash", "rejected"]).to_pylist()
        if row["rejected"] is not None
    }
    by_path = {
        path: list(group) for path, group in groupby(tables.chunks(chunked), key=lambda c: c.path)
    }
    documents: list[Document] = []
    # The index tells why; which content it was, `source_files` knows.
    left_out = [replace(row, content_hash="", version="") for row in tables.left_out(parsed)]
    for document in tables.documents(parsed, with_body=False):
        bad = next((c for c in by_path.get(document.path, ()) if c.content_hash in rejected), None)
        if bad is None:
            documents.append(document)
        else:
            left_out.append(
                LeftOut(
                    document.source,
                    document.path,
                    "quarantined",
                    "embedding_rejected",
                    f"the text of lines {bad.start_line}-{bad.end_line}: "
                    f"{rejected[bad.content_hash]}",
                )
            )
    return Wanted(documents, by_path, left_out, rows, vectors)


def index_partition(
    store: VectorStore,
    want: Wanted,
    run: IngestRun,
    *,
    shard: Shard | None,
    version: str,
    progress: Progress,
) -> IngestRun:
    """Write what differs, remove what is gone, record the partition; the caller has the lease.

    New versions are written before old paths are removed, so nothing is missing in between.
    Returns ``run`` with its counts filled in.
    """
    indexed = store.document_digests(run.source)
    changed = [
        d for d in want.documents
        if indexed.get(d.path) != document_digest(d, want.chunks.get(d.path, ()))
    ]  # fmt: skip
    upserted = unchanged = done = 0
    for batch in _batches(changed, want):
        counts = store.upsert_documents(batch, run_id=run.run_id)
        upserted += counts.chunks_upserted
        unchanged += counts.chunks_unchanged
        done += len(batch)
        progress("documents indexed", done, len(changed))
    present = {d.path for d in want.documents}
    gone = [p for p in indexed if p not in present and (shard is None or shard.holds(p))]
    removed = store.delete_documents(run.source, gone)
    _replace_left_out(store, run.source, want.left_out, shard)
    store.record_partition(run.partition, version)
    changed_paths = {d.path for d in changed}
    skipped_chunks = sum(
        len(want.chunks.get(d.path, ())) for d in want.documents if d.path not in changed_paths
    )
    quarantined = sum(1 for item in want.left_out if item.status == "quarantined")
    return replace(
        run,
        status="partial" if any(i.reason in PROBLEM_REASONS for i in want.left_out) else "ok",
        documents_seen=len(want.documents) + quarantined,
        documents_indexed=len(changed),
        documents_skipped=len(want.documents) - len(changed),
        documents_removed=removed,
        documents_excluded=sum(1 for item in want.left_out if item.status != "flagged"),
        chunks_upserted=upserted,
        chunks_unchanged=unchanged + skipped_chunks,
    )


def _batches(documents: Sequence[Document], want: Wanted) -> Iterator[list[IndexedDocument]]:
    batch: list[IndexedDocument] = []
    size = 0
    for document in documents:
        chunks = want.chunks.get(document.path, ())
        rows = [want.vector_rows[c.content_hash] for c in chunks]
        batch.append(IndexedDocument(document, chunks, want.vectors[rows]))
        size += len(chunks)
        if size >= CHUNKS_PER_TRANSACTION:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _replace_left_out(
    store: VectorStore,
    source: str,
    rows: Sequence[LeftOut],
    shard: Shard | None,
) -> None:
    before = {item.path: item for item in store.left_out(source)}
    now = {item.path: item for item in rows}
    mine = [p for p in before if shard is None or shard.holds(p)]
    gone = [p for p in mine if p not in now]
    changed = [item for path, item in now.items() if before.get(path) != item]
    if gone or changed:
        store.replace_left_out(source, changed, remove=gone)


def utc(seconds: float) -> str:
    """Seconds since the epoch as ISO 8601, UTC, whole seconds."""
    moment = datetime.fromtimestamp(int(seconds), timezone.utc)
    return moment.isoformat().replace("+00:00", "Z")

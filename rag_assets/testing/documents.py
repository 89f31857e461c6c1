"""Documents, vectors and a brute-force search for tests of a vector store; needs no pytest."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from rag_assets.acl import EVERYTHING, AclTags
from rag_assets.embeddings.base import Vectors
from rag_assets.filters import Filters
from rag_assets.fingerprints import sha256_hex
from rag_assets.index.base import IndexedDocument, UpsertCounts, VectorStore
from rag_assets.models import Chunk, Document, Hit, IndexFingerprint, embedding_text

DIM: Final = 8
FINGERPRINT: Final = IndexFingerprint(model="stub-8", dim=DIM, chunker="lines-1")


def unit_vector(text: str, dim: int = DIM) -> Vectors:
    """A unit vector that depends on ``text`` alone: float32 [dim]."""
    seed = int.from_bytes(hashlib.sha256(text.encode("utf-8", "replace")).digest()[:8], "little")
    vector = np.random.default_rng(seed).normal(size=dim)
    return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)


def indexed_document(
    path: str,
    texts: Sequence[str],
    *,
    source: str = "guides",
    tags: Sequence[str] = ("public",),
    title: str | None = None,
    dim: int = DIM,
    url: str | None = None,
    language: str = "fr",
) -> IndexedDocument:
    """A document with one passage for each text, whose vector depends on that text alone."""
    title = path if title is None else title
    chunks = [
        Chunk(
            source=source,
            path=path,
            position=position,
            title=title,
            heading_path=("Début",),
            anchor="début",
            start_line=2 * position + 1,
            end_line=2 * position + 2,
            tokens=len(text.split()),
            content=text,
            content_hash=sha256_hex(embedding_text(title, ("Début",), text)),
        )
        for position, text in enumerate(texts)
    ]
    document = Document(
        source=source,
        path=path,
        url=f"https://wiki.example/{path}" if url is None else url,
        title=title,
        body="",
        body_start_line=1,
        content_hash=sha256_hex("\n".join(texts)),
        modified_at="2026-03-01T09:30:00Z",
        acl_tags=tuple(tags),
        metadata={"auteur": "Zoé", "version": "1.10"},
        warnings=("a warning",),
        language=language,
    )
    vectors = np.array([unit_vector(text, dim) for text in texts], dtype=np.float32)
    return IndexedDocument(document, chunks, vectors.reshape(len(texts), dim))


def write(store: VectorStore, *items: IndexedDocument, run_id: str = "run-1") -> UpsertCounts:
    """Upsert under the lease."""
    with store.writing(run_id=run_id, partition="guides", wait_seconds=10):
        return store.upsert_documents(items, run_id=run_id)


def by_source(sources: Collection[str] | None) -> Filters:
    """Filters that let these sources through; None: all."""
    return Filters(sources=None if sources is None else tuple(sources))


def found(hits: Sequence[Hit]) -> list[tuple[str, str, int]]:
    """What hits point to."""
    return [(hit.source, hit.path, hit.position) for hit in hits]


def ranked_by_hand(
    items: Sequence[IndexedDocument],
    question: Vectors,
    acl_tags: AclTags,
    sources: Collection[str] | None,
) -> list[tuple[float, str, str, int]]:
    """Every visible passage as (squared distance, source, path, position), nearest first.

    Brute force in double precision.
    """
    rows = []
    for item in items:
        document = item.document
        seen = acl_tags is EVERYTHING or set(document.acl_tags) & set(acl_tags)  # type: ignore[arg-type]
        if not seen or (sources is not None and document.source not in sources):
            continue
        for chunk, vector in zip(item.chunks, item.vectors, strict=True):
            distance = float(np.sum((vector.astype(np.float64) - question.astype(np.float64)) ** 2))
            rows.append((distance, document.source, document.path, chunk.position))
    return sorted(rows)


def nearest_by_hand(
    items: Sequence[IndexedDocument],
    question: Vectors,
    k: int,
    acl_tags: AclTags,
    sources: Collection[str] | None,
) -> list[tuple[str, str, int]]:
    """What ``search`` must give for a few passages, order and ties included."""
    rows = ranked_by_hand(items, question, acl_tags, sources)[: max(0, k)]
    return [(source, path, position) for _, source, path, position in rows]


def assert_nearest(
    hits: Sequence[Hit],
    items: Sequence[IndexedDocument],
    question: Vectors,
    k: int,
    acl_tags: AclTags,
    sources: Collection[str] | None,
) -> None:
    """Compare ``hits`` with brute force where single precision may swap two near neighbours.

    Distances must agree rank by rank; passages with equal vectors must be in their exact order,
    and none of them may be left out for a later one.
    """
    ranked = ranked_by_hand(items, question, acl_tags, sources)
    distances = {row[1:]: row[0] for row in ranked}
    names = found(hits)
    assert len(names) == len(set(names)) == min(max(0, k), len(ranked))
    for name, expected in zip(names, ranked, strict=False):
        assert abs(distances[name] - expected[0]) < 1e-5
    equal: dict[float, list[tuple[str, str, int]]] = defaultdict(list)
    for row in ranked:
        equal[row[0]].append(row[1:])
    given: dict[float, list[tuple[str, str, int]]] = defaultdict(list)
    for name in names:
        given[distances[name]].append(name)
    for distance, tied in given.items():
        assert tied == equal[distance][: len(tied)]

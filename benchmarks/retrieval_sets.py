"""Retrieval sets in the BEIR layout -> an index of each -> the documents every system ranks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rag_assets.acl import EVERYTHING
from rag_assets.analysis import detect_language
from rag_assets.chunking.markdown import MarkdownChunker
from rag_assets.embeddings.base import Embedder, InputType, Vectors
from rag_assets.embeddings.batching import embed_missing
from rag_assets.embeddings.cache import EmbeddingCache
from rag_assets.fingerprints import sha256_hex
from rag_assets.index.base import IndexedDocument
from rag_assets.index.sqlite import SqliteStore
from rag_assets.models import Document, EmbedderHealth, IndexFingerprint
from rag_assets.retrieval import Retriever

CHUNKS_ASKED = 50
"""A document has several passages: enough for ten documents to be among them."""
DOCUMENTS_PER_BATCH = 200

Run = dict[str, list[str]]
"""Question id -> ids of documents, best first, each once."""


@dataclass(frozen=True, slots=True)
class RetrievalSet:
    """A corpus, questions, and which documents answer them."""

    name: str
    corpus: list[dict[str, Any]]
    """``_id``, ``title`` (may be missing), ``text``."""
    questions: dict[str, str]
    """Those with at least one answer."""
    answers: dict[str, dict[str, int]]
    """Question id -> document id -> grade."""


class CachedEmbedder:
    """An ``Embedder`` that asks the one it wraps only for what the cache does not have."""

    def __init__(self, embedder: Embedder, cache: EmbeddingCache) -> None:
        self._embedder = embedder
        self._cache = cache
        self.embedded = 0
        """Texts that the wrapped embedder was asked for."""

    @property
    def fingerprint(self) -> str:
        return self._embedder.fingerprint

    @property
    def batch_size(self) -> int:
        return self._embedder.batch_size

    def health(self) -> EmbedderHealth:
        return self._embedder.health()

    def embed(self, type: InputType, texts: Sequence[str]) -> Vectors:
        return self.vectors(type, [(sha256_hex(text), text) for text in texts])

    def vectors(self, type: InputType, items: Sequence[tuple[str, str]]) -> Vectors:
        """float32 [len(items), dim] for (content_hash, text) each."""
        if not items:
            return np.empty((0, self.health().dim), np.float32)
        outcome = embed_missing(self._embedder, type, items, self._cache)
        if outcome.rejected:
            raise RuntimeError(f"the embedder refused {len(outcome.rejected)} texts")
        self.embedded += outcome.embedded
        hashes = [content_hash for content_hash, _ in items]
        found = self._cache.get_many(self.fingerprint, type, hashes)
        return np.stack([found[content_hash] for content_hash in hashes])

    def close(self) -> None:
        self._embedder.close()


def read_set(folder: Path) -> RetrievalSet:
    """The set in ``folder``: corpus.jsonl, queries.jsonl, qrels/test.tsv."""
    answers: dict[str, dict[str, int]] = {}
    with (folder / "qrels" / "test.tsv").open(encoding="utf-8") as file:
        next(file)  # the names of the columns
        for line in file:
            question, document, grade = line.rstrip("\n").split("\t")
            if int(grade) > 0:
                answers.setdefault(question, {})[document] = int(grade)
    questions = {row["_id"]: row["text"] for row in _rows(folder / "queries.jsonl")}
    return RetrievalSet(
        folder.name,
        _rows(folder / "corpus.jsonl"),
        {name: text for name, text in questions.items() if name in answers},
        answers,
    )


def index(given: RetrievalSet, path: Path, embedder: CachedEmbedder) -> SqliteStore:
    """A new index at ``path`` of the whole corpus, cut by the chunker's defaults."""
    chunker = MarkdownChunker()
    store = SqliteStore(path)
    dim = embedder.health().dim
    store.initialize(IndexFingerprint(embedder.fingerprint, dim, chunker.fingerprint))
    documents = [_document(given.name, row) for row in given.corpus]
    with store.writing(run_id="bench", partition=given.name, wait_seconds=0):
        for start in range(0, len(documents), DOCUMENTS_PER_BATCH):
            batch = documents[start : start + DOCUMENTS_PER_BATCH]
            store.upsert_documents(_indexed(batch, chunker, embedder), run_id="bench")
        store.finish()
    return store


def ranked_by_retriever(retriever: Retriever, given: RetrievalSet, mode: str) -> Run:
    """Documents by their best passage. Near-duplicates stay: the answer may be one of them."""
    hits = retriever.retrieve_many(
        list(given.questions.values()),
        CHUNKS_ASKED,
        acl_tags=EVERYTHING,
        mode=mode,
        deduplicate=False,
        merge=False,
    )
    return {
        question: list(dict.fromkeys(hit.path for hit in found))
        for question, found in zip(given.questions, hits, strict=True)
    }


def ranked_by_bm25(given: RetrievalSet) -> Run:
    """Plain BM25 over title and text by bm25s, all of its settings as they come.

    That is k1 = 1.5, b = 0.75, words of two letters or more in lower case, English stop words, no
    stemming; documents that share no word with the question are left out.
    """
    import bm25s

    texts = [f"{row.get('title') or ''} {row['text']}" for row in given.corpus]
    bm25 = bm25s.BM25()
    bm25.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    questions = bm25s.tokenize(list(given.questions.values()), show_progress=False)
    rows, scores = bm25.retrieve(questions, k=min(100, len(texts)), show_progress=False)
    return {
        question: [given.corpus[n]["_id"] for n, score in zip(found, own, strict=True) if score > 0]
        for question, found, own in zip(given.questions, rows, scores, strict=True)
    }


def _rows(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _document(source: str, row: dict[str, Any]) -> Document:
    body = row["text"]
    return Document(
        source=source,
        path=row["_id"],
        url="",
        title=(row.get("title") or "").strip() or row["_id"],
        body=body,
        body_start_line=1,
        content_hash=sha256_hex(body),
        modified_at=None,
        acl_tags=("public",),
        language=detect_language(body),
    )


def _indexed(
    documents: Sequence[Document], chunker: MarkdownChunker, embedder: CachedEmbedder
) -> list[IndexedDocument]:
    chunked = [chunker.chunk(document) for document in documents]
    texts = [(chunk.content_hash, chunk.text) for chunks in chunked for chunk in chunks]
    vectors = embedder.vectors("passage", texts)
    ends = np.cumsum([len(chunks) for chunks in chunked])
    return [
        IndexedDocument(document, chunks, vectors[end - len(chunks) : end])
        for document, chunks, end in zip(documents, chunked, ends, strict=True)
    ]

"""How long a warm question takes on 100,000 passages, beside the bare sqlite-vec query.

    python benchmarks/query_time.py [--chunks N] [--dim D] [--questions N] [--k K] [--json]

Builds an index of random unit vectors (or reuses one with --index), then asks the same questions
alternately through ``Retriever.retrieve`` and as the bare query on a connection with the same
settings. The aim is a ratio of at most 1.3 between the retriever and bare query + embedding of the
question. Also measured: writing, ``verify``, the quick check, and questions under ACL tags.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rag_assets.acl import EVERYTHING, AclTags
from rag_assets.fingerprints import sha256_hex
from rag_assets.index.base import IndexedDocument
from rag_assets.index.connections import open_for_reading
from rag_assets.index.generations import IndexDirectory
from rag_assets.index.health import quick_problems
from rag_assets.index.sqlite import SqliteStore
from rag_assets.models import Chunk, Document, IndexFingerprint, embedding_text
from rag_assets.retrieval import Retriever
from rag_assets.testing.embedders import StubEmbedder

CHUNKS_PER_DOCUMENT = 10
DOCUMENTS_PER_BATCH = 200
BARE = "SELECT rowid, distance FROM chunk_vector WHERE embedding MATCH ? AND k = ?"
WORDS = [
    "le",
    "la",
    "un",
    "pour",
    "dans",
    "avec",
    "procédure",
    "accès",
    "réseau",
    "congé",
    "badge",
    "serveur",
    "demande",
]


def documents(count: int, dim: int, start: int) -> list[IndexedDocument]:
    """Documents ``start`` to ``start + count``: 200-word passages, one of 100 pairs of tags."""
    rng = np.random.default_rng(start)
    items = []
    for number in range(start, start + count):
        path, title = f"folder/{number:06}.md", f"Page {number}"
        texts = [
            " ".join(rng.choice(WORDS, 200)) + f" {number} {n}" for n in range(CHUNKS_PER_DOCUMENT)
        ]
        chunks = [
            Chunk("bench", path, n, title, ("Section",), "section", n, n + 1, 266, text,
                  sha256_hex(embedding_text(title, ("Section",), text)))
            for n, text in enumerate(texts)
        ]  # fmt: skip
        vectors = rng.normal(size=(CHUNKS_PER_DOCUMENT, dim)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        tags = (f"service:{number % 100}", "public") if number % 2 else (f"service:{number % 100}",)
        document = Document(
            "bench", path, f"https://wiki/{path}", title, "", 1, sha256_hex(path), None, tags
        )
        items.append(IndexedDocument(document, chunks, vectors))
    return items


def build(directory: IndexDirectory, chunks: int, embedder: StubEmbedder) -> dict[str, float]:
    """Write the index; rows a second, ``document`` preparation not counted."""
    store = directory.writable_store()
    store.initialize(IndexFingerprint(embedder.fingerprint, embedder.dim, "bench"))
    spent = 0.0
    with store.writing(run_id="bench", partition="bench", wait_seconds=0):
        for start in range(0, chunks // CHUNKS_PER_DOCUMENT, DOCUMENTS_PER_BATCH):
            items = documents(DOCUMENTS_PER_BATCH, embedder.dim, start)
            began = time.perf_counter()
            store.upsert_documents(items, run_id="bench")
            spent += time.perf_counter() - began
        began = time.perf_counter()
        store.finish()
        finish = time.perf_counter() - began
    store.close()
    return {"chunks_per_second": chunks / spent, "finish_seconds": finish}


def milliseconds(call: Callable[[], Any]) -> float:
    """How long one call takes."""
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


def compare(
    directory: IndexDirectory, embedder: StubEmbedder, count: int, k: int
) -> dict[str, float]:
    """Medians of the retriever, the bare query and the embedding, asked alternately."""
    retriever = Retriever(directory.live_store, embedder)
    path = directory.current()
    assert path is not None
    connection = open_for_reading(path)
    questions = [f"comment demander un badge {n}" for n in range(count)]
    vectors = [embedder.embed("query", [q])[0].tobytes() for q in questions]
    for warm in range(3):
        retriever.retrieve(questions[warm], k, acl_tags=EVERYTHING)
        connection.execute(BARE, (vectors[warm], k)).fetchall()
    ours, bare, embed, ratios = [], [], [], []
    for question, vector in zip(questions, vectors, strict=True):
        ours.append(milliseconds(lambda q=question: retriever.retrieve(q, k, acl_tags=EVERYTHING)))
        bare.append(milliseconds(lambda v=vector: connection.execute(BARE, (v, k)).fetchall()))
        embed.append(milliseconds(lambda q=question: embedder.embed("query", [q])))
        ratios.append(ours[-1] / (bare[-1] + embed[-1]))
    middle = statistics.median
    return {
        "retrieve_ms": middle(ours),
        "bare_query_ms": middle(bare),
        "embedding_ms": middle(embed),
        "ratio_of_medians": middle(ours) / (middle(bare) + middle(embed)),
        "median_of_ratios": middle(ratios),
    }


def filtered(directory: IndexDirectory, embedder: StubEmbedder, k: int) -> dict[str, float]:
    """Medians of questions under tags, and beyond sqlite-vec's limit of k."""
    retriever = Retriever(directory.live_store, embedder)
    cases: Sequence[tuple[str, AclTags, int]] = (
        ("everything", EVERYTHING, k),
        ("public (half)", ["public"], k),
        ("1 % (1 tag)", ["service:7"], k),
        ("10 % (10 tags)", [f"service:{n}" for n in range(10)], k),
        ("10,000 tags", [f"service:{n}" for n in range(10_000)], k),
        ("unknown tag", ["nobody"], k),
        ("k = 100", EVERYTHING, 100),
        ("k = 5,000", EVERYTHING, 5_000),
    )
    return {
        name: statistics.median(
            milliseconds(lambda t=tags, n=n: retriever.retrieve("badge", n, acl_tags=t))
            for _ in range(7)
        )
        for name, tags, n in cases
    }


def main() -> None:
    """Build, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--index", type=Path, help="keep the index here and reuse it")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    embedder = StubEmbedder(arguments.dim)
    with tempfile.TemporaryDirectory() as scratch:
        directory = IndexDirectory(arguments.index or Path(scratch))
        report: dict[str, Any] = {"chunks": arguments.chunks, "dim": arguments.dim}
        if directory.current() is None:
            report["writing"] = build(directory, arguments.chunks, embedder)
        path = directory.current()
        assert path is not None
        report["query"] = compare(directory, embedder, arguments.questions, arguments.k)
        report["filtered_ms"] = filtered(directory, embedder, arguments.k)
        store = SqliteStore(path)
        report["verify_seconds"] = milliseconds(store.verify) / 1000
        report["quick_check_ms"] = milliseconds(lambda: quick_problems(path))
        report["size_mb"] = store.stats().size_bytes / 1e6
    if arguments.json:
        print(json.dumps(report))
        return
    for name, value in report.items():
        rows = value.items() if isinstance(value, dict) else [("", value)]
        for key, number in rows:
            print(f"{name:<16} {key:<20} {number:>12,.2f}")


if __name__ == "__main__":
    main()

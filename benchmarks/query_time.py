"""How long a warm question takes on 100,000 passages, beside the bare sqlite-vec query.

    python benchmarks/query_time.py [--chunks N] [--dim D] [--questions N] [--k K] [--json]

Builds an index of random unit vectors and of texts whose words are as frequent as those of a
language (or reuses one with --index), then asks the same questions alternately as the bare query,
on a connection with the same settings, and through ``Retriever.retrieve`` in every mode, without
and under ACL tags. Aims: at most 1.3 times the bare query and the embedding of the question in
vector mode, 1.6 times in hybrid mode. Also measured: writing, ``verify``, the quick check, and
questions with many tags, large k and filters.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
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
from rag_assets.retrieval.retriever import MODES
from rag_assets.testing.embedders import StubEmbedder

CHUNKS_PER_DOCUMENT = 10
DOCUMENTS_PER_BATCH = 200
BARE = "SELECT rowid, distance FROM chunk_vector WHERE embedding MATCH ? AND k = ?"
VOCABULARY = 60_000
WORDS_PER_PASSAGE = 200
WARM_UP = 20
"""Questions before the measured ones: a retriever remembers how frequent their words are."""
SYLLABLES = [c + v for c in "bcdfglmnprstv" for v in ("a", "e", "é", "i", "o", "ou", "an")]
CALLERS: Sequence[tuple[str, AclTags]] = (
    ("everything", EVERYTHING),
    ("public (half)", ["public"]),
    ("10 tags (10 %)", [f"service:{n}" for n in range(10)]),
    ("1 tag (1 %)", ["service:7"]),
)


@cache
def vocabulary() -> tuple[np.ndarray, np.ndarray]:
    """Words and their cumulated frequencies, which fall as Zipf and Mandelbrot found them to."""
    names = ("".join(parts) for n in (1, 2, 3) for parts in itertools.product(SYLLABLES, repeat=n))
    words = np.array(list(itertools.islice(names, VOCABULARY)))
    weights = 1.0 / (np.arange(VOCABULARY) + 2.7)
    return words, np.cumsum(weights / weights.sum())


def draw(rng: np.random.Generator, count: int) -> np.ndarray:
    """``count`` words as they come in running text."""
    words, cumulated = vocabulary()
    return words[np.minimum(np.searchsorted(cumulated, rng.random(count)), VOCABULARY - 1)]


def documents(count: int, dim: int, start: int) -> list[IndexedDocument]:
    """Documents ``start`` to ``start + count``: 200-word passages, one of 100 pairs of tags."""
    rng = np.random.default_rng(start)
    items = []
    for number in range(start, start + count):
        path, title = f"folder/{number:06}.md", f"Page {number}"
        texts = [
            " ".join(draw(rng, WORDS_PER_PASSAGE)) + f" {number} {n}"
            for n in range(CHUNKS_PER_DOCUMENT)
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
            "bench", path, f"https://wiki/{path}", title, "", 1, sha256_hex(path), None, tags,
            language="fr",
        )  # fmt: skip
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
    """Medians of the bare query and of every mode and caller, asked alternately, and ratios."""
    retriever = Retriever(directory.live_store, embedder)
    path = directory.current()
    assert path is not None
    connection = open_for_reading(path)
    rng = np.random.default_rng(7)
    questions = [" ".join(draw(rng, 8)) for _ in range(count + WARM_UP)]
    times: dict[str, list[float]] = {}

    def timed(name: str, call: Callable[[], Any]) -> None:
        times.setdefault(name, []).append(milliseconds(call))

    for asked, question in enumerate(questions):
        vector = embedder.embed("query", [question])[0].tobytes()
        timed("bare query", lambda v=vector: connection.execute(BARE, (v, k)).fetchall())
        timed("embedding", lambda q=question: embedder.embed("query", [q]))
        for mode in MODES:
            for caller, tags in CALLERS:
                timed(
                    f"{mode}, {caller}",
                    lambda q=question, m=mode, t=tags: retriever.retrieve(q, k, acl_tags=t, mode=m),
                )
        if asked < WARM_UP:
            times.clear()
    middle = {name: statistics.median(values) for name, values in times.items()}
    least = middle["bare query"] + middle["embedding"]
    report = {f"{name} ms": value for name, value in middle.items()}
    report.update({f"{name} ratio": middle[name] / least for name in middle if "," in name})
    return report


def filtered(directory: IndexDirectory, embedder: StubEmbedder, k: int) -> dict[str, float]:
    """Medians of questions under tags, and beyond sqlite-vec's limit of k."""
    retriever = Retriever(directory.live_store, embedder)
    cases: Sequence[tuple[str, AclTags, int]] = (
        ("10,000 tags", [f"service:{n}" for n in range(10_000)], k),
        ("unknown tag", ["nobody"], k),
        ("k = 100", EVERYTHING, 100),
        ("k = 5,000", EVERYTHING, 5_000),
    )
    found = {
        name: statistics.median(
            milliseconds(lambda t=tags, n=n: retriever.retrieve("banane bou", n, acl_tags=t))
            for _ in range(7)
        )
        for name, tags, n in cases
    }
    narrow = {"path": "folder/00[0-4]*.md", "language": "fr"}
    found["path glob"] = statistics.median(
        milliseconds(lambda: retriever.retrieve("banane", k, acl_tags=EVERYTHING, filters=narrow))
        for _ in range(7)
    )
    return found


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
            print(f"{name:<16} {key:<32} {number:>12,.2f}")


if __name__ == "__main__":
    main()

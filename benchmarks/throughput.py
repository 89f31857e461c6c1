"""How much the pipeline adds to the embedder, and how fast it is without one.

    python benchmarks/throughput.py PATH/TO/TREE [--documents 40] [--json]

* ``local``: the five steps over some documents with the local embedder, against that embedder
  alone on the same texts in the same batches, taking turns in one process: their ratio.
* ``zero``: the five steps over the whole tree with an embedder that costs nothing: documents per
  second, and the seconds of every step.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rag_assets.components import build_embedder
from rag_assets.config import load_config
from rag_assets.embeddings.base import Embedder, InputType, Vectors
from rag_assets.models import EmbedderHealth
from rag_assets.pipeline import tables
from rag_assets.pipeline.pipeline import Pipeline, RunOptions
from rag_assets.project import ASSETS


class ZeroCostEmbedder:
    """Unit vectors from a table, whatever the text says."""

    fingerprint = "zero"
    batch_size = 256

    def __init__(self) -> None:
        rows = np.random.default_rng(7).standard_normal((4096, 384)).astype(np.float32)
        self._rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        self._next = 0

    def health(self) -> EmbedderHealth:
        """Always well."""
        return EmbedderHealth("ok", "zero", 384)

    def embed(self, type: InputType, texts: Sequence[str]) -> Vectors:  # noqa: ARG002
        """float32 [n, 384]."""
        start = self._next % (len(self._rows) - len(texts))
        self._next += len(texts)
        return self._rows[start : start + len(texts)]

    def close(self) -> None:
        """Nothing to release."""


class Recorder:
    """Passes calls on to an embedder and keeps its batches."""

    concurrency = 1

    def __init__(self, inner: Embedder) -> None:
        self.inner = inner
        self.batches: list[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def embed(self, type: InputType, texts: Sequence[str]) -> Vectors:
        """As the inner embedder does."""
        if type == "passage":
            self.batches.append(list(texts))
        return self.inner.embed(type, texts)


def project(folder: Path, root: Path, backend: str) -> Pipeline:
    """A pipeline over the tree with an empty data folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    source = {"name": "tree", "root": str(root), "acl": {"default": ["public"]}}
    path = folder / "rag_assets.yaml"
    path.write_text(json.dumps({"sources": [source], "embedding": {"backend": backend}}))
    return Pipeline(load_config(path))


def local_share(tree: Path, documents: int, rounds: int, work: Path) -> dict[str, Any]:
    """Throughput of the whole pipeline as a share of the embedder's own."""
    sample = work / "sample"
    sample.mkdir()
    files = sorted(p for p in tree.rglob("*.md") if p.is_file() and ".git" not in p.parts)
    for number, file in enumerate(files[:: max(1, len(files) // documents)][:documents]):
        shutil.copyfile(file, sample / f"{number}.md")
    shared = build_embedder(project(work / "shared", sample, "local").config)
    shared.embed("passage", ["warm"])
    ratios, texts = [], 0
    for _ in range(rounds):
        pipeline = project(work / "local", sample, "local")
        recorder = Recorder(shared)
        pipeline.embedder = recorder  # type: ignore[misc, assignment]
        began = time.perf_counter()
        pipeline.run(pipeline.config.partition("tree"), RunOptions("bench"))
        whole = time.perf_counter() - began
        began = time.perf_counter()
        for batch in recorder.batches:
            shared.embed("passage", batch)
        alone = time.perf_counter() - began
        ratios.append(alone / whole)
        texts = sum(map(len, recorder.batches))
    return {
        "documents": documents,
        "texts": texts,
        "share": round(statistics.median(ratios), 4),
        "texts_per_second": round(texts / whole, 2),
    }


def zero_cost(tree: Path, rounds: int, work: Path) -> dict[str, Any]:
    """Documents per second without an embedder, and where the time goes."""
    best: dict[str, Any] = {}
    for _ in range(rounds):
        pipeline = project(work / "zero", tree, "local")
        pipeline.embedder = ZeroCostEmbedder()  # type: ignore[misc, assignment]
        seconds = timed_steps(pipeline)
        total = sum(seconds.values())
        if not best or total < best["seconds"]:
            files = pipeline.files.read("source_files", "tree")
            size = sum(len(f.content) for f in tables.source_files(files))
            count = sum(1 for _ in tables.source_files(files))
            best = {
                "documents": count,
                "megabytes": round(size / 1e6, 2),
                "seconds": round(total, 3),
                "documents_per_second": round(count / total),
                "steps": {name: round(value, 3) for name, value in seconds.items()},
            }
    return best


def timed_steps(pipeline: Pipeline) -> dict[str, float]:
    """Seconds of every step of one partition, writing its table included."""
    partition, options = pipeline.config.partition("tree"), RunOptions("bench")
    seconds: dict[str, float] = {}
    began = time.perf_counter()
    made = pipeline.source_files(partition, None, options)
    pipeline.files.write("source_files", "tree", made.table)
    seconds["source_files"] = time.perf_counter() - began
    results = [made.table]
    parse, cut = (partial(step, partition) for step in (pipeline.parsed_documents, pipeline.chunks))
    steps = (parse, cut, pipeline.embeddings)
    for asset, step in zip(ASSETS[1:], steps, strict=True):
        began = time.perf_counter()
        made = step(results[-1], None, options)
        pipeline.files.write(asset, "tree", made.table)
        results.append(made.table)
        seconds[asset] = time.perf_counter() - began
    began = time.perf_counter()
    _, parsed, chunked, embedded = results
    pipeline.vector_index(partition, parsed, chunked, embedded, options)
    seconds["vector_index"] = time.perf_counter() - began
    return seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("--documents", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["local", "zero"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        if options.only != "local":
            found["zero"] = zero_cost(options.tree.absolute(), options.rounds, work)
        if options.only != "zero":
            found["local"] = local_share(
                options.tree.absolute(), options.documents, options.rounds, work
            )
    if options.json:
        print(json.dumps(found))
        return
    if "zero" in found:
        zero = found["zero"]
        print(f"zero-cost embedder: {zero['documents']} documents ({zero['megabytes']} MB) in "
              f"{zero['seconds']} s: {zero['documents_per_second']} documents/s")  # fmt: skip
        for step, seconds in zero["steps"].items():
            print(f"  {step:18} {seconds:7.3f} s")
    if "local" in found:
        local = found["local"]
        print(
            f"local embedder: {local['texts']} texts of {local['documents']} documents, "
            f"{local['texts_per_second']}/s: {local['share']:.1%} of the embedder alone"
        )


if __name__ == "__main__":
    main()

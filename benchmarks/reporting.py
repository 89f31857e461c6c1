"""What the quality benchmarks print: Markdown tables, means with the interval of chance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

RESAMPLES = 2_000

PerQuestion = npt.NDArray[np.float64]
"""A score for each question, in the order of the questions."""


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column to the left, all others to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def interval(differences: PerQuestion) -> tuple[float, float]:
    """Where 95 % of the means of resampled questions lie (paired bootstrap)."""
    rng = np.random.default_rng(0)
    count = len(differences)
    means = [differences[rng.integers(0, count, count)].mean() for _ in range(RESAMPLES)]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def difference(ours: PerQuestion, theirs: PerQuestion) -> str:
    """Mean of ``ours - theirs`` with its interval; one that holds 0 says nothing."""
    low, high = interval(ours - theirs)
    return f"{(ours - theirs).mean():+.3f} ({low:+.3f} to {high:+.3f})"

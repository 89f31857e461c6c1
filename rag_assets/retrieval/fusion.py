"""The scores of the vector and the text leg in, one score for each passage out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rag_assets.errors import ConfigurationError

if TYPE_CHECKING:
    from rag_assets.index.base import Candidates, Scores

DEPTH: Final = 30
"""Passages that each leg proposes, when fewer are asked for; 50 found nothing more."""
TEXT_WEIGHT: Final = 0.35
"""What a passage that holds all of the question gains, in units of cosine; measured over six sets
in ``benchmarks/README.md``, where 0.2 to 0.5 are all better than reciprocal ranks."""


@dataclass(frozen=True, slots=True)
class Fusion:
    """The cosine, plus the share of the question that the passage's words answer.

    The text leg is believed as far as it has something to say. A share is measured against the
    whole question, every word weighed by its rarity: in another language hardly any word of it is
    found, the share is near zero, and the vector leg decides alone. Ranks, and scores stretched to
    the same range, lack that measure: they give the best of a worthless text leg as much as the
    best of a perfect one.
    """

    text_weight: float = TEXT_WEIGHT

    def __post_init__(self) -> None:
        if not 0 <= self.text_weight < float("inf"):
            raise ConfigurationError(
                f"retrieval.text_weight is {self.text_weight}; it must be a number from 0 up"
            )

    def __call__(self, candidates: Candidates) -> Scores:
        """The fused score of every candidate, float64 [n]; higher is better."""
        return candidates.vector_scores + self.text_weight * candidates.text_shares

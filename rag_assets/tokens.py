"""How many tokens a text has: the deterministic estimate, and a bound that real tokenizers respect."""

from __future__ import annotations

import math
from typing import Final

TOKENS_PER_WORD: Final = 1.33
"""Common rule of thumb for English prose; French prose and code have more (see upper_bound_tokens)."""


def estimate_tokens(text: str) -> int:
    """ceil(words x 1.33), words separated by white space: the unit of ``chunk.size``."""
    return math.ceil(len(text.split()) * TOKENS_PER_WORD)

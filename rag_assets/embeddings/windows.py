"""Texts longer than a model reads, cut into windows whose vectors are averaged by length."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from rag_assets.embeddings.base import Vectors

WINDOW_RULE: Final = "windows-1"
"""Part of an embedder's fingerprint; raise it when a text would be cut or averaged otherwise."""

CountTokens = Callable[[str], int]
EmbedTexts = Callable[[Sequence[str]], Vectors]

_FIRST_CHARACTERS_PER_TOKEN: Final = 3.0
_MOST_CHARACTERS_PER_TOKEN: Final = 8.0
"""Cap of the first guess, so that a run of blanks does not make the next guess absurd."""
_SENTENCE_END: Final = re.compile(r"\n\s*|[.!?…]['\"»”’)\]]*\s+|[。！？]")
_WORD_END: Final = re.compile(r"\s+")
_LONGEST_CLUSTER: Final = 32
"""How far a cut inside a word moves back to keep combining marks with their letter."""


def split_windows(text: str, limit_tokens: int, count_tokens: CountTokens) -> list[str]:
    """Consecutive slices of ``text``, each of at most ``limit_tokens``; joined they are ``text``.

    Cuts after a sentence where one ends in the second half of a window, else after a word, else
    between characters. ``count_tokens`` need not be additive, but a slice should not have more
    tokens than what it is a slice of. The time is linear in the text: every window costs a few
    counts of about its own size. A single character that alone is over the limit stays a window.

    Raises:
        ValueError: ``limit_tokens`` is not positive.
    """
    if limit_tokens < 1:
        raise ValueError(f"limit_tokens must be at least 1, not {limit_tokens}")
    windows: list[str] = []
    start = 0
    per_token = _FIRST_CHARACTERS_PER_TOKEN
    while start < len(text):
        guess = max(1, int(limit_tokens * min(per_token, _MOST_CHARACTERS_PER_TOKEN)))
        end = _furthest_end(text, start, guess, limit_tokens, count_tokens)
        if end < len(text):
            end = _cut_before(text, start, end, limit_tokens, count_tokens)
        windows.append(text[start:end])
        per_token = (end - start) / limit_tokens
        start = end
    return windows or [text]


def embed_windowed(
    texts: Sequence[str], *, limit_tokens: int, count_tokens: CountTokens, embed: EmbedTexts
) -> Vectors:
    """float32 [len(texts), dim], unit rows: texts over the limit embedded by windows and averaged.

    ``embed`` is called once, with the windows of all texts in order; it gives float32
    [number of windows, dim] and sees to its own batches. A text within the limit is handed over
    as it is and its vector comes back untouched.
    """
    windows: list[str] = []
    counts: list[int] = []
    for text in texts:
        own = split_windows(text, limit_tokens, count_tokens)
        windows.extend(own)
        counts.append(len(own))
    vectors = embed(windows)
    if len(windows) == len(texts):
        return vectors
    # Lengths matter only where several windows are averaged.
    weights = np.ones(len(windows), np.float32)
    first = 0
    for count in counts:
        if count > 1:
            own = windows[first : first + count]
            weights[first : first + count] = [max(1, count_tokens(window)) for window in own]
        first += count
    return average_windows(vectors, counts, weights)


def average_windows(vectors: Vectors, counts: Sequence[int], weights: Vectors) -> Vectors:
    """float32 [len(counts), dim]: text i is the mean of its ``counts[i]`` windows, of length 1.

    ``vectors`` is float32 [sum(counts), dim], windows of one text side by side; ``weights`` is
    float32 [sum(counts)], positive (a window's length). A single window is returned as it is.
    Windows that cancel out to nothing are stood for by the first of them.
    """
    if sum(counts) != len(vectors) or len(weights) != len(vectors):
        raise ValueError(
            f"{len(vectors)} vectors and {len(weights)} weights for {sum(counts)} windows"
        )
    averaged = np.empty((len(counts), vectors.shape[1]), np.float32)
    first = 0
    for row, count in enumerate(counts):
        own = vectors[first : first + count]
        averaged[row] = own[0] if count == 1 else _mean(own, weights[first : first + count])
        first += count
    return averaged


def _mean(vectors: Vectors, weights: Vectors) -> Vectors:
    """The weighted mean of some rows, scaled to length 1."""
    total = weights.astype(np.float64) @ vectors.astype(np.float64)
    norm = float(np.linalg.norm(total))
    if norm <= 1e-6 * float(weights.sum()):
        first: Vectors = vectors[0]
        return first
    scaled: Vectors = (total / norm).astype(np.float32)
    return scaled


def _furthest_end(
    text: str, start: int, guess: int, limit_tokens: int, count_tokens: CountTokens
) -> int:
    """About the furthest end (within 1/16) for which the slice from ``start`` is within the limit.

    Doubles or halves the guess until it is bracketed, then bisects; at least one character.
    """
    longest = len(text) - start
    fits, too_long = 0, longest + 1
    size = min(guess, longest)
    while True:
        if count_tokens(text[start : start + size]) <= limit_tokens:
            fits = size
            if fits == longest:
                break
            size = min(size * 2, longest) if too_long > longest else (fits + too_long) // 2
        else:
            too_long = size
            size = (fits + too_long) // 2
        if too_long - fits <= max(1, fits // 16):
            break
    return start + max(fits, 1)


def _cut_before(
    text: str, start: int, end: int, limit_tokens: int, count_tokens: CountTokens
) -> int:
    """The best place to cut at or before ``end``: a sentence, a word, a character."""
    middle = start + (end - start) // 2
    for pattern in (_SENTENCE_END, _WORD_END):
        place = _last_end(pattern, text, middle, end)
        # A tokenizer may need one token more for a slice that ends elsewhere.
        if place > middle and count_tokens(text[start:place]) <= limit_tokens:
            return place
    return _before_combining(text, start, end)


def _last_end(pattern: re.Pattern[str], text: str, middle: int, end: int) -> int:
    """Where the last match inside ``text[middle:end]`` ends, or -1."""
    place = -1
    for match in pattern.finditer(text, middle, end):
        place = match.end()
    return place


def _before_combining(text: str, start: int, end: int) -> int:
    """``end``, moved back so that no combining mark is torn from its letter."""
    place = end
    while place > start + 1 and end - place < _LONGEST_CLUSTER and _joins(text[place]):
        place -= 1
    return end if _joins(text[place]) else place


def _joins(character: str) -> bool:
    return unicodedata.combining(character) != 0 or character in "\u200d\ufe0f"

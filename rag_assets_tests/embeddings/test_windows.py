"""Cutting long texts into windows, and averaging what comes of them."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_assets.embeddings.base import Vectors
from rag_assets.embeddings.windows import average_windows, embed_windowed, split_windows


def count_words(text: str) -> int:
    return math.ceil(len(text.split()) * 1.33)


def count_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


COUNTERS = {"words": count_words, "characters": len, "bytes": count_bytes}

TEXT = st.text(
    st.one_of(
        st.sampled_from(" \n\t.!?…»é\u0301\u00a0œ日。"), st.characters(exclude_categories=())
    ),
    max_size=400,
)


@pytest.mark.parametrize("count", COUNTERS.values(), ids=COUNTERS.keys())
@given(text=TEXT, limit=st.integers(1, 60))
def test_windows_together_are_the_text_and_each_is_within_the_limit(count, text, limit):
    """Whatever the text, the limit and the unit, no character is lost or repeated."""
    windows = split_windows(text, limit, count)
    assert "".join(windows) == text
    assert all(count(window) <= limit or len(window) == 1 for window in windows)
    assert all(windows) or windows == [""]


def test_text_within_the_limit_is_one_window():
    """A short text is not touched."""
    assert split_windows("  L'été, déjà.\n", 10, count_words) == ["  L'été, déjà.\n"]


def test_cut_falls_between_sentences():
    """A window ends where a sentence of its second half ends."""
    sentence = "Le serveur répond en moins d'une seconde. "
    windows = split_windows(sentence * 20, 30, count_words)
    assert len(windows) > 1
    assert all(window.endswith(". ") for window in windows)


def test_cut_falls_between_words_where_no_sentence_ends():
    """Words stay whole."""
    windows = split_windows("abcdefg " * 50, 60, len)
    assert {word for window in windows for word in window.split()} == {"abcdefg"}


def test_cut_inside_a_word_keeps_combining_marks_with_their_letter():
    """A decomposed accent is not torn off when there is nothing better to cut at."""
    windows = split_windows("e\u0301" * 101, 25, len)
    assert not any(window.startswith("\u0301") for window in windows)


@pytest.mark.parametrize("count", COUNTERS.values(), ids=COUNTERS.keys())
@pytest.mark.parametrize(
    "text",
    [
        "Ceci est une phrase. Et une autre ! " * 28_000,
        "x" * 1_000_000,
        " " * 1_000_000,
        ". " * 500_000,
        '."' * 500_000,
        "e\u0301" * 500_000,
        (" " * 10_000 + "a b " * 10_000) * 20,
    ],
    ids=["prose", "no_space", "blank", "stops", "quotes", "combining", "uneven"],
)
def test_time_is_linear_in_the_text(count, text):
    """1 MB is counted about ten times over at most, not once per window."""
    counted = 0

    def counting(part: str) -> int:
        nonlocal counted
        counted += len(part)
        return count(part)

    started = time.process_time()
    windows = split_windows(text, 510, counting)
    assert "".join(windows) == text
    assert counted <= 12 * len(text)
    assert time.process_time() - started < 5


def test_limit_must_be_positive():
    """A limit of 0 would never end."""
    with pytest.raises(ValueError, match="at least 1"):
        split_windows("a", 0, len)


def spell(texts: Sequence[str]) -> Vectors:
    """A unit vector of what share of the letters is a, and what is not."""
    rows = [[text.count("a"), len(text) - text.count("a")] for text in texts]
    vectors = np.array(rows, np.float32).reshape(-1, 2) + np.float32(1e-3)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_short_texts_come_back_untouched_and_in_order():
    """Texts within the limit get exactly the vector of the embedder."""
    texts = ["aaa", "b", "ab"]
    vectors = embed_windowed(texts, limit_tokens=5, count_tokens=len, embed=spell)
    assert np.array_equal(vectors, spell(texts))


def test_long_text_is_the_average_of_its_windows_weighted_by_length():
    """Each window counts as much as it has tokens; neighbours keep their own vectors."""
    texts = ["b", "aaaaaa bb", "a"]
    vectors = embed_windowed(texts, limit_tokens=7, count_tokens=len, embed=spell)
    windows = spell(["aaaaaa ", "bb"])
    expected = 7 * windows[0] + 2 * windows[1]
    assert np.allclose(vectors[1], expected / np.linalg.norm(expected), atol=1e-6)
    assert np.array_equal(vectors[[0, 2]], spell(["b", "a"]))


def test_no_text_at_all():
    """An empty list gives an array of no rows, of the embedder's dimension."""
    assert embed_windowed([], limit_tokens=7, count_tokens=len, embed=spell).shape == (0, 2)


@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    seed=st.integers(0, 2**32 - 1),
)
def test_averages_have_length_one(counts, seed):
    """Every row is a unit vector again."""
    random = np.random.default_rng(seed)
    vectors = random.standard_normal((sum(counts), 5)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    weights = random.uniform(1, 510, sum(counts)).astype(np.float32)
    averaged = average_windows(vectors, counts, weights)
    assert averaged.dtype == np.float32
    assert np.allclose(np.linalg.norm(averaged, axis=1), 1, atol=1e-5)


def test_windows_that_cancel_out_do_not_give_a_zero_vector():
    """Opposite windows are stood for by the first."""
    vectors = np.array([[1, 0], [-1, 0]], np.float32)
    assert average_windows(vectors, [2], np.ones(2, np.float32)).tolist() == [[1, 0]]


def test_counts_that_do_not_match_the_vectors_are_refused():
    """An embedder that gave too few vectors is not averaged into the wrong texts."""
    with pytest.raises(ValueError, match="1 vectors"):
        average_windows(np.ones((1, 2), np.float32), [2], np.ones(2, np.float32))

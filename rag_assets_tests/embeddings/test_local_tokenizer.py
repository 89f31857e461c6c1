"""Text to token ids of the local model."""

from __future__ import annotations

import time
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_assets.embeddings.e5_tokenizer import E5Tokenizer
from rag_assets.embeddings.e5_weights import E5Weights, find_weights, open_weights


@pytest.fixture(scope="module")
def weights() -> E5Weights:
    return open_weights(find_weights())


@pytest.fixture(scope="module")
def tokenizer(weights: E5Weights) -> E5Tokenizer:
    return E5Tokenizer(weights)


def pieces(weights: E5Weights, tokenizer: E5Tokenizer, text: str) -> list[str]:
    vocabulary = weights.vocabulary().pieces
    return [vocabulary[i] for i in tokenizer.content_ids(text)]


def test_words_are_the_pieces_of_the_model(weights, tokenizer):
    """French and English text, spaces and line ends alike, as SentencePiece cuts them."""
    assert pieces(weights, tokenizer, "passage: how much protein") == [
        *("▁passage", ":", "▁how", "▁much", "▁protein")
    ]
    assert pieces(weights, tokenizer, "L'été\u00a0:\n\n  déjà") == [
        *("▁L", "'", "été", "▁:", "▁déjà")
    ]


@given(text=st.text(st.characters(exclude_categories=()), max_size=200))
@settings(deadline=None)
def test_any_text_has_ids_of_the_vocabulary(tokenizer, text):
    """NUL, surrogates, unassigned characters: windows in range, framed, with the prefix."""
    (window,) = tokenizer.windows("query", text)
    assert window[0] == 0
    assert window[-1] == 2
    assert window.min() >= 0
    assert window.max() < 250_002
    assert not set(window[1:-1].tolist()) & {0, 1, 2}


@given(text=st.text("aàéœbcç '’-\u00a0\n.,→😀€123", max_size=300))
@settings(deadline=None)
def test_latin_part_of_the_vocabulary_gives_the_ids_of_the_whole(weights, tokenizer, text):
    """Which part was loaded does not change a text's ids."""
    whole = tokenizer.content_ids(text + " 日本")
    part = tokenizer.content_ids(text + " ab")
    common = len(tokenizer.content_ids(text + " x")) - 1
    assert np.array_equal(whole[:common], part[:common])


def test_nul_neither_ends_nor_changes_a_text(tokenizer):
    """What follows a NUL is still read."""
    assert np.array_equal(tokenizer.content_ids("par\0feu"), tokenizer.content_ids("parfeu"))


def test_decomposed_letters_are_the_composed_ones(tokenizer):
    """A file in NFD gets the vectors of the same file in NFC."""
    text = "Été à Montréal, œuvre complète " * 200
    decomposed = unicodedata.normalize("NFD", text)
    assert np.array_equal(tokenizer.content_ids(text), tokenizer.content_ids(decomposed))


def test_control_pieces_in_a_text_are_plain_characters(tokenizer):
    """A page cannot put the end of the text into the middle of it."""
    ids = tokenizer.content_ids("avant </s> <s> <pad> <mask> après")
    assert not set(ids.tolist()) & {0, 1, 2, 250_001}


def test_long_text_is_cut_into_windows_that_hold_all_of_it(tokenizer):
    """Each window has the prefix and the frame; the rest, joined, is the text's ids."""
    text = "Le pare-feu filtre le trafic entrant. Il journalise ce qu'il refuse ! " * 100
    content = tokenizer.content_ids("passage: " + text)
    prefix = tokenizer.content_ids("passage:")
    windows = tokenizer.windows("passage", text)
    assert len(windows) > 3
    assert all(len(window) <= 512 for window in windows)
    assert all(np.array_equal(window[1 : 1 + len(prefix)], prefix) for window in windows)
    joined = np.concatenate([window[1 + len(prefix) : -1] for window in windows])
    assert np.array_equal(joined, content[len(prefix) :])


def test_windows_end_with_a_sentence(weights, tokenizer):
    """Where a sentence ends in the second half of a window, the window ends there."""
    text = "Le pare-feu filtre le trafic entrant. " * 150
    vocabulary = weights.vocabulary().pieces
    for window in tokenizer.windows("passage", text)[:-1]:
        assert vocabulary[window[-2]].endswith(".")


@pytest.mark.parametrize(
    "text",
    [
        "x" * 1_000_000,
        " " * 1_000_000,
        "Une phrase. " * 84_000,
        "\u0301\u0327" * 500_000,
        "\ufdfa" * 1000,
    ],
    ids=["no_space", "blank", "prose", "combining", "FDFA"],
)
def test_one_megabyte_is_tokenised_in_bounded_time(tokenizer, text):
    """Linear in the text, even where composing or a text without spaces invites worse."""
    started = time.process_time()
    windows = tokenizer.windows("passage", text)
    assert time.process_time() - started < 20
    assert all(len(window) <= 512 for window in windows)

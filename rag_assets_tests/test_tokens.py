"""Token counts: a fixed estimate, and a bound that the real tokenizer stays under."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_assets.chunking.markdown import MarkdownChunker
from rag_assets.errors import Unavailable
from rag_assets.models import Document
from rag_assets.tokens import (
    estimate_tokens,
    longest_prefix,
    longest_suffix,
    token_weight,
    upper_bound_tokens,
)

ROOT = Path(__file__).parents[1]
SHARED = ROOT / ".." / "shared" / "data"
TEXTS = st.text(st.sampled_from("ab éà日🚀-=_\n\t\u00a0A1|"), max_size=120)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), (" \n", 0), ("un", 2), ("un deux trois", 4), ("mot " * 100, 133), ("l'été", 2)],
)
def test_estimate_is_words_times_a_third_more(text: str, tokens: int) -> None:
    """ceil(words x 1.33), the same everywhere."""
    assert estimate_tokens(text) == tokens


@given(TEXTS, TEXTS)
def test_a_whole_weighs_no_more_than_its_parts(one: str, other: str) -> None:
    """So passages may be filled by adding up."""
    assert token_weight(one + other) <= token_weight(one) + token_weight(other)


@given(TEXTS, st.integers(0, 20), st.integers(0, 2_000))
def test_longest_prefix_and_suffix_keep_to_words_and_weight(
    text: str, words: int, weight: int
) -> None:
    """And they are the longest that do, unless a run of dashes weighs less than it seems."""
    cut = longest_prefix(text, words, weight)
    assert len(text[:cut].split()) <= words
    assert token_weight(text[:cut]) <= weight
    begin = longest_suffix(text, words, weight)
    assert len(text[begin:].split()) <= words
    assert token_weight(text[begin:]) <= weight
    if "-" * 16 not in text and "=" * 16 not in text and "_" * 16 not in text:
        for n in range(cut + 1, len(text) + 1):
            assert len(text[:n].split()) > words or token_weight(text[:n]) > weight
        for n in range(begin):
            assert len(text[n:].split()) > words or token_weight(text[n:]) > weight


def test_any_string_is_counted() -> None:
    """Lone surrogates and control characters are no error."""
    assert upper_bound_tokens("\ud800\x00\x7f") > 0


@pytest.fixture(scope="module")
def count_real() -> Callable[[str], int]:
    """How many tokens the bundled model makes of a text."""
    from rag_assets.embeddings.e5_tokenizer import E5Tokenizer
    from rag_assets.embeddings.e5_weights import find_weights, open_weights

    try:
        tokenizer = E5Tokenizer(open_weights(find_weights()))
    except Unavailable as error:
        pytest.skip(str(error))
    return lambda text: len(tokenizer.content_ids(text))


def _bodies() -> Iterator[str]:
    for path in sorted((ROOT / "examples" / "handbook").rglob("*.md")):
        yield path.read_text(encoding="utf-8-sig")
    for path in sorted((SHARED / "chunking").glob("*.md")):
        yield path.read_text(encoding="utf-8")[:60_000]
    for name in ("fr_piaf", "en_scifact", "en_anthropic_docs"):
        path = SHARED / "retrieval" / name / "corpus.jsonl"
        if path.exists():
            with path.open(encoding="utf-8") as file:
                for _, line in zip(range(100), file, strict=False):
                    yield json.loads(line)["text"]


def test_bound_holds_for_passages_of_real_text(count_real: Callable[[str], int]) -> None:
    """No passage of ordinary prose, code or tables is cut off by a model that reads 512 tokens."""
    chunker = MarkdownChunker()
    passages = [
        chunk.text
        for body in _bodies()
        for chunk in chunker.chunk(Document("s", "p.md", "", "T", body, 1, "h", None, ()))
    ]
    assert len(passages) > 50
    real = [count_real(passage) for passage in passages]
    bound = [upper_bound_tokens(passage) for passage in passages]
    assert [p for p, r, b in zip(passages, real, bound, strict=True) if r > b] == []
    assert max(real) <= 512 - 4
    assert sum(bound) < 1.5 * sum(real)


@pytest.mark.parametrize(
    "text",
    [
        "| a | b | c |\n|---|---|---|\n" + "| 1.25 | 2024-05-06 | x_y |\n" * 12,
        "日本語の文章です。これは長い文です。" * 10,
        "這是一個中文句子，用來測試。" * 10,
        "Это предложение на русском языке. " * 10,
        "한국어 문장입니다. 길이를 재어 봅니다. " * 10,
        "L’été, c’était déjà l’œuvre d’Hélène à Nîmes ! " * 10,
        "for i in range(10):\n    print(f'{i:02d}', data[i]['key'])\n" * 8,
        "- x\n" * 80,
        "TOUT EN CAPITALES, C'EST PÉNIBLE À LIRE. " * 8,
        "🚀 ✅ ➡️ " * 30,
        "`code` **gras** _it_ [lien](https://example.org/a/b?c=d#e)\n" * 8,
        "# " * 60,
    ],
    ids=lambda text: text[:12],
)
def test_bound_holds_for_each_kind_of_text(text: str, count_real: Callable[[str], int]) -> None:
    """Languages, code, tables, capitals and emoji, each alone."""
    assert count_real(text) <= upper_bound_tokens(text) <= 4 * count_real(text)

"""Rules are only left out where they could not match."""

from __future__ import annotations

import pytest

from rag_assets.screening.pattern_files import read_phrases
from rag_assets.screening.rules import compile_pattern
from rag_assets.screening.views import plain_views
from rag_assets.screening.word_needs import alternatives, beginnings, word_needs
from rag_assets_tests.screening.injections import injected_documents
from rag_assets_tests.screening.near_misses import NOT_ORDERS


@pytest.mark.parametrize(
    ("pattern", "needs"),
    [
        (r"\bignore [a-z]+ rules?\b", [{b"ignore"}, {b"rule"}]),
        (r"\b(?:forget|ignor(?:e|ing)) it", [{b"it"}, {b"forget", b"ignor"}]),
        (r"\b(?:all |any )?rules\b", [{b"rules"}]),
        (r"\bthe(?: \w+)? prompt", [{b"the"}, {b"prompt"}]),
        (r"instructions", []),  # may stand inside of a word
        (r"\b(?:re)?write", []),  # a word may begin with either
        (r"\bab+cd ef", [{b"ef"}]),
        (r"\b(?:abc|[x-z])", []),
        (r"\binstructions ignored", [{b"ignored"}, {b"instruc"}]),
        (r"(?:^|\n)[^a-z0-9]*system *:", [{b"system"}]),
        (r"\bab{2}cd", []),
    ],
)
def test_needs_are_what_every_match_has(pattern: str, needs: list[set[bytes]]) -> None:
    """Beginnings of words that must be there; nothing where that cannot be told."""
    found = word_needs(pattern.replace(" ", "[^a-z0-9.]+"))
    assert sorted(map(sorted, found)) == sorted(map(sorted, needs))


def test_alternatives_are_those_outside_of_groups() -> None:
    """Only the outermost bars divide."""
    assert alternatives(r"a(?:b|c)|[|]d|\|e") == ["a(?:b|c)", "[|]d", r"\|e"]


@pytest.mark.parametrize("file", ["instructions.en", "instructions.fr"])
def test_no_match_is_lost(file: str) -> None:
    """Wherever a pattern matches a fixture, the words that it needs are there."""
    texts = [document.text for document in injected_documents() if document.carrier == "plain"]
    folded = [view.text.lower() for t in (*texts, *NOT_ORDERS) for view in plain_views(t)]
    words = [beginnings(text) for text in folded]
    together = b"\n\n".join(folded)
    matched = 0
    for _, pattern in read_phrases(file):
        regexp = compile_pattern(pattern)
        if regexp.search(together) is None:
            continue
        needs = [word_needs(part) for part in alternatives(pattern)]
        for text, there in zip(folded, words, strict=True):
            if regexp.search(text):
                matched += 1
                assert any(all(need & there for need in part) for part in needs), pattern
    assert matched > 200

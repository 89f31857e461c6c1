"""Readings of a text in, places that give orders to a model out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

from rag_assets.screening.findings import Finding
from rag_assets.screening.pattern_files import read_phrases
from rag_assets.screening.rules import GroupedRules, Rule, WordRules, compile_pattern
from rag_assets.screening.views import View
from rag_assets.screening.word_needs import beginnings

WINDOW_BYTES: Final = 4_000
"""Fewer rules find all the words they need in a small piece of text than in a whole document."""
OVERLAP_BYTES: Final = 600
"""An order in one sentence is shorter."""
PHRASE_FILES: Final = ("instructions.en", "instructions.fr")
"""Of ``patterns/``: for any text, and for French."""
SQUEEZED_RULES: Final = frozenset(
    {"ignore-previous", "ignore-previous-fr", "reveal-prompt", "reveal-prompt-fr"}
)
"""What is also looked for where the spaces between words are gone."""

_FRENCH_WORDS: Final = (
    "vous|tu|vos|votre|tes|toi|moi|les|des|une|que|qui|qu|dans|avec|cette|ces|toute?s?|tous|aucune?|chaque"
    "|reponse|reponds|repondez|ecris|ecrivez|oublie[rz]?|ignorez|consignes?|desormais|dorenavant|nouvelles?"
    "|rien|systeme|ne|jamais|uniquement|seulement|mot|mode [a-z]+ active"
)
"""An order in French has one of these, or two of the next, which are words of other languages."""
_SHARED_WORDS: Final = (
    "le|la|de|du|un|ce|l|d|n|pas|par|pour|sur|aux?|ci|plus|est|es|sans|ton|ta|te|ignore|mode|son"
    "|ses"
)
_MARKS: Final = bytes(c for c in range(128) if not chr(c).isalnum())
_FORGETTING: Final = (
    *(b"ignor", b"oubli", b"forg", b"disreg", b"negl", b"overr", b"overl", b"skip", b"omit"),
)
_NEGATION: Final = re.compile(
    rb"\b(?:not|never|t|pas|jamais|n|ne|without|sans)[^a-z0-9.;!?]+(?:ever |just |simply )?$"
)
_FRENCH_NEGATION: Final = re.compile(rb"[a-z]+[^a-z0-9]+(?:pas|jamais)\b")


def find_instructions(views: Iterable[View]) -> Iterator[Finding]:
    """One finding per rule and line of each view; linear in the views."""
    for view in views:
        text = view.text.lower()
        if view.squeezed:
            for name, line in _squeezed_rules().matches(text):
                yield Finding(line, "instructions", name)
            continue
        for first_line, window in _windows(text):
            words = beginnings(window)
            for rules in _rules() if _french_sign().search(window) else _rules()[:1]:
                for name, line in rules.matches(window, words):
                    yield Finding(first_line + line - 1, "instructions", name)


def _windows(text: bytes) -> Iterator[tuple[int, bytes]]:
    """Pieces of the text that overlap, and the 1-based line on which each begins.

    They begin and end at line ends. A text with a gap as long as the overlap, in which an order
    could be cut in two, stays whole.
    """
    if len(text) <= WINDOW_BYTES + OVERLAP_BYTES or _long_gap().search(text):
        yield 1, text
        return
    start, line = 0, 1
    while start < len(text):
        end = _line_end(text, start + WINDOW_BYTES)
        yield line, text[start : _line_end(text, end + OVERLAP_BYTES)]
        line += text.count(b"\n", start, end)
        start = end


def _line_end(text: bytes, place: int) -> int:
    """The end of the line at ``place``, or ``place`` itself in a very long line."""
    end = text.find(b"\n", place, place + OVERLAP_BYTES)
    return min(place, len(text)) if end < 0 else end


@lru_cache(maxsize=1)
def _long_gap() -> Any:
    return compile_pattern(rf"[^a-z0-9]{{{OVERLAP_BYTES // 2}}}", captures=False)


@lru_cache(maxsize=1)
def _french_sign() -> Any:
    shared = f"\\b(?:{_SHARED_WORDS})\\b"
    return compile_pattern(
        rf"\b(?:{_FRENCH_WORDS})\b|{shared}[^.;!?]{{0,80}}{shared}", captures=False
    )


@lru_cache(maxsize=1)
def _rules() -> tuple[WordRules, WordRules]:
    """The rules for any text, and those for French."""
    any_text, french = (
        [Rule(name, pattern, _is_not_negated) for name, pattern in read_phrases(file)]
        for file in PHRASE_FILES
    )
    return WordRules(any_text), WordRules(french)


@lru_cache(maxsize=1)
def _squeezed_rules() -> GroupedRules:
    return GroupedRules(
        [
            Rule(name, pattern)
            for file in PHRASE_FILES
            for name, pattern in read_phrases(file, squeezed=True)
            if name in SQUEEZED_RULES
        ]
    )


def _is_not_negated(match: Any) -> bool:
    """False for "do not forget the rules above" and "n'oubliez pas les consignes"."""
    matched: bytes = match[0].lstrip(_MARKS)
    if not matched.startswith(_FORGETTING):
        return True
    start = match.start()
    before: bytes = match.string[max(0, start - 24) : start]
    return _NEGATION.search(before) is None and _FRENCH_NEGATION.match(matched) is None

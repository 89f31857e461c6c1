"""Readings of a text in, places that give orders to a model out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

from rag_assets.screening.findings import Finding
from rag_assets.screening.pattern_files import read_phrases
from rag_assets.screening.rules import Rule, WordRules, compile_pattern
from rag_assets.screening.views import View

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
    "le|la|de|du|un|ce|l|d|n|pas|par|pour|sur|aux?|ci|plus|est|es|sans|ton|ta|te|ignore|mode|son|ses"
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
            languages: tuple[WordRules, ...] = (_squeezed_rules(),)
        else:
            languages = _rules() if _french_sign().search(text) else _rules()[:1]
        for rules in languages:
            for name, line in rules.matches(text):
                yield Finding(line, "instructions", name)


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
def _squeezed_rules() -> WordRules:
    return WordRules(
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

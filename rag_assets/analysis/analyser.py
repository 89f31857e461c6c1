"""Text in, the terms of the full-text index out, for documents and for questions alike."""

from __future__ import annotations

import re
from typing import Final

from rag_assets.analysis.folding import clean
from rag_assets.analysis.stemming import SNOWBALL
from rag_assets.analysis.words import MAXIMUM_TERM_LENGTH, SPACES_IN_NUMBERS, terms_of

MAXIMUM_QUERY_TERMS: Final = 64
"""Distinct terms of a question that are searched for; the first ones count."""
CACHED_RUNS: Final = 1 << 17
"""Runs of characters whose terms are remembered, per language; about 30 MB when full."""

RUN: Final = re.compile(rf"\S+(?:(?<=[0-9])[{SPACES_IN_NUMBERS}](?:[0-9]{{3}}(?![0-9])\S*|%\S*))*")
"""What is analysed at once: characters up to a blank, unless the blank is inside a number."""

_caches: dict[str, dict[str, tuple[str, ...]]] = {}


def analyse(text: str, language: str) -> list[str]:
    """The terms of ``text`` in order, repetitions kept.

    ``language`` is a primary subtag (``fr``); words of an unknown one are folded, not stemmed.
    A term is not empty, at most ``MAXIMUM_TERM_LENGTH`` characters long, in lower case, and made
    of ``a-z``, ``0-9``, ``TERM_CHARACTERS`` and letters and digits beyond ASCII. Accents,
    ligatures, width and invisible characters make no difference. An identifier, a compound or a
    number yields the whole, unstemmed, and then its parts. Any ``str`` can be analysed; time is
    linear in its length. Safe to call from several threads.
    """
    language = language if language in SNOWBALL else ""
    known = _caches.setdefault(language, {})
    terms: list[str] = []
    for run in RUN.findall(clean(text)):
        found = known.get(run)
        terms += _remembered(run, language, known) if found is None else found
    return terms


def run_terms(run: str, language: str) -> tuple[str, ...]:
    """The terms of one match of ``RUN``, as ``analyse`` finds them."""
    language = language if language in SNOWBALL else ""
    known = _caches.setdefault(language, {})
    run = clean(run)
    found = known.get(run)
    return _remembered(run, language, known) if found is None else found


def _remembered(run: str, language: str, known: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    terms = terms_of(run, language)
    if len(run) <= MAXIMUM_TERM_LENGTH:
        if len(known) >= CACHED_RUNS:
            known.clear()
        known[run] = terms
    return terms


def query_terms(text: str, language: str) -> list[str]:
    """The first ``MAXIMUM_QUERY_TERMS`` distinct terms of a question, in order."""
    return list(dict.fromkeys(analyse(text, language)))[:MAXIMUM_QUERY_TERMS]

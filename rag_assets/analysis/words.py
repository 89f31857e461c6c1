"""One run of non-blank characters in, its terms out: words, compounds, identifiers and numbers."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Final

from rag_assets.analysis.folding import clean, fold, mark_class, unaccented
from rag_assets.analysis.stemming import stem

TERM_CHARACTERS: Final = "_-./@&+#%"
"""The ASCII characters that a term may contain besides ``a-z`` and ``0-9``."""
LONGEST_WORD: Final = 256
"""Characters of a word that are looked at at all; what is over cannot reach its term."""
MAXIMUM_TERM_LENGTH: Final = 64
"""Characters. A longer word is cut there; a longer compound leaves its parts only."""

SPACES_IN_NUMBERS: Final = " \u00a0\u2009\u202f"
"""What French puts between the thousands of a number and before its per cent sign."""

_APOSTROPHES: Final = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc\u00b4\uff07`", "'"))
_ELIDED: Final = (
    "l|d|j|n|s|c|m|t|qu|lorsqu|puisqu|jusqu|quoiqu|quelqu|presqu|"
    "un|gl|dell|nell|sull|all|dall|coll|quell|quest|bell|sant"
)
"""French, Italian and Catalan words that lose their vowel before another word."""

# Scripts written without spaces between words, and Korean, whose particles are joined to words.
UNSPACED: Final = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e80-\u0eff\u1000-\u109f\u1780-\u17d3\u1100-\u11ff\u3005-\u3007"
    "\u3040-\u309c\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\uac00-\ud7ff\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_PUNCTUATION: Final = ",;:!?()[]{}<>|*~=\\\"'`«»“”„…"
_DIGITS_AFTER_LETTERS: Final = re.compile(r"(v|[^\W\d_]{2,})(\d+)")
_GROUPED: Final = re.compile(
    r"(?P<integer>[0-9]{1,3}(?P<separator>[^0-9.])[0-9]{3}(?:(?P=separator)[0-9]{3})*)"
    r"(?:[.,](?P<decimals>[0-9]+))?"
)
_VERSION: Final = re.compile(r"v\d")


class _Grammar:
    """The patterns over cleaned, unaccented text; made at first use, as marks are looked up."""

    def __init__(self) -> None:
        marks = mark_class()
        letter = f"(?:[^\\W_{UNSPACED}]|[{marks}])"
        before = f"(?<![\\w{marks}])"
        after = f"(?![\\w{marks}])"
        space = f"[{SPACES_IN_NUMBERS}]"
        compound = f"{letter}+(?:(?:_+|[-./@&]){letter}+)*"
        self.elision = re.compile(f"{before}(?:{_ELIDED})'+(?={letter})", re.IGNORECASE)
        self.contraction = re.compile(f"(?<={letter})'(?:s|t|re|ll|ve|d|m){after}", re.IGNORECASE)
        self.token = re.compile(
            f"(?P<unspaced>[{UNSPACED}][{UNSPACED}{marks}]*)"
            rf"|(?<![\w.,])(?P<number>[0-9]{{1,3}}(?:{space}[0-9]{{3}})+(?![0-9])(?:,[0-9]+)?"
            rf"|[0-9]{{1,3}}(?:,[0-9]{{3}})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:[.,][0-9]+)?)"
            rf"(?:(?P<percent>{space}?%)|(?![\w&@/_-]|[.,][0-9]))"
            rf"|(?P<leading>{before}(?<![.@#])(?:[@#]|\.(?=[^\W\d_])))?(?P<compound>{compound})"
            rf"(?P<trailing>(?:\+\+|[#%]){after})?"
        )
        self.steps = re.compile("[/@&]")
        self.connectors = re.compile(r"_+|[-./@&]")


@cache
def _grammar() -> _Grammar:
    return _Grammar()


def terms_of(run: str, language: str) -> tuple[str, ...]:
    """The terms of a run of non-blank characters (which may hold the spaces of one number)."""
    plain = run.strip(_PUNCTUATION).rstrip(".")
    if plain.isascii() and plain.isalpha() and (plain.islower() or plain[1:].islower()):
        return (stem(plain.lower()[:MAXIMUM_TERM_LENGTH], language),)
    if "&" in run and ";" in run:
        run = clean(html.unescape(run))
    grammar = _grammar()
    text = unaccented(run.translate(_APOSTROPHES))
    if "'" in text:
        text = grammar.contraction.sub(" ", grammar.elision.sub(" ", text))
    return tuple(_terms(text, language, grammar))


def _terms(text: str, language: str, grammar: _Grammar) -> Iterator[str]:
    for match in grammar.token.finditer(text):
        if run := match["unspaced"]:
            yield from _bigrams(fold(run))
        elif number := match["number"]:
            yield from _number_terms(number, bool(match["percent"]))
        else:
            affixes = match["leading"] or "", match["trailing"] or ""
            yield from _compound_terms(match["compound"], *affixes, language, grammar)


def _bigrams(run: str) -> Iterator[str]:
    """Pairs of neighbouring characters, the usual words of a script without spaces."""
    if len(run) < 3:
        yield run
        return
    for start in range(len(run) - 1):
        yield run[start : start + 2]


def _number_terms(number: str, percent: bool) -> Iterator[str]:
    """``1 000,50``, ``1,000.50``, ``1000.50``: one spelling of the whole, then its groups."""
    grouped = _GROUPED.fullmatch(number)
    if grouped:
        integer = "".join(re.findall("[0-9]+", grouped["integer"]))
        decimals = grouped["decimals"] or ""
        groups = re.findall("[0-9]+", grouped["integer"])
    else:
        integer, _, decimals = number.replace(",", ".").partition(".")
        groups = []
    whole = f"{integer}.{decimals}" if decimals else integer
    if percent and len(whole) < MAXIMUM_TERM_LENGTH:
        yield whole + "%"
    for term in dict.fromkeys((whole, integer, *groups, decimals)):
        if term:
            yield term[:MAXIMUM_TERM_LENGTH]


def _compound_terms(
    compound: str, leading: str, trailing: str, language: str, grammar: _Grammar
) -> Iterator[str]:
    """The whole as typed, each step of a path, and each word."""
    segments = grammar.steps.split(compound)
    if leading or trailing or len(segments) > 1:
        whole = leading + fold(compound) + trailing
        if len(whole) <= MAXIMUM_TERM_LENGTH:
            yield whole
    for segment in segments:
        words = grammar.connectors.split(segment)
        if len(words) > 1:
            whole = fold(segment)
            if len(whole) <= MAXIMUM_TERM_LENGTH:
                yield whole
                if _VERSION.match(whole):
                    yield whole[1:]
        for word in words:
            yield from _remembered_word_terms(word[:LONGEST_WORD], language)


@lru_cache(maxsize=1 << 14)
def _remembered_word_terms(word: str, language: str) -> tuple[str, ...]:
    return tuple(_word_terms(word, language))


def _word_terms(word: str, language: str) -> Iterator[str]:
    """A word's stem; what has digits, capitals inside or only capitals is kept whole as well."""
    folded = fold(word)[:MAXIMUM_TERM_LENGTH]
    if not folded:  # nothing but marks that folding takes off
        return
    if not word.isalpha() and _has_digit(word):
        yield folded
        if pieces := _DIGITS_AFTER_LETTERS.fullmatch(folded):
            yield stem(pieces[1], language)
            yield pieces[2]
        return
    stemmed = stem(folded, language)
    pieces_of_case = _case_pieces(word) if len(word) <= MAXIMUM_TERM_LENGTH else [word]
    if stemmed != folded and (len(pieces_of_case) > 1 or (word.isupper() and len(word) > 1)):
        yield folded
    yield stemmed
    if len(pieces_of_case) > 1:
        for piece in pieces_of_case:
            yield from _word_terms(piece, language)


def _has_digit(word: str) -> bool:
    return any(character.isdigit() for character in word)


def _case_pieces(word: str) -> list[str]:
    """``getUserById`` -> get, User, By, Id; ``HTTPServer`` -> HTTP, Server."""
    if word.islower() or word.isupper() or word[1:].islower():
        return [word]
    pieces, start = [], 0
    for at in range(1, len(word)):
        after_lower = word[at].isupper() and not word[at - 1].isupper()
        ends_acronym = (
            word[at].isupper() and at + 1 < len(word) and word[at + 1].islower()
            and word[at - 1].isupper()
        )  # fmt: skip
        if after_lower or (ends_acronym and at > start):
            pieces.append(word[start:at])
            start = at
    return [*pieces, word[start:]]

"""Spellings of the same letters made one: accents, ligatures, width, case, invisible characters."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Final

_DROPPED_MARKS: Final = (
    "\u0300-\u0305\u0307-\u036f"  # accents; the breve (U+0306) is treated apart
    "\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
)
_INVISIBLE: Final = (
    "\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef"  # fillers and variation selectors, which are not of category Cf
)
_LETTERS: Final = str.maketrans(
    {
        "æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "ł": "l", "ħ": "h",
        "ı": "i", "ŧ": "t", "ŋ": "n", "ȷ": "j", "ə": "e",
    }
)  # fmt: skip
"""Letters that Unicode does not decompose, as people type them without them."""


def _ranges(categories: tuple[str, ...], last: int) -> str:
    """The characters of these categories up to ``last``, as the inside of a character class."""
    found, start = [], -1
    for code in range(0x80, last + 2):
        inside = code <= last and unicodedata.category(chr(code)) in categories
        if inside and start < 0:
            start = code
        elif not inside and start >= 0:
            found.append(f"{re.escape(chr(start))}-{re.escape(chr(code - 1))}")
            start = -1
    return "".join(found)


@cache
def dropped_class() -> str:
    """What is no part of a word's spelling, accents and what cannot be seen, as for ``[...]``.

    Vowel signs of Indian and South-East Asian scripts stay.
    """
    invisible = _ranges(("Cf",), 0x1_FFFF)
    return f"{_DROPPED_MARKS}{_INVISIBLE}{invisible}\U000e0000-\U000e007f"


@cache
def _suspect() -> re.Pattern[str]:
    return re.compile(f"[{dropped_class()}\u0306]")


@cache
def _dropped() -> re.Pattern[str]:
    """As ``dropped_class``, and the breve, except in Cyrillic ``й``: a letter of its own."""
    return re.compile(f"[{dropped_class()}]+|(?<![иИ])\u0306")


@cache
def mark_class() -> str:
    """Combining marks that stay within words, as the inside of a character class."""
    return _ranges(("Mn", "Mc"), 0x1_EFFF)


def clean(text: str) -> str:
    """``text`` in one normal form, without invisible characters and separate accents."""
    if text.isascii():
        return text
    if not unicodedata.is_normalized("NFC", text):
        text = unicodedata.normalize("NFC", text)
    if _suspect().search(text) is None:  # several times faster than a substitution
        return text
    return _dropped().sub("", text)


def unaccented(text: str) -> str:
    """``text`` without accents, ligatures and full-width forms; case is kept."""
    if text.isascii():
        return text
    bare = _dropped().sub("", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFC", bare)


def fold(word: str) -> str:
    """``word`` as everybody who means it spells it: lower case, no accents, no ligatures."""
    if word.isascii():
        return word.lower()
    return unaccented(unaccented(word).casefold().translate(_LETTERS))

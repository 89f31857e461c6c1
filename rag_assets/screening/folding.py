"""Text as people read it in, ASCII out: one spelling for what looks alike, line by line the same.

Compatibility forms (full width, mathematical letters, ligatures) become plain letters, accents are
taken off, Cyrillic and Greek letters that look Latin become Latin, typographic quotes and dashes
become ASCII ones, invisible characters vanish. ``\\n`` is never added nor removed (``\\r\\n`` and
``\\r`` become ``\\n``), so a line of the result is the same line of the text.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from functools import lru_cache
from typing import Final

# Look-alikes of Unicode's confusables (UTS #39), letters of everyday alphabets only.
_LOOK_ALIKES: Final = str.maketrans(
    {
        **dict(zip("аеорсухіјѕԁһӏԛԝкмтвнгпєз", "aeopcyxijsdhlqwkmtbhrne3", strict=True)),
        **dict(zip("АВЕКМНОРСТУХІЈЅӀ", "ABEKMHOPCTYXIJSI", strict=True)),
        **dict(zip("αοινκρτυχεγηωμπσς", "aoivkptuxeynwunoc", strict=True)),
        **dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ABEZHIKMNOPTYX", strict=True)),
        **dict(zip("ıłøđħŧƖƗɑɡɩʟǀ", "ilodhtlIagilI", strict=True)),
    }
)
_LIGATURES: Final = {"œ": "oe", "Œ": "OE", "æ": "ae", "Æ": "AE", "ß": "ss"}
# What NFKD takes off letters; and the Hangul and braille blanks, which are letters to Unicode.
_MARKS: Final = frozenset([*map(chr, range(0x300, 0x370)), *"\u115f\u1160\u3164\uffa0\u2800"])
_ERRORS: Final = "rag_assets.screening.fold"
_OTHER_LETTERS: Final = "[\u0131-\u0180\u0196\u0197\u0251-\u029f\u0370-\u052f]"
_MIXED_WORD: Final = re.compile(f"[A-Za-z]{_OTHER_LETTERS}|{_OTHER_LETTERS}[A-Za-z]")
_PUNCTUATION: Final = re.compile(
    "[\u00ab\u00bb\u2010-\u201f\u2022\u2026\u2028\u2029\u2039\u203a\u2190-\u21ff\u3000-\u3011]"
)
_QUOTES: Final = dict.fromkeys("«»“”„‟‹›", '"') | dict.fromkeys("‘’‚‛", "'")
_DASHES: Final = dict.fromkeys("‐‑‒–—―", "-") | dict.fromkeys("→⇒⟶➔", "->") | {"…": "..."}


def fold(text: str, *, look_alikes: bool = False) -> bytes:
    """``text`` in ASCII, case kept, with as many ``\\n`` as it has lines to count.

    Letters of other scripts become ``?``, or with ``look_alikes`` the Latin letter they look like.
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii():
        return text.encode("ascii")
    text = _PUNCTUATION.sub(_plain_punctuation, text)
    for ligature, letters in _LIGATURES.items():
        if ligature in text:
            text = text.replace(ligature, letters)
    if look_alikes:
        text = text.translate(_LOOK_ALIKES)
    return unicodedata.normalize("NFKD", text).encode("ascii", _ERRORS)


def mixes_scripts(text: str) -> bool:
    """True when some word has Latin letters next to others: nobody types that by chance."""
    return not text.isascii() and _MIXED_WORD.search(text) is not None


def _plain_punctuation(match: re.Match[str]) -> str:
    character = match[0]
    return _QUOTES.get(character) or _DASHES.get(character) or " "


def _replace(error: UnicodeError) -> tuple[str, int]:
    """Marks and invisible characters vanish, letters become ``?``, the rest a space."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    run = error.object[error.start : error.end]
    return (_read_character(run) if len(run) == 1 else _read_run(run)), error.end


@lru_cache(maxsize=4096)
def _read_character(character: str) -> str:
    return _read_run(character)


def _read_run(run: str) -> str:
    if any(character.isalpha() and character not in _MARKS for character in run):
        return "?"
    invisible = all(c in _MARKS or unicodedata.category(c) in ("Mn", "Me", "Cf") for c in run)
    return "" if invisible else " "


codecs.register_error(_ERRORS, _replace)

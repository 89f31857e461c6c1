"""Which file names can be cited, stored and printed, and how to write down those that cannot."""

from __future__ import annotations

import os
import unicodedata
from typing import Final

# Embeddings, overrides and isolates (UAX #9): they make a name read as another one.
_BIDI_CONTROLS: Final = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def is_unsafe(name: str) -> bool:
    """True for names that are not UTF-8, or hold control, line-break or bidi characters."""
    if name.isprintable():
        return False
    return any(_is_unsafe_character(character) for character in name)


def printable(name: str) -> str:
    """``name`` with its unsafe bytes and characters as backslash escapes; safe names unchanged."""
    if not is_unsafe(name):
        return name
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return "".join(_escape(c) if _is_unsafe_character(c) else c for c in text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _is_unsafe_character(character: str) -> bool:
    return character in _BIDI_CONTROLS or unicodedata.category(character) in (
        "Cc",
        "Cs",
        "Zl",
        "Zp",
    )

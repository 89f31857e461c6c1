"""What is remembered while Markdown is read: pieces of HTML, open links and open tags in a line."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from rag_assets.documents.html.elements import Element
from rag_assets.documents.html.tokens import Tokens
from rag_assets.documents.invisible import strip_invisible

_IN_ADDRESS: Final = re.compile(r"[\x00-\x20<>()\[\]\\`]")
_ACTIVE: Final = re.compile(r"[\[\]\\`<&]")
_ACTIVE_IN_TABLES: Final = re.compile(r"[\[\]\\`<&|]")
_MARKDOWN_INSIDE: Final = frozenset(("1", "block", "span", ""))
_PLAIN_PUNCTUATION: Final = frozenset("'\",;?%/@")


class Piece(NamedTuple):
    """A line, or the rest of one, of a block of HTML."""

    start: int
    text: str


class Places:
    """Lines put together to one text, and where its characters are in the document."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.text = "".join(piece.text for piece in pieces)
        self._pieces = pieces
        self._ends = list(accumulate(len(piece.text) for piece in pieces))
        self._byte_ends = list(accumulate(len(piece.text.encode("utf-8")) for piece in pieces))

    def byte_of(self, position: int) -> int:
        """The byte of the document of a character of the text."""
        index = min(bisect_right(self._ends, position), len(self._pieces) - 1)
        piece = self._pieces[index]
        inside = position - (self._ends[index] - len(piece.text))
        return piece.start + len(piece.text[:inside].encode("utf-8"))

    def byte_of_bytes(self, position: int) -> int:
        """The byte of the document of a byte of the text."""
        index = min(bisect_right(self._byte_ends, position), len(self._pieces) - 1)
        before = self._byte_ends[index - 1] if index else 0
        return self._pieces[index].start + position - before


class Wrapper:
    """An open ``<a href>`` or ``<code>`` within a line."""

    __slots__ = ("element", "end", "holds_link", "start")

    def __init__(self, element: Element, start: int, end: int, in_link: bool) -> None:
        self.element = element
        self.start = start
        self.end = end
        self.holds_link = in_link


def has_markdown_inside(pieces: Sequence[Piece]) -> bool:
    """Whether the author asked for Markdown inside the block (``<div markdown>``)."""
    text = "".join(piece.text for piece in pieces)
    return "markdown" in text and any(
        token.attributes.get("markdown", "0") in _MARKDOWN_INSIDE for token in Tokens(text)
    )


def as_words(text: str, in_table: int = 1) -> str:
    """Text of an attribute as it may stand in Markdown."""
    return (_ACTIVE_IN_TABLES if in_table else _ACTIVE).sub(r"\\\g<0>", text)


def may_be_written(character: str) -> bool:
    """Whether a character means the same in Markdown as its reference."""
    return character > "\x7f" or character.isalnum() or character in _PLAIN_PUNCTUATION


def destination(address: str, in_table: int) -> str:
    """An address as it may stand between the parentheses of a link."""
    address = strip_invisible(address)[0]
    written = _IN_ADDRESS.sub(lambda match: f"%{ord(match.group()):02X}", address)
    return written.replace("|", "%7C") if in_table else written

"""Markdown in, the edits out that take HTML, hidden text and dangerous addresses out of it.

A Markdown parser says what is HTML and what is code. Blocks of HTML are converted as a whole
(``html_writer``); tags within a line are replaced one by one, so that the Markdown around them
stays as it is. The elements of the whole document are followed, because ``<div hidden>`` may stand
paragraphs before its end tag.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import pyromark

from rag_assets.documents.cleaning.line_edits import Edit, gap, place_lines
from rag_assets.documents.cleaning.links import MarkdownLinks
from rag_assets.documents.cleaning.pieces import (
    Piece,
    Places,
    Wrapper,
    as_words,
    destination,
    has_markdown_inside,
    may_be_written,
)
from rag_assets.documents.html.convert import controlled_ids, read_styles, to_markdown_lines
from rag_assets.documents.html.css import StyleRules
from rag_assets.documents.html.elements import BLOCKS, Element, OpenElements
from rag_assets.documents.html.tags import expansion, is_pixel, is_text
from rag_assets.documents.html.tokens import Token, Tokens
from rag_assets.documents.html.writer import HtmlWriter
from rag_assets.documents.invisible import strip_invisible
from rag_assets.documents.urls import carries_data_away, is_dangerous, without_tracking
from rag_assets.markdown import MAX_CHARACTERS, MAX_EVENTS

MAX_ADMONITION_LINES: Final = 200
"""How far above an indented block the line is sought that opens it."""
MAX_INDENTED_DEPTH: Final = 8
"""Of admonitions in admonitions."""

_PARSER: Final = pyromark.Markdown(
    options=pyromark.Options.ENABLE_TABLES | pyromark.Options.ENABLE_STRIKETHROUGH
)
_ELEMENTS: Final[Mapping[str, str]] = {
    "Paragraph": "p",
    "BlockQuote": "blockquote",
    "List": "ul",
    "Item": "li",
    "Table": "table",
    "TableHead": "tr",
    "TableRow": "tr",
    "TableCell": "td",
    "CodeBlock": "pre",
}
"""What the renderer makes of Markdown, as far as it decides where HTML elements end."""
_END_TAG: Final = re.compile(r"</([A-Za-z][^\s/>]*)")
_NOT_QUOTE: Final = re.compile(r"[^>\s]")
_OPENS_TAG: Final = re.compile(rb"</?[A-Za-z][A-Za-z0-9-]*[\s/>]|<!--")
_OPENED: Final = re.compile(r"<(?!(?:area|base|br|col|hr|img|input|link|meta|wbr)\b)[A-Za-z]")
_CLOSED: Final = re.compile(r"</[A-Za-z]|/>")
_ADMONITION: Final = re.compile(rb"[ \t>]*(?:!!!|\?\?\?\+?|===[!+]?)[ \t]+\S")
_CODE: Final = frozenset(("code", "kbd", "samp", "tt"))
_NOT_IN_CODE: Final = re.compile(rb"[`\n<&\\|]")
_APART: Final = frozenset(("br", "hr", "button", "select", "textarea", "rt"))
"""Elements within a line whose text is not joined to the text around them."""


class TooComplex(Exception):
    """The text has more structure than a document for readers has."""


class MarkdownHtml:
    """The edits of one text, whose lines end with LF."""

    def __init__(self, text: str, *, depth: int = 0) -> None:
        self._depth = depth
        self.edits: list[Edit] = []
        self.removed: Counter[str] = Counter()
        self._text = text
        self._source = text.encode("utf-8")
        self.starts = [0, *accumulate(len(line) + 1 for line in self._source.split(b"\n"))]
        self._end_tags = frozenset(name.lower() for name in _END_TAG.findall(text))
        rules = StyleRules()
        self._elements = OpenElements(rules, read_styles(rules, [text]), tabs=controlled_ids(text))
        self._writer = HtmlWriter(self._elements, in_markdown=True, end_tags=self._end_tags)
        self._hidden_from = -1
        self._pieces: list[Piece] = []
        self._balance = 0
        """Start tags less end tags in ``_pieces``."""
        self._block_end = 0
        self._links = MarkdownLinks(self._source, self.removed)
        self._wrappers: list[Wrapper] = []
        self._cells = 0
        self._has_angle = False
        self._angle_sought_to = -1
        self._indented = ""
        """What the open indented block is, if it is not code."""

    @property
    def source(self) -> bytes:
        """The text as UTF-8, which ``edits`` and ``starts`` count in."""
        return self._source

    def read(self) -> None:
        """Find all edits.

        Raises:
            TooComplex: the text has more than ``MAX_EVENTS`` events or ``MAX_CHARACTERS``.
        """
        if len(self._text) > MAX_CHARACTERS:
            raise TooComplex
        for count, (event, place) in enumerate(_PARSER.events_with_range(self._text)):
            if count > MAX_EVENTS:
                raise TooComplex
            self._take(event, place["start"], place["end"])
        self._end_block()
        self._note_hiding(len(self._source))
        if self._hidden_from >= 0:
            self._hide(self._hidden_from, len(self._source))
        if "]:" in self._text:
            self.edits.extend(self._links.definitions(_PARSER.reference_definitions(self._text)))

    def _take(self, event: Any, start: int, end: int) -> None:
        if isinstance(event, str):
            return
        kind, value = next(iter(event.items()))
        if kind == "Html" or (self._indented and kind == "Text"):
            self._pieces.append(Piece(start, value))
            self._balance += len(_OPENED.findall(value)) - len(_CLOSED.findall(value))
        elif kind == "Start":
            self._start(value, start, end)
        elif kind == "End":
            self._end(value, end)
        elif kind == "InlineHtml":
            self._inline(start, end)
        elif kind == "Text":
            self._words(value, start, end)
        elif kind == "Code":
            self._links.show(end)

    def _start(self, tag: Any, start: int, end: int) -> None:
        name = tag if isinstance(tag, str) else next(iter(tag))
        if name == "HtmlBlock":
            self._block_end = end
            return
        if name == "CodeBlock" and tag[name] == "Indented":
            self._indented = self._kind_of_indented(start)
            if self._indented:
                if self._indented == "markdown":
                    self._end_block()
                return
        self._end_block()
        if name in ("Link", "Image"):
            self._links.open(name, tag[name], start)
            return
        self._cells += name == "TableCell"
        element = f"h{tag[name]['level'][1:]}" if name == "Heading" else _ELEMENTS.get(name, "")
        if element:
            self._elements.start(element, {})
            self._note_hiding(start)

    def _end(self, tag: Any, end: int) -> None:
        name = tag if isinstance(tag, str) else next(iter(tag))
        if name == "HtmlBlock":
            self._block_end = end
            return
        if self._indented and name == "CodeBlock":
            self._block_end = end
            if self._indented == "markdown":
                self._clean_inside()
            self._indented = ""
            return
        self._end_block()
        if name in ("Link", "Image"):
            if name == "Link":
                for wrapper in self._wrappers:
                    wrapper.holds_link = True
            found = self._links.close(end)
            if self._hidden_from < 0:
                self.edits.extend(found)
            return
        self._cells -= name == "TableCell"
        element = f"h{tag[name][1:]}" if name == "Heading" else _ELEMENTS.get(name, "")
        if element:
            self._drop_wrappers()
            self._elements.end(element)
            self._note_hiding(end)

    # -- what is hidden -------------------------------------------------------------------------

    def _note_hiding(self, position: int) -> None:
        """Something was opened or closed at ``position``: hiding may begin or end there."""
        hidden = bool(self._elements.hidden_as)
        if hidden and self._hidden_from < 0:
            self._hidden_from = position
            self.removed[self._elements.hidden_as] += 1
        elif not hidden and self._hidden_from >= 0:
            self._hide(self._hidden_from, position)
            self._hidden_from = -1

    def _hide(self, start: int, end: int) -> None:
        """Take everything between out, but not the line ends, so that lines stay where they are."""
        newlines = self._source.count(b"\n", start, end)
        self.edits.append(Edit(start, end, "\n" * newlines or gap(self._source, start, end)))

    # -- blocks of HTML -------------------------------------------------------------------------

    def _end_block(self) -> None:
        """Convert the lines of HTML collected so far."""
        if not self._pieces:
            return
        pieces, self._pieces, self._balance = self._pieces, [], 0
        start, end = pieces[0].start, self._block_end
        if self._hidden_from >= 0 or has_markdown_inside(pieces):
            self._tags_in_place(pieces)
            return
        lines, sources = self._converted(pieces)
        if not self._elements.hidden_as:
            self.edits.append(place_lines(self._source, self.starts, start, end, (lines, sources)))
            return
        # What hides goes on behind this block.
        if lines:
            self.edits.append(place_lines(self._source, self.starts, start, end, (lines, sources)))
            self._hidden_from = end
        else:
            self._hidden_from = start

    def _converted(self, pieces: Sequence[Piece]) -> tuple[list[str], list[int]]:
        """Markdown lines of a block, and the 0-based line of the document of each."""
        numbers = self._lines_of(pieces)
        text = "".join(piece.text for piece in pieces)
        before = self._writer.removed.copy()
        lines, sources = to_markdown_lines(self._writer.write(text))
        self.removed.update(self._writer.removed - before)
        return lines, [numbers[min(source, len(numbers) - 1)] for source in sources]

    def _lines_of(self, pieces: Sequence[Piece]) -> list[int]:
        """0-based line of the document of each line of the pieces put together."""
        numbers: list[int] = []
        for piece in pieces:
            line = bisect_right(self.starts, piece.start) - 1
            numbers.extend(range(line, line + (piece.text.count("\n") or 1)))
        return numbers

    def _kind_of_indented(self, start: int) -> str:
        """What an indented block is to its author: ``html``, ``markdown``, or nothing (code).

        Inside an HTML element that is open, lines that begin with a tag go on with it, for
        Python-Markdown and for people. Below ``!!! note``, ``??? note`` and ``=== "Tab"`` they are
        the text of an admonition or tab (MkDocs).
        """
        if self._balance > 0 and self._pieces and _OPENS_TAG.match(self._source, start):
            return "html"
        return "markdown" if self._is_admonition(start) else ""

    def _is_admonition(self, start: int) -> bool:
        """Whether the last line above that is indented less opens an admonition or tab."""
        end = self._source.rfind(b"\n", 0, start)
        indentation = start - end - 1
        for _ in range(MAX_ADMONITION_LINES):
            if end < 0:
                return False
            line_start = self._source.rfind(b"\n", 0, end) + 1
            line = self._source[line_start:end]
            if line[:indentation].strip(b" \t>"):
                return _ADMONITION.match(line) is not None
            end = line_start - 1
        return False

    def _clean_inside(self) -> None:
        """Clean the Markdown of an indented block by itself."""
        pieces, self._pieces, self._balance = self._pieces, [], 0
        if self._hidden_from >= 0 or self._depth >= MAX_INDENTED_DEPTH:
            return
        places = Places(pieces)
        inner = MarkdownHtml(places.text, depth=self._depth + 1)
        inner.read()
        self.removed.update(inner.removed)
        start = pieces[0].start
        indentation = self._source[self._source.rfind(b"\n", 0, start) + 1 : start]
        line_end = "\n" + _NOT_QUOTE.sub(" ", indentation.decode("utf-8"))
        inner_lines = self._lines_of(pieces)
        for edit in inner.edits:
            first = places.byte_of_bytes(edit.start)
            last = places.byte_of_bytes(edit.end - 1) + 1 if edit.end > edit.start else first
            text = edit.text[:-1].replace("\n", line_end) + edit.text[-1:]
            lines = [inner_lines[min(line, len(inner_lines) - 1)] for line in edit.lines]
            self.edits.append(Edit(first, last, text, lines))

    def _tags_in_place(self, pieces: Sequence[Piece]) -> None:
        """Take the tags out of lines whose text is Markdown."""
        places = Places(pieces)
        text, byte_of = places.text, places.byte_of
        for token in Tokens(text):
            if token.kind != "text":
                self._tag(token, text, byte_of(token.start), byte_of(token.end - 1) + 1)
        self._drop_wrappers()

    # -- HTML within a line ---------------------------------------------------------------------

    def _inline(self, start: int, end: int) -> None:
        text = self._source[start:end].decode("utf-8")
        if self._source[max(0, start - 2) : start] == b"{{":
            return  # a shortcode
        for token in Tokens(text):
            if token.kind != "text":
                self._tag(token, text, start, end)
                return

    def _tag(self, token: Token, text: str, start: int, end: int) -> None:
        """One tag or comment, ``token`` of ``text``, at bytes ``start`` to ``end``."""
        if token.kind == "comment":
            if text.startswith("<!--", token.start) and self._hidden_from < 0:
                self.removed["comment"] += 1
            self._edit(start, end, gap(self._source, start, end))
        elif token.kind == "end":
            self._end_tag(token, text, start, end)
        elif token.kind == "start" or token.unclosed:
            self._start_tag(token, text, start, end)
        elif self._hidden_from < 0:
            kind = self._elements.look_at(token.name, token.attributes).hidden_as
            if kind:
                self.removed[kind] += 1
                self._edit(start, end, "\n" * self._source.count(b"\n", start, end))

    def _start_tag(self, token: Token, text: str, start: int, end: int) -> None:
        if is_text(token, text, self._end_tags):
            return
        element, _ = self._elements.start(
            token.name, token.attributes, closes_itself=token.closes_itself
        )
        self._note_hiding(start)
        if self._hidden_from >= 0:
            return
        if token.name == "a":
            self._drop_wrappers()
        if element.hidden_as or not element.look.readable:
            self.removed[element.hidden_as or "hidden"] += 1
            self._edit(start, end, gap(self._source, start, end))
        elif token.name == "img":
            self._edit(start, end, self._image(element))
        elif token.name in _CODE or (token.name == "a" and element.attributes.get("href")):
            self._wrappers.append(Wrapper(element, start, end, self._links.inside))
        elif token.name == "sup":
            after = self._source[end : end + 1]
            self._edit(start, end, "" if after.isalpha() or after >= b"\x80" else "^")
        else:
            apart = token.name in BLOCKS or token.name in _APART
            self._edit(start, end, gap(self._source, start, end) if apart else "")

    def _end_tag(self, token: Token, text: str, start: int, end: int) -> None:
        if not self._elements.is_open(token.name) and is_text(token, text, self._end_tags):
            return
        closed = self._elements.end(token.name)
        was_hidden = self._hidden_from >= 0
        self._note_hiding(end)
        if was_hidden:
            return
        if self._wrappers and self._wrappers[-1].element.name == token.name:
            self._unwrap(self._wrappers.pop(), start, end)
            return
        if closed and token.name in ("abbr", "acronym"):
            following = self._source[end : end + 4].decode("utf-8", "ignore")[:1]
            self._edit(start, end, as_words(expansion(closed[-1].attributes, following)))
            return
        apart = token.name in BLOCKS or token.name in _APART
        self._edit(start, end, gap(self._source, start, end) if apart else "")

    def _unwrap(self, wrapper: Wrapper, start: int, end: int) -> None:
        """``<a href>`` or ``<code>`` with its text becomes Markdown, if the text allows it."""
        inside = self._source[wrapper.end : start]
        opening, closing = "", ""
        if wrapper.element.name in _CODE:
            if inside.strip() == inside and inside and not _NOT_IN_CODE.search(inside):
                opening, closing = "`", "`"
        else:
            address = wrapper.element.attributes["href"].strip()
            if is_dangerous(address) or not inside.strip():
                self.removed["link"] += 1
            elif address and not wrapper.holds_link:
                opening = "["
                closing = f"]({destination(without_tracking(address), self._cells)})"
        self._edit(wrapper.start, wrapper.end, opening)
        self._edit(start, end, closing)

    def _drop_wrappers(self) -> None:
        """Start tags without an end tag in their block."""
        for wrapper in self._wrappers:
            self._edit(wrapper.start, wrapper.end, "")
        self._wrappers.clear()

    def _image(self, element: Element) -> str:
        attributes = element.attributes
        if is_pixel(attributes):
            self.removed["tracker"] += 1
            return ""
        alt = " ".join(strip_invisible(attributes.get("alt", ""))[0].split())
        alt = as_words(alt, self._cells)
        address = attributes.get("src", "").strip()
        if not address or is_dangerous(address) or carries_data_away(address):
            self.removed["image"] += bool(address)
            return f" {alt} " if alt else ""
        return f"![{alt}]({destination(without_tracking(address), self._cells)})"

    def _edit(self, start: int, end: int, text: str) -> None:
        if self._hidden_from < 0:
            self.edits.append(Edit(start, end, text))

    # -- words and links ------------------------------------------------------------------------

    def _words(self, words: str, start: int, end: int) -> None:
        """Text: a character reference in it becomes its character, if that stays text."""
        if not words.isspace():
            self._links.show(end)
        if self._hidden_from >= 0 or not self._source.startswith(b"&", start):
            return
        written = self._source[start:end].decode("utf-8")
        if written == words or not written.endswith(";") or self._elements.is_open("pre"):
            return
        if all(map(may_be_written, words)) and not self._is_behind_angle(start):
            self._edit(start, end, words)

    def _is_behind_angle(self, position: int) -> bool:
        """Whether there is a "<" before on the line, of which a character could make a tag."""
        line_start = self.starts[bisect_right(self.starts, position) - 1]
        if line_start > self._angle_sought_to:
            self._angle_sought_to, self._has_angle = line_start, False
        if not self._has_angle:
            self._has_angle = self._source.find(b"<", self._angle_sought_to, position) >= 0
            self._angle_sought_to = position
        return self._has_angle

    def read_as_plain(self) -> None:
        """Find the edits of a text that is not read as Markdown: code is not known there."""
        self._block_end = len(self._source)
        self._tags_in_place([Piece(0, self._text)])
        self._note_hiding(len(self._source))
        if self._hidden_from >= 0:
            self._hide(self._hidden_from, len(self._source))

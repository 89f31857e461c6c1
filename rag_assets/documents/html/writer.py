"""HTML in, plain HTML of what a reader sees out, ready to be converted to Markdown.

What is written is balanced, bounded in depth, without style, script or event attributes, and safe
to read as Markdown afterwards: characters of text that would be Markdown or HTML are escaped.
Marks in the text say on which line of the input it stood; they are code points for private use,
which the text itself cannot hold any more (``invisible``).
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Collection
from typing import Final

from rag_assets.documents.html.elements import (
    BLOCKS,
    HEADINGS,
    Element,
    OpenElements,
)
from rag_assets.documents.html.marks import (
    ESCAPE_MARK,
    ID_MARK,
    LINE_MARK,
    MARK,
    escape_text,
    line_mark,
)
from rag_assets.documents.html.tags import (
    AS_WRITTEN,
    BOXES,
    INDENTING,
    MAY_HOLD,
    MISSING,
    NEEDS,
    expansion,
    is_pixel,
    is_text,
    written_address,
    written_attributes,
)
from rag_assets.documents.html.tokens import Token, Tokens
from rag_assets.documents.invisible import strip_invisible
from rag_assets.documents.urls import carries_data_away, is_dangerous

MAX_DEPTH: Final = 100
"""Of written tags. The converter drops what is deeper than its own limit without an error."""
MAX_INDENTATION: Final = 16
"""Of lists and quotations, whose depth is repeated on every line of the output."""
MAX_PARTS: Final = 20_000
"""Tags and texts that go to the converter at once."""
_LAST_LINE: Final = re.compile(rf"\n(?:{LINE_MARK}..)?[ \t]*\Z", re.DOTALL)
_SUPERSCRIPT_TEXT: Final = re.compile(r"(?:<[^<>]{0,300}>|\s){0,5}([^<\s])")
_WRITTEN_TAG: Final = re.compile(r"<(?!img)[^>]*>")
_PERMALINKS: Final = frozenset(("¶", "#", "§", "🔗", "⚓", "^"))
_LINE_END: Final = re.compile(r"\r\n?")


_ID: Final = re.compile(r"[^\s{}<>\"'`\\]{1,200}")


class HtmlWriter:
    """Reads HTML piece by piece and writes plain HTML; what was open stays so between pieces."""

    def __init__(
        self,
        elements: OpenElements,
        *,
        in_markdown: bool = False,
        end_tags: Collection[str] = (),
        scope: str = "",
    ) -> None:
        """``in_markdown``: tags of no known element are words of the author (``List<String>``).

        ``end_tags``: the names (lower case) for which the document has an end tag. ``scope``:
        write only what stands in elements of this name (or role).
        """
        self.elements = elements
        self.removed: Counter[str] = Counter()
        self.title = ""
        """Text of the first ``title`` element."""
        self._in_markdown = in_markdown
        self._end_tags = end_tags
        self._scope = scope
        self._scope_element: Element | None = None
        self._out: list[str] = []
        self._finished: list[str] = []
        self._written: list[Element] = []
        self._indentation = 0
        self._heading: Element | None = None
        self._heading_id = ""
        self._heading_start = 0
        self._link_start = 0
        self._at_line_start = True
        self._source = ""
        self._counted_to = 0
        self._line = 0
        self._last_mark = -1

    def write(self, source: str) -> list[str]:
        """The plain HTML of one piece, cut between blocks where it is long, for the converter.

        Marks count the lines of the piece from 0.
        """
        self._source, self._counted_to, self._line, self._last_mark = source, 0, 0, -1
        self._out, self._finished = [], []
        self._written, self._indentation = [], 0
        self._heading, self._at_line_start = None, True
        tokens = Tokens(source)
        tokens.foreign = self.elements.foreign
        take = {
            "text": self._take_text,
            "start": self._start,
            "end": self._end,
            "raw": self._raw,
            "comment": self._comment,
        }
        for token in tokens:
            take[token.kind](token)
            tokens.foreign = self.elements.foreign
        for element in reversed(self._written.copy()):
            self._close(element)
        return [*self._finished, "".join(self._out)]

    def _cut(self) -> None:
        """Begin a new part: the converter needs 300 times the memory of its input."""
        depth = len(self._written)
        self._finished.append("".join(self._out) + "</div>" * depth)
        self._out, self._last_mark = ["<div>"] * depth, -1

    # -- tokens ---------------------------------------------------------------------------------

    def _start(self, token: Token) -> None:
        if self._in_markdown and is_text(token, self._source, self._end_tags):
            self._text(self._source[token.start : token.end], token.start)
            return
        hidden = bool(self.elements.hidden_as)
        element, closed = self.elements.start(
            token.name, token.attributes, closes_itself=token.closes_itself
        )
        for inner in closed:
            self._close(inner)
        if self._scope and self._scope_element is None and self._is_scope(element):
            self._scope_element = element
        if element.hidden_as:
            if not hidden:
                self.removed[element.hidden_as] += 1
                if element.name in BLOCKS and self._in_scope:
                    self._out.append(" ")  # words on either side are two words
            return
        if not self.elements.hidden_whole and self._in_scope:
            self._open(element, token)

    def _end(self, token: Token) -> None:
        if (
            self._in_markdown
            and not self.elements.is_open(token.name)
            and is_text(token, self._source, self._end_tags)
        ):
            self._text(self._source[token.start : token.end], token.start)
            return
        closed = self.elements.end(token.name)
        for element in closed:
            self._close(element)
        if closed and token.name in ("abbr", "acronym") and self._is_seen:
            title = expansion(closed[-1].attributes, self._source[token.end : token.end + 1])
            self._text(title, token.start)
        if token.name == "br":  # ``</br>`` is read as ``<br>``
            self._put("<br>")
        elif token.name == "p" and not closed and self._is_seen:
            self._put("<p></p>")

    def _raw(self, token: Token) -> None:
        name = token.name
        if token.unclosed and self._in_markdown:
            if is_text(token, self._source, self._end_tags):
                self._text(self._source[token.start :], token.start)
                return
            # The text after this piece belongs to the element too.
            self._start(Token("start", token.start, token.content_start, name, token.attributes))
            return
        if name == "title" and not self.elements.hidden_whole:
            self.title = self.title or " ".join(strip_invisible(token.text)[0].split())
        elif name in ("textarea", "xmp") and self._is_seen:
            element, closed = self.elements.start(name, token.attributes)
            for inner in closed:
                self._close(inner)
            if not element.hidden_as:
                self._put("<pre>" if name == "xmp" else " ")
                self._text(token.text, token.content_start, raw=name == "xmp")
                self._put("</pre>" if name == "xmp" else " ")
            self.elements.end(name)
        elif self._is_seen:
            self.removed[self.elements.look_at(name, token.attributes).hidden_as or "hidden"] += 1

    def _comment(self, token: Token) -> None:
        if self._source.startswith("<!--", token.start):
            self.removed["comment"] += 1
        before = self._source[max(0, token.start - 1) : token.start]
        if before.isalnum() and self._source[token.end : token.end + 1].isalnum():
            self._put(" ")

    def _take_text(self, token: Token) -> None:
        self._text(token.text, token.start)

    def _text(self, text: str, start: int, *, raw: bool = False) -> None:
        if not self._is_seen:
            if text.strip() and not self.elements.hidden_whole and self._in_scope:
                self.removed["hidden"] += 1
            return
        if not (text.isascii() and text.isprintable()):
            text, removed = strip_invisible(_LINE_END.sub("\n", text) if "\r" in text else text)
            if removed:
                self.removed.update(removed)
        first_line = self._line_of(start)
        literal = raw or self._in_preformatted
        blank = not text or text.isspace()
        around = self._around
        if around in MISSING and not literal:
            if blank:
                self._out.append(text)
                return
            before, after = MISSING[around]
            self._at_line_start = True
            self._out += (before, self._marked(text, first_line), after)
        elif literal:
            if text.startswith("\n") and self._out and self._out[-1].startswith("<pre"):
                text, first_line = text[1:], first_line + 1  # as in the standard
            self._out.append(self._marked_lines(html.escape(text, quote=False), first_line))
            self._at_line_start = False
        elif blank:
            self._out.append(" " if text else "")
            self._at_line_start = self._at_line_start or "\n" in text
        else:
            words = text.rstrip()
            self._out.append(self._marked(words, first_line))
            # The converter would join the words on either side of a line end before a tag.
            self._out.append(" " if words != text else "")
            self._at_line_start = "\n" in text[len(words) :]

    # -- writing --------------------------------------------------------------------------------

    @property
    def _around(self) -> str:
        """The innermost written tag."""
        return self._written[-1].written if self._written else ""

    @property
    def _in_preformatted(self) -> bool:
        return any(outer.written == "pre" for outer in self._written[-2:])

    @property
    def _in_scope(self) -> bool:
        return not self._scope or self._scope_element is not None

    @property
    def _is_seen(self) -> bool:
        return not self.elements.hidden_as and self._in_scope

    def _is_scope(self, element: Element) -> bool:
        role = element.attributes.get("role", "")
        return element.name == self._scope or (self._scope == "main" and role == "main")

    def _put(self, written: str) -> None:
        if self._is_seen:
            self._out.append(written)

    def _line_of(self, position: int) -> int:
        """0-based line of ``position``, which never goes back."""
        self._line += self._source.count("\n", self._counted_to, position)
        self._counted_to = max(position, self._counted_to)
        return self._line

    def _marked(self, text: str, line: int) -> str:
        """Text with a mark before the first word of each line, escaped where it must be."""
        live = self._around != "code"
        if "\n" not in text:
            return self._marked_line(text, line, live, self._at_line_start)
        parts: list[str] = []
        for number, part in enumerate(text.split("\n"), start=line):
            at_start = number > line or self._at_line_start
            parts.append(self._marked_line(part, number, live, at_start))
        return "\n".join(parts)

    def _marked_line(self, part: str, line: int, live: bool, at_start: bool) -> str:
        stripped = part.lstrip()
        if not stripped:
            return part
        indentation = part[: len(part) - len(stripped)]
        if live:
            stripped = escape_text(stripped, at_line_start=at_start)
        return indentation + self._mark(line) + html.escape(stripped, quote=False)

    def _mark(self, line: int) -> str:
        """The mark for a line that the text before is not of."""
        if line == self._last_mark:
            return ""
        self._last_mark = line
        return line_mark(line)

    def _marked_lines(self, text: str, first: int) -> str:
        """Preformatted text with a mark at the beginning of each line."""
        lines = text.split("\n")
        return "\n".join(self._mark(first + number) + line for number, line in enumerate(lines))

    def _open(self, element: Element, token: Token) -> None:
        name = element.name
        if name in HEADINGS:
            self._heading, self._heading_id = element, ""
            self._heading_start = len(self._out)
        if self._heading is not None and not self._heading_id:
            anchor = element.id or (element.attributes.get("name", "") if name == "a" else "")
            self._heading_id = anchor if _ID.fullmatch(anchor) else ""
        if name == "img":
            self._image(element, token)
        elif name == "input":
            self._input(element, token)
        elif name == "sup":
            match = _SUPERSCRIPT_TEXT.match(self._source, token.end)
            if match and not match[1].isalpha():
                self._put("^")
        elif name in BOXES:
            self._put(" ")
        elif name in ("br", "hr"):
            self._put(f"<{name}>")
            self._at_line_start = True
        else:
            self._tag(element)

    def _tag(self, element: Element) -> None:
        """Write the start tag of an element that stays open, if it means something."""
        written, around = AS_WRITTEN.get(element.name, ""), self._around
        if written in NEEDS and around not in NEEDS[written]:
            written = "div"
        if around in MAY_HOLD and written not in MAY_HOLD[around]:
            written = ""
        if element.name == "a":
            written = self._link_start_tag(element) if written else ""
        if not written or around == "code" or (around == "pre" and written != "code"):
            return
        if written in BLOCKS:
            if around == "a" and written in ("div", "p"):
                self._put(" ")
                return
            self._close_inline(but="a" if written in HEADINGS else "")
            self._at_line_start = True
        deep = written in INDENTING and self._indentation >= MAX_INDENTATION
        if deep or len(self._written) >= MAX_DEPTH:
            self._put("<br>" if written in BLOCKS else "")
            return
        self._indentation += written in INDENTING
        element.written = written
        self._written.append(element)
        self._out.append(f"<{written}{written_attributes(element, written)}>")

    def _link_start_tag(self, element: Element) -> str:
        address = element.attributes.get("href", "").strip()
        if not address:
            return ""
        if is_dangerous(address):
            self.removed["link"] += 1
            return ""
        self._link_start = len(self._out)
        return "a"

    def _close_inline(self, but: str) -> None:
        """A block ends what is written around it within a line: Markdown has no bold block."""
        while self._written and self._written[-1].written not in BLOCKS | {but}:
            self._close(self._written[-1])

    def _close(self, element: Element) -> None:
        """Write the end tag of a closed element."""
        if element is self._scope_element:
            self._scope_element = None
        if element is self._heading:
            self._end_heading()
        if element.name in BOXES:
            self._put(" ")
        if not element.written or element not in self._written:
            return
        self._written.remove(element)
        self._indentation -= element.written in INDENTING
        if element.written in BLOCKS:
            self._at_line_start = True
        if element.written == "pre":
            last = -2 if self._out[-1] == "</code>" else -1
            self._out[last] = _LAST_LINE.sub("", self._out[last])
        self._out.append(f"</{element.written}>")
        if element.written == "a":
            self._end_link()
        elif (
            len(self._out) > MAX_PARTS
            and element.written in BLOCKS
            and all(outer.written == "div" for outer in self._written)
        ):
            self._cut()
        element.written = ""

    def _end_heading(self) -> None:
        shown = self._shown_since(self._heading_start)
        if shown and self._heading_id and self._heading is not None and self._heading.written:
            self._out.append(ID_MARK + html.escape(self._heading_id, quote=False) + ID_MARK)
        self._heading = None

    def _end_link(self) -> None:
        """A link that shows nothing, or the mark of a heading's own address, is taken back."""
        shown = self._shown_since(self._link_start)
        if not shown:
            self.removed["link"] += 1
        elif self._heading is None or shown not in _PERMALINKS:
            return
        del self._out[self._link_start :]

    def _shown_since(self, start: int) -> str:
        """What a reader sees of what was written since; a picture counts as its tag."""
        text = _WRITTEN_TAG.sub("", "".join(self._out[start:]))
        return MARK.sub("", text).replace(ESCAPE_MARK, "").strip()

    def _image(self, element: Element, token: Token) -> None:
        attributes = element.attributes
        if not self._is_seen:
            return
        if is_pixel(attributes):
            self.removed["tracker"] += 1
            return
        alt = " ".join(strip_invisible(attributes.get("alt", ""))[0].split())
        address = attributes.get("src") or attributes.get("data-src") or ""
        if is_dangerous(address) or carries_data_away(address):
            self.removed["image"] += 1
            address = ""
        in_code = self._around in ("pre", "code")
        if not address or in_code or "emoji" in attributes.get("class", ""):
            if not self._at_line_start:
                self._put(" ")
            self._text(alt, token.start)
            self._put(" ")
            return
        before, after = MISSING.get(self._around, ("", ""))
        escaped = escape_text(alt, brackets=False)
        self._out.append(
            f"{before}{self._mark(self._line_of(token.start))}"
            f'<img src="{written_address(address)}" alt="{html.escape(escaped)}">{after}'
        )
        self._at_line_start = False

    def _input(self, element: Element, token: Token) -> None:
        kind = element.attributes.get("type", "").lower()
        if kind == "checkbox" and self.elements.is_open("li"):
            mark = self._mark(self._line_of(token.start))
            self._put(mark + ("[x] " if "checked" in element.attributes else "[ ] "))

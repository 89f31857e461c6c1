"""HTML in, its tokens out in one pass: text, tags with their attributes, raw text, comments.

Tags, comments and raw text are recognised as the tokenizer of the HTML standard does (section
13.2.5), so that nothing is text here that a browser hides. Time is linear on any input; Python's
own ``html.parser`` needed 68 s for 120 KB of ``<a b="`` (Python 3.11.7). Two differences: a tag
that never ends is text, since its author meant it so, and ``<`` behind ``{{`` opens a shortcode.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

TokenKind = Literal["text", "start", "end", "comment", "raw"]
"""``raw``: an element whose content is not markup, from its start tag to its end tag."""

NO_ATTRIBUTES: Final[Mapping[str, str]] = MappingProxyType({})
MAX_ATTRIBUTES: Final = 200
"""Of one tag; more are read over."""

RAW_TEXT: Final = frozenset({"script", "style", "xmp", "iframe", "noembed", "noframes"})
"""Elements whose content is neither markup nor character references."""
_RCDATA: Final = frozenset({"textarea", "title"})
"""Elements whose content is text with character references."""
NOT_MARKUP: Final = RAW_TEXT | _RCDATA
"""Elements that go on to their end tag whatever stands between."""

_MARKUP: Final = re.compile(r"(?<!\{\{)<(?=[A-Za-z/!?])")
_NAME: Final = re.compile(r"[A-Za-z][^\s/>]*")
_ATTRIBUTE: Final = re.compile(
    r"""[\s/]*([^\s/>][^\s/>=]*)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]*)))?"""
)
_TAG_END: Final = re.compile(r"[\s/]*>")
_RAW_END: Final = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in NOT_MARKUP}
_COMMENT_END: Final = re.compile(r"--!?>")
_LONG_REFERENCE: Final = re.compile(r"&#(?:[0-9]{8,}|[xX][0-9a-fA-F]{7,});?")


class Token(NamedTuple):
    """``html[start:end]``."""

    kind: TokenKind
    start: int
    end: int
    name: str = ""
    """Tag name in lower case."""
    attributes: Mapping[str, str] = NO_ATTRIBUTES
    """Names in lower case, values without character references; the first of a name counts."""
    text: str = ""
    """Of text and raw text, character references replaced where they are references."""
    closes_itself: bool = False
    """Written ``<name/>``."""
    unclosed: bool = False
    """Raw text without its end tag."""
    content_start: int = 0
    """Where raw text begins."""


class Tokens:
    """Iterates over the tokens of ``html``."""

    def __init__(self, html_text: str) -> None:
        self._html = html_text
        self.foreign = False
        """Set by the reader inside ``svg`` and ``math``: no raw text there, but CDATA sections."""
        self._last_end = html_text.rfind(">")

    def __iter__(self) -> Iterator[Token]:
        text, position, length = self._html, 0, len(self._html)
        while position < length:
            found = _MARKUP.search(text, position)
            start = found.start() if found and found.start() < self._last_end else length
            if start > position:
                words = unescape(text[position:start])
                yield Token("text", position, start, "", NO_ATTRIBUTES, words)
            if start < length:
                token = self._markup(start)
                yield token
                start = token.end
            position = start

    def _markup(self, start: int) -> Token:
        text = self._html
        following = text[start + 1]
        if following == "!":
            return self._declaration(start)
        if following == "?":
            return Token("comment", start, text.index(">", start) + 1)
        if following == "/":
            name = _NAME.match(text, start + 2)
            if name is None:
                return Token("comment", start, text.index(">", start) + 1)
            _, end, _ = _attributes(text, name.end())
            return Token("end", start, min(end, len(text)), name.group().lower())
        return self._start_tag(start)

    def _declaration(self, start: int) -> Token:
        text = self._html
        if text.startswith("<!--", start):
            if text.startswith((">", "->"), start + 4):
                return Token("comment", start, text.index(">", start) + 1)
            end = _COMMENT_END.search(text, start + 4)
            return Token("comment", start, end.end() if end else len(text))
        if self.foreign and text.startswith("<![CDATA[", start):
            close = text.find("]]>", start)
            end_at = close if close >= 0 else len(text)
            return Token("text", start, min(end_at + 3, len(text)), text=text[start + 9 : end_at])
        return Token("comment", start, text.index(">", start) + 1)

    def _start_tag(self, start: int) -> Token:
        text = self._html
        match = _NAME.match(text, start + 1)
        assert match is not None
        name = match.group().lower()
        if text.startswith(">", match.end()):
            attributes, end, closes = NO_ATTRIBUTES, match.end() + 1, False
        else:
            attributes, end, closes = _attributes(text, match.end())
            if end > len(text):
                return Token("text", start, len(text), text=unescape(text[start:]))
        pattern = None if self.foreign else _RAW_END.get(name)
        if pattern is None:
            return Token("start", start, end, name, attributes, "", closes)
        close = pattern.search(text, end)
        content = text[end : close.start() if close else len(text)]
        after = text.find(">", close.end()) + 1 if close else 0
        return Token(
            "raw",
            start,
            after or len(text),
            name,
            attributes,
            unescape(content) if name in _RCDATA else content,
            unclosed=not after,
            content_start=end,
        )


def _attributes(text: str, position: int) -> tuple[Mapping[str, str], int, bool]:
    """Attributes from ``position`` on, the end of the tag, and whether it closes itself.

    The end is beyond that of the text when the tag has none.
    """
    found: dict[str, str] = {}
    while True:
        end = _TAG_END.match(text, position)
        if end is not None:
            return found or NO_ATTRIBUTES, end.end(), "/" in end.group()
        match = _ATTRIBUTE.match(text, position)
        if match is None or match.end() == position:
            return found or NO_ATTRIBUTES, len(text) + 1, False
        if len(found) < MAX_ATTRIBUTES:
            value = match[2] or match[3] or match[4] or ""
            found.setdefault(match[1].lower(), unescape(value))
        position = match.end()


def unescape(text: str) -> str:
    """``text`` with character references replaced; absurdly long ones become U+FFFD.

    Python refuses to read a number of more than 4,300 digits.
    """
    if "&" not in text:
        return text
    return html.unescape(_LONG_REFERENCE.sub("\ufffd", text))

"""Marks in the text on its way through the converter: its lines, and what must be escaped after it.

They are code points for private use, which the text itself cannot hold any more (``invisible``),
and which the converter takes for letters.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

LINE_MARK: Final = "\ue000"
"""Begins a mark; two characters follow, the line in base ``_BASE``."""
ESCAPE_MARK: Final = "\ue001"
"""Stands for a backslash: the converter would escape one."""
ID_MARK: Final = "\ue002"
"""Stands on either side of a heading's id."""
_BASE: Final = 4_096
_FIRST_DIGIT: Final = 0xE100
MARK: Final = re.compile(f"{LINE_MARK}([{chr(_FIRST_DIGIT)}-{chr(_FIRST_DIGIT + _BASE - 1)}]{{2}})")

_LIVE: Final = re.compile(r"<(?=[A-Za-z/!?])|\](?=[(\[])|`|&(?=#?[A-Za-z0-9]{1,40};)")
_BEGINS_BLOCK: Final = re.compile(
    r"(?:#{1,6}(?=\s|$)|>|[-+*](?=\s|$)|~~~|\[(?=[^\]\n]*\]:)|[-=|:](?=[-=|: ]*$))"
)
_NUMBERED: Final = re.compile(r"([0-9]{1,9})([.)])(?=\s|$)")


@lru_cache(maxsize=8)
def line_mark(line: int) -> str:
    """The mark for a 0-based line; lines beyond 16,777,215 share the last mark."""
    high, low = divmod(min(line, _BASE * _BASE - 1), _BASE)
    return f"{LINE_MARK}{chr(_FIRST_DIGIT + high)}{chr(_FIRST_DIGIT + low)}"


def marked_line(match: re.Match[str]) -> int:
    """The line that a match of ``MARK`` says."""
    high, low = tuple(match[1])
    return (ord(high) - _FIRST_DIGIT) * _BASE + ord(low) - _FIRST_DIGIT


def escape_text(text: str, *, at_line_start: bool = False, brackets: bool = True) -> str:
    """One line of text with what would be Markdown or HTML behind ``ESCAPE_MARK``."""
    if at_line_start:
        if _BEGINS_BLOCK.match(text):
            return ESCAPE_MARK + text[0] + escape_text(text[1:], brackets=brackets)
        numbered = _NUMBERED.match(text)
        if numbered:
            rest = escape_text(text[numbered.end() :], brackets=brackets)
            return f"{numbered[1]}{ESCAPE_MARK}{numbered[2]}{rest}"
    if _LIVE.search(text) is not None:
        text = _LIVE.sub(_escaped if brackets else _escaped_but_brackets, text)
    # The converter doubles some backslashes, but not these.
    return text.replace("\\", ESCAPE_MARK)


def _escaped(match: re.Match[str]) -> str:
    # Backslashes directly before would otherwise escape the escape: they are doubled.
    text, position = match.string, match.start()
    while position and text[position - 1] == "\\":
        position -= 1
    return ESCAPE_MARK * (match.start() - position) + ESCAPE_MARK + match.group()


def _escaped_but_brackets(match: re.Match[str]) -> str:
    return match.group() if match.group() == "]" else _escaped(match)

"""Text of documents as it may stand in a page: escaped, isolated, nothing in it unseen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from markupsafe import Markup, escape

EXCERPT_CHARACTERS: Final = 360
"""About four lines of a table cell: enough to judge a passage."""

# Controls, format and bidi characters, tags, fillers, line and paragraph separators, surrogates.
# A joiner between two letters or pictures that are not ASCII belongs to the writing system.
_UNSEEN: Final = re.compile(
    "(?:[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2"
    "\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\ud800-\udfff\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    "|[\u200c\u200d](?![^\x00-\x7f])|(?<![^\x00-\x7f])[\u200c\u200d])"
)
_LANGUAGE: Final = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*\Z")


def plain(text: str) -> str:
    """``text`` for an attribute or a title: what cannot be seen is written ``⟨U+202E⟩``.

    >>> plain("invoice\\u202egpj.exe")
    'invoice⟨U+202E⟩gpj.exe'
    """
    return _UNSEEN.sub(lambda found: _name(found[0]), _line_ends(text))


def visible(text: str) -> Markup:
    """``text`` for the body of a page: escaped, in a ``<bdi>``, unseen characters made visible."""
    return Markup("<bdi>{}</bdi>").format(_named(text))


def marked(text: str, spans: Sequence[tuple[int, int]]) -> Markup:
    """Like ``visible``, with ``spans`` (ordered, disjoint character ranges) in ``<mark>``."""
    parts: list[Markup] = []
    done = 0
    for start, end in spans:
        parts.append(_named(text[done:start]))
        parts.append(Markup("<mark>{}</mark>").format(_named(text[start:end])))
        done = end
    parts.append(_named(text[done:]))
    return Markup("<bdi>{}</bdi>").format(Markup("").join(parts))


def excerpt(
    text: str, spans: Sequence[tuple[int, int]], length: int = EXCERPT_CHARACTERS
) -> tuple[str, list[tuple[int, int]]]:
    """At most about ``length`` characters where most spans stand, and the spans within them.

    Cut at spaces where there are any near; ``…`` stands for what was left out.
    """
    if len(text) <= length:
        return text, list(spans)
    start = _densest(spans, length, len(text))
    end = min(len(text), start + length)
    if start:
        space = re.compile(r"\s").search(text, start, min(end, start + 40))
        start = space.end() if space else start
    if end < len(text):
        cut = max(text.rfind(" ", end - 40, end), text.rfind("\n", end - 40, end))
        end = cut if cut > start else end
    before, after = ("… " if start else ""), (" …" if end < len(text) else "")
    moved = len(before) - start
    kept = [(a + moved, b + moved) for a, b in spans if a >= start and b <= end]
    return f"{before}{text[start:end]}{after}", kept


def _densest(spans: Sequence[tuple[int, int]], length: int, total: int) -> int:
    """Where a window of ``length`` holds most spans, with some words before the first of them."""
    best, best_count = 0, 0
    last = 0
    for first, (start, _) in enumerate(spans):
        while last < len(spans) and spans[last][1] <= start + length - 60:
            last += 1
        if last - first > best_count:
            best, best_count = start, last - first
    return max(0, min(best - 60, total - length))


def web_address(url: str) -> str | None:
    """``url`` when it is safe to link to: http or https with a host; else None.

    >>> web_address("javascript:alert(1)") is None
    True
    """
    if any(character <= " " for character in url) or _UNSEEN.search(url):
        return None
    try:
        parts = urlsplit(url)
        return url if parts.scheme in ("http", "https") and parts.hostname else None
    except ValueError:
        return None


def language_tag(language: str) -> str | None:
    """``language`` when it may stand in a ``lang`` attribute, else None."""
    return language if _LANGUAGE.match(language) else None


def _line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _named(text: str) -> Markup:
    """``text`` escaped, each unseen character as its name in a ``<span>``."""
    text = _line_ends(text)
    parts: list[Markup] = []
    done = 0
    for found in _UNSEEN.finditer(text):
        parts.append(escape(text[done : found.start()]))
        parts.append(Markup('<span class="unseen">{}</span>').format(_name(found[0])))
        done = found.end()
    parts.append(escape(text[done:]))
    return Markup("").join(parts)


def _name(character: str) -> str:
    return f"⟨U+{ord(character):04X}⟩"

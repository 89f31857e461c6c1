"""Markdown in, the same Markdown without what no reader of the rendered page sees.

Taken out: invisible characters, comments, hidden elements, scripts, styles, trackers, dangerous
addresses. HTML that is seen becomes Markdown. Code is left alone, but for invisible characters.
A text without any of it comes back unchanged, byte for byte, and almost for free.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rag_assets.documents.cleaning.line_edits import apply_edits
from rag_assets.documents.invisible import strip_invisible
from rag_assets.documents.urls import DANGEROUS_SCHEMES, TRACKING_PARAMETERS, TRACKING_PREFIXES
from rag_assets.markdown import normalise_line_ends

MAX_PASSES: Final = 8
"""What is taken out may leave new HTML behind (``<<b>script>``): cleaned again so many times."""

_TAG: Final = re.compile(r"<[A-Za-z/!?]")
_REFERENCE: Final = re.compile(r"&#?[A-Za-z0-9]{1,40};")
_DANGEROUS: Final = (*(f"{name}:".encode() for name in sorted(DANGEROUS_SCHEMES)), b"\\:")
_TRACKING: Final = (
    *(f"{name}=".encode() for name in sorted(TRACKING_PARAMETERS)),
    *(prefix.encode() for prefix in TRACKING_PREFIXES),
)
_EMPTY_LINK: Final = re.compile(r"\[\s*\][(\[]")
_REMOTE_QUERY: Final = re.compile(r"(?:\]\(|\]:)\s*<?(?:https?:)?//[^\s)]*\?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A cleaned text."""

    text: str = field(repr=False)
    lines: tuple[int, ...] = ()
    """1-based line of the original for each line of ``text``; empty when they are the same."""
    removed: Mapping[str, int] = field(default_factory=dict)
    """How much was taken out, by kind: those of ``html.Converted`` and ``strip_invisible``."""


def clean_markdown(text: str) -> Cleaned:
    """Clean one text. Nothing in it can make this raise.

    Lines stay where they are wherever that can be; ``lines`` tells where they came from. Line ends
    become LF when anything but an invisible character had to be changed.
    """
    clean, removed = strip_invisible(text)
    if not _may_need_parsing(clean):
        return Cleaned(clean, (), removed)
    counts = Counter(removed)
    before = normalise_line_ends(clean)
    lines: Sequence[int] = ()
    current = before
    for _ in range(MAX_PASSES):
        after, sources, found = _pass(current)
        if after == current:
            break
        counts.update(found)
        lines = [lines[source] for source in sources] if lines else sources
        current, more = strip_invisible(after)
        counts.update(more)
        if not _may_need_parsing(current):
            break
    if current == before:
        return Cleaned(clean, (), dict(counts))
    return Cleaned(current, _told(lines, before), dict(counts))


def _may_need_parsing(text: str) -> bool:
    """Whether there can be anything to take out of Markdown; cheap, and True too often."""
    if "<" in text and _TAG.search(text):
        return True
    if "&" in text and _REFERENCE.search(text):
        return True
    if "](" not in text and "]:" not in text and "][" not in text:
        return False
    if _EMPTY_LINK.search(text):
        return True
    lowered = text.encode("utf-8").lower()  # five times faster than letters beyond Latin-1
    if any(word in lowered for word in _DANGEROUS):
        return True
    if "?" not in text:
        return False
    if any(word in lowered for word in _TRACKING):
        return True
    return "![" in text and _REMOTE_QUERY.search(text) is not None


def _pass(text: str) -> tuple[str, list[int], Counter[str]]:
    """The text with everything taken out that can be seen to be HTML now."""
    from rag_assets.documents.cleaning.html_in_markdown import MarkdownHtml, TooComplex

    reader = MarkdownHtml(text)
    try:
        reader.read()
    except TooComplex:
        reader = MarkdownHtml(text)
        reader.read_as_plain()
    if not reader.edits:
        return text, [], Counter()
    return (*apply_edits(reader.source, reader.starts, reader.edits), reader.removed)


def _told(lines: Sequence[int], before: str) -> tuple[int, ...]:
    """The lines, 1-based; nothing when each is its own."""
    same = len(lines) == before.count("\n") + 1
    if same and all(number == line for number, line in enumerate(lines)):
        return ()
    return tuple(line + 1 for line in lines)

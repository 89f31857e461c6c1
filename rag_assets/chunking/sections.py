"""An outline in, its sections out: runs of blocks under the headings H1 to H3 that are open there.

Only top-level headings open a section: one in a list, a quotation, a fence, a comment or HTML is
text like any other. H4 to H6 stay inside the section they stand in. A heading without text opens
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rag_assets.markdown import Outline

DEEPEST_SECTION: Final = 3
MAX_HEADING_CHARACTERS: Final = 250
"""Longer headings are cut in ``heading_path``, which is repeated above every passage; the whole
heading stays in the text of its section."""


class Section(NamedTuple):
    """Blocks ``first`` to ``last`` (half open) of an outline. The heading is its first block."""

    heading_path: tuple[str, ...]
    anchor: str
    first: int
    last: int


def sections(outline: Outline, anchors: Sequence[str]) -> list[Section]:
    """All sections in order, together all blocks. The first may have no heading.

    ``anchors`` has one anchor for each of ``outline.headings``.
    """
    found: list[Section] = []
    open_levels: list[int] = []
    path: list[str] = []
    anchor = ""
    first = 0
    for index, block in enumerate(outline.blocks):
        if block.heading < 0:
            continue
        heading = outline.headings[block.heading]
        if heading.level > DEEPEST_SECTION or not heading.text:
            continue
        if index > first:
            found.append(Section(tuple(path), anchor, first, index))
        while open_levels and open_levels[-1] >= heading.level:
            open_levels.pop()
            path.pop()
        open_levels.append(heading.level)
        path.append(_shortened(heading.text))
        anchor, first = anchors[block.heading], index
    if first < len(outline.blocks):
        found.append(Section(tuple(path), anchor, first, len(outline.blocks)))
    return found


def _shortened(text: str) -> str:
    if len(text) <= MAX_HEADING_CHARACTERS:
        return text
    return text[: MAX_HEADING_CHARACTERS - 1].rstrip() + "…"

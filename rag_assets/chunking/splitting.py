"""A block beyond the embedder's limit in, pieces within it out.

Cuts fall where the text allows it best: prose between sentences, code and tables between lines,
lists and quotations between lines, then between sentences; only what is still too long is cut
between words, and only a word too long between characters. Only white space is lost at a cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from rag_assets.markdown import BlockKind
from rag_assets.tokens import HUNDREDTHS, longest_prefix, token_weight

# A boundary takes the white space behind it up to and with one line end, so that the indentation
# of the next line stays with that line. Every pattern does bounded work at each character, but for
# one run of white space.
_SPACE: Final = r"(?:\n|[^\S\n]+\n?)"
SENTENCE: Final = re.compile(
    r"[.!?…。！？](?:[\"'”’»)\]*_`]{0,2}(?:\s»)?" + _SPACE + r"|"
    r"(?<=[。！？])[」』）]{0,2}(?![。！？」』）])\n?)"
)
LINE: Final = re.compile(r"\n")
WORD: Final = re.compile(_SPACE)
_BLANK_LINES: Final = re.compile(r"(?:[^\S\n]*\n)*")

_PROSE: Final = (SENTENCE, LINE, WORD)
_LINES: Final = (LINE, WORD)
_CONTAINER: Final = (LINE, SENTENCE, WORD)
BOUNDARIES: Final[Mapping[BlockKind, tuple[re.Pattern[str], ...]]] = {
    "heading": _PROSE,
    "paragraph": _PROSE,
    "list": _CONTAINER,
    "quote": _CONTAINER,
    "code": _LINES,
    "table": _LINES,
    "html": _CONTAINER,
    "rule": _LINES,
    "definitions": _CONTAINER,
}
"""Where a block may be cut, best first."""

WINDOW_CHARACTERS_PER_TOKEN: Final = 5
"""How far ahead a cut is sought; English prose has about 4 characters a token."""
MIN_WINDOW_CHARACTERS: Final = 256
MAX_INDENTATION_CHARACTERS: Final = 128
"""A line that begins further in loses its white space when it has to be cut."""
_LOOK_BACK_CHARACTERS: Final = 256
"""The last boundary of a window is sought from its end, in steps that grow from this."""


class Budget(NamedTuple):
    """What a piece may hold."""

    words: int
    """Target, in words."""
    weight: int
    """Target, in hundredths of a token (``token_weight``)."""
    hard_weight: int
    """A sentence, line or row over the target stands alone up to this weight."""

    def less(self, words: int, weight: int) -> Budget:
        """What remains when so much is taken up already."""
        return Budget(self.words - words, self.weight - weight, self.hard_weight - weight)


class Span(NamedTuple):
    """Characters ``start`` to ``end`` of a text, measured."""

    start: int
    end: int
    words: int
    weight: int


def measure(text: str, start: int, end: int) -> Span:
    """The span with its words and weight."""
    part = text[start:end]
    return Span(start, end, len(part.split()), token_weight(part))


def split(
    text: str, start: int, end: int, kind: BlockKind, first: Budget, others: Budget
) -> Iterator[Span]:
    """Pieces of ``text[start:end]`` in order, without the white space between them.

    The first piece is held to the budget ``first``, the rest to ``others``. Work and memory for one
    piece do not depend on the length of the text.
    """
    boundaries = BOUNDARIES[kind]
    budget = first
    position = start
    while position < end:
        reach = max(MIN_WINDOW_CHARACTERS, window_characters(budget.hard_weight))
        window = text[position : min(end, position + reach)]
        blank = _BLANK_LINES.match(window)
        skipped = blank.end() if blank else 0
        if skipped == 0:
            skipped = _piece(window, boundaries, budget, is_last=position + len(window) == end)
            length = len(window[:skipped].rstrip())
            if length:
                yield measure(text, position, position + length)
                budget = others
        position += skipped


def window_characters(weight: int) -> int:
    """How many characters are looked at for a piece of this weight."""
    return weight * WINDOW_CHARACTERS_PER_TOKEN // HUNDREDTHS


def _piece(
    window: str, boundaries: tuple[re.Pattern[str], ...], budget: Budget, *, is_last: bool
) -> int:
    """Length of the piece that begins ``window``; always positive."""
    indentation = len(window) - len(window.lstrip())
    if indentation == len(window) or indentation > MAX_INDENTATION_CHARACTERS:
        return indentation
    reach = longest_prefix(window, budget.words, budget.weight)
    if is_last and reach == len(window):
        return len(window)
    for boundary in boundaries:
        cut = _last_cut(boundary, window, indentation, reach)
        if cut:
            return cut
        # Nothing ends before ``reach``; a closing mark and its white space may straddle it.
        match = boundary.search(window, max(indentation, reach - 4))
        first = match.end() if match else len(window) if is_last else 0
        if first and token_weight(window[:first]) <= budget.hard_weight:
            return first
    return max(reach, indentation + 1)


def _last_cut(boundary: re.Pattern[str], window: str, low: int, high: int) -> int:
    """End of the last boundary between ``low`` and ``high``; 0 without one."""
    if high <= low:
        return 0
    if boundary is LINE:
        return window.rfind("\n", low, high) + 1
    if boundary is WORD:
        # By far the most frequent search of a text without sentences: as a string method.
        last_word = "" if window[high - 1].isspace() else window[low:high].rsplit(None, 1)[-1]
        return high - len(last_word) if len(last_word) < high - low else 0
    step = _LOOK_BACK_CHARACTERS
    while low < high:
        start = max(low, high - step)
        cut = 0
        for match in boundary.finditer(window, start, high):
            cut = match.end()
        if cut or start == low:
            return cut
        step *= 4
    return 0

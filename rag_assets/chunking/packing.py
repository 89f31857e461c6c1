"""The blocks of one section in, passages out: blocks are packed up to the target size.

* A heading stays with the block under it.
* A list over the target is packed item by item; any other block over it stands alone.
* Only a block beyond the embedder's limit is split (``splitting``). A split table repeats its
  header and delimiter rows above each piece, unless they take more than half of it, and every row
  that fits is in exactly one piece. A split fence is cut between lines and nothing is added: each
  piece is the source, byte for byte.
* The next passage begins with the end of the one before it, cut at a sentence, line or word; only
  prose (paragraphs, lists, quotations) is repeated, not code, tables or HTML, and never so much
  that the passage outgrows target or limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rag_assets.chunking.splitting import (
    LINE,
    SENTENCE,
    WORD,
    Budget,
    Span,
    measure,
    split,
    window_characters,
)
from rag_assets.markdown import Block, BlockKind, Outline
from rag_assets.tokens import longest_suffix, token_weight

_LENDS_ITS_TAIL: Final[frozenset[BlockKind]] = frozenset(
    {"heading", "paragraph", "list", "quote", "definitions"}
)
_HEADER_ROWS: Final = 2
"""Header and delimiter row of a table."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a passage of one section may hold; words count towards the target, weight (hundredths
    of a token, ``token_weight``) towards what the embedder reads."""

    words: int
    weight: int
    hard_weight: int
    """What a block that stands alone may weigh."""
    overlap_words: int
    overlap_weight: int


class Unit(NamedTuple):
    """What is never divided while packing: a block, a list item, or a piece of a split block."""

    span: Span
    lends_its_tail: bool
    header: Span | None = None
    """For the further pieces of a split table: the rows to repeat when a passage begins here."""


class Passage(NamedTuple):
    """Characters ``start`` to ``end`` of the text, below a repeated table header if any."""

    start: int
    end: int
    new_from: int
    """Where the text begins that the passage before did not hold."""
    header: Span | None = None


def pack(outline: Outline, blocks: Sequence[Block], limits: Limits) -> list[Passage]:
    """Cut the blocks of one section into passages; together they hold all their text, in order."""
    if not blocks:
        return []
    text, starts = outline.text, outline.line_starts
    start, end = starts[blocks[0].start], starts[blocks[-1].end] - 1
    if _fits(text[start:end], limits.words, limits.weight):
        return [] if text[start:end].isspace() else [Passage(start, end, start)]
    packer = _Packer(text, limits)
    for unit in _Units(outline, limits, packer).of(blocks):
        if unit.span.words:  # a line of nothing but no-break spaces is a paragraph to CommonMark
            packer.add(unit)
    return packer.finish()


def _fits(part: str, words: int, weight: int) -> bool:
    # Weight first: counting the words of a huge text would build all of them.
    return token_weight(part) <= weight and len(part.split()) <= words


class _Units:
    """Turns blocks into units, one by one as ``packer`` takes them."""

    def __init__(self, outline: Outline, limits: Limits, packer: _Packer) -> None:
        self._text = outline.text
        self._starts = outline.line_starts
        self._limits = limits
        self._packer = packer
        self._whole = Budget(limits.words, limits.weight, limits.hard_weight)
        # Further pieces of prose leave room for the tail of the piece before them.
        self._after_tail = Budget(
            max(1, limits.words - limits.overlap_words),
            max(1, limits.weight - limits.overlap_weight),
            limits.hard_weight,
        )

    def of(self, blocks: Sequence[Block]) -> Iterator[Unit]:
        """Units in order; headings are joined to what follows them as far as the limit allows."""
        lead: Span | None = None
        for block in blocks:
            if block.kind == "heading":
                span = self._measure_lines(block.start, block.end)
                lead = span if lead is None else _joined(self._text, lead, span)
                if lead.weight * 2 > self._limits.hard_weight:
                    yield from self._pieces(lead.start, lead.end, "heading", None)
                    lead = None
                continue
            for unit in self._units(block, lead):
                if lead is None:
                    yield unit
                elif lead.weight + unit.span.weight <= self._limits.hard_weight:
                    yield unit._replace(span=_joined(self._text, lead, unit.span))
                else:
                    yield Unit(lead, lends_its_tail=True)
                    yield unit
                lead = None
        if lead is not None:
            yield Unit(lead, lends_its_tail=True)

    def _units(self, block: Block, lead: Span | None) -> Iterator[Unit]:
        start, end = self._starts[block.start], self._starts[block.end] - 1
        weight = token_weight(self._text[start:end])
        stands_alone = weight <= self._limits.hard_weight
        if len(block.items) > 1:
            span = self._measure_lines(block.start, block.end) if stands_alone else None
            if span is None or span.words > self._limits.words or weight > self._limits.weight:
                yield from self._items(block, lead)
                return
        if stands_alone:
            span = self._measure_lines(block.start, block.end)
            yield Unit(span, block.kind in _LENDS_ITS_TAIL)
        elif block.kind == "table":
            yield from self._rows(block, lead)
        else:
            yield from self._pieces(start, end, block.kind, lead)

    def _items(self, block: Block, lead: Span | None) -> Iterator[Unit]:
        for first, last in zip(block.items, (*block.items[1:], block.end), strict=True):
            start = self._starts[first]
            end = start + len(self._text[start : self._starts[last] - 1].rstrip())
            if token_weight(self._text[start:end]) <= self._limits.hard_weight:
                yield Unit(measure(self._text, start, end), lends_its_tail=True)
            else:
                yield from self._pieces(start, end, "list", lead)
            lead = None

    def _rows(self, block: Block, lead: Span | None) -> Iterator[Unit]:
        start, end = self._starts[block.start], self._starts[block.end] - 1
        header = self._measure_lines(block.start, block.start + _HEADER_ROWS)
        if header.weight * 2 > self._limits.weight or header.words * 2 > self._limits.words:
            yield from self._pieces(start, end, "table", lead)
            return
        others = self._whole.less(header.words, header.weight)
        first = self._first(lead).less(header.words, header.weight)
        rows_start = self._starts[block.start + _HEADER_ROWS]
        repeated: Span | None = None
        for rows in split(self._text, rows_start, end, "table", first, others):
            span = rows if repeated else _joined(self._text, header, rows)
            yield Unit(span, lends_its_tail=False, header=repeated)
            repeated = header

    def _pieces(self, start: int, end: int, kind: BlockKind, lead: Span | None) -> Iterator[Unit]:
        lends_its_tail = kind in _LENDS_ITS_TAIL
        others = self._after_tail if lends_its_tail else self._whole
        for span in split(self._text, start, end, kind, self._first(lead), others):
            yield Unit(span, lends_its_tail)

    def _first(self, lead: Span | None) -> Budget:
        """For the first piece of a split block: the room in the passage before it, if that is more
        than half of one, so that a sentence stays with the table or the code it introduces."""
        words, weight = self._packer.room()
        if words * 2 < self._limits.words or weight * 2 < self._limits.weight:
            words, weight = self._limits.words, self._limits.weight
        room = Budget(words, weight, self._limits.hard_weight)
        return room if lead is None else room.less(lead.words, lead.weight)

    def _measure_lines(self, first: int, last: int) -> Span:
        return measure(self._text, self._starts[first], self._starts[last] - 1)


def _joined(text: str, one: Span, other: Span) -> Span:
    # The white space between them weighs something when it is not ASCII.
    weight = one.weight + token_weight(text[one.end : other.start]) + other.weight
    return Span(one.start, other.end, one.words + other.words, weight)


class _Packer:
    """Fills passages with units, in order."""

    def __init__(self, text: str, limits: Limits) -> None:
        self._text = text
        self._limits = limits
        self._passages: list[Passage] = []
        self._current: Passage | None = None
        self._words = 0
        self._weight = 0
        self._lender: int | None = None
        """Where the run of prose begins that ends the current passage."""

    def add(self, unit: Unit) -> None:
        """Put the unit into the current passage, or begin the next one with it."""
        span, current = unit.span, self._current
        gap = token_weight(self._text[current.end : span.start]) if current else 0
        if (
            current is None
            or self._words + span.words > self._limits.words
            or self._weight + gap + span.weight > self._limits.weight
        ):
            self._begin(unit)
        else:
            self._current = current._replace(end=span.end)
            self._words += span.words
            self._weight += gap + span.weight
        if not unit.lends_its_tail:
            self._lender = None
        elif self._lender is None:
            self._lender = span.start

    def room(self) -> tuple[int, int]:
        """Words and weight that the current passage could still take."""
        return self._limits.words - self._words, self._limits.weight - self._weight

    def finish(self) -> list[Passage]:
        """All passages."""
        self._close()
        return self._passages

    def _begin(self, unit: Unit) -> None:
        span, header = unit.span, unit.header
        start = self._tail_start(unit)
        self._close()
        self._current = Passage(start, span.end, span.start, header)
        extra = header or measure(self._text, start, span.start)
        self._words = span.words + extra.words
        self._weight = span.weight + extra.weight
        self._lender = span.start if unit.lends_its_tail else None

    def _close(self) -> None:
        if self._current is not None:
            self._passages.append(self._current)

    def _tail_start(self, unit: Unit) -> int:
        """Where the passage that begins with ``unit`` starts, the tail before it included."""
        span, current = unit.span, self._current
        if current is None or self._lender is None or unit.header is not None:
            return span.start
        words = min(self._limits.overlap_words, self._limits.words - span.words)
        weight = min(self._limits.overlap_weight, self._limits.weight - span.weight)
        if words <= 0 or weight <= 0:
            return span.start
        # A passage must begin after the one before it did, or packing would not end.
        may_take_all = self._lender > current.start
        tail = _tail(self._text, self._lender, current.end, may_take_all, words, weight)
        return span.start if tail is None else tail


def _tail(
    text: str, first: int, end: int, may_take_all: bool, max_words: int, max_weight: int
) -> int | None:
    """Where the last ``max_words`` of ``text[first:end]`` begin, at the best place, or None.

    A sentence start or else a line start is taken if it keeps half the words, else a word start.
    """
    window_start = max(first, end - window_characters(max_weight))
    begin = window_start + longest_suffix(text[window_start:end], max_words, max_weight)
    if begin == first and may_take_all:
        return first
    for boundary in (SENTENCE, LINE, WORD):
        # The mark that ends a sentence stands before the place where the next one begins.
        matches = boundary.finditer(text, max(first, begin - 4), end)
        cut = next((match.end() for match in matches if match.end() > begin), end)
        if cut < end and (boundary is WORD or len(text[cut:end].split()) * 2 >= max_words):
            return cut
    return None

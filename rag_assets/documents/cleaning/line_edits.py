"""Replacements in a text, with the line of the original for every line that results."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

_NOT_QUOTE: Final = re.compile(r"[^>\s]")
"""What of the beginning of a block's first line is not repeated before its next lines."""


class Edit(NamedTuple):
    """Bytes ``start`` to ``end`` of a text (UTF-8) become ``text``."""

    start: int
    end: int
    text: str = ""
    lines: Sequence[int] = ()
    """0-based line of the source for every line of ``text``; empty: those lines in order."""


def apply_edits(
    source: bytes, starts: Sequence[int], edits: Iterable[Edit]
) -> tuple[str, list[int]]:
    """The text after the edits, and the 0-based source line of each of its lines.

    ``starts`` are the offsets at which the lines of ``source`` begin. Of edits that overlap the
    one that begins first counts, of those that begin together the longest.
    """
    parts: list[bytes] = []
    lines = [0]
    position = 0

    def keep(until: int) -> None:
        if until > position:
            parts.append(source[position:until])
            # The lines that this slice begins: behind ``position``, at the latest at its end.
            first = bisect_right(starts, position)
            lines.extend(range(first, bisect_right(starts, until)))

    for edit in sorted(edits, key=lambda edit: (edit.start, -edit.end)):
        if edit.start < position:
            continue
        keep(edit.start)
        parts.append(edit.text.encode("utf-8", "surrogatepass"))
        _follow(lines, edit, starts)
        position = max(edit.end, position)
    keep(len(source))
    return b"".join(parts).decode("utf-8", "surrogatepass"), lines


def _follow(lines: list[int], edit: Edit, starts: Sequence[int]) -> None:
    """Add the lines that the edit's text begins."""
    count = edit.text.count("\n")
    first = bisect_right(starts, edit.start) - 1
    last = bisect_right(starts, edit.end) - 1
    numbers = [*edit.lines] or [min(first + number, last) for number in range(count + 1)]
    if edit.text.endswith("\n"):
        numbers[count:] = [last]  # what follows the edit
    if not edit.text.startswith("\n"):
        lines[-1] = max(lines[-1], numbers[0])
    lines.extend(numbers[1 : count + 1])


def gap(source: bytes, start: int, end: int) -> str:
    """What keeps words apart when ``start`` to ``end`` goes: a line end, a space or nothing."""
    if source.find(b"\n", start, end) >= 0:
        return "\n"
    before, after = source[start - 1 : start], source[end : end + 1]
    joined = before not in b" \t\n([{" and after not in b" \t\n.,;:!?)]}|" and before and after
    return " " if joined else ""


def place_lines(
    source: bytes,
    starts: Sequence[int],
    start: int,
    end: int,
    written: tuple[Sequence[str], Sequence[int]],
) -> Edit:
    """The edit that puts lines in the place of a block, each where it stood as far as they fit.

    ``written`` are the lines, and the 0-based line of ``source`` that each comes from.
    """
    first = bisect_right(starts, start) - 1
    last = bisect_right(starts, end - 1) - 1
    at_margin = starts[first] == start
    ends_line = source[end - 1 : end] == b"\n"
    placed, numbers = _in_place(*written, first, last)
    if placed[0] and at_margin and source[starts[max(first - 1, 0)] : start].strip():
        # HTML may interrupt a paragraph; its text would go on with it.
        placed, numbers = ["", *placed], [first, *numbers]
    after = source[end : starts[min(last + 2, len(starts) - 1)]]
    if placed[-1] and at_margin and ends_line and after.strip():
        placed, numbers = [*placed, ""], [*numbers, last]
    prefix = _NOT_QUOTE.sub(" ", source[starts[first] : start].decode("utf-8"))
    blank = prefix.rstrip()
    lines = [*placed[:1], *(prefix + line if line else blank for line in placed[1:])]
    text = "\n".join(lines) + ("\n" if ends_line else "")
    return Edit(start, end, text, [min(number, last) for number in numbers])


def _in_place(
    lines: Sequence[str], sources: Sequence[int], first: int, last: int
) -> tuple[list[str], list[int]]:
    """The lines with blank ones before each block of them and at the end, to fill the place."""
    placed: list[str] = []
    numbers: list[int] = []

    def fill(count: int) -> None:
        while len(placed) < count:
            placed.append("")
            numbers.append(max(first + len(numbers), numbers[-1] if numbers else first))

    for number, (line, source) in enumerate(zip(lines, sources, strict=True)):
        if number == 0 or not lines[number - 1].strip():
            fill(source - first)
        placed.append(line)
        numbers.append(source)
    fill(last - first + 1)
    return placed, numbers

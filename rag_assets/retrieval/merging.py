"""Ranked hits in, the same hits out with neighbouring passages of one section joined into one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

from rag_assets.fingerprints import sha256_hex
from rag_assets.models import embedding_text

if TYPE_CHECKING:
    from rag_assets.models import Hit

_Section: TypeAlias = "tuple[str, str, tuple[str, ...], str]"

_LONGEST_OVERLAP: Final = 20_000
"""Characters at the end of a passage that the next one may begin with; an overlap is far shorter
(``chunk.overlap`` tokens)."""


def merge_adjacent(hits: Sequence[Hit]) -> list[Hit]:
    """The hits, with those that follow one another in one section joined, best first.

    One section is one source, path, heading path and anchor. A joined hit stands where the best of
    its parts stood, with that one's rank and scores; its text runs from the first part to the last,
    what two parts share (``chunk.overlap``, a table's repeated header) written once. ``position``
    is the first part's, the lines cover all of them. Ranks are not renumbered. A passage that is
    given twice counts once.

    Where the cut fell inside a line of words that repeat themselves ("ha ha ha"), some of the
    repetitions may be taken for an overlap.
    """
    runs: dict[int, list[Hit]] = {}
    for run in _runs(hits):
        best = min(range(len(run)), key=lambda place: run[place][0])
        runs[run[best][0]] = [run[best][1], *(hit for _, hit in run)]
    return [_joined(runs[place][0], runs[place][1:]) for place in sorted(runs)]


def _runs(hits: Sequence[Hit]) -> Iterator[list[tuple[int, Hit]]]:
    """Hits of one section at positions n, n + 1, ..., each with its place in ``hits``."""
    sections: dict[_Section, dict[int, tuple[int, Hit]]] = {}
    for place, hit in enumerate(hits):
        section = sections.setdefault((hit.source, hit.path, hit.heading_path, hit.anchor), {})
        section.setdefault(hit.position, (place, hit))
    for section in sections.values():
        run: list[tuple[int, Hit]] = []
        for position in sorted(section):
            if run and run[-1][1].position + 1 != position:
                yield run
                run = []
            run.append(section[position])
        yield run


def _joined(best: Hit, parts: Sequence[Hit]) -> Hit:
    if len(parts) == 1:
        return best
    content = _join(parts)
    return replace(
        best,
        position=parts[0].position,
        start_line=parts[0].start_line,
        end_line=max(part.end_line for part in parts),
        content=content,
        content_hash=sha256_hex(embedding_text(best.title, best.heading_path, content)),
    )


def _join(parts: Sequence[Hit]) -> str:
    """The text of passages that follow one another, each part of it once."""
    written = [parts[0].content]
    for before, part in pairwise(parts):
        content = _without_repeated_header(part, written)
        overlap = _overlap(before, part.start_line, content)
        # Between two cuts is nothing but white space; the line numbers say how many line ends.
        lines = part.start_line - before.end_line
        written.append("" if overlap else "\n" * lines if lines > 0 else " ")
        written.append(content[overlap:])
    return "".join(written)


def _without_repeated_header(part: Hit, written: Iterable[str]) -> str:
    """The passage without the rows above its first line: the header of a table cut in two.

    A passage that has more lines than its line numbers cover begins with such rows. They stay
    unless the text before has them too.
    """
    rows = part.content[:-1].count("\n") - (part.end_line - part.start_line)
    if rows <= 0:
        return part.content
    lines = part.content.split("\n")
    header = "\n".join(lines[:rows])
    known = any(f"\n{header}\n" in f"\n{text}\n" for text in written)
    return "\n".join(lines[rows:]) if known else part.content


def _overlap(before: Hit, start_line: int, content: str) -> int:
    """How many characters of ``content`` are the end of the passage before it.

    The longest match that begins on the line where the passage says it begins: equal lines on both
    sides of a cut (closing brackets, rows) are not taken for one.
    """
    tail = before.content[-_LONGEST_OVERLAP:]
    last = len(tail) - 1
    for _ in range(before.end_line - start_line):
        last = tail.rfind("\n", 0, max(0, last))
    if start_line > before.end_line or last < 0:
        return 0
    for start in range(tail.rfind("\n", 0, last) + 1, last + 1):
        if content.startswith(tail[start:]):
            return len(tail) - start
    return 0

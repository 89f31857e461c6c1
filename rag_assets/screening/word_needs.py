"""A pattern in, the words out without which no text matches it: most need not be tried at all.

A need is a set of beginnings of words (2 to 7 letters), one of which the text must have; a pattern
has several needs, and a text must meet them all. What cannot be told is no need, so a pattern may
be tried in vain but is never left out wrongly.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

LONGEST_BEGINNING: Final = 7
SHORTEST_BEGINNING: Final = 2

Need = frozenset[bytes]

_WORD_CHARACTERS: Final = string.ascii_lowercase + string.digits
_SPACES: Final = bytes(code if chr(code) in _WORD_CHARACTERS else ord(" ") for code in range(256))
"""Leaves the letters and digits of words, lower case."""
_QUANTIFIER: Final = re.compile(r"[*+?]|\{(\d+)(?:,\d*)?\}")
_CLASS: Final = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_CLASSES: Final = frozenset("wdsWDS")
_ZERO_WIDTH: Final = frozenset("bBAz")


def beginnings(text: bytes) -> set[bytes]:
    """The beginnings of the words of a text in lower case, of every length that a need has."""
    longest = {word[:LONGEST_BEGINNING] for word in set(text.translate(_SPACES).split())}
    found = longest
    for size in range(SHORTEST_BEGINNING, LONGEST_BEGINNING):
        found = found | {beginning[:size] for beginning in longest}
    return found


def alternatives(pattern: str) -> list[str]:
    """The patterns between the outermost ``|``: each alone needs more than all together."""
    reader = _Reader(pattern)
    parts, start = [], 0
    while start <= len(pattern):
        _, _, end = reader.sequence(start, at_start=False)
        parts.append(pattern[start:end])
        start = end + 1
    return parts


def word_needs(pattern: str) -> tuple[Need, ...]:
    """The needs of an RE2 pattern over text in lower case, smallest first."""
    needs, _, end = _Reader(pattern).alternatives(0, at_start=False)
    assert end == len(pattern), pattern
    return tuple(sorted(set(needs), key=len))


@dataclass(slots=True)
class _Reader:
    """Reads the part of RE2's syntax that the pattern files use."""

    pattern: str

    def alternatives(self, place: int, *, at_start: bool) -> tuple[list[Need], bool, int]:
        """Needs, whether a word may only begin after it, and where it ends (``)`` or the end)."""
        branches: list[list[Need]] = []
        starts = True
        while True:
            needs, ends_at_start, place = self.sequence(place, at_start=at_start)
            branches.append(needs)
            starts = starts and ends_at_start
            if place >= len(self.pattern) or self.pattern[place] == ")":
                break
            place += 1  # the "|"
        if len(branches) == 1:
            return branches[0], starts, place
        if not all(branches):
            return [], starts, place
        best = [min(needs, key=_commonness) for needs in branches]
        return [frozenset().union(*best)], starts, place

    def sequence(self, place: int, *, at_start: bool) -> tuple[list[Need], bool, int]:
        """Needs up to the next ``|`` or ``)``, whether a word may only begin there, and where."""
        needs: list[Need] = []
        run = ""  # letters read since a word began
        while place < len(self.pattern) and self.pattern[place] not in "|)":
            begins, element, place, count = self._element(place, at_start and not run)
            if isinstance(element, str) and element.isalnum() and count == "1":
                if run or at_start:
                    run += element
                continue
            needs += _need_of(run)
            if isinstance(element, list) and count != "0":
                needs += element
            # After an optional element a word begins only if it did so before, too.
            at_start = begins and (count != "0" or (at_start and not run))
            run = ""
        return [*needs, *_need_of(run)], at_start and not run, place

    def _element(self, place: int, at_start: bool) -> tuple[bool, str | list[Need], int, str]:
        """Whether a word begins after it, the character or needs, its end, how often it comes.

        That is ``1``, ``0`` (none will do) or ``+`` (at least once).
        """
        character = self.pattern[place]
        element: str | list[Need] = ""
        if character == "(":
            inner = place + (3 if self.pattern.startswith("(?:", place) else 1)
            element, begins, place = self.alternatives(inner, at_start=at_start)
            place += 1
        elif character == "[":
            match = _CLASS.match(self.pattern, place)
            assert match is not None
            begins, place = _is_gap(match[0]), match.end()
        elif character == "\\":
            escaped = self.pattern[place + 1]
            element = "" if escaped in _ZERO_WIDTH | _CLASSES else _unescape(escaped)
            # A letter right after \b begins a word; anything else decides by itself.
            begins = escaped in _ZERO_WIDTH or _is_gap(self.pattern[place : place + 2])
            place += 2
        else:
            begins = character in "^$" or (character != "." and not character.isalnum())
            element = "" if character in "^$." else character
            place += 1
        count, place = self._count(place)
        return begins, element, place, count

    def _count(self, place: int) -> tuple[str, int]:
        """How often the element before ``place`` comes, and where its quantifier ends."""
        match = _QUANTIFIER.match(self.pattern, place)
        if match is None:
            return "1", place
        none_will_do = match[0] in "*?" or match[1] == "0"
        end = match.end()
        if end < len(self.pattern) and self.pattern[end] == "?":
            end += 1  # lazy
        return ("0" if none_will_do else "+"), end


def _need_of(run: str) -> Iterator[Need]:
    if len(run) >= SHORTEST_BEGINNING:
        yield frozenset([run[:LONGEST_BEGINNING].encode("ascii")])


def _commonness(need: Need) -> tuple[int, int]:
    """Fewer and longer beginnings are rarer."""
    short = sum(len(beginning) < LONGEST_BEGINNING for beginning in need)
    return short, len(need)


def _unescape(escaped: str) -> str:
    return {"n": "\n", "t": "\t", "r": "\r"}.get(escaped, escaped)


@lru_cache(maxsize=512)
def _is_gap(written: str) -> bool:
    """True for a class that matches no letter and no digit."""
    if written[0] == "\\" and written[1] not in _CLASSES:
        return not _unescape(written[1]).isalnum()
    expression = re.compile(written)
    return not any(expression.match(character) for character in _WORD_CHARACTERS)

"""Sets of RE2 patterns matched in linear time, most of which most texts need not be tried with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

from rag_assets.screening.word_needs import alternatives, word_needs

MAX_MATCHES_PER_RULE: Final = 50
"""Of one text: a text made of matches must not cost more than another."""
MAX_REJECTED_PER_RULE: Final = 5_000
"""Matches that a rule looked at and did not accept, before it leaves the text."""
GROUP_SIZE: Final = 6
"""Patterns joined into one: larger groups have automata too large to stay in memory."""

_MEMORY_BYTES: Final = 64 << 20
"""RE2's budget for one pattern; beyond it RE2 is slower, never wrong."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A named RE2 pattern over ASCII bytes, and what a match must also satisfy."""

    name: str
    pattern: str
    accepts: Callable[[Any], bool] | None = None
    """Called with the match; None: every match counts."""


class WordRules:
    """Rules made of words: each is tried where the words it needs are there.

    Patterns are over text in lower case, and so must the text be.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = [
            (Rule(rule.name, pattern, rule.accepts), word_needs(pattern))
            for rule in rules
            for pattern in alternatives(rule.pattern)
        ]
        self._by_word: dict[bytes, list[int]] = {}
        self._always: list[int] = []
        self._compiled: dict[int, Any] = {}
        for place, (_, needs) in enumerate(self._rules):
            for word in needs[0] if needs else ():
                self._by_word.setdefault(word, []).append(place)
            if not needs:
                self._always.append(place)

    def matches(self, text: bytes, words: Set[bytes]) -> Iterator[tuple[str, int]]:
        """Rule names with the 1-based line at which they match; ``words``: its ``beginnings``."""
        places = {*self._always}
        for word in self._by_word.keys() & words:
            places.update(self._by_word[word])
        for place in sorted(places):
            rule, needs = self._rules[place]
            if not any(need.isdisjoint(words) for need in needs[1:]):
                yield from _lines(rule, self._regexp(place), text)

    def _regexp(self, place: int) -> Any:
        """Compiled when first needed: most processes never need most of them."""
        if place not in self._compiled:
            self._compiled[place] = compile_pattern(self._rules[place][0].pattern)
        return self._compiled[place]


class GroupedRules:
    """Rules without words or literals to look for: groups of them are tried at once."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._groups = []
        for start in range(0, len(rules), GROUP_SIZE):
            members = [(rule, compile_pattern(rule.pattern)) for rule in rules[start:][:GROUP_SIZE]]
            whole = "|".join(f"(?:{rule.pattern})" for rule, _ in members)
            self._groups.append((compile_pattern(whole, captures=False), members))

    def matches(self, text: bytes) -> Iterator[tuple[str, int]]:
        """Rule names with the 1-based line at which they match, rule by rule."""
        for group, members in self._groups:
            if group.search(text) is not None:
                for rule, regexp in members:
                    yield from _lines(rule, regexp, text)


class LiteralRules:
    """Rules that hold a rare literal: one pass for the literals tells which must be tried."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        import re2

        self._rules = tuple(rules)
        self._filter = re2.Filter()
        for rule in self._rules:
            self._filter.Add(rule.pattern.encode("ascii"), options=_options())
        self._filter.Compile()

    def matches(self, text: bytes) -> Iterator[tuple[str, int]]:
        """Rule names with the 1-based line at which they match, rule by rule."""
        for index in self._filter.Match(text, potential=True) or ():
            yield from _lines(self._rules[index], self._filter.re(index), text)


def compile_pattern(pattern: str, *, captures: bool = True) -> Any:
    """One RE2 pattern over bytes.

    Raises:
        re2.error: RE2 does not know the syntax.
    """
    import re2

    options = _options()
    options.never_capture = not captures
    return re2.compile(pattern.encode("ascii"), options=options)


def _options() -> Any:
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = _MEMORY_BYTES
    options.log_errors = False
    return options


def _lines(rule: Rule, regexp: Any, text: bytes) -> Iterator[tuple[str, int]]:
    line, done = 1, 0
    for offset in _accepted(rule, regexp, text):
        line += text.count(b"\n", done, offset)
        done = offset
        yield rule.name, line


def _accepted(rule: Rule, regexp: Any, text: bytes) -> Iterator[int]:
    accepted = rejected = 0
    for match in regexp.finditer(text):
        if rule.accepts is None or rule.accepts(match):
            accepted += 1
            yield _first_visible(match)
        else:
            rejected += 1
        if accepted >= MAX_MATCHES_PER_RULE or rejected >= MAX_REJECTED_PER_RULE:
            return


def _first_visible(match: Any) -> int:
    """Where the match begins, without the white space in front."""
    start = int(match.start())
    matched: bytes = match[0]
    return start + len(matched) - len(matched.lstrip())

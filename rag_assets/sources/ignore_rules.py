"""The patterns of an ignore file, read and matched as git reads and matches a ``.gitignore``.

pathspec with RE2 does the matching, so no pattern can take more than linear time. The patterns are
translated here, because those of pathspec's ``GitIgnoreSpec`` also match whatever lies below a
match: they cannot tell that ``drafts`` was excluded by one line and ``drafts/keep.md`` brought back
by another, which git refuses.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rag_assets.errors import ConfigurationError
from rag_assets.path_globs import matchable, refuse_impossible, translate_glob

if TYPE_CHECKING:
    from pathspec import PathSpec
    from pathspec.pattern import RegexPattern

PATTERNS_PER_SET: Final = 500
"""RE2's default budget of 8 MB compiles 2,000 patterns with three stars each, and not 4,000."""


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """One pattern of an ignore file."""

    pattern: str
    """As written, without white space at its end."""
    line: int
    """1-based."""
    negated: bool
    """True for ``!pattern``, which brings back what an earlier line excluded."""


class IgnoreRules:
    """All patterns of one ignore file, compiled.

    Raises:
        ConfigurationError: a pattern that git would silently never match, or that is too large. It
            was meant to exclude something, so going on without it could publish that.
    """

    def __init__(self, text: str, file: str = ".aiignore") -> None:
        self.file = file
        self._rules: list[IgnoreRule] = []
        regexes: list[str] = []
        for rule, body in _parse(text):
            try:
                regexes.append(_to_regex(body))
            except ValueError as exc:
                raise ConfigurationError(
                    f"{file}:{rule.line} {rule.pattern!r}: {exc}; correct or remove the pattern"
                ) from exc
            self._rules.append(rule)
        self._sets = self._compile(regexes)

    def decide(self, path: str, *, is_dir: bool) -> IgnoreRule | None:
        """The rule that excludes ``path`` or the nearest excluded folder above it, or None."""
        at = path.find("/")
        while at != -1:
            if (rule := self.decide_entry(path[:at], is_dir=True)) is not None:
                return rule
            at = path.find("/", at + 1)
        return self.decide_entry(path, is_dir=is_dir)

    def decide_entry(self, path: str, *, is_dir: bool) -> IgnoreRule | None:
        """Like ``decide`` for an entry whose folders are known not to be excluded."""
        if not self._rules:
            return None
        text = ("d/" if is_dir else "f/") + matchable(path)
        for first, patterns in reversed(self._sets):
            index = patterns.check_file(text, separators=()).index
            if index is None:  # not even the pattern that matches everything: RE2 gave up
                raise ConfigurationError(
                    f"{self.file}: the patterns are too complex to be matched; simplify them"
                )
            if index > 0:
                rule = self._rules[first + index - 1]
                return None if rule.negated else rule
        return None

    def _compile(self, regexes: list[str]) -> list[tuple[int, PathSpec[RegexPattern]]]:
        if not regexes:
            return []
        from pathspec import PathSpec
        from pathspec.pattern import RegexPattern
        from re2 import error as re2_error

        sets = []
        for first in range(0, len(regexes), PATTERNS_PER_SET):
            # Pattern 0 matches everything: without an answer from it RE2 ran out of memory.
            chunk = ["^", *regexes[first : first + PATTERNS_PER_SET]]
            try:
                patterns = [RegexPattern(re.compile(regex), include=True) for regex in chunk]
                sets.append((first, PathSpec(patterns, backend="re2")))
            except (re2_error, re.error, RecursionError) as exc:
                lines = [rule.line for rule in self._rules[first : first + PATTERNS_PER_SET]]
                raise ConfigurationError(
                    f"{self.file}:{lines[0]} the patterns from here to line {lines[-1]} are too "
                    f"complex to be compiled ({exc}); simplify them"
                ) from exc
        return sets


def _parse(text: str) -> Iterator[tuple[IgnoreRule, str]]:
    """Each rule with its pattern in NFC, ``!`` taken off."""
    text = unicodedata.normalize("NFC", text.removeprefix("\ufeff"))
    for number, raw in enumerate(re.split(r"\r\n|\n|\r", text), start=1):
        line = _without_trailing_blanks(raw)
        if not line or line.startswith("#"):
            continue
        negated = line.startswith("!")
        yield IgnoreRule(line, number, negated), line[1:] if negated else line


def _without_trailing_blanks(line: str) -> str:
    """Without spaces and tabs at the end; a space after a backslash stays."""
    stripped = line.rstrip(" \t")
    backslashes = len(stripped) - len(stripped.rstrip("\\"))
    return line[: len(stripped) + 1] if backslashes % 2 else stripped


def _to_regex(pattern: str) -> str:
    """The regular expression of exactly the entries that git matches: ``d/<folder>``, ``f/<file>``.

    Written after the "PATTERN FORMAT" of gitignore(5) and checked against ``git check-ignore``; a
    character is one Unicode character here, one byte in git.
    """
    folder_only = pattern.endswith("/")
    glob = pattern[:-1] if folder_only else pattern
    anchored = "/" in glob
    glob = glob.removeprefix("/")
    refuse_impossible(glob)
    body = translate_glob(glob.replace("\\/", "/"), stars_after_text=anchored)
    kind = "d" if folder_only else "[df]"
    return f"^{kind}/{'' if anchored else '(?:[^/]+/)*'}{body}$"

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

if TYPE_CHECKING:
    from pathspec import PathSpec
    from pathspec.pattern import RegexPattern

MAX_PATTERN_CHARACTERS: Final = 4096
"""PATH_MAX on Linux: a longer pattern is a mistake."""
MAX_WILDCARDS: Final = 100
"""RE2 needs about 1 ms for a 4 kB path and a pattern of 100 stars, 760 ms for one of 2,000."""
PATTERNS_PER_SET: Final = 500
"""RE2's default budget of 8 MB compiles 2,000 patterns with three stars each, and not 4,000."""

# As git's wildmatch.c has them: ASCII only.
_CLASSES: Final = {
    "alnum": ((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A)),
    "alpha": ((0x41, 0x5A), (0x61, 0x7A)),
    "blank": ((0x09, 0x09), (0x20, 0x20)),
    "cntrl": ((0x00, 0x1F), (0x7F, 0x7F)),
    "digit": ((0x30, 0x39),),
    "graph": ((0x21, 0x7E),),
    "lower": ((0x61, 0x7A),),
    "print": ((0x20, 0x7E),),
    "punct": ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)),
    "space": ((0x09, 0x0D), (0x20, 0x20)),
    "upper": ((0x41, 0x5A),),
    "xdigit": ((0x30, 0x39), (0x41, 0x46), (0x61, 0x66)),
}
_SLASH: Final = ord("/")


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
        text = ("d/" if is_dir else "f/") + _matchable(path)
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


def _matchable(path: str) -> str:
    """NFC, and without the lone surrogates that RE2 cannot take."""
    if path.isascii():
        return path
    return unicodedata.normalize("NFC", path).encode("utf-8", "backslashreplace").decode()


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
    _refuse_what_never_matches(glob)
    body = _translate(glob.replace("\\/", "/"), anchored=anchored)
    kind = "d" if folder_only else "[df]"
    return f"^{kind}/{'' if anchored else '(?:[^/]+/)*'}{body}$"


def _refuse_what_never_matches(glob: str) -> None:
    if len(glob) > MAX_PATTERN_CHARACTERS:
        raise ValueError(f"longer than {MAX_PATTERN_CHARACTERS} characters")
    if glob.count("*") + glob.count("?") > MAX_WILDCARDS:
        raise ValueError(f"more than {MAX_WILDCARDS} wildcards")
    segments = glob.split("/")
    if "" in segments:
        raise ValueError("an empty name never matches")
    if "." in segments or ".." in segments:
        raise ValueError("paths begin at the root of the source, so '.' and '..' never match")
    if any(unicodedata.category(character) == "Cc" for character in glob):
        raise ValueError("a control character never matches")


def _translate(glob: str, *, anchored: bool) -> str:
    parts: list[str] = []
    at, end = 0, len(glob)
    while at < end:
        character = glob[at]
        if character == "*":
            part, at = _translate_stars(glob, at, anchored=anchored)
        elif character == "?":
            part, at = "[^/]", at + 1
        elif character == "[":
            part, at = _translate_bracket(glob, at + 1)
        else:
            if character == "\\":
                at += 1
                if at == end:
                    raise ValueError("a backslash at the end never matches")
            part, at = re.escape(glob[at]), at + 1
        parts.append(part)
    return "".join(parts)


def _translate_stars(glob: str, at: int, *, anchored: bool) -> tuple[str, int]:
    """One star stays within a name; two between slashes stand for any number of folders.

    Two stars after nothing but plain text do too (``a/b**/c``): git compares that text first and
    matches the rest as if the pattern began there, though its manual says otherwise.
    """
    end = at
    while end < len(glob) and glob[end] == "*":
        end += 1
    after_slash = at == 0 or glob[at - 1] == "/"
    after_text = anchored and not any(special in glob[:at] for special in "*?[\\")
    closed = end == len(glob) or glob[end] == "/"
    if end - at < 2 or not closed or not (after_slash or after_text):
        return "[^/]*", end
    if end < len(glob):
        return "(?:[^/]*/)*", end + 1
    return "[^/]+(?:/[^/]+)*" if after_slash else "[^/]*(?:/[^/]+)*", end


def _translate_bracket(glob: str, at: int) -> tuple[str, int]:
    """The set that begins after the ``[`` before ``at``; it never holds a slash."""
    negated = glob[at : at + 1] in ("!", "^")
    ranges, at = _bracket_ranges(glob, at + negated)
    if negated:
        ranges.append((_SLASH, _SLASH))
        return f"[^{_escape_ranges(ranges)}]", at
    apart = [
        piece
        for low, high in ranges
        for piece in ((low, min(high, _SLASH - 1)), (max(low, _SLASH + 1), high))
    ]
    inside = _escape_ranges(apart)
    if not inside:
        raise ValueError("an empty set never matches")
    return f"[{inside}]", at


def _bracket_ranges(glob: str, at: int) -> tuple[list[tuple[int, int]], int]:
    """The ranges of code points of a set, and where the text goes on after its ``]``."""
    ranges: list[tuple[int, int]] = []
    start, previous = at, None
    while glob[at : at + 1] != "]" or at == start:
        close = glob.find("]", at + 2) if glob.startswith("[:", at) else -1
        if close > at + 2 and glob[close - 1] == ":":
            ranges.extend(_class_ranges(glob[at + 2 : close - 1]))
            previous, at = None, close + 1
            continue
        if previous is not None and glob[at : at + 1] == "-" and glob[at + 1 : at + 2] not in "]":
            high, at = _bracket_character(glob, at + 1)
            ranges.append((previous, high))
            previous = None
            continue
        previous, at = _bracket_character(glob, at)
        ranges.append((previous, previous))
    return ranges, at + 1


def _class_ranges(name: str) -> tuple[tuple[int, int], ...]:
    if name not in _CLASSES:
        raise ValueError(f"there is no class [:{name}:]")
    return _CLASSES[name]


def _bracket_character(glob: str, at: int) -> tuple[int, int]:
    at += glob[at : at + 1] == "\\"
    if at >= len(glob):
        raise ValueError("a '[' without its ']' never matches")
    return ord(glob[at]), at + 1


def _escape_ranges(ranges: list[tuple[int, int]]) -> str:
    """In the notation that Python's ``re`` and RE2 share."""
    return "".join(
        f"{_escape_code(low)}-{_escape_code(high)}" for low, high in ranges if low <= high
    )


def _escape_code(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x80 else chr(code)

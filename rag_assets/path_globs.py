"""Patterns over relative POSIX paths, shared by access rules, search filters and ignore files.

A pattern without any of ``* ? [`` is a prefix of whole names: ``guides`` stands for a document of
that name and for all below a folder of that name, ``guides/`` only for the latter. A pattern with
one of them is a glob over the whole path: ``*`` and ``?`` stay within a name, ``**/`` stands for
any number of folders (none, too), ``/**`` for everything below, ``[abc]``, ``[a-z]`` and ``[!a]``
for one character that is no slash, and a backslash takes its meaning from the character after it.
A glob that ends with ``/`` stands for everything below the folders it matches. Case counts;
characters are compared in NFC.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, Final

MAX_PATTERN_CHARACTERS: Final = 4096
"""PATH_MAX on Linux: a longer pattern is a mistake."""
MAX_WILDCARDS: Final = 100
"""RE2 needs about 1 ms for a 4 kB path and a pattern of 100 stars, 760 ms for one of 2,000."""
MAX_TOTAL_CHARACTERS: Final = 40_000
"""Of all globs compiled together; the worst of that size need 0.4 s to compile, and 0.5 ms for a
path of 30 characters, 240 ms for one of 4,000."""
GLOBS_PER_EXPRESSION: Final = 50
"""Joined into one expression, they are matched in one pass."""

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
_WILDCARD: Final = re.compile(r"[*?\[]")
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def compile_paths(patterns: Sequence[str]) -> Callable[[str], bool]:
    """A function that tells whether a path matches any of the patterns; it never raises.

    Globs are matched by RE2, in time linear in the path. No patterns match nothing.

    Raises:
        ValueError: a pattern that could never match, or is too large; the message is a sentence
            that names it.
        TypeError: one str where a sequence of str is needed.
    """
    if isinstance(patterns, str):
        raise TypeError("patterns must be a sequence of str, not a str")
    prefixes: set[str] = set()
    globs: list[str] = []
    total = sum(len(pattern) for pattern in patterns if _WILDCARD.search(pattern))
    if total > MAX_TOTAL_CHARACTERS and len(patterns) > 1:
        raise ValueError(
            f"the path patterns together have {total:,} characters, more than "
            f"{MAX_TOTAL_CHARACTERS:,}; use fewer of them, or prefixes"
        )
    for pattern in patterns:
        try:
            _sort_in(pattern, prefixes, globs)
        except ValueError as exc:
            shown = pattern if len(pattern) <= 80 else pattern[:79] + "…"
            raise ValueError(f"path pattern {shown!r}: {exc}") from None
    expressions = _compile(globs)
    names = frozenset(prefixes)

    def matches(path: str) -> bool:
        text = matchable(path)
        if names and _has_prefix(text, names):
            return True
        return any(expression.fullmatch(text) is not None for expression in expressions)

    return matches


def matchable(path: str) -> str:
    """NFC, with U+FFFD for each lone surrogate, which RE2 cannot take."""
    if path.isascii():
        return path
    return _LONE_SURROGATE.sub("\ufffd", unicodedata.normalize("NFC", path))


def refuse_impossible(glob: str) -> None:
    """Make sure that a glob without ``/`` at either end could match some path, in fair time.

    Raises:
        ValueError: it could not; the message says why, without naming the glob.
    """
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


def translate_glob(glob: str, *, stars_after_text: bool = False) -> str:
    """A regular expression, without anchors, in the notation that ``re`` and RE2 share.

    ``stars_after_text`` lets ``**`` stand for folders behind plain text too (``a/b**/c``), as git
    does.

    Raises:
        ValueError: a set or a backslash is left open, or a set is empty or has an unknown class.
    """
    parts: list[str] = []
    at, end = 0, len(glob)
    while at < end:
        character = glob[at]
        if character == "*":
            part, at = _translate_stars(glob, at, after_text=stars_after_text)
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


def _sort_in(pattern: str, prefixes: set[str], globs: list[str]) -> None:
    """Check one pattern and add it to the prefixes, or its expression to the globs."""
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise ValueError(f"longer than {MAX_PATTERN_CHARACTERS} characters")
    if not pattern.strip():
        raise ValueError("it is blank; name a file or folder, or use '**' for all")
    if pattern.startswith("/"):
        raise ValueError("it is absolute; write it relative to the root of the source")
    if _LONE_SURROGATE.search(pattern):
        raise ValueError("it is not valid Unicode")
    text = unicodedata.normalize("NFC", pattern)
    plain = text[:-1] if text.endswith("/") else text
    refuse_impossible(plain)
    if _WILDCARD.search(text):
        globs.append(translate_glob(text + "**" if text.endswith("/") else text))
    else:
        prefixes.add(text)


def _has_prefix(path: str, prefixes: frozenset[str]) -> bool:
    """Whether the path, or a folder above it with or without its slash, is among them."""
    if path in prefixes:
        return True
    at = path.find("/")
    while at != -1:
        if path[:at] in prefixes or path[: at + 1] in prefixes:
            return True
        at = path.find("/", at + 1)
    return False


def _compile(globs: Sequence[str]) -> tuple[Any, ...]:
    """RE2 expressions that together stand for all the translated globs."""
    if not globs:
        return ()
    import re2

    options = re2.Options()
    options.log_errors = False
    expressions: list[Any] = []
    waiting = [
        globs[first : first + GLOBS_PER_EXPRESSION]
        for first in range(0, len(globs), GLOBS_PER_EXPRESSION)
    ]
    while waiting:
        group = waiting.pop()
        try:
            expressions.append(re2.compile("|".join(group), options=options))
        except re2.error as exc:
            if len(group) == 1:
                raise ValueError(f"a path pattern is too complex ({exc}); simplify it") from exc
            middle = len(group) // 2
            waiting += [group[:middle], group[middle:]]
    return tuple(expressions)


def _translate_stars(glob: str, at: int, *, after_text: bool) -> tuple[str, int]:
    """One star stays within a name; two between slashes stand for any number of folders.

    Two stars after nothing but plain text do too (``a/b**/c``) where ``after_text`` says so: git
    compares that text first and matches the rest as if the pattern began there, though its manual
    says otherwise.
    """
    end = at
    while end < len(glob) and glob[end] == "*":
        end += 1
    after_slash = at == 0 or glob[at - 1] == "/"
    after_text = after_text and not any(special in glob[:at] for special in "*?[\\")
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

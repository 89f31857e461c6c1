"""Decoded text in; scalar metadata, ACL tags and the body out, or the reason to publish nothing.

Front matter is a block at the very beginning, between two lines of exactly ``---`` (white space may
follow), that reads as a YAML mapping. Anything else is body. Only ``key: value`` scalars are
interpreted, as the strings that people typed; lists, nested mappings, block scalars, aliases and
tagged values are left out with a warning. YAML is read as a stream of events: no object is built,
no alias is followed. A block that YAML refuses is read line by line.

Who may read the document must never be lost: whenever something that looks like an ``acl`` key is
there and cannot be read beyond doubt, ``AclUnreadable`` is raised instead of a guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rag_assets.documents.acl_key import (
    AclUnreadable,
    find_acl_line,
    looks_like_acl,
    misplaced_acl_line,
    parse_tags,
)
from rag_assets.documents.yaml_entries import Entry, NotYaml, read_entries, read_lines

MAX_KEYS: Final = 1_000
MAX_KEY_CHARACTERS: Final = 200
MAX_VALUE_CHARACTERS: Final = 2_000
MAX_NAMED: Final = 10
"""How many keys one warning names."""
MAX_YAML_CHARACTERS: Final = 65_536
"""A larger block is read line by line: YAML parsers are not linear on every input."""

_LINE_END: Final = r"(?:\r\n|\n|\r)"
_OPENING: Final = re.compile(rf"---[ \t]*{_LINE_END}")
_CLOSING: Final = re.compile(rf"(?<=[\r\n])---[ \t]*(?:{_LINE_END}|\Z)")
_KEY_LINE: Final = re.compile(r"[A-Za-z_][\w .-]{0,60}:(?:\s|\Z)")


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """What stands above and below the closing fence."""

    body: str = field(repr=False)
    body_start_line: int = 1
    """1-based line of the text at which ``body`` begins."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    acl_tags: tuple[str, ...] | None = None
    """None when the document does not say."""
    warnings: tuple[str, ...] = ()
    """Each begins with its line (``line 3: ...``)."""


def read_front_matter(text: str) -> FrontMatter:
    """Take the front matter off ``text`` (decoded, without byte order mark).

    Raises:
        AclUnreadable: an ``acl`` key is there, or seems to be, but cannot be read.
    """
    opening = _OPENING.match(text)
    if opening is None:
        line = misplaced_acl_line(text)
        if line is not None:
            raise AclUnreadable(
                line,
                "something like an `acl` key stands outside of front matter. Front matter begins "
                "on the first line of the file with exactly `---` and ends with such a line",
            )
        return FrontMatter(text)
    closing = _CLOSING.search(text, opening.end())
    if closing is None:
        return _unclosed(text, opening.end())
    block = text[opening.end() : closing.start()]
    entries, warnings = _understand(block)
    if entries is None:
        _refuse_lost_acl(block, "the front matter cannot be read as `key: value` lines")
        return FrontMatter(text, warnings=tuple(warnings))
    acl_tags = _acl_tags(entries)
    metadata, more = _metadata(entries)
    return FrontMatter(
        body=text[closing.end() :],
        body_start_line=1 + _count_line_ends(text[: closing.end()]),
        metadata=metadata,
        acl_tags=acl_tags,
        warnings=(*warnings, *more),
    )


def _unclosed(text: str, start: int) -> FrontMatter:
    _refuse_lost_acl(text[start:], "the front matter is not closed by a line of exactly `---`")
    if _KEY_LINE.match(text, start):
        return FrontMatter(
            text,
            warnings=(
                "line 1: the front matter is not closed by a line of exactly `---`; "
                "it was read as text",
            ),
        )
    return FrontMatter(text)


def _refuse_lost_acl(block: str, what: str) -> None:
    line = find_acl_line(block)
    if line is not None:
        raise AclUnreadable(line + 1, f"{what}, and it seems to hold an `acl` key")


def _understand(block: str) -> tuple[list[Entry] | None, list[str]]:
    """Entries of the block, None when it is not a mapping; and warnings."""
    if not block.strip():
        return [], []
    if len(block) <= MAX_YAML_CHARACTERS:
        try:
            entries = read_entries(block)
        except NotYaml as error:
            warning = f"line {error.line + 1}: the front matter is not valid YAML ({error})"
        else:
            if entries is None and _KEY_LINE.search(block):
                return None, ["line 1: the front matter is not a mapping; it was read as text"]
            return entries, []
    else:
        warning = f"line 1: the front matter is longer than {MAX_YAML_CHARACTERS:,} characters"
    entries = read_lines(block)
    if entries is None:
        return None, [f"{warning}; it was read as text"]
    return entries, [f"{warning}; it was read line by line"]


def _acl_tags(entries: Sequence[Entry]) -> tuple[str, ...] | None:
    """The tags of the one ``acl`` entry, None without one.

    Raises:
        AclUnreadable: more than one, misspelt, or not a scalar of tags.
    """
    found = [entry for entry in entries if looks_like_acl(entry.key)]
    if not found:
        return None
    entry = found[-1]
    if len(found) > 1:
        raise AclUnreadable(entry.line + 1, "the `acl` key is there more than once. Keep one")
    if entry.key.casefold() != "acl":
        raise AclUnreadable(
            entry.line + 1, "the key there looks like `acl` but is not. Write `acl`"
        )
    if entry.problem:
        raise AclUnreadable(entry.line + 1, f"the value of `acl` is {entry.problem}")
    return parse_tags(entry.value, entry.line + 1, is_null=entry.is_null)


def _metadata(entries: Sequence[Entry]) -> tuple[dict[str, str], list[str]]:
    metadata: dict[str, str] = {}
    left_out: list[Entry] = []
    repeated: list[Entry] = []
    cut: list[Entry] = []
    for entry in entries:
        if looks_like_acl(entry.key):
            continue  # who else may see a document is not for its readers
        if entry.problem or len(entry.key) > MAX_KEY_CHARACTERS or len(metadata) >= MAX_KEYS:
            left_out.append(entry)
            continue
        if len(entry.value) > MAX_VALUE_CHARACTERS:
            cut.append(entry)
        if entry.key in metadata:
            repeated.append(entry)
        metadata[entry.key] = entry.value[:MAX_VALUE_CHARACTERS]
    warnings = (
        _about(left_out, "left out of the metadata, where only `key: value` lines are kept"),
        _about(repeated, "more than once, the last one counts"),
        _about(cut, f"cut to {MAX_VALUE_CHARACTERS:,} characters"),
    )
    return metadata, [warning for warning in warnings if warning]


def _about(entries: Sequence[Entry], what: str) -> str:
    """One warning for all of ``entries``; empty when there are none."""
    if not entries:
        return ""
    named = [
        repr(entry.key[:60]) + (f" ({entry.problem})" if entry.problem else "")
        for entry in entries[:MAX_NAMED]
    ]
    more = f" and {len(entries) - MAX_NAMED} more" if len(entries) > MAX_NAMED else ""
    return f"line {entries[0].line + 1}: {what}: {', '.join(named)}{more}"


def _count_line_ends(text: str) -> int:
    return text.count("\n") + text.count("\r") - text.count("\r\n")

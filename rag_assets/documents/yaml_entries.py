"""The text between the fences in, its top-level entries out; values are never interpreted."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import yaml

from rag_assets.documents.acl_key import AclUnreadable, find_acl_line, looks_like_acl

_LOADER: Final[Any] = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_MERGE_KEY: Final = "<<"
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_LINE: Final = re.compile(r"(?P<key>[^\s:#\-\[\]{},&*!|>%@`][^:]*):(?:[ \t]+(?P<value>.*))?")
_NOT_SCALAR: Final = {
    "[": "a list",
    "{": "a mapping",
    "|": "a block of lines",
    ">": "a block of lines",
    "&": "an anchor",
    "*": "an alias",
    "!": "a tagged value",
}


class Entry(NamedTuple):
    """One top-level key with its value."""

    key: str
    line: int
    """1-based line of the block."""
    value: str
    """As typed, quotes and their escapes undone; empty when ``problem`` is not."""
    problem: str = ""
    """Why the value is not a plain scalar (``a list``)."""
    is_null: bool = False
    """Nothing was typed, or one of YAML's words for nothing."""


class NotYaml(Exception):
    """The block is not valid YAML."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line
        """1-based line of the block."""


def read_entries(block: str) -> list[Entry] | None:
    """Top-level entries of a YAML mapping, None when the block is something else.

    Raises:
        NotYaml: the block is not valid YAML.
        AclUnreadable: an ``acl`` key inside a nested value, or one that a merge key may bring.
    """
    reader = _Reader()
    try:
        for event in yaml.parse(block, Loader=_LOADER):
            if not reader.take(event):
                return None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise NotYaml(line, error.problem or "not understood") from error
    except (yaml.YAMLError, ValueError) as error:
        raise NotYaml(1, "a character that YAML does not allow") from error
    return reader.entries if reader.is_mapping else None


class _Reader:
    """Follows YAML events at any depth without recursion."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.is_mapping = False
        self._expects_key: list[bool | None] = []
        """For each open collection: whether a key comes next; None in a sequence."""
        self._key: tuple[str, int] | None = None
        self._documents = 0
        self._indirect_line = 0
        """Line of a merge key, or of a key that is not a scalar."""
        self._acl_line = 0

    def take(self, event: Any) -> bool:
        """Take one event; False when the block cannot be a single mapping of entries."""
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            return self._documents == 1
        if isinstance(event, yaml.NodeEvent):
            if not self._expects_key and not isinstance(event, yaml.MappingStartEvent):
                return False
            self.is_mapping = True
            self._take_node(event)
        if isinstance(event, yaml.CollectionStartEvent):
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            self._expects_key.append(True if is_mapping else None)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._expects_key.pop()
        if self._indirect_line and self._acl_line:
            raise AclUnreadable(
                self._acl_line + 1, "`acl` comes through a merge key or a key that is not a word"
            )
        return True

    def _take_node(self, event: Any) -> None:
        depth = len(self._expects_key)
        is_key = depth > 0 and self._expects_key[-1] is True
        if depth and self._expects_key[-1] is not None:
            self._expects_key[-1] = not self._expects_key[-1]
        line = event.start_mark.line + 1
        is_scalar = isinstance(event, yaml.ScalarEvent)
        if is_scalar and looks_like_acl(event.value):
            self._acl_line = line
            if is_key and depth > 1:
                raise AclUnreadable(line + 1, "an `acl` key stands inside another value")
        if depth == 1 and is_key:
            self._key = (event.value, line) if is_scalar else None
            if not is_scalar or event.value == _MERGE_KEY:
                self._indirect_line = line
        elif depth == 1 and self._key is not None:
            self.entries.append(_entry(*self._key, event))
            self._key = None


def _entry(key: str, line: int, event: Any) -> Entry:
    if isinstance(event, yaml.SequenceStartEvent):
        return Entry(key, line, "", "a list")
    if isinstance(event, yaml.MappingStartEvent):
        return Entry(key, line, "", "a mapping")
    if isinstance(event, yaml.AliasEvent):
        return Entry(key, line, "", "an alias")
    if event.style in ("|", ">"):
        return Entry(key, line, "", "a block of lines")
    if event.tag is not None:
        return Entry(key, line, "", "a tagged value")
    # The style of a plain scalar is "" from libyaml, None from the parser in Python.
    value = event.value.strip()
    is_null = not value if event.style else value in _NULLS
    return Entry(key, line, event.value, is_null=is_null)


def read_lines(block: str) -> list[Entry] | None:
    """Entries of a block that YAML refuses, one line each; None when a line is not of that kind.

    Blank lines and comments are passed over; indented lines and list items make the value above
    them "more than one line".

    Raises:
        AclUnreadable: an ``acl`` key that is not a line of its own at the left margin.
    """
    entries: list[Entry] = []
    for number, line in enumerate(_LINE_END.split(block), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        if line[0] in " \t" or line == "-" or line.startswith(("- ", "-\t")):
            if not entries:
                return None
            if find_acl_line(line) is not None:
                raise AclUnreadable(number + 1, "an `acl` key stands inside another value")
            entries[-1] = entries[-1]._replace(value="", problem="more than one line")
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            return None
        entries.append(_line_entry(match["key"].rstrip(), number, (match["value"] or "").strip()))
    return entries


def _line_entry(key: str, line: int, value: str) -> Entry:
    if value[:1] in _NOT_SCALAR:
        return Entry(_unquoted(key), line, "", _NOT_SCALAR[value[0]])
    if value[:1] not in ("'", '"'):
        value = re.split(r"[ \t]#", value, maxsplit=1)[0].rstrip()
    return Entry(_unquoted(key), line, _unquoted(value), is_null=value in _NULLS)


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value

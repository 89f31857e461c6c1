"""Finds passwords in tables: a Markdown or CSV column whose heading says that it holds them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from rag_assets.screening.placeholders import is_placeholder, looks_like_password, looks_random
from rag_assets.screening.rules import compile_pattern

MAX_ROWS: Final = 200
"""Of one table that are read."""

_LABEL: Final = (
    r"mots? de passe|\bmdp\b|password|passwd|\bpwd\b|\bpass\b|\bsecret\b|passphrase|token|jeton"
    r"|api[ _]key|\bcle\b|\bcode\b|secret_key"
)
_RULE_ROW: Final = re.compile(rb"[ |:-]{3,}$")
_PLAIN_HEADING: Final = re.compile(r"[\w .'()/#-]*$")
_CELL_MARKS: Final = " \t*_`\"'"


def find_in_tables(text: bytes) -> Iterator[int]:
    """1-based lines of table rows that hold a password."""
    done, line = 0, 1
    for match in _label().finditer(text):
        if match.start() < done:
            continue
        start = text.rfind(b"\n", done, match.start()) + 1 or done
        line += text.count(b"\n", done, start)
        done = end = _line_end(text, start)
        heading = text[start:end]
        separator = _separator(heading)
        columns = _secret_columns(_cells(heading, separator)) if separator else []
        if separator and columns:
            for done, secret in _rows(text, end, separator, columns):
                if secret:
                    yield line + text.count(b"\n", start, done)
        line += text.count(b"\n", start, done)


def _rows(
    text: bytes, end: int, separator: bytes, columns: list[int]
) -> Iterator[tuple[int, bool]]:
    """The rows below a heading that ends at ``end``: where each ends, whether it has a secret."""
    width = text.count(separator, text.rfind(b"\n", 0, end) + 1, end)
    for _ in range(MAX_ROWS):
        start, end = end + 1, _line_end(text, end + 1)
        row = text[start:end]
        if separator not in row or (separator != b"|" and row.count(separator) != width):
            return
        secret = not _RULE_ROW.match(row.strip()) and _holds_secret(_cells(row, separator), columns)
        yield end, secret


def _line_end(text: bytes, start: int) -> int:
    end = text.find(b"\n", start)
    return len(text) if end < 0 else end


@lru_cache(maxsize=1)
def _label() -> Any:
    return compile_pattern(f"(?i){_LABEL}", captures=False)


def _separator(line: bytes) -> bytes | None:
    """What separates the cells of a line, when it looks like a row at all."""
    if len(line) > 10_000:
        return None
    for separator in (b"|", b"\t", b";", b","):
        if separator in line:
            return separator
    return None


def _cells(line: bytes, separator: bytes) -> list[str]:
    text = line.strip()
    if separator == b"|":
        text = text.removeprefix(b"|").removesuffix(b"|")
    return [cell.strip(_CELL_MARKS) for cell in text.decode("ascii").split(separator.decode())]


def _secret_columns(heads: list[str]) -> list[int]:
    if not 2 <= len(heads) <= 50:
        return []
    if any(len(head) > 60 or not _PLAIN_HEADING.match(head) for head in heads):
        return []
    return [place for place, head in enumerate(heads) if re.search(_LABEL, head.lower())]


def _holds_secret(cells: list[str], columns: list[int]) -> bool:
    for column in columns:
        if column >= len(cells):
            continue
        value = cells[column]
        if " " in value or is_placeholder(value):
            continue
        if looks_like_password(value) or looks_random(value):
            return True
    return False

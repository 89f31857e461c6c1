"""Bytes in, text out, or the exact place at which they are not text; nothing is ever replaced."""

from __future__ import annotations

import codecs

_BYTE_ORDER_MARK = "\ufeff"


class NotText(Exception):
    """These bytes are not text; ``str`` of it says where and what to do."""


def decode(content: bytes) -> tuple[str, str | None]:
    """The text without byte order marks, and a warning or None.

    UTF-8, with or without mark; UTF-16 only with its mark, and with a warning. Guessing another
    encoding would put wrong letters into the index without a word.

    Raises:
        NotText: bytes that are not UTF-8, broken UTF-16, or a NUL.
    """
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text, warning = _decode_utf16(content), "is UTF-16 and was read as such; save it as UTF-8"
    else:
        text, warning = _decode_utf8(content), None
    nul = text.find("\0")
    if nul >= 0:
        raise NotText(
            f"line {_line(text[:nul])} holds a NUL (byte 0): this is not a text file, "
            "or UTF-16 without a byte order mark. Convert it to UTF-8"
        )
    return text.lstrip(_BYTE_ORDER_MARK), warning


def _decode_utf8(content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8")
        raise NotText(
            f"byte 0x{content[error.start]:02X} at offset {error.start}, line {_line(before)}, is "
            "not UTF-8. Convert the file, for example with "
            "`iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW`"
        ) from error


def _decode_utf16(content: bytes) -> str:
    try:
        return content.decode("utf-16")
    except UnicodeDecodeError as error:
        raise NotText(
            f"begins like UTF-16 but is broken at byte offset {error.start}. Save it as UTF-8"
        ) from error


def _line(before: str) -> int:
    """1-based line on which the text behind ``before`` stands."""
    return 1 + before.count("\n") + before.count("\r") - before.count("\r\n")

"""Read one file whole, exactly as it was at one moment, and never anything but that file."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rag_assets.errors import SourceUnavailable
from rag_assets.models import Reason
from rag_assets.sources.tree_look import signature

ATTEMPTS: Final = 3
"""How often a file that changes while it is read is read again."""

_BLOCK_BYTES: Final = 1 << 20
_UTF16_AND_32_MARKS: Final = (
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)


class NotReadable(Exception):
    """This one file cannot be read; ``reason`` says why, ``detail`` in a person's words."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason: Reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Disk:
    """The calls through which files are opened and read; another one stands in for a bad disk."""

    open: Callable[[str, int], int] = os.open
    read: Callable[[int, int], bytes] = os.read


def read_file(
    path: str, expected: os.stat_result, max_bytes: int, disk: Disk
) -> tuple[bytes, os.stat_result]:
    """The content of a regular file and its status at that moment.

    ``path`` is absolute without symbolic links; ``expected`` is its status when it was listed.

    Raises:
        NotReadable: it is gone, forbidden, too large, not a regular file, or does not keep still.
        SourceUnavailable: the disk fails.
    """
    for _ in range(ATTEMPTS):
        try:
            read = _read_once(path, expected, max_bytes, disk)
        except OSError as exc:
            raise not_readable(path, exc) from exc
        if read is not None:
            return read
    raise NotReadable("changed_while_read", f"changed {ATTEMPTS} times while it was read")


def not_readable(path: str, exc: OSError) -> NotReadable:
    """What an error means for the one file it befell.

    Raises:
        SourceUnavailable: it means that the disk fails, which says nothing of the file.
    """
    detail = exc.strerror or str(exc)
    if exc.errno in (errno.ENOENT, errno.ENOTDIR):
        return NotReadable("vanished", "removed after it was listed")
    if exc.errno in (errno.EACCES, errno.EPERM):
        return NotReadable("unreadable", detail)
    if exc.errno == errno.ENAMETOOLONG:
        return NotReadable("path_too_long", detail)
    if exc.errno == errno.ELOOP:
        return NotReadable("changed_while_read", "became a symbolic link after it was listed")
    if exc.errno in (errno.ENXIO, errno.ENODEV, errno.EISDIR):
        return NotReadable("not_a_regular_file", detail)
    raise SourceUnavailable(f"{path} cannot be read ({detail}); check the disk") from exc


def is_blank(content: bytes) -> bool:
    """Only white space and byte order marks, in UTF-8, UTF-16 or UTF-32."""
    if content[:256].isascii() and content[:256].strip():
        return False
    for mark, encoding in _UTF16_AND_32_MARKS:
        if content.startswith(mark):
            return not content.decode(encoding, "replace").strip("\ufeff \t\r\n\f\v")
    text = content.decode("utf-8", "replace")
    return not text.strip().replace("\ufeff", "").strip()


def file_kind(mode: int) -> str:
    """What a file that is not a regular one is, for a person."""
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFLNK: "a symbolic link",
    }
    return kinds.get(stat.S_IFMT(mode), "not a regular file")


def _read_once(
    path: str, expected: os.stat_result, max_bytes: int, disk: Disk
) -> tuple[bytes, os.stat_result] | None:
    """None when it changed meanwhile. O_NONBLOCK: opening a pipe must not wait for a writer."""
    descriptor = disk.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        before = os.fstat(descriptor)
        _verify(path, before, expected, max_bytes)
        content = _read_up_to(descriptor, before.st_size + 1, disk)
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if len(content) == before.st_size and signature(before) == signature(after):
        return content, after
    return None


def _verify(path: str, opened: os.stat_result, expected: os.stat_result, max_bytes: int) -> None:
    """That what was opened is the listed file, or a regular file that took its place there."""
    if not stat.S_ISREG(opened.st_mode):
        raise NotReadable("not_a_regular_file", file_kind(opened.st_mode))
    if opened.st_size > max_bytes:
        raise NotReadable("too_large", too_large_detail(opened.st_size, max_bytes))
    if (opened.st_dev, opened.st_ino) == (expected.st_dev, expected.st_ino):
        return
    # An editor that saves by renaming gives a new inode; a folder swapped for a link does too.
    now = os.stat(path, follow_symlinks=False)
    if os.path.realpath(path) != path or (now.st_dev, now.st_ino) != (opened.st_dev, opened.st_ino):
        raise NotReadable("changed_while_read", "moved or replaced after it was listed")


def too_large_detail(size: int, max_bytes: int) -> str:
    """The rule that a file of ``size`` bytes breaks."""
    return f"{size} bytes, more than max_file_bytes = {max_bytes}"


def _read_up_to(descriptor: int, limit: int, disk: Disk) -> bytes:
    blocks: list[bytes] = []
    while limit > 0 and (block := disk.read(descriptor, min(limit, _BLOCK_BYTES))):
        blocks.append(block)
        limit -= len(block)
    return b"".join(blocks)

"""Read the ignore file of a tree, or fail: what it might have excluded is never published."""

from __future__ import annotations

import os
from dataclasses import dataclass

from rag_assets.errors import ConfigurationError
from rag_assets.fingerprints import sha256_hex
from rag_assets.sources.file_reading import Disk, NotReadable, not_readable, read_file


@dataclass(frozen=True, slots=True)
class IgnoreFile:
    """The ignore file as it was at one moment."""

    text: str
    status: os.stat_result
    digest: str
    """sha256 of its bytes."""


def read_ignore_file(root: str, name: str, max_bytes: int, disk: Disk) -> IgnoreFile | None:
    """The file ``name`` at ``root``; None when there is none.

    ``root`` is absolute and without symbolic links.

    Raises:
        ConfigurationError: it is there and cannot be read, is no regular file inside the root, is
            larger than ``max_bytes``, or is not UTF-8.
        SourceUnavailable: the disk fails.
    """
    path = f"{root}/{name}"
    try:
        os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise _unusable(path, not_readable(path, exc).detail) from exc
    try:
        target = os.path.realpath(path, strict=True)
        status = os.stat(target)
    except OSError as exc:
        raise _unusable(path, exc.strerror or str(exc)) from exc
    if not target.startswith(root + "/"):
        raise _unusable(path, f"it links to {target}, outside the root of the source")
    try:
        content, status = read_file(target, status, max_bytes, disk)
    except NotReadable as exc:
        raise _unusable(path, exc.detail) from exc
    return IgnoreFile(_decode(path, content), status, sha256_hex(content))


def _decode(path: str, content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        raise ConfigurationError(
            f"{path}:{line} byte 0x{content[exc.start]:02x} is not UTF-8, so what the file "
            "excludes is not known; save it as UTF-8"
        ) from exc


def _unusable(path: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{path}: cannot be used ({why}), so what it excludes is not known; make it a readable "
        "file or remove it"
    )

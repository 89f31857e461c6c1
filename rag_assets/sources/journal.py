"""What a listing fetched before it broke off, so that the next one does not fetch it again.

One file of records, each appended and flushed as its document arrives. It stays until the run has
stored what was listed; whoever runs deletes it then. A record that a killed process left half
written is ignored.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, Final

from rag_assets.errors import AssetError
from rag_assets.fingerprints import sha256_hex
from rag_assets.models import SourceFile

_FORMAT: Final = "journal-1"
_LENGTHS: Final = struct.Struct(">II")
"""Lengths of the JSON header and of the content that follow."""


def _keep_all(_: SourceFile) -> bool:
    return True


class Journal:
    """The fetched documents of one partition.

    ``may_keep`` says whether the bytes of a document may be written to disk at all; a document
    for which it says no is fetched again when it is needed.
    """

    def __init__(self, path: Path, may_keep: Callable[[SourceFile], bool] = _keep_all) -> None:
        self._path = path
        self._may_keep = may_keep
        self._file: BinaryIO | None = None

    def open(self, settings: str) -> dict[str, SourceFile]:
        """Start or go on; what was fetched before under the same ``settings``, by version.

        ``settings`` name the place that the contents come from.

        Raises:
            AssetError: the folder cannot be written.
        """
        found: dict[str, SourceFile] = {}
        end = 0
        with suppress(OSError, ValueError, KeyError, TypeError), self._path.open("rb") as file:
            header, _ = next(_records(file), ({}, b""))
            if header == {"format": _FORMAT, "settings": settings}:
                end = file.tell()
                for fields, content in _records(file):
                    fields["acl_tags"] = tuple(fields["acl_tags"])
                    found[fields["version"]] = SourceFile(**fields, content=content)
                    end = file.tell()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("r+b" if end else "w+b")
            self._file.truncate(end)
            self._file.seek(end)
        except OSError as exc:
            raise self._not_written(exc) from exc
        if not end:
            self._append({"format": _FORMAT, "settings": settings}, b"")
        return found

    def add(self, file: SourceFile) -> None:
        """Keep a fetched document; nothing happens before ``open``.

        Raises:
            AssetError: the disk is full or not writable.
        """
        if self._file is None or not self._may_keep(file):
            return
        fields = asdict(file)
        content = fields.pop("content")
        self._append(fields, content)

    def close(self) -> None:
        """Stop writing; the file stays."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _append(self, fields: dict[str, Any], content: bytes) -> None:
        assert self._file is not None  # opened by whoever appends
        header = json.dumps(fields).encode()
        try:
            self._file.write(_LENGTHS.pack(len(header), len(content)) + header + content)
            self._file.flush()
        except OSError as exc:
            raise self._not_written(exc) from exc

    def _not_written(self, exc: OSError) -> AssetError:
        return AssetError(
            f"{self._path}: cannot be written: {exc.strerror}; free space or mend the folder's "
            "permissions, then run again"
        )


def _records(file: BinaryIO) -> Iterator[tuple[dict[str, Any], bytes]]:
    """The whole records from here on; a damaged one ends them."""
    size = os.fstat(file.fileno()).st_size
    while len(lengths := file.read(_LENGTHS.size)) == _LENGTHS.size:
        header_length, content_length = _LENGTHS.unpack(lengths)
        if file.tell() + header_length + content_length > size:
            return
        fields = json.loads(file.read(header_length))
        content = file.read(content_length)
        if "content_hash" in fields and sha256_hex(content) != fields["content_hash"]:
            return
        yield fields, content

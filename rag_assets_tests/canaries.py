"""Looking for a word in every byte that a folder holds, however it is written or packed.

Words are looked for as bytes in several encodings, and inside whatever packs its bytes: Parquet
columns and statistics, SQLite cells, zlib streams.
"""

from __future__ import annotations

import base64
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

STREAMS = {b"\x78\x01": 15, b"\x78\x9c": 15, b"\x78\xda": 15, b"\x1f\x8b": 31}
"""First bytes of zlib and gzip streams, and the ``wbits`` that unpack them."""


def spellings(word: str) -> list[bytes]:
    """The word as bytes: UTF-8, UTF-16, in capitals, hexadecimal, base64 at any offset.

    Without its first two letters: a full-text index writes what a term shares with its neighbour
    only once.
    """
    found = []
    for text in (word[2:], word[2:].upper()):
        for raw in (text.encode(), text.encode("utf-16-le"), text.encode("utf-16-be")):
            found += [raw, raw.hex().encode(), raw.hex().upper().encode()]
            for skip in range(3):
                packed = base64.b64encode(b"\0" * skip + raw)
                found.append(packed[4 if skip else 0 : -4])
    return found


def packed(path: Path) -> Iterator[bytes]:
    """All that a file holds: its bytes, and what is packed in it."""
    raw = path.read_bytes()
    yield raw
    if raw[:4] == b"PAR1":
        yield from parquet_values(path)
    elif raw.startswith(b"SQLite format 3\0"):
        for value in sqlite_values(path):
            yield value
            yield from unzipped(value)
    yield from unzipped(raw)


def unzipped(raw: bytes) -> Iterator[bytes]:
    """What the zlib and gzip streams in it unpack to, as far as they do."""
    for head, window in STREAMS.items():
        at = raw.find(head)
        while at >= 0:
            with suppress(zlib.error):
                yield zlib.decompressobj(window).decompress(raw[at:])
            at = raw.find(head, at + 1)


def parquet_values(path: Path) -> Iterator[bytes]:
    """Cells, schema metadata and statistics of every row group."""
    file = pq.ParquetFile(path)
    yield repr(file.schema_arrow.metadata).encode()
    for group in range(file.metadata.num_row_groups):
        for column in range(file.metadata.num_columns):
            statistics = file.metadata.row_group(group).column(column).statistics
            if statistics is not None and statistics.has_min_max:
                yield str((statistics.min, statistics.max)).encode()
    for column in file.read().columns:
        if not pa.types.is_fixed_size_list(column.type):
            yield from map(as_bytes, column.to_pylist())


def sqlite_values(path: Path) -> Iterator[bytes]:
    """Every cell of every table that can be read without extensions."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        names = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
        for name, sql in names.fetchall():
            if "VIRTUAL" in sql.upper():
                continue  # its own tables are listed too
            for row in connection.execute(f'SELECT * FROM "{name}"'):
                yield from map(as_bytes, row)
    finally:
        connection.close()


def as_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


def places(root: Path, word: str) -> set[str]:
    """The files of a folder that hold the word, from the folder down."""
    forms = spellings(word)
    return {
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.is_file() and any(form in part for part in packed(path) for form in forms)
    }

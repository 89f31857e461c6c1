"""The schema of an index file: creating a new one, recognising an existing one, its ``meta``."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw

from rag_assets.errors import IndexDamaged, VectorStoreError
from rag_assets.index.base import check_fingerprint
from rag_assets.index.faults import WAY_OUT
from rag_assets.models import IndexFingerprint

if TYPE_CHECKING:
    from collections.abc import Iterator

APPLICATION_ID: Final = 0x52414749
"""``RAGI``: stamped into the file header, so that another program's database is recognised."""
SCHEMA_VERSION: Final = 3
"""``user_version`` of the file; raise it with every change of the schema."""
PAGE_SIZE_BYTES: Final = 16384
"""Vectors are long blobs: with 4 kB pages an exact scan took 1.9 times as long."""
VECTORS_PER_BLOCK: Final = 256
"""vec0 allocates vectors in blocks of this many. Between 128 and 1,024 the time of a search of
100,000 vectors does not change (53 to 58 ms); inserts are fastest at 256 to 512 (2,048: a quarter
of the rate), and a block of 256 x 384 dimensions wastes at most 0.4 MB in a small index."""
MAXIMUM_DIMENSION: Final = 8192
"""sqlite-vec's own limit."""

_SCHEMA_FILE: Final = Path(__file__).parent / "schema" / "sqlite.sql"
_CREATE_CHUNK_VECTOR: Final = (
    "CREATE VIRTUAL TABLE chunk_vector USING vec0("
    "embedding float[{dim}] distance_metric=l2, acl_set integer, source_id integer, "
    "chunk_size={block})"
)


@contextmanager
def immediate(connection: apsw.Connection) -> Iterator[None]:
    """A write transaction: committed at the end, rolled back on any exception."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def create_index(
    path: Path, *, build_id: str | None, configure: Callable[[apsw.Connection], None]
) -> None:
    """Create a new index file with all tables but the vectors'; remove it again if that fails.

    ``configure`` prepares the connection for writing.

    Raises:
        FileExistsError: there is a file at ``path`` already; it was not touched.
    """
    path.open("xb").close()
    try:
        connection = apsw.Connection(str(path.absolute()), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.execute(f"PRAGMA page_size = {PAGE_SIZE_BYTES}")
            # Lets the end of a run give pages back without VACUUM, which may renumber the rows
            # of vec0's own tables.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            if connection.pragma("journal_mode", "wal") != "wal":
                raise VectorStoreError(
                    f"{path}: the file system does not support SQLite's write-ahead log (a network "
                    "share?); set data_dir to a local disk"
                )
            configure(connection)
            with immediate(connection):
                connection.execute(_SCHEMA_FILE.read_text(encoding="utf-8"))
                if build_id is not None:
                    write_meta(connection, "build_id", build_id)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        finally:
            connection.close()
    except BaseException:
        for leftover in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
            leftover.unlink(missing_ok=True)
        raise


def create_vectors(connection: apsw.Connection, dim: int) -> None:
    """Create the vectors' table; the caller holds a write transaction."""
    connection.execute(_CREATE_CHUNK_VECTOR.format(dim=dim, block=VECTORS_PER_BLOCK))


def check_stamp(connection: apsw.Connection, path: Path) -> None:
    """Make sure that the file is an index of this package and of this schema.

    Raises:
        IndexDamaged: it is not.
    """
    application_id = connection.pragma("application_id")
    if application_id != APPLICATION_ID:
        raise IndexDamaged(
            f"{path}: a SQLite database, but not an index of rag-assets "
            f"(application_id {application_id}); move it away, or {WAY_OUT}"
        )
    version = connection.pragma("user_version")
    if version != SCHEMA_VERSION:
        raise IndexDamaged(
            f"{path}: an index with schema {version}, this version of rag-assets reads schema "
            f"{SCHEMA_VERSION}; {WAY_OUT}"
        )


def set_fingerprint(connection: apsw.Connection, fingerprint: IndexFingerprint, path: Path) -> None:
    """Give a new index its fingerprint and its vectors' table, or check those that it has.

    Raises:
        DimensionMismatch: the index holds vectors of another dimension.
        FingerprintMismatch: the index was made by another model or chunker.
    """
    with immediate(connection):
        held = read_fingerprint(connection)
        if held is not None:
            check_fingerprint(held, fingerprint, path)
            return
        if not 0 < fingerprint.dim <= MAXIMUM_DIMENSION:
            raise VectorStoreError(
                f"{path}: vectors of dimension {fingerprint.dim} cannot be stored; sqlite-vec "
                f"takes 1 to {MAXIMUM_DIMENSION}"
            )
        create_vectors(connection, fingerprint.dim)
        write_meta(
            connection,
            "fingerprint",
            json.dumps(
                {
                    "model": fingerprint.model,
                    "dim": fingerprint.dim,
                    "chunker": fingerprint.chunker,
                }
            ),
        )


def read_fingerprint(connection: apsw.Connection) -> IndexFingerprint | None:
    """The fingerprint in ``meta``, None before ``set_fingerprint``."""
    text = read_meta(connection, "fingerprint")
    if text is None:
        return None
    try:
        held = json.loads(text)
        return IndexFingerprint(str(held["model"]), int(held["dim"]), str(held["chunker"]))
    except (ValueError, KeyError, TypeError) as exc:
        raise IndexDamaged(
            f"{connection.db_filename('main')}: the fingerprint of the index cannot be read; "
            f"{WAY_OUT}"
        ) from exc


def read_meta(connection: apsw.Connection, key: str) -> str | None:
    """One value of ``meta``."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def write_meta(connection: apsw.Connection, key: str, value: str) -> None:
    """Insert or replace one value of ``meta``."""
    connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))

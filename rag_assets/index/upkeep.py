"""What is done to an index between runs: repair, compaction, and leaving no deleted bytes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import apsw
import numpy as np

from rag_assets.errors import IndexDamaged
from rag_assets.index.blocks import BrokenBlock, fill, read_blocks
from rag_assets.index.faults import WAY_OUT
from rag_assets.index.lease import WriterLease
from rag_assets.index.records import checksum
from rag_assets.index.schema import (
    create_vectors,
    read_fingerprint,
    read_meta,
    write_meta,
)
from rag_assets.index.verifying import Problem, expected_vectors, find_problems

SLOTS_PER_ROW: Final = 1.5
"""Compaction starts when vec0 holds more than this many slots for each vector: a scan reads
every block, so it never takes more than half as long again as it must."""
UNMERGED_SHARE: Final = 0.25
"""Segments of the full-text index are merged when all but the largest hold more than this share."""
FREE_PAGES_FRACTION: Final = 0.1
"""Pages are given back to the file system when more than this share of the file is free."""
CHECKPOINT_SECONDS: Final = 20.0
"""How long to wait for readers to let go of the write-ahead log; then the next run empties it."""


def repair(lease: WriterLease, path: Path) -> int:
    """Forget every document that ``find_problems`` names, and write the vectors' table anew.

    The states of all partitions are forgotten as well, so the next run compares every document
    and writes again those that are missing. Returns how many documents were forgotten.

    Raises:
        IndexDamaged: the damage is such that only a new index helps.
    """
    with lease.transaction() as connection:
        problems = list(find_problems(connection))
        hopeless = next((p for p in problems if p.beyond_repair), None)
        if hopeless is not None:
            raise IndexDamaged(f"{path}: cannot be repaired ({hopeless.sentence}); {WAY_OUT}")
        if not problems:
            return 0
        if any(p.text for p in problems):
            # First: forgetting a document takes its terms out, so they must be in.
            connection.execute("INSERT INTO chunk_text (chunk_text) VALUES ('rebuild')")
        forgotten = _forget(connection, problems)
        drop_unused(connection)
        _recount_text(connection)
        if any(p.vectors or p.document_id is not None for p in problems):
            _rewrite_vectors(connection)
        connection.execute("DELETE FROM partition_state")
        return forgotten


def _forget(connection: apsw.Connection, problems: Sequence[Problem]) -> int:
    """Remove the rows of the documents named; their vectors go when the table is written anew."""
    ids = [(i,) for i in sorted({p.document_id for p in problems if p.document_id is not None})]
    ledger = [(p.document_id,) for p in problems if p.ledger]
    connection.executemany(
        "DELETE FROM left_out WHERE (source, path) = "
        "(SELECT source, path FROM document WHERE id = ?)",
        ledger,
    )
    connection.executemany("DELETE FROM chunk WHERE document_id = ?", ids)
    before = connection.total_changes()
    connection.executemany("DELETE FROM document WHERE id = ?", ids)
    return connection.total_changes() - before


def _rewrite_vectors(connection: apsw.Connection) -> None:
    """Create the vectors' table anew from the vectors that agree with their checksum."""
    fingerprint = read_fingerprint(connection)
    assert fingerprint is not None
    expected = expected_vectors(connection)
    connection.execute("CREATE TEMP TABLE sound (id INTEGER PRIMARY KEY, embedding BLOB NOT NULL)")
    for block in read_blocks(connection, fingerprint.dim):
        if isinstance(block, BrokenBlock):
            continue
        index = np.searchsorted(expected["id"], block.rowids)
        for i, row in enumerate(index):
            rowid, blob = int(block.rowids[i]), block.vectors[i].tobytes()
            known = row < len(expected) and expected["id"][row] == rowid
            if known and checksum(blob) == expected["checksum"][row]:
                connection.execute("INSERT OR IGNORE INTO sound VALUES (?, ?)", (rowid, blob))
    connection.execute("DROP TABLE chunk_vector")
    create_vectors(connection, fingerprint.dim)
    connection.execute(
        "INSERT INTO chunk_vector (rowid, embedding, acl_set, source_id) "
        "SELECT t.id, t.embedding, d.acl_set, s.id FROM sound t JOIN chunk c ON c.id = t.id "
        "JOIN document d ON d.id = c.document_id JOIN source s ON s.name = d.source ORDER BY t.id"
    )
    connection.execute("DROP TABLE sound")


def _recount_text(connection: apsw.Connection) -> None:
    """Take the statistics of the full-text index anew from the passages left."""
    connection.execute("DELETE FROM text_length WHERE chunk_id NOT IN (SELECT id FROM chunk)")
    connection.execute("DELETE FROM text_statistics")
    connection.execute(
        "INSERT INTO text_statistics (acl_set, language, chunks, terms) "
        "SELECT acl_set, language, count(*), sum(terms) FROM text_length GROUP BY acl_set, language"
    )
    connection.execute("UPDATE text_version SET version = version + 1")


def drop_unused(connection: apsw.Connection) -> None:
    """Forget sets of tags and sources that no document has; the caller holds a transaction."""
    connection.execute(
        "DELETE FROM acl_set_tag WHERE acl_set NOT IN (SELECT acl_set FROM document)"
    )
    connection.execute("DELETE FROM acl_set WHERE id NOT IN (SELECT acl_set FROM document)")
    connection.execute("DELETE FROM source WHERE name NOT IN (SELECT source FROM document)")


def finish(lease: WriterLease) -> bool:
    """Compact, give free pages back, and empty the write-ahead log.

    Returns False when a reader kept the log from being emptied; the next run will do it.
    """
    with lease.transaction() as connection:
        drop_unused(connection)
        _merge_segments(connection)
        _forget_dividers(connection)
        initialised = read_fingerprint(connection) is not None
    if initialised:
        compact(lease)
    connection = lease.connection
    if connection.pragma("freelist_count") > FREE_PAGES_FRACTION * connection.pragma("page_count"):
        with lease.transaction():
            connection.execute("PRAGMA incremental_vacuum").fetchall()
    return empty_log(connection)


def _merge_segments(connection: apsw.Connection) -> None:
    """Write the full-text index as one segment, when the others are no longer small beside it.

    A term is looked up in every segment: with ten of them a search under 50 ACL sets took half as
    long again. Merging 100,000 passages takes 2.4 s, and is done again when a quarter has changed.
    """
    pages = [
        int(count)
        for (count,) in connection.execute("SELECT count(*) FROM chunk_text_idx GROUP BY segid")
    ]
    if len(pages) > 1 and sum(pages) - max(pages) > UNMERGED_SHARE * sum(pages):
        connection.execute("INSERT INTO chunk_text (chunk_text) VALUES ('optimize')")


def _forget_dividers(connection: apsw.Connection) -> None:
    """Replace what FTS5's directory of pages keeps of terms that are gone.

    It names each page by the beginning of its first term, which ``secure-delete`` leaves alone when
    that term goes. The next term that is still there divides the same pages.
    """
    version = _text_version(connection)
    if read_meta(connection, "dividers_checked") == version:
        return
    rows: list[Any] = connection.execute(
        "SELECT segid, term FROM chunk_text_idx WHERE length(term) > 1"
    ).fetchall()
    for segment, divider in rows:
        begins = divider[1:].decode("utf-8", "ignore")  # after the number of the index
        following = connection.execute(
            "SELECT term FROM chunk_term_count WHERE term >= ? LIMIT 1", (begins,)
        ).fetchone()
        if following is not None and not str(following[0]).startswith(begins):
            connection.execute(
                "UPDATE OR IGNORE chunk_text_idx SET term = ? WHERE segid = ? AND term = ?",
                (divider[:1] + str(following[0]).encode(), segment, divider),
            )
    write_meta(connection, "dividers_checked", version)


def _text_version(connection: apsw.Connection) -> str:
    row = connection.execute("SELECT version FROM text_version").fetchone()
    return "" if row is None else str(row[0])


def compact(lease: WriterLease) -> int:
    """Move the vectors of sparse blocks to the end, where vec0 fills slots; how many were moved.

    vec0 puts a new row into its newest block and frees a block that becomes empty, so moving a row
    is a delete and an insert in one transaction; readers never miss one.
    """
    with lease.transaction() as connection:
        blocks = fill(connection)
    used, allocated = sum(b[1] for b in blocks), sum(b[2] for b in blocks)
    if not blocks or allocated - used < blocks[-1][2] or allocated <= SLOTS_PER_ROW * used:
        return 0
    sparse = [block for block, count, size in blocks[:-1] if count * SLOTS_PER_ROW < size]
    moved = 0
    for block in sparse:
        with lease.transaction() as connection:
            moved += _empty_block(connection, block)
    return moved


def _empty_block(connection: apsw.Connection, block: int) -> int:
    rows = connection.execute(
        "SELECT rowid FROM chunk_vector_rowids WHERE chunk_id = ?", (block,)
    ).fetchall()
    for (rowid,) in rows:
        vector = connection.execute(
            "SELECT embedding, acl_set, source_id FROM chunk_vector WHERE rowid = ?", (rowid,)
        ).fetchone()
        assert vector is not None
        connection.execute("DELETE FROM chunk_vector WHERE rowid = ?", (rowid,))
        connection.execute(
            "INSERT INTO chunk_vector (rowid, embedding, acl_set, source_id) VALUES (?, ?, ?, ?)",
            (rowid, *vector),
        )
    return len(rows)


def empty_log(connection: apsw.Connection) -> bool:
    """Copy the write-ahead log into the file and cut it off; False when readers are in it."""
    deadline = time.monotonic() + CHECKPOINT_SECONDS
    while True:
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            return True
        except (apsw.BusyError, apsw.LockedError):
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.05)

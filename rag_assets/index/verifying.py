"""Does an index agree with itself? Every row, vector and checksum compared."""

# ruff: noqa: S608  (only this package's own names are spelled into SQL; values are always bound)

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import apsw
import numpy as np
import numpy.typing as npt

from rag_assets.index.blocks import STORAGE_TABLES, Block, BrokenBlock, read_blocks
from rag_assets.index.records import CHUNK_COLUMNS, checksum, row_checksum, tags_text
from rag_assets.index.schema import read_fingerprint
from rag_assets.models import IndexFingerprint

LOOKED_UP: Final = 500
"""Passages of which some terms are looked up."""
SHOWN_OF_A_KIND: Final = 20
"""Problems of one kind that are listed one by one; the others are counted."""

_EXPECTED: Final = np.dtype(
    [("id", "<i8"), ("checksum", "<i8"), ("acl_set", "<i8"), ("source", "<i8"), ("document", "<i8")]
)
Expected = npt.NDArray[Any]
"""What the tables of documents and passages say of each vector, ordered by id (``_EXPECTED``)."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One contradiction."""

    sentence: str
    document_id: int | None = None
    """The document to forget, when one is concerned."""
    vectors: bool = False
    """The vectors' table has to be written anew."""
    text: bool = False
    """The full-text index has to be written anew."""
    ledger: bool = False
    """Only the ledger of files left out is concerned."""
    beyond_repair: bool = False
    """Only a new index helps."""


def find_problems(
    connection: apsw.Connection, *, postings_compared: bool = False
) -> Iterator[Problem]:
    """Every problem, lazily; a check whose tables cannot be read at all is a problem itself.

    ``postings_compared``: ``compare_postings`` was asked on another connection already.
    """
    yield from _pages(connection)
    fingerprint = read_fingerprint(connection)
    if fingerprint is None:
        yield from _uninitialised(connection)
        return
    checks: tuple[Callable[[apsw.Connection, IndexFingerprint], Iterator[Problem]], ...] = (
        _dimension,
        _documents,
        _acl_sets,
        _passages,
        _texts,
        _term_directory,
        _postings,
        _ledger,
        _block_tables,
        _vectors,
    )
    for check in checks:
        if check is _postings and postings_compared:
            continue
        try:
            yield from check(connection, fingerprint)
        except apsw.Error as exc:
            yield Problem(
                f"the check of {check.__name__.strip('_').replace('_', ' ')} cannot be made: {exc}",
                beyond_repair=True,
            )


def sentences(problems: Iterable[Problem]) -> list[str]:
    """The problems for a person; of many that begin alike, the first few and a count."""
    kept: list[str] = []
    counts: dict[str, int] = {}
    for problem in problems:
        kind = problem.sentence.partition(":")[2] or problem.sentence
        kind = "".join(c for c in kind if not c.isdigit())
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] <= SHOWN_OF_A_KIND:
            kept.append(problem.sentence)
    kept += [
        f"and {count - SHOWN_OF_A_KIND} more of the kind:{kind}"
        for kind, count in counts.items()
        if count > SHOWN_OF_A_KIND
    ]
    return kept


def _pages(connection: apsw.Connection) -> Iterator[Problem]:
    try:
        # FTS5 forgets what it remembers of an older state only when it is queried; without this
        # the check compares another writer's new segments with an old list of them.
        connection.execute("SELECT 1 FROM chunk_term WHERE term = '~'").fetchall()
        for (line,) in connection.execute("PRAGMA integrity_check(20)"):
            if line != "ok":
                # The full-text index can be built anew from the terms of the passages.
                text = "fts5" in str(line).lower()
                sentence = f"SQLite's integrity check: {line}"
                yield Problem(sentence, text=text, beyond_repair=not text)
    except apsw.Error as exc:
        yield Problem(f"SQLite's integrity check: {exc}", beyond_repair=True)


def _uninitialised(connection: apsw.Connection) -> Iterator[Problem]:
    """An index without fingerprint is one that no run has written yet; so it must be empty."""
    for table in ("document", "chunk"):
        row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        if row is not None and row[0]:
            yield Problem(
                f"the index has no fingerprint, but {row[0]} rows in {table}", beyond_repair=True
            )


def _dimension(connection: apsw.Connection, fingerprint: IndexFingerprint) -> Iterator[Problem]:
    row = connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'chunk_vector'").fetchone()
    if row is None:
        yield Problem("the table of vectors is missing", beyond_repair=True)
    elif f"float[{fingerprint.dim}]" not in str(row[0]):
        yield Problem(
            f"the fingerprint says dimension {fingerprint.dim}, the table of vectors was created "
            f"otherwise: {row[0]}",
            beyond_repair=True,
        )


def _documents(connection: apsw.Connection, _: IndexFingerprint) -> Iterator[Problem]:
    rows = connection.execute(
        "SELECT d.id, d.source || '/' || d.path, d.chunk_count, count(c.id), "
        "ifnull(min(c.position), 0), ifnull(max(c.position), -1) "
        "FROM document d LEFT JOIN chunk c ON c.document_id = d.id GROUP BY d.id "
        "HAVING count(c.id) <> d.chunk_count OR ifnull(min(c.position), 0) <> 0 "
        "OR ifnull(max(c.position), -1) <> d.chunk_count - 1"
    )
    for document_id, name, said, there, _first, _last in rows:
        sentence = (
            f"document {name}: {there} passages instead of {said}"
            if there != said
            else f"document {name}: the positions of its {there} passages have gaps"
        )
        yield Problem(sentence, document_id)
    orphans = connection.execute(
        "SELECT id, document_id FROM chunk WHERE document_id NOT IN (SELECT id FROM document)"
    )
    for chunk_id, document_id in orphans:
        yield Problem(f"passage {chunk_id}: its document {document_id} is not there", document_id)
    for document_id, name in connection.execute(
        "SELECT id, source || '/' || path FROM document "
        "WHERE source NOT IN (SELECT name FROM source) AND chunk_count > 0"
    ):
        yield Problem(f"document {name}: its source has no number", document_id)


def _acl_sets(connection: apsw.Connection, _: IndexFingerprint) -> Iterator[Problem]:
    tags: dict[int, list[str]] = {}
    for acl_set, tag in connection.execute("SELECT acl_set, tag FROM acl_set_tag"):
        tags.setdefault(acl_set, []).append(tag)
    named: list[Any] = connection.execute("SELECT id, tags FROM acl_set").fetchall()
    texts = dict(named)
    wrong = [n for n in {*texts, *tags} if texts.get(n) != tags_text(tags.get(n, []))]
    for acl_set in sorted(wrong):
        text, found = texts.get(acl_set, "nothing"), sorted(tags.get(acl_set, []))
        yield Problem(f"ACL set {acl_set}: it is named {text} but has the tags {found}")
        for (document_id,) in connection.execute(
            "SELECT id FROM document WHERE acl_set = ?", (acl_set,)
        ):
            yield Problem(
                f"document {document_id}: its ACL tags contradict themselves", document_id
            )
    for document_id, name in connection.execute(
        "SELECT id, source || '/' || path FROM document WHERE acl_set NOT IN "
        "(SELECT id FROM acl_set)"
    ):
        yield Problem(f"document {name}: its ACL tags are not there", document_id)


def _passages(connection: apsw.Connection, _: IndexFingerprint) -> Iterator[Problem]:
    columns = ", ".join(f"c.{name}" for name in CHUNK_COLUMNS.split(", "))
    rows = connection.execute(
        f"SELECT d.id, d.source || '/' || d.path, c.row_checksum, {columns} "
        "FROM chunk c JOIN document d ON d.id = c.document_id"
    )
    for document_id, name, expected, *row in rows:
        if row_checksum(row) != expected:
            yield Problem(
                f"document {name}: the text of passage {row[0]} differs from its checksum",
                document_id,
            )


def _texts(connection: apsw.Connection, _: IndexFingerprint) -> Iterator[Problem]:
    """The analysed terms of every passage against their checksum, marks and statistics."""
    rows = connection.execute(
        "SELECT d.id, d.source || '/' || d.path, c.position, c.terms, l.terms, l.terms_checksum, "
        "l.acl_set IS d.acl_set AND l.language IS d.language AND l.source_id IS s.id "
        "FROM chunk c JOIN document d ON d.id = c.document_id "
        "LEFT JOIN source s ON s.name = d.source LEFT JOIN text_length l ON l.chunk_id = c.id"
    )
    for document_id, name, position, terms, count, expected, marked in rows:
        fault = ""
        if count is None:
            fault = "have no length"
        elif not marked:
            fault = "have other ACL tags, another language or another source than the document"
        elif checksum(terms.encode()) != expected or len(terms.split()) != count:
            fault = "differ from their checksum"
        if fault:
            yield Problem(
                f"document {name}: the terms of passage {position} {fault}", document_id, text=True
            )
    differing = connection.execute(
        "SELECT 1 FROM (SELECT acl_set, language, count(*) AS chunks, sum(terms) AS terms "
        "FROM text_length GROUP BY acl_set, language) a "
        "FULL JOIN text_statistics b USING (acl_set, language) "
        "WHERE a.chunks IS NOT b.chunks OR a.terms IS NOT b.terms"
    ).fetchall()
    orphans = connection.execute(
        "SELECT 1 FROM text_length WHERE chunk_id NOT IN (SELECT id FROM chunk)"
    ).fetchall()
    if differing or orphans:
        yield Problem("the statistics of the full-text index differ from its passages", text=True)


def _term_directory(connection: apsw.Connection, _: IndexFingerprint) -> Iterator[Problem]:
    """Terms taken from the passages all over the index are found when they are looked up."""
    rows = connection.execute("SELECT count(*) FROM chunk").fetchone()
    step = max(1, int(rows[0] if rows else 0) // LOOKED_UP)
    lost = 0
    for (terms,) in connection.execute("SELECT terms FROM chunk WHERE id % ? = 0", (step,)):
        for term in sorted(terms.split())[:: 1 + terms.count(" ") // 4]:
            found = connection.execute("SELECT 1 FROM chunk_term WHERE term = ? LIMIT 1", (term,))
            lost += found.fetchone() is None
    if lost:
        yield Problem(f"the full-text index: {lost} terms are there and not found", text=True)


def compare_postings(connection: apsw.Connection) -> list[Problem]:
    """FTS5's own comparison of the inverted index with the terms of every passage.

    It is a command to the table, so ``connection`` must be able to write; nothing is changed.
    """
    try:
        connection.execute(
            "INSERT INTO chunk_text (chunk_text, rank) VALUES ('integrity-check', 1)"
        )
    except apsw.CorruptError:
        return [
            Problem("the full-text index: it differs from the terms of the passages", text=True)
        ]
    return []


def _postings(connection: apsw.Connection, _: IndexFingerprint) -> Iterator[Problem]:
    """The inverted index against the terms it was made from; by counting where one cannot write."""
    if not connection.readonly("main"):
        yield from compare_postings(connection)
        return
    occurrences: Counter[str] = Counter()
    for (terms,) in connection.execute("SELECT terms FROM chunk"):
        occurrences.update(terms.split())
    wrong = 0
    for term, count in connection.execute("SELECT term, cnt FROM chunk_term_count"):
        wrong += occurrences.pop(term, 0) != count
    wrong += len(occurrences)
    if wrong:
        yield Problem(
            f"the full-text index: {wrong} terms differ from those of the passages", text=True
        )


def _ledger(connection: apsw.Connection, _: IndexFingerprint) -> Iterator[Problem]:
    rows = connection.execute(
        "SELECT d.id, d.source || '/' || d.path, l.reason FROM left_out l "
        "JOIN document d ON d.source = l.source AND d.path = l.path WHERE l.status <> 'flagged'"
    )
    for document_id, name, reason in rows:
        yield Problem(
            f"document {name}: indexed, and at the same time left out ({reason})",
            document_id,
            ledger=True,
        )


def _block_tables(connection: apsw.Connection, _: IndexFingerprint) -> Iterator[Problem]:
    for table in STORAGE_TABLES:
        rows = connection.execute(
            f"SELECT _rowid_, rowid FROM {table} WHERE _rowid_ IS NOT rowid "
            "OR _rowid_ NOT IN (SELECT chunk_id FROM chunk_vector_chunks)"
        )
        for real, named in rows:
            yield Problem(f"{table}: row {real} ({named}) belongs to no block", vectors=True)


def _vectors(connection: apsw.Connection, fingerprint: IndexFingerprint) -> Iterator[Problem]:
    expected = expected_vectors(connection)
    seen = np.zeros(len(expected), dtype=np.int64)
    places: list[npt.NDArray[np.int64]] = []
    for block in read_blocks(connection, fingerprint.dim):
        if isinstance(block, BrokenBlock):
            yield Problem(f"block {block.block} of the vectors: {block.fault}", vectors=True)
            continue
        number = np.full_like(block.rowids, block.block)
        places.append(np.stack([block.rowids, number, block.slots], axis=1))
        yield from _compare(connection, expected, seen, block)
    for row in expected[seen == 0]:
        yield Problem(
            f"document {_name(connection, row['document'])}: passage "
            f"{_position(connection, row['id'])} has no vector",
            int(row["document"]),
            vectors=True,
        )
    yield from _places(connection, places)


def expected_vectors(connection: apsw.Connection) -> Expected:
    """What the tables of documents and passages say that each vector should be."""
    rows = connection.execute(
        "SELECT c.id, c.vector_checksum, d.acl_set, ifnull(s.id, -1), d.id FROM chunk c "
        "JOIN document d ON d.id = c.document_id LEFT JOIN source s ON s.name = d.source "
        "ORDER BY c.id"
    )
    return np.fromiter(rows, dtype=_EXPECTED)


def _compare(
    connection: apsw.Connection, expected: Expected, seen: npt.NDArray[np.int64], block: Block
) -> Iterator[Problem]:
    """The vectors of one block against what is expected of them; counts them in ``seen``."""
    if not len(expected):
        known, index = np.zeros(len(block.rowids), dtype=bool), block.slots
    else:
        index = np.minimum(np.searchsorted(expected["id"], block.rowids), len(expected) - 1)
        known = expected["id"][index] == block.rowids
    for rowid in block.rowids[~known]:
        yield Problem(f"vector {rowid}: it belongs to no passage", vectors=True)
    if not known.any():
        return
    want = expected[index[known]]
    np.add.at(seen, index[known], 1)
    checksums = np.array([checksum(vector.tobytes()) for vector in block.vectors[known]])
    faults = {
        "differs from its checksum": checksums != want["checksum"],
        "has other ACL tags than its document": block.acl_sets[known] != want["acl_set"],
        "has another source than its document": block.sources[known] != want["source"],
        "is there more than once": seen[index[known]] > 1,
    }
    for i in np.flatnonzero(np.logical_or.reduce(list(faults.values()))):
        named = " and ".join(fault for fault, where in faults.items() if where[i])
        document = int(want["document"][i])
        yield Problem(
            f"document {_name(connection, document)}: the vector of passage "
            f"{_position(connection, want['id'][i])} {named}",
            document,
            vectors=True,
        )


def _places(connection: apsw.Connection, places: list[npt.NDArray[np.int64]]) -> Iterator[Problem]:
    """vec0's map from rowid to block and slot against where the vectors lie."""
    rows = connection.execute(
        "SELECT rowid, ifnull(chunk_id, -1), ifnull(chunk_offset, -1) FROM chunk_vector_rowids "
        "ORDER BY rowid"
    )
    said = np.fromiter(rows, dtype=np.dtype((np.int64, 3)))
    lying = np.concatenate([*places, np.empty((0, 3), np.int64)])
    lying = lying[np.argsort(lying[:, 0], kind="stable")]
    if np.array_equal(said, lying):
        return
    named, found = {tuple(row) for row in said.tolist()}, {tuple(row) for row in lying.tolist()}
    for rowid, block, slot in sorted(named - found):
        yield Problem(f"vector {rowid}: it is not in slot {slot} of block {block}", vectors=True)
    for rowid, block, slot in sorted(found - named):
        yield Problem(f"vector {rowid}: slot {slot} of block {block} is not known", vectors=True)


def _name(connection: apsw.Connection, document_id: int) -> str:
    row = connection.execute(
        "SELECT source || '/' || path FROM document WHERE id = ?", (int(document_id),)
    ).fetchone()
    return str(row[0]) if row else f"number {document_id}"


def _position(connection: apsw.Connection, chunk_id: int) -> int:
    row = connection.execute("SELECT position FROM chunk WHERE id = ?", (int(chunk_id),)).fetchone()
    return int(row[0]) if row else -1

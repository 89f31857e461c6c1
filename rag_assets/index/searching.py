"""Nearest passages to a question's vector, under the caller's ACL tags and sources."""

# ruff: noqa: S608  (only this package's own names are spelled into SQL; values are always bound)

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, Final

import apsw
import numpy as np

from rag_assets.acl import AclTags, Everything
from rag_assets.embeddings.base import Vectors
from rag_assets.errors import DimensionMismatch, IndexDamaged, VectorStoreError
from rag_assets.index.records import CHUNK_COLUMNS, chunk_from_row, hit_from_row, storable
from rag_assets.models import Hit

MAXIMUM_KNN: Final = 4096
"""sqlite-vec refuses a larger k; beyond it every visible vector is compared in plain SQL."""
MAXIMUM_IN_VALUES: Final = 200
"""vec0 compares every row with every value of an IN list: with 100 values a search of 100,000
vectors takes as long as without a filter, with 1,000 three times as long. Past this number the
visible passages are listed instead (``rowid IN``, a binary search)."""
_PARAMETERS: Final = 512
"""Values bound at once when tags and sources are looked up."""
_UNIT: Final = 1e-6
"""A vector this near to length 1 is used as it is."""

_NEAREST: Final = (
    "SELECT rowid, distance FROM chunk_vector WHERE embedding MATCH ? AND k = ?{filters} "
    "ORDER BY distance"
)
_COMPARE_ALL: Final = (
    "SELECT c.id, vec_distance_l2(v.embedding, ?) AS distance "
    "FROM document d JOIN chunk c ON c.document_id = d.id JOIN chunk_vector v ON v.rowid = c.id "
    "WHERE {conditions} ORDER BY distance, d.source, d.path, c.position LIMIT ?"
)
_DETAILS: Final = (
    "SELECT chunk.id, d.source, d.path, d.url, "
    + ", ".join(f"chunk.{name}" for name in CHUNK_COLUMNS.split(", "))
    + " FROM chunk JOIN document d ON d.id = chunk.document_id "
    "WHERE chunk.id IN (SELECT value FROM json_each(?))"
)
_KEYS: Final = (
    "SELECT c.id, d.source, d.path, c.position "
    "FROM chunk c JOIN document d ON d.id = c.document_id "
    "WHERE c.id IN (SELECT value FROM json_each(?))"
)


@dataclass(frozen=True, slots=True)
class Visible:
    """What the caller may see, as numbers of this index. None: no restriction."""

    acl_sets: list[int] | None
    sources: list[int] | None

    @property
    def nothing(self) -> bool:
        """True when no passage can match."""
        return self.acl_sets == [] or self.sources == []


def query_vector(vector: Vectors, dim: int) -> bytes:
    """The bytes of a question's vector, brought to unit length.

    Raises:
        DimensionMismatch: not of dimension ``dim``; the message has both.
        VectorStoreError: not one vector, not finite, or zero.
    """
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(vector, dtype="<f4")
    if array.ndim != 1:
        raise VectorStoreError(
            f"a search takes one vector of shape [{dim}], not an array of shape {list(array.shape)}"
        )
    if len(array) != dim:
        raise DimensionMismatch(
            f"the index holds vectors of dimension {dim}, the question's has {len(array)}; "
            "the embedder is not the one that built this index"
        )
    length = float(np.linalg.norm(array.astype(np.float64)))
    if not np.isfinite(length):
        raise VectorStoreError("the question's vector is not finite (NaN or infinity)")
    if length == 0.0:
        raise VectorStoreError("the question's vector is zero: it has no direction to search in")
    if abs(length - 1.0) > _UNIT:
        array = (array / length).astype("<f4")
    return array.tobytes()


def nearest(
    connection: apsw.Connection,
    vector: bytes,
    k: int,
    *,
    acl_tags: AclTags,
    sources: Collection[str] | None,
) -> list[Hit]:
    """The min(k, visible) nearest passages, best first, ties by (source, path, position).

    ``connection`` is inside a read transaction, so tags, vectors and texts are of one state.
    """
    visible = resolve(connection, acl_tags, sources)
    if visible.nothing:
        return []
    ranked = _ranked(connection, vector, k, visible)
    try:
        return list(_hits(connection, ranked))
    except KeyError as exc:
        raise IndexDamaged(
            f"{connection.db_filename('main')}: vector {exc} belongs to no passage; run "
            "`rag-assets verify`, then `rag-assets ingest`"
        ) from exc


def resolve(
    connection: apsw.Connection, acl_tags: AclTags, sources: Collection[str] | None
) -> Visible:
    """Turn tags and source names into this index's numbers, bound and never spelled into SQL."""
    acl_sets: list[int] | None = None
    if not isinstance(acl_tags, Everything):
        acl_sets = sorted(_numbers(connection, "acl_set", "acl_set_tag", "tag", acl_tags))
        total = connection.execute("SELECT count(*) FROM acl_set").fetchone()
        if acl_sets and total is not None and len(acl_sets) == total[0]:
            acl_sets = None
    source_ids: list[int] | None = None
    if sources is not None:
        source_ids = sorted(_numbers(connection, "id", "source", "name", sources))
    return Visible(acl_sets, source_ids)


def _numbers(
    connection: apsw.Connection, number: str, table: str, column: str, values: Collection[str]
) -> set[int]:
    found: set[int] = set()
    wanted = iter({storable(value) for value in values})
    while batch := list(islice(wanted, _PARAMETERS)):
        # Few lengths of the list, so that the prepared statements are reused.
        width = next(w for w in (1, 4, 32, _PARAMETERS) if w >= len(batch))
        batch += [batch[0]] * (width - len(batch))
        marks = ", ".join("?" * width)
        sql = f"SELECT {number} FROM {table} WHERE {column} IN ({marks})"
        found.update(row[0] for row in connection.execute(sql, batch))
    return found


def _ranked(
    connection: apsw.Connection, vector: bytes, k: int, visible: Visible
) -> list[tuple[int, float]]:
    """(chunk id, distance) of the k nearest in their exact order.

    vec0 breaks ties as it likes, so one row more than k is asked for: when it is as near as the
    k-th, the tie is fetched whole before it is cut.
    """
    asked = k + 1
    while asked <= MAXIMUM_KNN:
        rows = _knn(connection, vector, asked, visible)
        if len(rows) < asked or rows[k - 1][1] < rows[-1][1]:
            return _in_order(connection, rows)[:k]
        asked = 4 * asked
    return _compare_all(connection, vector, k, visible)


def _knn(
    connection: apsw.Connection, vector: bytes, k: int, visible: Visible
) -> list[tuple[int, float]]:
    filters, bindings = "", [vector, k]
    if max(len(visible.acl_sets or ()), len(visible.sources or ())) > MAXIMUM_IN_VALUES:
        conditions, values = _conditions(visible)
        filters = (
            " AND rowid IN (SELECT c.id FROM document d JOIN chunk c ON c.document_id = d.id "
            f"WHERE {conditions})"
        )
        bindings += values
    else:
        for column, numbers in (("acl_set", visible.acl_sets), ("source_id", visible.sources)):
            if numbers is not None:
                filters += f" AND {column} IN (SELECT value FROM json_each(?))"
                bindings.append(json.dumps(numbers))
    rows: list[Any] = connection.execute(_NEAREST.format(filters=filters), bindings).fetchall()
    if any(distance is None for _, distance in rows):
        raise IndexDamaged(
            f"{connection.db_filename('main')}: a stored vector is not a number; run "
            "`rag-assets verify`, then `rag-assets ingest`"
        )
    return rows


def _conditions(visible: Visible) -> tuple[str, list[Any]]:
    """The visible documents, in plain SQL over ``document d``."""
    conditions, bindings = ["TRUE"], []
    if visible.acl_sets is not None:
        conditions.append("d.acl_set IN (SELECT value FROM json_each(?))")
        bindings.append(json.dumps(visible.acl_sets))
    if visible.sources is not None:
        conditions.append(
            "d.source IN (SELECT name FROM source WHERE id IN (SELECT value FROM json_each(?)))"
        )
        bindings.append(json.dumps(visible.sources))
    return " AND ".join(conditions), bindings


def _compare_all(
    connection: apsw.Connection, vector: bytes, k: int, visible: Visible
) -> list[tuple[int, float]]:
    conditions, bindings = _conditions(visible)
    sql = _COMPARE_ALL.format(conditions=conditions)
    limit = min(k, 2**62)
    rows: list[Any] = connection.execute(sql, [vector, *bindings, limit]).fetchall()
    return rows


def _in_order(
    connection: apsw.Connection, rows: list[tuple[int, float]]
) -> list[tuple[int, float]]:
    """``rows``, which come by distance, with ties by (source, path, position)."""
    distances = [distance for _, distance in rows]
    if all(one < other for one, other in pairwise(distances)):
        return rows
    keys = {
        row[0]: row[1:]
        for row in connection.execute(_KEYS, (json.dumps([chunk_id for chunk_id, _ in rows]),))
    }
    return sorted(rows, key=lambda row: (row[1], keys[row[0]]))


def _hits(connection: apsw.Connection, ranked: Iterable[tuple[int, float]]) -> Iterator[Hit]:
    rank = 0
    remaining = iter(ranked)
    while batch := list(islice(remaining, MAXIMUM_KNN)):
        ids = json.dumps([chunk_id for chunk_id, _ in batch])
        details = {row[0]: row[1:] for row in connection.execute(_DETAILS, (ids,))}
        for chunk_id, distance in batch:
            rank += 1
            source, path, url, *columns = details[chunk_id]
            yield hit_from_row(rank, distance, url, chunk_from_row(source, path, columns))

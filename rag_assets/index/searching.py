"""The best passages for a question by vector, by text or by both, under ACL tags and filters."""

# ruff: noqa: S608  (only this package's own names are spelled into SQL; values are always bound)

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, Final

import apsw
import numpy as np

from rag_assets.acl import AclTags
from rag_assets.citations import hit_from_chunk
from rag_assets.embeddings.base import Vectors
from rag_assets.errors import DimensionMismatch, IndexDamaged, VectorStoreError
from rag_assets.filters import Filters
from rag_assets.index.base import Candidates, Fuse
from rag_assets.index.full_text import Scores, TextMatches, match_text
from rag_assets.index.records import CHUNK_COLUMNS, chunk_from_row
from rag_assets.index.text_memory import Ids, TextMemory
from rag_assets.index.visibility import (
    Visible,
    asked_passages,
    document_conditions,
    resolve,
)
from rag_assets.models import Hit, ScoreKind

MAXIMUM_KNN: Final = 4096
"""sqlite-vec refuses a larger k; beyond it every visible vector is compared in plain SQL."""
MAXIMUM_IN_VALUES: Final = 200
"""vec0 compares every row with every value of an IN list: with 100 values a search of 100,000
vectors takes as long as without a filter, with 1,000 three times as long. Past this number the
visible passages are listed instead (``rowid IN``, a binary search)."""
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
    "SELECT chunk.id, d.source, d.path, d.url, d.language, d.modified_at, "
    + ", ".join(f"chunk.{name}" for name in CHUNK_COLUMNS.split(", "))
    + " FROM chunk JOIN document d ON d.id = chunk.document_id "
    "WHERE chunk.id IN (SELECT value FROM json_each(?))"
)
_KEYS: Final = (
    "SELECT c.id, d.source, d.path, c.position "
    "FROM chunk c JOIN document d ON d.id = c.document_id "
    "WHERE c.id IN (SELECT value FROM json_each(?))"
)


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


def search(
    connection: apsw.Connection,
    vector: bytes | None,
    text: str | None,
    k: int,
    *,
    acl_tags: AclTags,
    filters: Filters,
    fuse: Fuse | None,
    depth: int,
    memory: TextMemory,
) -> list[Hit]:
    """The min(k, visible) best passages by vector, by text, or by both fused.

    Best first, ties by (source, path, position). ``connection`` is inside a read transaction, so
    tags, vectors and texts are of one state.
    """
    visible = resolve(connection, acl_tags, filters)
    if visible.nothing:
        return []
    asked = asked_passages(connection, visible)
    if asked == []:
        return []
    scope = _Scope(connection, visible, asked, memory)
    if text is None:
        assert vector is not None
        found = _by_vector(scope, vector, k)
    elif vector is None:
        found = _by_text(scope, text, k)
    else:
        assert fuse is not None
        found = _by_both(scope, vector, text, k, fuse, max(k, depth))
    try:
        return list(_hits(connection, found))
    except KeyError as exc:
        raise _orphan(connection, exc) from exc


@dataclass(frozen=True, slots=True)
class _Scope:
    """Where one search looks."""

    connection: apsw.Connection
    """Inside a read transaction."""
    visible: Visible
    asked: list[int] | None
    """Passages that pass the narrow filters; None when there are no such filters."""
    memory: TextMemory

    def matches(self, text: str, *, skip_frequent: bool) -> TextMatches:
        asked = None if self.asked is None else np.array(self.asked, dtype=np.int64)
        return match_text(
            self.connection, text, self.visible, asked, self.memory, skip_frequent=skip_frequent
        )


def _orphan(connection: apsw.Connection, chunk_id: object) -> IndexDamaged:
    return IndexDamaged(
        f"{connection.db_filename('main')}: vector or text {chunk_id} belongs to no passage; run "
        "`rag-assets verify`, then `rag-assets ingest`"
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """A passage and what the legs say of it."""

    chunk_id: int
    kind: ScoreKind
    score: float
    vector_score: float | None = None
    text_score: float | None = None
    vector_rank: int | None = None
    text_rank: int | None = None


def _by_vector(scope: _Scope, vector: bytes, k: int) -> list[_Found]:
    found = []
    for rank, (chunk_id, distance) in enumerate(_ranked(scope, vector, k), start=1):
        score = _cosine(distance)
        found.append(_Found(chunk_id, "vector", score, vector_score=score, vector_rank=rank))
    return found


def _by_text(scope: _Scope, text: str, k: int) -> list[_Found]:
    matches = scope.matches(text, skip_frequent=False)
    found = []
    for rank, row in enumerate(_best(scope.connection, matches.ids, matches.scores, k), start=1):
        score = float(matches.scores[row])
        chunk_id = int(matches.ids[row])
        found.append(_Found(chunk_id, "text", score, text_score=score, text_rank=rank))
    return found


def _by_both(
    scope: _Scope, vector: bytes, text: str, k: int, fuse: Fuse, depth: int
) -> list[_Found]:
    """The best of each leg, each with the scores of both, ranked by ``fuse``."""
    connection = scope.connection
    distances = dict(_ranked(scope, vector, depth))
    vector_ranks = {chunk_id: rank for rank, chunk_id in enumerate(distances, start=1)}
    matches = scope.matches(text, skip_frequent=True)
    best = matches.ids[_best(connection, matches.ids, matches.scores, depth)].tolist()
    text_ranks = {chunk_id: rank for rank, chunk_id in enumerate(best, start=1)}
    missing = [chunk_id for chunk_id in best if chunk_id not in distances]
    distances.update(_distances(connection, vector, missing))
    ids = np.array(sorted(distances), dtype=np.int64)
    if not len(ids):
        return []
    vector_scores = np.array([_cosine(distances[i]) for i in ids.tolist()])
    text_scores, shares = _looked_up(matches, ids)
    fused = fuse(Candidates(vector_scores, text_scores, shares))
    return [
        _Found(
            chunk_id := int(ids[row]),
            "hybrid",
            float(fused[row]),
            float(vector_scores[row]),
            float(text_scores[row]),
            vector_ranks.get(chunk_id),
            text_ranks.get(chunk_id),
        )
        for row in _best(connection, ids, fused, k)
    ]


def _looked_up(matches: TextMatches, ids: Ids) -> tuple[Scores, Scores]:
    """Scores and shares of ``ids`` (ascending) in the text leg; 0 where no term matches."""
    if not len(matches.ids):
        return np.zeros(len(ids)), np.zeros(len(ids))
    place = np.minimum(np.searchsorted(matches.ids, ids), len(matches.ids) - 1)
    matched = matches.ids[place] == ids
    scores, shares = matches.scores[place], matches.shares[place]
    return np.where(matched, scores, 0.0), np.where(matched, shares, 0.0)


def _best(connection: apsw.Connection, ids: Ids, scores: Scores, k: int) -> list[int]:
    """Rows of the k highest scores, ties by (source, path, position)."""
    k = min(k, len(ids))
    if not k:
        return []
    least = np.partition(scores, len(scores) - k)[len(scores) - k]
    rows = np.flatnonzero(scores >= least)
    rows = rows[np.argsort(-scores[rows], kind="stable")]
    ranked = [(int(ids[row]), -float(scores[row])) for row in rows]
    place = {int(ids[row]): int(row) for row in rows}
    return [place[chunk_id] for chunk_id, _ in _in_order(connection, ranked)[:k]]


def _distances(connection: apsw.Connection, vector: bytes, ids: Sequence[int]) -> dict[int, float]:
    """L2 distances of these passages to the question, each looked up by its number.

    ``rowid IN`` without a MATCH makes vec0 read every vector.
    """
    found: dict[int, float] = {}
    for chunk_id in ids:
        row = connection.execute(
            "SELECT vec_distance_l2(embedding, ?) FROM chunk_vector WHERE rowid = ?",
            (vector, chunk_id),
        ).fetchone()
        if row is None or row[0] is None:
            raise _orphan(connection, chunk_id)
        found[chunk_id] = row[0]
    return found


def _cosine(distance: float) -> float:
    """The cosine of two unit vectors whose L2 distance is given."""
    return 1.0 - distance * distance / 2.0


def _ranked(scope: _Scope, vector: bytes, k: int) -> list[tuple[int, float]]:
    """(chunk id, distance) of the k nearest in their exact order.

    vec0 breaks ties as it likes, so one row more than k is asked for: when it is as near as the
    k-th, the tie is fetched whole before it is cut.
    """
    asked = k + 1
    while asked <= MAXIMUM_KNN:
        rows = _knn(scope, vector, asked)
        if len(rows) < asked or rows[k - 1][1] < rows[-1][1]:
            return _in_order(scope.connection, rows)[:k]
        asked = 4 * asked
    return _compare_all(scope.connection, vector, k, scope.visible)


def _knn(scope: _Scope, vector: bytes, k: int) -> list[tuple[int, float]]:
    connection, visible = scope.connection, scope.visible
    filters, bindings = "", [vector, k]
    many = max(len(visible.acl_sets or ()), len(visible.sources or ())) > MAXIMUM_IN_VALUES
    if scope.asked is not None:
        filters = " AND rowid IN (SELECT value FROM json_each(?))"
        bindings.append(json.dumps(scope.asked))
    elif many:
        conditions, values = document_conditions(visible)
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


def _compare_all(
    connection: apsw.Connection, vector: bytes, k: int, visible: Visible
) -> list[tuple[int, float]]:
    conditions, bindings = document_conditions(visible)
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


def _hits(connection: apsw.Connection, found: Sequence[_Found]) -> Iterator[Hit]:
    rank = 0
    remaining = iter(found)
    while batch := list(islice(remaining, MAXIMUM_KNN)):
        ids = json.dumps([one.chunk_id for one in batch])
        details = {row[0]: row[1:] for row in connection.execute(_DETAILS, (ids,))}
        for one in batch:
            rank += 1
            source, path, url, language, modified_at, *columns = details[one.chunk_id]
            yield hit_from_chunk(
                chunk_from_row(source, path, columns),
                url=url,
                language=language,
                modified_at=modified_at,
                rank=rank,
                score=one.score,
                score_kind=one.kind,
                vector_score=one.vector_score,
                text_score=one.text_score,
                vector_rank=one.vector_rank,
                text_rank=one.text_rank,
            )

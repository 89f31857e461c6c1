"""SQLite stores with one fault each, of the kinds that leak or lose passages: seeded on purpose."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_assets.acl import EVERYTHING
from rag_assets.analysis import query_terms
from rag_assets.filters import Filters
from rag_assets.index import full_text, schema, searching, visibility
from rag_assets.index.full_text import TextMatches
from rag_assets.index.records import storable
from rag_assets.index.sqlite import SqliteStore
from rag_assets.index.visibility import Visible, document_conditions
from rag_assets.models import Hit

Patch = pytest.MonkeyPatch
Seed = Callable[[Patch], type[SqliteStore]]


def post_filter_by_join(patch: Patch) -> type[SqliteStore]:
    """The k nearest of all, of which a join keeps the visible ones."""

    def knn(scope: Any, vector: bytes, k: int) -> list[Any]:
        conditions, bindings = document_conditions(scope.visible)
        return scope.connection.execute(
            "SELECT v.rowid, v.distance FROM chunk_vector v JOIN chunk c ON c.id = v.rowid "
            "JOIN document d ON d.id = c.document_id WHERE v.embedding MATCH ? AND v.k = ? "
            f"AND {conditions} ORDER BY v.distance",
            [vector, k, *bindings],
        ).fetchall()

    patch.setattr(searching, "_knn", knn)
    return SqliteStore


def not_in_place_of_in(patch: Patch) -> type[SqliteStore]:
    """The sets that are hidden are excluded; vec0 does that after it has chosen k."""

    def knn(scope: Any, vector: bytes, k: int) -> list[Any]:
        visible, filters, bindings = scope.visible, "", [vector, k]
        for column, table, numbers in (
            ("acl_set", "acl_set", visible.acl_sets),
            ("source_id", "source", visible.sources),
        ):
            if numbers is not None:
                filters += (
                    f" AND NOT ({column} IN (SELECT id FROM {table} WHERE id NOT IN "
                    "(SELECT value FROM json_each(?))))"
                )
                bindings.append(json.dumps(numbers))
        if visible.is_narrow:
            conditions, values = document_conditions(visible)
            filters += (
                " AND rowid IN (SELECT c.id FROM document d JOIN chunk c ON c.document_id = d.id "
                f"WHERE {conditions})"
            )
            bindings += values
        sql = searching._NEAREST.format(filters=filters)
        return scope.connection.execute(sql, bindings).fetchall()

    patch.setattr(searching, "_knn", knn)
    return SqliteStore


def partition_in(patch: Patch) -> type[SqliteStore]:
    """The ACL set as vec0's partition key: k rows for each set, one set after the other.

    They are taken as they come: vec0 needs no ORDER BY where there is no partition.
    """

    def in_order(connection: Any, rows: list[tuple[int, float]]) -> list[tuple[int, float]]:
        runs = (list(run) for _, run in groupby(rows, key=lambda row: row[1]))
        return [row for run in runs for row in right(connection, run)]

    right = searching._in_order
    patch.setattr(searching, "_in_order", in_order)
    patch.setattr(searching, "_NEAREST", searching._NEAREST.removesuffix("ORDER BY distance"))
    table = schema._CREATE_CHUNK_VECTOR.replace("acl_set integer", "acl_set integer partition key")
    patch.setattr(schema, "_CREATE_CHUNK_VECTOR", table)
    return SqliteStore


def statistics_of_hidden_passages(patch: Patch) -> type[SqliteStore]:
    """BM25 counts all passages, and looks only the visible ones up."""
    right = full_text._statistics

    def statistics(connection: Any, visible: Visible) -> Any:
        everything = right(connection, replace(visible, acl_sets=None))
        return replace(everything, acl_sets=right(connection, visible).acl_sets)

    patch.setattr(full_text, "_statistics", statistics)
    return SqliteStore


def bm25_of_fts5(patch: Patch) -> type[SqliteStore]:
    """FTS5's own bm25(), over the right passages but with the statistics of all."""

    def match(connection: Any, question: str, visible: Visible, *_: Any, **__: Any) -> TextMatches:
        acl_sets = full_text._statistics(connection, visible).acl_sets
        wanted = [
            f'"{term}{full_text._mark(language)}{acl_set}"'
            for language, some in acl_sets.items()
            for term in query_terms(question, language)
            for acl_set in some
        ]
        if not wanted:
            return full_text._joined([])
        conditions, bindings = document_conditions(visible)
        rows = connection.execute(
            "SELECT rowid, -bm25(chunk_text) FROM chunk_text WHERE chunk_text MATCH ? "
            "AND rowid IN (SELECT c.id FROM document d JOIN chunk c ON c.document_id = d.id "
            f"WHERE {conditions}) ORDER BY rowid",
            [" OR ".join(wanted), *bindings],
        ).fetchall()
        ids = np.array([row[0] for row in rows], dtype=np.int64)
        scores = np.array([row[1] for row in rows], dtype=np.float64)
        return TextMatches(ids, scores, scores / max([1.0, *scores]))

    patch.setattr(searching, "match_text", match)
    return SqliteStore


def answers_kept_by_question(patch: Patch) -> type[SqliteStore]:
    """A cache, emptied by every write, whose key lacks the caller."""

    class Caching(SqliteStore):
        def __init__(self, path: Path) -> None:
            super().__init__(path)
            self.kept: dict[Any, list[Hit]] = {}

        @contextmanager
        def _transaction(self) -> Iterator[Any]:
            self.kept.clear()
            with super()._transaction() as connection:
                yield connection

        def upsert_documents(self, items: Any, *, run_id: str) -> Any:
            self.kept.clear()
            return super().upsert_documents(items, run_id=run_id)

        def search(self, vector: Any, k: int, **options: Any) -> list[Hit]:
            asked = (None if vector is None else vector.tobytes(), k, options.get("text"))
            if asked not in self.kept:
                self.kept[asked] = super().search(vector, k, **options)
            return self.kept[asked]

    return Caching


def prefix_of_tags(patch: Patch) -> type[SqliteStore]:
    """A caller's tag stands for all that begin with it."""
    return _tags_compared_by(patch, "tag LIKE ? || '%'")


def tags_as_patterns(patch: Patch) -> type[SqliteStore]:
    """A caller's tag is a pattern."""
    return _tags_compared_by(patch, "tag LIKE ?")


def case_of_tags_folded(patch: Patch) -> type[SqliteStore]:
    """A caller's tag stands for all its spellings in capitals."""
    return _tags_compared_by(patch, "tag = ? COLLATE NOCASE")


def _tags_compared_by(patch: Patch, condition: str) -> type[SqliteStore]:
    right = visibility._numbers

    def numbers(connection: Any, number: str, table: str, column: str, values: Any) -> set[int]:
        if column != "tag":
            return right(connection, number, table, column, values)
        sql = f"SELECT acl_set FROM acl_set_tag WHERE {condition}"
        return {row[0] for value in values for row in connection.execute(sql, (storable(value),))}

    patch.setattr(visibility, "_numbers", numbers)
    return SqliteStore


def filters_after_top_k(patch: Patch) -> type[SqliteStore]:
    """The k best of all that is visible, of which the filters keep some."""

    class Late(SqliteStore):
        def search(self, vector: Any, k: int, **options: Any) -> list[Hit]:
            filters = options.pop("filters", None) or Filters()
            kept = {
                (hit.source, hit.path, hit.position)
                for hit in super().search(_ANY, 10**6, acl_tags=EVERYTHING, filters=filters)
            }
            hits = super().search(vector, k, **options)
            return _renumbered(
                [hit for hit in hits if (hit.source, hit.path, hit.position) in kept]
            )

    return Late


def acl_after_top_k(patch: Patch) -> type[SqliteStore]:
    """The k best of all, of which the caller's tags keep some."""

    class Late(SqliteStore):
        def search(self, vector: Any, k: int, *, acl_tags: Any, **options: Any) -> list[Hit]:
            hits = super().search(vector, k, acl_tags=EVERYTHING, **options)
            return _renumbered(
                [h for h in hits if self.document(h.source, h.path, acl_tags=acl_tags)]
            )

    return Late


def text_leg_without_acl(patch: Patch) -> type[SqliteStore]:
    """The words of every document are searched."""
    right = full_text.match_text

    def match(
        connection: Any, question: str, visible: Visible, *rest: Any, **options: Any
    ) -> TextMatches:
        return right(connection, question, replace(visible, acl_sets=None), *rest, **options)

    patch.setattr(searching, "match_text", match)
    return SqliteStore


def text_leg_without_filters(patch: Patch) -> type[SqliteStore]:
    """The words of every document that the caller may read are searched."""
    right = full_text.match_text

    def match(
        connection: Any, question: str, visible: Visible, asked: Any, *rest: Any, **options: Any
    ) -> TextMatches:
        unfiltered = Visible(visible.acl_sets, None, Filters())
        return right(connection, question, unfiltered, None, *rest, **options)

    patch.setattr(searching, "match_text", match)
    return SqliteStore


def ties_as_they_come(patch: Patch) -> type[SqliteStore]:
    """Equal scores stay in the order of the rows."""
    patch.setattr(searching, "_in_order", lambda connection, rows: rows)
    return SqliteStore


def _renumbered(hits: Sequence[Hit]) -> list[Hit]:
    return [replace(hit, rank=rank) for rank, hit in enumerate(hits, start=1)]


_ANY = np.array([1.0, *[0.0] * 7], dtype=np.float32)

WRONG: dict[str, Seed] = {
    seed.__name__: seed
    for seed in (
        post_filter_by_join,
        not_in_place_of_in,
        partition_in,
        statistics_of_hidden_passages,
        bm25_of_fts5,
        answers_kept_by_question,
        prefix_of_tags,
        tags_as_patterns,
        case_of_tags_folded,
        filters_after_top_k,
        acl_after_top_k,
        text_leg_without_acl,
        text_leg_without_filters,
        ties_as_they_come,
    )
}

"""What a caller may see and asked for, as conditions over the rows of this index."""

# ruff: noqa: S608  (only this package's own names are spelled into SQL; values are always bound)

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import apsw

from rag_assets.acl import AclTags, Everything
from rag_assets.errors import InvalidQuery
from rag_assets.filters import Filters
from rag_assets.index.records import storable
from rag_assets.path_globs import compile_paths

_PARAMETERS: Final = 512
"""Values bound at once when tags and sources are looked up."""


@dataclass(frozen=True, slots=True)
class Visible:
    """What the caller may see, as numbers of this index, and what it asked for of that."""

    acl_sets: list[int] | None
    """None: every set."""
    sources: list[int] | None
    """None: every source."""
    filters: Filters
    """The sources are in ``sources`` already."""

    @property
    def nothing(self) -> bool:
        """True when no passage can match."""
        return self.acl_sets == [] or self.sources == [] or self.filters.nothing_matches

    @property
    def is_narrow(self) -> bool:
        """True when documents have to be looked at to know whether they pass."""
        f = self.filters
        return any(
            (f.paths, f.metadata, f.languages, f.modified_after, f.modified_before),
        )


def resolve(connection: apsw.Connection, acl_tags: AclTags, filters: Filters) -> Visible:
    """Turn tags and source names into this index's numbers, bound and never spelled into SQL.

    Raises:
        InvalidQuery: a path pattern that cannot match.
    """
    acl_sets: list[int] | None = None
    if not isinstance(acl_tags, Everything):
        # Spelled out as it is stored, a tag with a lone surrogate would be another tag.
        tags = [tag for tag in acl_tags if storable(tag) == tag]
        acl_sets = sorted(_numbers(connection, "acl_set", "acl_set_tag", "tag", tags))
        total = connection.execute("SELECT count(*) FROM acl_set").fetchone()
        if acl_sets and total is not None and len(acl_sets) == total[0]:
            acl_sets = None
    source_ids: list[int] | None = None
    if filters.sources is not None:
        source_ids = sorted(_numbers(connection, "id", "source", "name", filters.sources))
    if filters.paths:
        connection.create_scalar_function(
            "path_matches", _path_matcher(filters.paths), 1, deterministic=True
        )
    return Visible(acl_sets, source_ids, filters)


def _path_matcher(paths: tuple[str, ...]) -> Callable[..., bool]:
    try:
        return compile_paths(paths)
    except ValueError as exc:
        raise InvalidQuery(f"filter path: {exc}") from None


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


def document_conditions(visible: Visible) -> tuple[str, list[Any]]:
    """SQL over ``document d`` that holds for what is visible and asked for, and its bindings."""
    filters = visible.filters
    conditions: list[str] = ["TRUE"]
    bindings: list[Any] = []

    def listed(column: str, values: Any) -> None:
        if values is not None:
            conditions.append(f"{column} IN (SELECT value FROM json_each(?))")
            bindings.append(json.dumps(list(values)))

    listed("d.acl_set", visible.acl_sets)
    if visible.sources is not None:
        conditions.append(
            "d.source IN (SELECT name FROM source WHERE id IN (SELECT value FROM json_each(?)))"
        )
        bindings.append(json.dumps(visible.sources))
    listed("d.language", filters.languages)
    for operator, moment in ((">=", filters.modified_after), ("<", filters.modified_before)):
        if moment is not None:
            conditions.append(f"d.modified_at {operator} ?")
            bindings.append(moment)
    if filters.metadata:
        # One condition for all keys: SQLite refuses an expression a thousand deep.
        conditions.append(
            "(SELECT count(*) FROM json_each(d.metadata) held JOIN json_each(?) wanted "
            "ON wanted.key = held.key AND wanted.value = held.value) = ?"
        )
        wanted = {storable(key): storable(value) for key, value in filters.metadata.items()}
        bindings += [json.dumps(wanted), len(wanted)]
    if filters.paths:
        conditions.append("path_matches(d.path)")
    return " AND ".join(conditions), bindings


def asked_passages(connection: apsw.Connection, visible: Visible) -> list[int] | None:
    """Ids of the visible passages that pass narrow filters, ascending; None when there are none.

    Both legs use this list, so that every document is looked at once.
    """
    if not visible.is_narrow:
        return None
    conditions, bindings = document_conditions(visible)
    rows = connection.execute(
        "SELECT c.id FROM document d JOIN chunk c ON c.document_id = d.id "
        f"WHERE {conditions} ORDER BY c.id",
        bindings,
    )
    return [row[0] for row in rows]

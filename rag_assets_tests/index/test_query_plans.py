"""What SQLite does for a search: every filter goes into the nearest-neighbour scan, none after."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest

from rag_assets.acl import EVERYTHING, AclTags
from rag_assets.filters import Filters
from rag_assets.index.connections import open_for_reading
from rag_assets.index.searching import MAXIMUM_IN_VALUES, MAXIMUM_KNN
from rag_assets.index.sqlite import SqliteStore
from rag_assets.models import Hit
from rag_assets.retrieval.fusion import Fusion
from rag_assets.testing.documents import FINGERPRINT, found, indexed_document, unit_vector, write
from rag_assets.testing.reference_search import may_read, passes

DOCUMENTS = MAXIMUM_IN_VALUES + 10
METADATA_COLUMNS = {"A": "acl_set", "B": "source_id"}
"""Columns of ``chunk_vector`` in the order in which they are declared, as vec0 names them."""
OPERATORS = {"a": "=", "b": ">", "c": "<=", "d": "<", "e": ">=", "f": "!=", "g": "IN"}
TERM_EQUAL, TERM_BETWEEN = 0x100, 0x600
"""How fts5vocab's plan number says that it was given a term, or a first and a last one."""

CALLERS: Mapping[str, AclTags] = {
    "everything": EVERYTHING,
    "two sets": ["tag:3", "tag:8", "absent"],
    "many sets": [f"tag:{n}" for n in range(DOCUMENTS - 5)],
}
SOURCES: Mapping[str, tuple[str, ...] | None] = {"any source": None, "one source": ("a",)}
NARROW: Mapping[str, Mapping[str, Any]] = {
    "no filter": {},
    "path": {"path": ["**/*.md", "00"]},
    "language": {"language": "fr"},
    "metadata": {"metadata": {"auteur": "Zoé", "version": "1.10"}},
    "time": {"modified_after": "2026-01-01", "modified_before": "2027-01-01"},
    "all": {
        "path": "**/*.md",
        "language": ["fr", "en"],
        "metadata": {"auteur": "Zoé"},
        "modified_after": "2026-01-01",
    },
}
ITEMS = [
    indexed_document(
        f"{n % 7:02}/{n}.md", ["le réseau", f"un chat {n}"], source="ab"[n % 2], tags=[f"tag:{n}"]
    )
    for n in range(DOCUMENTS)
]


@dataclass(frozen=True)
class Step:
    """One access to a table."""

    verb: str
    table: str
    how: str
    statement: str
    is_first_level: bool


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteStore]:
    """More sets of tags than a list of them is made for, in two sources."""
    store = SqliteStore(tmp_path_factory.mktemp("plans") / "index.sqlite")
    store.initialize(FINGERPRINT)
    write(store, *ITEMS)
    yield store
    store.close()


@contextmanager
def statements() -> Iterator[dict[str, Any]]:
    """Every statement that a connection opened meanwhile runs, with the bindings it had last."""
    ran: dict[str, Any] = {}

    def remember(_: Any, sql: str, bindings: Any) -> bool:
        ran[sql] = bindings
        return True

    def hook(connection: apsw.Connection) -> None:
        connection.exec_trace = remember

    apsw.connection_hooks.append(hook)
    try:
        yield ran
    finally:
        apsw.connection_hooks.remove(hook)


def steps_of_a_search(
    path: Path, k: int, acl_tags: AclTags, filters: Filters, *, after: int = 0
) -> tuple[list[Step], list[tuple[str, str, int]]]:
    """What a hybrid search does, and what it finds; ``after`` others on the same connection."""
    store = SqliteStore(path)

    def search() -> list[Hit]:
        return store.search(
            unit_vector("un chat 8"),
            k,
            acl_tags=acl_tags,
            filters=filters,
            text="le chat",
            fuse=Fusion(),
            depth=k,
        )

    with statements() as ran:
        for _ in range(after):
            search()
        ran.clear()
        hits = search()
    store.close()
    connection = open_for_reading(path)
    connection.create_scalar_function("path_matches", lambda _: True, 1)
    steps = [
        step
        for sql, bindings in ran.items()
        if sql.lstrip().startswith(("SELECT", "WITH"))
        for step in _plan(connection, sql, bindings)
    ]
    connection.close()
    return steps, found(hits)


def _plan(connection: apsw.Connection, sql: str, bindings: Any) -> Iterator[Step]:
    rows: list[Any] = connection.execute(f"EXPLAIN QUERY PLAN {sql}", bindings).fetchall()
    for _, parent, _, detail in rows:
        match = re.match(r"(SCAN|SEARCH) (\S+) ?(.*)", detail)
        verb, alias, how = match.groups() if match else (detail, "", "")
        named = re.search(rf"(\w+) {re.escape(alias)}\b", sql) if len(alias) == 1 else None
        yield Step(verb, named[1] if named else alias, how, sql, parent == 0)


def consumed(step: Step) -> set[str]:
    """The constraints that vec0 was given, out of its plan's name (sqlite-vec 0.1.9, vec0.c)."""
    name = step.how.rpartition(":")[2]
    kinds = {"1": "full scan", "2": "lookup", "3": "nearest"}
    given = {kinds[name[0]]}
    for block in re.findall(".{4}", name[1:]):
        if block[0] == "&":
            given.add(f"{METADATA_COLUMNS[block[1]]} {OPERATORS[block[2]]}")
        else:
            given.add({"{": "MATCH", "}": "k", "[": "rowid IN", "!": "rowid ="}[block[0]])
    return given


def visible(acl_tags: AclTags, filters: Filters) -> int:
    """Passages that may be in the answer."""
    documents = [item for item in ITEMS if may_read(item.document, acl_tags)]
    return sum(len(item.chunks) for item in documents if passes(item.document, filters))


@pytest.mark.parametrize("narrow", NARROW)
@pytest.mark.parametrize("sources", SOURCES)
@pytest.mark.parametrize("caller", CALLERS)
def test_no_filter_falls_behind_top_k(
    store: SqliteStore, caller: str, sources: str, narrow: str
) -> None:
    """The scan is given every condition, alone, and the answer is as full as it can be."""
    filters = Filters.of({**NARROW[narrow], "source": SOURCES[sources]})
    steps, names = steps_of_a_search(store.path, 20, CALLERS[caller], filters)
    assert len(names) == min(20, visible(CALLERS[caller], filters))
    nearest = [s for s in steps if s.table == "chunk_vector" and " MATCH " in s.statement]
    assert nearest
    for step in nearest:
        given = consumed(step)
        assert given >= {"nearest", "MATCH", "k"}
        if NARROW[narrow] or caller == "many sets":
            assert "rowid IN" in given
        else:
            assert ("acl_set IN" in given) == (caller != "everything")
            assert ("source_id IN" in given) == (sources != "any source")
        # As many conditions in the text as vec0 took: none is left for SQLite to check later.
        asked = step.statement.partition(" WHERE ")[2].partition("(SELECT")[0]
        in_text = len(re.findall(r"\b(?:acl_set|source_id|rowid) IN", step.statement))
        assert len(given) - 3 >= min(1, in_text), asked
        others = [
            s for s in steps if s.statement == step.statement and s.is_first_level and s is not step
        ]
        assert [s for s in others if s.table] == [], "a table is joined to the scan"
        assert "CREATE BLOOM FILTER" not in [s.verb for s in others], "a list is checked later"


@pytest.mark.parametrize("narrow", ["no filter", "all"])
@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("k", [20, MAXIMUM_KNN + 1])
def test_no_table_is_read_where_rows_can_be_looked_up(
    store: SqliteStore, caller: str, narrow: str, k: int
) -> None:
    """Vectors are scanned only for the nearest, terms and passages are looked up."""
    filters = Filters.of(NARROW[narrow])
    steps, names = steps_of_a_search(store.path, k, CALLERS[caller], filters)
    assert len(names) == min(k, visible(CALLERS[caller], filters))
    for step in steps:
        if step.table == "chunk_vector":
            # Beyond vec0's largest k every vector may be read, by the one statement that cuts last.
            compares_all = step.statement.endswith(" LIMIT ?") and k > MAXIMUM_KNN
            assert "full scan" not in consumed(step) or compares_all, step.statement
        elif step.table in ("chunk_term", "chunk_term_count"):
            number = int(step.how.rpartition("INDEX ")[2].partition(":")[0]) & 0x700
            assert number in (TERM_EQUAL, TERM_BETWEEN), step.statement
        elif step.table == "chunk":
            assert step.verb == "SEARCH", step.statement
    read = {step.table for step in steps}
    assert {"chunk_vector", "chunk_term", "chunk", "document"} <= read


def test_lengths_of_passages_are_read_once(store: SqliteStore) -> None:
    """While the index does not change, a later search finds them in memory, under any tags."""
    first, _ = steps_of_a_search(store.path, 20, EVERYTHING, Filters())
    assert len([step for step in first if step.table == "text_length"]) == 1
    for tags in (EVERYTHING, ["tag:3"]):
        later, _ = steps_of_a_search(store.path, 20, tags, Filters(), after=1)
        assert "text_length" not in {step.table for step in later}


@pytest.mark.parametrize(
    ("wrong", "given"),
    [
        ("AND NOT (acl_set IN (1, 2))", set()),
        ("AND abs(acl_set) = 1", set()),
        ("AND EXISTS (SELECT 1 FROM document d WHERE d.acl_set = chunk_vector.acl_set)", set()),
        ("AND acl_set IN (1, 2)", {"acl_set IN"}),
    ],
    ids=["not", "function", "exists", "right"],
)
def test_a_filter_that_falls_behind_is_seen_in_the_plan(
    store: SqliteStore, wrong: str, given: set[str]
) -> None:
    """What these tests read in a plan does tell the right spelling from the wrong ones."""
    sql = f"SELECT rowid, distance FROM chunk_vector WHERE embedding MATCH ? AND k = ? {wrong}"
    connection = open_for_reading(store.path)
    steps = [
        step
        for step in _plan(connection, sql, (unit_vector("x").tobytes(), 5))
        if step.table == "chunk_vector"
    ]
    connection.close()
    assert consumed(steps[0]) == {"nearest", "MATCH", "k", *given}

"""What is particular to searching with sqlite-vec: its limits, its filters, its versions."""

from __future__ import annotations

from pathlib import Path

import apsw
import numpy as np
import pytest

from rag_assets.acl import EVERYTHING
from rag_assets.errors import ExtensionUnavailable
from rag_assets.index.base import IndexedDocument
from rag_assets.index.connections import check_versions
from rag_assets.index.searching import MAXIMUM_IN_VALUES, MAXIMUM_KNN
from rag_assets.index.sqlite import SqliteStore
from rag_assets.testing.documents import (
    FINGERPRINT,
    assert_nearest,
    by_source,
    found,
    indexed_document,
    unit_vector,
    write,
)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[SqliteStore, list[IndexedDocument]]:
    """6,000 passages in 600 documents, each under a set of tags of its own, in two sources."""
    store = SqliteStore(tmp_path_factory.mktemp("large") / "index.sqlite")
    store.initialize(FINGERPRINT)
    items = [
        indexed_document(
            f"{n:03}.md",
            [f"p {n} {m}" if m else "le même pied de page" for m in range(10)],
            source="ab"[n % 2],
            tags=[f"doc:{n}", *(["public"] if n % 3 else [])],
        )
        for n in range(600)
    ]
    write(store, *items)
    return store, items


@pytest.mark.parametrize("k", [MAXIMUM_KNN - 1, MAXIMUM_KNN, MAXIMUM_KNN + 1, 5_000, 10**6])
def test_k_around_the_limit_of_sqlite_vec_is_complete(
    large: tuple[SqliteStore, list[IndexedDocument]], k: int
) -> None:
    """Beyond 4,096 nothing is cut off: the exact scan takes over, in the same order."""
    store, items = large
    question = unit_vector("p 5 5")
    hits = store.search(question, k, acl_tags=EVERYTHING)
    assert_nearest(hits, items, question, k, EVERYTHING, None)


@pytest.mark.parametrize("k", [1, 10, 599, 601])
def test_tie_of_600_equal_passages_is_exact(
    large: tuple[SqliteStore, list[IndexedDocument]], k: int
) -> None:
    """Many copies of one text are cut by name, however many there are."""
    store, items = large
    question = unit_vector("le même pied de page")
    hits = store.search(question, k, acl_tags=EVERYTHING)
    assert_nearest(hits, items, question, k, EVERYTHING, None)


@pytest.mark.parametrize("tags", [1, MAXIMUM_IN_VALUES, MAXIMUM_IN_VALUES + 1, 500])
@pytest.mark.parametrize("sources", [None, ["a"], ["a", "b"]])
def test_many_sets_of_tags_filter_before_top_k(
    large: tuple[SqliteStore, list[IndexedDocument]], tags: int, sources: list[str] | None
) -> None:
    """On both sides of the switch from a list of sets to a list of passages."""
    store, items = large
    question = unit_vector("p 17 3")
    named = [f"doc:{n}" for n in range(0, 600, 1)][:tags]
    hits = store.search(question, 25, acl_tags=named, filters=by_source(sources))
    assert_nearest(hits, items, question, 25, named, sources)


def test_more_than_4096_equal_passages(tmp_path: Path) -> None:
    """A flood of copies leaves the answer exact, and bounded in time."""
    store = SqliteStore(tmp_path / "index.sqlite")
    store.initialize(FINGERPRINT)
    items = [indexed_document(f"{n:03}.md", ["copie"] * 50, title="t") for n in range(100)]
    write(store, *items)
    hits = store.search(unit_vector("copie"), 60, acl_tags=EVERYTHING)
    assert_nearest(hits, items, unit_vector("copie"), 60, EVERYTHING, None)


def test_question_of_any_length_is_brought_to_length_one(
    large: tuple[SqliteStore, list[IndexedDocument]],
) -> None:
    """The score stays a cosine."""
    store, _ = large
    question = unit_vector("p 5 5")
    one = store.search(question, 5, acl_tags=EVERYTHING)
    seven = store.search((question * 7).astype(np.float32), 5, acl_tags=EVERYTHING)
    assert found(one) == found(seven)
    assert seven[0].score == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("sqlite", "vec", "named"),
    [
        ("3.51.2", "v0.1.9", "3.51.2"),
        ("3.7.0", "v0.1.9", "3.51.3"),
        ("3.54.1", "v0.1.8", "0.1.8"),
        ("3.54.1", "v0.1.10-alpha.1", "0.1.9"),
    ],
)
def test_unsafe_versions_are_refused(sqlite: str, vec: str, named: str) -> None:
    """The message has what is there and what is needed."""
    with pytest.raises(ExtensionUnavailable, match=named):
        check_versions(sqlite, vec)


def test_installed_versions_are_accepted() -> None:
    """3.51.3 and later with sqlite-vec 0.1.9."""
    check_versions("3.51.3", "v0.1.9")
    check_versions(apsw.sqlite_lib_version(), "v0.1.9")


def test_index_is_readable_by_any_sqlite(large: tuple[SqliteStore, list[IndexedDocument]]) -> None:
    """Documents, passages and runs are plain tables; no extension is needed to read them."""
    store, _ = large
    with apsw.Connection(str(store.path), flags=apsw.SQLITE_OPEN_READONLY) as connection:
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
        assert {"document", "chunk", "chunk_vector", "ingest_run", "meta"} <= names
        count = connection.execute("SELECT count(*) FROM chunk").fetchone()
        assert count == (6000,)

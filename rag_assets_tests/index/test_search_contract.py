"""The SQLite store searches right for every caller, and the property would notice if it did not."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from rag_assets.index.base import VectorStore
from rag_assets.index.sqlite import SqliteStore
from rag_assets.testing.search_contract import MakeStore, SearchContract, check_example, opened
from rag_assets.testing.search_examples import SearchExample, search_examples
from rag_assets_tests.index.wrong_stores import WRONG

ENOUGH = 200
"""Examples within which every seeded fault must be found; the property runs 2,000."""


class TestSqliteSearch(SearchContract):
    """One file for each store."""

    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        """Stores over files in this test's folder."""
        numbers = itertools.count()
        return lambda: SqliteStore(tmp_path / f"{next(numbers)}.sqlite")


def run_property(store: VectorStore, examples: int) -> int:
    """The property on the same examples each time, the first failure raised; how many it took."""
    ran = 0

    @settings(
        max_examples=examples,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(example=search_examples())
    def run(example: SearchExample) -> None:
        nonlocal ran
        ran += 1
        check_example(store, example)

    try:
        run()
    except AssertionError as error:
        raise AssertionError(f"example {ran}: {error}") from error
    return ran


@pytest.mark.parametrize("fault", WRONG)
def test_seeded_fault_is_caught(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that leaks, or loses what it should find, fails the property."""
    store = WRONG[fault](monkeypatch)(tmp_path / "index.sqlite")
    with opened(store), pytest.raises(AssertionError, match=r"^example \d"):
        run_property(store, ENOUGH)


def test_right_store_passes_such_examples(tmp_path: Path) -> None:
    """What catches the faults lets the right store through."""
    store = SqliteStore(tmp_path / "index.sqlite")
    with opened(store):
        assert run_property(store, 100) == 100

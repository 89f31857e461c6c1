"""The SQLite store searches right for every caller."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from rag_assets.index.sqlite import SqliteStore
from rag_assets.testing.search_contract import MakeStore, SearchContract


class TestSqliteSearch(SearchContract):
    """One file for each store."""

    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        """Stores over files in this test's folder."""
        numbers = itertools.count()
        return lambda: SqliteStore(tmp_path / f"{next(numbers)}.sqlite")

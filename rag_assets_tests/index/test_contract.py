"""The SQLite store passes the contract, alone and as a generation of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from rag_assets.index.base import VectorStore
from rag_assets.index.generations import IndexDirectory
from rag_assets.index.sqlite import SqliteStore
from rag_assets.testing.store_contract import MakeStore, VectorStoreContract


class TestSqliteFile(VectorStoreContract):
    """One file that stands alone."""

    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        """Stores over one file in this test's folder."""
        return lambda: SqliteStore(tmp_path / "été" / "index.sqlite")


class TestLiveGeneration(VectorStoreContract):
    """The live generation of an index folder."""

    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        """Stores over the live generation of this test's folder."""

        def make() -> VectorStore:
            return IndexDirectory(tmp_path / "a folder").writable_store()

        return make

"""The notes keep the contract of every source."""

import itertools
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from notes_source import NotesSource

from rag_assets.acl import AclRules
from rag_assets.testing import SourceContract


class Notes:
    """What people do to their notes."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._versions = itertools.count()
        self._run("CREATE TABLE note (path PRIMARY KEY, version, changed_at, text)")

    def add(self, path: str, text: str) -> str:
        version, changed_at = str(next(self._versions)), "2026-03-01T09:30:00Z"
        self._run(
            "INSERT OR REPLACE INTO note VALUES (?, ?, ?, ?)", path, version, changed_at, text
        )
        return path

    change = add

    def rename(self, path: str, new_path: str) -> str:
        self._run("UPDATE note SET path = ? WHERE path = ?", new_path, path)
        return new_path

    def delete(self, path: str) -> str:
        self._run("DELETE FROM note WHERE path = ?", path)
        return path

    def stop(self) -> None:
        self.file.unlink()

    def _run(self, sql: str, *values: str) -> None:
        with closing(sqlite3.connect(self.file)) as notes, notes:
            notes.execute("PRAGMA synchronous = OFF")  # a test needs no lasting disk
            notes.execute(sql, values)


class TestNotesSource(SourceContract):
    """All of the contract, on a file of this test."""

    has_shards = False

    @pytest.fixture
    def peer(self, tmp_path: Path) -> Notes:
        return Notes(tmp_path / "notes.sqlite")

    @pytest.fixture
    def make_source(self, peer: Notes) -> Callable[..., NotesSource]:
        def make(acl: Any = None, excluded_paths: Any = (), included_paths: Any = ()) -> Any:
            rules = SimpleNamespace(to_rules=lambda: acl or AclRules(("public",)))
            settings = SimpleNamespace(
                acl=rules, excluded_paths=excluded_paths, included_paths=included_paths
            )
            return NotesSource(name="notes", settings=settings, file=str(peer.file))

        return make

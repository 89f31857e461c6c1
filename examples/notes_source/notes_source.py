"""Notes in one SQLite file, as a source: a table ``note(path, version, changed_at, text)``."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rag_assets.errors import SourceUnavailable
from rag_assets.fingerprints import fingerprint, sha256_hex
from rag_assets.models import Changes, LeftOut, SourceFile, SourceListing
from rag_assets.sources.governance import Governance


class NotesSource:
    """Each edit gives a note another ``version``; ``changed_at`` is like 2026-03-01T09:30:00Z."""

    def __init__(self, *, name: str, settings: Any, file: str) -> None:
        paths = (settings.excluded_paths, settings.included_paths)
        self.name, self._file, self._acl = name, Path(file), settings.acl.to_rules()
        self._rules = Governance(name, "notes", *paths)
        self._settings = fingerprint(name, str(file), *paths, self._acl.as_lists())

    def list(self, known: Mapping[str, SourceFile] | None = None) -> SourceListing:
        known, files, left_out, read = known or {}, [], [], 0
        with self._open() as notes:
            rows = notes.execute("SELECT path, version, changed_at FROM note").fetchall()
            for path, version, changed_at in rows:
                tags = self._acl.tags_for(path)
                if (row := self._rules.decide(path)) is not None:
                    left_out.append(row)  # a rule keeps it out: it is not read at all
                elif path in known and known[path].version == version:
                    files.append(replace(known[path], acl_tags=tags))  # unchanged: not read again
                elif not (content := self._read(notes, path)).strip():
                    left_out.append(LeftOut(self.name, path, "excluded", "blank"))
                else:
                    read, hash_ = read + 1, sha256_hex(content)
                    files.append(
                        SourceFile(self.name, path, "", content, hash_, changed_at, tags, version)
                    )
        state = {"settings": self._settings, "versions": {path: v for path, v, _ in rows}}
        return SourceListing(self.name, tuple(files), tuple(left_out), 0, state, read)

    def look(self, state: Mapping[str, Any] | None) -> Changes:
        if not state or state.get("settings") != self._settings:
            return Changes(unknown=True)
        with self._open() as notes:
            old, new = state["versions"], dict(notes.execute("SELECT path, version FROM note"))
        modified = tuple(path for path in old.keys() & new.keys() if old[path] != new[path])
        return Changes(tuple(new.keys() - old.keys()), modified, tuple(old.keys() - new.keys()))

    def explain(self, path: str) -> LeftOut | None:
        return self._rules.decide(path)

    def _read(self, notes: sqlite3.Connection, path: str) -> bytes:
        return notes.execute("SELECT text FROM note WHERE path = ?", [path]).fetchone()[0].encode()

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        address = f"{self._file.absolute().as_uri()}?mode=ro"
        try:
            with closing(sqlite3.connect(address, uri=True)) as notes:
                notes.execute("BEGIN")  # one state of the file until the end
                yield notes
        except sqlite3.Error as exc:  # a listing is complete, or it raises
            raise SourceUnavailable(f"source {self.name}: {self._file}: {exc}") from exc

"""Tell by path which files of a commit are documents, and which are left out and why."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from rag_assets.errors import ConfigurationError
from rag_assets.models import LeftOut, Reason
from rag_assets.sources.git.commands import Git
from rag_assets.sources.git.objects import (
    FOLDER,
    LINK,
    SUBMODULE,
    TreeEntry,
    object_infos,
    read_objects,
    tree_entries,
)
from rag_assets.sources.governance import IGNORE_FILE, Governance
from rag_assets.sources.path_names import is_unsafe, printable
from rag_assets.sources.tree_look import VERSION_CONTROL, is_markdown
from rag_assets.sources.tree_walk import left_out, printable_row

MOST_PATH_BYTES: Final = 4096
"""PATH_MAX on Linux: a longer path is in no working copy."""
MOST_IGNORE_FILE_BYTES: Final = 1_000_000
"""As for a folder: a larger ignore file is a mistake."""

_NO_NAMES: Final = frozenset(("", ".", ".."))


@dataclass(slots=True)
class Snapshot:
    """The files of one commit below the folder, before any is read."""

    documents: dict[str, str] = field(default_factory=dict)
    """Name of the blob by path."""
    left_out: list[LeftOut] = field(default_factory=list)
    other_files: int = 0


class SnapshotJudge:
    """Sorts the entries of one listing; ``holds`` tells whether a path is of the partition."""

    def __init__(self, source: str, governance: Governance, holds: Callable[[str], bool]) -> None:
        self._source = source
        self._governance = governance
        self._holds = holds
        self._folders: dict[str, bool] = {"": True}
        """Whether each folder met so far is entered."""
        self.snapshot = Snapshot()

    def judge(self, entries: Iterable[TreeEntry]) -> Snapshot:
        """Everything the entries are, in their order."""
        for entry in entries:
            self.take(entry)
        return self.snapshot

    def take(self, entry: TreeEntry) -> None:
        """Add one entry to the snapshot."""
        folder, _, name = entry.path.rpartition("/")
        if entry.mode == SUBMODULE:
            if self.enters(entry.path):
                self._leave_out(entry.path, "not_a_regular_file", "a submodule", is_dir=True)
        elif self.enters(folder):
            if is_markdown(name):
                self._take_markdown(entry, name)
            elif self._holds(entry.path):
                self.snapshot.other_files += 1

    def enters(self, folder: str) -> bool:
        """Whether no rule keeps out the folder or one above it; the first that does is noted."""
        above: list[str] = []
        at = folder
        while at not in self._folders:
            above.append(at)
            at = at.rpartition("/")[0]
        entered = self._folders[at]
        for at in reversed(above):
            entered = entered and self._enters(at)
            self._folders[at] = entered
        return entered

    def _enters(self, folder: str) -> bool:
        """The same, for a folder in one that is entered."""
        name = folder.rpartition("/")[2]
        if name in VERSION_CONTROL or self._is_ruled_out(folder, name, is_dir=True):
            return False
        if is_markdown(name):
            self._leave_out(folder, "not_a_regular_file", "a folder")
        return True

    def _take_markdown(self, entry: TreeEntry, name: str) -> None:
        path = entry.path
        if self._is_ruled_out(path, name, is_dir=False):
            return
        if entry.mode == LINK:
            self._leave_out(path, "not_a_regular_file", "a symbolic link")
        elif len(path.encode()) > MOST_PATH_BYTES:
            self._leave_out(path, "path_too_long", f"more than {MOST_PATH_BYTES} bytes")
        elif path in self.snapshot.documents:
            self._leave_out(path, "unsafe_name", "a second file of this name")
        elif self._holds(path):
            self.snapshot.documents[path] = entry.name

    def _is_ruled_out(self, path: str, name: str, *, is_dir: bool) -> bool:
        """True, and noted, when a rule or the name itself keeps the entry out."""
        if name in _NO_NAMES:
            self._leave_out(path, "unsafe_name", repr(name), is_dir=is_dir)
            return True
        ruled = self._governance.decide_entry(path, name, is_dir=is_dir)
        if ruled is not None:
            self._add(printable_row(ruled))
            return True
        if is_unsafe(name):
            self._leave_out(path, "unsafe_name", printable(name), is_dir=is_dir)
            return True
        return False

    def _leave_out(self, path: str, reason: Reason, detail: str, *, is_dir: bool = False) -> None:
        self._add(left_out(self._source, path, reason, detail, is_dir=is_dir))

    def _add(self, row: LeftOut) -> None:
        if self._holds(row.path):
            self.snapshot.left_out.append(row)


def distinct_rows(rows: Iterable[LeftOut], taken: Collection[str]) -> tuple[LeftOut, ...]:
    """The rows, sorted; one whose path another row or document has already gets a number.

    Escapes may make an unsafe name equal to another one.
    """
    used = set(taken)
    distinct: list[LeftOut] = []
    for row in sorted(rows, key=lambda row: (row.reason == "unsafe_name", row.path)):
        path, number = row.path, 1
        while path in used:
            number += 1
            path = f"{row.path}#{number}"
        used.add(path)
        distinct.append(row if path == row.path else replace(row, path=path))
    return tuple(sorted(distinct, key=lambda row: row.path))


def ignore_entry(git: Git, tree: str) -> TreeEntry | None:
    """The ignore file at the top of the tree, or None.

    Raises:
        GitFailure: the tree cannot be read.
    """
    return next(iter(list(tree_entries(git, tree, IGNORE_FILE))), None)


def read_ignore_text(git: Git, where: str, entry: TreeEntry) -> str:
    """What the ignore file says.

    Raises:
        ConfigurationError: it is no regular file, too large, or not UTF-8: what it might have
            excluded is never published.
        GitFailure: it cannot be read.
    """
    if entry.mode in (LINK, SUBMODULE, FOLDER):
        raise _unusable(where, "it is not a regular file")
    (info,) = object_infos(git, [entry.name])
    if info is not None and info.size > MOST_IGNORE_FILE_BYTES:
        raise _unusable(where, f"it has more than {MOST_IGNORE_FILE_BYTES} bytes")
    ((_, content),) = read_objects(git, [entry.name])
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        why = f"line {line}: byte 0x{content[exc.start]:02x} is not UTF-8"
        raise _unusable(where, why) from exc


def _unusable(where: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{where}: {IGNORE_FILE} cannot be used ({why}), so what it excludes is not known; make it "
        "a regular UTF-8 file or remove it"
    )

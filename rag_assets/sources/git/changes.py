"""Name the documents that differ between two commits, by comparing their trees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from rag_assets.models import Changes
from rag_assets.sources.git.commands import Git
from rag_assets.sources.git.objects import LINK, SUBMODULE
from rag_assets.sources.git.snapshot import SnapshotJudge
from rag_assets.sources.governance import IGNORE_FILE, Governance
from rag_assets.sources.path_names import printable
from rag_assets.sources.tree_look import is_markdown

_ABSENT: Final = "000000"


@dataclass(frozen=True, slots=True)
class TreeChange:
    """One path that differs."""

    path: str
    old_mode: str
    new_mode: str
    """``000000`` where there is none."""
    same_blob: bool


def tree_changes(git: Git, old_tree: str, new_tree: str) -> Iterator[TreeChange]:
    """Every path that differs, without a search for renames.

    Raises:
        GitFailure: a part of the trees cannot be read.
    """
    output = git.run("diff-tree", "-r", "-z", "--no-renames", "--no-abbrev", old_tree, new_tree)
    fields = output.split(b"\0")[:-1]
    for head, path in zip(fields[::2], fields[1::2], strict=True):
        old_mode, new_mode, old, new, _ = head[1:].decode("ascii").split(" ")
        yield TreeChange(path.decode("utf-8", "surrogateescape"), old_mode, new_mode, old == new)


def document_changes(
    source: str,
    changes: Iterable[TreeChange],
    governance: Governance,
    holds: Callable[[str], bool],
) -> Changes:
    """Those of ``changes`` that a listing would show, given the rules that hold before and after.

    A change of the ignore file is one by itself.
    """
    judge = SnapshotJudge(source, governance, holds)
    named: dict[str, list[str]] = {"added": [], "modified": [], "removed": []}
    for change in changes:
        kind = _kind(change)
        if change.path == IGNORE_FILE:
            named["modified"].append(change.path)
        elif kind and _is_listed(judge, governance, change, kind):
            shown = "/".join(map(printable, change.path.split("/")))
            if holds(shown):
                named[kind].append(shown)
    added, modified, removed = (tuple(sorted(paths)) for paths in named.values())
    return Changes(added, modified, removed)


def _kind(change: TreeChange) -> str:
    """``added``, ``modified`` or ``removed``; empty when content and kind of file are the same."""
    if change.old_mode == _ABSENT:
        return "added"
    if change.new_mode == _ABSENT:
        return "removed"
    special = {change.old_mode, change.new_mode} & {LINK, SUBMODULE}
    return "" if change.same_blob and not special else "modified"


def _is_listed(judge: SnapshotJudge, governance: Governance, change: TreeChange, kind: str) -> bool:
    """Whether the path is a document, or a file that is left out and has come or gone."""
    folder, _, name = change.path.rpartition("/")
    is_submodule = SUBMODULE in (change.old_mode, change.new_mode)
    if not (is_markdown(name) or is_submodule) or not judge.enters(folder):
        return False
    if kind != "modified":
        return True
    return governance.decide_entry(change.path, name, is_dir=False) is None

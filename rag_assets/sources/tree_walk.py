"""List a directory tree without following links, reading contents, or leaving the root."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from rag_assets.errors import IncompleteEnumeration, SourceError, SourceUnavailable
from rag_assets.models import PROBLEM_REASONS, LeftOut, LeftOutStatus, Reason
from rag_assets.sources import tree_look
from rag_assets.sources.file_reading import file_kind, not_readable, too_large_detail
from rag_assets.sources.governance import Governance
from rag_assets.sources.path_names import is_unsafe, printable
from rag_assets.sources.tree_look import is_markdown, name_key, signature

_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Candidate:
    """A Markdown file that the rules allow; whether it can be read is not known yet."""

    path: str
    """Relative to the root."""
    target: str
    """Absolute, without symbolic links: what to open."""
    status: os.stat_result
    """Of the target."""
    link_identity: str = ""
    """Of the symbolic link, when ``path`` is one."""


@dataclass(slots=True)
class TreeListing:
    """All that a walk found."""

    candidates: list[Candidate] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    other_files: int = 0
    directories: dict[str, dict[str, str]] = field(default_factory=dict)
    """As in the look's state: the marks of all that was left out."""
    links: dict[str, list[str]] = field(default_factory=dict)
    """As in the look's state, likewise."""

    def record(self, path: str, mark: str) -> None:
        """Note what the next look shall compare; the last name of ``path`` may be unsafe."""
        folder, _, name = path.rpartition("/")
        self.directories.setdefault(folder, {})[name_key(name)] = mark

    def record_link(self, path: str, identity: str, target_signature: str, mark: str) -> None:
        """Note a symbolic link, the signature of its target, and the mark or sha256 of that."""
        folder, _, name = path.rpartition("/")
        key = f"{folder}/{name_key(name)}" if folder else name_key(name)
        self.directories.setdefault(folder, {})[name_key(name)] = tree_look.LINK
        self.links[key] = [identity, target_signature, mark]


class TreeWalk:
    """One walk over the tree below ``root``.

    ``root`` is absolute and without symbolic links; ``skip`` holds the relative paths of folders
    that are nobody's documents; ``holds`` tells whether a path belongs to the partition.
    """

    def __init__(
        self,
        source: str,
        root: str,
        governance: Governance,
        *,
        skip: frozenset[str],
        max_file_bytes: int,
        holds: Callable[[str], bool],
    ) -> None:
        self.source = source
        self.root = root
        self.governance = governance
        self.skip = skip
        self.max_file_bytes = max_file_bytes
        self._holds = holds
        self._folders: list[tuple[str, os.stat_result]] = []
        self._links: list[str] = []
        self._listing = TreeListing()

    def run(self) -> TreeListing:
        """Candidates and left-out files in the order of their paths.

        Raises:
            IncompleteEnumeration: a folder that no rule excludes may not be read.
            SourceUnavailable: the root or the disk fails.
        """
        root_status = _root_status(self.root)
        self._folders.append(("", root_status))
        while self._folders:
            folder, status = self._folders.pop()
            self._walk_folder(folder, status)
        self._resolve_links()
        if not os.path.samestat(_root_status(self.root), root_status):
            raise SourceUnavailable(f"the root folder {self.root} was replaced while it was read")
        listing = self._listing
        listing.candidates.sort(key=lambda candidate: candidate.path)
        listing.left_out = _with_distinct_paths(listing)
        return listing

    def _walk_folder(self, folder: str, expected: os.stat_result) -> None:
        try:
            descriptor = os.open(f"{self.root}/{folder}", _OPEN_FOLDER)
        except OSError as exc:
            self._folder_not_opened(folder, exc)
            return
        try:
            if not self._is_still_there(folder, os.fstat(descriptor), expected):
                detail = "moved or replaced after it was listed"
                mark = f"{tree_look.RACY} {tree_look.UNKNOWN}"
                self._leave_out(folder, "changed_while_read", detail, mark, is_dir=True)
                return
            self._visit_entries(descriptor, folder + "/" if folder else "")
        except OSError as exc:
            raise self._folder_failed(folder, exc) from exc
        finally:
            os.close(descriptor)

    def _visit_entries(self, descriptor: int, prefix: str) -> None:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                try:
                    self._visit(entry, prefix)
                except FileNotFoundError:
                    self._leave_out(prefix + entry.name, "vanished", "removed while listed", "")

    def _is_still_there(
        self, folder: str, opened: os.stat_result, expected: os.stat_result
    ) -> bool:
        """That no folder on the way was swapped for a link after it was listed."""
        full = f"{self.root}/{folder}" if folder else self.root
        return os.path.samestat(opened, expected) or os.path.realpath(full) == full

    def _folder_not_opened(self, folder: str, exc: OSError) -> None:
        if not folder or exc.errno in (errno.EACCES, errno.EPERM):
            raise self._folder_failed(folder, exc) from exc
        fault = not_readable(f"{self.root}/{folder}", exc)
        # A folder that is gone was no document; one that may not be named must be reported.
        mark = "" if fault.reason == "vanished" else tree_look.PRUNED
        self._leave_out(folder, fault.reason, fault.detail, mark, is_dir=True)

    def _folder_failed(self, folder: str, exc: OSError) -> SourceError:
        """The error that says that the listing cannot be completed."""
        if not folder:
            return root_unavailable(self.root, exc)
        full = f"{self.root}/{folder}"
        if exc.errno in (errno.EACCES, errno.EPERM):
            return IncompleteEnumeration(
                f"the folder {full} cannot be listed ({exc.strerror}), so nothing is known of what "
                "it holds; make it readable, or exclude it with excluded_paths"
            )
        return SourceUnavailable(f"{full} cannot be listed ({exc.strerror}); check the disk")

    def _visit(self, entry: os.DirEntry[str], prefix: str) -> None:
        name = entry.name
        if entry.is_symlink():
            if name not in tree_look.VERSION_CONTROL:
                self._links.append(prefix + name)
        elif entry.is_dir(follow_symlinks=False):
            if name not in tree_look.VERSION_CONTROL and prefix + name not in self.skip:
                self._visit_folder(entry, prefix + name)
        elif is_markdown(name):
            self._visit_markdown(entry, prefix + name)
        elif self._holds(prefix + name):
            self._listing.other_files += 1

    def _visit_folder(self, entry: os.DirEntry[str], path: str) -> None:
        if self._is_ruled_out(path, entry.name, is_dir=True):
            return
        status = entry.stat(follow_symlinks=False)
        if is_markdown(entry.name):
            self._leave_out(path, "not_a_regular_file", "a folder", tree_look.FOLDER)
        self._folders.append((path, status))

    def _visit_markdown(self, entry: os.DirEntry[str], path: str) -> None:
        if self._is_ruled_out(path, entry.name, is_dir=False):
            return
        status = entry.stat(follow_symlinks=False)
        fault = self.fault_of(status)
        if fault is not None:
            reason, detail, mark = fault
            self._leave_out(path, reason, detail, f"{signature(status)} {mark}")
            return
        self._listing.candidates.append(Candidate(path, f"{self.root}/{path}", status))

    def _is_ruled_out(self, path: str, name: str, *, is_dir: bool) -> bool:
        """True, and noted, when a rule or the name itself keeps the entry out."""
        mark = tree_look.PRUNED if is_dir else tree_look.NAMED
        ruled = self.governance.decide_entry(path, name, is_dir=is_dir)
        if ruled is not None:
            self._add(printable_row(ruled), path, mark)
            return True
        if is_unsafe(name):
            self._leave_out(path, "unsafe_name", printable(name), mark, is_dir=is_dir)
            return True
        return False

    def _leave_out(
        self, path: str, reason: Reason, detail: str, mark: str, *, is_dir: bool = False
    ) -> None:
        self._add(left_out(self.source, path, reason, detail, is_dir=is_dir), path, mark)

    def _add(self, row: LeftOut, path: str, mark: str) -> None:
        self._listing.left_out.append(row)
        # Folders count in every shard: none of them may enter what is pruned.
        if mark in (tree_look.PRUNED, tree_look.FOLDER) or (mark and self._holds(row.path)):
            self._listing.record(path, mark)

    def fault_of(self, status: os.stat_result) -> tuple[Reason, str, str] | None:
        """Reason, detail and mark of a file that need not be opened to be left out."""
        if not stat.S_ISREG(status.st_mode):
            return "not_a_regular_file", file_kind(status.st_mode), tree_look.NOT_REGULAR
        if status.st_size > self.max_file_bytes:
            detail = too_large_detail(status.st_size, self.max_file_bytes)
            return "too_large", detail, tree_look.TOO_LARGE
        return None

    def _resolve_links(self) -> None:
        """After all files are known: a link to a document is an alias of it."""
        documents = {f"{self.root}/{c.path}": c.path for c in self._listing.candidates}
        for path in sorted(self._links):
            identity = self._link_identity(path)
            found = resolve_link(self, path, documents)
            if found is None:
                self._listing.other_files += self._holds(path)
            elif isinstance(found, LeftOut):
                self._listing.left_out.append(found)
                self._listing.record_link(path, identity, "", tree_look.NAMED)
            else:
                self._add_linked(replace(found, link_identity=identity))
                documents[found.target] = path

    def _link_identity(self, path: str) -> str:
        """Taken before the link is judged: if it changes meanwhile, the next look reports it."""
        try:
            return tree_look.link_identity(f"{self.root}/{path}")
        except OSError:
            return ""

    def _add_linked(self, found: Candidate) -> None:
        fault = self.fault_of(found.status)
        if fault is not None:
            reason, detail, mark = fault
            self._listing.left_out.append(left_out(self.source, found.path, reason, detail))
        else:
            self._listing.candidates.append(found)
            # A document of another shard is read there, but may free another alias here.
            mark = tree_look.UNKNOWN
        self._listing.record_link(found.path, found.link_identity, signature(found.status), mark)


def resolve_link(
    walk: TreeWalk, path: str, documents: dict[str, str]
) -> Candidate | LeftOut | None:
    """What the symbolic link at ``path`` is: a document, left out, or no document at all.

    ``documents`` maps the absolute paths of all known documents to their relative ones.

    Raises:
        SourceUnavailable: the disk fails.
    """
    full, name, root = f"{walk.root}/{path}", path.rpartition("/")[2], walk.root
    try:
        target = os.path.realpath(full, strict=True)
        status = os.stat(target, follow_symlinks=False)
    except OSError as exc:
        return _unresolved(walk.source, full, path, exc) if is_markdown(name) else None
    is_dir = stat.S_ISDIR(status.st_mode)
    if not is_dir and not is_markdown(name):
        return None
    if (ruled := walk.governance.decide(path, is_dir=is_dir)) is not None:
        return printable_row(ruled)
    if is_unsafe(name):
        return left_out(walk.source, path, "unsafe_name", printable(name), is_dir=is_dir)
    if target != root and not target.startswith(root + "/"):
        return left_out(walk.source, path, "outside_root", f"links to {target}", is_dir=is_dir)
    inside = target[len(root) + 1 :]
    if is_dir:
        return left_out(walk.source, path, "alias", f"links to {inside or '.'}/", is_dir=True)
    if (barred := _barred_target(walk, path, inside)) is not None:
        return barred
    if target in documents:
        return left_out(walk.source, path, "alias", f"links to {documents[target]}")
    return Candidate(path, target, status)


def _unresolved(source: str, full: str, path: str, exc: OSError) -> LeftOut:
    if exc.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
        return left_out(source, path, "not_a_regular_file", "a symbolic link to nothing")
    fault = not_readable(full, exc)
    return left_out(source, path, fault.reason, fault.detail)


def _barred_target(walk: TreeWalk, path: str, inside: str) -> LeftOut | None:
    """Why a link to the file ``inside`` the root is left out: it must not smuggle anything in."""
    folders = inside.split("/")[:-1]
    skipped = any(inside.startswith(folder + "/") for folder in walk.skip)
    if skipped or not tree_look.VERSION_CONTROL.isdisjoint(folders):
        return left_out(walk.source, path, "outside_root", f"links to {inside}")
    ruled = walk.governance.decide(inside)
    return None if ruled is None else replace(ruled, path=path)


def left_out(
    source: str, path: str, reason: Reason, detail: str, *, is_dir: bool = False
) -> LeftOut:
    """A row for ``path``, whose names may be unsafe; ``detail`` goes where a rule would."""
    shown = "/".join(map(printable, path.split("/")))
    status: LeftOutStatus = "quarantined" if reason in PROBLEM_REASONS else "excluded"
    detail = "/".join(map(printable, detail.split("/")))
    return LeftOut(source, shown + "/" if is_dir else shown, status, reason, detail)


def printable_row(row: LeftOut) -> LeftOut:
    """``row`` with a path that can be printed and stored."""
    if row.path.isprintable():
        return row
    return replace(row, path="/".join(map(printable, row.path.split("/"))))


def root_unavailable(root: str, exc: OSError) -> SourceUnavailable:
    """The error of a root that cannot be read."""
    return SourceUnavailable(
        f"the root folder {root} cannot be read ({exc.strerror}); check that it exists, is mounted "
        "and readable"
    )


def _root_status(root: str) -> os.stat_result:
    try:
        return os.stat(root)
    except OSError as exc:
        raise root_unavailable(root, exc) from exc


def _with_distinct_paths(listing: TreeListing) -> list[LeftOut]:
    """Sorted rows; escapes may make an unsafe name equal to another one, which gets a number."""
    taken = {candidate.path for candidate in listing.candidates}
    rows: list[LeftOut] = []
    for row in sorted(listing.left_out, key=lambda row: (row.reason == "unsafe_name", row.path)):
        path, number = row.path, 1
        while path in taken:
            number += 1
            path = f"{row.path}#{number}"
        taken.add(path)
        rows.append(row if path == row.path else replace(row, path=path))
    return sorted(rows, key=lambda row: row.path)

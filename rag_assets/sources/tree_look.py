"""The cheap look at a directory tree: what changed since the listing that left this state behind.

It runs before anything heavy is imported, so it needs the standard library only, and of that as
little as possible. The rules of governance are not evaluated: the state says which files and
folders they left out, and a Markdown file it does not know has appeared.

The state, JSON-able:

* ``format``, ``settings``: it is void when either differs.
* ``configured_root``, ``root``: absolute, before and after symbolic links are resolved.
* ``shard``: None or ``[index, count]``. ``max_file_bytes``: as configured.
* ``skip``: folders never entered, whether they exist or not.
* ``ignore_file``: ``[name, signature, sha256]``; empty strings when there is none.
* ``directories``: by folder (``""`` is the root), by name (or ``name_key``), one of the marks
  below, or ``"<signature> <sha256 or mark>"``. Files that are no Markdown are not in it.
* ``links``: by path, ``[link identity, signature of the target, sha256 or mark]``.
"""

from __future__ import annotations

import os
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

FORMAT = 1
"""Raise when an older state would be misread."""
RACY_NS = 2_000_000_000
"""A file touched this shortly before it was read may change again without its times showing it.

Two seconds is the coarsest time stamp in use (FAT); git calls such entries racily clean.
"""
REHASH_LIMIT_BYTES = 64 * 1024 * 1024
"""At most this much is read by one look to tell touched files from changed ones."""
MARKDOWN_SUFFIXES = (".md", ".markdown")
VERSION_CONTROL = frozenset((".git", ".hg", ".svn"))

PRUNED = "/"
"""A folder that is not entered."""
FOLDER = "d"
"""A folder that is entered, though its name is that of a document."""
LINK = "@"
"""A symbolic link: see ``links``."""
NAMED = "x"
"""A file left out for its path alone; only its presence counts."""
NOT_REGULAR = "!"
TOO_LARGE = ">"
UNREADABLE = "?"
"""A file that may not be read; only that it still may not counts."""
UNKNOWN = "-"
"""A file whose content is not known, so it cannot be compared."""
RACY = "~"
"""At the end of a signature: it never equals one made later."""


class TreeChanges:
    """What a look found; falsy when nothing changed."""

    __slots__ = ("added", "modified", "removed", "settled", "unknown")

    def __init__(self) -> None:
        self.added: list[str] = []
        self.modified: list[str] = []
        self.removed: list[str] = []
        self.unknown = False
        """True when the look could not compare."""
        self.settled: dict[str, Any] | None = None
        """When nothing changed but files had to be read to know it: the state that spares it."""

    def __bool__(self) -> bool:
        return self.unknown or bool(self.added or self.modified or self.removed)


def signature(status: os.stat_result) -> str:
    """The change marker of a file: size, times and inode; no edit leaves all four alone."""
    return f"{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}:{status.st_ino}"


def settled_signature(status: os.stat_result, now_ns: int) -> str:
    """``signature``, marked ``RACY`` when the file changed within ``RACY_NS`` of ``now_ns``."""
    racy = status.st_ctime_ns > now_ns - RACY_NS or abs(status.st_mtime_ns - now_ns) < RACY_NS
    return signature(status) + RACY if racy else signature(status)


def is_markdown(name: str) -> bool:
    """Whether the name is that of a document."""
    return name.lower().endswith(MARKDOWN_SUFFIXES)


def name_key(name: str) -> str:
    """A file name for use in JSON: bytes that are not UTF-8 would not survive there as they are."""
    if name.isprintable():
        return name
    return "//" + os.fsencode(name).hex()


def shard_of(path: str, count: int) -> int:
    """The 0-based shard of ``count`` that holds ``path``."""
    if count == 1:
        return 0
    from rag_assets.fingerprints import sha256_hex

    return int(sha256_hex(path), 16) % count


def link_identity(path: str) -> str:
    """What a symbolic link is and where it leads, without what lies there.

    Raises:
        OSError: the link itself is gone or cannot be read.
    """
    own = signature(os.lstat(path))
    try:
        real = os.path.realpath(path, strict=True)
        mode = os.stat(real).st_mode
    except OSError as exc:
        return f"{own}|{exc.errno}"
    return f"{own}|{stat.S_IFMT(mode):o}|{os.fsencode(real).hex()}"


def read_digest(path: str, max_bytes: int) -> tuple[os.stat_result, str] | None:
    """Status and sha256 of a regular file that did not change meanwhile, or None.

    Raises:
        OSError: it cannot be opened or read.
    """
    import hashlib

    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode) or before.st_size > max_bytes:
            return None
        digest, left = hashlib.sha256(), before.st_size + 1
        while left > 0 and (block := os.read(descriptor, min(left, 1 << 20))):
            digest.update(block)
            left -= len(block)
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    same = left == 1 and signature(before) == signature(after)
    return (after, digest.hexdigest()) if same else None


def look_tree(
    state: Mapping[str, Any] | None,
    *,
    settings: str | None = None,
    now_ns: int | None = None,
) -> TreeChanges:
    """Compare the tree with ``state``; contents are read only of files whose signature differs.

    ``settings``, when given, must be that of the state. ``now_ns`` is the time since the epoch.

    Raises:
        SourceUnavailable: the root is gone or cannot be read.
    """
    if (
        state is None
        or state.get("format") != FORMAT
        or settings not in (None, state["settings"])
        or os.path.realpath(state["configured_root"]) != state["root"]
    ):
        changes = TreeChanges()
        changes.unknown = True
        return changes
    return _Look(state, time.time_ns() if now_ns is None else now_ns).run()


class _Look:
    """One comparison; holds what the walk has found so far."""

    def __init__(self, state: Mapping[str, Any], now_ns: int) -> None:
        self.state = state
        self.now_ns = now_ns
        self.root: str = state["root"]
        self.directories: Mapping[str, Mapping[str, str]] = state["directories"]
        self.links: Mapping[str, list[str]] = state["links"]
        self.skip = frozenset(state["skip"])
        self.shard: list[int] | None = state["shard"]
        self.max_file_bytes: int = state["max_file_bytes"]
        self.changes = TreeChanges()
        self.budget = REHASH_LIMIT_BYTES
        self.settled_entries: list[tuple[str, str, str]] = []
        self.settled_links: dict[str, list[str]] = {}
        self.settled_ignore_file: list[str] | None = None

    def run(self) -> TreeChanges:
        self._look_at_ignore_file()
        self._walk()
        changes = self.changes
        for paths in (changes.added, changes.modified, changes.removed):
            paths.sort()
        if not changes:
            changes.settled = self._settled_state()
        return changes

    def _walk(self) -> None:
        visited, stack = 0, [""]
        while stack:
            folder = stack.pop()
            known = self.directories.get(folder)
            visited += known is not None
            try:
                self._look_at_folder(folder, known or {}, stack)
            except OSError as exc:
                if not folder:
                    raise _unavailable(self.root, exc) from exc
                if isinstance(exc, (FileNotFoundError, NotADirectoryError)):
                    visited -= known is not None
                else:
                    self.changes.unknown = True
        if visited != len(self.directories):
            self._report_missing_folders()

    def _look_at_folder(self, folder: str, known: Mapping[str, str], stack: list[str]) -> None:
        prefix = folder + "/" if folder else ""
        found = 0
        with os.scandir(self.root + "/" + folder) as entries:
            for entry in entries:
                name = entry.name
                recorded = known.get(name)
                if recorded is None and not name.isprintable():
                    recorded = known.get(name_key(name))
                if recorded is None:
                    if not entry.is_dir(follow_symlinks=False):
                        if entry.is_symlink() or name.lower().endswith(MARKDOWN_SUFFIXES):
                            self._look_at_unknown(entry, prefix)
                    elif name not in VERSION_CONTROL and prefix + name not in self.skip:
                        stack.append(prefix + name)
                        if is_markdown(name):
                            self._look_at_unknown(entry, prefix)
                    continue
                found += 1
                if len(recorded) == 1:
                    self._look_at_mark(entry, recorded, prefix, stack)
                    continue
                # Written out instead of calling ``signature``: this is once per document.
                s = entry.stat(follow_symlinks=False)
                now = f"{s.st_size}:{s.st_mtime_ns}:{s.st_ctime_ns}:{s.st_ino} "
                if not recorded.startswith(now):
                    self._compare(entry, s, recorded, folder)
        if found != len(known):
            self._report_missing(folder, known)

    def _look_at_mark(
        self, entry: os.DirEntry[str], mark: str, prefix: str, stack: list[str]
    ) -> None:
        path = prefix + entry.name
        is_dir = entry.is_dir(follow_symlinks=False)
        if mark == LINK:
            self._look_at_link(path, prefix + name_key(entry.name))
        elif (mark in (PRUNED, FOLDER)) != is_dir or (mark == NAMED and entry.is_symlink()):
            self.changes.modified.append(_shown(path))
        elif mark == FOLDER:
            stack.append(path)

    def _look_at_link(self, path: str, key: str) -> None:
        identity, target_signature, digest = self.links[key]
        full = self.root + "/" + path
        try:
            if link_identity(full) != identity:
                self.changes.modified.append(_shown(path))
                return
            if digest in (UNKNOWN, NAMED, NOT_REGULAR):
                return
            target = os.path.realpath(full)
            status = os.stat(target)
            if signature(status) == target_signature:
                return
            settled = self._reread(target, status, digest)
        except OSError:
            settled = None
        if settled is None:
            self.changes.modified.append(_shown(path))
        else:
            self.settled_links[key] = [identity, settled, digest]

    def _look_at_unknown(self, entry: os.DirEntry[str], prefix: str) -> None:
        path = prefix + entry.name
        if entry.is_symlink() and not is_markdown(entry.name) and not _is_folder(entry):
            return  # leads to no document and to no folder: not listed either
        if entry.name in VERSION_CONTROL:
            return
        suffix = "/" if entry.is_symlink() and _is_folder(entry) else ""
        shown = _shown(path) + suffix
        # Which of several links to one file is the document depends on all of them, so a new link
        # concerns every shard.
        if self.shard is None or entry.is_symlink() or self._holds(shown):
            self.changes.added.append(shown)

    def _compare(
        self, entry: os.DirEntry[str], status: os.stat_result, recorded: str, folder: str
    ) -> None:
        """Tell a changed file from one whose signature alone differs."""
        path = folder + "/" + entry.name if folder else entry.name
        written, _, digest = recorded.partition(" ")
        settled: str | None = None
        if digest == NOT_REGULAR:
            if not stat.S_ISREG(status.st_mode) and not stat.S_ISLNK(status.st_mode):
                settled = "" if entry.is_dir(follow_symlinks=False) else signature(status)
        else:
            try:
                settled = self._reread(self.root + "/" + path, status, digest)
            except OSError:
                settled = None
        if not settled:
            self.changes.modified.append(_shown(path))
        elif settled != written:
            self.settled_entries.append((folder, name_key(entry.name), f"{settled} {digest}"))

    def _reread(self, path: str, status: os.stat_result, digest: str) -> str | None:
        """The signature under which the file is still what ``digest`` says; None when it is not."""
        if digest == TOO_LARGE:
            large = stat.S_ISREG(status.st_mode) and status.st_size > self.max_file_bytes
            return signature(status) if large else None
        if digest == UNREADABLE:
            return settled_signature(status, self.now_ns) if _is_unreadable(path) else None
        if digest == UNKNOWN or status.st_size > min(self.budget, self.max_file_bytes):
            return None
        self.budget -= status.st_size
        reread = read_digest(path, self.max_file_bytes)
        if reread is None or reread[1] != digest:
            return None
        return settled_signature(reread[0], self.now_ns)

    def _look_at_ignore_file(self) -> None:
        name, written, digest = self.state["ignore_file"]
        path = self.root + "/" + name
        try:
            status = os.stat(path)
            if written and signature(status) == written:
                return
            settled = self._reread(os.path.realpath(path), status, digest) if digest else None
        except FileNotFoundError:
            if written or os.path.lexists(path):
                self.changes.modified.append(name)
            return
        except OSError:
            settled = None
        if settled is None:
            self.changes.modified.append(name)
        elif settled != written:
            self.settled_ignore_file = [name, settled, digest]

    def _report_missing(self, folder: str, known: Mapping[str, str]) -> None:
        prefix = folder + "/" if folder else ""
        with os.scandir(self.root + "/" + folder) as entries:
            present = {key for entry in entries for key in (entry.name, name_key(entry.name))}
        for name, mark in known.items():
            if name not in present:
                self.changes.removed.append(_described(prefix, name, mark))

    def _report_missing_folders(self) -> None:
        for folder, known in self.directories.items():
            if folder and not os.path.isdir(self.root + "/" + folder):
                for name, mark in known.items():
                    self.changes.removed.append(_described(folder + "/", name, mark))
            elif folder and os.path.realpath(self.root + "/" + folder) != f"{self.root}/{folder}":
                self.changes.modified.append(folder + "/")

    def _holds(self, path: str) -> bool:
        return self.shard is None or shard_of(path, self.shard[1]) == self.shard[0]

    def _settled_state(self) -> dict[str, Any] | None:
        if not (self.settled_entries or self.settled_links or self.settled_ignore_file):
            return None
        directories = dict(self.directories)
        copied: dict[str, dict[str, str]] = {}
        for folder, name, recorded in self.settled_entries:
            if folder not in copied:
                copied[folder] = dict(directories[folder])
            copied[folder][name] = recorded
        state = dict(self.state)
        state["directories"] = {**directories, **copied}
        state["links"] = {**self.links, **self.settled_links}
        if self.settled_ignore_file is not None:
            state["ignore_file"] = self.settled_ignore_file
        return state


def _is_unreadable(path: str) -> bool:
    """Whether opening it is refused; it is not followed and not waited for."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))
    except PermissionError:
        return True
    return False


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is, or leads to, a folder; a link that leads nowhere does not."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _described(prefix: str, name: str, mark: str) -> str:
    if name.startswith("//"):
        name = _shown(os.fsdecode(bytes.fromhex(name[2:])))
    return f"{prefix}{name}/" if mark == PRUNED else prefix + name


def _shown(path: str) -> str:
    """``path`` in a form that can be printed and stored."""
    if path.isprintable():
        return path
    from rag_assets.sources.path_names import printable

    return "/".join(printable(name) for name in path.split("/"))


def _unavailable(root: str, exc: OSError) -> Exception:
    from rag_assets.errors import SourceUnavailable

    return SourceUnavailable(
        f"the root folder {root} cannot be read ({exc.strerror}); check that it exists, is mounted "
        "and readable"
    )

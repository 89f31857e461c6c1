"""The walk through the folders of a Nextcloud: only what changed is listed, and nothing is missed.

Nextcloud gives a folder a new ETag whenever anything below it changes. A folder whose ETag is that
of an earlier listing is taken from memory, with all that lies below it. A document that is moved
while the walk goes on could be missed where it was and where it comes to be; then some folder on
the way shows another ETag than the folder above it did, and the walk is done again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from rag_assets.errors import ConfigurationError, IncompleteEnumeration, SourceUnavailable
from rag_assets.models import LeftOut
from rag_assets.sources.governance import IGNORE_FILE, Governance
from rag_assets.sources.ignore_rules import IgnoreRules
from rag_assets.sources.nextcloud.acl import NodeAcl, Shares, combined
from rag_assets.sources.nextcloud.files import NextcloudFiles
from rag_assets.sources.nextcloud.tree import Folder, Item
from rag_assets.sources.path_names import is_unsafe, printable
from rag_assets.sources.server_api import NotThere, Refused, TooLarge

MOST_PASSES: Final = 5
"""Each pass lists only what changed since the one before, so it takes a moment."""
MOST_FOLDERS: Final = 200_000
"""More are a server that makes up folders without end."""
MOST_LEVELS: Final = 100
"""Folders inside each other; likewise."""
MOST_PATH_BYTES: Final = 1024
MAX_IGNORE_FILE_BYTES: Final = 1_000_000
"""A larger ignore file is a mistake; 20,000 patterns fit."""


@dataclass(frozen=True, slots=True)
class Root:
    """A folder at which the walk begins, and the ignore file in it."""

    path: str
    ignore: IgnoreRules | None

    def decide(self, source: str, path: str, *, is_dir: bool) -> LeftOut | None:
        """The pattern of the ignore file that excludes an entry whose folders it does not."""
        if self.ignore is None:
            return None
        below = path[len(self.path) + 1 :] if self.path else path
        if (rule := self.ignore.decide_entry(below, is_dir=is_dir)) is None:
            return None
        shown = path + "/" if is_dir else path
        return LeftOut(
            source, shown, "excluded", "aiignore", rule.pattern, self.ignore.file, rule.line
        )


@dataclass(frozen=True, slots=True)
class Visited:
    """A folder on the walk, with what holds for all below it."""

    path: str
    item: Item
    root: Root
    acl: NodeAcl
    """The access rules in force on it."""
    grants: frozenset[str]
    """The tags of the shares of it and of the folders above."""
    above: frozenset[str]
    """The fileids of the folders above."""


@dataclass(slots=True)
class Walked:
    """What a walk found."""

    folders: list[tuple[Visited, Folder]] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    ignore_texts: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Version and text of the ignore file, by root."""
    moved: bool = False
    """Some folder was not as the folder above showed it."""

    @property
    def has_fileids(self) -> bool:
        """Whether the server is a Nextcloud: its folder ETags tell of all below."""
        return all(visited.item.fileid for visited, _ in self.folders)

    def by_fileid(self) -> dict[str, Folder]:
        """What to remember."""
        return {v.item.fileid: folder for v, folder in self.folders if v.item.fileid}


class NextcloudWalk:
    """The folders below ``roots``; ``remembered`` are those of an earlier walk, by fileid.

    ``ignore_texts`` are the ``Walked.ignore_texts`` of an earlier walk. ``progress`` is told how
    many folders are done, of how many known so far.
    """

    def __init__(
        self,
        source: str,
        files: NextcloudFiles,
        governance: Governance,
        roots: Sequence[str],
        *,
        shares: Shares,
        remembered: Mapping[str, Folder],
        ignore_texts: Mapping[str, tuple[str, str]],
        concurrency: int = 4,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._source = source
        self._files = files
        self._governance = governance
        self._roots = roots
        self._shares = shares
        self._remembered = dict(remembered)
        self._ignore_texts = dict(ignore_texts)
        self._concurrency = concurrency
        self._progress = progress

    def run(self) -> Walked:
        """Every folder that no rule excludes, as they all were at one moment.

        Raises:
            ConfigurationError: an ignore file cannot be used.
            IncompleteEnumeration: a folder could not be listed, or the tree did not stand still.
            SourceUnavailable: the server, or a configured folder, is not there.
        """
        for _ in range(MOST_PASSES):
            if (walked := self._pass()) is not None:
                return walked
        raise IncompleteEnumeration(
            f"source {self._source}: {self._files.address}: folders changed all the while they "
            f"were listed, {MOST_PASSES} times over; nothing was removed. Run again"
        )

    def _pass(self) -> Walked | None:
        """One walk; None when it has to be done again."""
        walked = Walked()
        try:
            entered = [v for root in self._roots if (v := self._enter(root, walked)) is not None]
            news = any(self._remembered.get(v.item.fileid) != f for v, f in walked.folders)
            self._descend(walked)
        except NotThere:  # moved or removed since it was listed
            return None
        finally:
            self._remembered.update(walked.by_fileid())
            self._ignore_texts.update(walked.ignore_texts)
        # What moved from one root to another shows in no folder between them.
        if walked.moved or (news and len(entered) > 1):
            return walked if all(map(self._is_unchanged, entered)) else None
        return walked

    def _is_unchanged(self, root: Visited) -> bool:
        try:
            now = self._files.look_at(root.path)
        except (NotThere, Refused):
            return False  # the next pass finds out, and says so
        return (now.fileid, now.etag) == (root.item.fileid, root.item.etag)

    def _enter(self, path: str, walked: Walked) -> Visited | None:
        """List a root and read its ignore file; None when a rule excludes it."""
        if path and (row := self._governance.decide(path, is_dir=True)) is not None:
            walked.left_out.append(row)
            return None
        try:
            item, folder = self._files.list_root(path)
        except NotThere as exc:
            what = f"the folder {path!r} is" if path else "the files of this user are"
            raise SourceUnavailable(
                f"{exc}: {what} not there for this account; nothing was removed. Check user and "
                "folders"
            ) from exc
        ignore = self._ignore_rules(path, folder.ignore_file, walked)
        grants = self._shares.above(path) | self._shares.on(path, item.fileid)
        visited = Visited(path, item, Root(path, ignore), item.acl, grants, frozenset())
        walked.folders.append((visited, folder))
        return visited

    def _ignore_rules(self, root: str, item: Item | None, walked: Walked) -> IgnoreRules | None:
        if item is None:
            return None
        path = f"{root}/{IGNORE_FILE}" if root else IGNORE_FILE
        version, text = self._ignore_texts.get(root, ("", ""))
        if version != item.version(path):
            text, item = self._read_ignore_file(path, item)
        walked.ignore_texts[root] = (item.version(path), text)
        return IgnoreRules(text, path)

    def _read_ignore_file(self, path: str, item: Item) -> tuple[str, Item]:
        try:
            read = self._files.read(path, item, MAX_IGNORE_FILE_BYTES)
            return read.content.decode("utf-8"), read.item
        except (Refused, TooLarge) as exc:
            why = str(exc)
        except UnicodeDecodeError as exc:
            why = f"byte 0x{exc.object[exc.start]:02x} is not UTF-8; save it as UTF-8"
        raise ConfigurationError(
            f"source {self._source}: {path} cannot be used, so what it excludes is not known: {why}"
        )

    def _descend(self, walked: Walked) -> None:
        """All folders below the roots, level by level, several at once."""
        frontier = self._below(walked.folders, walked)
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="list") as pool:
            while frontier:
                known = len(walked.folders) + len(frontier)
                if known > MOST_FOLDERS:
                    raise IncompleteEnumeration(
                        f"source {self._source}: {self._files.address} has more than "
                        f"{MOST_FOLDERS:,} folders; nothing was removed. Name some in folders, or "
                        "exclude some"
                    )
                listed = list(zip(frontier, self._listed(frontier, pool, walked), strict=True))
                walked.folders.extend(listed)
                if self._progress:
                    self._progress(len(walked.folders), known)
                frontier = self._below(listed, walked)

    def _listed(
        self, frontier: Sequence[Visited], pool: ThreadPoolExecutor, walked: Walked
    ) -> list[Folder]:
        """What each folder holds: from memory where its ETag is unchanged, else asked for."""
        held = [self._remembered.get(v.item.fileid) if v.item.etag else None for v in frontier]
        folders = [
            folder if folder is not None and folder.etag == visited.item.etag else None
            for visited, folder in zip(frontier, held, strict=True)
        ]
        wanted = [at for at, folder in enumerate(folders) if folder is None]
        asked = pool.map(lambda at: self._list(frontier[at]), wanted)
        for at, (folder, same) in zip(wanted, asked, strict=True):
            folders[at] = folder
            walked.moved |= not same
        return [folder for folder in folders if folder is not None]

    def _list(self, visited: Visited) -> tuple[Folder, bool]:
        return self._files.list_folder(visited.path, visited.item)

    def _below(self, listed: Sequence[tuple[Visited, Folder]], walked: Walked) -> list[Visited]:
        """The folders to enter next; those that a rule excludes are noted."""
        following = []
        for visited, folder in listed:
            above = visited.above | {visited.item.fileid} - {""}
            for item in folder.folders:
                path = f"{visited.path}/{item.name}" if visited.path else item.name
                if item.fileid in above or path.count("/") > MOST_LEVELS:
                    raise IncompleteEnumeration(
                        f"source {self._source}: {self._files.address}: the folder "
                        f"{printable(path)[:200]!r} contains itself, or is "
                        f"one of more than {MOST_LEVELS} folders inside each other; nothing was "
                        "removed. Mend it on the server, or exclude it with excluded_paths"
                    )
                if (row := self._kept_out(visited.root, path, item.name)) is not None:
                    walked.left_out.append(row)
                    continue
                acl = combined(visited.acl, item.acl)
                grants = visited.grants | self._shares.on(path, item.fileid)
                following.append(Visited(path, item, visited.root, acl, grants, above))
        return following

    def _kept_out(self, root: Root, path: str, name: str) -> LeftOut | None:
        if is_unsafe(name):
            return LeftOut(self._source, printable(path) + "/", "quarantined", "unsafe_name")
        if len(path.encode()) > MOST_PATH_BYTES:
            rule = f"more than {MOST_PATH_BYTES} bytes"
            return LeftOut(self._source, path + "/", "quarantined", "path_too_long", rule)
        row = self._governance.decide_entry(path, name, is_dir=True)
        return row or root.decide(self._source, path, is_dir=True)

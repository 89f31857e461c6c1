"""Markdown files below one folder, as a source."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rag_assets.acl import EVERYBODY, AclRules
from rag_assets.errors import ConfigurationError, SourceUnavailable
from rag_assets.fingerprints import SOURCES_VERSION, fingerprint
from rag_assets.models import Changes, LeftOut, SourceFile, SourceListing
from rag_assets.sources import tree_look
from rag_assets.sources.tree_look import look_tree, settled_signature

if TYPE_CHECKING:
    from rag_assets.sources.file_reading import Disk
    from rag_assets.sources.governance import Governance
    from rag_assets.sources.shards import Shard
    from rag_assets.sources.tree_walk import TreeListing, TreeWalk

KIND: Final = "markdown"
IGNORE_FILE: Final = ".aiignore"
MAX_IGNORE_FILE_BYTES: Final = 1_000_000
"""A larger ignore file is a mistake; 20,000 patterns fit."""


class MarkdownTree:
    """The ``.md`` and ``.markdown`` files below ``root``; implements ``Source``.

    ``excluded_paths`` and ``included_paths`` are prefixes relative to ``root``;
    ``config_locations`` tells where each stands in the configuration. ``acl`` gives each document
    its tags, before its own front matter narrows them. ``url_template`` may hold ``{path}`` and
    ``{source}``, which are percent-encoded; without it documents have no URL.
    ``skip_directories`` are never entered nor reported (the data folder). ``shard`` limits the
    listing to the paths it holds. ``clock`` gives nanoseconds since the epoch.

    Directory links are never followed; a link to a file is a document only when it leads, inside
    the root, to a file that no rule excludes and that is no document itself.

    Raises:
        ConfigurationError: a setting is impossible.
    """

    def __init__(
        self,
        name: str,
        root: Path,
        *,
        excluded_paths: Sequence[str] = (),
        included_paths: Sequence[str] = (),
        acl: AclRules = EVERYBODY,
        url_template: str | None = None,
        max_file_bytes: int = 10_000_000,
        skip_directories: Sequence[Path] = (),
        shard: Shard | None = None,
        config_locations: Mapping[str, tuple[str, int]] | None = None,
        disk: Disk | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.name = name
        self.root = Path(os.path.abspath(root))
        self._excluded_paths = tuple(excluded_paths)
        self._included_paths = tuple(included_paths)
        self._acl = acl
        self._url_template = _checked_url_template(name, url_template)
        self._max_file_bytes = max_file_bytes
        self._skip_directories = tuple(skip_directories)
        self._shard = shard
        self._config_locations = dict(config_locations or {})
        self._disk = disk
        self._clock = clock
        if max_file_bytes < 1:
            raise ConfigurationError(
                f"source {name}: max_file_bytes is {max_file_bytes}; it must be at least 1"
            )
        self._governance(None)

    @property
    def settings(self) -> str:
        """A fingerprint of all that decides what a listing yields, except the tree itself."""
        return fingerprint(
            SOURCES_VERSION,
            tree_look.FORMAT,
            [self.name, str(self.root)],
            self._excluded_paths,
            self._included_paths,
            self._acl.as_lists(),
            self._url_template,
            self._max_file_bytes,
            sorted(map(os.path.abspath, self._skip_directories)),
            [self._shard.index, self._shard.count] if self._shard else None,
        )

    def list(self, known: Mapping[str, SourceFile] | None = None) -> SourceListing:
        """Every document below the root and everything left out; see ``Source.list``.

        Raises:
            ConfigurationError: the ignore file, or a prefix, is wrong.
            IncompleteEnumeration: a folder that no rule excludes may not be read.
            SourceUnavailable: the root is missing, or the disk fails.
        """
        from rag_assets.sources.document_reader import DocumentReader

        started_ns = self._clock()
        walk, ignore_file = self._plan_walk(started_ns)
        listing = walk.run()
        reader = DocumentReader(
            self.name,
            listing,
            known or {},
            acl_tags=self._acl.tags_for,
            url=self._url,
            max_file_bytes=self._max_file_bytes,
            started_ns=started_ns,
            disk=self._resolve_disk(),
        )
        for candidate in listing.candidates:
            if self._holds(candidate.path):
                reader.take(candidate)
        left_out = [row for row in (*listing.left_out, *reader.left_out) if self._holds(row.path)]
        return SourceListing(
            source=self.name,
            files=tuple(reader.files),
            left_out=tuple(sorted(left_out, key=lambda row: row.path)),
            other_files=listing.other_files,
            look_state=self._look_state(walk, listing, ignore_file),
            read=reader.read,
        )

    def look(self, state: Mapping[str, Any] | None) -> Changes:
        """What changed since the listing that left ``state``; see ``Source.look``.

        Raises:
            SourceUnavailable: the root is missing or cannot be read.
        """
        self._resolve_root()
        found = look_tree(state, settings=self.settings, now_ns=self._clock())
        return Changes(
            tuple(found.added), tuple(found.modified), tuple(found.removed), found.unknown
        )

    def explain(self, path: str) -> LeftOut | None:
        """What keeps ``path`` out of the index today; None when nothing does, or no such file.

        Raises:
            ConfigurationError, SourceUnavailable: as ``list``.
        """
        from rag_assets.sources.tree_explain import explain

        walk, _ = self._plan_walk(self._clock())
        return explain(walk, path, self._resolve_disk())

    def _plan_walk(self, now_ns: int) -> tuple[TreeWalk, Sequence[str]]:
        """A walk by the rules of now, and what the look compares of the ignore file."""
        from rag_assets.sources.tree_walk import TreeWalk

        root = self._resolve_root()
        governance, ignore_file = self._load_governance(root, now_ns)
        walk = TreeWalk(
            self.name,
            root,
            governance,
            skip=self._skipped(root),
            max_file_bytes=self._max_file_bytes,
            holds=self._holds,
        )
        return walk, ignore_file

    def _holds(self, path: str) -> bool:
        return self._shard is None or self._shard.holds(path)

    def _resolve_disk(self) -> Disk:
        from rag_assets.sources.file_reading import Disk

        return self._disk or Disk()

    def _resolve_root(self) -> str:
        from rag_assets.sources.tree_walk import root_unavailable

        try:
            root = os.path.realpath(self.root, strict=True)
            if not stat.S_ISDIR(os.stat(root).st_mode):
                raise SourceUnavailable(
                    f"source {self.name}: the root {self.root} is not a folder; name a folder"
                )
        except OSError as exc:
            raise root_unavailable(str(self.root), exc) from exc
        if root == os.sep:
            raise ConfigurationError(
                f"source {self.name}: the root is the whole file system; name a folder in it"
            )
        return root

    def _skipped(self, root: str) -> frozenset[str]:
        """The folders to skip that lie below the root, relative to it."""
        resolved = (os.path.realpath(folder) for folder in self._skip_directories)
        return frozenset(
            folder[len(root) + 1 :] for folder in resolved if folder.startswith(root + "/")
        )

    def _load_governance(self, root: str, now_ns: int) -> tuple[Governance, Sequence[str]]:
        from rag_assets.sources.ignore_file import read_ignore_file

        read = read_ignore_file(root, IGNORE_FILE, MAX_IGNORE_FILE_BYTES, self._resolve_disk())
        if read is None:
            return self._governance(None), (IGNORE_FILE, "", "")
        recorded = (IGNORE_FILE, settled_signature(read.status, now_ns), read.digest)
        return self._governance(read.text), recorded

    def _governance(self, ignore_text: str | None) -> Governance:
        from rag_assets.sources.governance import Governance

        return Governance(
            self.name,
            KIND,
            self._excluded_paths,
            self._included_paths,
            ignore_text,
            IGNORE_FILE,
            self._config_locations,
        )

    def _look_state(
        self, walk: TreeWalk, listing: TreeListing, ignore_file: Sequence[str]
    ) -> dict[str, Any]:
        """See ``tree_look`` for its layout."""
        return {
            "format": tree_look.FORMAT,
            "settings": self.settings,
            "configured_root": str(self.root),
            "root": walk.root,
            "shard": [self._shard.index, self._shard.count] if self._shard else None,
            "max_file_bytes": self._max_file_bytes,
            "skip": sorted(walk.skip),
            "ignore_file": [*ignore_file],
            "directories": listing.directories,
            "links": listing.links,
        }

    def _url(self, path: str) -> str:
        if not self._url_template:
            return ""
        from urllib.parse import quote

        # `{source}` first: a quoted name holds no brace, so it cannot stand for `{path}`.
        url = self._url_template.replace("{source}", quote(self.name, safe=""))
        return url.replace("{path}", quote(path, safe="/"))


def _checked_url_template(source: str, template: str | None) -> str:
    for placeholder in re.findall(r"\{([^{}]*)\}", template or ""):
        if placeholder not in ("path", "source"):
            raise ConfigurationError(
                f"source {source}: the URL template {template!r} has {{{placeholder}}}; only "
                "{path} and {source} are filled in"
            )
    return template or ""

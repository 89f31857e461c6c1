"""Files in folders of a Nextcloud, or of another WebDAV server, as a source."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from rag_assets.errors import ConfigurationError, IncompleteEnumeration
from rag_assets.models import MARKDOWN, Changes, LeftOut
from rag_assets.sources.nextcloud.acl import NO_SHARES, combined, narrowed, read_shares
from rag_assets.sources.nextcloud.files import NextcloudFiles
from rag_assets.sources.nextcloud.tree import Item, from_json, media_type_of, to_json
from rag_assets.sources.nextcloud.walk import (
    MOST_PASSES,
    NextcloudWalk,
    Root,
    Visited,
    Walked,
)
from rag_assets.sources.path_names import is_unsafe
from rag_assets.sources.remote import Entry, Enumeration, Fetched, RemoteSource
from rag_assets.sources.server_api import ServerApi, limits_of

if TYPE_CHECKING:
    from rag_assets.http_client import HttpLimits
    from rag_assets.source_settings import NextcloudSettings
    from rag_assets.sources.base import SourceContext

KIND: Final = "nextcloud"


@dataclass(frozen=True, slots=True)
class _Handle:
    """What it takes to read a document."""

    path: str
    item: Item


class NextcloudSource(RemoteSource):
    """The documents below some folders of a Nextcloud account; implements ``Source``.

    A document is known by its fileid and ETag, so what is renamed or moved, alone or with the
    folders above it, is not read again. Folders whose ETag is unchanged are not listed, except
    once in ``full_walk_hours``. Servers without fileids (plain WebDAV) are walked each time.

    Tags: with ``shares``, those of all whom a document or a folder above it is shared with, as far
    as the account sees the shares; one that is shared with nobody named there gets what ``acl``
    says, and that is nobody unless it has a default. ``acl_list`` takes away the tags of those who
    may not read by the access rules of a group folder; a document whose rules cannot be read, or
    deny somebody who is not named in ``shares``, is visible to nobody.

    ``clock`` gives seconds since the epoch.

    Raises:
        ConfigurationError: a setting is impossible, or the password is not in the environment.
    """

    def __init__(
        self,
        settings: NextcloudSettings,
        context: SourceContext | None = None,
        *,
        limits: HttpLimits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        password = settings.password.secret(f"sources.{settings.name}.password").read()
        login = b64encode(f"{settings.user}:{password}".encode()).decode("ascii")
        api = ServerApi(
            settings.name,
            settings.base_url,
            headers={"Authorization": f"Basic {login}", "OCS-APIRequest": "true"},
            secrets=(password,),
            limits=limits or limits_of(settings),
            ca_file=settings.ca_file,
            requests_per_minute=settings.requests_per_minute,
        )
        self._roots = _checked_roots(settings.name, settings.folders)
        self._shares_tags = {who: tuple(tags) for who, tags in settings.shares.items()}
        self._office = settings.office
        self._acl_list = settings.acl_list
        self._full_walk_seconds = settings.full_walk_hours * 3600
        self._clock = clock
        self._files = NextcloudFiles(
            api, settings.user, office=settings.office, acl_list=settings.acl_list
        )
        super().__init__(
            settings.name,
            KIND,
            api=api,
            settings={
                "user": settings.user,
                "roots": self._roots,
                "office": settings.office,
                "shares": {who: list(tags) for who, tags in sorted(self._shares_tags.items())},
                "acl_list": settings.acl_list,
            },
            acl=settings.acl.to_rules(),
            excluded_paths=settings.excluded_paths,
            included_paths=settings.included_paths,
            max_file_bytes=settings.max_file_bytes,
            concurrency=settings.concurrency,
            context=context,
        )

    def look(self, state: Mapping[str, Any] | None) -> Changes:
        """What changed since the listing that left ``state``; see ``Source.look``.

        When nothing did, one request for each folder, and two more with ``shares``. ``unknown``
        when a full walk is due: a listing does it, and remembers when.
        """
        if self._is_ours(state) and self._full_walk_seconds:
            assert state is not None  # ours is not None
            if self._is_full_walk_due(state["state"]):
                return Changes(unknown=True)
        return super().look(state)

    def _enumerate(self, state: Mapping[str, Any] | None) -> Enumeration:
        full = state is None or self._is_full_walk_due(state)
        kept: Mapping[str, Any] = {} if state is None else state
        now = self._clock()
        shares = NO_SHARES
        if self._shares_tags:
            moment = datetime.fromtimestamp(now, tz=timezone.utc)
            shares = read_shares(self._api, self._shares_tags, moment)
        walk = NextcloudWalk(
            self.name,
            self._files,
            self._governance,
            self._roots,
            shares=shares,
            remembered={} if full else from_json(kept.get("folders", {})),
            ignore_texts={} if full else _ignore_texts(kept),
            concurrency=self._concurrency,
            progress=lambda done, total: self._context.progress("folders listed", done, total),
        )
        walked = self._settled(walk, kept)
        entries, left_out = self._entries(walked, shares.on)
        return Enumeration(
            entries=entries,
            left_out=[*walked.left_out, *left_out],
            other_files=sum(folder.other_files for _, folder in walked.folders),
            state={
                "walked_at": now if full else kept["walked_at"],
                "folders": to_json(walked.by_fileid()),
                "ignore": {root: list(text) for root, text in walked.ignore_texts.items()},
                "paths": [] if walked.has_fileids else sorted(_paths(walked)),
            },
        )

    def _fetch(self, entry: Entry) -> Fetched:
        handle: _Handle = entry.handle
        read = self._files.read(handle.path, handle.item, self._max_file_bytes)
        if read.item is handle.item:
            return Fetched(read.content)
        return Fetched(read.content, read.item.version(handle.path), read.item.modified_at)

    def _is_full_walk_due(self, state: Mapping[str, Any]) -> bool:
        walked_at = state.get("walked_at")
        if not isinstance(walked_at, (int, float)):
            return True
        # A clock that was set back must not put the walk off.
        return not 0 <= self._clock() - walked_at < self._full_walk_seconds

    def _settled(self, walk: NextcloudWalk, kept: Mapping[str, Any]) -> Walked:
        """The walk; done again where documents are missing and no ETag proves that they are."""
        walked = walk.run()
        before = set(kept.get("paths", ()))
        for _ in range(MOST_PASSES):
            if walked.has_fileids or not before - (paths := _paths(walked)):
                return walked
            again = walk.run()
            if _paths(again) == paths:
                return again
            walked = again
        raise IncompleteEnumeration(
            f"source {self.name}: {self._files.address}: two listings after each other were never "
            "the same; nothing was removed. Run again"
        )

    def _entries(
        self, walked: Walked, shared_with: Callable[[str, str], frozenset[str]]
    ) -> tuple[list[Entry], list[LeftOut]]:
        entries: list[Entry] = []
        left_out: list[LeftOut] = []
        for visited, folder in walked.folders:
            for item in folder.documents:
                path = _join(visited.path, item.name)
                if (row := self._ignored(path, item.name, visited.root)) is not None:
                    left_out.append(row)
                    continue
                grants = visited.grants | shared_with(path, item.fileid)
                entries.append(self._entry(path, item, self._granted(path, item, visited, grants)))
        return entries, left_out

    def _ignored(self, path: str, name: str, root: Root) -> LeftOut | None:
        """What excludes a document, if its folder has an ignore file; the other rules come first.

        The base asks them in any case, and reports unsafe names, for which nobody wrote a pattern.
        """
        if root.ignore is None or is_unsafe(name):
            return None
        row = self._governance.decide_entry(path, name, is_dir=False)
        return row or root.decide(self.name, path, is_dir=False)

    def _granted(
        self, path: str, item: Item, visited: Visited, grants: frozenset[str]
    ) -> tuple[str, ...] | None:
        """The tags that the server's permissions give; None: the configuration decides."""
        acl = combined(visited.acl, item.acl)
        if acl:
            return narrowed(grants or self._acl.tags_for(path), acl, self._shares_tags)
        return tuple(sorted(grants)) if grants else None

    def _entry(self, path: str, item: Item, acl_tags: tuple[str, ...] | None) -> Entry:
        return Entry(
            path=path,
            version=item.version(path),
            url=self._url(path, item.fileid),
            acl_tags=acl_tags,
            modified_at=item.modified_at,
            media_type=media_type_of(item.name, self._office) or MARKDOWN,
            size_bytes=item.size_bytes,
            handle=_Handle(path, item),
        )

    def _url(self, path: str, fileid: str) -> str:
        """Where a person opens the file: in Nextcloud, or else where the server has it."""
        if fileid:
            return f"{self._api.address}/f/{quote(fileid, safe='')}"
        return self._api.address + self._files.target(path)


def _checked_roots(source: str, folders: Sequence[str]) -> list[str]:
    """The folders to walk, without ``/`` at their ends; all files when none is named.

    Raises:
        ConfigurationError: one lies in another, so that its documents would be there twice.
    """
    roots = ["/".join(name for name in f.split("/") if name not in ("", ".")) for f in folders]
    for root in roots:
        for other in roots:
            inside = root == other or root.startswith(other + "/") or not other
            if other is not root and inside:
                raise ConfigurationError(
                    f"source {source}: folders: {root or '.'!r} lies in {other or '.'!r}; keep one"
                )
    return roots or [""]


def _paths(walked: Walked) -> set[str]:
    return {_join(v.path, item.name) for v, folder in walked.folders for item in folder.documents}


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _ignore_texts(kept: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    texts: Mapping[str, Sequence[str]] = kept.get("ignore", {})
    return {root: (version, text) for root, (version, text) in texts.items()}

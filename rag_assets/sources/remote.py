"""What all sources of servers have in common: rules, change markers, fetching, resuming.

A connector says what there is (``_enumerate``) and how to read one thing (``_fetch``). From that
this module makes the listing, the look for changes and the explanation of the ``Source`` contract.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rag_assets.acl import AclRules, most_restrictive
from rag_assets.errors import IncompleteEnumeration, SourceError, SourceUnavailable
from rag_assets.fingerprints import SOURCES_VERSION, fingerprint, sha256_hex
from rag_assets.models import (
    MARKDOWN,
    Changes,
    LeftOut,
    LeftOutStatus,
    Reason,
    SourceFile,
    SourceListing,
)
from rag_assets.sources.base import SourceContext
from rag_assets.sources.file_reading import is_blank
from rag_assets.sources.governance import Governance
from rag_assets.sources.path_names import is_unsafe, printable
from rag_assets.sources.server_api import NotThere, Refused, ServerApi, TooLarge

LOOK_FORMAT: Final = "server-1"
MOST_PATH_BYTES: Final = 1024
FETCHED_AT_ONCE: Final = 64
"""Documents asked for together: bounds what an interrupted listing has in hand."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One document as a server lists it, before it is read."""

    path: str
    """Relative POSIX path, unique in the source."""
    version: str
    """Changes with the content and with nothing else, and is no other document's: a moved document
    keeps it, and so is not read again."""
    url: str = ""
    """Where a person opens it."""
    acl_tags: tuple[str, ...] | None = None
    """What the server's permissions grant; None: not read out, the configuration decides."""
    modified_at: str | None = None
    """ISO 8601, UTC, whole seconds."""
    media_type: str | None = MARKDOWN
    """None: only the content tells."""
    title: str = ""
    size_bytes: int | None = None
    handle: Any = field(default=None, compare=False)
    """What ``_fetch`` needs to find it."""


@dataclass(frozen=True, slots=True)
class Enumeration:
    """Everything a server has, complete."""

    entries: Sequence[Entry]
    left_out: Sequence[LeftOut] = ()
    """What the connector itself leaves out (drafts, an ignore file's patterns)."""
    other_files: int = 0
    state: Mapping[str, Any] = field(default_factory=dict)
    """What the next enumeration may build on; JSON-able."""


_Judged = tuple[list[Entry], list[LeftOut], Enumeration]
_Read = tuple[list[SourceFile], list[LeftOut], int]


@dataclass(frozen=True, slots=True)
class Fetched:
    """The content of one entry; what differs from the listing because it changed meanwhile."""

    content: bytes = field(repr=False)
    version: str | None = None
    modified_at: str | None = None
    media_type: str | None = None


class Unfit(SourceError):
    """What was read is no document that can be indexed, and never will be under this version."""

    def __init__(self, reason: Reason, rule: str) -> None:
        super().__init__(f"{reason}: {rule}")
        self.reason: Reason = reason
        self.rule = rule


class RemoteSource(ABC):
    """A ``Source`` over a server's API.

    ``acl`` gives the tags of a path: in place of what the server grants where that is not read
    out (``Entry.acl_tags`` is None), and narrowing it where a rule of ``acl`` matches. ``settings``
    are JSON-able and hold all else that decides what a listing yields, no secrets.

    Raises:
        ConfigurationError: a setting is impossible.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        *,
        api: ServerApi,
        settings: Mapping[str, Any],
        acl: AclRules,
        excluded_paths: Sequence[str] = (),
        included_paths: Sequence[str] = (),
        max_file_bytes: int = 10_000_000,
        concurrency: int = 4,
        context: SourceContext | None = None,
    ) -> None:
        self.name = name
        self._api = api
        self._acl = acl
        self._max_file_bytes = max_file_bytes
        self._concurrency = concurrency
        self._context = context or SourceContext()
        self._governance = Governance(
            name,
            kind,
            excluded_paths,
            included_paths,
            config_locations=self._context.config_locations,
        )
        shard = self._context.shard
        self._contents_of = fingerprint(SOURCES_VERSION, LOOK_FORMAT, [name, kind, api.address])
        self._settings = fingerprint(
            SOURCES_VERSION,
            LOOK_FORMAT,
            [name, kind, api.address],
            list(excluded_paths),
            list(included_paths),
            acl.as_lists(),
            max_file_bytes,
            [shard.index, shard.count] if shard else None,
            dict(settings),
        )

    @abstractmethod
    def _enumerate(self, state: Mapping[str, Any] | None) -> Enumeration:
        """Everything there is, without contents.

        ``state`` is that of an earlier enumeration under the same settings, to skip what has not
        changed since; None: look at everything.

        Raises:
            IncompleteEnumeration, SourceUnavailable: a part could not be listed.
        """

    @abstractmethod
    def _fetch(self, entry: Entry) -> Fetched:
        """The content of one entry; called from several threads.

        Raises:
            NotThere, Refused, TooLarge, Unfit: this one cannot be read, others can. What is too
                large or unfit is not asked for again until its version changes.
            IncompleteEnumeration, SourceUnavailable: give up.
        """

    def close(self) -> None:
        """Close the connections; they are opened again when needed."""
        self._api.close()

    def list(self, known: Mapping[str, SourceFile] | None = None) -> SourceListing:
        """Every document and everything left out; see ``Source.list``.

        Raises:
            IncompleteEnumeration, SourceUnavailable: it could not be read whole; what was fetched
                until then is kept for the next listing.
        """
        try:
            return self._list(known)
        finally:
            self.close()

    def look(self, state: Mapping[str, Any] | None) -> Changes:
        """What changed since the listing that left ``state``; see ``Source.look``.

        Raises:
            IncompleteEnumeration, SourceUnavailable: the server cannot be asked.
        """
        if not self._is_ours(state):
            return Changes(unknown=True)
        assert state is not None  # ours is not None
        try:
            entries, left_out, _ = self._judged(state.get("state"))
        finally:
            self.close()
        before: Mapping[str, str] = state["markers"]
        now = self._markers(entries, left_out)
        return Changes(
            added=tuple(sorted(now.keys() - before.keys())),
            modified=tuple(sorted(p for p, m in now.items() if before.get(p, m) != m)),
            removed=tuple(sorted(before.keys() - now.keys())),
        )

    def explain(self, path: str) -> LeftOut | None:
        """The rule that keeps ``path`` out today; asks the server when no rule of ours decides.

        Raises:
            IncompleteEnumeration, SourceUnavailable: the server cannot be asked.
        """
        if (row := self._governance.decide(path)) is not None:
            return row
        try:
            _, left_out, _ = self._judged(None)
        finally:
            self.close()
        folders = {row.path: row for row in left_out}
        at = path
        while at:
            if (row := folders.get(at) or folders.get(at + "/")) is not None:
                return row
            at = at.rpartition("/")[0]
        return None

    def _list(self, known: Mapping[str, SourceFile] | None) -> SourceListing:
        last = self._context.last_look
        if known is None or last is None or not self._is_ours(last):
            last = {}
        entries, left_out, found = self._judged(last.get("state"))
        journal = self._context.journal
        resumed = journal.open(self._contents_of) if journal else {}
        try:
            unfit = last.get("unfit", {})
            files, unreadable, read = self._contents(entries, known or {}, resumed, unfit)
        finally:
            if journal:
                journal.close()
        left_out = [*left_out, *unreadable]
        return SourceListing(
            source=self.name,
            files=tuple(sorted(files, key=lambda f: f.path)),
            left_out=tuple(sorted(left_out, key=lambda row: row.path)),
            other_files=found.other_files,
            look_state={
                "format": LOOK_FORMAT,
                "settings": self._settings,
                "markers": self._markers(entries, left_out),
                "state": dict(found.state),
                "unfit": {
                    row.version: [row.reason, row.rule]
                    for row in unreadable
                    if row.reason not in ("vanished", "unreadable")
                },
            },
            read=read,
        )

    def _is_ours(self, state: Mapping[str, Any] | None) -> bool:
        return (
            state is not None
            and state.get("format") == LOOK_FORMAT
            and state.get("settings") == self._settings
            and isinstance(state.get("markers"), Mapping)
        )

    def _judged(self, state: Mapping[str, Any] | None) -> _Judged:
        """What the rules let through, with its final tags; what they do not; and all there is."""
        try:
            found = self._enumerate(state)
        except (NotThere, Refused, TooLarge) as exc:
            raise SourceUnavailable(f"{exc}; nothing was removed") from exc
        entries: list[Entry] = []
        left_out = [row for row in found.left_out if self._holds(row.path)]
        seen: set[str] = set()
        for entry in found.entries:
            if entry.path in seen:
                raise IncompleteEnumeration(
                    f"source {self.name}: {self._api.address} listed {printable(entry.path)} "
                    "twice, so it changed while it was read; nothing was removed. Run again"
                )
            seen.add(entry.path)
            if not self._holds(entry.path):
                continue
            row = self._fault(entry) or self._governance.decide(entry.path)
            if row is None:
                entries.append(replace(entry, acl_tags=self._tags(entry)))
            else:
                left_out.append(row)
        return entries, left_out, found

    def _fault(self, entry: Entry) -> LeftOut | None:
        """What makes an entry unfit before it is read."""
        if any(is_unsafe(name) or name in ("", ".", "..") for name in entry.path.split("/")):
            return LeftOut(self.name, printable(entry.path), "quarantined", "unsafe_name")
        if len(entry.path.encode()) > MOST_PATH_BYTES:
            return self._unfit(entry, "path_too_long", f"more than {MOST_PATH_BYTES} bytes")
        if entry.size_bytes is not None and entry.size_bytes > self._max_file_bytes:
            return self._too_large(entry)
        return None

    def _holds(self, path: str) -> bool:
        shard = self._context.shard
        return shard is None or shard.holds(path)

    def _tags(self, entry: Entry) -> tuple[str, ...]:
        if entry.acl_tags is None:
            return self._acl.tags_for(entry.path)
        if self._acl.matching(entry.path):
            return most_restrictive(entry.acl_tags, self._acl.tags_for(entry.path))
        return tuple(sorted(set(entry.acl_tags)))

    def _contents(
        self,
        entries: Sequence[Entry],
        known: Mapping[str, SourceFile],
        resumed: Mapping[str, SourceFile],
        unfit: Mapping[str, Any],
    ) -> _Read:
        """A file per entry, what could not be read, and how many were read from the server.

        ``unfit`` has by version the reason and rule of what turned out to be no document before.
        Of several entries with one version, which are copies, only the first is read.
        """
        by_version = {file.version: file for file in known.values()}
        files: list[SourceFile] = []
        wanted: dict[str, list[Entry]] = {}
        unreadable: list[LeftOut] = []
        for entry in entries:
            held = known.get(entry.path)
            if held is None or held.version != entry.version:
                held = by_version.get(entry.version) or resumed.get(entry.version)
            if held is not None:
                files.append(self._carried(entry, held))
            elif entry.version in unfit:
                unreadable.append(self._unfit(entry, *unfit[entry.version]))
            else:
                wanted.setdefault(entry.version, []).append(entry)
        read = 0
        while wanted:
            firsts = [copies.pop(0) for copies in wanted.values()]
            for first, outcome in zip(firsts, self._fetched(firsts), strict=True):
                if isinstance(outcome, LeftOut):
                    unreadable.append(outcome)
                    continue
                read += 1
                files.append(outcome)
                if outcome.version == first.version:
                    copies = wanted.pop(first.version)
                    files += [self._carried(entry, outcome) for entry in copies]
            wanted = {version: copies for version, copies in wanted.items() if copies}
        self._refuse_when_nothing_is_allowed(unreadable, len(entries))
        return files, unreadable, read

    def _carried(self, entry: Entry, held: SourceFile) -> SourceFile:
        """The same content under the present path, address, tags and title."""
        assert entry.acl_tags is not None  # filled in by `_judged`
        return replace(
            held,
            source=self.name,
            path=entry.path,
            url=entry.url,
            acl_tags=entry.acl_tags,
            media_type=entry.media_type or held.media_type,
            title=entry.title,
        )

    def _fetched(self, wanted: Sequence[Entry]) -> Iterator[SourceFile | LeftOut]:
        """Read the entries, several at once, in their order."""
        journal = self._context.journal
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="fetch") as pool:
            for start in range(0, len(wanted), FETCHED_AT_ONCE):
                batch = wanted[start : start + FETCHED_AT_ONCE]
                for outcome in pool.map(self._read, batch):
                    if journal and isinstance(outcome, SourceFile):
                        journal.add(outcome)
                    yield outcome
                self._context.progress("documents read", start + len(batch), len(wanted))

    def _read(self, entry: Entry) -> SourceFile | LeftOut:
        try:
            fetched = self._fetch(entry)
        except NotThere:
            return self._unfit(entry, "vanished", "gone before it was read")
        except Refused as exc:
            return self._unfit(entry, "unreadable", str(exc))
        except TooLarge:
            return self._too_large(entry)
        except Unfit as exc:
            return self._unfit(entry, exc.reason, exc.rule)
        if len(fetched.content) > self._max_file_bytes:
            return self._too_large(entry)
        if is_blank(fetched.content):
            return self._unfit(entry, "blank", "")
        assert entry.acl_tags is not None  # filled in by `_judged`
        return SourceFile(
            source=self.name,
            path=entry.path,
            url=entry.url,
            content=fetched.content,
            content_hash=sha256_hex(fetched.content),
            modified_at=fetched.modified_at or entry.modified_at,
            acl_tags=entry.acl_tags,
            version=fetched.version or entry.version,
            media_type=fetched.media_type or entry.media_type or MARKDOWN,
            title=entry.title,
        )

    def _too_large(self, entry: Entry) -> LeftOut:
        limit = f"more than {self._max_file_bytes:,} bytes (max_file_bytes)"
        return self._unfit(entry, "too_large", limit)

    def _unfit(self, entry: Entry, reason: Reason, rule: str) -> LeftOut:
        by_rule = reason in ("vanished", "too_large", "blank")
        status: LeftOutStatus = "excluded" if by_rule else "quarantined"
        return LeftOut(self.name, entry.path, status, reason, rule, version=entry.version)

    def _refuse_when_nothing_is_allowed(
        self, unreadable: Sequence[LeftOut], documents: int
    ) -> None:
        """An account that may read nothing is a fault of the account, not of each document."""
        refused = [row for row in unreadable if row.reason == "unreadable"]
        if len(refused) > 1 and len(refused) == documents:
            raise SourceUnavailable(
                f"source {self.name}: none of the {documents} documents may be read with this "
                f"account; nothing was removed. The first: {refused[0].rule}"
            )

    def _markers(self, entries: Sequence[Entry], left_out: Sequence[LeftOut]) -> dict[str, str]:
        """By path, what the next look compares: content, place, tags, title."""
        markers = {
            e.path: fingerprint(e.version, e.url, e.acl_tags, e.title, e.media_type)
            for e in entries
        }
        for row in left_out:
            markers.setdefault(row.path, row.reason)
        return markers

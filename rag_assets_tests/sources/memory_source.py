"""A source over a dictionary, right in all its parts, and wrong ones by kind."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rag_assets.acl import AclRules, most_restrictive
from rag_assets.errors import SourceUnavailable
from rag_assets.fingerprints import fingerprint, sha256_hex
from rag_assets.models import Changes, LeftOut, SourceFile, SourceListing
from rag_assets.sources.governance import Governance
from rag_assets.sources.shards import Shard
from rag_assets.testing.source_contract import EVERYBODY


@dataclass(slots=True)
class Page:
    """One document of the system."""

    number: int
    """Stays when the page moves."""
    text: str
    version: str
    readers: tuple[str, ...] = ("public", "service:rh", "service:it", "service:compta",
                                "admin_only")  # fmt: skip


@dataclass(slots=True)
class MemoryPeer:
    """A system that knows pages and who may read them."""

    pages: dict[str, Page] = field(default_factory=dict)
    stopped: bool = False
    read: list[str] = field(default_factory=list)
    """Paths of the pages whose text was asked for."""
    _count: Any = field(default_factory=itertools.count)

    def add(self, path: str, text: str) -> str:
        self.pages[path] = Page(next(self._count), text, f"v{next(self._count)}")
        return path

    def change(self, path: str, text: str) -> str:
        page = self.pages[path]
        self.pages[path] = replace(page, text=text, version=f"v{next(self._count)}")
        return path

    def rename(self, path: str, new_path: str) -> str:
        self.pages[new_path] = self.pages.pop(path)
        return new_path

    def delete(self, path: str) -> str:
        del self.pages[path]
        return path

    def restrict(self, path: str) -> str:
        self.pages[path].readers = ("service:rh",)
        return path

    def stop(self) -> None:
        self.stopped = True

    def text(self, path: str) -> str:
        """The text of a page, as its server would send it."""
        self.read.append(path)
        return self.pages[path].text


class MemorySource:
    """Keeps the contract; each step is a method that a wrong source overrides."""

    def __init__(
        self,
        peer: MemoryPeer,
        *,
        acl: AclRules = EVERYBODY,
        excluded_paths: Sequence[str] = (),
        included_paths: Sequence[str] = (),
        shard: Shard | None = None,
    ) -> None:
        self.name = "mémoire"
        self.peer = peer
        self.acl = acl
        self.shard = shard
        self.governance = Governance(self.name, "memory", excluded_paths, included_paths)
        self.settings = fingerprint(acl.as_lists(), excluded_paths, included_paths, str(shard))

    def list(self, known: Mapping[str, SourceFile] | None = None) -> SourceListing:
        self.check()
        by_version = {file.version: file for file in (known or {}).values()}
        files: list[SourceFile] = []
        left_out: list[LeftOut] = []
        self.read = 0
        for path, page in self.pages().items():
            if not self.holds(path):
                continue
            row = self.rule(path) or self.take(path, page, known or {}, by_version, files)
            if row is not None:
                left_out.append(row)
        return SourceListing(self.name, tuple(files), tuple(left_out), 0, self.state(), self.read)

    def look(self, state: Mapping[str, Any] | None) -> Changes:
        self.check()
        if state is None or state.get("settings") != self.settings:
            return Changes(unknown=True)
        return self.compare(state["pages"], self.state()["pages"])

    def explain(self, path: str) -> LeftOut | None:
        return self.rule(path)

    def check(self) -> None:
        if self.peer.stopped:
            raise SourceUnavailable(f"source {self.name}: the memory is gone; run again")

    def pages(self) -> Mapping[str, Page]:
        return self.peer.pages

    def holds(self, path: str) -> bool:
        return self.shard is None or self.shard.holds(path)

    def rule(self, path: str) -> LeftOut | None:
        return self.governance.decide(path)

    def take(
        self,
        path: str,
        page: Page,
        known: Mapping[str, SourceFile],
        by_version: Mapping[str, SourceFile],
        files: list[SourceFile],
    ) -> LeftOut | None:
        """Add the file, carried over or read; or say why not."""
        held = self.held(path, page, known, by_version)
        if held is not None:
            files.append(self.carried(path, page, held))
            return None
        content = self.peer.text(path).encode()
        if not content.strip():
            return LeftOut(self.name, path, "excluded", "blank")
        self.read += 1
        files.append(self.file(path, page, content))
        return None

    def held(
        self,
        path: str,
        page: Page,
        known: Mapping[str, SourceFile],
        by_version: Mapping[str, SourceFile],
    ) -> SourceFile | None:
        return by_version.get(page.version)

    def carried(self, path: str, page: Page, held: SourceFile) -> SourceFile:
        return replace(held, path=path, acl_tags=self.tags(path, page))

    def file(self, path: str, page: Page, content: bytes) -> SourceFile:
        tags = self.tags(path, page)
        return SourceFile(
            self.name, path, "", content, sha256_hex(content), "2026-03-01T09:30:00Z", tags,
            page.version,
        )  # fmt: skip

    def tags(self, path: str, page: Page) -> tuple[str, ...]:
        configured = self.acl.tags_for(path)
        if len(page.readers) > 1:
            return configured
        return most_restrictive(configured, page.readers)

    def state(self) -> dict[str, Any]:
        pages = {path: page.version for path, page in self.peer.pages.items() if self.holds(path)}
        return {"settings": self.settings, "pages": pages}

    def compare(self, old: Mapping[str, str], new: Mapping[str, str]) -> Changes:
        return Changes(
            tuple(new.keys() - old.keys()),
            tuple(path for path in old.keys() & new.keys() if old[path] != new[path]),
            tuple(old.keys() - new.keys()),
        )


# ---------------------------------------------------------------- wrong sources


class StopsAfterThree(MemorySource):
    """The first page of a listing is all of it, it thinks."""

    def pages(self) -> Mapping[str, Page]:
        return dict(itertools.islice(super().pages().items(), 3))


class ListsTwice(MemorySource):
    """Two pages of a listing overlap."""

    def list(self, known: Mapping[str, SourceFile] | None = None) -> SourceListing:
        found = super().list(known)
        return replace(found, files=(*found.files, *found.files[:1]))


class HashesTheText(MemorySource):
    """The hash is that of the text without white space around it."""

    def file(self, path: str, page: Page, content: bytes) -> SourceFile:
        made = super().file(path, page, content)
        return replace(made, content_hash=sha256_hex(content.strip()))


class WritesAbsolutePaths(MemorySource):
    """Paths begin with a slash."""

    def file(self, path: str, page: Page, content: bytes) -> SourceFile:
        return super().file("/" + path, page, content)


class WritesLocalTimes(MemorySource):
    """Times as people write them."""

    def file(self, path: str, page: Page, content: bytes) -> SourceFile:
        return replace(super().file(path, page, content), modified_at="01/03/2026 10:30")


class IdentifiesByContent(MemorySource):
    """Two documents of the same text are one."""

    def list(self, known: Mapping[str, SourceFile] | None = None) -> SourceListing:
        found = super().list(known)
        files = {file.content_hash: file for file in found.files}
        return replace(found, files=tuple(files.values()))


class NamesTheKind(MemorySource):
    """Files carry the kind of the source in place of its name."""

    def file(self, path: str, page: Page, content: bytes) -> SourceFile:
        return replace(super().file(path, page, content), source="memory")


class TakesTheFirstRule(MemorySource):
    """Of several access rules the first decides."""

    def tags(self, path: str, page: Page) -> tuple[str, ...]:
        matching = self.acl.matching(path)
        return self.acl.rules[matching[0]].tags if matching else self.acl.default


class OpensWhatHasNoTags(MemorySource):
    """A document without tags is for everybody, it thinks."""

    def tags(self, path: str, page: Page) -> tuple[str, ...]:
        return super().tags(path, page) or ("public",)


class UnsortedTags(MemorySource):
    """Tags in the order of the moment."""

    def tags(self, path: str, page: Page) -> tuple[str, ...]:
        return super().tags(path, page)[::-1]


class KeepsOldTags(MemorySource):
    """What is carried over keeps the tags it had."""

    def carried(self, path: str, page: Page, held: SourceFile) -> SourceFile:
        return replace(held, path=path)


class IgnoresPermissions(MemorySource):
    """What the system itself says of readers is not asked."""

    def tags(self, path: str, page: Page) -> tuple[str, ...]:
        return self.acl.tags_for(path)


class HasNoRules(MemorySource):
    """Everything is let in."""

    def rule(self, path: str) -> LeftOut | None:
        return None


class RulesByText(MemorySource):
    """Reads first, and then sees that it must not."""

    def rule(self, path: str) -> LeftOut | None:
        row = super().rule(path)
        self.read += row is not None
        return row


class HidesWhatItLeavesOut(MemorySource):
    """What is left out is not mentioned."""

    def list(self, known: Mapping[str, SourceFile] | None = None) -> SourceListing:
        return replace(super().list(known), left_out=())


class TakesBlankPages(MemorySource):
    """A page of white space is a document."""

    def take(self, path: str, page: Page, *rest: Any) -> LeftOut | None:
        if page.text.strip():
            return super().take(path, page, *rest)
        rest[-1].append(self.file(path, page, page.text.encode()))
        return None


class CarriesExcludedPages(MemorySource):
    """What is known is carried over before the rules are asked."""

    def list(self, known: Mapping[str, SourceFile] | None = None) -> SourceListing:
        found = super().list(known)
        paths = {file.path for file in found.files}
        kept = [f for p, f in (known or {}).items() if p in self.peer.pages and p not in paths]
        return replace(found, files=(*found.files, *kept))


class ExplainsNothing(MemorySource):
    """Nobody learns why."""

    def explain(self, path: str) -> LeftOut | None:
        return None


class ReadsEverythingAgain(MemorySource):
    """What is known does not help."""

    def held(self, *_: Any) -> SourceFile | None:
        return None


class TrustsThePath(MemorySource):
    """A known path is an unchanged document."""

    def held(
        self,
        path: str,
        page: Page,
        known: Mapping[str, SourceFile],
        by_version: Mapping[str, SourceFile],
    ) -> SourceFile | None:
        return known.get(path)


class ForgetsNothing(MemorySource):
    """What was once there stays."""

    def list(self, known: Mapping[str, SourceFile] | None = None) -> SourceListing:
        found = super().list(known)
        paths = {file.path for file in found.files}
        kept = [file for path, file in (known or {}).items() if path not in paths]
        return replace(found, files=(*found.files, *kept))


class KeepsTheOldName(MemorySource):
    """What is carried over keeps its path."""

    def carried(self, path: str, page: Page, held: SourceFile) -> SourceFile:
        return replace(held, acl_tags=self.tags(path, page))


class LooksAtNumbers(MemorySource):
    """As many documents as before: nothing has changed, it thinks."""

    def compare(self, old: Mapping[str, str], new: Mapping[str, str]) -> Changes:
        return Changes(unknown=len(old) != len(new))


class LooksForNewOnly(MemorySource):
    """What was deleted is not noticed."""

    def compare(self, old: Mapping[str, str], new: Mapping[str, str]) -> Changes:
        return replace(super().compare(old, new), removed=())


class AlwaysSeesChanges(MemorySource):
    """Never calm: a run for every look."""

    def compare(self, old: Mapping[str, str], new: Mapping[str, str]) -> Changes:
        return Changes(unknown=True)


class StateIsNoJson(MemorySource):
    """The state holds what JSON cannot."""

    def state(self) -> dict[str, Any]:
        found = super().state()
        return {**found, "pages": {path: {v} for path, v in found["pages"].items()}}


class LooksUnderOtherSettings(MemorySource):
    """A state of other settings is compared as if it were of these."""

    def look(self, state: Mapping[str, Any] | None) -> Changes:
        self.check()
        if state is None or "pages" not in state:
            return Changes(unknown=True)
        return self.compare(state["pages"], self.state()["pages"])


class EveryShardIsWhole(MemorySource):
    """A shard lists all documents."""

    def holds(self, path: str) -> bool:
        return True


class ShardsByItsOwnHash(MemorySource):
    """Documents are divided exactly, but not as the others divide them."""

    def holds(self, path: str) -> bool:
        return self.shard is None or len(path) % self.shard.count == self.shard.index


class IsEmptyWhenDown(MemorySource):
    """No answer is no documents."""

    def check(self) -> None:
        if self.peer.stopped:
            self.peer.pages.clear()


class GivesWhatItKnowsWhenDown(MemorySource):
    """No answer is no change."""

    def list(self, known: Mapping[str, SourceFile] | None = None) -> SourceListing:
        if self.peer.stopped and known:
            return SourceListing(self.name, tuple(known.values()), (), 0, self.state())
        return super().list(known)


class RaisesForeignErrors(MemorySource):
    """The error of a library goes through."""

    def check(self) -> None:
        if self.peer.stopped:
            raise ConnectionRefusedError(111, "Connection refused")


WRONG: Final[Mapping[str, Callable[..., MemorySource]]] = {
    made.__name__: made for made in MemorySource.__subclasses__()
}
"""Each breaks one promise of ``Source``."""

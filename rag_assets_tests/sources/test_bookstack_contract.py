"""The BookStack source keeps the promises of every source."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rag_assets.acl import AclRules
from rag_assets.http_client import HttpLimits
from rag_assets.sources.base import SourceContext
from rag_assets.sources.bookstack import BookStackSource
from rag_assets.sources.shards import Shard
from rag_assets.testing.source_contract import EVERYBODY, MakeSource, SourceContract
from rag_assets_tests.peers.bookstack import BookStack, Entity
from rag_assets_tests.sources.bookstack_wiki import VARIABLE, settings_of

ROOT = "racine"
"""The book of paths without a folder: BookStack has no page outside of one."""


class Editor:
    """A ``SourcePeer`` that keeps paths as books, chapters and pages."""

    def __init__(self, wiki: BookStack) -> None:
        self.wiki = wiki
        self._parents: dict[tuple[str, ...], Entity] = {}
        self._pages: dict[str, Entity] = {}

    def add(self, path: str, text: str) -> str:
        """A page in Markdown; its book and chapter are made when they are missing."""
        *folders, name = path.split("/")
        page = self.wiki.add_page(self._parent(folders), _title(name), markdown=text)
        self._pages[path] = page
        return self._listed(page)

    def change(self, path: str, text: str) -> str:
        """Save another text."""
        self.wiki.edit(self._pages[path], markdown=text)
        return self._listed(self._pages[path])

    def rename(self, path: str, new_path: str) -> str:
        """Move and rename a page."""
        page = self._pages[new_path] = self._pages.pop(path)
        *folders, name = new_path.split("/")
        if folders != path.split("/")[:-1]:
            self.wiki.move(page, self._parent(folders))
        self.wiki.rename(page, _title(name))
        return self._listed(page)

    def delete(self, path: str) -> str:
        """Put a page into the recycle bin."""
        page = self._pages.pop(path)
        self.wiki.delete(page)
        return self._listed(page)

    def stop(self) -> None:
        """Stop the server."""
        self.wiki.__exit__(None, None, None)

    def _parent(self, folders: list[str]) -> Entity:
        names = tuple(folders) or (ROOT,)
        if names not in self._parents:
            if len(names) == 1:
                self._parents[names] = self.wiki.add_book(names[0])
            else:
                book = self._parent([names[0]])
                self._parents[names] = self.wiki.add_chapter(book, names[1])
        return self._parents[names]

    def _listed(self, page: Entity) -> str:
        names = [self.wiki.books[page.book_id].slug]
        if page.chapter_id:
            names.append(self.wiki.chapters[page.chapter_id].slug)
        return "/".join([*names, f"{page.slug}.md"])


def _title(name: str) -> str:
    return name.removesuffix(".md")


class TestBookStack(SourceContract):
    """Over the peer of these tests."""

    @pytest.fixture
    def peer(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Editor]:
        """A running BookStack without content."""
        monkeypatch.setenv(VARIABLE, "")
        with BookStack() as wiki:
            yield Editor(wiki)

    @pytest.fixture
    def make_source(self, peer: Editor) -> MakeSource:
        """A source over it."""

        def make(
            *,
            acl: AclRules = EVERYBODY,
            excluded_paths: object = (),
            included_paths: object = (),
            shard: Shard | None = None,
        ) -> BookStackSource:
            rules = tuple({"paths": rule.paths, "tags": rule.tags} for rule in acl.rules)
            settings = settings_of(
                peer.wiki,
                acl={"default": acl.default, "rules": rules},
                excluded_paths=excluded_paths,
                included_paths=included_paths,
            )
            limits = HttpLimits(retries=1, backoff_seconds=0.01, timeout_seconds=5.0)
            return BookStackSource(settings, SourceContext(shard=shard), limits=limits)

        return make

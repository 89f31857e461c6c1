"""A small BookStack with content in two languages, and somebody who indexes it again and again."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from rag_assets.http_client import HttpLimits
from rag_assets.models import SourceFile, SourceListing
from rag_assets.source_settings import BookStackSettings
from rag_assets.sources.base import SourceContext
from rag_assets.sources.bookstack import BookStackSource
from rag_assets_tests.peers.bookstack import BookStack, Entity, User

VARIABLE = "RAG_ASSETS_TEST_BOOKSTACK"
"""The token of the account that reads all; ``<VARIABLE>_<name>`` for those of others."""
QUICK = HttpLimits(timeout_seconds=5.0, deadline_seconds=20.0, retries=1, backoff_seconds=0.01)
SECRET = "sEcReT-canari-9f31c7"

Essence = Mapping[str, Sequence[object]]


class Handbook:
    """Two books: ``reseau`` with a chapter and three pages, ``people`` with two."""

    def __init__(self, wiki: BookStack) -> None:
        wiki.admin.secret = SECRET
        self.network = wiki.add_book("Réseau")
        self.access = wiki.add_chapter(self.network, "Accès")
        self.vpn = wiki.add_page(
            self.access, "VPN de l'équipe", markdown="# VPN\r\n\r\nL'accès au cœur de réseau.\r\n"
        )
        self.badge = wiki.add_page(self.access, "Badge", html="<p id='bkmrk-a'>Renouveler</p>")
        self.cables = wiki.add_page(self.network, "Câbles", markdown="Les câbles sont bleus.\n")
        self.people = wiki.add_book("People")
        self.leave = wiki.add_page(self.people, "Leave", html="<h2 id='bkmrk-days'>Days</h2>")
        self.travel = wiki.add_page(self.people, "Travel", markdown="Ask first.\n")

    @property
    def pages(self) -> tuple[Entity, ...]:
        """All pages."""
        return (self.vpn, self.badge, self.cables, self.leave, self.travel)


def essence(listing: SourceListing) -> Essence:
    """By path, all of a listing that must not depend on what was known before."""
    files: dict[str, Sequence[object]] = {
        f.path: (f.content, f.content_hash, f.url, f.acl_tags, f.title, f.media_type)
        for f in listing.files
    }
    rows = {row.path: (row.status, row.reason, row.rule) for row in listing.left_out}
    return {**files, **rows}


def set_token(user: User, variable: str = VARIABLE) -> dict[str, str]:
    """Put a user's token into the environment; the setting that names it."""
    os.environ[variable] = user.token
    return {"env": variable}


def settings_of(wiki: BookStack, **settings: Any) -> BookStackSettings:
    """Settings of a source over the wiki with the token of its administrator."""
    given = {
        "name": "wiki",
        "base_url": wiki.address,
        "requests_per_minute": 10_000_000,
        "acl": {"default": ("public",)},
        **settings,
    }
    if "token" not in given:
        given["token"] = set_token(wiki.admin)
    return BookStackSettings.model_validate(given)


class Indexer:
    """Lists again and again with what it knows, as the pipeline does."""

    def __init__(self, wiki: BookStack, **settings: Any) -> None:
        self.wiki = wiki
        self.settings = settings_of(wiki, **settings)
        self.listing: SourceListing | None = None

    def source(self, **context: Any) -> BookStackSource:
        """A new source, as each run makes one."""
        last = self.listing.look_state if self.listing else None
        given = SourceContext(**{"last_look": last, **context})
        return BookStackSource(self.settings, given, limits=QUICK)

    @property
    def known(self) -> dict[str, SourceFile] | None:
        """What the last listing yielded, by path."""
        return {f.path: f for f in self.listing.files} if self.listing else None

    def read(self, **context: Any) -> SourceListing:
        """List with what is known; must equal a listing from nothing."""
        self.listing = self.source(**context).list(self.known)
        fresh = BookStackSource(self.settings, limits=QUICK).list()
        assert essence(self.listing) == essence(fresh)
        return self.listing

    def changed_paths(self) -> set[str]:
        """What a look sees: ``+`` added, ``-`` removed, ``*`` modified."""
        assert self.listing is not None
        found = self.source().look(self.listing.look_state)
        assert not found.unknown
        signs = {"+": found.added, "-": found.removed, "*": found.modified}
        return {sign + path for sign, paths in signs.items() for path in paths}

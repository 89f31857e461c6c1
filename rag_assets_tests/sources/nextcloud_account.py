"""A source over a Nextcloud peer, and the comparisons that its tests make."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from rag_assets.http_client import HttpLimits
from rag_assets.models import SourceFile, SourceListing
from rag_assets.source_settings import NextcloudSettings
from rag_assets.sources.base import SourceContext
from rag_assets.sources.nextcloud import NextcloudSource
from rag_assets_tests.peers.nextcloud import USER, NextcloudPeer

VARIABLE: Final = "NEXTCLOUD_TEST_PASSWORD"
LIMITS: Final = HttpLimits(
    connect_timeout_seconds=5.0,
    timeout_seconds=20.0,
    deadline_seconds=40.0,
    retries=1,
    backoff_seconds=0.01,
    retry_after_cap_seconds=0.1,
)


def make_source(
    url: str,
    context: SourceContext | None = None,
    *,
    limits: HttpLimits = LIMITS,
    clock: Callable[[], float] = time.time,
    **settings: Any,
) -> NextcloudSource:
    """A source named ``nuage``; the password stands in ``VARIABLE``."""
    chosen = {
        "name": "nuage",
        "base_url": url,
        "user": USER,
        "password": {"env": VARIABLE},
        "acl": {"default": ("public",)},
        "requests_per_minute": 1_000_000,
        **settings,
    }
    made = NextcloudSettings.model_validate(chosen)
    return NextcloudSource(made, context, limits=limits, clock=clock)


def known(listing: SourceListing) -> dict[str, SourceFile]:
    """What the next listing is given."""
    return {file.path: file for file in listing.files}


def essence(listing: SourceListing) -> dict[str, tuple[object, ...]]:
    """By path, all that a listing says of a document."""
    return {
        f.path: (f.content, f.content_hash, f.url, f.acl_tags, f.title, f.modified_at, f.media_type)
        for f in listing.files
    }


def reasons(listing: SourceListing) -> dict[str, str]:
    """By path, why something was left out."""
    return {row.path: row.reason for row in listing.left_out}


class Account:
    """Follows the files of ``USER`` as the pipeline does: look, list what changed, remember."""

    def __init__(self, peer: NextcloudPeer, **settings: Any) -> None:
        self.peer = peer
        self.settings = settings
        self.listing = make_source(peer.url, **settings).list()

    def source(self) -> NextcloudSource:
        """A source that knows what the last listing left."""
        context = SourceContext(last_look=self.listing.look_state)
        return make_source(self.peer.url, context, **self.settings)

    def follow(self) -> tuple[Counter[str], Counter[str]]:
        """Look and list; the requests of each.

        The look must tell whether anything changed, and the listing must be the same as one from
        nothing.
        """
        self.peer.forget_requests()
        changes = self.source().look(self.listing.look_state)
        looked = self.peer.requests()
        self.peer.forget_requests()
        listing = self.source().list(known(self.listing))
        listed = self.peer.requests()
        fresh = make_source(self.peer.url, **self.settings).list()
        assert essence(listing) == essence(fresh)
        assert reasons(listing) == reasons(fresh)
        assert listing.other_files == fresh.other_files
        before, after = essence(self.listing), essence(listing)
        told = {*changes.added, *changes.modified, *changes.removed}
        differing = {path for path in {*before, *after} if before.get(path) != after.get(path)}
        assert differing <= told
        assert bool(changes) == bool(differing) or reasons(listing) != reasons(self.listing)
        self.listing = listing
        return looked, listed

    def text(self, path: str) -> str:
        """The content of a document in the last listing."""
        return known(self.listing)[path].content.decode()


def change_at_random(peer: NextcloudPeer, draw: random.Random) -> None:
    """Add, change, move or remove a document, or move a folder."""
    documents = peer.documents()
    place = draw.choice(["", "Guides/", "Guides/Réseau/", "Équipe/"])
    path = f"{place}{draw.choice(['été', 'cœur', 'a+b', '100 %'])}-{draw.randrange(1000)}.md"
    kind = draw.choice(["add", "change", "move", "remove", "move folder"])
    if kind == "add" or not documents:
        peer.put(path, f"# {draw.random()}\n")
    elif kind == "change":
        peer.put(draw.choice(documents), f"# {draw.random()}\n")
    elif kind == "move":
        peer.put(f"{place}note.txt", "")  # so that the folder is there
        peer.move(draw.choice(documents), path)
    elif kind == "remove":
        peer.delete(draw.choice(documents))
    elif folder := draw.choice(documents).rpartition("/")[0]:
        peer.move(folder, f"Déplacé {draw.randrange(1000)}")

"""A source over the tests' GitLab, listed step by step, each time also from nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from rag_assets.http_client import HttpLimits
from rag_assets.models import Changes, SourceFile, SourceListing
from rag_assets.source_settings import GitLabSettings
from rag_assets.sources.base import SourceContext
from rag_assets.sources.gitlab import GitLabSource
from rag_assets_tests.peers.gitlab import GitLabPeer

TOKEN: Final = "glpat-CANARY-7f3a9b1c5d"
VARIABLE: Final = "TEST_GITLAB_TOKEN"
FAST: Final = HttpLimits(
    timeout_seconds=5.0, backoff_seconds=0.01, retries=2, retry_after_cap_seconds=0.1
)


def settings_of(peer: GitLabPeer, **settings: Any) -> GitLabSettings:
    """Settings for the server; the token is in the environment (fixture ``peer``)."""
    given = {
        "name": "git",
        "base_url": peer.url,
        "token": {"env": VARIABLE},
        "acl": {"default": ["public"]},
        "requests_per_minute": 100_000,
    } | settings
    if "projects" not in given and "groups" not in given:
        given["groups"] = ("team",)
    return GitLabSettings.model_validate(_with_tuples(given))


def _with_tuples(value: Any) -> Any:
    """Lists as the configuration file's reader gives them."""
    if isinstance(value, Mapping):
        return {key: _with_tuples(part) for key, part in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, (list, tuple)) else value


def source_of(
    peer: GitLabPeer, context: SourceContext | None = None, **settings: Any
) -> GitLabSource:
    """A new source over the server."""
    return GitLabSource(settings_of(peer, **settings), context, limits=FAST)


def essence(listing: SourceListing) -> dict[str, tuple[object, ...]]:
    """By path, what must not depend on how a listing was made."""
    return {
        f.path: (f.source, f.content, f.content_hash, f.url, f.acl_tags, f.title, f.media_type)
        for f in listing.files
    }


def reasons(listing: SourceListing) -> dict[str, str]:
    """Why each left-out path is left out; every path only once."""
    found = {row.path: row.reason for row in listing.left_out}
    assert len(found) == len(listing.left_out)
    return found


class Follower:
    """Lists a server step by step, as the pipeline does; every state goes through JSON."""

    def __init__(self, peer: GitLabPeer, **settings: Any) -> None:
        self.peer = peer
        self.settings = settings
        self.known: Mapping[str, SourceFile] | None = None
        self.look_state: Mapping[str, Any] | None = None
        self.changes: Changes = Changes(unknown=True)
        self.looked: Counter[str] = Counter()
        """What the last look asked of the server."""
        self.asked: Counter[str] = Counter()
        """What the last incremental listing asked of the server."""

    def source(self) -> GitLabSource:
        """A new source that knows what was listed last."""
        return source_of(self.peer, SourceContext(last_look=self.look_state), **self.settings)

    def step(self) -> SourceListing:
        """Look, list on top of the last listing, and compare with a listing from nothing."""
        self.peer.count()
        self.changes = self.source().look(self.look_state)
        self.looked = self.peer.count()
        listing = self.source().list(self.known)
        self.asked = self.peer.count()
        fresh = source_of(self.peer, **self.settings).list()
        assert essence(listing) == essence(fresh)
        assert listing.left_out == fresh.left_out
        assert listing.other_files == fresh.other_files
        self.known = {file.path: file for file in listing.files}
        self.look_state = json.loads(json.dumps(listing.look_state))
        self.peer.count()
        return listing


def paths(listing: SourceListing) -> list[str]:
    """The paths of the documents, in their order."""
    return [file.path for file in listing.files]

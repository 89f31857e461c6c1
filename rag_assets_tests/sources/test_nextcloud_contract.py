"""The Nextcloud source keeps the promises of every source, over Nextcloud and plain WebDAV."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from rag_assets.acl import AclRules
from rag_assets.sources.base import SourceContext
from rag_assets.sources.nextcloud import NextcloudSource
from rag_assets.sources.shards import Shard
from rag_assets.testing.source_contract import EVERYBODY, MakeSource, SourceContract
from rag_assets_tests.peers.nextcloud import (
    PASSWORD,
    NextcloudPeer,
    nextcloud_peer,
    require_nextcloud_peer,
)
from rag_assets_tests.peers.wsgidav_server import WsgidavPeer, wsgidav_peer

from .nextcloud_account import VARIABLE, make_source

FIRST_MOMENT = 1_772_357_400  # 2026-03-01T09:30:00Z


class Client:
    """A ``SourcePeer`` that works over WebDAV, as people's own clients do."""

    def __init__(self, cloud: NextcloudPeer) -> None:
        self.cloud = cloud
        self.url = cloud.url

    def add(self, path: str, text: str) -> str:
        """Upload a file."""
        self.cloud.put(path, text)
        return path

    change = add

    def rename(self, path: str, new_path: str) -> str:
        """Move a file."""
        self.cloud.move(path, new_path)
        return new_path

    def delete(self, path: str) -> str:
        """Remove a file."""
        self.cloud.delete(path)
        return path

    def stop(self) -> None:
        """Stop the server."""
        self.cloud.stop()


class Disk:
    """A ``SourcePeer`` that changes the folder behind a plain WebDAV server."""

    def __init__(self, server: WsgidavPeer, running: AbstractContextManager[WsgidavPeer]) -> None:
        self.server = server
        self.url = server.url
        self._running: AbstractContextManager[WsgidavPeer] | None = running
        self._moment = FIRST_MOMENT

    def add(self, path: str, text: str) -> str:
        """Write a file, a second after the one before."""
        self._moment += 1
        os.utime(self.server.write(path, text), (self._moment, self._moment))
        return path

    change = add

    def rename(self, path: str, new_path: str) -> str:
        """Move a file."""
        target = self.server.folder / new_path
        target.parent.mkdir(parents=True, exist_ok=True)
        (self.server.folder / path).rename(target)
        return new_path

    def delete(self, path: str) -> str:
        """Remove a file."""
        (self.server.folder / path).unlink()
        return path

    def stop(self) -> None:
        """Stop the server."""
        if self._running is not None:
            self._running.__exit__(None, None, None)
            self._running = None


def making(url: str) -> MakeSource:
    """Builds sources over the server at an address."""

    def make(
        *,
        acl: AclRules = EVERYBODY,
        excluded_paths: Sequence[str] = (),
        included_paths: Sequence[str] = (),
        shard: Shard | None = None,
    ) -> NextcloudSource:
        rules = tuple({"paths": rule.paths, "tags": rule.tags} for rule in acl.rules)
        return make_source(
            url,
            SourceContext(shard=shard),
            acl={"default": acl.default, "rules": rules},
            excluded_paths=tuple(excluded_paths),
            included_paths=tuple(included_paths),
        )

    return make


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, PASSWORD)


class TestNextcloud(SourceContract):
    """Over sabre/dav with fileids and ETags that change up to the root."""

    renames_without_reading = True

    @pytest.fixture
    def peer(self) -> Iterator[Client]:  # type: ignore[override]
        """A running Nextcloud in small, with nothing in it."""
        require_nextcloud_peer()
        with nextcloud_peer() as cloud:
            yield Client(cloud)

    @pytest.fixture
    def make_source(self, peer: Client) -> MakeSource:  # type: ignore[override]
        """A source over it."""
        return making(peer.url)


class TestPlainWebDav(SourceContract):
    """Over wsgidav, which has neither."""

    @pytest.fixture
    def peer(self, tmp_path: Path) -> Iterator[Disk]:  # type: ignore[override]
        """A running server over an empty folder."""
        running = wsgidav_peer(tmp_path)
        disk = Disk(running.__enter__(), running)
        yield disk
        disk.stop()

    @pytest.fixture
    def make_source(self, peer: Disk) -> MakeSource:  # type: ignore[override]
        """A source over it."""
        return making(peer.url)

"""The GitLab connector keeps the contract of a source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_assets.acl import AclRules
from rag_assets.settings import AclRuleSettings, AclSettings
from rag_assets.sources.base import SourceContext
from rag_assets.sources.gitlab import GitLabSource
from rag_assets.sources.shards import Shard
from rag_assets.testing import SourceContract
from rag_assets_tests.peers.gitlab import GitLabPeer
from rag_assets_tests.sources.gitlab_listing import TOKEN, VARIABLE, source_of

PROJECT = "équipe/manuel"
EVERYBODY = AclRules(("public",))


class RepositoryPeer:
    """One project of a GitLab, changed by commits."""

    def __init__(self, server: GitLabPeer) -> None:
        self.server = server
        self.project = server.add_project(PROJECT)

    def add(self, path: str, text: str) -> str:
        self.project.commit({path: text})
        return f"{PROJECT}/{path}"

    change = add

    def rename(self, path: str, new_path: str) -> str:
        self.project.commit(rename={path: new_path})
        return f"{PROJECT}/{new_path}"

    def delete(self, path: str) -> str:
        self.project.commit(delete=[path])
        return f"{PROJECT}/{path}"

    def stop(self) -> None:
        self.server.__exit__()


class WikiPeer(RepositoryPeer):
    """The wiki of one project."""

    def add(self, path: str, text: str) -> str:
        self.project.write_wiki({path: text})
        return f"{PROJECT}.wiki/{path}"

    change = add

    def rename(self, path: str, new_path: str) -> str:
        self.project.write_wiki(rename={path: new_path})
        return f"{PROJECT}.wiki/{new_path}"

    def delete(self, path: str) -> str:
        self.project.write_wiki(delete=[path])
        return f"{PROJECT}.wiki/{path}"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitLabPeer]:
    """A server with one user's token, which is in the environment."""
    monkeypatch.setenv(VARIABLE, TOKEN)
    with GitLabPeer(tmp_path / "gitlab") as running:
        running.add_token(TOKEN)
        yield running


def make_with(server: GitLabPeer, **fixed: Any) -> Callable[..., GitLabSource]:
    """What builds the source, from the settings that the contract asks for."""

    def make(
        *, acl: AclRules = EVERYBODY, shard: Shard | None = None, **settings: Any
    ) -> GitLabSource:
        rules = tuple(AclRuleSettings(paths=rule.paths, tags=rule.tags) for rule in acl.rules)
        access = AclSettings(default=acl.default, rules=rules)
        context = SourceContext(shard=shard)
        return source_of(server, context, acl=access, projects=(PROJECT,), **fixed, **settings)

    return make


class TestRepository(SourceContract):
    """Files of a repository. Prefixes begin with a project here: ``test_gitlab_rules`` has them."""

    renames_without_reading = True
    governs_paths = False

    @pytest.fixture
    def peer(self, server: GitLabPeer) -> RepositoryPeer:
        return RepositoryPeer(server)

    @pytest.fixture
    def make_source(self, peer: RepositoryPeer) -> Callable[..., GitLabSource]:
        return make_with(peer.server)


class TestWiki(SourceContract):
    """Pages of a wiki."""

    renames_without_reading = True
    governs_paths = False

    @pytest.fixture
    def peer(self, server: GitLabPeer) -> WikiPeer:
        return WikiPeer(server)

    @pytest.fixture
    def make_source(self, peer: RepositoryPeer) -> Callable[..., GitLabSource]:
        return make_with(peer.server, repository=False, wiki=True)

"""The tests' GitLab, as python-gitlab sees it: an independent client agrees with the connector."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import gitlab
import pytest

from rag_assets_tests.peers.gitlab import GitLabPeer
from rag_assets_tests.sources.gitlab_listing import TOKEN, VARIABLE, source_of


@pytest.fixture
def peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitLabPeer]:
    """A group with a subgroup, a paged tree, wikis, a private project of somebody else."""
    monkeypatch.setenv(VARIABLE, TOKEN)
    with GitLabPeer(tmp_path / "gitlab") as running:
        running.add_token(TOKEN)
        one = running.add_project(
            "team/a", {f"d{n % 7}/Été {n}.md": f"# Page {n}\n" for n in range(130)}
        )
        one.commit({"x.py": "1\n"}, symlinks={"link.md": "x.py"})
        one.write_wiki({"home.md": "# Bienvenue\n", "guides/Mise-en-route.md": "À lire\n"})
        running.add_project("team/sub/b", {"README.md": "# B\n"}, visibility="internal")
        running.add_project("team/old", {"o.md": "# O\n"}, archived=True)
        running.add_project("team/hidden", {"h.md": "# H\n"}, members=set())
        for n in range(25):
            running.add_project(f"team/empty{n}")
        yield running


def test_python_gitlab_sees_what_the_connector_sees(peer: GitLabPeer) -> None:
    """Projects, trees by both kinds of pages, contents by blob id, and wiki pages."""
    client = gitlab.Gitlab(peer.url, private_token=TOKEN, retry_transient_errors=False)
    seen: dict[str, bytes] = {}
    others = 0
    group = client.groups.get("team")
    for listed in group.projects.list(include_subgroups=True, archived=False, get_all=True):
        project = client.projects.get(listed.path_with_namespace)
        assert project.id == listed.id
        if not project.empty_repo:
            keyset = project.repository_tree(
                recursive=True, pagination="keyset", per_page=50, get_all=True
            )
            numbered = project.repository_tree(recursive=True, per_page=30, get_all=True)
            assert keyset == numbered
            for item in keyset:
                if item["type"] != "blob":
                    continue
                if item["mode"] == "120000" or not item["path"].endswith(".md"):
                    others += not item["path"].endswith(".md")
                    continue
                content = project.repository_raw_blob(item["id"])
                seen[f"{project.path_with_namespace}/{item['path']}"] = content
        for page in project.wikis.list(with_content=1, get_all=True):
            assert project.wikis.get(page.slug).content == page.content
            seen[f"{project.path_with_namespace}.wiki/{page.slug}.md"] = page.content.encode()
    listing = source_of(peer, wiki=True).list()
    assert {file.path: file.content for file in listing.files} == seen
    assert listing.other_files == others
    assert len(seen) == 133


def test_python_gitlab_is_refused_as_the_connector_is(peer: GitLabPeer) -> None:
    """The peer hides what a token may not see, and says so as GitLab does."""
    client = gitlab.Gitlab(peer.url, private_token=TOKEN)
    with pytest.raises(gitlab.exceptions.GitlabGetError, match="404 Project Not Found"):
        client.projects.get("team/hidden")
    with pytest.raises(gitlab.exceptions.GitlabAuthenticationError, match="401"):
        gitlab.Gitlab(peer.url, private_token="wrong").projects.get("team/a")
    guest = gitlab.Gitlab(peer.url)
    assert guest.groups.get("team").projects.list(include_subgroups=True, get_all=True) == []
    assert os.environ[VARIABLE] == TOKEN

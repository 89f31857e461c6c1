"""What is kept out of a GitLab's listing, by which rule, and without being read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_assets.errors import ConfigurationError
from rag_assets.sources.base import SourceContext
from rag_assets_tests.peers.gitlab import GitLabPeer
from rag_assets_tests.sources.gitlab_listing import (
    TOKEN,
    VARIABLE,
    Follower,
    paths,
    reasons,
    settings_of,
    source_of,
)

POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)


@pytest.fixture
def peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitLabPeer]:
    """A server with one user's token, which is in the environment."""
    monkeypatch.setenv(VARIABLE, TOKEN)
    with GitLabPeer(tmp_path / "gitlab") as running:
        running.add_token(TOKEN)
        yield running


def test_hard_exclusions_are_never_read(peer: GitLabPeer) -> None:
    """Scratch files, legacy folders and Passbolt, as names of files, folders, projects, groups."""
    peer.add_project(
        "team/a",
        {
            "ok.md": "# Ok\n",
            "d/Scratch.MD": "CANARY",
            "LEGACY/x.md": "CANARY",
            "passbolt/export.md": "CANARY",
            "passbolt.md": "CANARY",
        },
    )
    for path in ("team/passbolt", "team/Passbolt/docs", "team/legacy/old"):
        peer.add_project(path, {"x.md": "CANARY"}).write_wiki({"home.md": "CANARY"})
    listing = source_of(peer, wiki=True).list()
    assert paths(listing) == ["team/a/ok.md"]
    assert set(reasons(listing).values()) == {"hard_exclusion"}
    assert {"team/passbolt/", "team/Passbolt/docs/", "team/legacy/old/"} <= set(reasons(listing))
    assert peer.count() == {
        "group_projects": 1, "commit": 1, "tree": 1, "blob": 1, "wikis": 1
    }  # fmt: skip
    assert "CANARY" not in repr(listing) + str(listing.look_state)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"projects": ("team/passbolt",)}, "never indexed"),
        ({"groups": ("Passbolt",)}, "never indexed"),
        ({"projects": ("https://gitlab.com/team/a",)}, "full path"),
        ({"groups": ("/team/",)}, "full path"),
        ({"groups": ()}, "name projects or groups"),
        ({"ref": ""}, "at least 1 character"),
        ({"repository": False}, "nothing to index"),
        ({"visibility": {"secret": ["public"]}}, "visibility"),
    ],
)
def test_impossible_settings_are_refused(
    peer: GitLabPeer, settings: dict[str, Any], said: str
) -> None:
    """Before anything is asked of the server."""
    with pytest.raises(ValueError, match=said):
        settings_of(peer, **settings)


def test_passbolt_wiki_page_is_kept_out(peer: GitLabPeer) -> None:
    """A wiki's listing carries contents; what a rule keeps out stays out all the same."""
    project = peer.add_project("team/a")
    project.write_wiki({"passbolt/keys.md": "CANARY", "home.md": "# Home\n"})
    listing = source_of(peer, wiki=True).list()
    assert paths(listing) == ["team/a.wiki/home.md"]
    assert reasons(listing) == {"team/a.wiki/passbolt/keys.md": "hard_exclusion"}
    assert "CANARY" not in str(listing)


def test_excluded_projects_and_wikis_are_not_asked_for(peer: GitLabPeer) -> None:
    """A prefix that holds a whole project saves its requests; the row tells where it stands."""
    for path in ("team/a", "team/b", "team/sub/c"):
        peer.add_project(path, {"x.md": "# X\n"}).write_wiki({"home.md": "# Home\n"})
    context = SourceContext(config_locations={"team/sub": ("rag_assets.yaml", 12)})
    excluded = ("team/sub", "team/b.wiki", "team/a/x.md")
    listing = source_of(peer, context, wiki=True, excluded_paths=excluded).list()
    assert paths(listing) == ["team/a.wiki/home.md", "team/b/x.md"]
    assert reasons(listing) == dict.fromkeys(
        ("team/a/x.md", "team/b.wiki/", "team/sub/c/", "team/sub/c.wiki/"), "excluded_paths"
    )
    row = next(row for row in listing.left_out if row.path == "team/sub/c/")
    assert (row.rule_file, row.rule_line) == ("rag_assets.yaml", 12)
    assert peer.count() == {
        "group_projects": 1, "commit": 2, "tree": 2, "blob": 1, "wikis": 1
    }  # fmt: skip


def test_allow_list_reaches_into_a_project(peer: GitLabPeer) -> None:
    """Only what lies below an included prefix is listed, and other projects are not asked for."""
    peer.add_project("team/a", {"docs/x.md": "# X\n", "y.md": "# Y\n"})
    peer.add_project("team/b", {"z.md": "# Z\n"})
    listing = source_of(peer, included_paths=("team/a/docs",)).list()
    assert paths(listing) == ["team/a/docs/x.md"]
    assert reasons(listing) == {"team/a/y.md": "not_included", "team/b/": "not_included"}
    assert peer.count()["commit"] == 1


def test_ignore_file_of_each_project_applies_to_it_alone(peer: GitLabPeer) -> None:
    """Patterns of gitignore, from the root of the project; the row names file and line."""
    one = peer.add_project(
        "team/a",
        {
            ".aiignore": "# brouillons\ndrafts/\n*.tmp.md\n!keep.tmp.md\n",
            "drafts/x.md": "# X\n",
            "a.tmp.md": "# T\n",
            "keep.tmp.md": "# K\n",
            "SCRATCH.md": "# S\n",
        },
    )
    one.write_wiki({"drafts/page.md": "# Page\n"})
    peer.add_project("team/b", {"drafts/x.md": "# X\n"})
    follower = Follower(peer, wiki=True)
    listing = follower.step()
    assert paths(listing) == [
        "team/a.wiki/drafts/page.md", "team/a/keep.tmp.md", "team/b/drafts/x.md"
    ]  # fmt: skip
    rows = {row.path: (row.reason, row.rule, row.rule_file, row.rule_line)
            for row in listing.left_out}  # fmt: skip
    file = "team/a/.aiignore"
    assert rows == {
        "team/a/drafts/x.md": ("aiignore", "drafts/", file, 2),
        "team/a/a.tmp.md": ("aiignore", "*.tmp.md", file, 3),
        "team/a/SCRATCH.md": ("hard_exclusion", "SCRATCH.md", None, None),
    }
    follower.step()
    assert follower.asked["blob"] == 0
    one.commit({".aiignore": "keep.tmp.md\n"})
    assert "team/a/drafts/x.md" in paths(follower.step())
    assert "team/a/keep.tmp.md" in follower.changes.modified
    one.commit({"new.md": "# New\n"})
    follower.step()
    assert follower.asked["blob"] == 1  # the ignore file is not read again
    one.commit(delete=[".aiignore"])
    assert "team/a/keep.tmp.md" in paths(follower.step())


@pytest.mark.parametrize(
    ("files", "symlinks", "said"),
    [
        ({".aiignore": b"ok\n\xe9t\xe9\n"}, {}, r"\.aiignore:2 byte 0xe9 is not UTF-8"),
        ({".aiignore": "a/../b\n"}, {}, r"\.aiignore:1 'a/../b'"),
        ({".aiignore": "x" * 1_000_001}, {}, "larger than 1,000,000 bytes"),
        ({}, {".aiignore": "README.md"}, "no regular file"),
    ],
)
def test_unusable_ignore_file_stops_the_listing(
    peer: GitLabPeer, files: dict[str, str | bytes], symlinks: dict[str, str], said: str
) -> None:
    """What it meant to exclude is not known, so nothing is published."""
    project = peer.add_project("team/a", {"README.md": "# A\n"})
    project.commit(files, symlinks=symlinks)
    with pytest.raises(ConfigurationError, match=said) as caught:
        source_of(peer).list()
    assert "source git: team/a/.aiignore" in str(caught.value)


def test_links_and_submodules_are_no_documents(peer: GitLabPeer) -> None:
    """Only regular files are read."""
    project = peer.add_project("team/a", {"real.md": "# Real\n"})
    project.commit(symlinks={"link.md": "/etc/passwd", "dir": "d"}, submodules=["module.md", "lib"])
    listing = source_of(peer).list()
    assert paths(listing) == ["team/a/real.md"]
    assert reasons(listing) == dict.fromkeys(
        ("team/a/link.md", "team/a/module.md"), "not_a_regular_file"
    )
    assert listing.other_files == 2


def test_what_turned_out_to_be_no_document_is_not_read_again(peer: GitLabPeer) -> None:
    """Git LFS pointers and files that are too large cost one request, once."""
    project = peer.add_project(
        "team/a", {"lfs.md": POINTER, "big.md": "x" * 5_000, "ok.md": "# Ok\n"}
    )
    follower = Follower(peer, max_file_bytes=2_000)
    listing = follower.step()
    assert paths(listing) == ["team/a/ok.md"]
    assert reasons(listing) == {"team/a/big.md": "too_large", "team/a/lfs.md": "not_text"}
    follower.step()
    assert follower.asked == {"group_projects": 1, "commit": 1}
    project.commit({"lfs.md": "# Text\n"}, rename={"big.md": "bigger.md"})
    listing = follower.step()
    assert follower.asked["blob"] == 1
    assert paths(listing) == ["team/a/lfs.md", "team/a/ok.md"]
    assert reasons(listing) == {"team/a/bigger.md": "too_large"}


def test_names_that_cannot_be_cited_are_quarantined(peer: GitLabPeer) -> None:
    """Line breaks, text direction controls and endless paths; all else is fine in a name."""
    peer.add_project(
        "team/a",
        {
            "a\nb.md": "# 1\n",
            "x\u202egpj.md": "# 2\n",
            "/".join(["d" * 200] * 6) + ".md": "# 3\n",
            "-rf.md": "# 4\n",
            "..md": "# 5\n",
            "50% #1?.md": "# 6\n",
            "Œuvre à l'été.md": "# 7\n",
        },
    )
    listing = source_of(peer).list()
    assert sorted(reasons(listing).values()) == ["path_too_long", "unsafe_name", "unsafe_name"]
    assert len(listing.files) == 4
    urls = {file.url for file in listing.files}
    assert "https://gitlab.example.org/team/a/-/blob/main/50%25%20%231%3F.md" in urls


def test_two_wiki_files_with_one_slug_are_one_page(peer: GitLabPeer) -> None:
    """GitLab shows the first; the other is told as its alias, at each listing."""
    project = peer.add_project("team/a")
    project.write_wiki({"home.markdown": "# One\n", "home.md": "# Two\n"})
    follower = Follower(peer, wiki=True)
    for _ in range(2):
        listing = follower.step()
        assert paths(listing) == ["team/a.wiki/home.md"]
        assert reasons(listing) == {"team/a.wiki/home.md~2": "alias"}


def test_explanation_names_the_rule(peer: GitLabPeer) -> None:
    """Why a path is not indexed, with its place; None for a document."""
    peer.add_project("team/a", {".aiignore": "drafts/\n", "drafts/x.md": "# X\n", "y.md": "# Y\n"})
    source = source_of(peer, excluded_paths=("team/b",))
    row = source.explain("team/a/drafts/x.md")
    assert row is not None
    assert (row.reason, row.rule_file, row.rule_line) == ("aiignore", "team/a/.aiignore", 1)
    assert source.explain("team/a/y.md") is None
    peer.count()
    row = source.explain("team/b/z.md")
    assert row is not None
    assert row.reason == "excluded_paths"
    assert not peer.count()

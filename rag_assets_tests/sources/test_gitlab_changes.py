"""Every kind of change in a GitLab: the listing is exact, and asks only for what changed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_assets.errors import SourceUnavailable
from rag_assets.models import Changes
from rag_assets.sources.base import SourceContext
from rag_assets.sources.journal import Journal
from rag_assets.sources.shards import Shard
from rag_assets_tests.peers.gitlab import GitLabPeer, Project, blob_url
from rag_assets_tests.sources.gitlab_listing import (
    TOKEN,
    VARIABLE,
    Follower,
    essence,
    paths,
    reasons,
    source_of,
)

UNCHANGED = {"group_projects": 1, "commit": 1}


@pytest.fixture
def peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitLabPeer]:
    """A server with one user's token, which is in the environment."""
    monkeypatch.setenv(VARIABLE, TOKEN)
    with GitLabPeer(tmp_path / "gitlab") as running:
        running.add_token(TOKEN)
        yield running


@pytest.fixture
def handbook(peer: GitLabPeer) -> Project:
    """A project with three documents and other files."""
    return peer.add_project(
        "team/docs/handbook",
        {
            "README.md": "# Accueil\n\nBonjour à tous.\n",
            "guides/été.md": "# L'été\n\nLes congés.\n",
            "guides/setup.MARKDOWN": "# Setup\n",
            "tool.py": "print(1)\n",
            "logo.png": b"\x89PNG\0",
        },
    )


def test_first_listing_has_every_document_with_its_address(
    peer: GitLabPeer, handbook: Project
) -> None:
    """Path, URL, content, date and version come from the project and its git objects."""
    listing = source_of(peer).list()
    assert paths(listing) == [
        "team/docs/handbook/README.md",
        "team/docs/handbook/guides/setup.MARKDOWN",
        "team/docs/handbook/guides/été.md",
    ]
    last = listing.files[-1]
    assert last.content == "# L'été\n\nLes congés.\n".encode()
    assert last.url == blob_url(handbook, "main", "guides/été.md")
    assert last.url.endswith("/guides/%C3%A9t%C3%A9.md")
    assert last.modified_at == "2026-01-01T00:00:00Z"
    assert last.version.startswith("blob:")
    assert listing.other_files == 2
    assert listing.read == 3
    assert peer.count() == {"group_projects": 1, "commit": 1, "tree": 1, "blob": 3}


def test_unchanged_project_costs_one_request(peer: GitLabPeer, handbook: Project) -> None:
    """Neither tree nor contents are asked for again, by the listing or by the look."""
    follower = Follower(peer)
    follower.step()
    follower.step()
    assert follower.asked == follower.looked == UNCHANGED
    assert follower.changes == Changes()


def test_unchanged_ten_thousand_files_cost_two_requests(peer: GitLabPeer) -> None:
    """However many files there are, an unchanged head commit says all."""
    files = {f"d{n % 99}/page {n}.md": f"# Page {n % 500}\n" for n in range(10_000)}
    big = peer.add_project("team/big", files)
    first = source_of(peer)
    listing = first.list()
    assert len(listing.files) == 10_000
    pages = -(-(10_000 + 99) // 100)
    # Of copies only one is read.
    assert peer.count() == {**UNCHANGED, "tree": pages, "blob": 500}
    known = {file.path: file for file in listing.files}
    context = SourceContext(last_look=listing.look_state)
    again = source_of(peer, context).list(known)
    assert essence(again) == essence(listing)
    assert peer.count() == UNCHANGED
    assert not source_of(peer).look(listing.look_state)
    assert peer.count() == UNCHANGED
    big.commit({"d1/page 1.md": "# Changed\n"})
    changed = source_of(peer, context).list(known)
    assert changed.read == 1
    assert peer.count() == {**UNCHANGED, "tree": pages, "blob": 1}


def test_added_changed_and_deleted_files(peer: GitLabPeer, handbook: Project) -> None:
    """Each is found, and only new contents are read."""
    follower = Follower(peer)
    follower.step()
    handbook.commit(
        {"new.md": "# New\n", "README.md": "# Accueil, bis\n"}, delete=["guides/été.md"]
    )
    listing = follower.step()
    root = "team/docs/handbook"
    assert follower.changes == Changes(
        (f"{root}/new.md",), (f"{root}/README.md",), (f"{root}/guides/été.md",)
    )
    assert follower.looked == {**UNCHANGED, "tree": 1}
    assert follower.asked == {**UNCHANGED, "tree": 1, "blob": 2}
    by_path = {file.path: file for file in listing.files}
    assert by_path[f"{root}/new.md"].modified_at == "2026-01-01T01:00:00Z"
    assert by_path[f"{root}/guides/setup.MARKDOWN"].modified_at == "2026-01-01T00:00:00Z"


def test_renamed_moved_and_copied_files_are_not_read(peer: GitLabPeer, handbook: Project) -> None:
    """The same content under another path is carried over with its new address."""
    follower = Follower(peer)
    follower.step()
    handbook.commit(
        {"copie.md": "# Accueil\n\nBonjour à tous.\n"}, rename={"guides/été.md": "archives/été.md"}
    )
    listing = follower.step()
    assert follower.asked == {**UNCHANGED, "tree": 1}
    assert listing.read == 0
    moved = next(f for f in listing.files if f.path.endswith("archives/été.md"))
    assert moved.url == blob_url(handbook, "main", "archives/été.md")


def test_renamed_project_moves_its_documents(peer: GitLabPeer, handbook: Project) -> None:
    """Paths and URLs follow the project's full path; contents are carried over."""
    follower = Follower(peer)
    follower.step()
    handbook.rename("team/people/manual")
    listing = follower.step()
    assert paths(listing)[0] == "team/people/manual/README.md"
    assert listing.files[0].url == blob_url(handbook, "main", "README.md")
    assert follower.asked == {**UNCHANGED, "tree": 1}


def test_project_named_by_its_old_path_is_found(peer: GitLabPeer, handbook: Project) -> None:
    """GitLab redirects the old path of a renamed project, and its number stays."""
    handbook.rename("team/manual")
    by_name = source_of(peer, projects=("team/docs/handbook",)).list()
    by_number = source_of(peer, projects=(str(handbook.id),)).list()
    assert essence(by_name) == essence(by_number)
    assert paths(by_name)[0] == "team/manual/README.md"


def test_rewritten_history_is_followed(peer: GitLabPeer, handbook: Project) -> None:
    """After a forced push the branch's new commit decides."""
    follower = Follower(peer)
    follower.step()
    handbook.repository.git("update-ref", "-d", "refs/heads/main")
    handbook.commit({"only.md": "# Only\n"})
    assert paths(follower.step()) == ["team/docs/handbook/only.md"]


def test_emptied_branch_and_empty_project_have_no_documents(
    peer: GitLabPeer, handbook: Project
) -> None:
    """Neither is an error: nothing is there, and GitLab says so."""
    follower = Follower(peer)
    peer.add_project("team/empty")
    follower.step()
    assert follower.asked == {"group_projects": 1, "commit": 1, "tree": 1, "blob": 3}
    handbook.commit(delete=["README.md", "guides/été.md", "guides/setup.MARKDOWN"])
    assert paths(follower.step()) == []


def test_projects_that_appear_and_go(peer: GitLabPeer, handbook: Project) -> None:
    """New, deleted, marked for deletion, archived: the group's listing decides."""
    follower = Follower(peer)
    follower.step()
    other = peer.add_project("team/a/b/other", {"o.md": "# O\n"})
    assert "team/a/b/other/o.md" in paths(follower.step())
    other.marked_for_deletion_on = "2026-02-01"
    assert "team/a/b/other/o.md" not in paths(follower.step())
    other.marked_for_deletion_on = None
    assert "team/a/b/other/o.md" in paths(follower.step())
    other.archived = True
    assert "team/a/b/other/o.md" not in paths(follower.step())
    assert "team/a/b/other/o.md" in paths(source_of(peer, archived=True).list())
    other.archived = False
    follower.step()
    peer.remove(other)
    assert "team/a/b/other/o.md" not in paths(follower.step())


def test_configured_project_that_is_gone_removes_nothing(
    peer: GitLabPeer, handbook: Project
) -> None:
    """It may be a lost right or a new name; the listing fails and says what to do."""
    source = source_of(peer, projects=("team/docs/handbook",))
    state = source.list().look_state
    handbook.members.clear()
    for attempt in (source.list, lambda: source.look(state)):
        with pytest.raises(SourceUnavailable, match="team/docs/handbook was renamed or is gone"):
            attempt()


def test_revoked_and_granted_rights(peer: GitLabPeer, handbook: Project) -> None:
    """What the token's user no longer sees leaves the listing, and comes back with the right."""
    follower = Follower(peer)
    second = peer.add_project("team/second", {"s.md": "# S\n"})
    follower.step()
    second.members.clear()
    assert not [path for path in paths(follower.step()) if "second" in path]
    second.guests.add(TOKEN)
    listing = follower.step()
    assert reasons(listing) == {"team/second/": "unreadable"}
    second.guests.clear()
    second.members.add(TOKEN)
    assert "team/second/s.md" in paths(follower.step())


def test_configured_project_whose_code_is_closed_removes_nothing(
    peer: GitLabPeer, handbook: Project
) -> None:
    """A guest sees the project and not its files."""
    handbook.members.clear()
    handbook.guests.add(TOKEN)
    with pytest.raises(SourceUnavailable, match="role Reporter in team/docs/handbook"):
        source_of(peer, projects=("team/docs/handbook",)).list()
    with pytest.raises(SourceUnavailable, match="does not let this token read any"):
        source_of(peer).list()


def test_visibility_becomes_tags(peer: GitLabPeer, handbook: Project) -> None:
    """A project made private is seen at once, at no more than the usual requests."""
    handbook.visibility = "public"
    follower = Follower(peer, visibility={"public": ["public"], "internal": ["staff"]})
    assert {file.acl_tags for file in follower.step().files} == {("public",)}
    handbook.visibility = "internal"
    assert {file.acl_tags for file in follower.step().files} == {("staff",)}
    assert len(follower.changes.modified) == 3
    assert follower.asked == UNCHANGED
    handbook.visibility = "private"
    assert {file.acl_tags for file in follower.step().files} == {()}


def test_members_only_code_of_a_public_project_is_private(
    peer: GitLabPeer, handbook: Project
) -> None:
    """What counts is who may read the files, not who may see the project."""
    handbook.visibility, handbook.repository_access_level = "public", "private"
    handbook.write_wiki({"home.md": "# Home\n"})
    tags = {"public": ["public"], "private": ["team"]}
    listing = source_of(peer, visibility=tags, wiki=True).list()
    found = {file.path: file.acl_tags for file in listing.files}
    assert found["team/docs/handbook/README.md"] == ("team",)
    assert found["team/docs/handbook.wiki/home.md"] == ("public",)


def test_access_rules_narrow_the_visibility(peer: GitLabPeer, handbook: Project) -> None:
    """A rule for a path and the project's visibility must both grant a tag."""
    handbook.visibility = "internal"
    rules = {"rules": [{"paths": ["team/docs/handbook/guides"], "tags": ["hr", "staff"]}]}
    listing = source_of(peer, visibility={"internal": ["staff", "it"]}, acl=rules).list()
    found = {file.path.removeprefix("team/docs/handbook/"): file.acl_tags for file in listing.files}
    assert found["README.md"] == ("it", "staff")
    assert found["guides/été.md"] == ("staff",)


def test_without_a_token_only_what_is_public_is_seen(peer: GitLabPeer, handbook: Project) -> None:
    """Group, project and wiki answer with fewer fields then, which is enough."""
    handbook.visibility = "public"
    handbook.write_wiki({"home.md": "# Home\n"})
    peer.add_project("team/secret", {"s.md": "# S\n"})
    tags = {"public": ["public"]}
    for where in ({"groups": ("team",)}, {"projects": ("team/docs/handbook",)}):
        listing = source_of(peer, token=None, wiki=True, visibility=tags, **where).list()
        assert len(listing.files) == 4
        assert {file.acl_tags for file in listing.files} == {("public",)}
    handbook.wiki_access_level = "disabled"
    listing = source_of(peer, token=None, wiki=True, projects=("team/docs/handbook",)).list()
    assert len(listing.files) == 3
    empty = peer.add_project("team/empty", visibility="public")
    assert source_of(peer, token=None, projects=(empty.path,)).list().files == ()


def test_ref_of_a_branch_with_a_slash_and_of_a_commit(peer: GitLabPeer, handbook: Project) -> None:
    """Any ref works; in a group, projects without that branch have nothing to give."""
    old = handbook.repository.resolve("main")
    handbook.commit({"next.md": "# Next\n"}, branch="release/2.0")
    peer.add_project("team/other", {"o.md": "# O\n"})
    listing = source_of(peer, ref="release/2.0").list()
    assert paths(listing) == ["team/docs/handbook/next.md"]
    assert listing.files[0].url == blob_url(handbook, "release/2.0", "next.md")
    handbook.commit({"later.md": "# Later\n"})
    pinned = source_of(peer, projects=("team/docs/handbook",), ref=old).list()
    assert len(pinned.files) == 3
    with pytest.raises(SourceUnavailable, match="no branch, tag or commit 'absent'"):
        source_of(peer, projects=("team/docs/handbook",), ref="absent").list()


def test_wiki_pages_come_with_the_listing(peer: GitLabPeer, handbook: Project) -> None:
    """Contents are in the listing; an unchanged wiki is answered without a body."""
    follower = Follower(peer, wiki=True, repository=False)
    handbook.write_wiki(
        {"home.md": "# Bienvenue\n", "guides/Déploiement-continu.md": "À lire.\n", "a.org": "* A\n"}
    )
    listing = follower.step()
    assert follower.asked == {"group_projects": 1, "wikis": 1}
    found = {file.path: file for file in listing.files}
    page = found["team/docs/handbook.wiki/guides/Déploiement-continu.md"]
    assert page.title == "guides > Déploiement continu"
    assert page.url == (
        "https://gitlab.example.org/team/docs/handbook/-/wikis/guides/D%C3%A9ploiement-continu"
    )
    assert page.content == "À lire.\n".encode()
    assert reasons(listing) == {"team/docs/handbook.wiki/a.org": "not_markdown"}
    follower.step()
    assert follower.asked == {"group_projects": 1, "wikis": 1, "not_modified": 1}
    assert follower.changes == Changes()
    handbook.write_wiki(
        {"neu.md": "Neu\n", "home.md": "# Welcome\n"},
        rename={"guides/Déploiement-continu.md": "Déploiement.md"},
    )
    listing = follower.step()
    assert paths(listing) == [
        f"team/docs/handbook.wiki/{name}.md" for name in ("Déploiement", "home", "neu")
    ]
    assert follower.asked == {"group_projects": 1, "wikis": 1}
    handbook.wiki_access_level = "disabled"
    assert paths(follower.step()) == []


def test_unchanged_wiki_whose_contents_were_lost_is_read_page_by_page(
    peer: GitLabPeer, handbook: Project
) -> None:
    """When the listing is answered without a body, what is not known is asked for by slug."""
    handbook.write_wiki({"home.md": "# Home\n", "a/b.md": "# B\n"})
    first = source_of(peer, wiki=True, repository=False).list()
    peer.count()
    context = SourceContext(last_look=first.look_state)
    kept = {file.path: file for file in first.files if file.path.endswith("home.md")}
    again = source_of(peer, context, wiki=True, repository=False).list(kept)
    assert essence(again) == essence(first)
    assert peer.count()["wiki_page"] == 1


def test_wiki_and_project_never_share_a_path(peer: GitLabPeer, handbook: Project) -> None:
    """With one configured project the prefix stays, so that a second one changes nothing."""
    handbook.write_wiki({"README.md": "# Wiki\n"})
    one = source_of(peer, projects=("team/docs/handbook",), wiki=True).list()
    peer.add_project("team/other", {"README.md": "# O\n"})
    two = source_of(peer, projects=("team/docs/handbook", "team/other"), wiki=True).list()
    assert set(paths(one)) < set(paths(two))
    assert len(two.files) == 5


def test_project_named_twice_is_listed_once(peer: GitLabPeer, handbook: Project) -> None:
    """By path, by number and through its group it is the same project."""
    where = {"projects": ("team/docs/handbook", str(handbook.id)), "groups": ("team", "team/docs")}
    assert len(source_of(peer, **where).list().files) == 3


def test_shards_share_the_documents_out(peer: GitLabPeer, handbook: Project) -> None:
    """Together the shards have each document and each other file once, and follow a rename."""
    handbook.commit({f"n{n}.md": f"# {n}\n" for n in range(40)})
    handbook.write_wiki({f"w{n}.md": f"# {n}\n" for n in range(20)})
    whole = source_of(peer, wiki=True).list()
    parts = []
    for index in range(3):
        context = SourceContext(shard=Shard(index, 3))
        part = source_of(peer, context, wiki=True).list()
        following = SourceContext(shard=Shard(index, 3), last_look=part.look_state)
        known = {file.path: file for file in part.files}
        assert essence(source_of(peer, following, wiki=True).list(known)) == essence(part)
        parts.append((part, following, known))
    together = {k: v for part, _, _ in parts for k, v in essence(part).items()}
    assert together == essence(whole)
    assert sum(len(part.files) for part, _, _ in parts) == len(whole.files)
    assert sum(part.other_files for part, _, _ in parts) == whole.other_files
    handbook.rename("team/moved")
    renamed = essence(source_of(peer, wiki=True).list())
    after = [source_of(peer, context, wiki=True).list(known) for _, context, known in parts]
    assert {k: v for part in after for k, v in essence(part).items()} == renamed


def test_interrupted_listing_goes_on_where_it_stopped(
    peer: GitLabPeer, handbook: Project, tmp_path: Path
) -> None:
    """Contents fetched before the server failed are not fetched again."""
    handbook.commit({f"n{n}.md": f"# {n}\n" for n in range(200)})

    def failing(kind: str, target: str) -> None:
        if peer.requests["blob"] > 120:
            peer.tokens.clear()

    peer.before_answer = failing

    def attempt() -> GitLabPeer:
        journal = Journal(tmp_path / "journal")
        source_of(peer, SourceContext(journal=journal), concurrency=1).list()
        return peer

    with pytest.raises(SourceUnavailable, match="401"):
        attempt()
    fetched = peer.count()["blob"]
    peer.before_answer = lambda kind, target: None
    peer.add_token(TOKEN)
    attempt()
    assert peer.count()["blob"] <= 203 - fetched + 64


def test_self_managed_server_below_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GitLab at https://host/gitlab is asked there, and its own addresses are cited."""
    monkeypatch.setenv(VARIABLE, TOKEN)
    with GitLabPeer(tmp_path / "gitlab", prefix="/gitlab") as peer:
        peer.add_token(TOKEN)
        peer.web_url = "https://host.example.org/gitlab"
        peer.add_project("team/a", {"a.md": "# A\n"})
        for n in range(120):
            peer.add_project(f"team/p{n}", archived=True)
        listing = source_of(peer, archived=True).list()
        assert listing.files[0].url == "https://host.example.org/gitlab/team/a/-/blob/main/a.md"
        assert peer.count()["group_projects"] == 2


def test_repository_with_sha256_object_ids(peer: GitLabPeer) -> None:
    """Contents are proven by the hash that the repository uses."""
    peer.add_project("team/modern", {"a.md": "# A\n"}, object_format="sha256")
    listing = source_of(peer).list()
    assert len(listing.files[0].version) == len("blob:") + 64


NAMES = st.sampled_from(["a.md", "b.md", "d/c.md", "d/é.md", "x.txt", "legacy/l.md", ".aiignore"])
TEXTS = st.sampled_from(["# Un\n", "# Deux\n", "*.tmp\nd/\n", "b.md\n"])
STEP = st.one_of(
    st.tuples(st.just("write"), NAMES, TEXTS),
    st.tuples(st.just("delete"), NAMES, TEXTS),
    st.tuples(st.just("rename project"), st.sampled_from(["team/p", "team/q", "team/s/p"]), TEXTS),
    st.tuples(st.just("wiki"), st.sampled_from(["home.md", "d/p.md", "o.org"]), TEXTS),
    st.tuples(st.just("visibility"), st.sampled_from(["public", "internal", "private"]), TEXTS),
    st.tuples(st.just("membership"), st.booleans(), TEXTS),
)


@given(steps=st.lists(STEP, min_size=1, max_size=5))
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_history_lists_as_if_listed_from_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, steps: list[tuple[str, object, str]]
) -> None:
    """Whatever happens between two listings, the second is exact (``Follower.step`` compares)."""
    monkeypatch.setenv(VARIABLE, TOKEN)
    with GitLabPeer(Path(tempfile.mkdtemp(dir=tmp_path))) as peer:
        peer.add_token(TOKEN)
        project = peer.add_project("team/p", {"a.md": "# Un\n"})
        peer.add_project("team/other", {"a.md": "# Un\n", "b.md": "# Deux\n"})
        follower = Follower(peer, wiki=True, visibility={"public": ["public"], "private": ["team"]})
        before = essence(follower.step())
        for step in steps:
            _apply(project, step)
            listing = essence(follower.step())
            assert bool(follower.changes) or listing == before
            before = listing


def _apply(project: Project, step: tuple[str, object, str]) -> None:
    kind, value, text = step
    present = project.repository.resolve("main")
    files = {item["path"] for item in project.repository.tree(present or "")}
    if kind == "write":
        project.commit({str(value): text})
    elif kind == "delete" and value in files:
        project.commit(delete=[str(value)])
    elif kind == "rename project":
        project.path = str(value)
    elif kind == "wiki":
        project.write_wiki({str(value): text})
    elif kind == "visibility":
        project.visibility = str(value)
    elif kind == "membership":
        project.members = {TOKEN} if value else set()

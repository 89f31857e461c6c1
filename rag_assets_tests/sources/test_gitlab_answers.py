"""What a GitLab, or what stands before it, may answer: a whole listing comes out, or an error."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from rag_assets.errors import ConfigurationError, IncompleteEnumeration, SourceUnavailable
from rag_assets.sources.gitlab import GitLabSource
from rag_assets.sources.gitlab.api import ROOT, GitLabApi, object_id
from rag_assets.sources.gitlab.pages import Repeated, pages
from rag_assets.sources.server_api import ServerApi
from rag_assets_tests.peers.gitlab import GitLabPeer, Project
from rag_assets_tests.sources.gitlab_listing import (
    FAST,
    TOKEN,
    VARIABLE,
    essence,
    paths,
    settings_of,
    source_of,
)

Alter = Callable[[str, Request, Response], Response]


@pytest.fixture
def peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitLabPeer]:
    """A server with one user's token, which is in the environment."""
    monkeypatch.setenv(VARIABLE, TOKEN)
    with GitLabPeer(tmp_path / "gitlab") as running:
        running.add_token(TOKEN)
        yield running


@pytest.fixture
def long(peer: GitLabPeer) -> Project:
    """A project whose tree takes three pages, the last of them full."""
    project = peer.add_project("team/long", {f"n{n:03}.md": f"# {n % 5}\n" for n in range(300)})
    project.write_wiki({"home.md": "# Home\n", "été.md": "# L'été\n"})
    return project


def only(kind: str, change: Callable[[Request, Response], Response]) -> Alter:
    """Another answer to requests of one kind."""
    return lambda asked, request, real: change(request, real) if asked == kind else real


def without(*headers: str) -> Callable[[Request, Response], Response]:
    """As a proxy that drops headers it does not know."""

    def change(request: Request, real: Response) -> Response:
        for header in headers:
            if header in real.headers:
                del real.headers[header]
        return real

    return change


def answering(content: str | bytes, status: int = 200) -> Callable[[Request, Response], Response]:
    """Always the same answer."""
    return lambda request, real: Response(content, status, None, "application/json")


# ---------------------------------------------------------------- pages


def test_pages_are_complete_though_a_proxy_drops_their_links(
    peer: GitLabPeer, long: Project
) -> None:
    """A full page without a word about the next one is not taken for the last."""
    peer.alter = only("tree", without("Link"))
    assert len(source_of(peer).list().files) == 300
    for n in range(120):
        peer.add_project(f"team/p{n}", {"x.md": "# X\n"} if n == 119 else None)
    peer.alter = only("group_projects", without("Link", "X-Next-Page", "X-Total", "X-Total-Pages"))
    assert "team/p119/x.md" in paths(source_of(peer).list())


def test_links_to_another_host_lead_to_the_next_page_of_this_one(
    peer: GitLabPeer, long: Project, tmp_path: Path
) -> None:
    """A GitLab behind a proxy names itself as it likes; nothing is ever sent there."""
    with GitLabPeer(tmp_path / "elsewhere") as elsewhere:

        def astray(request: Request, real: Response) -> Response:
            if "Link" in real.headers:
                real.headers["Link"] = real.headers["Link"].replace(peer.url, elsewhere.url)
            return real

        peer.alter = only("tree", astray)
        assert len(source_of(peer).list().files) == 300
        assert not elsewhere.targets
    assert peer.count()["tree"] == 4  # three full pages, and a look for a fourth


def test_keyset_that_comes_back_is_replaced_by_page_numbers(
    peer: GitLabPeer, long: Project
) -> None:
    """Servers of old lose their place between files of the same content."""

    def stuck(request: Request, real: Response) -> Response:
        if request.query_params.get("page_token"):
            return Response(json.dumps(peer_first_page), 200, dict(real.headers))
        return real

    head = long.repository.resolve("main")
    peer_first_page = list(long.repository.tree(head or ""))[:100]
    expected = essence(source_of(peer).list())
    peer.alter = only("tree", stuck)
    assert essence(source_of(peer).list()) == expected


def test_tree_without_an_end_is_refused(peer: GitLabPeer, long: Project) -> None:
    """The same page again, a page behind an empty one, a link that names no page, too much."""

    def next_link(query: str) -> Callable[[Request, Response], Response]:
        def change(request: Request, real: Response) -> Response:
            real.headers["Link"] = f'<{peer.url}{request.url.path}?{query}>; rel="next"'
            return real

        return change

    peer.alter = only("tree", next_link("page=1"))
    with pytest.raises(IncompleteEnumeration, match="does not end"):
        source_of(peer).list()
    peer.alter = only("tree", next_link("something=else"))
    with pytest.raises(IncompleteEnumeration, match="names no page"):
        source_of(peer).list()

    def empty(request: Request, real: Response) -> Response:
        return next_link(f"page={request.query_params.get('page', '1')}1")(
            request, Response("[]", 200, None, "application/json")
        )

    peer.alter = only("tree", empty)
    with pytest.raises(IncompleteEnumeration, match="after an empty one"):
        source_of(peer).list()
    peer.alter = lambda kind, request, real: real
    api = ServerApi("git", peer.url, headers={"PRIVATE-TOKEN": TOKEN}, limits=FAST)
    path = f"{ROOT}/projects/{long.id}/repository/tree"
    with pytest.raises(IncompleteEnumeration, match="more than 250 items"):
        list(pages(api, path, {"per_page": 100, "recursive": "true"}, most_items=250))


def test_page_that_leads_back_is_noticed_at_once(peer: GitLabPeer, long: Project) -> None:
    """No page is asked for twice."""

    def change(request: Request, real: Response) -> Response:
        real.headers["Link"] = f'<{peer.url}{request.url.path}?page=2>; rel="next"'
        return real

    peer.alter = only("tree", change)
    api = ServerApi("git", peer.url, headers={"PRIVATE-TOKEN": TOKEN}, limits=FAST)
    path = f"{ROOT}/projects/{long.id}/repository/tree"
    with pytest.raises(Repeated):
        list(pages(api, path, {"per_page": 10}, most_items=1_000))
    assert peer.count()["tree"] == 2


def test_push_while_the_tree_is_read_changes_nothing(peer: GitLabPeer, long: Project) -> None:
    """All pages are of the commit that the branch named first."""

    def push(kind: str, target: str) -> None:
        if kind == "tree" and peer.requests["tree"] == 2:
            long.commit({"n000.md": "# Other\n"}, delete=["n299.md", "n001.md"])

    expected = essence(source_of(peer).list())
    peer.count()
    peer.before_answer = push
    assert essence(source_of(peer).list()) == expected
    assert len(source_of(peer).list().files) == 298


def many_projects(peer: GitLabPeer) -> list[Project]:
    """A group that takes three pages."""
    return [peer.add_project(f"team/p{n}", visibility="internal") for n in range(250)]


def test_group_that_changes_while_it_is_listed_is_listed_again(peer: GitLabPeer) -> None:
    """A project that goes shifts the later pages, and one would be missed."""
    projects = many_projects(peer)
    projects[200].commit({"x.md": "# X\n"})

    def vanish(kind: str, target: str) -> None:
        if kind == "group_projects" and peer.requests[kind] == 2:
            peer.remove(projects[5])

    peer.before_answer = vanish
    assert paths(source_of(peer).list()) == ["team/p200/x.md"]
    assert peer.count()["group_projects"] == 6


def test_group_that_never_stands_still_is_refused(peer: GitLabPeer) -> None:
    """After three listings that are not whole, nothing is believed."""
    projects = iter(many_projects(peer))

    def vanish(kind: str, target: str) -> None:
        if kind == "group_projects" and "&page=2" in target:
            peer.remove(next(projects))

    peer.before_answer = vanish
    with pytest.raises(IncompleteEnumeration, match="three times in a row"):
        source_of(peer).list()


def test_group_without_totals_is_listed_until_two_listings_agree(peer: GitLabPeer) -> None:
    """GitLab names no total beyond 10,000 projects."""
    projects = many_projects(peer)
    peer.names_totals = False
    assert source_of(peer).list().files == ()
    assert peer.count()["group_projects"] == 6

    def vanish(kind: str, target: str) -> None:
        if kind == "group_projects" and peer.requests[kind] == 2:
            peer.remove(projects[5])

    peer.before_answer = vanish
    projects[100].commit({"x.md": "# X\n"})
    assert paths(source_of(peer).list()) == ["team/p100/x.md"]


# ---------------------------------------------------------------- contents


@pytest.mark.parametrize(
    "content",
    [
        "<!DOCTYPE html><title>Sign in</title>",
        "",
        "# 1",
        '{"message": "404 Blob Not Found"}',
        "version https://git-lfs.github.com/spec/v1\n",
    ],
)
def test_bytes_that_are_not_the_blob_are_refused(
    peer: GitLabPeer, long: Project, content: str
) -> None:
    """Each content is proven by git's own hash of it."""
    peer.alter = only("blob", answering(content))
    with pytest.raises(IncompleteEnumeration, match="are not this blob"):
        source_of(peer).list()


def test_object_id_is_the_one_of_git(peer: GitLabPeer) -> None:
    """Checked against git itself, for both hashes, empty content too."""
    for form, digits in (("sha1", 40), ("sha256", 64)):
        for content in (b"", b"# \xc3\x89t\xc3\xa9\r\n", bytes(range(256))):
            project = peer.add_project(
                f"team/{form}{len(content)}", {"x.bin": content}, object_format=form
            )
            head = project.repository.resolve("main")
            (item,) = project.repository.tree(head or "")
            assert object_id(content, digits) == item["id"]


@pytest.mark.parametrize("status", [403, 404, 410])
def test_blob_refused_after_it_was_listed_removes_nothing(
    peer: GitLabPeer, long: Project, status: int
) -> None:
    """Git has no rights inside a repository: something else is wrong."""
    peer.alter = only("blob", answering('{"message": "gone"}', status))
    with pytest.raises(IncompleteEnumeration, match=r"nothing was removed\. Run again"):
        source_of(peer).list()


def test_project_that_goes_in_the_middle_removes_nothing(peer: GitLabPeer, long: Project) -> None:
    """The next listing will not have it; this one is not whole."""

    def vanish(kind: str, target: str) -> None:
        if kind in ("blob", "tree", "commit") and peer.requests[kind] == 1:
            long.members.clear()

    for kinds in ({"commit"}, {"tree"}, {"blob"}):
        long.members.add(TOKEN)
        peer.count()
        peer.before_answer = lambda kind, target, kinds=kinds: (
            vanish(kind, target) if kind in kinds else None
        )
        with pytest.raises(IncompleteEnumeration, match="nothing was removed"):
            source_of(peer).list()


# ---------------------------------------------------------------- other answers

WRONG = {
    "login page": "<html><title>Connexion</title></html>",
    "cut": '[{"id": 1, "path',
    "nothing": "",
    "null": "null",
    "number": "1e999",
    "object": '{"message": "all is well"}',
    "empty items": "[{}]",
    "text items": '["a", "b"]',
    "nested": "[" * 50_000,
    "nan": '[{"id": NaN}]',
}


@pytest.mark.parametrize("kind", ["group_projects", "commit", "tree", "wikis", "project"])
@pytest.mark.parametrize("name", WRONG)
def test_answers_that_are_none_are_refused(
    peer: GitLabPeer, long: Project, kind: str, name: str
) -> None:
    """Whatever is not the documented shape ends the listing and names source and address."""
    peer.alter = only(kind, answering(WRONG[name]))
    where = {"projects": ("team/long",)} if kind == "project" else {"groups": ("team",)}
    with pytest.raises(IncompleteEnumeration, match=r"source git: GET http://127\.0\.0\.1"):
        source_of(peer, wiki=True, **where).list()


@pytest.mark.parametrize("kind", ["commit", "tree", "wikis"])
@pytest.mark.parametrize("status", [403, 404])
def test_what_was_listed_as_open_cannot_be_missing(
    peer: GitLabPeer, long: Project, kind: str, status: int
) -> None:
    """GitLab says in the project what may be read; another answer is a fault."""
    peer.alter = only(kind, answering('{"message": "404 Not Found"}', status))
    with pytest.raises(IncompleteEnumeration, match="nothing was removed"):
        source_of(peer, wiki=True).list()


def test_default_branch_without_a_commit_is_a_fault(peer: GitLabPeer, long: Project) -> None:
    """GitLab says that the repository is not empty."""
    peer.alter = only("commit", answering('{"message": "404 Commit Not Found"}', 404))
    with pytest.raises(IncompleteEnumeration, match="no commit on its default branch 'main'"):
        source_of(peer).list()


def test_another_project_than_the_one_asked_for_is_refused(peer: GitLabPeer, long: Project) -> None:
    """A cache that mixes answers up must not publish one project in place of another."""
    other = json.dumps({"id": 7, "path_with_namespace": "team/other", "default_branch": "main"})
    peer.alter = only("project", answering(other))
    with pytest.raises(IncompleteEnumeration, match="another project, 'team/other'"):
        source_of(peer, projects=("team/long",)).list()


def test_group_that_does_not_exist_is_named(peer: GitLabPeer) -> None:
    """The message says which key to correct."""
    with pytest.raises(SourceUnavailable, match="group absent was renamed or is gone"):
        source_of(peer, groups=("absent",)).list()


def test_throttled_requests_are_sent_again(peer: GitLabPeer, long: Project) -> None:
    """429 with Retry-After is a wish, not a failure."""
    peer.throttled = 2
    assert len(source_of(peer).list().files) == 300


def test_wiki_too_large_for_one_answer_is_read_page_by_page(
    peer: GitLabPeer, long: Project
) -> None:
    """Each page is then asked for by its slug, and the listing is the same."""
    long.write_wiki({f"d/p{n}.md": f"{n} " * 2_000 for n in range(30)})
    settings = settings_of(peer, wiki=True, repository=False)
    whole = GitLabSource(settings, limits=FAST).list()
    peer.count()
    narrow = replace(FAST, max_response_bytes=100_000)
    listing = GitLabSource(settings, limits=narrow).list()
    assert essence(listing) == essence(whole)
    assert peer.count() == {"group_projects": 1, "wikis": 2, "wiki_page": 64}


def test_wiki_that_is_divided_into_pages_is_read_whole(peer: GitLabPeer, long: Project) -> None:
    """No GitLab does so today; one that begins to must not lose pages."""

    def divided(request: Request, real: Response) -> Response:
        place = int(request.query_params.get("page", "1"))
        one = Response(json.dumps(json.loads(real.body)[place - 1 : place]), 200)
        if place < 2:
            one.headers["X-Next-Page"] = "2"
        return one

    expected = essence(source_of(peer, wiki=True).list())
    peer.alter = only("wikis", divided)
    assert essence(source_of(peer, wiki=True).list()) == expected


def test_web_address_that_is_none_is_replaced(peer: GitLabPeer, long: Project) -> None:
    """A citation never carries a scheme other than http(s)."""
    peer.web_url = "javascript:alert(1)//"
    listing = source_of(peer).list()
    assert all(f.url.startswith(f"{peer.url}/team/long/-/blob/main/") for f in listing.files)


# ---------------------------------------------------------------- secrets


def test_token_is_in_no_error_log_repr_or_state(
    peer: GitLabPeer, long: Project, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even when the server says it back."""
    caplog.set_level(logging.DEBUG)
    source = source_of(peer, wiki=True)
    listing = source.list()
    shown = [repr(source), repr(vars(source)), repr(listing), json.dumps(listing.look_state)]
    for status in (200, 401, 403, 404, 500, 418):
        peer.alter = lambda kind, request, real, status=status: Response(
            json.dumps({"message": f"token {TOKEN} is wrong"}), status, None, "application/json"
        )
        with pytest.raises((SourceUnavailable, IncompleteEnumeration)) as caught:
            source_of(peer).list()
        shown += [str(caught.value), repr(caught.value), str(caught.value.__cause__)]
    assert TOKEN not in "".join(shown) + caplog.text


def test_token_that_is_not_set_is_named_by_its_variable(
    peer: GitLabPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is asked without it."""
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(ConfigurationError, match=f"sources.git.token.*{VARIABLE}"):
        source_of(peer)


def test_refused_token_is_told(peer: GitLabPeer, long: Project) -> None:
    """401 for everything, also for what is public."""
    peer.tokens.clear()
    with pytest.raises(SourceUnavailable, match="make a new one"):
        source_of(peer).list()
    api = GitLabApi(ServerApi("git", peer.url, limits=FAST), anonymous=True)
    with pytest.raises(SourceUnavailable, match="was renamed or is gone"):
        api.project("team/long")

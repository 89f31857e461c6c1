"""A BookStack is indexed exactly, and costs requests only for what changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from rag_assets.errors import ConfigurationError, SourceError, SourceUnavailable
from rag_assets.fingerprints import sha256_hex
from rag_assets.http_client import HttpLimits
from rag_assets.models import SourceFile
from rag_assets.sources.base import Source, SourceContext
from rag_assets.sources.bookstack import BookStackSource
from rag_assets.sources.journal import Journal
from rag_assets.sources.shards import Shard
from rag_assets_tests.peers.bookstack import BookStack
from rag_assets_tests.sources.bookstack_wiki import (
    SECRET,
    VARIABLE,
    Handbook,
    Indexer,
    essence,
    set_token,
    settings_of,
)

LISTING = {"pages": 1, "chapters": 1, "books": 1}
"""The requests of a listing of a small wiki."""


@pytest.fixture
def wiki(monkeypatch: pytest.MonkeyPatch) -> Iterator[BookStack]:
    """A running BookStack; the environment is put back afterwards."""
    monkeypatch.setenv(VARIABLE, "")
    with BookStack() as server:
        yield server


@pytest.fixture
def book(wiki: BookStack) -> Handbook:
    """Its content."""
    return Handbook(wiki)


def test_pages_become_files_in_the_format_they_are_written_in(
    wiki: BookStack, book: Handbook
) -> None:
    """Markdown as authored, byte for byte; otherwise HTML; path, title and address of each."""
    listing = Indexer(wiki).read()
    by_path = {file.path: file for file in listing.files}
    vpn = by_path["reseau/acces/vpn-de-l-equipe.md"]
    assert vpn.content == "# VPN\r\n\r\nL'accès au cœur de réseau.\r\n".encode()
    assert vpn.media_type == "text/markdown"
    assert vpn.title == "Réseau > Accès > VPN de l'équipe"
    assert vpn.url == f"{wiki.address}/books/reseau/page/vpn-de-l-equipe"
    assert vpn.modified_at == book.vpn.updated_at.replace(".000000Z", "Z")
    assert vpn.acl_tags == ("public",)
    leave = by_path["people/leave.md"]
    assert (leave.content, leave.media_type) == (b"<h2 id='bkmrk-days'>Days</h2>", "text/html")
    assert leave.title == "People > Leave"
    assert len(by_path) == len(book.pages)
    assert isinstance(Indexer(wiki).source(), Source)


def test_drafts_and_templates_are_left_out_with_a_reason(wiki: BookStack, book: Handbook) -> None:
    """Drafts of the account's own are in its listing, with no slug; those of others are not."""
    other = wiki.add_user("Zoé", wiki.viewer_role)
    wiki.add_page(book.people, "Brouillon", markdown="x", draft=True)
    wiki.add_page(book.people, "D'une autre", markdown="x", draft=True, owner=other)
    wiki.add_page(book.access, "Modèle", html="<p>x</p>", template=True)
    listing = Indexer(wiki).read()
    rows = {row.path: (row.status, row.reason, row.rule) for row in listing.left_out}
    assert rows == {
        "people/page-6.md": ("excluded", "draft", "draft"),
        "reseau/acces/modele.md": ("excluded", "draft", "template"),
    }
    assert len(listing.files) == len(book.pages)


CHANGES: dict[str, tuple[Callable[[BookStack, Handbook], object], int, set[str]]] = {
    "nothing": (lambda w, b: None, 0, set()),
    "add a page": (
        lambda w, b: w.add_page(b.people, "Pay", markdown="x"),
        1,
        {"+people/pay.md"},
    ),
    "edit a page": (lambda w, b: w.edit(b.travel, markdown="y"), 1, {"*people/travel.md"}),
    "write it in HTML from now on": (
        lambda w, b: w.edit(b.travel, html="<p>y</p>"),
        1,
        {"*people/travel.md"},
    ),
    "rename a page": (
        lambda w, b: w.rename(b.travel, "Voyages"),
        1,
        {"-people/travel.md", "+people/voyages.md"},
    ),
    "rename a chapter": (
        lambda w, b: w.rename(b.access, "Entrées"),
        0,
        {
            "-reseau/acces/badge.md",
            "-reseau/acces/vpn-de-l-equipe.md",
            "+reseau/entrees/badge.md",
            "+reseau/entrees/vpn-de-l-equipe.md",
        },
    ),
    "rename a book, but not its slug": (
        lambda w, b: w.rename(b.people, "PEOPLE"),
        0,
        {"*people/leave.md", "*people/travel.md"},
    ),
    "move a page to another book": (
        lambda w, b: w.move(b.travel, b.network),
        0,
        {"-people/travel.md", "+reseau/travel.md"},
    ),
    "move a page out of its chapter": (
        lambda w, b: w.move(b.badge, b.network),
        0,
        {"-reseau/acces/badge.md", "+reseau/badge.md"},
    ),
    "move a chapter to another book": (
        lambda w, b: w.move(b.access, b.people),
        0,
        {
            "-reseau/acces/badge.md",
            "-reseau/acces/vpn-de-l-equipe.md",
            "+people/acces/badge.md",
            "+people/acces/vpn-de-l-equipe.md",
        },
    ),
    "sort a page": (lambda w, b: w.sort(b.leave, 9), 0, set()),
    "delete a page": (lambda w, b: w.delete(b.leave), 0, {"-people/leave.md"}),
    "delete a chapter": (
        lambda w, b: w.delete(b.access),
        0,
        {"-reseau/acces/badge.md", "-reseau/acces/vpn-de-l-equipe.md"},
    ),
    "delete a book": (
        lambda w, b: w.delete(b.people),
        0,
        {"-people/leave.md", "-people/travel.md"},
    ),
    "make a template of a page": (
        lambda w, b: setattr(b.leave, "template", True),
        0,
        {"*people/leave.md"},
    ),
    "restore a backup in which a page counts the same revisions": (
        lambda w, b: (w.edit(b.leave, html="<p>old</p>"), setattr(b.leave, "revision_count", 1)),
        1,
        {"*people/leave.md"},
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_is_seen_at_the_price_of_what_changed(
    wiki: BookStack, book: Handbook, name: str
) -> None:
    """Exact after each change, by a look and by a listing; contents are read only if changed."""
    change, fetches, seen = CHANGES[name]
    indexer = Indexer(wiki)
    indexer.read()
    change(wiki, book)
    with wiki.counting() as looking:
        assert indexer.changed_paths() == seen
    assert looking == LISTING
    with wiki.counting() as listing:
        indexer.listing = indexer.source().list(indexer.known)
    assert listing == {**LISTING, **({"page": fetches} if fetches else {})}
    assert indexer.listing.read == fetches
    indexer.read()
    assert indexer.changed_paths() == set()


def test_what_comes_back_from_the_recycle_bin_is_read_again(
    wiki: BookStack, book: Handbook
) -> None:
    """And a draft that is published."""
    draft = wiki.add_page(book.people, "Paie", markdown="Le 28.", draft=True)
    wiki.delete(book.people)
    indexer = Indexer(wiki)
    assert len(indexer.read().files) == 3
    wiki.restore(book.people)
    assert len(indexer.read().files) == 5
    wiki.publish(draft)
    assert len(indexer.read().files) == 6


def test_changes_follow_one_another(wiki: BookStack, book: Handbook) -> None:
    """A move after an edit after a move: state is carried from listing to listing."""
    indexer = Indexer(wiki)
    indexer.read()
    steps: list[Callable[[], object]] = [
        lambda: wiki.move(book.travel, book.access),
        lambda: wiki.move(book.travel, book.people),
        lambda: wiki.edit(book.travel, markdown="z"),
        lambda: wiki.move(book.travel, book.network),
        lambda: wiki.rename(book.network, "Networks"),
        lambda: wiki.sort(book.travel, 3),
        lambda: wiki.delete(book.access),
        lambda: wiki.restore(book.access),
    ]
    read = []
    for step in steps:
        step()
        indexer.read()
        assert indexer.listing is not None
        read.append(indexer.listing.read)
    assert read == [0, 0, 1, 0, 0, 0, 0, 2]


def test_ten_thousand_unchanged_pages_cost_their_listing(wiki: BookStack) -> None:
    """20 requests of 500 pages, one for chapters, one for books; one more when one page changed."""
    books = [wiki.add_book(f"Livre {number}") for number in range(20)]
    pages = [
        wiki.add_page(books[number % 20], f"Page {number}", markdown=f"Texte {number}")
        for number in range(10_000)
    ]
    settings = settings_of(wiki)
    content = b"read before"
    known = {
        f"livre-{n % 20}/page-{n}.md": SourceFile(
            "wiki", f"livre-{n % 20}/page-{n}.md", "", content, sha256_hex(content), None, (),
            f"page-{page.id}-1-{page.updated_at[:19]}Z",
        )
        for n, page in enumerate(pages)
    }  # fmt: skip
    with wiki.counting() as listing:
        first = BookStackSource(settings).list(known)
    assert (len(first.files), first.read) == (10_000, 0)
    assert listing == {"pages": 20, "chapters": 1, "books": 1}
    with wiki.counting() as looking:
        assert not BookStackSource(settings).look(first.look_state)
    assert looking == {"pages": 20, "chapters": 1, "books": 1}
    wiki.edit(pages[6_000], markdown="Autre texte")
    with wiki.counting() as changed:
        second = BookStackSource(settings).list({f.path: f for f in first.files})
    assert second.read == 1
    assert changed == {"pages": 20, "chapters": 1, "books": 1, "page": 1}


def test_an_interrupted_listing_goes_on_where_it_broke_off(
    wiki: BookStack, book: Handbook, tmp_path: Path
) -> None:
    """What was fetched is not fetched again."""
    fetched = 0

    def dying(kind: str, request: Request) -> Response | None:
        nonlocal fetched
        fetched += kind == "page"
        return Response(status_code=502) if kind == "page" and fetched > 3 else None

    settings = settings_of(wiki, concurrency=1)
    limits = HttpLimits(retries=0)
    context = {"journal": Journal(tmp_path / "wiki.journal")}
    wiki.before_answer = dying
    indexer = Indexer(wiki, concurrency=1)
    with pytest.raises(SourceUnavailable, match=r"source wiki: GET .*answered 502"):
        BookStackSource(settings, SourceContext(**context), limits=limits).list()
    wiki.before_answer = None
    with wiki.counting() as counts:
        listing = indexer.source(**context).list()
    assert (counts["page"], len(listing.files)) == (2, 5)
    assert essence(listing) == essence(BookStackSource(settings).list())


def on_first_read(
    wiki: BookStack, change: Callable[[], object]
) -> Callable[[str, Request], Response | None]:
    """Make a change at the moment when the first page is read."""
    done: list[bool] = []

    def hook(kind: str, request: Request) -> Response | None:
        if kind == "page" and not done:
            done.append(True)
            change()
        return None

    return hook


def test_a_page_that_changes_before_it_is_read_is_taken_as_it_is_now(
    wiki: BookStack, book: Handbook
) -> None:
    """Under its new version, so that the next listing does not read it again."""
    wiki.before_answer = on_first_read(wiki, lambda: wiki.edit(book.vpn, markdown="Nouveau"))
    indexer = Indexer(wiki, concurrency=1)
    indexer.listing = indexer.source().list()
    assert {f.content for f in indexer.listing.files if f.path.endswith("equipe.md")} == {
        b"Nouveau"
    }
    indexer.read()
    assert indexer.listing.read == 0


def test_a_page_that_moves_before_it_is_read_waits_for_the_next_listing(
    wiki: BookStack, book: Handbook
) -> None:
    """What it holds now may be for the readers of the new place only."""
    wiki.before_answer = on_first_read(wiki, lambda: wiki.move(book.vpn, book.people))
    indexer = Indexer(wiki, concurrency=1)
    indexer.listing = indexer.source().list()
    assert [(r.path, r.reason) for r in indexer.listing.left_out] == [
        ("reseau/acces/vpn-de-l-equipe.md", "vanished")
    ]
    assert indexer.changed_paths() >= {"+people/vpn-de-l-equipe.md"}
    assert len(indexer.read().files) == 5


def test_a_page_that_is_deleted_before_it_is_read_is_gone(wiki: BookStack, book: Handbook) -> None:
    """A 404 is believed when the listing has lost the page too."""
    wiki.before_answer = on_first_read(wiki, lambda: wiki.delete(book.vpn))
    indexer = Indexer(wiki, concurrency=1)
    indexer.listing = indexer.source().list()
    assert [row.reason for row in indexer.listing.left_out] == ["vanished"]
    assert len(indexer.read().files) == 4


def test_shards_share_out_the_pages(wiki: BookStack, book: Handbook) -> None:
    """Every page is in exactly one; a page that moves into another shard is read there."""
    whole = essence(BookStackSource(settings_of(wiki)).list())
    parts = [essence(Indexer(wiki).source(shard=Shard(index, 3)).list()) for index in range(3)]
    assert sum(map(len, parts)) == len(whole)
    assert {path: seen for part in parts for path, seen in part.items()} == whole


def test_rules_keep_pages_out_by_path(wiki: BookStack, book: Handbook) -> None:
    """Hard exclusions by slug and by name, excluded and included paths; nothing of them is read."""
    legacy = wiki.add_book("Legacy")
    again = wiki.add_book("LEGACY")
    assert again.slug != "legacy"
    passbolt = wiki.add_chapter(book.people, "Passbolt")
    canary = "canari-7731"
    for parent in (legacy, again, passbolt):
        wiki.add_page(parent, "Secret", markdown=canary)
    wiki.add_page(book.people, "SCRATCH", markdown=canary)
    indexer = Indexer(
        wiki, excluded_paths=("people/travel.md",), included_paths=("people", "reseau/acces")
    )
    with wiki.counting() as counts:
        indexer.listing = indexer.source().list()
    rows = {row.path: row.reason for row in indexer.listing.left_out}
    assert rows == {
        "legacy/secret.md": "hard_exclusion",
        f"{again.slug}/secret.md": "hard_exclusion",
        "people/passbolt/secret.md": "hard_exclusion",
        "people/scratch.md": "hard_exclusion",
        "people/travel.md": "excluded_paths",
        "reseau/cables.md": "not_included",
    }
    assert counts["page"] == len(indexer.listing.files) == 3
    assert canary not in repr(indexer.listing) + repr(indexer.listing.files[0].content)


def test_explain_names_the_rule(wiki: BookStack, book: Handbook) -> None:
    """For what a rule of ours decides without asking, and for drafts with asking."""
    wiki.add_page(book.people, "Modèle", html="<p>x</p>", template=True)
    source = Indexer(wiki, roles={"Viewer": ("public",)}).source()
    with wiki.counting() as counts:
        assert source.explain("people/scratch.md").rule == "SCRATCH.md"  # type: ignore[union-attr]
        assert not counts
        assert source.explain("people/modele.md").rule == "template"  # type: ignore[union-attr]
        assert source.explain("people/leave.md") is None
    assert counts == {"pages": 2, "chapters": 2, "books": 2}


def test_paths_stay_unique_and_safe(wiki: BookStack, book: Handbook) -> None:
    """Whatever slugs a database holds: equal ones, none, with a slash, with what hides."""
    twin = wiki.add_page(book.people, "Twin", markdown="x")
    twin.slug = "leave"
    odd = [wiki.add_page(book.people, f"Odd {n}", markdown="x") for n in range(4)]
    for page, slug in zip(odd, ["a/../b", "..", "", "x\u202ey"], strict=True):
        page.slug = slug
    listing = Indexer(wiki).read()
    paths = {file.path for file in listing.files}
    assert {"people/leave.md", f"people/leave-{twin.id}.md", "people/a-..-b.md"} <= paths
    assert {f"people/page-{odd[1].id}.md", f"people/page-{odd[2].id}.md"} <= paths
    assert [(row.reason, row.path) for row in listing.left_out] == [
        ("unsafe_name", "people/x\\u202ey.md")
    ]


def test_included_pages_are_not_resolved(wiki: BookStack, book: Handbook) -> None:
    """BookStack would put in what this account sees, under the tags of the page around it."""
    wiki.edit(book.leave, html=f"<p>Before {{{{@{book.badge.id}}}}} after</p>")
    files = {file.path: file for file in Indexer(wiki).read().files}
    assert files["people/leave.md"].content == b"<p>Before {{@2}} after</p>"


def test_the_rate_limit_is_obeyed(wiki: BookStack, book: Handbook) -> None:
    """429 with Retry-After is waited for; nothing is lost."""
    wiki.requests_per_minute = 6
    wiki.window_seconds = 1.0
    source = BookStackSource(
        settings_of(wiki), limits=HttpLimits(retries=4, retry_after_cap_seconds=2.0)
    )
    assert len(source.list().files) == len(book.pages)
    assert wiki.counts["refused"] > 0


@pytest.mark.parametrize("secret", ["", "no-colon", ":x", "x:", "a:b:c", "Token a:b"])
def test_a_token_that_cannot_be_one_is_refused_without_being_shown(
    wiki: BookStack, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    """Before anything is asked."""
    settings = settings_of(wiki)
    monkeypatch.setenv(VARIABLE, secret)
    with pytest.raises(ConfigurationError, match=rf"sources.wiki.token: .*{VARIABLE}") as caught:
        BookStackSource(settings)
    assert not secret or secret not in str(caught.value).replace(VARIABLE, "")
    assert not wiki.counts


@pytest.mark.parametrize(
    ("trouble", "says"),
    [
        ("wrong secret", "answered 401"),
        ("expired", "answered 403"),
        ("no API permission", "answered 403"),
        ("unknown token", "answered 401"),
    ],
)
def test_a_token_that_is_refused_fails_the_listing(
    wiki: BookStack, book: Handbook, trouble: str, says: str
) -> None:
    """BookStack says 403 of an expired token: that is no document that may not be seen."""
    settings = settings_of(wiki)
    if trouble == "wrong secret":
        wiki.admin.secret = "another"
    elif trouble == "expired":
        wiki.admin.expired = True
    elif trouble == "no API permission":
        wiki.admin_role.permissions.discard("access-api")
    else:
        wiki.users.clear()
    with pytest.raises(SourceUnavailable, match=f"source wiki: GET .*{says}") as caught:
        BookStackSource(settings).list()
    assert SECRET not in str(caught.value)
    assert "nothing was removed" in str(caught.value)


def test_a_token_that_expires_in_the_middle_removes_nothing(
    wiki: BookStack, book: Handbook
) -> None:
    """The pages after it are not taken for pages that may not be read."""
    settings = settings_of(wiki, concurrency=1)
    wiki.before_answer = on_first_read(wiki, lambda: setattr(wiki.admin, "expired", True))
    with pytest.raises(SourceUnavailable, match="403"):
        BookStackSource(settings).list()


def test_the_secret_stands_in_no_error_and_no_repr(wiki: BookStack, book: Handbook) -> None:
    """Nor what a server says back of it."""
    settings = settings_of(wiki)

    def echoing(kind: str, request: Request) -> Response:
        return Response(request.headers["authorization"], status_code=418)

    wiki.before_answer = echoing
    source = BookStackSource(settings)
    with pytest.raises(SourceError) as caught:
        source.list()
    shown = f"{caught.value} {caught.value!r} {source!r} {settings!r} {vars(settings)}"
    assert SECRET not in shown
    assert "[secret]" in shown


def test_settings_of_two_ways_to_read_permissions_are_refused(wiki: BookStack) -> None:
    """accounts and roles answer the same question."""
    account = {"token": set_token(wiki.admin), "tags": ("public",)}
    with pytest.raises(ValueError, match="accounts and roles are both set"):
        settings_of(wiki, accounts=(account,), roles={"Viewer": ("public",)})

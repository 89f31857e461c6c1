"""A BookStack that misbehaves: whole and true listings or an error, never a secret."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from rag_assets.errors import IncompleteEnumeration, SourceUnavailable
from rag_assets.http_client import HttpLimits
from rag_assets.sources.bookstack import BookStackSource
from rag_assets_tests.peers.bookstack import BookStack, as_json
from rag_assets_tests.sources.bookstack_wiki import (
    VARIABLE,
    Handbook,
    Indexer,
    set_token,
    settings_of,
)
from rag_assets_tests.sources.fault_campaign import Setup


@contextmanager
def campaign_setup() -> Iterator[Setup]:
    """What the campaign of faults attacks: listings in several pages, five documents."""
    with BookStack(max_item_count=2) as wiki:
        book = Handbook(wiki)
        settings = settings_of(wiki)
        expected = [f.path for f in BookStackSource(settings).list().files]
        assert len(expected) == len(book.pages)

        def make_source(address: str, limits: HttpLimits) -> BookStackSource:
            elsewhere = settings.model_copy(update={"base_url": address})
            return BookStackSource(elsewhere, limits=limits)

        contents = r"GET /api/pages/\d+$"
        yield Setup(wiki.address, make_source, expected, wiki.admin.token, contents)


def test_no_fault_of_a_server_costs_a_document() -> None:
    """Every kind of fault in the middle of the listing and on a content."""
    with campaign_setup() as ready:
        ready.run().check()


@pytest.fixture
def wiki(monkeypatch: pytest.MonkeyPatch) -> Iterator[BookStack]:
    """A running BookStack that gives two rows at once, with content."""
    monkeypatch.setenv(VARIABLE, "")
    with BookStack(max_item_count=2) as server:
        yield server


@pytest.fixture
def book(wiki: BookStack) -> Handbook:
    """Its content: five pages, so three requests list them."""
    return Handbook(wiki)


def altering(
    wiki: BookStack, alter: Callable[[int, dict[str, Any]], object], kind: str = "pages"
) -> list[int]:
    """Change the JSON of the answers of one kind; a list of their numbers that grows."""
    asked: list[int] = []
    endpoint = {"pages": wiki.list_pages, "page": wiki.read_page, "chapters": wiki.list_chapters}

    def hook(at: str, request: Request) -> Response | None:
        if at != kind:
            return None
        asked.append(len(asked))
        value = json.loads(json.dumps(endpoint[kind](request, wiki.admin)))
        said = alter(asked[-1], value)
        return as_json(value if said is None else said)

    wiki.before_answer = hook
    return asked


def paths(source: BookStackSource) -> set[str]:
    """The paths that it lists."""
    return {file.path for file in source.list().files}


def test_a_server_may_give_fewer_rows_than_asked_for(wiki: BookStack, book: Handbook) -> None:
    """API_MAX_ITEM_COUNT can be lowered to anything."""
    for most in (1, 3, 500):
        wiki.max_item_count = most
        assert len(paths(Indexer(wiki).source())) == len(book.pages)


@pytest.mark.parametrize("change", ["delete", "add", "both", "restrict"])
def test_a_listing_that_shifts_while_it_is_read_is_still_whole(
    wiki: BookStack, book: Handbook, change: str
) -> None:
    """With an offset, what stands behind something deleted would be skipped."""
    asked = 0

    def hook(kind: str, request: Request) -> None:
        nonlocal asked
        asked += kind == "pages"
        if kind == "pages" and asked == 2:
            if change in ("delete", "both"):
                wiki.delete(book.vpn)
            if change in ("add", "both"):
                wiki.add_page(book.people, "New", markdown="x")
            if change == "restrict":
                wiki.move(book.vpn, book.people)

    wiki.before_answer = hook
    found = paths(Indexer(wiki).source())
    kept = {"reseau/acces/badge.md", "reseau/cables.md", "people/leave.md", "people/travel.md"}
    assert found >= kept
    assert ("people/new.md" in found) == (change in ("add", "both"))


@pytest.mark.parametrize(
    ("alter", "says"),
    [
        (lambda n, v: {**v, "data": [{**r, "id": 1} for r in v["data"]]}, "the same again"),
        (lambda n, v: v["data"].reverse(), "the same again"),
        (lambda n, v: {**v, "data": []}, "lists 0 rows and says that there are"),
        (lambda n, v: {**v, "total": 0}, "lists 2 rows and says that there are 0"),
        (lambda n, v: {"data": [], "total": 0} if n % 2 else None, "rows where 3 were left"),
        (lambda n, v: v.pop("total") and None, "'total' as nothing"),
        (lambda n, v: {**v, "total": "5"}, "'total' as a string"),
        (lambda n, v: {**v, "total": True}, "'total' as a boolean"),
        (lambda n, v: {**v, "total": -1}, "'total' as a number out of range"),
        (lambda n, v: [], "not a listing"),
        (lambda n, v: {"error": {"code": 500, "message": "x"}}, "not a listing"),
        (lambda n, v: {**v, "data": [None] * len(v["data"])}, "not an object"),
        (lambda n, v: {**v, "data": [{**r, "slug": None} for r in v["data"]]}, "'slug'"),
        (lambda n, v: {**v, "data": [{**r, "id": "1"} for r in v["data"]]}, "'id' as a string"),
        (lambda n, v: {**v, "data": [{**r, "draft": "no"} for r in v["data"]]}, "'draft'"),
        (lambda n, v: {**v, "data": [{**r, "updated_at": "x"} for r in v["data"]]}, "not a time"),
        (lambda n, v: {**v, "data": [{**r, "book_id": 1.5} for r in v["data"]]}, "'book_id'"),
    ],
)
def test_a_listing_that_does_not_add_up_is_refused(
    wiki: BookStack, book: Handbook, alter: Callable[[int, dict[str, Any]], object], says: str
) -> None:
    """With the source, the address and what to do; nothing is guessed."""
    altering(wiki, alter)
    with pytest.raises(IncompleteEnumeration, match=r"source wiki: GET .*/api/pages: ") as caught:
        Indexer(wiki).source().list()
    assert says in str(caught.value)
    assert "nothing was removed" in str(caught.value)


def test_a_listing_that_is_wrong_once_is_asked_for_again(wiki: BookStack, book: Handbook) -> None:
    """A row twice, then well."""
    asked = altering(wiki, lambda n, v: v["data"].insert(0, v["data"][0]) if n == 1 else None)
    assert len(paths(Indexer(wiki).source())) == len(book.pages)
    assert len(asked) == 2 + 3


def test_a_listing_without_end_is_given_up(wiki: BookStack, book: Handbook) -> None:
    """Ever new ids and a total that keeps growing: after as many rows as it may have grown by."""

    def endless(number: int, value: dict[str, Any]) -> dict[str, Any]:
        row = {**value["data"][0]} if value["data"] else dict(template)
        template.update(row)
        first = 1 + number * 500
        rows = [{**template, "id": first + n, "slug": f"p-{first + n}"} for n in range(500)]
        return {"data": rows, "total": 1_000}

    template: dict[str, Any] = {}
    asked = altering(wiki, endless)
    with pytest.raises(IncompleteEnumeration, match="never ends"):
        Indexer(wiki).source().list()
    assert len(asked) < 10


@pytest.mark.parametrize(
    ("alter", "says"),
    [
        (lambda n, v: {**v, "id": v["id"] + 1}, "not the page asked for"),
        (lambda n, v: {"data": []}, "not the page asked for"),
        (lambda n, v: [v], "not the page asked for"),
        (lambda n, v: {k: w for k, w in v.items() if k != "html"} | {"markdown": ""}, "'html'"),
        (lambda n, v: {**v, "html": 7, "markdown": None}, "'html' as a number"),
        (lambda n, v: {**v, "book_id": "1"}, "'book_id' as a string"),
    ],
)
def test_a_content_that_is_not_the_page_asked_for_is_refused(
    wiki: BookStack, book: Handbook, alter: Callable[[int, dict[str, Any]], object], says: str
) -> None:
    """What answers there may be anything."""
    altering(wiki, alter, kind="page")
    with pytest.raises(
        IncompleteEnumeration, match=r"source wiki: GET .*/api/pages/\d+: "
    ) as caught:
        Indexer(wiki).source().list()
    assert says in str(caught.value)


def test_a_404_for_a_page_that_is_listed_removes_nothing(wiki: BookStack, book: Handbook) -> None:
    """A proxy or a cache says so, not BookStack."""
    wiki.before_answer = lambda kind, request: (
        as_json({"error": {"message": "Page not found", "code": 404}}, 404)
        if request.url.path == f"/api/pages/{book.leave.id}"
        else None
    )
    with pytest.raises(IncompleteEnumeration, match="404 for a page that it lists"):
        Indexer(wiki).source().list()


def test_a_403_for_one_page_leaves_out_that_page(wiki: BookStack, book: Handbook) -> None:
    """Something in between forbids it; the account itself is well."""
    wiki.before_answer = lambda kind, request: (
        Response("<h1>Forbidden by the web firewall</h1>", 403)
        if request.url.path == f"/api/pages/{book.leave.id}"
        else None
    )
    listing = Indexer(wiki).source().list()
    assert [(row.path, row.status, row.reason) for row in listing.left_out] == [
        ("people/leave.md", "quarantined", "unreadable")
    ]
    assert len(listing.files) == len(book.pages) - 1


def test_a_wrong_address_says_what_to_check(wiki: BookStack, book: Handbook) -> None:
    """A path too many gives BookStack's 404, or its login page."""
    wrong = settings_of(wiki, base_url=f"{wiki.address}/docs")
    with pytest.raises(IncompleteEnumeration, match=r"login page.*Check that base_url"):
        BookStackSource(wrong).list()
    wiki.before_answer = lambda kind, request: as_json({"error": {"code": 404}}, 404)
    with pytest.raises(SourceUnavailable, match=r"404.*Check base_url.*nothing was removed"):
        BookStackSource(settings_of(wiki)).list()


def test_a_page_over_the_limit_is_left_out(wiki: BookStack, book: Handbook) -> None:
    """And not asked for again until it changes."""
    wiki.edit(book.leave, html="<p>" + "x" * 2_000 + "</p>")
    indexer = Indexer(wiki, max_file_bytes=1_000)
    rows = [(row.path, row.reason) for row in indexer.read().left_out]
    assert rows == [("people/leave.md", "too_large")]
    assert len(indexer.read().files) == len(book.pages) - 1


def test_odd_names_and_times_of_old_versions_are_read(wiki: BookStack, book: Handbook) -> None:
    """No revision count, no zone, 0 and 1 for flags, no book slug, lone surrogates in a name."""

    def old(number: int, value: dict[str, Any]) -> None:
        for row in value["data"]:
            del row["revision_count"], row["book_slug"]
            row |= {"updated_at": "2026-03-01 09:00:07", "draft": 0, "template": 0}
            row |= {"name": "Né \ud800", "chapter_id": row["chapter_id"] or None}

    altering(wiki, old)
    files = Indexer(wiki).source().list().files
    assert len(files) == len(book.pages)
    assert {file.title.rpartition(" > ")[2] for file in files} == {"Né ?"}
    wiki.before_answer = None


def test_books_and_chapters_that_are_not_seen_are_named_by_what_is_known(
    wiki: BookStack, book: Handbook
) -> None:
    """An account may see a page and not what it stands in."""
    reader = wiki.add_user("Reader", wiki.viewer_role)
    wiki.restrict(book.network, {}, fallback=False)
    wiki.restrict(book.vpn, {2: True})
    indexer = Indexer(wiki, token=set_token(reader))
    titles = {f.path: f.title for f in indexer.read().files}
    assert titles[f"reseau/chapter-{book.access.id}/vpn-de-l-equipe.md"] == "VPN de l'équipe"

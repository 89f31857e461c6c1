"""Who may see a page in BookStack is who finds it, by accounts or by roles, never more."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import Response

from rag_assets.errors import SourceUnavailable
from rag_assets.models import SourceListing
from rag_assets.sources.bookstack import BookStackSource
from rag_assets.sources.bookstack.permissions import Overrides, Role, granted
from rag_assets.sources.shards import Shard
from rag_assets_tests.peers.bookstack import (
    EXPLICIT_ALLOW,
    IMPLICIT_ALLOW,
    BookStack,
    Entity,
    User,
)
from rag_assets_tests.sources.bookstack_wiki import (
    VARIABLE,
    Handbook,
    Indexer,
    set_token,
)

LISTING = {"pages": 1, "chapters": 1, "books": 1}
ROLES = {"Viewer": ("public",), "RH": ("service:hr",)}


@pytest.fixture
def wiki(monkeypatch: pytest.MonkeyPatch) -> Iterator[BookStack]:
    """A running BookStack with a role ``RH`` that sees nothing by default."""
    for variable in (VARIABLE, f"{VARIABLE}_READER", f"{VARIABLE}_HR"):
        monkeypatch.setenv(variable, "")
    with BookStack() as server:
        server.add_role("RH", {"access-api"})
        yield server


@pytest.fixture
def book(wiki: BookStack) -> Handbook:
    """Its content."""
    return Handbook(wiki)


@pytest.fixture
def reader(wiki: BookStack) -> User:
    """Somebody who sees what is not restricted."""
    return wiki.add_user("Reader", wiki.viewer_role)


@pytest.fixture
def hr(wiki: BookStack) -> User:
    """Somebody of human resources, who sees only what is given to them."""
    return wiki.add_user("HR", wiki.roles[4])


def tags(listing: SourceListing) -> dict[str, tuple[str, ...]]:
    """Tags by the last name of the path."""
    return {file.path.rpartition("/")[2]: file.acl_tags for file in listing.files}


def by_accounts(wiki: BookStack, reader: User, hr: User, **more: object) -> Indexer:
    """An indexer that reads permissions through the tokens of two people."""
    accounts = (
        {"token": set_token(reader, f"{VARIABLE}_READER"), "tags": ("public", "staff")},
        {"token": set_token(hr, f"{VARIABLE}_HR"), "tags": ("service:hr",)},
    )
    return Indexer(wiki, accounts=accounts, **more)


def test_a_page_carries_the_tags_of_all_accounts_that_see_it(
    wiki: BookStack, book: Handbook, reader: User, hr: User
) -> None:
    """Each account costs its own listing; a page that none sees is visible to nobody."""
    wiki.restrict(book.leave, {4: True}, fallback=False)
    wiki.restrict(book.travel, {4: True})
    wiki.restrict(book.vpn, {}, fallback=False)
    indexer = by_accounts(wiki, reader, hr)
    indexer.listing = indexer.source().list()
    assert tags(indexer.listing) == {
        "badge.md": ("public", "staff"),
        "cables.md": ("public", "staff"),
        "leave.md": ("service:hr",),
        "travel.md": ("public", "service:hr", "staff"),
        "vpn-de-l-equipe.md": (),
    }
    with wiki.counting() as counts:
        indexer.listing = indexer.source().list(indexer.known)
    assert counts == {**LISTING, "pages": 3}
    indexer.read()


def test_what_is_revoked_or_granted_is_seen_at_once(
    wiki: BookStack, book: Handbook, reader: User, hr: User
) -> None:
    """By a look and by a listing, without reading a content."""
    indexer = by_accounts(wiki, reader, hr)
    indexer.read()
    wiki.restrict(book.people, {4: True}, fallback=False)
    assert indexer.changed_paths() == {"*people/leave.md", "*people/travel.md"}
    listing = indexer.read()
    assert (tags(listing)["leave.md"], listing.read) == (("service:hr",), 0)
    wiki.restrict(book.people)
    assert indexer.changed_paths() == {"*people/leave.md", "*people/travel.md"}
    assert tags(indexer.read())["leave.md"] == ("public", "staff")


def test_the_main_account_decides_what_is_indexed(
    wiki: BookStack, book: Handbook, reader: User, hr: User
) -> None:
    """What only another account sees is not there."""
    wiki.restrict(book.leave, {4: True}, fallback=False)
    indexer = by_accounts(wiki, reader, hr, token=set_token(reader))
    assert "leave.md" not in tags(indexer.read())


def test_an_account_that_is_refused_fails_the_listing(
    wiki: BookStack, book: Handbook, reader: User, hr: User
) -> None:
    """Its tags are not taken from every page instead; the message says which account."""
    hr.expired = True
    with pytest.raises(SourceUnavailable, match=r"source wiki \(accounts.1\): .* 403") as caught:
        by_accounts(wiki, reader, hr).source().list()
    assert hr.secret not in str(caught.value)


def test_rules_of_the_configuration_narrow_what_the_server_grants(
    wiki: BookStack, book: Handbook, reader: User, hr: User
) -> None:
    """``acl`` with a rule on the path; its default is for what the server does not tell."""
    wiki.restrict(book.people, {4: True}, fallback=False)
    rules = ({"paths": ("people/travel.md",), "tags": ("service:hr", "other")},)
    wiki.restrict(book.travel, {2: True, 4: True})
    acl = {"default": ("admin_only",), "rules": rules}
    found = tags(by_accounts(wiki, reader, hr, acl=acl).read())
    assert found["leave.md"] == ("service:hr",)
    assert found["travel.md"] == ("other", "service:hr")
    assert found["cables.md"] == ("public", "staff")


def test_roles_become_tags(wiki: BookStack, book: Handbook) -> None:
    """Page before chapter before book before what the role sees by default."""
    wiki.restrict(book.network, {4: True})
    wiki.restrict(book.access, {}, fallback=False)
    wiki.restrict(book.badge, {4: True, 2: False})
    wiki.restrict(book.leave, {4: True}, fallback=False)
    assert tags(Indexer(wiki, roles=ROLES).read()) == {
        "badge.md": ("service:hr",),
        "cables.md": ("public", "service:hr"),
        "leave.md": ("service:hr",),
        "travel.md": ("public",),
        "vpn-de-l-equipe.md": (),
    }


def test_roles_cost_their_books_and_chapters(wiki: BookStack, book: Handbook) -> None:
    """Permissions of pages are read the first time and when a page changed."""
    indexer = Indexer(wiki, roles=ROLES)
    parents = 3
    with wiki.counting() as first:
        indexer.listing = indexer.source().list()
    fixed = {**LISTING, "roles": 1, "role": 2}
    assert first == {**fixed, "permissions": parents + len(book.pages), "page": len(book.pages)}
    with wiki.counting() as second:
        indexer.listing = indexer.source().list(indexer.known)
    assert second == {**fixed, "permissions": parents}
    with wiki.counting() as looking:
        assert indexer.changed_paths() == set()
    assert looking == {**fixed, "permissions": parents}
    wiki.edit(book.leave, html="<p>new</p>")
    with wiki.counting() as third:
        indexer.listing = indexer.source().list(indexer.known)
    assert third == {**fixed, "permissions": parents + 1, "page": 1}


def test_permissions_of_books_and_chapters_are_read_at_each_listing(
    wiki: BookStack, book: Handbook
) -> None:
    """Revoked and granted again, without reading a content."""
    indexer = Indexer(wiki, roles=ROLES)
    indexer.read()
    wiki.restrict(book.access, {}, fallback=False)
    assert indexer.changed_paths() == {
        "*reseau/acces/badge.md",
        "*reseau/acces/vpn-de-l-equipe.md",
    }
    listing = indexer.read()
    assert (tags(listing)["badge.md"], listing.read) == ((), 0)
    wiki.restrict(book.access)
    assert tags(indexer.read())["badge.md"] == ("public",)


def test_permissions_of_a_page_are_read_again_when_they_are_old(
    wiki: BookStack, book: Handbook
) -> None:
    """Changing them leaves no mark: until then the old ones hold, unless all is read anew."""
    indexer = Indexer(wiki, roles=ROLES)
    indexer.read()
    wiki.restrict(book.leave, {4: True}, fallback=False)
    assert indexer.changed_paths() == set()
    stale = indexer.source().list(indexer.known)
    assert tags(stale)["leave.md"] == ("public",)
    assert tags(indexer.source().list())["leave.md"] == ("service:hr",)
    hurried = Indexer(wiki, roles=ROLES, permissions_max_age_hours=0.0)
    hurried.listing = indexer.listing
    assert hurried.source().look(stale.look_state).unknown
    assert tags(hurried.read())["leave.md"] == ("service:hr",)


def test_a_moved_page_gets_the_permissions_of_its_new_place(
    wiki: BookStack, book: Handbook
) -> None:
    """Without being read again."""
    wiki.restrict(book.people, {4: True}, fallback=False)
    indexer = Indexer(wiki, roles=ROLES)
    indexer.read()
    wiki.move(book.cables, book.people)
    listing = indexer.read()
    assert (tags(listing)["cables.md"], listing.read) == (("service:hr",), 0)


def test_administrators_see_everything(wiki: BookStack, book: Handbook) -> None:
    """As in BookStack, whatever is denied to their role."""
    wiki.restrict(book.leave, {1: False, 2: False}, fallback=False)
    found = tags(Indexer(wiki, roles={"Admin": ("admin_only",), "2": ("public",)}).read())
    assert found["leave.md"] == ("admin_only",)
    assert found["travel.md"] == ("admin_only", "public")


def test_an_account_that_may_not_list_roles_grants_by_overrides_only(
    wiki: BookStack, book: Handbook
) -> None:
    """What a role sees by default cannot be told, so nothing is granted on it."""
    manager = wiki.add_role(
        "Manager", {"access-api", "restrictions-manage-all"} | wiki.viewer_role.permissions
    )
    keeper = wiki.add_user("Keeper", manager)
    wiki.restrict(book.people, {2: True, manager.id: True})
    wiki.restrict(book.leave, {4: True, manager.id: True}, fallback=False)
    indexer = Indexer(wiki, token=set_token(keeper), roles={"Viewer": ("public",), "4": ("hr",)})
    found = tags(indexer.read())
    assert {name for name, granted_to in found.items() if granted_to} == {"leave.md", "travel.md"}
    assert (found["leave.md"], found["travel.md"]) == (("hr",), ("public",))


def test_a_page_whose_permissions_are_refused_is_visible_to_nobody(
    wiki: BookStack, book: Handbook
) -> None:
    """One page, or all in a book; the others keep their tags."""

    def refusing(kind: str, request: Request) -> Response | None:
        refused = request.url.path.endswith(("page/4", "book/1"))
        return Response(status_code=403) if kind == "permissions" and refused else None

    wiki.restrict(book.badge, {2: True})
    wiki.before_answer = refusing
    found = tags(Indexer(wiki, roles=ROLES).read())
    assert {name for name, granted_to in found.items() if granted_to} == {"badge.md", "travel.md"}


def test_an_account_that_may_read_no_permissions_fails_the_listing(
    wiki: BookStack, book: Handbook, reader: User
) -> None:
    """Otherwise everything would quietly become visible to nobody."""
    indexer = Indexer(wiki, token=set_token(reader), roles=ROLES)
    with pytest.raises(SourceUnavailable, match=r"none of .* permissions.*Manage all book"):
        indexer.source().list()


@pytest.mark.parametrize(
    ("role", "says"), [("Viewers", "no role 'Viewers', only 'Admin'"), ("Twin", "2 roles named")]
)
def test_a_role_that_does_not_exist_is_named(
    wiki: BookStack, book: Handbook, role: str, says: str
) -> None:
    """A renamed role must not quietly take a tag from every page."""
    wiki.add_role("Twin", set())
    wiki.add_role("Twin", set())
    with pytest.raises(SourceUnavailable, match=says):
        Indexer(wiki, roles={role: ("public",)}).source().list()


@pytest.mark.parametrize("count", [3, 501, 1_001])
def test_many_roles_are_all_known(wiki: BookStack, book: Handbook, count: int) -> None:
    """Their listing has an offset only."""
    for number in range(count):
        wiki.add_role(f"Role {number:04}", {"page-view-all"})
    listing = Indexer(wiki, roles={f"Role {count - 1:04}": ("public",)}).source().list()
    assert set(tags(listing).values()) == {("public",)}


@pytest.mark.parametrize(
    "permissions",
    [
        "[]",
        '{"role_permissions": [], "fallback_permissions": {"inheriting": false, "view": null}}',
        '{"role_permissions": [{"role_id": "2", "view": true}], "fallback_permissions": '
        '{"inheriting": true}}',
        '{"role_permissions": [null], "fallback_permissions": {"inheriting": true}}',
        '{"role_permissions": {}, "fallback_permissions": {"inheriting": true}}',
        '{"role_permissions": []}',
    ],
)
def test_permissions_of_another_shape_fail_the_listing(
    wiki: BookStack, book: Handbook, permissions: str
) -> None:
    """Nothing is guessed about who may see a page."""
    wiki.before_answer = lambda kind, request: (
        Response(permissions) if kind == "permissions" else None
    )
    with pytest.raises(Exception, match=r"source wiki: GET .*content-permissions"):
        Indexer(wiki, roles=ROLES).source().list()


def test_shards_read_the_permissions_of_their_own_pages(wiki: BookStack, book: Handbook) -> None:
    """Together they cost what one costs, but for books and chapters."""
    indexer = Indexer(wiki, roles=ROLES, excluded_paths=("people/travel.md",))
    with wiki.counting() as counts:
        for index in range(3):
            indexer.source(shard=Shard(index, 3)).list()
    assert counts["page"] == 4
    assert 4 + 2 <= counts["permissions"] <= 4 + 3 * 3


OVERRIDE = st.tuples(
    st.dictionaries(st.integers(2, 4), st.booleans(), max_size=3),
    st.sampled_from([None, True, False]),
)


@given(page=OVERRIDE, chapter=st.none() | OVERRIDE, book=OVERRIDE, default=st.booleans())
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_each_role_sees_what_bookstack_lets_it_see(
    page: tuple[dict[int, bool], bool | None],
    chapter: tuple[dict[int, bool], bool | None] | None,
    book: tuple[dict[int, bool], bool | None],
    default: bool,
) -> None:
    """Against the rule as BookStack's own code words it, which the peer follows."""
    wiki = BookStack()
    role = wiki.add_role("Tested", {"page-view-all"} if default else set())
    assert role.id == 4
    shelf = wiki.add_book("Book")
    parent: Entity = shelf if chapter is None else wiki.add_chapter(shelf, "Chapter")
    leaf = wiki.add_page(parent, "Page", markdown="x")
    levels = [(leaf, page), (shelf, book), *([(parent, chapter)] if chapter else [])]
    for entity, (roles, fallback) in levels:
        wiki.restrict(entity, roles, fallback)
    chain = [
        Overrides(tuple((at, wiki.roles[at].display_name, v) for at, v in roles.items()), fallback)
        for roles, fallback in [page, *([chapter] if chapter else []), book]
    ]
    tested = Role(role.id, "Tested", ("t",), by_default=default)
    sees = wiki.status(role, leaf) in (IMPLICIT_ALLOW, EXPLICIT_ALLOW)
    assert tested.may_see(chain) == sees
    assert granted([tested], chain) == (("t",) if sees else ())
    assert not Role(4, "Tested", ("t",), by_default=True).may_see([None, *chain])
    kept = [Overrides.from_list(level.as_list()) for level in chain]
    assert kept == chain


def test_the_state_survives_json(wiki: BookStack, book: Handbook) -> None:
    """It is kept in a file between runs."""
    indexer = Indexer(wiki, roles=ROLES)
    listing = indexer.read()
    kept = json.loads(json.dumps(dict(listing.look_state)))
    assert not indexer.source().look(kept)
    damaged = {**kept, "state": {"pages": {"1": None, "x": []}}}
    assert len(BookStackSource(indexer.settings).look(damaged).modified) == 0

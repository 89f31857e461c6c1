"""How shares and access lists of a Nextcloud become ACL tags."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rag_assets.errors import IncompleteEnumeration, SourceUnavailable
from rag_assets.sources.nextcloud.acl import combined, narrowed
from rag_assets_tests.fault_proxy import Exchange, Fault, FaultProxy, Rule, When
from rag_assets_tests.peers.nextcloud import (
    OWNER,
    PASSWORD,
    USER,
    NextcloudPeer,
    nextcloud_peer,
    require_nextcloud_peer,
)

from .nextcloud_account import VARIABLE, Account, known, make_source

SHARES = {
    "group:rh": ("service:rh",),
    "group:tous": ("service:tous",),
    f"user:{USER}": ("service:lecteurs",),
    "user:paul": ("service:paul",),
    "link": ("public",),
}
ALL, READ_MASK = 31, 1
"""Every permission; the mask of reading alone."""


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, PASSWORD)


@pytest.fixture
def peer() -> Iterator[NextcloudPeer]:
    """A Nextcloud whose indexing account is a member of the groups ``rh`` and ``tous``."""
    require_nextcloud_peer()
    with nextcloud_peer() as running:
        running.join(USER, "rh")
        running.join(USER, "tous")
        yield running


def tags(listing: Any) -> dict[str, tuple[str, ...]]:
    return {file.path: file.acl_tags for file in listing.files}


# ---------------------------------------------------------------- shares


def test_what_is_shared_with_the_account_has_the_tags_of_the_share(peer: NextcloudPeer) -> None:
    """Those of a folder hold for all below it; those of a file come on top."""
    peer.put("RH/Congés/été.md", "# L'été\n", user=OWNER)
    peer.put("RH/a.md", "# A\n", user=OWNER)
    peer.share("RH", group="rh")
    peer.share("RH/a.md", group="tous")
    peer.put("à moi.md", "# À moi\n")
    listing = make_source(peer.url, shares=SHARES, acl={}).list()
    assert tags(listing) == {
        "RH/Congés/été.md": ("service:rh",),
        "RH/a.md": ("service:rh", "service:tous"),
        "a.md": ("service:tous",),
        "à moi.md": (),
    }


def test_what_the_account_shares_has_the_tags_of_the_share(peer: NextcloudPeer) -> None:
    """With a user, a group, or by a link without a password."""
    for name in ("user", "group", "link", "closed", "drop", "other"):
        peer.put(f"{name}/a.md", f"# {name}\n")
    peer.share("user", user="paul", by=USER)
    peer.share("group", group="rh", by=USER, permissions=31)
    peer.share("link", by=USER)
    peer.share("closed", by=USER, password="$hash$")
    peer.share("drop", by=USER, permissions=4)
    peer.share("other", group="unknown", by=USER)
    listing = make_source(peer.url, shares=SHARES, acl={"default": ("admin_only",)}).list()
    assert tags(listing) == {
        "user/a.md": ("service:paul",),
        "group/a.md": ("service:rh",),
        "link/a.md": ("public",),
        "closed/a.md": ("admin_only",),
        "drop/a.md": ("admin_only",),
        "other/a.md": ("admin_only",),
    }


@pytest.mark.parametrize(
    ("expiration", "granted"),
    [
        ("2026-03-02 00:00:00", True),
        ("2026-03-01 00:00:00", False),
        ("2025-01-01 00:00:00", False),
        ("bientôt", False),
        ("", False),
    ],
)
def test_an_expired_share_grants_nothing(
    peer: NextcloudPeer, expiration: str, granted: bool
) -> None:
    """Nor does one whose end cannot be read."""
    peer.put("a.md", "# A\n")
    peer.share("a.md", group="rh", by=USER, expiration=expiration)
    now = datetime(2026, 3, 1, 12, tzinfo=timezone.utc).timestamp()
    listing = make_source(peer.url, shares=SHARES, acl={}, clock=lambda: now).list()
    assert tags(listing) == {"a.md": ("service:rh",) if granted else ()}


def test_a_share_that_is_given_or_taken_back_is_noticed(peer: NextcloudPeer) -> None:
    """No ETag of the file changes; nothing is read again."""
    peer.put("Projets/plan.md", "# Plan\n")
    peer.put("Projets/autre/b.md", "# B\n")
    account = Account(peer, shares=SHARES, acl={})
    looked, listed = account.follow()
    assert looked == listed == {"PROPFIND 1": 1, "shares": 2}
    share = peer.share("Projets", group="rh", by=USER)
    looked, listed = account.follow()
    assert looked == listed == {"PROPFIND 1": 1, "shares": 2}
    assert set(tags(account.listing).values()) == {("service:rh",)}
    peer.unshare(share)
    account.follow()
    assert set(tags(account.listing).values()) == {()}


def test_a_folder_that_is_no_longer_shared_is_gone(peer: NextcloudPeer) -> None:
    """The ETag of the account's root changes with what is mounted in it."""
    peer.put("RH/a.md", "# A\n", user=OWNER)
    peer.put("b.md", "# B\n")
    share = peer.share("RH", group="rh")
    account = Account(peer, shares=SHARES, acl={})
    peer.put("RH/a.md", "# A 2\n", user=OWNER)
    _, listed = account.follow()
    assert listed == {"PROPFIND 1": 2, "GET": 1, "shares": 2}
    peer.unshare(share)
    account.follow()
    assert list(known(account.listing)) == ["b.md"]


def test_tags_follow_a_document_that_moves(peer: NextcloudPeer) -> None:
    """Out of a shared folder into another one."""
    peer.put("A/a.md", "# A\n")
    peer.put("B/b.md", "# B\n")
    peer.share("A", group="rh", by=USER)
    peer.share("B", group="tous", by=USER)
    account = Account(peer, shares=SHARES, acl={})
    peer.move("A/a.md", "B/a.md")
    _, listed = account.follow()
    assert listed["GET"] == 0
    assert tags(account.listing) == {"B/a.md": ("service:tous",), "B/b.md": ("service:tous",)}


def test_a_share_of_a_folder_above_the_configured_one_counts(peer: NextcloudPeer) -> None:
    """The folder above is not listed, but it is shared with all below it."""
    peer.put("A/B/c.md", "# C\n")
    peer.share("A", group="rh", by=USER)
    listing = make_source(peer.url, folders=("A/B",), shares=SHARES, acl={}).list()
    assert tags(listing) == {"A/B/c.md": ("service:rh",)}


def test_a_rule_of_the_configuration_narrows_what_a_share_grants(peer: NextcloudPeer) -> None:
    """Never the other way round."""
    peer.put("A/a.md", "# A\n")
    peer.put("A/b.md", "# B\n")
    peer.share("A", by=USER)
    acl = {"rules": ({"paths": ("A/b.md",), "tags": ("service:rh",)},)}
    listing = make_source(peer.url, shares=SHARES, acl=acl).list()
    assert tags(listing) == {"A/a.md": ("public",), "A/b.md": ("service:rh",)}


@pytest.mark.parametrize(
    "body",
    [
        b"<html>Login</html>",
        b"[]",
        b'{"ocs": {"meta": {"status": "failure"}, "data": []}}',
        b'{"ocs": {"meta": {"status": "ok"}, "data": {"a": 1}}}',
        b'{"ocs": {"meta": {"status": "ok"}, "data": [1]}}',
        b'{"ocs": {"meta": {"status": "ok"}, "data": '
        b'[{"share_type": 1, "share_with": "rh", "permissions": 1}]}}',
    ],
)
def test_shares_that_cannot_be_read_are_an_error(peer: NextcloudPeer, body: bytes) -> None:
    """The index keeps the tags it had, rather than those of fewer shares."""
    peer.put("a.md", "# A\n")
    peer.share("a.md", group="rh", by=USER)
    for status in (200, 404):

        def answer(exchange: Exchange, status: int = status) -> None:
            from rag_assets_tests.fault_proxy import Answer

            exchange.respond(Answer(status, (("Content-Type", "application/json"),), body))

        rule = Rule(Fault("shares", "answers", "must_fail", answer), When("GET .*/ocs/"))
        with FaultProxy(peer.url, [rule]) as proxy, pytest.raises(Exception) as caught:
            make_source(proxy.url, shares=SHARES, acl={}).list()
        kinds = IncompleteEnumeration if status == 200 else SourceUnavailable
        assert isinstance(caught.value, kinds)
        assert "nuage" in str(caught.value)


@pytest.mark.parametrize("who", ["rh", "groups:rh", "group:", "", "Link", "email:a@b.c"])
def test_a_share_with_nobody_that_can_be_named_is_refused(who: str) -> None:
    """A typing error would leave documents to nobody, or to too many."""
    with pytest.raises(ValidationError, match="write user:<id>, group:<id> or link"):
        make_source("http://127.0.0.1:9", shares={who: ("service:rh",)})


# ---------------------------------------------------------------- access lists of group folders


@pytest.fixture
def team(peer: NextcloudPeer) -> NextcloudPeer:
    """A group folder ``Équipe`` with a subfolder and documents in both."""
    peer.put("Équipe/a.md", "# A\n")
    peer.put("Équipe/Paie/b.md", "# B\n")
    peer.put("Équipe/Paie/2026/c.md", "# C\n")
    peer.put("hors.md", "# Hors\n")
    peer.make_group_folder("Équipe")
    return peer


GRANTED = {"default": ("service:rh", "service:tous", "public")}


def test_who_may_not_read_loses_its_tag(team: NextcloudPeer) -> None:
    """In a folder and all below it, unless a rule there gives it back; public goes as well."""
    team.set_acl("Équipe/Paie", [("group", "tous", READ_MASK, 0)])
    team.set_acl("Équipe/Paie/2026/c.md", [("group", "tous", ALL, ALL)])
    listing = make_source(team.url, shares=SHARES, acl_list=True, acl=GRANTED).list()
    everything = ("public", "service:rh", "service:tous")
    assert tags(listing) == {
        "hors.md": everything,
        "Équipe/a.md": everything,
        "Équipe/Paie/b.md": ("service:rh",),
        "Équipe/Paie/2026/c.md": everything,
    }


def test_a_changed_access_list_is_noticed(team: NextcloudPeer) -> None:
    """Nextcloud gives the folders above new ETags; nothing is read again."""
    account = Account(team, shares=SHARES, acl_list=True, acl=GRANTED)
    team.set_acl("Équipe/Paie", [("group", "tous", READ_MASK, 0)])
    looked, listed = account.follow()
    assert looked == listed == {"PROPFIND 1": 2, "shares": 2}
    assert tags(account.listing)["Équipe/Paie/2026/c.md"] == ("service:rh",)
    team.set_acl("Équipe/Paie", [])
    account.follow()
    assert "public" in tags(account.listing)["Équipe/Paie/2026/c.md"]


def test_rules_above_a_configured_folder_count(team: NextcloudPeer) -> None:
    """The server tells what they come to."""
    team.set_acl("Équipe", [("group", "tous", READ_MASK, 0)])
    team.set_acl("Équipe/Paie", [("group", "rh", READ_MASK, 0)])
    settings = {"shares": SHARES, "acl_list": True, "acl": GRANTED}
    listing = make_source(team.url, folders=("Équipe/Paie/2026",), **settings).list()
    assert tags(listing) == {"Équipe/Paie/2026/c.md": ()}


def test_rules_about_other_rights_take_nothing_away(team: NextcloudPeer) -> None:
    """Who may not write may read."""
    team.set_acl("Équipe/Paie", [("group", "tous", 2, 0)])
    listing = make_source(team.url, shares=SHARES, acl_list=True, acl=GRANTED).list()
    assert "public" in tags(listing)["Équipe/Paie/b.md"]


def test_a_denial_for_somebody_unknown_leaves_nobody(team: NextcloudPeer) -> None:
    """Which tags he has is not known, so none can stay."""
    team.set_acl("Équipe/Paie", [("user", "ancien", READ_MASK, 0)])
    listing = make_source(team.url, shares=SHARES, acl_list=True, acl=GRANTED).list()
    assert tags(listing)["Équipe/Paie/b.md"] == ()
    assert "public" in tags(listing)["Équipe/a.md"]


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ({"enabled": False}, ("public", "service:rh", "service:tous")),
        ({"can_manage": False}, ()),
        ({"base": 0}, ("service:rh",)),
    ],
    ids=["rules are off", "rules are not shown", "nobody reads unless allowed"],
)
def test_what_the_group_folder_says_of_its_rules(
    peer: NextcloudPeer, folder: dict[str, Any], expected: tuple[str, ...]
) -> None:
    """Rules that the account is not shown could be any."""
    peer.put("Équipe/Paie/b.md", "# B\n")
    peer.make_group_folder("Équipe", **folder)
    peer.set_acl("Équipe/Paie", [("group", "rh", READ_MASK, 1), ("group", "tous", READ_MASK, 0)])
    listing = make_source(peer.url, shares=SHARES, acl_list=True, acl=GRANTED).list()
    assert tags(listing)["Équipe/Paie/b.md"] == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"<nc:acl-mask>1</nc:acl-mask>", b"<nc:acl-mask>x</nc:acl-mask>"),
        (b"<nc:acl-mapping-id>tous</nc:acl-mapping-id>", b""),
        (b"HTTP/1.1 404 Not Found", b"HTTP/1.1 403 Forbidden"),
    ],
)
def test_rules_that_cannot_be_read_leave_nobody(
    team: NextcloudPeer, old: bytes, new: bytes
) -> None:
    """An access list with a fault in it is not one without that rule."""
    from dataclasses import replace

    team.set_acl("Équipe/Paie", [("group", "tous", READ_MASK, 1)])

    def distort(exchange: Exchange) -> None:
        answer = exchange.forward()
        exchange.respond(replace(answer, body=answer.body.replace(old, new)))

    rule = Rule(Fault("acl", "distorts", "must_heal", distort), When("PROPFIND .*quipe"))
    with FaultProxy(team.url, [rule]) as proxy:
        listing = make_source(proxy.url, shares=SHARES, acl_list=True, acl=GRANTED).list()
    assert tags(listing)["Équipe/Paie/b.md"] == ()


# ---------------------------------------------------------------- laws

PRINCIPALS = st.sampled_from(["user:a", "user:b", "group:c", "group:d", "*", "?"])
ACLS = st.lists(st.tuples(PRINCIPALS, st.booleans()), max_size=4, unique_by=lambda r: r[0]).map(
    lambda rules: tuple(sorted(rules))
)
TAGS = st.sets(st.sampled_from(["public", "a", "b", "c", "x"]))
MAPPING = {"user:a": ("a",), "user:b": ("b", "x"), "group:c": ("c",)}


@given(TAGS, ACLS)
def test_access_rules_only_take_away(granted: set[str], acl: tuple[tuple[str, bool], ...]) -> None:
    """Whatever they say; and whoever is denied keeps none of his tags, nor does everybody."""
    kept = narrowed(granted, acl, MAPPING)
    assert set(kept) <= granted
    assert list(kept) == sorted(set(kept))
    for principal, may in acl:
        if not may:
            assert "public" not in kept
            assert not set(MAPPING.get(principal, kept if principal != "*" else ())) & set(kept)


@given(ACLS, ACLS)
def test_the_nearest_rule_decides(above: tuple[Any, ...], own: tuple[Any, ...]) -> None:
    """For each principal on its own; without rules of its own an entry has those above."""
    rules = dict(combined(above, own))
    assert rules == {**dict(above), **dict(own)}

"""A source over a plain WebDAV server, which knows neither fileids nor ETags of folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_assets.errors import IncompleteEnumeration
from rag_assets.models import SourceListing
from rag_assets.sources.base import SourceContext
from rag_assets_tests.fault_proxy import Exchange, Fault, FaultProxy, Rule, When
from rag_assets_tests.peers.wsgidav_server import PASSWORD, WsgidavPeer, wsgidav_peer

from .nextcloud_account import VARIABLE, essence, known, make_source


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, PASSWORD)


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[WsgidavPeer]:
    """wsgidav over a folder with four documents."""
    with wsgidav_peer(tmp_path) as running:
        running.write("Guides/Été à la mer + 100 %#1?.md", "# L'été\n")
        running.write("Guides/Réseau/dns.md", "# DNS\n")
        running.write("Guides/photo.jpg", b"\xff\xd8")
        running.write("a.md", "# A\n")
        running.write("Legacy/b.md", "# B\n")
        yield running


def again(peer: WsgidavPeer, before: SourceListing) -> SourceListing:
    """The next listing, which must be as one from nothing."""
    source = make_source(peer.url, SourceContext(last_look=before.look_state))
    changes = source.look(before.look_state)
    peer.requests.clear()
    listing = source.list(known(before))
    counted = peer.requests.copy()
    fresh = make_source(peer.url).list()
    assert essence(listing) == essence(fresh)
    assert bool(changes) == (essence(listing) != essence(before))
    peer.requests.clear()
    peer.requests.update(counted)
    return listing


def test_documents_are_listed_and_read(peer: WsgidavPeer) -> None:
    """With the address that the server itself has for them."""
    listing = make_source(peer.url).list()
    assert sorted(known(listing)) == [
        "Guides/Réseau/dns.md",
        "Guides/Été à la mer + 100 %#1?.md",
        "a.md",
    ]
    file = known(listing)["Guides/Été à la mer + 100 %#1?.md"]
    assert file.content.decode() == "# L'été\n"
    assert file.url == (
        f"{peer.url}/remote.php/dav/files/indexeur/Guides/"
        "%C3%89t%C3%A9%20%C3%A0%20la%20mer%20%2B%20100%20%25%231%3F.md"
    )
    assert [row.path for row in listing.left_out] == ["Legacy/"]
    assert listing.other_files == 1


def test_every_change_is_seen_by_a_walk(peer: WsgidavPeer) -> None:
    """Each look lists every folder once; only what changed is read."""
    listing = make_source(peer.url).list()
    listing = again(peer, listing)
    assert peer.requests == {"PROPFIND 1": 3}

    peer.write("Guides/Réseau/nouveau.md", "# Nouveau\n")
    listing = again(peer, listing)
    assert peer.requests == {"PROPFIND 1": 3, "GET": 1}

    peer.write("a.md", "# A, changed\n")
    listing = again(peer, listing)
    assert peer.requests == {"PROPFIND 1": 3, "GET": 1}

    (peer.folder / "a.md").rename(peer.folder / "Guides/b.md")
    listing = again(peer, listing)
    assert known(listing)["Guides/b.md"].content.decode() == "# A, changed\n"

    (peer.folder / "Guides/b.md").unlink()
    listing = again(peer, listing)
    # What is missing is missing from two walks.
    assert peer.requests == {"PROPFIND 1": 6}
    assert len(listing.files) == 3

    (peer.folder / "Guides").rename(peer.folder / "Handbuch")
    listing = again(peer, listing)
    assert peer.requests == {"PROPFIND 1": 6, "GET": 3}


def test_what_moves_while_folders_are_listed_is_not_missed(peer: WsgidavPeer) -> None:
    """Missing documents are looked for once more before they count as removed."""
    with FaultProxy(peer.url) as proxy:
        before = make_source(proxy.url).list()

        def move(exchange: Exchange) -> None:
            (peer.folder / "Guides/Réseau/dns.md").rename(peer.folder / "dns.md")
            exchange.respond(exchange.forward())

        fault = Fault("move", "moves a document", "must_heal", move)
        proxy.rules.append(Rule(fault, When("PROPFIND .*R%C3%A9seau$", count=1)))
        context = SourceContext(last_look=before.look_state)
        listing = make_source(proxy.url, context).list(known(before))
    assert "dns.md" in known(listing)
    assert len(listing.files) == 3


def test_a_folder_without_end_is_an_error_or_ends(peer: WsgidavPeer) -> None:
    """A server that shows each folder in itself, with nothing to tell them apart."""
    peer.write("boucle/x.md", "# X\n")

    def loop(exchange: Exchange) -> None:
        target = exchange.request.target
        top = "/remote.php/dav/files/indexeur/boucle"
        depth = target.removeprefix(top)
        answer = exchange.forward(top)
        body = answer.body.replace(f"{top}/".encode(), f"{top}{depth}/".encode())
        inner = (
            f"<ns0:response><ns0:href>{top}{depth}/encore/</ns0:href><ns0:propstat><ns0:prop>"
            "<ns0:resourcetype><ns0:collection/></ns0:resourcetype></ns0:prop>"
            "<ns0:status>HTTP/1.1 200 OK</ns0:status></ns0:propstat></ns0:response>"
        )
        from dataclasses import replace

        end = b"</ns0:multistatus>"
        exchange.respond(replace(answer, body=body.replace(end, inner.encode() + end)))

    rule = Rule(Fault("loop", "loops", "must_fail", loop), When("PROPFIND .*/boucle"))
    with FaultProxy(peer.url, [rule]) as proxy:
        source = make_source(proxy.url, folders=("boucle",))
        with pytest.raises(IncompleteEnumeration, match="folders inside each other"):
            source.list()
    assert len(proxy.requests) < 200


def test_a_change_within_the_second_is_seen_by_its_length(peer: WsgidavPeer) -> None:
    """The ETag of such a server is made of time and length."""
    listing = make_source(peer.url).list()
    file = peer.folder / "a.md"
    moment = file.stat().st_mtime_ns
    file.write_bytes(b"# A, longer\n")
    os.utime(file, ns=(moment, moment))
    listing = again(peer, listing)
    assert known(listing)["a.md"].content == b"# A, longer\n"

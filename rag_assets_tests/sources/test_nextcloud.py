"""What a listing of a Nextcloud yields and what it costs, against sabre/dav under PHP."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rag_assets.errors import ConfigurationError, IncompleteEnumeration, SourceUnavailable
from rag_assets.models import SourceFile
from rag_assets.sources.base import Source, SourceContext
from rag_assets.sources.journal import Journal
from rag_assets.sources.shards import Shard
from rag_assets_tests.fault_proxy import Exchange, Fault, FaultProxy, Rule, When
from rag_assets_tests.peers.nextcloud import (
    PASSWORD,
    USER,
    NextcloudPeer,
    nextcloud_peer,
    require_nextcloud_peer,
)

from .nextcloud_account import (
    VARIABLE,
    Account,
    change_at_random,
    essence,
    known,
    make_source,
    reasons,
)

CHANGE_ROUNDS = 10


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, PASSWORD)


@pytest.fixture
def peer() -> Iterator[NextcloudPeer]:
    """A running Nextcloud in small, with the two accounts and nothing in it."""
    require_nextcloud_peer()
    with nextcloud_peer() as running:
        yield running


def fill(peer: NextcloudPeer) -> None:
    """A few documents in French and English."""
    peer.put("Bienvenue.md", "# Bienvenue\n\nL'accueil du site.\n")
    peer.put("Guides/Réseau/Été à la mer.md", "# L'été\n\nLe pare-feu est fermé.\n")
    peer.put("Guides/Réseau/dns.markdown", "# DNS\n\nOpen a ticket first.\n")
    peer.put("Guides/imprimante.md", "# Imprimante\n\nLe cœur du réseau.\n")
    peer.put("Guides/photo.jpg", b"\xff\xd8")
    peer.put("Équipe/notes.md", "# Notes\n")


def test_it_is_a_source(peer: NextcloudPeer) -> None:
    """The contract that the pipeline relies on."""
    assert isinstance(make_source(peer.url), Source)


def test_a_document_carries_what_later_stages_need(peer: NextcloudPeer) -> None:
    """Bytes as they are, a URL that opens the file, time in UTC, tags, media type."""
    fill(peer)
    listing = make_source(peer.url).list()
    assert sorted(known(listing)) == [
        "Bienvenue.md",
        "Guides/Réseau/dns.markdown",
        "Guides/Réseau/Été à la mer.md",
        "Guides/imprimante.md",
        "Équipe/notes.md",
    ]
    file = known(listing)["Guides/Réseau/Été à la mer.md"]
    assert file.content.decode() == "# L'été\n\nLe pare-feu est fermé.\n"
    fileid = peer.fileid(file.path)
    assert file.url == f"{peer.url}/f/{fileid}"
    assert file.version == f"{fileid}:{peer.etag(file.path)}"
    assert file.acl_tags == ("public",)
    assert file.media_type == "text/markdown"
    assert file.modified_at is not None
    assert file.modified_at.endswith("Z")
    assert listing.other_files == 1
    assert listing.read == 5


@pytest.mark.parametrize(
    "name",
    [
        "Été à l'œuvre — n° 3.md",
        "a+b & c=d.md",
        "100 % sûr %20.md",
        "quoi ? #1.md",
        "[crochets] {et} (autres);,~!$*.md",
        "日本語 🎉.md",
        "e\u0301te\u0301 NFD.md",
        "\\backslash\"'<b>.md",
        ".caché.md",
        " espace au début.md",
        "MAJUSCULES.MD",
    ],
)
def test_any_name_is_listed_and_read(peer: NextcloudPeer, name: str) -> None:
    """Whatever a name has to be encoded to on the way, in folders as in files."""
    peer.put(f"{name}.d/{name}", f"# {name}\n")
    listing = make_source(peer.url).list()
    assert [file.path for file in listing.files] == [f"{name}.d/{name}"]
    assert listing.files[0].content.decode() == f"# {name}\n"


def test_a_server_below_a_path_of_its_host(tmp_path: Path) -> None:
    """Addresses with a path, such as https://example.org/cloud, are nothing special."""
    require_nextcloud_peer()
    with nextcloud_peer("/nuage/cloud") as peer:
        fill(peer)
        listing = make_source(peer.url + "/").list()
        assert len(listing.files) == 5
        assert listing.files[0].url.startswith(f"{peer.url}/f/")


def test_only_configured_folders_are_listed(peer: NextcloudPeer) -> None:
    """Paths keep the folder's name; others are not asked for."""
    fill(peer)
    peer.forget_requests()
    listing = make_source(peer.url, folders=("Guides/Réseau/", "Équipe")).list()
    assert sorted(known(listing)) == [
        "Guides/Réseau/dns.markdown",
        "Guides/Réseau/Été à la mer.md",
        "Équipe/notes.md",
    ]
    assert not any("imprimante" in line for line in peer.request_lines())


def test_a_configured_folder_that_is_missing_is_an_error(peer: NextcloudPeer) -> None:
    """A folder that was renamed or no longer shared is not an empty one."""
    fill(peer)
    with pytest.raises(SourceUnavailable, match=r"nuage.*'Guide' is not there.*folders"):
        make_source(peer.url, folders=("Guide",)).list()
    with pytest.raises(IncompleteEnumeration, match="is a file, not a folder"):
        make_source(peer.url, folders=("Bienvenue.md",)).list()


@pytest.mark.parametrize("folders", [("a", "a/b"), ("a", "./a/"), (".", "a")])
def test_folders_inside_each_other_are_refused(
    folders: tuple[str, ...],
) -> None:
    """Their documents would be there twice."""
    with pytest.raises(ConfigurationError, match="lies in"):
        make_source("http://127.0.0.1:9", folders=folders)


def test_office_files_are_documents_only_when_asked_for(peer: NextcloudPeer) -> None:
    """By default they are counted as other files."""
    names = {
        "contrat.docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "note.odt": "application/vnd.oasis.opendocument.text",
        "plan.PDF": "application/pdf",
        "page.html": "text/html",
        "vieux.htm": "text/html",
        "a.md": "text/markdown",
    }
    for name in names:
        peer.put(name, "x")
    assert make_source(peer.url).list().other_files == 5
    listing = make_source(peer.url, office=True).list()
    assert {f.path: f.media_type for f in listing.files} == names
    assert listing.other_files == 0


# ---------------------------------------------------------------- changes


def test_an_unchanged_account_costs_one_request(peer: NextcloudPeer) -> None:
    """The ETag of the root says that nothing changed anywhere."""
    fill(peer)
    account = Account(peer)
    looked, listed = account.follow()
    assert looked == listed == {"PROPFIND 1": 1}


def test_an_added_document(peer: NextcloudPeer) -> None:
    """The folders on the way to it are listed, and it is read."""
    fill(peer)
    account = Account(peer)
    peer.put("Guides/Réseau/nouveau.md", "# Nouveau\n")
    looked, listed = account.follow()
    assert looked == {"PROPFIND 1": 3}
    assert listed == {"PROPFIND 1": 3, "GET": 1}
    assert account.text("Guides/Réseau/nouveau.md") == "# Nouveau\n"


def test_a_changed_document(peer: NextcloudPeer) -> None:
    """Likewise; other documents are not read again."""
    fill(peer)
    account = Account(peer)
    peer.put("Guides/Réseau/dns.markdown", "# DNS\n\nChanged.\n")
    looked, listed = account.follow()
    assert looked == {"PROPFIND 1": 3}
    assert listed == {"PROPFIND 1": 3, "GET": 1}
    assert account.text("Guides/Réseau/dns.markdown") == "# DNS\n\nChanged.\n"


def test_a_renamed_document_is_not_read_again(peer: NextcloudPeer) -> None:
    """Its fileid and ETag stay."""
    fill(peer)
    account = Account(peer)
    peer.move("Guides/imprimante.md", "Guides/imprimantes.md")
    _, listed = account.follow()
    assert listed == {"PROPFIND 1": 2}
    assert "Guides/imprimantes.md" in known(account.listing)
    assert "Guides/imprimante.md" not in known(account.listing)


def test_a_moved_document_is_not_read_again(peer: NextcloudPeer) -> None:
    """Into another folder, under another name."""
    fill(peer)
    account = Account(peer)
    peer.move("Guides/Réseau/dns.markdown", "Équipe/dns.md")
    _, listed = account.follow()
    assert listed == {"PROPFIND 1": 4}
    assert account.text("Équipe/dns.md") == "# DNS\n\nOpen a ticket first.\n"


def test_a_moved_folder_costs_the_folders_above_it(peer: NextcloudPeer) -> None:
    """A hundred documents in it are neither listed nor read again."""
    peer.fill("Archives", folders=4, files=25)
    peer.make_folder("Guides")
    account = Account(peer)
    assert len(account.listing.files) == 100
    peer.move("Archives", "Guides/Anciennes archives")
    looked, listed = account.follow()
    assert looked == listed == {"PROPFIND 1": 2}
    assert len(account.listing.files) == 100
    assert all(f.path.startswith("Guides/Anciennes archives/") for f in account.listing.files)


def test_deleted_documents_and_folders(peer: NextcloudPeer) -> None:
    """They are gone from the listing, at the cost of the folders above them."""
    fill(peer)
    account = Account(peer)
    peer.delete("Guides/imprimante.md")
    _, listed = account.follow()
    assert listed == {"PROPFIND 1": 2}
    peer.delete("Guides/Réseau")
    _, listed = account.follow()
    assert listed == {"PROPFIND 1": 2}
    assert sorted(known(account.listing)) == ["Bienvenue.md", "Équipe/notes.md"]


def test_a_document_replaced_by_a_folder_of_the_same_name(peer: NextcloudPeer) -> None:
    """A folder is no document, whatever its name."""
    peer.put("a.md", "# A\n")
    account = Account(peer)
    peer.delete("a.md")
    peer.put("a.md/b.md", "# B\n")
    account.follow()
    assert list(known(account.listing)) == ["a.md/b.md"]


@pytest.mark.parametrize("seed", range(2))
def test_after_any_changes_the_listing_is_as_from_nothing(peer: NextcloudPeer, seed: int) -> None:
    """Random additions, changes, moves and removals, one to three between two listings."""
    draw = random.Random(seed)
    fill(peer)
    account = Account(peer)
    for _ in range(CHANGE_ROUNDS):
        for _ in range(draw.randint(1, 3)):
            change_at_random(peer, draw)
        account.follow()


# ---------------------------------------------------------------- full walks


def test_a_full_walk_is_due_after_the_configured_time(peer: NextcloudPeer) -> None:
    """Then a look asks for a listing, which lists every folder and remembers when it did."""
    fill(peer)
    now = [1_800_000_000.0]
    first = make_source(peer.url, clock=lambda: now[0]).list()
    now[0] += 25 * 3600
    context = SourceContext(last_look=first.look_state)
    later = make_source(peer.url, context, clock=lambda: now[0])
    peer.forget_requests()
    assert later.look(first.look_state).unknown
    assert not peer.requests()
    again = later.list(known(first))
    assert peer.requests() == {"PROPFIND 1": 4}
    assert essence(again) == essence(first)
    now[0] += 3600
    assert not later.look(again.look_state)


def test_with_no_time_between_full_walks_every_look_is_one(peer: NextcloudPeer) -> None:
    """And it does not ask for a listing when nothing changed."""
    fill(peer)
    account = Account(peer, full_walk_hours=0)
    looked, listed = account.follow()
    assert looked == listed == {"PROPFIND 1": 4}


def test_a_state_that_cannot_be_read_is_no_state(peer: NextcloudPeer) -> None:
    """Then every folder is listed, and no document is read again."""
    fill(peer)
    first = make_source(peer.url).list()
    damaged = {**first.look_state, "state": {**first.look_state["state"], "folders": {"1": [1]}}}
    peer.forget_requests()
    again = make_source(peer.url, SourceContext(last_look=damaged)).list(known(first))
    assert peer.requests() == {"PROPFIND 1": 4}
    assert essence(again) == essence(first)


# ---------------------------------------------------------------- governance


def test_what_rules_exclude_is_never_asked_for(peer: NextcloudPeer) -> None:
    """Folders are reported once and not entered; every rule says which it is."""
    fill(peer)
    peer.put("Guides/Legacy/vieux.md", "# Canari legacy\n")
    peer.put("Guides/SCRATCH.md", "# Canari scratch\n")
    peer.put("passbolt/export.md", "# Canari passbolt\n")
    peer.put("Passbolt.md", "# Canari passbolt\n")
    peer.put("Privé/secret.md", "# Canari privé\n")
    peer.forget_requests()
    listing = make_source(peer.url, excluded_paths=("Privé/",)).list()
    assert reasons(listing) == {
        "Guides/Legacy/": "hard_exclusion",
        "Guides/SCRATCH.md": "hard_exclusion",
        "Passbolt.md": "hard_exclusion",
        "passbolt/": "hard_exclusion",
        "Privé/": "excluded_paths",
    }
    asked = "".join(peer.request_lines()).lower()
    assert not any(word in asked for word in ("legacy", "scratch", "passbolt", "priv%c3%a9"))


def test_included_paths_are_a_strict_list(peer: NextcloudPeer) -> None:
    """Only folders on the way to them are entered."""
    fill(peer)
    listing = make_source(peer.url, included_paths=("Guides/Réseau",)).list()
    assert sorted(known(listing)) == ["Guides/Réseau/dns.markdown", "Guides/Réseau/Été à la mer.md"]
    assert reasons(listing)["Équipe/"] == "not_included"


def test_a_configured_folder_below_an_excluded_name(peer: NextcloudPeer) -> None:
    """Naming it in folders does not lift a rule."""
    peer.put("Legacy/docs/a.md", "# A\n")
    peer.put("b/b.md", "# B\n")
    listing = make_source(peer.url, folders=("Legacy/docs", "b")).list()
    assert list(known(listing)) == ["b/b.md"]
    assert reasons(listing) == {"Legacy/docs/": "hard_exclusion"}


def test_the_ignore_file_applies_below_its_folder(peer: NextcloudPeer) -> None:
    """Patterns are those of git; the rule that decides is named with file and line."""
    fill(peer)
    peer.put("Guides/.aiignore", "# brouillons\nbrouillon*.md\n/Réseau/\n!brouillon-ok.md\n")
    peer.put("Guides/brouillon 1.md", "# Brouillon\n")
    peer.put("Guides/brouillon-ok.md", "# Lisible\n")
    peer.put("Équipe/brouillon.md", "# Équipe\n")
    listing = make_source(peer.url, folders=("Guides", "Équipe")).list()
    assert sorted(known(listing)) == [
        "Guides/brouillon-ok.md",
        "Guides/imprimante.md",
        "Équipe/brouillon.md",
        "Équipe/notes.md",
    ]
    rows = {row.path: (row.rule, row.rule_file, row.rule_line) for row in listing.left_out}
    assert rows == {
        "Guides/Réseau/": ("/Réseau/", "Guides/.aiignore", 3),
        "Guides/brouillon 1.md": ("brouillon*.md", "Guides/.aiignore", 2),
    }


def test_a_changed_ignore_file_is_followed(peer: NextcloudPeer) -> None:
    """It is read when it changed and not otherwise; what it let go is listed from then on."""
    fill(peer)
    peer.put(".aiignore", "Guides/\n")
    account = Account(peer)
    assert sorted(known(account.listing)) == ["Bienvenue.md", "Équipe/notes.md"]
    looked, _ = account.follow()
    assert looked == {"PROPFIND 1": 1}
    peer.put(".aiignore", "Équipe/\n")
    looked, listed = account.follow()
    assert looked == {"PROPFIND 1": 3, "GET": 1}
    assert listed == {"PROPFIND 1": 3, "GET": 4}
    assert "Guides/imprimante.md" in known(account.listing)
    peer.delete(".aiignore")
    account.follow()
    assert len(account.listing.files) == 5


@pytest.mark.parametrize("text", [b"caf\xe9/\n", b"x/\n" * 400_000], ids=["latin-1", "huge"])
def test_an_ignore_file_that_cannot_be_used_is_an_error(peer: NextcloudPeer, text: bytes) -> None:
    """What it might have excluded is not published."""
    fill(peer)
    peer.put(".aiignore", text)
    with pytest.raises(ConfigurationError, match=r"nuage: \.aiignore cannot be used"):
        make_source(peer.url).list()


def test_explain_names_the_rule(peer: NextcloudPeer) -> None:
    """Also one of the ignore file, and one for the folder above."""
    fill(peer)
    peer.put(".aiignore", "Guides/Réseau/\n")
    source = make_source(peer.url)
    row = source.explain("Guides/Réseau/dns.markdown")
    assert row is not None
    assert (row.reason, row.rule, row.rule_file) == ("aiignore", "Guides/Réseau/", ".aiignore")
    assert source.explain("Bienvenue.md") is None


def test_too_large_and_unsafe_files_are_left_out_with_a_reason(peer: NextcloudPeer) -> None:
    """Neither is asked for."""
    fill(peer)
    peer.put("gros.md", b"x" * 2000)
    peer.put("mauvais\u202e.md", "# X\n")
    peer.put("mauvais\u2066/a.md", "# X\n")
    peer.forget_requests()
    listing = make_source(peer.url, max_file_bytes=1000).list()
    assert reasons(listing) == {
        "gros.md": "too_large",
        "mauvais\\u202e.md": "unsafe_name",
        "mauvais\\u2066/": "unsafe_name",
    }
    assert peer.requests()["GET"] == 5


def test_a_document_that_may_not_be_read_is_left_out(peer: NextcloudPeer) -> None:
    """One of them: it is reported. All of them: that is the account's fault, and an error."""
    fill(peer)
    peer.forbid("Bienvenue.md")
    listing = make_source(peer.url).list()
    assert reasons(listing) == {"Bienvenue.md": "unreadable"}
    for path in known(listing):
        peer.forbid(path)
    with pytest.raises(SourceUnavailable, match="none of the 5 documents"):
        make_source(peer.url).list()


def test_shards_share_the_documents_among_them(peer: NextcloudPeer) -> None:
    """Each document is in exactly one, wherever it moves to."""
    peer.fill("Fiches", folders=2, files=10)
    peer.make_folder("Autres")

    def shard(index: int, last: dict[int, object] | None = None) -> dict[str, SourceFile]:
        state = (last or {}).get(index)
        context = SourceContext(shard=Shard(index, 3), last_look=state)  # type: ignore[arg-type]
        held = before[index] if last else None
        listing = make_source(peer.url, context).list(held)
        states[index] = listing.look_state
        return known(listing)

    states: dict[int, object] = {}
    before: dict[int, dict[str, SourceFile]] = {}
    for index in range(3):
        before[index] = shard(index)
    assert sorted(path for part in before.values() for path in part) == sorted(
        known(make_source(peer.url).list())
    )
    peer.move("Fiches", "Autres/Fiches déplacées")
    after = [shard(index, dict(states)) for index in range(3)]
    paths = sorted(path for part in after for path in part)
    assert paths == sorted(known(make_source(peer.url).list()))
    assert len(paths) == len(set(paths)) == 20


# ---------------------------------------------------------------- interrupted, hostile, secret


def test_an_interrupted_listing_goes_on_where_it_stopped(
    peer: NextcloudPeer, tmp_path: Path
) -> None:
    """What was read is not read again."""
    peer.fill("Fiches", folders=2, files=10)

    def attempt(url: str) -> int:
        context = SourceContext(journal=Journal(tmp_path / "journal"))
        return len(make_source(url, context, concurrency=1).list().files)

    cut = Fault("cut", "closes", "must_fail", Exchange.close)
    with FaultProxy(peer.url, [Rule(cut, When("^GET ", first=13))]) as proxy:
        with pytest.raises(SourceUnavailable):
            attempt(proxy.url)
        proxy.rules.clear()
        peer.forget_requests()
        assert attempt(proxy.url) == 20
    assert peer.requests()["GET"] == 8


@pytest.mark.parametrize("from_memory", [False, True], ids=["first listing", "from memory"])
def test_what_moves_while_folders_are_listed_is_not_missed(
    peer: NextcloudPeer, from_memory: bool
) -> None:
    """From a folder that is still to be listed into one that has been, or is remembered."""
    peer.fill("A", folders=1, files=3)
    peer.fill("B", folders=1, files=3)

    def move(exchange: Exchange) -> None:
        peer.move("B/dossier-000/fiche-001.md", "A/dossier-000/fiche-999.md")
        exchange.respond(exchange.forward())

    fault = Fault("move", "moves a document", "must_heal", move)
    with FaultProxy(peer.url) as proxy:
        first = make_source(proxy.url).list()
        peer.put("B/dossier-000/fiche-002.md", "# Changé\n")
        proxy.rules.append(Rule(fault, When("PROPFIND .*/B/dossier-000$", count=1)))
        context = SourceContext(last_look=first.look_state if from_memory else None)
        listing = make_source(proxy.url, context, concurrency=1).list(known(first))
    assert proxy.rules[0].fired == 1
    assert len(listing.files) == 6
    assert "A/dossier-000/fiche-999.md" in known(listing)


def test_what_moves_between_configured_folders_is_not_missed(peer: NextcloudPeer) -> None:
    """No folder above both shows it, so they are looked at again."""
    peer.put("A/1.md", "# 1\n")
    peer.put("B/2.md", "# 2\n")

    def move(exchange: Exchange) -> None:
        peer.move("B/2.md", "A/2.md")
        exchange.respond(exchange.forward())

    fault = Fault("move", "moves a document", "must_heal", move)
    rule = Rule(fault, When("PROPFIND .*/B$", count=1))
    with FaultProxy(peer.url, [rule]) as proxy:
        listing = make_source(proxy.url, folders=("A", "B")).list()
    assert sorted(known(listing)) == ["A/1.md", "A/2.md"]


def test_a_folder_that_vanishes_while_it_is_listed(peer: NextcloudPeer) -> None:
    """The walk is done again, and is right."""
    fill(peer)

    def remove(exchange: Exchange) -> None:
        peer.delete("Guides/Réseau")
        exchange.respond(exchange.forward())

    fault = Fault("remove", "removes a folder", "must_heal", remove)
    rule = Rule(fault, When("PROPFIND .*R%C3%A9seau$", count=1))
    with FaultProxy(peer.url, [rule]) as proxy:
        listing = make_source(proxy.url).list()
    assert sorted(known(listing)) == ["Bienvenue.md", "Guides/imprimante.md", "Équipe/notes.md"]


def test_folders_that_never_stand_still_are_an_error(peer: NextcloudPeer) -> None:
    """After five passes the listing gives up, and nothing is lost."""
    fill(peer)

    def change(exchange: Exchange) -> None:
        peer.put("Guides/Réseau/dns.markdown", str(random.random()))
        exchange.respond(exchange.forward())

    rule = Rule(Fault("change", "changes", "must_fail", change), When("PROPFIND .*/Guides$"))
    with (
        FaultProxy(peer.url, [rule]) as proxy,
        pytest.raises(IncompleteEnumeration, match=r"changed all the while.*nothing was removed"),
    ):
        make_source(proxy.url).list()


def test_a_document_that_changes_before_it_is_read(peer: NextcloudPeer) -> None:
    """Content and version are those of the change; the next listing does not read it again."""
    fill(peer)

    def change(exchange: Exchange) -> None:
        peer.put("Bienvenue.md", "# Changé entre-temps\n")
        exchange.respond(exchange.forward())

    rule = Rule(
        Fault("change", "changes", "must_heal", change), When("GET .*/Bienvenue.md", count=1)
    )
    with FaultProxy(peer.url, [rule]) as proxy:
        listing = make_source(proxy.url).list()
    file = known(listing)["Bienvenue.md"]
    assert file.content.decode() == "# Changé entre-temps\n"
    assert file.version == f"{peer.fileid('Bienvenue.md')}:{peer.etag('Bienvenue.md')}"
    peer.forget_requests()
    again = make_source(peer.url, SourceContext(last_look=listing.look_state)).list(known(listing))
    assert peer.requests()["GET"] == 0
    assert known(again)["Bienvenue.md"].content == file.content


@pytest.mark.parametrize("etag", ["", '"page-de-connexion"'], ids=["no ETag", "an ETag"])
def test_a_login_page_is_never_taken_for_a_document(peer: NextcloudPeer, etag: str) -> None:
    """Whatever its status and headers say."""
    fill(peer)

    def log_in(exchange: Exchange) -> None:
        answer = exchange.forward()
        page = b"<!DOCTYPE html><html><body><form>Connexion</form></body></html>"
        answer = replace(answer.with_header("Content-Type", "text/html"), status=200, body=page)
        exchange.respond(answer.with_header("ETag", etag))

    for pattern in ("GET .*imprimante", "PROPFIND .*Guides$", "PROPFIND"):
        rule = Rule(Fault("login", "a page", "must_fail", log_in), When(pattern))
        with (
            FaultProxy(peer.url, [rule]) as proxy,
            pytest.raises(IncompleteEnumeration, match=r"login page.*|ETag or length"),
        ):
            make_source(proxy.url).list()


def test_a_folder_that_contains_itself_is_an_error(peer: NextcloudPeer) -> None:
    """A server that makes up folders does not keep the walk going for ever."""
    fill(peer)
    fileid = str(peer.fileid("Guides")).encode()
    inner = str(peer.fileid("Guides/Réseau")).encode()

    def loop(exchange: Exchange) -> None:
        answer = exchange.forward()
        body = answer.body.replace(b"fileid>" + inner + b"<", b"fileid>" + fileid + b"<")
        exchange.respond(replace(answer, body=body))

    rule = Rule(Fault("loop", "loops", "must_fail", loop), When("PROPFIND"))
    with (
        FaultProxy(peer.url, [rule]) as proxy,
        pytest.raises(IncompleteEnumeration, match="contains itself"),
    ):
        make_source(proxy.url).list()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"/files/indexeur/Guides/R", b"/files/marie/Guides/R"),
        (b"/files/indexeur/Guides/imprimante.md<", b"/files/indexeur/Guides/a/b.md<"),
        (b"/files/indexeur/Guides/imprimante.md<", b"/files/indexeur/Guides/..%2f..%2fx.md<"),
        (b"/files/indexeur/Guides/imprimante.md<", b"/files/indexeur/Guides/../x.md<"),
        (b"/files/indexeur/Guides/imprimante.md<", b"/files/indexeur/Guides/photo.jpg<"),
        (b"/files/indexeur/Guides/<", b"/files/indexeur/Autre/<"),
        (b"<d:resourcetype/>", b""),
        (b"HTTP/1.1 200 OK", b"HTTP/1.1 500 Oops"),
        (b"<d:multistatus", b"<d:multistat"),
        (b"</d:multistatus>", b""),
        (b"<?xml ", b'<!DOCTYPE a [<!ENTITY b "c">]><?xml '),
    ],
)
def test_a_listing_that_cannot_be_is_an_error(peer: NextcloudPeer, old: bytes, new: bytes) -> None:
    """Entries of elsewhere, entries twice, no status, cut XML: never a shorter listing."""
    fill(peer)

    def distort(exchange: Exchange) -> None:
        answer = exchange.forward()
        assert old in answer.body
        exchange.respond(replace(answer, body=answer.body.replace(old, new)))

    rule = Rule(Fault("distort", "distorts", "must_fail", distort), When("PROPFIND .*Guides$"))
    with (
        FaultProxy(peer.url, [rule]) as proxy,
        pytest.raises(
            IncompleteEnumeration, match=r"nuage: PROPFIND .*Guides.*nothing was removed"
        ),
    ):
        make_source(proxy.url).list()


def test_absolute_hrefs_and_either_case_of_encoding(peer: NextcloudPeer) -> None:
    """Only the path of an href counts, and it counts decoded."""
    fill(peer)

    def rewrite(exchange: Exchange) -> None:
        answer = exchange.forward()
        body = answer.body.replace(b"<d:href>/", b"<d:href>https://interne.example:8443/")
        exchange.respond(replace(answer, body=body.replace(b"%c3%a9", b"%C3%A9")))

    rule = Rule(Fault("rewrite", "rewrites", "must_heal", rewrite), When("PROPFIND"))
    with FaultProxy(peer.url, [rule]) as proxy:
        listing = make_source(proxy.url).list()
    assert sorted(known(listing)) == sorted(known(make_source(peer.url).list()))
    assert "interne" not in "".join(file.url for file in listing.files)


def test_the_password_stands_in_no_message(
    peer: NextcloudPeer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong one is an error that says what to do and shows nothing."""
    fill(peer)
    canary = "canari-secret-4711-xyz"
    monkeypatch.setenv(VARIABLE, canary)
    caplog.set_level(0)
    source = make_source(peer.url)
    with pytest.raises(SourceUnavailable, match=r"nuage.*401.*make a new one") as caught:
        source.list()
    shown = repr(caught.value) + repr(source) + repr(vars(source)) + caplog.text
    assert canary not in shown
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(ConfigurationError, match=rf"sources\.nuage\.password.*{VARIABLE}"):
        make_source(peer.url)


def test_files_of_another_account_are_not_there(peer: NextcloudPeer) -> None:
    """A user name that is not the password's is an error, not an empty listing."""
    peer.put("a.md", "# A\n", user="marie")
    assert not make_source(peer.url).list().files
    with pytest.raises(SourceUnavailable, match="401"):
        make_source(peer.url, user="marie").list()
    assert USER != "marie"

"""What every ``Source`` must do, as tests: subclass, override two fixtures, run pytest."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

import pytest

from rag_assets.acl import AclRule, AclRules
from rag_assets.errors import SourceError
from rag_assets.fingerprints import sha256_hex
from rag_assets.models import SourceFile, SourceListing
from rag_assets.sources.base import Source
from rag_assets.sources.shards import Shard

EVERYBODY: Final = AclRules(("public",))
CANARY: Final = "canari-qui-ne-doit-pas-sortir"
"""Stands in documents that no rule lets through."""
TEXTS: Final = {
    "guides/vpn.md": "# VPN\n\nL'été, le pare-feu de l'œuvre reste ouvert.\n",
    "guides/sauvegardes.md": "# Sauvegardes\n\nEvery night at two.\n",
    "rh/congés.md": "# Congés\n\nDemander «\u00a0à temps\u00a0».\n",
    "rh/paie/primes.md": "# Primes\n\nGrille des primes.\n",
    "accueil.md": "# Accueil\n\nLire d'abord ceci.\n",
}
"""By path, what is there at first: folders, accents, a folder in a folder."""
MODIFIED_AT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


class SourcePeer(Protocol):
    """Drives the system that the source reads: what people do there.

    Paths are as in ``TEXTS``. Each method gives the path under which the source must list the
    document, for systems that spell it otherwise. After each the system's own change marker must
    differ from before (a clock of whole seconds needs a second, or times that are set).
    """

    def add(self, path: str, text: str) -> str:
        """Create a document with this Markdown text."""
        ...

    def change(self, path: str, text: str) -> str:
        """Give a document another text."""
        ...

    def rename(self, path: str, new_path: str) -> str:
        """Move a document, its text untouched."""
        ...

    def delete(self, path: str) -> str:
        """Remove a document."""
        ...

    def stop(self) -> None:
        """Make the system unreachable, as when its server or its disk is gone."""
        ...


class MakeSource(Protocol):
    """Builds another source over the peer of this test."""

    def __call__(
        self,
        *,
        acl: AclRules = EVERYBODY,
        excluded_paths: Sequence[str] = (),
        included_paths: Sequence[str] = (),
        shard: Shard | None = None,
    ) -> Source:
        """A source with these settings, always of the same name."""
        ...


class SourceContract:
    """Tests of the promises in ``rag_assets.sources.base``.

    ::

        class TestMine(SourceContract):
            @pytest.fixture
            def peer(self, tmp_path):
                return MyPeer(tmp_path)  # a SourcePeer

            @pytest.fixture
            def make_source(self, peer):
                return lambda **settings: MySource("mine", peer.address, **settings)

    A peer may also have ``restrict(path) -> str``, after which fewer people may read a document
    in that system. What a source does not claim is switched off by a class attribute.
    """

    governs_paths: ClassVar[bool] = True
    """Whether the source takes ``excluded_paths`` and ``included_paths``. The hard exclusions hold
    in any case."""
    has_shards: ClassVar[bool] = True
    """Whether the source can be spread over partitions."""
    renames_without_reading: ClassVar[bool] = False
    """Whether a renamed document is carried over by its change marker."""

    @pytest.fixture
    def peer(self, tmp_path: Path) -> SourcePeer:
        """The system the source reads, empty at first; override this."""
        raise NotImplementedError("override the fixture `peer`")

    @pytest.fixture
    def make_source(self, peer: SourcePeer) -> MakeSource:
        """A function that builds the source under test; override this."""
        raise NotImplementedError("override the fixture `make_source`")

    # -- what a listing holds ----------------------------------------------------------------------

    def test_satisfies_the_protocol(self, make_source: MakeSource) -> None:
        """The object has every member of the contract, and a name."""
        source = make_source()
        assert isinstance(source, Source), "name, list, look or explain is missing"
        assert source.name, "the name is empty"

    def test_every_document_is_listed(self, peer: SourcePeer, make_source: MakeSource) -> None:
        """All that the system has, with its text, and nothing else."""
        expected = fill(peer)
        listing = make_source().list()
        assert_paths(listing, expected)
        for path, text in expected.items():
            assert_text(_file(listing, path), text)
        assert listing.read == len(expected), (
            f"read is {listing.read} after reading {len(expected)} documents"
        )

    def test_empty_system_has_an_empty_listing(self, make_source: MakeSource) -> None:
        """No documents are no error."""
        listing = make_source().list()
        assert not listing.files
        assert not listing.left_out

    def test_everything_names_its_source(self, peer: SourcePeer, make_source: MakeSource) -> None:
        """The listing, each file and each row left out carry the configured name."""
        fill(peer)
        peer.add("legacy/vieux.md", CANARY)
        source = make_source()
        listing = source.list()
        named = {listing.source, *(f.source for f in listing.files)}
        named |= {row.source for row in listing.left_out}
        assert named == {source.name}, f"{sorted(named)} should all be {source.name!r}"

    def test_content_hash_is_that_of_the_content(
        self, peer: SourcePeer, make_source: MakeSource
    ) -> None:
        """sha256 in hex, of the bytes as they are given."""
        fill(peer)
        for file in make_source().list().files:
            assert isinstance(file.content, bytes), f"{file.path}: the content is not bytes"
            right = sha256_hex(file.content)
            assert file.content_hash == right, f"{file.path}: content_hash is not its sha256"

    def test_paths_are_relative_and_unique(self, peer: SourcePeer, make_source: MakeSource) -> None:
        """POSIX, without empty names, ``.`` and ``..``; no path twice."""
        fill(peer)
        paths = [file.path for file in make_source().list().files]
        twice = [path for path, number in Counter(paths).items() if number > 1]
        assert not twice, f"listed more than once: {twice}"
        for path in paths:
            names = path.split("/")
            assert not {"", ".", ".."} & set(names), f"{path!r} is not a relative POSIX path"
            assert "\\" not in path, f"{path!r} has a backslash"

    def test_equal_texts_are_two_documents(self, peer: SourcePeer, make_source: MakeSource) -> None:
        """Identity is the path, never the content."""
        same = "# Jumeau\n\nLe même texte.\n"
        paths = {peer.add("un.md", same), peer.add("deux.md", same)}
        source = make_source()
        listing = source.list()
        assert_paths(listing, paths)
        assert_paths(source.list(known_of(listing)), paths)

    def test_modified_at_is_utc_in_whole_seconds(
        self, peer: SourcePeer, make_source: MakeSource
    ) -> None:
        """``2026-03-01T09:30:00Z``, or None where the system does not know."""
        fill(peer)
        for file in make_source().list().files:
            at = file.modified_at
            assert at is None or MODIFIED_AT.fullmatch(at), f"{file.path}: modified_at is {at!r}"

    def test_every_document_has_a_change_marker(
        self, peer: SourcePeer, make_source: MakeSource
    ) -> None:
        """Without a version nothing can be carried over."""
        fill(peer)
        without = [file.path for file in make_source().list().files if not file.version]
        assert not without, f"no version: {without}"

    # -- who may see it ----------------------------------------------------------------------------

    def test_tags_are_sorted_and_follow_the_rules(
        self, peer: SourcePeer, make_source: MakeSource
    ) -> None:
        """The default where no rule matches; of several rules what all of them grant."""
        fill(peer)
        rules = (
            AclRule(("rh",), ("service:rh", "service:compta")),
            AclRule(("rh/paie",), ("service:compta", "admin_only")),
        )
        acl = AclRules(("service:it", "admin_only"), rules)
        for file in make_source(acl=acl).list().files:
            right = acl.tags_for(file.path)
            assert file.acl_tags == right, (
                f"{file.path}: tags {file.acl_tags}, the rules say {right}"
            )

    def test_without_tags_a_document_is_for_nobody(
        self, peer: SourcePeer, make_source: MakeSource
    ) -> None:
        """No default and no rule: listed, with empty tags."""
        expected = fill(peer)
        listing = make_source(acl=AclRules()).list()
        assert_paths(listing, expected)
        tagged = {file.path: file.acl_tags for file in listing.files if file.acl_tags}
        assert not tagged, f"tags that nobody granted: {tagged}"

    def test_new_rules_apply_to_unchanged_documents(
        self, peer: SourcePeer, make_source: MakeSource
    ) -> None:
        """What is carried over gets the tags of now, not those of the listing before."""
        fill(peer)
        known = known_of(make_source(acl=EVERYBODY).list())
        acl = AclRules(("service:rh",))
        for file in make_source(acl=acl).list(known).files:
            assert file.acl_tags == ("service:rh",), (
                f"{file.path}: carried over with its old tags {file.acl_tags}"
            )

    def test_restricted_document_loses_its_readers(
        self, peer: SourcePeer, make_source: MakeSource
    ) -> None:
        """A right that is taken away in the system is gone from the tags, known or not."""
        restrict = getattr(peer, "restrict", None)
        if restrict is None:
            pytest.skip("this peer knows no permissions")
        fill(peer)
        source = make_source()
        before = source.list()
        path = restrict("guides/vpn.md")
        for listing in (source.list(known_of(before)), make_source().list()):
            tags = {file.path: file.acl_tags for file in listing.files}.get(path, ())
            assert "public" not in tags, f"{path}: everybody may still read it"

    # -- what is left out --------------------------------------------------------------------------

    def test_hard_exclusions_hold(self, peer: SourcePeer, make_source: MakeSource) -> None:
        """Scratch files, ``legacy`` folders and Passbolt: never read, left out with the reason."""
        expected = fill(peer)
        forbidden = {
            peer.add(path, f"# Interdit\n\n{CANARY}\n")
            for path in ("SCRATCH.md", "rh/legacy/2017.md", "Legacy/2016.md",
                         "passbolt/export.md")
        }  # fmt: skip
        listing = make_source().list()
        assert_paths(listing, expected)
        shown = [file.path for file in listing.files if CANARY.encode() in file.content]
        assert not shown, f"text of excluded documents: {shown}"
        assert listing.read == len(expected), "excluded documents were read"
        for path in forbidden:
            assert _reason(listing, path) == "hard_exclusion", f"{path}: not in left_out"

    def test_blank_document_is_left_out(self, peer: SourcePeer, make_source: MakeSource) -> None:
        """White space is no document; the reason is ``blank``."""
        expected = fill(peer)
        path = peer.add("vide.md", " \n\t\n")
        listing = make_source().list()
        assert_paths(listing, expected)
        assert _reason(listing, path) == "blank", f"{path}: not in left_out as blank"

    def test_excluded_paths_are_left_out(self, peer: SourcePeer, make_source: MakeSource) -> None:
        """Prefixes, name by name: ``rh`` says nothing of ``rhone``."""
        self._needs_path_rules()
        expected = fill(peer)
        rhone = peer.add("rhone.md", "# Rhône\n\nUn fleuve.\n")
        listing = make_source(excluded_paths=("rh",)).list()
        kept = {path for path in expected if not path.startswith("rh/")}
        assert_paths(listing, {*kept, rhone})
        for path in expected.keys() - kept:
            assert _reason(listing, path) == "excluded_paths", f"{path}: not in left_out"

    def test_included_paths_are_a_strict_list(
        self, peer: SourcePeer, make_source: MakeSource
    ) -> None:
        """When there are some, nothing else is listed; exclusions still win."""
        self._needs_path_rules()
        expected = fill(peer)
        peer.add("rh/legacy/2017.md", CANARY)
        listing = make_source(included_paths=("rh",), excluded_paths=("rh/paie",)).list()
        kept = {p for p in expected if p.startswith("rh/") and not p.startswith("rh/paie/")}
        assert_paths(listing, kept)
        assert listing.read == len(kept), "documents that are not included were read"

    def test_rules_apply_to_what_is_known(self, peer: SourcePeer, make_source: MakeSource) -> None:
        """A path that a new rule excludes is not carried over."""
        self._needs_path_rules()
        expected = fill(peer)
        known = known_of(make_source().list())
        listing = make_source(excluded_paths=("guides",)).list(known)
        assert_paths(listing, {path for path in expected if not path.startswith("guides/")})

    def test_explanations_agree_with_the_listing(
        self, peer: SourcePeer, make_source: MakeSource
    ) -> None:
        """What is left out has the same reason there; what is listed has none."""
        fill(peer)
        peer.add("SCRATCH.md", CANARY)
        peer.add("legacy/2016.md", CANARY)
        settings: dict[str, Any] = {"excluded_paths": ("rh/paie",)} if self.governs_paths else {}
        source = make_source(**settings)
        listing = source.list()
        assert listing.left_out, "nothing is left out"
        for row in listing.left_out:
            said = source.explain(row.path)
            assert said is not None, f"{row.path}: left out as {row.reason}, explained by nothing"
            assert said.reason == row.reason, f"{row.path}: {row.reason}, explained {said.reason}"
        for file in listing.files:
            said = source.explain(file.path)
            assert said is None, f"{file.path}: listed, explained as {said}"

    # -- changes -----------------------------------------------------------------------------------

    def test_unchanged_documents_are_not_read(
        self, peer: SourcePeer, make_source: MakeSource
    ) -> None:
        """With everything known nothing is read, and the listing is the same."""
        fill(peer)
        source = make_source()
        first = source.list()
        for again in (source.list(known_of(first)), make_source().list(known_of(first))):
            assert again.read == 0, f"{again.read} unchanged documents were read"
            assert _by_path(again) == _by_path(first), "an unchanged system has another listing"
            assert again.left_out == first.left_out

    def test_only_what_changed_is_read(self, peer: SourcePeer, make_source: MakeSource) -> None:
        """One document changed, one new: two are read, and their texts are the new ones."""
        fill(peer)
        source = make_source()
        first = source.list()
        changed = peer.change("guides/vpn.md", "# VPN\n\nTout est nouveau ici.\n")
        added = peer.add("guides/neuf.md", "# Neuf\n\nPage ajoutée.\n")
        second = source.list(known_of(first))
        assert second.read == 2, f"{second.read} documents were read for two changes"
        assert_paths(second, _by_path(first).keys() | {added})
        assert_text(_file(second, changed), "nouveau")
        assert_text(_file(second, added), "ajoutée")
        was, now = _file(first, changed).version, _file(second, changed).version
        assert was != now, f"{changed}: changed, but its version did not"

    def test_deleted_document_is_gone(self, peer: SourcePeer, make_source: MakeSource) -> None:
        """Neither listed nor carried over, and nothing is read for it."""
        expected = fill(peer)
        source = make_source()
        first = source.list()
        gone = peer.delete("guides/vpn.md")
        second = source.list(known_of(first))
        assert_paths(second, expected.keys() - {gone})
        assert second.read == 0, f"{second.read} documents were read after a deletion"

    def test_renamed_document_has_its_new_path_only(
        self, peer: SourcePeer, make_source: MakeSource
    ) -> None:
        """The old path is gone, the text is under the new one."""
        expected = fill(peer)
        source = make_source()
        first = source.list()
        old = next(path for path, text in expected.items() if text == TEXTS["guides/vpn.md"])
        new = peer.rename("guides/vpn.md", "rh/tunnel.md")
        second = source.list(known_of(first))
        assert_paths(second, (expected.keys() - {old}) | {new})
        assert_text(_file(second, new), TEXTS["guides/vpn.md"])
        most = 0 if self.renames_without_reading else 1
        assert second.read <= most, f"{second.read} documents were read for a rename"

    def test_document_that_replaces_another_is_read(
        self, peer: SourcePeer, make_source: MakeSource
    ) -> None:
        """Deleted and created anew under the same path: another document."""
        fill(peer)
        source = make_source()
        first = source.list()
        peer.delete("guides/vpn.md")
        path = peer.add("guides/vpn.md", "# VPN\n\nUne autre page, du même nom.\n")
        assert_text(_file(source.list(known_of(first)), path), "même")

    # -- the cheap look ----------------------------------------------------------------------------

    def test_look_sees_nothing_when_nothing_changed(
        self, peer: SourcePeer, make_source: MakeSource
    ) -> None:
        """Falsy, also for another object and after the state went through JSON."""
        fill(peer)
        source = make_source()
        state = json.loads(json.dumps(source.list().look_state))
        assert not source.look(state), "changes where nothing changed"
        assert not make_source().look(state), "another object sees changes"

    def test_look_without_a_state_is_unsure(
        self, peer: SourcePeer, make_source: MakeSource
    ) -> None:
        """``unknown`` for no state, a foreign one, and one of other settings."""
        fill(peer)
        source = make_source()
        state = make_source(acl=AclRules(("service:rh",))).list().look_state
        for name, other in (("none", None), ("foreign", {"x": 1}), ("other settings", state)):
            assert source.look(other), f"state {name}: no changes, though nothing was compared"
        assert source.look(None).unknown, "a look without a state must say unknown"

    @pytest.mark.parametrize("kind", ["add", "change", "rename", "delete"])
    def test_look_sees_each_kind_of_change(
        self, peer: SourcePeer, make_source: MakeSource, kind: str
    ) -> None:
        """Truthy after a document was added, changed, renamed or deleted."""
        fill(peer)
        source = make_source()
        state = json.loads(json.dumps(source.list().look_state))
        if kind == "add":
            peer.add("guides/neuf.md", "# Neuf\n")
        elif kind == "change":
            peer.change("guides/vpn.md", "# VPN\n\nModifié.\n")
        elif kind == "rename":
            peer.rename("guides/vpn.md", "guides/tunnel.md")
        else:
            peer.delete("guides/vpn.md")
        assert source.look(state), f"after {kind} the look saw nothing"
        relisted = json.loads(json.dumps(source.list().look_state))
        assert not source.look(relisted), f"after {kind} and a listing the look is not calm"

    # -- shards, failure ---------------------------------------------------------------------------

    def test_shards_divide_the_listing_exactly(
        self, peer: SourcePeer, make_source: MakeSource
    ) -> None:
        """Every document and every row left out is in one shard, the one its path belongs to."""
        if not self.has_shards:
            pytest.skip("this source cannot be spread over partitions")
        for number in range(12):
            peer.add(f"guides/page-{number}.md", f"# Page {number}\n\nTexte {number}.\n")
        peer.add("SCRATCH.md", CANARY)
        whole = make_source().list()
        shards = [Shard(index, 3) for index in range(3)]
        parts = [make_source(shard=shard).list() for shard in shards]
        for shard, part in zip(shards, parts, strict=True):
            for file in part.files:
                assert shard.holds(file.path), f"{file.path} is in the wrong shard {shard.label}"
        together = sorted(file.path for part in parts for file in part.files)
        assert together == sorted(file.path for file in whole.files), (
            "the shards together are not the whole"
        )
        rows = sorted(row.path for part in parts for row in part.left_out)
        assert rows == sorted(row.path for row in whole.left_out)

    def test_unreachable_system_raises(self, peer: SourcePeer, make_source: MakeSource) -> None:
        """An error of the tree, never an empty or partial listing, and no calm look."""
        fill(peer)
        source = make_source()
        first = source.list()
        peer.stop()
        for known in (None, known_of(first)):
            error = _error_of(lambda known=known: source.list(known))
            assert error is not None, "a listing came from a system that cannot be reached"
            assert isinstance(error, SourceError), f"{type(error).__name__}: not a SourceError"
            assert str(error).strip(), "the error says nothing"
        error = _error_of(lambda: source.look(first.look_state))
        assert error is not None, "a look at a system that cannot be reached saw nothing wrong"
        assert isinstance(error, SourceError), f"{type(error).__name__}: not a SourceError"

    def _needs_path_rules(self) -> None:
        if not self.governs_paths:
            pytest.skip("this source takes no path rules")


def fill(peer: SourcePeer) -> dict[str, str]:
    """Put ``TEXTS`` there: text by the path under which it must be listed."""
    return {peer.add(path, text): text for path, text in TEXTS.items()}


def known_of(listing: SourceListing) -> Mapping[str, SourceFile]:
    """What the next listing is told of this one."""
    return {file.path: file for file in listing.files}


def assert_paths(listing: SourceListing, expected: Collection[str]) -> None:
    """The listing has exactly these documents, each once."""
    found = [file.path for file in listing.files]
    missing, extra = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
    assert not missing, f"not listed: {missing}"
    assert not extra, f"listed, but not there: {extra}"
    assert len(found) == len(set(found)), f"listed more than once: {sorted(found)}"


def _by_path(listing: SourceListing) -> dict[str, SourceFile]:
    return {file.path: file for file in listing.files}


def _file(listing: SourceListing, path: str) -> SourceFile:
    file = _by_path(listing).get(path)
    assert file is not None, f"{path}: not listed"
    return file


def assert_text(file: SourceFile, text: str) -> None:
    """The content has the words of this text, however the system stores it."""
    content = file.content.decode("utf-8")
    for word in re.findall(r"\w{4,}", text):
        assert word in content, f"{file.path}: {word!r} is missing in its content"


def _reason(listing: SourceListing, path: str) -> str | None:
    """Why a path, or a folder above it, is left out."""
    for row in listing.left_out:
        if row.path == path or (row.path.endswith("/") and path.startswith(row.path)):
            return row.reason
    return None


def _error_of(call: Any) -> Exception | None:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - its kind is judged by the test
        return error
    return None

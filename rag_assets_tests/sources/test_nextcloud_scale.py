"""What 10,000 files in 100 folders of a Nextcloud cost when little or nothing changed."""

from __future__ import annotations

import json

import pytest

from rag_assets.fingerprints import sha256_hex
from rag_assets.models import SourceFile
from rag_assets.sources.base import SourceContext
from rag_assets_tests.peers.nextcloud import PASSWORD, nextcloud_peer, require_nextcloud_peer

from .nextcloud_account import VARIABLE, known, make_source

FOLDERS, FILES = 100, 100


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, PASSWORD)


def remembered(path: str, version: str) -> SourceFile:
    """A document as an earlier listing read it."""
    content = b"# Fiche\n"
    return SourceFile("nuage", path, "", content, sha256_hex(content), None, ("public",), version)


@pytest.mark.slow
def test_ten_thousand_files() -> None:
    """Unchanged: one request. One changed: the folders above it, and the file."""
    require_nextcloud_peer()
    with nextcloud_peer() as peer:
        filled = peer.fill("Fiches", FOLDERS, FILES)
        before = {path: remembered(path, f"{fileid}:{etag}") for path, fileid, etag in filled}
        peer.forget_requests()
        listing = make_source(peer.url).list(before)
        assert peer.requests() == {"PROPFIND 1": FOLDERS + 2}
        assert len(listing.files) == FOLDERS * FILES
        assert len(json.dumps(listing.look_state)) < 250 * FOLDERS * FILES

        source = make_source(peer.url, SourceContext(last_look=listing.look_state))
        peer.forget_requests()
        assert not source.look(listing.look_state)
        assert peer.requests() == {"PROPFIND 1": 1}
        peer.forget_requests()
        again = source.list(known(listing))
        assert peer.requests() == {"PROPFIND 1": 1}
        assert again.files == listing.files

        changed = filled[4321][0]
        peer.put(changed, "# Changée\n")
        peer.forget_requests()
        assert source.look(listing.look_state).modified == (changed,)
        assert peer.requests() == {"PROPFIND 1": 3}
        peer.forget_requests()
        again = source.list(known(listing))
        assert peer.requests() == {"PROPFIND 1": 3, "GET": 1}
        assert known(again)[changed].content == "# Changée\n".encode()
        differing = [f.path for f, g in zip(listing.files, again.files, strict=True) if f != g]
        assert differing == [changed]

        peer.move("Fiches/dossier-042", "Fiches/Déplacé")
        peer.forget_requests()
        moved = make_source(peer.url, SourceContext(last_look=again.look_state)).list(known(again))
        assert peer.requests() == {"PROPFIND 1": 2}
        assert sum(f.path.startswith("Fiches/Déplacé/") for f in moved.files) == FILES

"""A Nextcloud behind a network that fails in every known way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rag_assets.http_client import HttpLimits
from rag_assets.sources.base import Source
from rag_assets_tests.peers.nextcloud import PASSWORD, nextcloud_peer, require_nextcloud_peer

from .fault_campaign import Setup
from .nextcloud_account import VARIABLE, make_source

SHARES = {"group:rh": ("service:rh",)}


@contextmanager
def campaign_setup() -> Iterator[Setup]:
    """A small account with shares, ready to be attacked."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = PASSWORD
    try:
        with nextcloud_peer() as peer:
            for name in ("a", "b", "c"):
                peer.put(f"Guides/{name}.md", f"# {name}\n\nL'été.\n")
                peer.put(f"Guides/Réseau/{name}.md", f"# {name}\n\nLe cœur.\n")
            peer.put("d.md", "# D\n")
            peer.share("Guides", group="rh", by="indexeur")

            def source(url: str, limits: HttpLimits) -> Source:
                return make_source(url, limits=limits, shares=SHARES)

            yield Setup(peer.url, source, peer.documents(), PASSWORD, r"^GET .*\.md$")
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before


@pytest.mark.slow
def test_no_fault_loses_a_document_or_the_password() -> None:
    """Each kind of fault ends in an error or in the complete listing."""
    require_nextcloud_peer()
    with campaign_setup() as ready:
        ready.run().check()

"""The GitLab connector behind a proxy that fails in every way: nothing is lost, nothing leaks.

All faults at all moments: ``python -m rag_assets_tests.sources.fault_campaign gitlab``.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rag_assets.http_client import HttpLimits
from rag_assets.sources.gitlab import GitLabSource
from rag_assets_tests.peers.gitlab import GitLabPeer
from rag_assets_tests.sources.fault_campaign import Setup
from rag_assets_tests.sources.gitlab_listing import TOKEN, VARIABLE, settings_of

LONGEST_NAME = 110


@contextmanager
def campaign_setup() -> Iterator[Setup]:
    """Two projects of a group of two pages, one with a tree of two pages, and a wiki."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = TOKEN
    try:
        with (
            tempfile.TemporaryDirectory(prefix="gitlab-faults-") as folder,
            GitLabPeer(Path(folder) / "gitlab") as peer,
        ):
            peer.add_token(TOKEN)
            names = [f"d/n{n}.md" if n < 4 else f"d/n{n}.txt" for n in range(LONGEST_NAME)]
            one = peer.add_project("team/a", {name: f"# {name}\n" for name in names})
            one.write_wiki({"home.md": "# Bienvenue\n", "guides/été.md": "# L'été\n"})
            peer.add_project("team/b", {"README.md": "# B\n"})
            for n in range(100):
                peer.add_project(f"team/empty{n}", wiki_access_level="disabled")

            def make_source(url: str, limits: HttpLimits) -> GitLabSource:
                settings = settings_of(peer, wiki=True, base_url=url)
                return GitLabSource(settings, limits=limits)

            expected = [f"team/a/d/n{n}.md" for n in range(4)]
            expected += ["team/b/README.md", "team/a.wiki/home.md", "team/a.wiki/guides/été.md"]
            yield Setup(peer.url, make_source, expected, TOKEN, r"^GET \S*/repository/blobs/")
    finally:
        if before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = before


def test_no_fault_loses_a_document_or_the_token() -> None:
    """At least 25 kinds of fault; each fails, heals, or leaves out one document with a reason."""
    with campaign_setup() as setup:
        setup.run().check()

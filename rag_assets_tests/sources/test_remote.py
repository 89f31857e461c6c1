"""What all sources of servers share: what is carried over keeps nothing that is no longer so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rag_assets.acl import EVERYBODY
from rag_assets.models import HTML, MARKDOWN
from rag_assets.sources.remote import Entry, Enumeration, Fetched, RemoteSource
from rag_assets.sources.server_api import ServerApi


class Listed(RemoteSource):
    """Lists what it was given; a content is its version."""

    def __init__(self, *entries: Entry) -> None:
        api = ServerApi("memory", "http://127.0.0.1:1")
        super().__init__("memory", "memory", api=api, settings={}, acl=EVERYBODY)
        self.entries = entries
        self.fetched: list[str] = []

    def _enumerate(self, state: Mapping[str, Any] | None) -> Enumeration:
        return Enumeration(self.entries)

    def _fetch(self, entry: Entry) -> Fetched:
        self.fetched.append(entry.path)
        return Fetched(entry.version.encode(), media_type=HTML if "html" in entry.version else None)


def test_a_moved_document_is_what_its_new_name_says() -> None:
    """Its bytes are carried over, its type is that of the listing."""
    before = Listed(Entry("a.md", "1")).list(None)
    after = Listed(Entry("a.html", "1", media_type=HTML))
    known = {file.path: file for file in before.files}
    (file,) = after.list(known).files
    assert (file.path, file.media_type, file.content) == ("a.html", HTML, b"1")
    assert after.fetched == []


def test_a_type_that_only_the_content_tells_is_carried_over() -> None:
    """It was learnt when the document was read."""
    listed = (Entry("a.md", "html-1", media_type=None), Entry("b.md", "2", media_type=None))
    before = Listed(*listed).list(None)
    assert [file.media_type for file in before.files] == [HTML, MARKDOWN]
    again = Listed(*listed)
    assert again.list({file.path: file for file in before.files}).files == before.files
    assert again.fetched == []

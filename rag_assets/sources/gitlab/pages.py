"""Pages of GitLab's REST API: all of a listing comes out, or an error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

if TYPE_CHECKING:
    from rag_assets.http_client import Response
    from rag_assets.sources.server_api import ServerApi

PER_PAGE: Final = 100
"""The most that GitLab gives on one page."""

_PLACES: Final = frozenset({"page", "page_token", "cursor", "id_after"})
"""What tells one page from another (docs.gitlab.com/api/rest, "Pagination")."""


class Repeated(Exception):
    """A listing came back to what it had said before."""


def pages(
    api: ServerApi, path: str, query: Mapping[str, object], *, most_items: int
) -> Iterator[tuple[list[Any], Response]]:
    """Each page of a listing, and the answer it came in.

    Only the place of the next page is taken from what the server says, never its address, so that
    nothing is ever asked of another host.

    Raises:
        IncompleteEnumeration: a page is no list, leads nowhere, or there are more than
            ``most_items`` items.
        Repeated: a page leads back to one that was read before.
        SourceError: as ``ServerApi.send``.
    """
    asked: set[frozenset[tuple[str, object]]] = set()
    items = 0
    current: Mapping[str, object] | None = query
    while current is not None:
        place = frozenset(current.items())
        if place in asked:
            raise Repeated(f"page {len(asked)} leads back to one that was read before")
        asked.add(place)
        value, response = api.json_of(path, current)
        if not isinstance(value, list):
            api.malformed(path, "answered no list")
        items += len(value)
        if items > most_items:
            api.malformed(path, f"lists more than {most_items:,} items, without an end")
        yield value, response
        current = following(api, path, response, query, len(value), len(asked))
        if current is not None and not value:
            api.malformed(path, "names a page after an empty one")


def following(
    api: ServerApi,
    path: str,
    response: Response,
    query: Mapping[str, object],
    items: int,
    number: int,
) -> Mapping[str, object] | None:
    """The query of the page after page ``number`` (1-based), which held ``items``; None: the last.

    A full page without a word about the next one may come from a proxy that drops headers: the
    next page is then asked for by its number.

    Raises:
        IncompleteEnumeration: the link to the next page names no page.
    """
    link = response.links.get("next")
    if link is not None:
        try:
            found = dict(parse_qsl(urlsplit(link.get("url", "")).query))
        except ValueError:
            found = {}
        place = {key: value for key, value in found.items() if key in _PLACES}
        if not place:
            api.malformed(path, "has a link to a next page that names no page")
        return {**query, **place}
    said = response.headers.get("x-next-page")
    if said:
        return {**query, "page": said[:20]}
    if said is None and query.get("per_page") == items:
        return {**{k: v for k, v in query.items() if k != "pagination"}, "page": str(number + 1)}
    return None

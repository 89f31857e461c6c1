"""The pages of a BookStack in, source files out: Markdown where authored so, HTML otherwise."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from rag_assets.errors import ConfigurationError
from rag_assets.models import HTML, MARKDOWN, Changes, LeftOut
from rag_assets.sources.base import SourceContext
from rag_assets.sources.bookstack.listing import (
    PageRow,
    ask,
    list_page_ids,
    list_pages,
    list_parents,
    page_of,
    page_row,
    text,
)
from rag_assets.sources.bookstack.places import Place, places
from rag_assets.sources.bookstack.tags import PageState, RoleTags, stamp_of
from rag_assets.sources.remote import Entry, Enumeration, Fetched, RemoteSource
from rag_assets.sources.server_api import NotThere, Refused, ServerApi, limits_of

if TYPE_CHECKING:
    from rag_assets.http_client import HttpLimits
    from rag_assets.source_settings import BookStackSettings, SecretSettings

_INCLUDE: Final = re.compile(r"\{\{@\s?[0-9]")
"""How BookStack's include tags begin (``{{@12#bkmrk-intro}}``)."""


class BookStackSource(RemoteSource):
    """The ``Source`` for BookStack's API (v22.11 and later).

    Raises:
        ConfigurationError: a setting or a token is impossible.
    """

    def __init__(
        self,
        settings: BookStackSettings,
        context: SourceContext | None = None,
        *,
        limits: HttpLimits | None = None,
    ) -> None:
        context = context or SourceContext()
        limits = limits or limits_of(settings)
        api = _api(settings, limits, settings.token, "token")
        super().__init__(
            settings.name,
            settings.kind,
            api=api,
            settings={
                "token": settings.token.env,
                "accounts": [[a.token.env, sorted(a.tags)] for a in settings.accounts],
                "roles": {role: sorted(tags) for role, tags in settings.roles.items()},
            },
            acl=settings.acl.to_rules(),
            excluded_paths=settings.excluded_paths,
            included_paths=settings.included_paths,
            max_file_bytes=settings.max_file_bytes,
            concurrency=settings.concurrency,
            context=context,
        )
        self._base_url = settings.base_url
        self._accounts = tuple(
            (_api(settings, limits, a.token, f"accounts.{at}.token", pace_of=api), tuple(a.tags))
            for at, a in enumerate(settings.accounts)
        )
        self._role_tags: RoleTags | None = None
        if settings.roles:
            self._role_tags = RoleTags(
                api,
                settings.roles,
                max_age_hours=settings.permissions_max_age_hours,
                concurrency=settings.concurrency,
                progress=context.progress,
            )
        self._explaining = False

    def close(self) -> None:
        """Close the connections of all accounts; they are opened again when needed."""
        super().close()
        for api, _ in self._accounts:
            api.close()

    def look(self, state: Mapping[str, Any] | None) -> Changes:
        """What changed since the listing that left ``state``; see ``Source.look``.

        Permissions of pages that have become too old are read by a listing, which keeps them.
        """
        if self._role_tags and self._is_ours(state):
            assert state is not None  # ours is not None
            remembered = _remembered(state.get("state")).values()
            if any(p.overrides_read_at and self._role_tags.has_expired(p) for p in remembered):
                return Changes(unknown=True)
        return super().look(state)

    def explain(self, path: str) -> LeftOut | None:
        """The rule that keeps ``path`` out today; see ``Source.explain``."""
        self._explaining = True
        try:
            return super().explain(path)
        finally:
            self._explaining = False

    def _enumerate(self, state: Mapping[str, Any] | None) -> Enumeration:
        # Pages first: what they stand in is then in the listings that follow, or was deleted.
        pages = list_pages(self._api)
        chapters = list_parents(self._api, "chapter")
        books = list_parents(self._api, "book")
        left_out: list[LeftOut] = []
        kept: list[Place] = []
        for place in places(pages, books, chapters, self._base_url):
            row = self._unpublished(place)
            if row is None:
                kept.append(place)
            else:
                left_out.append(row)
        before = _remembered(state)
        tags, now = self._read_tags(kept, before)
        return Enumeration(
            entries=[_entry(place, now[place.page.id], tags.get(place.page.id)) for place in kept],
            left_out=left_out,
            state={"pages": {str(at): page.as_list() for at, page in now.items()}},
        )

    def _unpublished(self, place: Place) -> LeftOut | None:
        """The row for a page that is no document, unless a rule on its path says so anyway."""
        by_path = self._governance.decide(place.path)
        if by_path is None or by_path.reason != "hard_exclusion":
            # A second book called Legacy has the slug legacy-x1y.
            named = self._governance.decide(place.names)
            if named is not None and named.reason == "hard_exclusion":
                return replace(named, path=place.path)
        if by_path is not None:
            return None
        if place.page.draft or place.page.template:
            rule = "draft" if place.page.draft else "template"
            return LeftOut(self.name, place.path, "excluded", "draft", rule)
        return None

    def _read_tags(
        self, kept: Sequence[Place], before: Mapping[int, PageState]
    ) -> tuple[dict[int, tuple[str, ...]], dict[int, PageState]]:
        """Tags by page id, where they are read out; and what to remember of each page."""
        now = {place.page.id: _page_state(place.page, before) for place in kept}
        if self._accounts and not self._explaining:
            return self._tags_of_accounts(now), now
        if self._role_tags is None or self._explaining:
            return {}, now
        concerned = [
            place.page
            for place in kept
            if self._holds(place.path) and self._governance.decide(place.path) is None
        ]
        tags, overrides = self._role_tags.read(concerned, before)
        for at, (found, read_at) in overrides.items():
            now[at] = replace(now[at], overrides=found, overrides_read_at=read_at)
        return {at: tags.get(at, ()) for at in now}, now

    def _tags_of_accounts(self, pages: Mapping[int, PageState]) -> dict[int, tuple[str, ...]]:
        tags: dict[int, set[str]] = {at: set() for at in pages}
        for api, granted in self._accounts:
            for at in list_page_ids(api) & tags.keys():
                tags[at].update(granted)
        return {at: tuple(sorted(names)) for at, names in tags.items()}

    def _fetch(self, entry: Entry) -> Fetched:
        page: PageRow = entry.handle
        path = f"/api/pages/{page.id}"
        try:
            value = self._api.json(path)
        except NotThere:
            self._confirm_gone(page)
            raise
        except Refused:
            # BookStack says 404 of a page that may not be seen: is it the account itself?
            ask(self._api, "/api/pages", {"count": 1})
            raise
        if not isinstance(value, dict) or value.get("id") != page.id:
            self._api.malformed(path, "answered JSON that is not the page asked for")
        now = page_row(self._api, path, {**value, "owned_by": None})
        moved = (now.book_id, now.chapter_id) != (page.book_id, page.chapter_id)
        if moved or now.draft or now.template:
            # Its path and its permissions are of another place: the next listing has the new ones.
            raise NotThere(f"source {self.name}: page {page.id} was moved while it was read")
        content, media_type = self._content(path, value)
        same = (now.revision, now.updated_at) == (page.revision, page.updated_at)
        return Fetched(
            content=content.encode(),
            version=None if same else _version(now, now.updated_at),
            modified_at=now.updated_at,
            media_type=media_type,
        )

    def _content(self, path: str, value: Mapping[str, Any]) -> tuple[str, str]:
        """The text of a page and its media type.

        HTML with other pages included in it is taken as stored, before they are: they have
        permissions of their own, and change without leaving a mark on this page.
        """
        markdown = value.get("markdown")
        if isinstance(markdown, str) and markdown.strip():
            return text(self._api, path, value, "markdown"), MARKDOWN
        html = text(self._api, path, value, "html")
        stored = value.get("raw_html")
        if isinstance(stored, str) and _INCLUDE.search(stored):
            return text(self._api, path, value, "raw_html"), HTML
        return html, HTML

    def _confirm_gone(self, page: PageRow) -> None:
        """Believe a 404 only when the listing has lost the page as well."""
        path = "/api/pages"
        query = {"count": 1, "filter[id:eq]": page.id}
        rows, _ = page_of(self._api, path, ask(self._api, path, query))
        if any(row.get("id") == page.id for row in rows):
            self._api.malformed(f"{path}/{page.id}", "answered 404 for a page that it lists")


def _api(
    settings: BookStackSettings,
    limits: HttpLimits,
    token: SecretSettings,
    key: str,
    *,
    pace_of: ServerApi | None = None,
) -> ServerApi:
    what = f"sources.{settings.name}.{key}"
    secret = token.secret(what).read()
    token_id, colon, token_secret = secret.partition(":")
    if not (token_id and colon and token_secret) or ":" in token_secret or " " in secret:
        raise ConfigurationError(
            f"{what}: the environment variable {token.env} must hold the token's id and secret "
            "with a colon between them, as BookStack shows them once"
        )
    return ServerApi(
        settings.name if pace_of is None else f"{settings.name} ({key.removesuffix('.token')})",
        settings.base_url,
        headers={"Authorization": f"Token {secret}"},
        secrets=(secret, token_secret),
        limits=limits,
        ca_file=settings.ca_file,
        requests_per_minute=settings.requests_per_minute,
        pace_of=pace_of,
    )


def _remembered(state: Mapping[str, Any] | None) -> dict[int, PageState]:
    """What the last listing remembered; nothing when it cannot be read."""
    try:
        pages = (state or {}).get("pages", {})
        return {int(at): PageState.from_list(row) for at, row in pages.items()}
    except (AttributeError, TypeError, ValueError):
        return {}


def _page_state(page: PageRow, before: Mapping[int, PageState]) -> PageState:
    stamp = stamp_of(page, before.get(page.id))
    return PageState(page.revision, page.updated_at, page.place, stamp)


def _version(page: PageRow, stamp: str) -> str:
    return f"page-{page.id}-{page.revision}-{stamp}"


def _entry(place: Place, state: PageState, tags: tuple[str, ...] | None) -> Entry:
    return Entry(
        path=place.path,
        version=_version(place.page, state.stamp),
        url=place.url,
        acl_tags=tags,
        modified_at=state.stamp,
        media_type=None,
        title=place.title,
        handle=place.page,
    )

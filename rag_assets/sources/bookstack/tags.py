"""Places of pages in, their ACL tags by role out; the overrides read are kept for the next time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from rag_assets.errors import SourceUnavailable
from rag_assets.sources.bookstack.listing import PageRow, ask
from rag_assets.sources.bookstack.permissions import (
    Overrides,
    granted,
    read_overrides,
    read_roles,
)
from rag_assets.sources.server_api import ServerApi

_AT_ONCE: Final = 64

Key = tuple[str, int]
"""``page``, ``chapter`` or ``book``, and its id."""


@dataclass(frozen=True, slots=True)
class PageState:
    """What is remembered of a page from one listing to the next."""

    revision: int
    updated_at: str
    place: str
    stamp: str
    """``updated_at`` when the content last changed, as far as can be told."""
    overrides: Overrides | None = None
    """None: not read out, or refused."""
    overrides_read_at: int = 0
    """Seconds since 1970; 0: never."""

    def as_list(self) -> list[Any]:
        """JSON-able; see ``from_list``."""
        row: list[Any] = [self.revision, self.updated_at, self.place, self.stamp]
        if self.overrides_read_at:
            row += [self.overrides and self.overrides.as_list(), self.overrides_read_at]
        return row

    @classmethod
    def from_list(cls, row: Sequence[Any]) -> PageState:
        """What ``as_list`` gave."""
        revision, updated_at, place, stamp, *rest = row
        if not rest:
            return cls(revision, updated_at, place, stamp)
        overrides = Overrides.from_list(rest[0]) if rest[0] else None
        return cls(revision, updated_at, place, stamp, overrides, rest[1])

    def is_of(self, page: PageRow) -> bool:
        """Whether the page is as it was, in content and place."""
        return (self.revision, self.updated_at, self.place) == (
            page.revision,
            page.updated_at,
            page.place,
        )


def stamp_of(page: PageRow, before: PageState | None) -> str:
    """The time that stands for the content of a page.

    A move, a sort and a new owner touch ``updated_at`` and leave ``revision_count``: they are told
    from a change by the place. When the place is the same too, the content may be another one (a
    restored backup counts its revisions again).
    """
    if before is None or page.revision < 0 or before.revision != page.revision:
        return page.updated_at
    untouched = before.updated_at == page.updated_at
    return before.stamp if untouched or before.place != page.place else page.updated_at


class RoleTags:
    """Reads the tags of pages out of roles and permissions.

    Overrides of books and chapters are read at each listing, those of a page when it changed or
    when they are older than ``max_age_hours``: changing them leaves no mark on the page.
    """

    def __init__(
        self,
        api: ServerApi,
        roles: Mapping[str, tuple[str, ...]],
        *,
        max_age_hours: float,
        concurrency: int,
        progress: Callable[[str, int, int], None],
    ) -> None:
        self._api = api
        self._roles = dict(roles)
        self._max_age_seconds = max_age_hours * 3600
        self._concurrency = concurrency
        self._progress = progress

    def has_expired(self, state: PageState) -> bool:
        """Whether the overrides of an unchanged page must be read again."""
        return time.time() - state.overrides_read_at >= self._max_age_seconds

    def read(
        self, pages: Sequence[PageRow], before: Mapping[int, PageState]
    ) -> tuple[dict[int, tuple[str, ...]], dict[int, tuple[Overrides | None, int]]]:
        """Tags by page id; and the page's own overrides with the time at which they were read.

        Raises:
            IncompleteEnumeration, SourceUnavailable: permissions cannot be read at all, or a
                configured role does not exist.
        """
        roles = read_roles(self._api, self._roles)
        own: dict[int, tuple[Overrides | None, int]] = {}
        for page in pages:
            state = before.get(page.id)
            if state is not None and state.is_of(page) and not self.has_expired(state):
                own[page.id] = (state.overrides, state.overrides_read_at)
        parents = {("book", page.book_id) for page in pages}
        parents |= {("chapter", page.chapter_id) for page in pages if page.chapter_id}
        wanted = [*sorted(parents), *(("page", p.id) for p in pages if p.id not in own)]
        now = int(time.time())
        found = self._read_all(wanted)
        own.update({at: (found[kind, at], now) for kind, at in wanted if kind == "page"})
        tags = {
            page.id: granted(roles, [own[page.id][0], *_parents_of(page, found)]) for page in pages
        }
        return tags, own

    def _read_all(self, keys: Sequence[Key]) -> dict[Key, Overrides | None]:
        found: dict[Key, Overrides | None] = {}
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="permissions") as pool:
            for start in range(0, len(keys), _AT_ONCE):
                batch = keys[start : start + _AT_ONCE]
                answers = pool.map(lambda key: read_overrides(self._api, *key), batch)
                found.update(zip(batch, answers, strict=True))
                self._progress("permissions read", start + len(batch), len(keys))
        if None in found.values():
            # Refused: these few, or the account itself since it was listed with?
            ask(self._api, "/api/pages", {"count": 1})
        if found and not any(found.values()):
            raise SourceUnavailable(
                f"source {self._api.source}: {self._api.address}: none of {len(found)} permissions "
                "may be read with this account; nothing was removed. Give its role 'Manage all "
                "book, chapter & page permissions', or use accounts in place of roles"
            )
        return found


def _parents_of(page: PageRow, found: Mapping[Key, Overrides | None]) -> list[Overrides | None]:
    chapter = [found["chapter", page.chapter_id]] if page.chapter_id else []
    return [*chapter, found["book", page.book_id]]

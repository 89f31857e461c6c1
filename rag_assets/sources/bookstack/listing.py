"""The listings of BookStack's API, read whole or not at all: rows of pages, chapters and books."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final

from rag_assets.errors import IncompleteEnumeration, SourceUnavailable
from rag_assets.sources.server_api import NotThere, Refused, ServerApi, TooLarge

PAGE_SIZE: Final = 500
"""The most rows that BookStack gives at once unless API_MAX_ITEM_COUNT says otherwise."""
GROWTH_ALLOWED: Final = 1_000
"""Rows that may appear while a listing is read, beside a tenth of it; more is a runaway."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PageRow:
    """One page as ``/api/pages`` lists it."""

    id: int
    name: str
    slug: str
    book_id: int
    book_slug: str
    chapter_id: int
    """0: directly in the book."""
    draft: bool
    template: bool
    updated_at: str
    """ISO 8601, UTC, whole seconds."""
    revision: int
    """Counts changes of content and name; -1 where the server does not tell."""
    place: str
    """Changes when the page is moved, sorted or given to another owner: what touches
    ``updated_at`` and leaves the content as it is."""


@dataclass(frozen=True, slots=True)
class ParentRow:
    """One book or chapter as ``/api/books`` and ``/api/chapters`` list it."""

    id: int
    name: str
    slug: str


class _Inconsistent(Exception):
    """The answers do not fit together: something changed meanwhile, or they are not true."""


def ask(api: ServerApi, path: str, query: Mapping[str, object] | None = None) -> Any:
    """The JSON value of something that a whole listing needs.

    Raises:
        SourceUnavailable: it is refused or not there, so nothing can be told.
        IncompleteEnumeration: it is not JSON, or far too large.
    """
    try:
        return api.json(path, query=query)
    except (NotThere, Refused) as exc:
        raise SourceUnavailable(f"{exc}; nothing was removed") from exc
    except TooLarge as exc:
        raise IncompleteEnumeration(f"{exc}; nothing was removed") from exc


def list_rows(api: ServerApi, path: str) -> list[Row]:
    """Every row of a listing, by increasing id.

    Each request asks for the rows behind the last id seen. Unlike an offset, that skips nothing
    when something is deleted meanwhile. Answers that do not fit together are asked for once more.

    Raises:
        IncompleteEnumeration: the answers do not add up to a whole listing, twice.
        SourceUnavailable: the listing cannot be asked for.
    """
    try:
        return _rows(api, path)
    except _Inconsistent:
        pass
    try:
        return _rows(api, path)
    except _Inconsistent as exc:
        api.malformed(path, f"{exc}, also when asked a second time")


def _rows(api: ServerApi, path: str) -> list[Row]:
    rows: list[Row] = []
    last = remaining = 0
    most: int | None = None
    while True:
        query = {"count": PAGE_SIZE, "sort": "+id", "filter[id:gt]": last}
        data, total = page_of(api, path, ask(api, path, query))
        for row in data:
            row_id = whole(api, path, row, "id")
            if row_id <= last:
                raise _Inconsistent("lists the same again, or not by id as asked")
            last = row_id
        if total < remaining:
            raise _Inconsistent(f"lists {total:,} rows where {remaining:,} were left")
        rows += data
        if total == len(data):
            return rows
        if total < len(data) or not data:
            api.malformed(path, f"lists {len(data)} rows and says that there are {total}")
        if most is None:
            most = total + total // 10 + GROWTH_ALLOWED
        remaining = total - len(data)
        if len(rows) + remaining > most:
            api.malformed(path, f"never ends: it has grown beyond {most:,} rows while it was read")


def page_of(api: ServerApi, path: str, value: Any) -> tuple[list[Row], int]:
    """The rows of one answer, and how many rows match in all."""
    if not isinstance(value, dict) or not isinstance(value.get("data"), list):
        api.malformed(path, "answered JSON that is not a listing (no 'data')")
    if not all(isinstance(row, dict) for row in value["data"]):
        api.malformed(path, "lists something that is not an object")
    return value["data"], whole(api, path, value, "total")


def whole(api: ServerApi, path: str, row: Row, key: str, *, absent: int | None = None) -> int:
    """A whole number of at least 0; ``absent`` stands for null or nothing when it is given."""
    value = row.get(key)
    if value is None and absent is not None:
        return absent
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        api.malformed(path, f"gives {key!r} as {_kind(value)}, not as a whole number")
    return value


def text(api: ServerApi, path: str, row: Row, key: str) -> str:
    """A string; lone surrogates, which nothing can store, are replaced."""
    value = row.get(key)
    if not isinstance(value, str):
        api.malformed(path, f"gives {key!r} as {_kind(value)}, not as a string")
    return value.encode("utf-8", "replace").decode()


def flag(api: ServerApi, path: str, row: Row, key: str) -> bool:
    """A boolean, which some databases give as 0 or 1."""
    value = row.get(key)
    if not isinstance(value, bool) and value not in (0, 1):
        api.malformed(path, f"gives {key!r} as {_kind(value)}, not as true or false")
    return bool(value)


def utc_seconds(api: ServerApi, path: str, row: Row, key: str) -> str:
    """A time as ISO 8601, UTC, whole seconds; one without a zone is UTC."""
    said = text(api, path, row, key)
    try:
        at = datetime.fromisoformat(said.replace("Z", "+00:00"))
        at = at.replace(tzinfo=timezone.utc) if at.tzinfo is None else at.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        api.malformed(path, f"gives {key!r} as something that is not a time")
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def page_row(api: ServerApi, path: str, row: Row) -> PageRow:
    """A checked row of ``/api/pages``, or the same fields of ``/api/pages/{id}``.

    Raises:
        IncompleteEnumeration: a field is missing or of another type.
    """
    numbers = {key: whole(api, path, row, key, absent=0) for key in ("priority", "owned_by")}
    book_id, chapter_id = (
        whole(api, path, row, "book_id"),
        whole(api, path, row, "chapter_id", absent=0),
    )
    book_slug = row.get("book_slug")
    return PageRow(
        id=whole(api, path, row, "id"),
        name=text(api, path, row, "name"),
        slug=text(api, path, row, "slug"),
        book_id=book_id,
        book_slug=text(api, path, row, "book_slug") if book_slug is not None else "",
        chapter_id=chapter_id,
        draft=flag(api, path, row, "draft"),
        template=flag(api, path, row, "template"),
        updated_at=utc_seconds(api, path, row, "updated_at"),
        revision=whole(api, path, row, "revision_count") if "revision_count" in row else -1,
        place=f"{book_id}.{chapter_id}.{numbers['priority']}.{numbers['owned_by']}",
    )


def list_pages(api: ServerApi) -> list[PageRow]:
    """Every page that the account sees, drafts of its own and templates too; see ``list_rows``."""
    return [page_row(api, "/api/pages", row) for row in list_rows(api, "/api/pages")]


def list_page_ids(api: ServerApi) -> frozenset[int]:
    """The ids of the pages that the account sees; see ``list_rows``."""
    return frozenset(row["id"] for row in list_rows(api, "/api/pages"))


def list_parents(api: ServerApi, kind: str) -> dict[int, ParentRow]:
    """Every book or chapter (``kind``) that the account sees, by id; see ``list_rows``."""
    path = f"/api/{kind}s"
    return {
        row["id"]: ParentRow(row["id"], text(api, path, row, "name"), text(api, path, row, "slug"))
        for row in list_rows(api, path)
    }


def _kind(value: Any) -> str:
    names = {bool: "a boolean", str: "a string", list: "a list", dict: "an object"}
    if value is None:
        return "nothing"
    return names.get(type(value), "a number out of range")

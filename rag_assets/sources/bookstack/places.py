"""Where a page of BookStack stands: its path, its title and its address, from names and slugs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from rag_assets.sources.bookstack.listing import PageRow, ParentRow

TITLE_SEPARATOR = " > "


@dataclass(frozen=True, slots=True)
class Place:
    """A page with where it stands."""

    page: PageRow
    path: str
    """``book/chapter/page.md`` in slugs, unique."""
    names: str
    """The same in names as people read them; decides nothing but hard exclusions."""
    title: str
    """``Book > Chapter > Page``."""
    url: str


def places(
    pages: Iterable[PageRow],
    books: Mapping[int, ParentRow],
    chapters: Mapping[int, ParentRow],
    base_url: str,
) -> list[Place]:
    """One place per page, by page id.

    A book or chapter that the account does not see is named by what is known of it. Of several
    pages that would share a path, the one with the lowest id keeps it and the id is added to the
    others.
    """
    found: list[Place] = []
    used: set[str] = set()
    for page in sorted(pages, key=lambda row: row.id):
        parents = _parents(page, books, chapters)
        slugs = [_segment(parent.slug, fallback) for parent, fallback in parents]
        stem = "/".join([*slugs, _segment(page.slug, f"page-{page.id}")])
        while (path := f"{stem}.md") in used:
            stem += f"-{page.id}"
        used.add(path)
        names = [*(parent.name for parent, _ in parents), page.name]
        shown = [" ".join(name.split()) for name in names]
        found.append(
            Place(
                page=page,
                path=path,
                names="/".join(name.replace("/", " ") or "-" for name in shown) + ".md",
                title=TITLE_SEPARATOR.join(name for name in shown if name),
                url=_url(base_url, parents[0][0].slug, page),
            )
        )
    return found


def _parents(
    page: PageRow, books: Mapping[int, ParentRow], chapters: Mapping[int, ParentRow]
) -> list[tuple[ParentRow, str]]:
    """The book and the chapter of a page, each with the name for one whose slug is of no use."""
    unseen_book = ParentRow(page.book_id, "", page.book_slug)
    parents = [(books.get(page.book_id, unseen_book), f"book-{page.book_id}")]
    if page.chapter_id:
        unseen_chapter = ParentRow(page.chapter_id, "", "")
        chapter = chapters.get(page.chapter_id, unseen_chapter)
        parents.append((chapter, f"chapter-{page.chapter_id}"))
    return parents


def _segment(slug: str, fallback: str) -> str:
    """A slug as one segment of a path. BookStack's own are ASCII letters, digits and hyphens."""
    name = slug.replace("/", "-")
    return name if name not in ("", ".", "..") else fallback


def _url(base_url: str, book_slug: str, page: PageRow) -> str:
    """What BookStack itself gives as the address of a page."""
    if not book_slug or not page.slug:
        return f"{base_url}/link/{page.id}"
    return f"{base_url}/books/{quote(book_slug, safe='')}/page/{quote(page.slug, safe='')}"

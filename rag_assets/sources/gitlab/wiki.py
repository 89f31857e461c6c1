"""The pages of one project's wiki, whose contents come with the listing.

GitLab gives no change marker for a wiki. What there is: the listing carries an ETag, so that an
unchanged wiki is answered with 304 and no body.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from rag_assets.errors import IncompleteEnumeration
from rag_assets.fingerprints import sha256_hex
from rag_assets.models import LeftOut
from rag_assets.sources.gitlab.api import ROOT
from rag_assets.sources.gitlab.pages import Repeated, following, pages
from rag_assets.sources.gitlab.parts import Part, Rules, WikiHandle
from rag_assets.sources.remote import Entry
from rag_assets.sources.server_api import MOST_JSON_BYTES, NotThere, Refused, TooLarge

if TYPE_CHECKING:
    from rag_assets.sources.gitlab.api import GitLabApi
    from rag_assets.sources.gitlab.projects import Project

MOST_WIKI_PAGES: Final = 100_000
WIKI: Final = "wiki:"
"""Begins the version of a wiki page; sha256 (hex) of the content follows."""
_WITH_CONTENT: Final = {"with_content": "1"}


@dataclass(frozen=True, slots=True)
class WikiPage:
    """One page of a wiki."""

    slug: str
    title: str
    format: str
    """``markdown``, ``asciidoc``, ``org`` or ``rdoc``."""
    version: str
    content: bytes | None = field(repr=False, default=None)


def list_wiki(
    rules: Rules,
    api: GitLabApi,
    project: Project,
    acl_tags: tuple[str, ...] | None,
    before: Mapping[str, Any] | None,
) -> Part:
    """The pages of the wiki of ``project``; ``before`` is the record of an earlier listing.

    Raises:
        IncompleteEnumeration, SourceUnavailable: they cannot be read whole.
    """
    if before is not None and before.get("path") != project.path:
        before = None
    etag, found = _changed(api, project, before["etag"] if before else "")
    if found is None:
        assert before is not None  # only then a condition was sent
        found = [WikiPage(*row) for row in before["pages"]]
    else:
        found = _lightened(found, before)
    named = [(path, page) for path, page in _named(project, found) if rules.holds(path)]
    entries = [_entry(project, path, page, acl_tags) for path, page in named if _fits(path, page)]
    left_out = [_left_out(rules, path, page) for path, page in named if not _fits(path, page)]
    rows = [[page.slug, page.title, page.format, page.version] for _, page in named]
    return Part(entries, left_out, 0, {"path": project.path, "etag": etag, "pages": rows})


def read_wiki_page(api: GitLabApi, project_id: int, slug: str) -> WikiPage:
    """One page as it is now.

    Raises:
        NotThere, Refused: it is gone, or this token may not read it.
        IncompleteEnumeration: the answer is another page, or none.
    """
    path = f"{ROOT}/projects/{project_id}/wikis/{quote(slug, safe='', errors='replace')}"
    page = _page(api, path, api.server.json(path))
    if page.slug != slug:
        api.server.malformed(path, f"answered another page, {page.slug[:200]!r}")
    return page


def _changed(api: GitLabApi, project: Project, etag: str) -> tuple[str, list[WikiPage] | None]:
    """The ETag of the wiki now, and its pages; None: unchanged since ``etag``."""
    path = f"{ROOT}/projects/{project.id}/wikis"
    headers = {"Accept": "application/json", **({"If-None-Match": etag} if etag else {})}
    expected = (200, 304) if etag else (200,)
    try:
        response = api.server.send(
            "GET",
            path,
            query=_WITH_CONTENT,
            headers=headers,
            expected=expected,
            max_response_bytes=MOST_JSON_BYTES,
        )
    except TooLarge:
        return "", list(_one_by_one(api, project, path))
    except (NotThere, Refused) as exc:
        return _without_wiki(api, project, exc)
    if response.status_code == 304:
        return etag, None
    values = api.server.value_of(path, response)
    if not isinstance(values, list):
        api.server.malformed(path, "answered no list")
    if following(api.server, path, response, _WITH_CONTENT, len(values), 1) is not None:
        # No version of GitLab up to 18 divides this listing; one that does is read all the same.
        return "", [_page(api, path, value) for value in _all(api, path, _WITH_CONTENT)]
    return response.headers.get("etag", ""), [_page(api, path, value) for value in values]


def _without_wiki(
    api: GitLabApi, project: Project, exc: NotThere | Refused
) -> tuple[str, list[WikiPage]]:
    """No pages, when nothing says that there is a wiki and the project is there as before.

    Raises:
        IncompleteEnumeration: the project was listed with an open wiki.
    """
    if project.wiki == "unknown":
        api.project(str(project.id))
        return "", []
    raise IncompleteEnumeration(
        f"{exc}. GitLab had listed project {project.path} with an open wiki, so something changed "
        "or is broken; nothing was removed. Run again"
    ) from exc


def _one_by_one(api: GitLabApi, project: Project, path: str) -> Iterator[WikiPage]:
    """Each page of a wiki that is too large for one answer; contents are read again when needed."""
    for value in _all(api, path, {}):
        slug = value.get("slug") if isinstance(value, dict) else None
        if not isinstance(slug, str) or not slug:
            api.server.malformed(path, "lists something that is no page")
        # A page deleted a moment ago is no page.
        with suppress(NotThere):
            yield replace(read_wiki_page(api, project.id, slug), content=None)


def _all(api: GitLabApi, path: str, query: Mapping[str, object]) -> Iterator[Any]:
    try:
        for values, _ in pages(api.server, path, query, most_items=MOST_WIKI_PAGES):
            yield from values
    except Repeated as exc:
        api.server.malformed(path, f"does not end: {exc}")


def _page(api: GitLabApi, path: str, value: Any) -> WikiPage:
    fields = value if isinstance(value, dict) else {}
    slug, title, format_, text = (fields.get(k) for k in ("slug", "title", "format", "content"))
    if not (isinstance(slug, str) and slug and isinstance(title, str)):
        api.server.malformed(path, "lists something that is no page")
    if not (isinstance(format_, str) and isinstance(text, str)):
        api.server.malformed(path, f"gives no content for the page {slug[:200]!r}")
    content = text.encode("utf-8", "surrogatepass")
    return WikiPage(slug, title, format_, WIKI + sha256_hex(content), content)


def _lightened(found: list[WikiPage], before: Mapping[str, Any] | None) -> list[WikiPage]:
    """Without the contents that an earlier listing had: they are carried over, not held twice."""
    versions = {row[3] for row in before["pages"]} if before else set()
    return [replace(p, content=None) if p.version in versions else p for p in found]


def _named(project: Project, found: list[WikiPage]) -> Iterator[tuple[str, WikiPage]]:
    """Each page under its path; of two files with one slug, GitLab itself shows the first."""
    taken: dict[str, int] = {}
    for page in found:
        extension = "md" if page.format == "markdown" else page.format
        path = f"{project.path}.wiki/{page.slug}.{extension}"
        taken[path] = number = taken.get(path, 0) + 1
        yield (path if number == 1 else f"{path}~{number}"), page


def _fits(path: str, page: WikiPage) -> bool:
    return page.format == "markdown" and path.endswith(".md")


def _entry(project: Project, path: str, page: WikiPage, acl_tags: tuple[str, ...] | None) -> Entry:
    slug = quote(page.slug, safe="/", errors="replace")
    folders = [name.replace("-", " ") for name in page.slug.split("/")[:-1]]
    return Entry(
        path=path,
        version=page.version,
        url=f"{project.web_url}/-/wikis/{slug}",
        acl_tags=acl_tags,
        title=" > ".join([*folders, page.title.rpartition("/")[2]]),
        handle=WikiHandle(project.id, page.slug, page.content),
    )


def _left_out(rules: Rules, path: str, page: WikiPage) -> LeftOut:
    row = rules.governance.decide(path)
    if row is not None:
        return row
    if page.format != "markdown":
        return LeftOut(rules.source, path, "excluded", "not_markdown", page.format)
    rule = "another page of this wiki has the same slug"
    return LeftOut(rules.source, path, "excluded", "alias", rule)

"""The requests to GitLab's REST API (version 4) that the connector makes, each answer checked."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from rag_assets.errors import IncompleteEnumeration, SourceUnavailable
from rag_assets.sources.gitlab.pages import PER_PAGE, Repeated, pages
from rag_assets.sources.gitlab.projects import Project, project_of
from rag_assets.sources.server_api import MOST_JSON_BYTES, NotThere, Refused

if TYPE_CHECKING:
    from rag_assets.sources.server_api import ServerApi

ROOT: Final = "/api/v4"
MOST_PROJECTS: Final = 50_000
"""GitLab answers no page by number beyond as many items."""
MOST_TREE_ITEMS: Final = 1_000_000
"""Ten times the files of the Linux kernel: what lists more has no end."""
NO_COMMIT: Final = "404 Commit Not Found"
"""What GitLab says of a ref that does not exist; another 404 means something else."""

_OBJECT_ID: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_JSON: Final = {"Accept": "application/json"}


@dataclass(frozen=True, slots=True)
class Commit:
    """The commit that a ref names."""

    id: str
    committed_at: str | None
    """ISO 8601, UTC, whole seconds."""


@dataclass(frozen=True, slots=True)
class TreeItem:
    """One file, folder or submodule of a commit."""

    path: str
    id: str
    kind: str
    """``blob``, ``tree`` or ``commit``."""
    mode: str
    """As git writes it: ``120000`` is a symbolic link."""


class GitLabApi:
    """What one GitLab says of projects and their repositories. Safe to share between threads."""

    def __init__(self, api: ServerApi, *, anonymous: bool) -> None:
        self.server = api
        self._anonymous = anonymous

    def project(self, name: str) -> Project:
        """The project of that full path or number.

        Raises:
            SourceUnavailable: there is none, or the token may not see it.
        """
        path = f"{ROOT}/projects/{quote(name, safe='')}"
        try:
            value, response = self.server.json_of(path)
        except (NotThere, Refused) as exc:
            raise SourceUnavailable(
                f"{exc}. If project {name} was renamed or is gone, change or remove it in "
                "projects of this source; nothing was removed"
            ) from exc
        project = self._project(path, value)
        moved = response.url.path.endswith(f"/projects/{project.id}")
        if not moved and name.casefold() not in (str(project.id), project.path.casefold()):
            self.server.malformed(path, f"describes another project, {project.path[:200]!r}")
        return project

    def group_projects(self, group: str, *, archived: bool) -> list[Project]:
        """All projects of a group and of the groups below it, by number.

        Projects come and go while their pages are read, which shifts the pages: a listing counts
        when its length is the total that each of its pages names; where GitLab names none (beyond
        10,000), when it is one page or a second listing finds the same.

        Raises:
            SourceUnavailable: there is no such group, or the token may not see it.
            IncompleteEnumeration: three listings in a row were not whole.
        """
        path = f"{ROOT}/groups/{quote(group, safe='')}/projects"
        before: list[int] | None = None
        for _ in range(3):
            found, whole = self._group_listing(path, group, archived)
            numbers = [project.id for project in found]
            if whole or (whole is None and numbers == before):
                return found
            before = numbers if whole is None else None
        self.server.malformed(path, "changed while it was listed, three times in a row")

    def _group_listing(
        self, path: str, group: str, archived: bool
    ) -> tuple[list[Project], bool | None]:
        """The projects, and whether that is all of them; None: cannot be told."""
        query: dict[str, object] = {
            "include_subgroups": "true",
            "with_shared": "false",
            "order_by": "id",
            "sort": "asc",
            "per_page": PER_PAGE,
        }
        if not archived:
            query["archived"] = "false"
        found: list[Project] = []
        totals: set[str] = set()
        count = 0
        try:
            for items, response in pages(self.server, path, query, most_items=MOST_PROJECTS):
                found += (self._project(path, item) for item in items)
                totals.add(response.headers.get("x-total", ""))
                count += 1
        except (NotThere, Refused) as exc:
            raise SourceUnavailable(
                f"{exc}. If group {group} was renamed or is gone, change or remove it in groups "
                "of this source; nothing was removed"
            ) from exc
        except Repeated:
            return found, False
        ids = [project.id for project in found]
        if any(one >= next_ for one, next_ in pairwise(ids)):
            return found, False
        if totals == {""}:
            return found, True if count <= 1 else None
        return found, totals == {str(len(found))}

    def _project(self, path: str, value: Any) -> Project:
        try:
            return project_of(value, self.server.address, anonymous=self._anonymous)
        except ValueError as exc:
            self.server.malformed(path, str(exc))

    def head(self, project: Project, ref: str) -> Commit | None:
        """The commit that a branch, tag or commit id names now; None: there is no such ref.

        Raises:
            IncompleteEnumeration: the project cannot be read, though it was listed.
        """
        path = f"{ROOT}/projects/{project.id}/repository/commits/{quote(ref, safe='')}"
        with self.listed_before(f"project {project.path}"):
            response = self.server.send(
                "GET",
                path,
                query={"stats": "false"},
                headers=_JSON,
                expected=(200, 404),
                max_response_bytes=MOST_JSON_BYTES,
            )
        value = self.server.value_of(path, response)
        fields = value if isinstance(value, dict) else {}
        if response.status_code == 404:
            if fields.get("message") == NO_COMMIT:
                return None
            self.server.malformed(path, f"answered 404, though project {project.path} was listed")
        commit = fields.get("id")
        if not isinstance(commit, str) or not _OBJECT_ID.fullmatch(commit):
            self.server.malformed(path, "answered no commit")
        return Commit(commit, _utc(fields.get("committed_date")))

    def tree(self, project: Project, commit: str) -> Sequence[TreeItem]:
        """Everything in a commit, in all folders.

        A commit never changes, so neither do the pages. Servers of old may come back to an earlier
        place when two files have the same content; then the pages are asked for by number.

        Raises:
            IncompleteEnumeration: it cannot be read whole.
        """
        path = f"{ROOT}/projects/{project.id}/repository/tree"
        query = {"ref": commit, "recursive": "true", "per_page": PER_PAGE}
        with self.listed_before(f"commit {commit} of project {project.path}"):
            try:
                return self._tree(path, {**query, "pagination": "keyset"})
            except Repeated:
                pass
            try:
                return self._tree(path, query)
            except Repeated as exc:
                self.server.malformed(path, f"does not end: {exc}")

    def _tree(self, path: str, query: dict[str, object]) -> list[TreeItem]:
        found: list[TreeItem] = []
        seen: set[str] = set()
        for values, _ in pages(self.server, path, query, most_items=MOST_TREE_ITEMS):
            for value in values:
                item = self._tree_item(path, value)
                if item.path in seen:
                    raise Repeated("a file is listed twice")
                seen.add(item.path)
                found.append(item)
        return found

    def _tree_item(self, path: str, value: Any) -> TreeItem:
        fields = value if isinstance(value, dict) else {}
        item = [fields.get(key) for key in ("path", "id", "type", "mode")]
        name, number, kind, mode = (part if isinstance(part, str) else "" for part in item)
        known = kind in ("blob", "tree", "commit") and _OBJECT_ID.fullmatch(number)
        if not name or not mode or not known:
            self.server.malformed(path, "lists something that is no file, folder or submodule")
        return TreeItem(name, number, kind, mode)

    def blob(self, project_id: int, blob_id: str, most_bytes: int) -> bytes:
        """The content with that id, which is proven by its hash.

        Raises:
            TooLarge: more than ``most_bytes``.
            IncompleteEnumeration: it cannot be read, though its commit was listed, or the bytes
                are not those of this id.
        """
        path = f"{ROOT}/projects/{project_id}/repository/blobs/{blob_id}/raw"
        with self.listed_before(f"blob {blob_id}"):
            content = self.server.send("GET", path, max_response_bytes=most_bytes).content
        if object_id(content, len(blob_id)) != blob_id:
            self.server.malformed(path, f"answered {len(content):,} bytes that are not this blob")
        return content

    @contextmanager
    def listed_before(self, what: str) -> Iterator[None]:
        """Turns "not there" and "not allowed" into what they are for something just listed.

        Git has no permissions inside a repository, and a commit keeps all its files.

        Raises:
            IncompleteEnumeration: instead of ``NotThere`` and ``Refused``.
        """
        try:
            yield
        except (NotThere, Refused) as exc:
            raise IncompleteEnumeration(
                f"{exc}. GitLab had listed {what}, so something changed or is broken; nothing was "
                "removed. Run again; if that does not help, check the repository on the server or "
                "name the path in excluded_paths"
            ) from exc


def object_id(content: bytes, digits: int) -> str:
    """The id that git gives a file's content: SHA-1 (40 digits) or SHA-256 (64)."""
    head = b"blob %d\0" % len(content)
    if digits == 64:
        return hashlib.sha256(head + content).hexdigest()
    return hashlib.sha1(head + content, usedforsecurity=False).hexdigest()


def _utc(value: object) -> str | None:
    """A time of GitLab (``2026-03-01T10:30:00.000+01:00``) in UTC; None when it is none."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value.replace("Z", "+00:00"))
        moment = moment.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")

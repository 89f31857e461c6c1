"""Markdown in the repositories and wikis of a GitLab, as a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from rag_assets.errors import IncompleteEnumeration, SourceUnavailable
from rag_assets.models import LeftOut
from rag_assets.sources.gitlab.api import GitLabApi
from rag_assets.sources.gitlab.parts import BlobHandle, Part, Rules, WikiHandle
from rag_assets.sources.gitlab.repository import list_repository
from rag_assets.sources.gitlab.wiki import list_wiki, read_wiki_page
from rag_assets.sources.remote import Entry, Enumeration, Fetched, RemoteSource, Unfit
from rag_assets.sources.server_api import ServerApi, limits_of

if TYPE_CHECKING:
    from rag_assets.http_client import HttpLimits
    from rag_assets.source_settings import GitLabSettings
    from rag_assets.sources.base import SourceContext
    from rag_assets.sources.gitlab.projects import Project

KIND: Final = "gitlab"
STATE_FORMAT: Final = "gitlab-1"
LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/"
"""How a file begins that Git LFS put in place of a larger one (Git LFS specification)."""
MOST_POINTER_BYTES: Final = 1024


class GitLabSource(RemoteSource):
    """Markdown files of repositories at a ref, and wiki pages; implements ``Source``.

    Paths are ``<project>/<file>`` and ``<project>.wiki/<slug>.md``, the project by its full path.
    Unchanged projects cost one request each (their head commit), unchanged wikis another one that
    is answered without a body. A renamed or copied file is not read again.

    Raises:
        ConfigurationError: a setting is impossible, or the token is not in the environment.
    """

    def __init__(
        self,
        settings: GitLabSettings,
        context: SourceContext | None = None,
        *,
        limits: HttpLimits | None = None,
    ) -> None:
        token = settings.token.secret(f"sources.{settings.name}.token") if settings.token else None
        api = ServerApi(
            settings.name,
            settings.base_url,
            headers={"PRIVATE-TOKEN": token.read()} if token else None,
            limits=limits or limits_of(settings),
            ca_file=settings.ca_file,
            requests_per_minute=settings.requests_per_minute,
        )
        super().__init__(
            settings.name,
            KIND,
            api=api,
            settings={
                "format": STATE_FORMAT,
                "projects": list(settings.projects),
                "groups": list(settings.groups),
                "ref": settings.ref,
                "repository": settings.repository,
                "wiki": settings.wiki,
                "archived": settings.archived,
                "visibility": {k: sorted(v) for k, v in settings.visibility.items()},
                "anonymous": token is None,
            },
            acl=settings.acl.to_rules(),
            excluded_paths=settings.excluded_paths,
            included_paths=settings.included_paths,
            max_file_bytes=settings.max_file_bytes,
            concurrency=settings.concurrency,
            context=context,
        )
        self._wanted = settings
        self._tags_by_visibility = {str(k): tags for k, tags in settings.visibility.items()}
        self._gitlab = GitLabApi(api, anonymous=token is None)
        self._rules = Rules(self.name, self._governance, self._holds)

    def _enumerate(self, state: Mapping[str, Any] | None) -> Enumeration:
        projects, configured = self._projects()
        records = state or {}
        parts: dict[str, dict[str, Part]] = {"repositories": {}, "wikis": {}}
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="list") as pool:
            listed = pool.map(lambda p: self._parts(p, p.id in configured, records), projects)
            for number, (project, found) in enumerate(zip(projects, listed, strict=True), 1):
                for kind, part in found.items():
                    parts[kind][str(project.id)] = part
                self._context.progress("projects listed", number, len(projects))
        everything = [part for kind in parts.values() for part in kind.values()]
        self._refuse_when_nothing_is_open(everything)
        return Enumeration(
            entries=[entry for part in everything for entry in part.entries],
            left_out=[row for part in everything for row in part.left_out],
            other_files=sum(part.other_files for part in everything),
            state={
                kind: {key: part.record for key, part in by_project.items() if part.record}
                for kind, by_project in parts.items()
            },
        )

    def _projects(self) -> tuple[Sequence[Project], set[int]]:
        """Every project to index, each once, and the ids of those that are named one by one."""
        named = [self._gitlab.project(name) for name in self._wanted.projects]
        found = {project.id: project for project in named}
        archived = self._wanted.archived
        for group in self._wanted.groups:
            for project in self._gitlab.group_projects(group, archived=archived):
                if not project.deleted and (archived or not project.archived):
                    found.setdefault(project.id, project)
        in_order = sorted(found.values(), key=lambda project: project.path)
        return in_order, {project.id for project in named}

    def _parts(
        self, project: Project, configured: bool, records: Mapping[str, Any]
    ) -> dict[str, Part]:
        """Repository and wiki of a project, as far as they are wanted."""
        parts: dict[str, Part] = {}
        number = str(project.id)
        if self._wanted.repository:
            before = records.get("repositories", {}).get(number)
            parts["repositories"] = self._shut(
                project, project.path, project.repository, configured
            ) or self._repository(project, configured, before)
        if self._wanted.wiki:
            before = records.get("wikis", {}).get(number)
            parts["wikis"] = self._shut(
                project, f"{project.path}.wiki", project.wiki, configured
            ) or list_wiki(
                self._rules, self._gitlab, project, self._granted(project.wiki_visibility), before
            )
        return parts

    def _shut(self, project: Project, folder: str, access: str, configured: bool) -> Part | None:
        """What stands for a repository or wiki that is not to be read; None: it is.

        Raises:
            SourceUnavailable: the token may not read what is configured by name.
        """
        row = self._governance.decide(folder, is_dir=True)
        if row is not None:
            return Part(left_out=[row])
        if access == "none":
            return Part()
        if access != "refused":
            return None
        if configured:
            raise SourceUnavailable(
                f"source {self.name}: {self._api.address} does not let this token read "
                f"{folder}, which is named in projects; nothing was removed. Give the token's "
                f"user the role Reporter in {project.path}, or name {folder} in excluded_paths"
            )
        rule = "GitLab does not let this token read it"
        return Part(left_out=[LeftOut(self.name, f"{folder}/", "quarantined", "unreadable", rule)])

    def _repository(
        self, project: Project, configured: bool, before: Mapping[str, Any] | None
    ) -> Part:
        ref = self._wanted.ref or project.default_branch
        commit = self._gitlab.head(project, ref)
        if commit is None:
            return self._without_commit(project, ref, configured)
        tags = self._granted(project.repository_visibility)
        return list_repository(self._rules, self._gitlab, project, ref, commit, tags, before)

    def _without_commit(self, project: Project, ref: str, configured: bool) -> Part:
        """A project of a group need not have the branch; one without any commit has nothing.

        Raises:
            SourceUnavailable: a project that is configured by name has no such ref.
            IncompleteEnumeration: the branch that GitLab itself names is missing.
        """
        where = f"source {self.name}: {self._api.address}: project {project.path}"
        if self._wanted.ref is None:
            if not project.says_empty:
                return Part()
            raise IncompleteEnumeration(
                f"{where} has no commit on its default branch {ref!r}, though it is not empty; "
                "nothing was removed. Run again; if that does not help, set its default branch"
            )
        if configured:
            raise SourceUnavailable(
                f"{where} has no branch, tag or commit {ref!r}; nothing was removed. Correct ref "
                "of this source"
            )
        return Part()

    def _granted(self, visibility: str) -> tuple[str, ...] | None:
        """The tags for a visibility; None: the configuration's access rules decide alone."""
        return self._tags_by_visibility.get(visibility, ()) if self._tags_by_visibility else None

    def _refuse_when_nothing_is_open(self, parts: Sequence[Part]) -> None:
        """A token that may read nothing is a fault of the token, not of each project."""
        refused = [
            row
            for part in parts
            for row in part.left_out
            if row.reason == "unreadable" and row.path.endswith("/")
        ]
        if refused and not any(part.record for part in parts):
            raise SourceUnavailable(
                f"source {self.name}: {self._api.address} does not let this token read any of "
                f"{len(refused)} repositories and wikis; nothing was removed. Give the token the "
                "scope read_api and its user the role Reporter"
            )

    def _fetch(self, entry: Entry) -> Fetched:
        handle = entry.handle
        if isinstance(handle, BlobHandle):
            content = self._gitlab.blob(handle.project_id, handle.blob_id, self._max_file_bytes)
            if content.startswith(LFS_POINTER) and len(content) <= MOST_POINTER_BYTES:
                raise Unfit("not_text", "a Git LFS pointer; the text itself is not in git")
            return Fetched(content)
        assert isinstance(handle, WikiHandle)  # there are no others
        if handle.content is not None:
            return Fetched(handle.content)
        page = read_wiki_page(self._gitlab, handle.project_id, handle.slug)
        assert page.content is not None  # read just now
        return Fetched(page.content, version=page.version)

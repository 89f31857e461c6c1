"""Markdown files of a git repository at a ref, as a source."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rag_assets.acl import EVERYBODY, AclRules
from rag_assets.errors import ConfigurationError, RagError, SourceUnavailable
from rag_assets.fingerprints import SOURCES_VERSION, fingerprint
from rag_assets.models import Changes, LeftOut, SourceFile, SourceListing

if TYPE_CHECKING:
    from rag_assets.sources.git.listing import Listed, ListingRules, OpenRepository
    from rag_assets.sources.git.local import LocalRepository
    from rag_assets.sources.git.remote import RemoteRepository
    from rag_assets.sources.governance import Governance
    from rag_assets.sources.shards import Shard

KIND: Final = "markdown"


class GitTree:
    """The ``.md`` and ``.markdown`` files of a git repository at ``ref``; implements ``Source``.

    ``repository`` is a URL (https, ssh, git, file), ``user@host:path``, or the path of a working
    copy or bare repository, of which only what is committed counts. ``ref`` is a branch, a tag, a
    full name (``refs/...``) or all digits of a commit; ``folder`` limits the source to what lies
    below it, and paths are relative to it. ``excluded_paths``, ``included_paths``,
    ``config_locations``, ``acl``, ``max_file_bytes`` and ``shard`` are as for ``MarkdownTree``.
    ``url_template`` may hold ``{commit}`` beside ``{path}`` and ``{source}``: the full commit at
    which the file was first seen with its content. ``username`` and ``token`` are for http(s).
    ``work_dir`` holds temporary clones of URLs; ``timeout_seconds`` is for each git command.
    ``last_look`` is the ``look_state`` of the last complete listing, which spares a URL whose
    commit is the same the clone.

    The version of a file is the name of its blob. Links, submodules and pointers of Git LFS are
    left out.

    Raises:
        ConfigurationError: a setting is impossible.
    """

    def __init__(
        self,
        name: str,
        repository: str,
        *,
        work_dir: Path,
        ref: str = "HEAD",
        folder: str = "",
        excluded_paths: Sequence[str] = (),
        included_paths: Sequence[str] = (),
        acl: AclRules = EVERYBODY,
        url_template: str | None = None,
        max_file_bytes: int = 10_000_000,
        shard: Shard | None = None,
        config_locations: Mapping[str, tuple[str, int]] | None = None,
        username: str = "",
        token: str = "",
        timeout_seconds: float = 300.0,
        last_look: Mapping[str, Any] | None = None,
    ) -> None:
        from rag_assets.sources.git.address import check_folder, check_ref, parse_repository
        from rag_assets.sources.git.citations import CitationUrls

        self.name = name
        self._address = parse_repository(name, repository)
        self._ref = check_ref(name, ref)
        self._folder = check_folder(name, KIND, folder)
        self._excluded_paths = tuple(excluded_paths)
        self._included_paths = tuple(included_paths)
        self._acl = acl
        self._urls = CitationUrls(name, url_template)
        self._max_file_bytes = max_file_bytes
        self._shard = shard
        self._config_locations = dict(config_locations or {})
        self._username = username
        self._token = token
        self._work_dir = work_dir
        self._timeout_seconds = timeout_seconds
        self._last_look = last_look
        self._refuse_impossible()

    @property
    def settings(self) -> str:
        """A fingerprint of all that decides what a listing yields, except the repository itself."""
        return fingerprint(
            SOURCES_VERSION,
            "git",
            [self.name, self._address.location, self._ref, self._folder],
            self._excluded_paths,
            self._included_paths,
            self._acl.as_lists(),
            self._urls.template,
            self._max_file_bytes,
            [self._shard.index, self._shard.count] if self._shard else None,
        )

    def list(self, known: Mapping[str, SourceFile] | None = None) -> SourceListing:
        """Every document of the commit and everything left out; see ``Source.list``.

        Raises:
            ConfigurationError: the ignore file, or a prefix, is wrong; git is not installed.
            IncompleteEnumeration: a part could not be read.
            SourceUnavailable: the repository, the ref or the folder is not there.
        """
        from rag_assets.sources.git.listing import GitListing

        known = known or {}
        with self._explained():
            if self._address.is_local:
                local = self._open_local()
                return self._listing(GitListing(self._rules(), local).run(known), local.commit)
            full_name, commit = self._resolve_remote()
            if (unchanged := self._unchanged(commit, known)) is not None:
                return self._listing(unchanged, commit)
            with self._clone(full_name, commit) as repository:
                listed = GitListing(self._rules(), repository).run(known)
                return self._listing(listed, repository.commit)

    def look(self, state: Mapping[str, Any] | None) -> Changes:
        """What changed since the listing that left ``state``; see ``Source.look``.

        A repository at hand is compared, a URL whose commit is another one must be listed.

        Raises:
            ConfigurationError, SourceUnavailable, IncompleteEnumeration: as ``list``.
        """
        if not self._is_ours(state):
            return Changes(unknown=True)
        assert state is not None  # ours is not None
        with self._explained():
            if not self._address.is_local:
                _, commit = self._resolve_remote()
                return Changes(unknown=commit != state["commit"])
            repository = self._open_local()
            if repository.commit == state["commit"]:
                return Changes()
            return self._compare(repository, state["commit"])

    def explain(self, path: str) -> LeftOut | None:
        """What keeps ``path`` out of the index today; None when nothing does, or no such file.

        Raises:
            ConfigurationError, SourceUnavailable, IncompleteEnumeration: as ``list``.
        """
        from rag_assets.sources.git.listing import GitListing
        from rag_assets.sources.tree_walk import left_out

        names = [name for name in path.split("/") if name not in ("", ".")]
        if path.startswith("/") or ".." in names:
            return left_out(self.name, path, "outside_root", "paths begin at the source's root")
        plain = "/".join(names) + ("/" if path.endswith("/") and names else "")
        if not plain:
            return None
        ruled = self._governance(None).decide(plain, is_dir=plain.endswith("/"))
        if ruled is not None:
            return ruled
        with self._explained(), self._opened() as repository:
            return GitListing(self._rules(), repository).explain(plain)

    def _refuse_impossible(self) -> None:
        if self._max_file_bytes < 1:
            raise ConfigurationError(
                f"source {self.name}: max_file_bytes is {self._max_file_bytes}; it must be at "
                "least 1"
            )
        if not self._timeout_seconds > 0:
            raise ConfigurationError(
                f"source {self.name}: timeout_seconds is {self._timeout_seconds}; it must be more "
                "than 0"
            )
        if self._token and self._address.transport not in ("http", "https"):
            raise ConfigurationError(
                f"source {self.name}: token is for https URLs; remove it, or write the "
                "repository's https URL"
            )
        if ":" in self._username:
            raise ConfigurationError(
                f"source {self.name}: username must not hold ':', which ends it in HTTP"
            )
        self._governance(None)

    @property
    def _where(self) -> str:
        return f"source {self.name}: the repository {self._address.location}"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise git's failures as errors of this package."""
        from rag_assets.sources.git.commands import GitFailure
        from rag_assets.sources.git.failures import explain_failure

        try:
            yield
        except GitFailure as failure:
            path = self._address.location.removeprefix("file://")
            raise explain_failure(failure, self._where, path, self._timeout_seconds) from failure
        except OSError as exc:
            raise SourceUnavailable(
                f"{self._where} cannot be read ({exc.strerror or exc}); check it and the data "
                "folder, then run again"
            ) from exc

    @contextmanager
    def _opened(self) -> Iterator[OpenRepository]:
        if self._address.is_local:
            yield self._open_local()
        else:
            with self._clone(*self._resolve_remote()) as repository:
                yield repository

    def _open_local(self) -> LocalRepository:
        from rag_assets.sources.git.commands import Git
        from rag_assets.sources.git.local import LocalRepository, local_branches, resolve_local

        path = self._address.location
        if not os.path.isdir(path):
            raise SourceUnavailable(f"{self._where} is not a folder; check that it is mounted")
        git = Git(path, timeout_seconds=self._timeout_seconds)
        commit = resolve_local(git, self._ref)
        if commit is None:
            raise self._no_such_ref(local_branches(git))
        return LocalRepository(git, commit)

    def _remote(self) -> RemoteRepository:
        from rag_assets.sources.git.remote import RemoteRepository
        from rag_assets.sources.git.scratch import remove_leftovers

        self._work_dir.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self._work_dir)
        return RemoteRepository(
            self._address,
            username=self._username,
            token=self._token,
            work_dir=self._work_dir,
            timeout_seconds=self._timeout_seconds,
        )

    def _resolve_remote(self) -> tuple[str, str]:
        """Full name and commit of the ref."""
        remote = self._remote()
        found = remote.resolve(self._ref)
        if found is None:
            raise self._no_such_ref(remote.branches())
        return found

    @contextmanager
    def _clone(self, full_name: str, commit: str) -> Iterator[OpenRepository]:
        from rag_assets.sources.git.remote import TemporaryClone
        from rag_assets.sources.git.scratch import scratch_folder

        with scratch_folder(self._work_dir) as folder:
            yield TemporaryClone(self._remote(), folder, full_name, commit)

    def _no_such_ref(self, branches: Sequence[str]) -> RagError:
        from rag_assets.sources.git.failures import no_such_ref

        is_http = self._address.transport in ("http", "https")
        return no_such_ref(self._where, self._ref, branches, is_http=is_http)

    def _compare(self, repository: OpenRepository, old_commit: str) -> Changes:
        """The documents that differ between two commits of a repository at hand."""
        from rag_assets.sources.git.changes import document_changes, tree_changes
        from rag_assets.sources.git.listing import GitListing, tree_expression
        from rag_assets.sources.git.objects import object_infos

        listing = GitListing(self._rules(), repository)
        old, new = (tree_expression(c, self._folder) for c in (old_commit, repository.commit))
        (info,) = object_infos(repository.git, [old])
        if info is None or info.kind != "tree":
            return Changes(unknown=True)
        governance = listing.governance()
        changes = tree_changes(repository.git, old, new)
        return document_changes(self.name, changes, governance, self._holds)

    def _unchanged(self, commit: str, known: Mapping[str, SourceFile]) -> Listed | None:
        """The listing of the same commit as last time, when nothing of it has to be read."""
        from rag_assets.sources.git.state import listed_again

        state = self._last_look
        if not self._is_ours(state) or state is None or state["commit"] != commit:
            return None
        return listed_again(state, self._rules(), known)

    def _is_ours(self, state: Mapping[str, Any] | None) -> bool:
        from rag_assets.sources.git.state import is_ours

        return is_ours(state, self.settings)

    def _listing(self, listed: Listed, commit: str) -> SourceListing:
        from rag_assets.sources.git.state import state_of

        return SourceListing(
            source=self.name,
            files=listed.files,
            left_out=listed.left_out,
            other_files=listed.other_files,
            look_state=state_of(self.settings, commit, listed, whole=not self._address.is_local),
            read=listed.read,
        )

    def _rules(self) -> ListingRules:
        from rag_assets.sources.git.listing import ListingRules

        return ListingRules(
            source=self.name,
            where=self._where,
            ref=self._ref,
            folder=self._folder,
            acl=self._acl,
            urls=self._urls,
            max_file_bytes=self._max_file_bytes,
            holds=self._holds,
            governance=self._governance,
        )

    def _holds(self, path: str) -> bool:
        return self._shard is None or self._shard.holds(path)

    def _governance(self, ignore_text: str | None) -> Governance:
        from rag_assets.sources.governance import Governance

        return Governance(
            self.name,
            KIND,
            self._excluded_paths,
            self._included_paths,
            ignore_text,
            config_locations=self._config_locations,
        )

"""A repository behind a URL: ask for a commit, and fetch no more of it than is needed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rag_assets.sources.git.address import GitAddress, full_names, is_commit
from rag_assets.sources.git.commands import (
    Git,
    GitFailure,
    basic_credentials,
    require_version,
    secret_forms,
)
from rag_assets.sources.git.objects import object_infos

BLOBS_AT_ONCE: Final = 500
"""Blobs asked for by one fetch."""
BATCH_BYTES: Final = 32 * 1024 * 1024
"""A fetch of blobs that would write more is given up and made smaller: sizes are not known before.
500 documents of 64 kB fit, and a blob of gigabytes costs at most nine times this."""
DEFAULT_USERNAME: Final = "git"
"""GitHub, GitLab and Gitea look at the token only, but want some name."""

_REMOTE: Final = "rag-assets"
_LISTED: Final = "refs/rag-assets/listed"
_MOST_REFS_BYTES: Final = 16 * 1024 * 1024
_FETCH: Final = (
    "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-gc",
    "--no-recurse-submodules", "--refmap=",
)  # fmt: skip
_TOO_LARGE: Final = re.compile(r"File too large|signal 25|SIGXFSZ", re.IGNORECASE)
_NOT_BY_NAME: Final = re.compile(r"unadvertised object|not our ref|no such remote ref|not allowed")


class RemoteRepository:
    """Git commands against one URL; nothing is kept between them.

    ``work_dir`` is an existing folder to run in. ``token`` may be empty.

    Raises:
        ConfigurationError: git is missing or too old.
    """

    def __init__(
        self,
        address: GitAddress,
        *,
        username: str,
        token: str,
        work_dir: Path,
        timeout_seconds: float,
    ) -> None:
        self.address = address
        self._timeout_seconds = timeout_seconds
        self._work_dir = work_dir
        username = username or DEFAULT_USERNAME
        self._secrets = secret_forms(username, token)
        self._settings = _settings(address, username, token)

    def git(self, folder: Path, *, is_bare_own: bool = False, partial: bool = False) -> Git:
        """Git with the right to talk to the URL; ``partial``: it may lack objects."""
        settings = [*self._settings, (f"remote.{_REMOTE}.url", self.address.location)]
        if partial:
            # Given for each command instead of written down: without them what is missing is
            # missing, and never fetched behind our back.
            settings += [
                (f"remote.{_REMOTE}.promisor", "true"),
                (f"remote.{_REMOTE}.partialclonefilter", "blob:none"),
            ]
        git = Git(
            str(folder),
            timeout_seconds=self._timeout_seconds,
            is_bare_own=is_bare_own,
            transports=":".join(dict.fromkeys((self.address.transport, "https", "ssh"))),
            settings=settings,
            secrets=self._secrets,
        )
        require_version(git)
        return git

    def resolve(self, ref: str) -> tuple[str, str] | None:
        """Full name and commit of ``ref``; None when there is none. One request, or none.

        Raises:
            GitFailure: the server does not tell.
        """
        if is_commit(ref):
            return ref, ref
        names = full_names(ref)
        patterns = [pattern for name in names for pattern in (name, name + "^{}")]
        found = self._list_refs(*patterns)
        for name in names:
            if commit := found.get(name + "^{}") or found.get(name):
                return name, commit
        return None

    def branches(self) -> list[str]:
        """The short names of all branches.

        Raises:
            GitFailure: the server does not tell.
        """
        prefix = "refs/heads/"
        return [name[len(prefix) :] for name in self._list_refs(prefix + "*") if prefix in name]

    def _list_refs(self, *patterns: str) -> dict[str, str]:
        git = self.git(self._work_dir)
        output = git.run(
            "ls-remote", "--quiet", "--", self.address.location, *patterns,
            most_bytes=_MOST_REFS_BYTES,
        )  # fmt: skip
        lines = output.decode("utf-8", "replace").splitlines()
        pairs = (line.partition("\t") for line in lines)
        return {name: commit for commit, _, name in pairs if is_commit(commit)}


class TemporaryClone:
    """The commit and folders of one ref in an empty ``folder``, and the blobs that are asked for.

    ``name`` is a full one; ``commit`` what it stood for a moment ago.

    Raises:
        GitFailure: it cannot be fetched.
    """

    has_history = False

    def __init__(self, remote: RemoteRepository, folder: Path, name: str, commit: str) -> None:
        self._remote = remote
        self._folder = folder
        self._name = name
        self._generation = 0
        self.commit = commit
        self.git = self._make(partial=True)
        (info,) = object_infos(self.git, [f"{_LISTED}^{{commit}}"])
        if info is None:
            raise GitFailure("failed", "fetch", f"not a valid object name: {name} is no commit")
        self.commit = info.name

    def _make(self, *, partial: bool) -> Git:
        """A bare repository with what ``name`` leads to; all its blobs unless ``partial``."""
        self._generation += 1
        repository = self._folder / f"{self._generation}.git"
        algorithm = "sha256" if len(self.commit) == 64 else "sha1"
        Git(str(self._folder), timeout_seconds=60).run(
            "init", "--quiet", "--bare", "--template=", f"--object-format={algorithm}",
            str(repository),
        )  # fmt: skip
        self._repository = repository
        self._fetching = self._remote.git(repository, is_bare_own=True, partial=partial)
        filtered = ("--filter=blob:none",) if partial else ()
        refspec = f"+{self._name}:{_LISTED}"
        self._fetching.run(*_FETCH, "--depth=1", *filtered, _REMOTE, refspec)
        timeout = self._remote._timeout_seconds
        return Git(str(repository), timeout_seconds=timeout, is_bare_own=True)

    def bring(self, blobs: Sequence[str], most_bytes: int) -> set[str]:
        """Fetch the blobs that are not here yet; those larger than ``most_bytes`` are returned.

        Raises:
            GitFailure: the server does not send one.
        """
        infos = object_infos(self.git, blobs)
        missing = [blob for blob, info in zip(blobs, infos, strict=True) if info is None]
        single_bytes = most_bytes + (1 << 20)
        batches = [missing[at : at + BLOBS_AT_ONCE] for at in range(0, len(missing), BLOBS_AT_ONCE)]
        too_large: set[str] = set()
        while batches:
            batch = batches.pop()
            limit = single_bytes if len(batch) == 1 else max(BATCH_BYTES, single_bytes)
            try:
                self._fetch_blobs(batch, limit)
            except GitFailure as failure:
                if _NOT_BY_NAME.search(failure.words):
                    self._fetch_whole()
                    break
                if not _TOO_LARGE.search(failure.words):
                    raise
                self._remove_partial_packs()
                middle = len(batch) // 2
                if middle == 0:
                    too_large.update(batch)
                else:
                    batches += [batch[:middle], batch[middle:]]
        return too_large

    def _fetch_blobs(self, blobs: Sequence[str], most_bytes: int) -> None:
        asked = "".join(f"{blob}\n" for blob in blobs).encode("ascii")
        with self._fetching.start(
            "-c", "fetch.negotiationAlgorithm=noop", *_FETCH, "--filter=blob:none", "--stdin",
            _REMOTE, stdin=(asked,), most_file_bytes=most_bytes,
        ) as process:  # fmt: skip
            process.stdout.read()

    def _fetch_whole(self) -> None:
        """For servers that give no blob by its name: everything the commit holds."""
        commit = self.commit
        self.git = self._make(partial=False)
        (info,) = object_infos(self.git, [f"{_LISTED}^{{commit}}"])
        if info is None or info.name != commit:
            raise GitFailure("cut_short", "fetch", "the ref moved while it was read")

    def _remove_partial_packs(self) -> None:
        for file in (self._repository / "objects" / "pack").glob("tmp_*"):
            file.unlink(missing_ok=True)


def _settings(address: GitAddress, username: str, token: str) -> list[tuple[str, str]]:
    """Git's settings for a URL. Those of its own beat what the user set for hosts in general."""
    if address.transport not in ("http", "https"):
        return []
    scope = f"http.{address.location}"
    settings = [(f"{scope}.sslVerify", "true"), (f"{scope}.followRedirects", "false")]
    if token:
        header = f"Authorization: Basic {basic_credentials(username, token)}"
        # No helper: it would ask somebody, or write the token down.
        settings += [(f"{scope}.extraHeader", header), ("credential.helper", "")]
    return settings

"""A repository on this machine, read where it is and never written."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rag_assets.sources.git.address import full_names
from rag_assets.sources.git.commands import Git
from rag_assets.sources.git.objects import object_infos


class LocalRepository:
    """The repository at ``path``, an existing folder, at one commit."""

    has_history = True

    def __init__(self, git: Git, commit: str) -> None:
        self.git = git
        self.commit = commit

    def bring(self, blobs: Sequence[str], most_bytes: int) -> Collection[str]:  # noqa: ARG002
        """Nothing: all blobs are here."""
        return ()


def resolve_local(git: Git, ref: str) -> str | None:
    """The commit that ``ref`` stands for, by one command; None when there is none.

    Raises:
        GitFailure: the repository cannot be read.
    """
    infos = object_infos(git, [f"{name}^{{commit}}" for name in full_names(ref)])
    commits = [info.name for info in infos if info is not None and info.kind == "commit"]
    return commits[0] if commits else None


def local_branches(git: Git) -> list[str]:
    """The short names of all branches, those of remotes too.

    Raises:
        GitFailure: the repository cannot be read.
    """
    output = git.run("for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/remotes")
    return output.decode("utf-8", "replace").split("\n")[:-1]

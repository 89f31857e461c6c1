"""What history tells: when a file got its content, and whether a commit is still part of it."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from typing import IO, Final

from rag_assets.sources.git.commands import Git, GitFailure
from rag_assets.sources.git.objects import moment_of, object_infos

MOST_PATHSPECS: Final = 100
"""Git compares every changed file with every one of them; beyond, it is given the folder only."""
HISTORY_SECONDS: Final = 20.0
"""How long the search for times may take; files not found by then are told by their commit."""


def changed_at(
    git: Git, commit: str, folder: str, blobs: Mapping[str, str]
) -> dict[str, str | None]:
    """By path, when the last commit that gave it its present blob was committed.

    ``blobs`` has the name of the blob by path below ``folder``. Paths whose commit is not found, in
    a shallow clone or in time, are missing. The search follows git's history simplification.
    """
    if not blobs:
        return {}
    prefix = folder + "/" if folder else ""
    wanted = {prefix + path: name for path, name in blobs.items()}
    paths = sorted(wanted) if len(wanted) <= MOST_PATHSPECS else [folder] if folder else []
    found: dict[str, str | None] = {}
    deadline = time.monotonic() + HISTORY_SECONDS
    try:
        with git.start(
            "log", "--raw", "--no-abbrev", "-z", "-c", "--no-renames", "--no-show-signature",
            "--no-ext-diff", "--no-textconv", "--format=%x01%ct", commit, "--", *paths,
            timeout_seconds=min(2 * HISTORY_SECONDS, git.timeout_seconds),
        ) as process:  # fmt: skip
            for seconds, path, name in _changes(process.stdout):
                if wanted.get(path) == name:
                    del wanted[path]
                    found[path[len(prefix) :]] = moment_of(seconds)
                if not wanted or time.monotonic() > deadline:
                    process.abandon()
                    break
    except GitFailure:
        # Times are worth having, not worth failing for: what matters was read already.
        return found
    return found


def _changes(stdout: IO[bytes]) -> Iterator[tuple[bytes, str, str]]:
    """Time of the commit, path and new blob of each change that ``git log --raw -z`` tells."""
    seconds, name, rest = b"", "", b""
    while block := stdout.read(1 << 16):
        fields = (rest + block).split(b"\0")
        rest = fields.pop()
        for field in fields:
            if name:
                yield seconds, field.decode("utf-8", "surrogateescape"), name
                name = ""
            elif (head := field.lstrip(b"\n")).startswith(b"\x01"):
                seconds = head[1:]
            elif head.startswith(b":"):
                name = head.split(b" ")[-2].decode("ascii")


def lost_commits(git: Git, commit: str, cited: Collection[str]) -> set[str]:
    """Those of ``cited`` that are not in the history of ``commit``: a force-push took them away.

    A shallow clone does not know, so there all of them count as still there.

    Raises:
        GitFailure: the repository cannot be read.
    """
    others = sorted(set(cited) - {commit})
    if not others:
        return set()
    infos = object_infos(git, [f"{other}^{{commit}}" for other in others])
    present = [other for other, info in zip(others, infos, strict=True) if info is not None]
    lost = set(others) - set(present)
    if present:
        asked = "".join(f"{name}\n" for name in (f"^{commit}", *present)).encode("ascii")
        outside = git.run("rev-list", "--stdin", stdin=asked).decode("ascii").split()
        lost |= set(present) & set(outside)
    if lost and git.run("rev-parse", "--is-shallow-repository").strip() == b"true":
        return set()
    return lost

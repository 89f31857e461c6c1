"""Read objects of a git repository: names, kinds, sizes, contents, times."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Final

from rag_assets.sources.git.commands import Git, GitFailure

EMPTY_BLOBS: Final = frozenset(
    {
        "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
        "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
    }
)
"""Names of the empty blob by SHA-1 and SHA-256 (``git hash-object /dev/null``)."""
LINK: Final = "120000"
SUBMODULE: Final = "160000"
FOLDER: Final = "040000"


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What an object is, without its content."""

    name: str
    kind: str
    """``blob``, ``tree``, ``commit`` or ``tag``."""
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One file, link or submodule of a commit."""

    path: str
    """Below the listed folder; bytes that are not UTF-8 are surrogates (``os.fsdecode``)."""
    mode: str
    """Six octal digits."""
    name: str
    """Of the object."""


def object_infos(git: Git, expressions: Sequence[str]) -> list[ObjectInfo | None]:
    """What each expression (``HEAD^{commit}``, a name) stands for; None when there is nothing.

    Raises:
        GitFailure: the repository cannot be read.
    """
    if not expressions:
        return []
    asked = "".join(f"{expression}\n" for expression in expressions).encode("utf-8")
    lines = git.run("cat-file", "--batch-check", stdin=asked).split(b"\n")[:-1]
    if len(lines) != len(expressions):
        words = f"{len(lines)} answers to {len(expressions)} questions"
        raise GitFailure("cut_short", "cat-file", words)
    found: list[ObjectInfo | None] = []
    for line in lines:
        parts = line.decode("utf-8", "replace").split(" ")
        known = len(parts) == 3 and parts[2].isdigit()
        found.append(ObjectInfo(parts[0], parts[1], int(parts[2])) if known else None)
    return found


def read_objects(git: Git, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Name and content of each object, by one process, in their order; all of them exist.

    Raises:
        GitFailure: one cannot be read.
    """
    if not names:
        return
    asked = (f"{name}\n".encode("ascii") for name in names)
    with git.start("cat-file", "--batch", stdin=asked) as process:
        for name in names:
            yield name, _read_object(process.stdout, name)


def _read_object(stdout: IO[bytes], name: str) -> bytes:
    header = stdout.readline(512).split()
    if len(header) != 3 or header[0].decode("ascii", "replace") != name:
        raise EOFError(f"no object {name}")
    size = int(header[2])
    content = stdout.read(size)
    if len(content) != size or stdout.read(1) != b"\n":
        raise EOFError(f"object {name} is cut short")
    return content


def tree_entries(git: Git, tree: str, path: str = "") -> Iterator[TreeEntry]:
    """Everything below the tree except folders themselves, in git's order; or just ``path``.

    Raises:
        GitFailure: a part of the tree cannot be read.
    """
    asked = (tree, "--", path) if path else ("-r", tree)
    with git.start("ls-tree", "-z", "--full-tree", *asked) as process:
        for record in _records(process.stdout):
            head, _, name = record.partition(b"\t")
            mode, _, object_name = head.decode("ascii").split(" ")
            yield TreeEntry(name.decode("utf-8", "surrogateescape"), mode, object_name)


def _records(stdout: IO[bytes]) -> Iterator[bytes]:
    """What NUL characters end."""
    rest = b""
    while block := stdout.read(1 << 16):
        records = (rest + block).split(b"\0")
        rest = records.pop()
        yield from records
    if rest:
        raise EOFError("the last entry is cut short")


def commit_moment(git: Git, commit: str) -> str | None:
    """When it was committed: ISO 8601, UTC, whole seconds; None for a time out of this world.

    Raises:
        GitFailure: there is no such commit.
    """
    for _, content in read_objects(git, [commit]):
        for line in content.split(b"\n\n", 1)[0].split(b"\n"):
            if line.startswith(b"committer "):
                return moment_of(line.rsplit(b" ", 2)[-2])
    return None


def moment_of(seconds: bytes) -> str | None:
    """Seconds since the epoch, in decimal digits, as ISO 8601."""
    try:
        moment = time.gmtime(int(seconds))
    except (OverflowError, ValueError, OSError):
        return None
    if not 1 <= moment.tm_year <= 9999:
        return None
    return f"{moment.tm_year:04d}{time.strftime('-%m-%dT%H:%M:%SZ', moment)}"

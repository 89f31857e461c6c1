"""A real git repository, made commit by commit, and the listings of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from rag_assets.models import SourceFile, SourceListing
from rag_assets.sources.git.tree import GitTree

MOMENT = 1_772_357_400  # 2026-03-01T09:30:00Z
DAY = 86_400


def run_git(folder: Path, *arguments: str, stdin: bytes = b"", moment: int = MOMENT) -> str:
    """Output of a git command there, independent of whose machine it is."""
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("GIT_")},
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_DATE": f"{moment - 60} +0100",
        "GIT_COMMITTER_DATE": f"{moment} +0100",
    }
    for role in ("AUTHOR", "COMMITTER"):
        environment[f"GIT_{role}_NAME"] = "Ada"
        environment[f"GIT_{role}_EMAIL"] = "ada@example.org"
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        input=stdin, env=environment, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


class Repository:
    """A working copy; each commit is one day after the one before."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.moment = MOMENT - DAY
        self.work_dir = root.with_name(root.name + "-work")
        root.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str, stdin: bytes = b"") -> str:
        """Output of a git command."""
        return run_git(self.root, *arguments, stdin=stdin, moment=self.moment)

    def write(self, path: str, content: str | bytes = "# Titre\n") -> Path:
        """Create or replace a file, with its folders; not committed."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    def commit(self, files: dict[str, str | bytes] | None = None) -> str:
        """Commit everything as it is now, with these files; the commit."""
        for path, content in (files or {}).items():
            self.write(path, content)
        self.moment += DAY
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "change")
        return self.head

    def commit_tree(self, entries: list[tuple[str, str, bytes]]) -> str:
        """Commit (mode, object, name) entries that no working copy could hold."""
        self.moment += DAY
        lines = b"".join(
            f"{mode} {self.kind(name)} {name}\t".encode() + path + b"\0"
            for mode, name, path in entries
        )
        tree = self.git("mktree", "-z", "--missing", stdin=lines)
        commit = self.git("commit-tree", "-m", "odd", tree)
        self.git("update-ref", "HEAD", commit)
        return commit

    def kind(self, name: str) -> str:
        """Of an object; one that is not here is a submodule's commit."""
        known = self.git("cat-file", "--batch-check", stdin=name.encode() + b"\n").split()
        return known[1] if len(known) == 3 else "commit"

    def blob(self, content: bytes) -> str:
        """Store a blob; its name."""
        return self.git("hash-object", "-w", "--stdin", stdin=content)

    @property
    def head(self) -> str:
        """The commit that is checked out."""
        return self.git("rev-parse", "HEAD")

    @property
    def url(self) -> str:
        """As a URL of the file transport."""
        return f"file://{self.root}"

    def allow_filter(self, allowed: bool = True) -> None:
        """Whether the server side may leave out blobs."""
        self.git("config", "uploadpack.allowFilter", str(allowed).lower())

    def source(self, repository: str | None = None, **settings: Any) -> GitTree:
        """The source over it."""
        settings.setdefault("work_dir", self.work_dir)
        return GitTree("docs", repository or str(self.root), **settings)

    def list(self, known: SourceListing | None = None, **settings: Any) -> SourceListing:
        """A listing, from scratch or from an earlier one."""
        return self.source(**settings).list(known_of(known) if known else None)


def known_of(listing: SourceListing) -> dict[str, SourceFile]:
    """What the pipeline hands to the next listing."""
    return {file.path: file for file in listing.files}


def contents(listing: SourceListing) -> dict[str, bytes]:
    """Path to content."""
    return {file.path: file.content for file in listing.files}


def snapshot_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every byte and time below a folder."""
    return {
        str(file.relative_to(folder)): (file.read_bytes(), file.stat().st_mtime_ns)
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.is_symlink()
    }

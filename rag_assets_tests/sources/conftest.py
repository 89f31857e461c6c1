"""A real folder to list, built file by file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rag_assets.models import SourceListing
from rag_assets.sources.markdown_tree import MarkdownTree

NOBODY = 65534


class Tree:
    """A folder and the listings of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def write(self, path: str, content: str | bytes = "# Titre\n") -> Path:
        """Create or replace a file, with its folders."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    def link(self, path: str, target: str | Path) -> Path:
        """Create a symbolic link, with its folders."""
        link = self.root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
        return link

    def source(self, **settings: Any) -> MarkdownTree:
        """The source over this folder."""
        return MarkdownTree("docs", self.root, **settings)

    def list(self, **settings: Any) -> SourceListing:
        """A full listing."""
        return self.source(**settings).list()


def paths(listing: SourceListing) -> list[str]:
    """The paths of the documents, in their order."""
    return [file.path for file in listing.files]


def reasons(listing: SourceListing) -> dict[str, str]:
    """Why each left-out path is left out; every path only once."""
    found = {row.path: row.reason for row in listing.left_out}
    assert len(found) == len(listing.left_out)
    return found


@contextmanager
def unprivileged() -> Iterator[None]:
    """Give up root's right to read everything, when the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """An empty folder."""
    return Tree(tmp_path / "docs")


@pytest.fixture
def open_tree(tmp_path: Path) -> Tree:
    """An empty folder that unprivileged users can reach."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    built = Tree(tmp_path / "docs")
    built.root.chmod(0o755)
    return built

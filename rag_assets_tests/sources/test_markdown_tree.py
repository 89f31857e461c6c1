"""What a listing of a Markdown tree yields, from scratch and from what is known already."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

import pytest

from rag_assets.acl import AclRules
from rag_assets.errors import ConfigurationError
from rag_assets.models import SourceFile, SourceListing
from rag_assets.sources.base import Source
from rag_assets.sources.markdown_tree import MarkdownTree
from rag_assets.sources.shards import Shard

from .conftest import Tree, paths, reasons

MOMENT = 1_772_357_400  # 2026-03-01T09:30:00Z


def known(listing: SourceListing) -> dict[str, SourceFile]:
    return {file.path: file for file in listing.files}


def old_clock() -> int:
    """A clock for which files just written are old."""
    return time.time_ns() + 10_000_000_000


def test_it_is_a_source(tree: Tree) -> None:
    """The contract that the pipeline relies on."""
    assert isinstance(tree.source(), Source)


def test_a_document_carries_what_later_stages_need(tree: Tree) -> None:
    """Bytes as they are, their hash, times in UTC, tags, an encoded URL."""
    page = tree.write("guide/l'été 100%.md", b"# \xc3\x89t\xc3\xa9\r\n")
    os.utime(page, (MOMENT, MOMENT))
    (file,) = tree.list(
        acl=AclRules(("service:it", "public", "public")),
        url_template="https://wiki.example.org/{source}/{path}?plain=1",
    ).files
    assert file.source == "docs"
    assert file.path == "guide/l'été 100%.md"
    assert file.content == b"# \xc3\x89t\xc3\xa9\r\n"
    assert file.content_hash == hashlib.sha256(file.content).hexdigest()
    assert file.modified_at == "2026-03-01T09:30:00Z"
    assert file.acl_tags == ("public", "service:it")
    assert file.url == ("https://wiki.example.org/docs/guide/l%27%C3%A9t%C3%A9%20100%25.md?plain=1")
    assert tree.list().files[0].url == ""


def test_documents_come_in_the_order_of_their_paths(tree: Tree) -> None:
    """Two listings of one tree are equal, whatever the file system's order."""
    for name in ("b.md", "a/z.md", "a.md", "é.markdown", "a-b.MD"):
        tree.write(name)
    listing = tree.list()
    assert paths(listing) == sorted(paths(listing))
    assert tree.list() == listing


def test_other_files_are_only_counted(tree: Tree) -> None:
    """Neither documents nor left out one by one."""
    for name in ("image.png", "code.py", "a.md.txt", "md", "sub/b.mdx", "legacy/c.png"):
        tree.write(name)
    listing = tree.list()
    assert (listing.files, reasons(listing)) == ((), {"legacy/": "hard_exclusion"})
    assert listing.other_files == 5


def test_unchanged_files_are_carried_over_unread(tree: Tree) -> None:
    """The objects of the earlier listing, when they are old enough to be trusted."""
    for name in ("a.md", "b.md", "c.md"):
        tree.write(name)
    first = tree.list(clock=old_clock)
    assert first.read == 3
    tree.write("b.md", "# Autre\n")
    second = tree.source(clock=old_clock).list(known(first))
    assert second.read == 1
    assert second.files[0] is first.files[0]
    assert second.files[1].content == b"# Autre\n"


def test_files_just_written_are_read_again(tree: Tree) -> None:
    """Within two seconds a change may leave size and times as they were."""
    tree.write("a.md")
    first = tree.list()
    assert tree.source().list(known(first)).read == 1


def test_carried_over_documents_follow_the_settings(tree: Tree) -> None:
    """Tags and URL are those of now, without reading the file again."""
    tree.write("a.md")
    first = tree.list(clock=old_clock)
    source = tree.source(clock=old_clock, acl=AclRules(("admin_only",)), url_template="x/{path}")
    second = source.list(known(first))
    assert second.read == 0
    assert (second.files[0].acl_tags, second.files[0].url) == (("admin_only",), "x/a.md")


def test_a_touched_file_keeps_the_time_of_its_content(tree: Tree) -> None:
    """`modified_at` is when the content changed, not when a checkout wrote it again."""
    page = tree.write("a.md")
    os.utime(page, (MOMENT, MOMENT))
    first = tree.list()
    page.touch()
    second = tree.source().list(known(first))
    assert second.files[0].modified_at == "2026-03-01T09:30:00Z"
    page.write_text("# Autre\n")
    assert tree.source().list(known(second)).files[0].modified_at > "2026-03-02"


@pytest.mark.parametrize("moment", [-1, 0, 253_402_300_800, 2**62 // 10**9])
def test_impossible_times_are_no_error(tree: Tree, moment: int) -> None:
    """Before 1970, or after the year 9999 where the file system keeps that."""
    page = tree.write("a.md")
    os.utime(page, ns=(0, moment * 10**9))
    modified_at = tree.list().files[0].modified_at
    assert modified_at is None or len(modified_at) == 20


def test_inc01_inc13_a_renamed_file_is_gone_from_its_old_path(tree: Tree) -> None:
    """INC-01 and INC-13: identity is the path; the same content under another one is there."""
    tree.write("tarifs.md", "# Tarifs\n")
    first = tree.list()
    (tree.root / "sub").mkdir()
    (tree.root / "tarifs.md").rename(tree.root / "sub/prix.md")
    second = tree.source().list(known(first))
    assert paths(second) == ["sub/prix.md"]
    assert second.files[0].content_hash == first.files[0].content_hash
    changes = tree.source().look(first.look_state)
    assert (changes.added, changes.removed) == (("sub/prix.md",), ("tarifs.md",))


def test_inc17_moving_a_folder_changes_no_content_hash(tree: Tree) -> None:
    """INC-17: what is embedded is keyed by content, so a move of 100 files costs nothing."""
    for number in range(100):
        tree.write(f"old/{number}.md", f"# Page {number}\n")
    first = tree.list()
    (tree.root / "old").rename(tree.root / "new")
    second = tree.source().list(known(first))
    assert [file.content_hash for file in second.files] == [
        file.content_hash for file in first.files
    ]
    assert all(path.startswith("new/") for path in paths(second))


def test_equal_files_are_two_documents(tree: Tree) -> None:
    """A copy is no alias."""
    tree.write("a.md")
    tree.write("b.md")
    assert paths(tree.list()) == ["a.md", "b.md"]


def test_the_size_limit_counts_bytes(tree: Tree) -> None:
    """At the limit a file is still read; the row tells size and limit."""
    tree.write("at.md", "x" * 10)
    tree.write("over.md", "x" * 11)
    listing = tree.list(max_file_bytes=10)
    assert paths(listing) == ["at.md"]
    assert listing.left_out[0].rule == "11 bytes, more than max_file_bytes = 10"


def test_excluded_folders_are_one_row_each(tree: Tree) -> None:
    """They are not entered, so what they hold is not listed."""
    for name in ("notes/a.md", "notes/deep/b.md", "drafts/c.md", "guide/d.md", "e.md"):
        tree.write(name)
    tree.write(".aiignore", "drafts\n")
    listing = tree.list(excluded_paths=["notes"])
    assert paths(listing) == ["e.md", "guide/d.md"]
    assert reasons(listing) == {"notes/": "excluded_paths", "drafts/": "aiignore"}
    listing = tree.list(included_paths=["guide"])
    assert paths(listing) == ["guide/d.md"]
    assert set(reasons(listing).values()) == {"not_included"}


def test_an_included_path_inside_an_ignored_folder_stays_out(tree: Tree) -> None:
    """The allow-list narrows; it brings nothing back."""
    tree.write("drafts/a.md")
    tree.write(".aiignore", "drafts/\n")
    assert paths(tree.list(included_paths=["drafts/a.md"])) == []


def test_every_left_out_path_is_explained_as_it_was_listed(tree: Tree, tmp_path: Path) -> None:
    """`explain` and `list` agree, and documents have nothing to explain."""
    for name in ("a.md", "sub/b.md", "legacy/c.md", "drafts/d.md", "x.md/e.md", "data.txt"):
        tree.write(name)
    tree.write("SCRATCH.md")
    tree.write("blank.md", "")
    tree.write("large.md", "x" * 50)
    tree.write(".aiignore", "drafts/\n")
    tree.link("alias.md", "a.md")
    tree.link("b.md", "data.txt")
    tree.link("c.md", "data.txt")
    tree.link("out.md", tmp_path)
    tree.link("folder", "sub")
    os.mkfifo(tree.root / "pipe.md")
    (tree.root / os.fsdecode(b"\xff.md")).write_text("x")
    source = tree.source(max_file_bytes=40, excluded_paths=["nothing"])
    listing = source.list()
    assert len(listing.left_out) == 12
    for row in listing.left_out:
        assert source.explain(row.path) == row
    for path in paths(listing):
        assert source.explain(path) is None
        assert source.explain(str(tree.root / path)) is None


@pytest.mark.parametrize(
    ("path", "reason", "row_path"),
    [
        ("legacy/deep/x.md", "hard_exclusion", "legacy/deep/x.md"),
        ("absent/drafts/x.md", "aiignore", "absent/drafts/x.md"),
        ("folder/x.md", "alias", "folder/"),
        ("image.png", "not_markdown", "image.png"),
        ("../elsewhere.md", "outside_root", "../elsewhere.md"),
        ("sub/../../elsewhere.md", "outside_root", "sub/../../elsewhere.md"),
        ("/etc/passwd.md", "outside_root", "/etc/passwd.md"),
        (".git/x.md", "hard_exclusion", ".git/"),
        ("data/x.md", "hard_exclusion", "data/"),
        ("sub/../legacy/x.md", "hard_exclusion", "legacy/x.md"),
    ],
)
def test_paths_below_what_is_left_out_are_explained(
    tree: Tree, path: str, reason: str, row_path: str
) -> None:
    """Also those that do not exist: the rules say what would happen."""
    tree.write("sub/a.md")
    tree.write(".git/x.md")
    tree.write("data/x.md")
    tree.write(".aiignore", "drafts\n")
    tree.link("folder", "sub")
    row = tree.source(skip_directories=[tree.root / "data"]).explain(path)
    assert row is not None
    assert (row.reason, row.path) == (reason, row_path)


@pytest.mark.parametrize("path", ["absent.md", "absent/also.md", "sub", ".", "sub/./a.md"])
def test_what_no_rule_leaves_out_needs_no_explanation(tree: Tree, path: str) -> None:
    """A document, a folder, or what is not there."""
    tree.write("sub/a.md")
    assert tree.source().explain(path) is None


@pytest.mark.parametrize(
    "settings",
    [
        {"url_template": "https://x/{slug}"},
        {"max_file_bytes": 0},
        {"excluded_paths": ["../x"]},
        {"included_paths": ["/x"]},
    ],
)
def test_impossible_settings_are_refused(tree: Tree, settings: dict[str, object]) -> None:
    """When the source is built, not when it is first listed."""
    with pytest.raises(ConfigurationError):
        tree.source(**settings)


def test_the_whole_file_system_is_no_source() -> None:
    """A root of `/` is a mistake."""
    with pytest.raises(ConfigurationError, match="whole file system"):
        MarkdownTree("docs", Path("/")).list()


def test_the_shards_of_a_source_are_its_whole(tree: Tree, tmp_path: Path) -> None:
    """Every document, left-out row and other file is in exactly one of them."""
    for number in range(60):
        tree.write(f"part-{number % 7}/{number}.md", f"# {number}\n")
        tree.write(f"part-{number % 7}/{number}.png")
    for number in range(20):
        tree.write(f"legacy-{number}/SCRATCH.md")
        tree.write(f"folder-{number}/legacy/a.md")
    tree.write("data.txt")
    for number in range(4):
        tree.link(f"link-{number}.md", "data.txt")
    whole = tree.list()
    shards = [tree.list(shard=Shard(index, 3)) for index in range(3)]
    assert sorted(path for shard in shards for path in paths(shard)) == paths(whole)
    rows = [row for shard in shards for row in shard.left_out]
    assert sorted(rows, key=lambda row: row.path) == list(whole.left_out)
    assert sum(shard.other_files for shard in shards) == whole.other_files
    assert all(shard.read == len(shard.files) > 5 for shard in shards)
    assert all(json.dumps(shard.look_state) for shard in shards)


@pytest.mark.parametrize(("index", "count"), [(-1, 2), (2, 2), (0, 0)])
def test_impossible_shards_are_refused(index: int, count: int) -> None:
    """An index beyond the count would hold nothing."""
    with pytest.raises(ConfigurationError, match="shard"):
        Shard(index, count)


def test_a_shard_is_known_by_a_stable_hash() -> None:
    """The same path is in the same shard on every machine and in every version."""
    assert [Shard(index, 4).holds("guide/été.md") for index in range(4)].count(True) == 1
    digest = int(hashlib.sha256("guide/été.md".encode()).hexdigest(), 16)
    assert Shard(digest % 4, 4).holds("guide/été.md")
    assert Shard(0, 4).label == "1of4"

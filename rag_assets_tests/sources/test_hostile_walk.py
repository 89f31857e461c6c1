"""What hurts a walk: links, odd files, odd names, files that change under it; one test per kind."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import subprocess
import time
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rag_assets.errors import (
    ConfigurationError,
    IncompleteEnumeration,
    RagError,
    SourceUnavailable,
)
from rag_assets.models import PROBLEM_REASONS, SourceFile
from rag_assets.sources.file_reading import Disk

from .conftest import Tree, paths, reasons, unprivileged


class Meddling(dict[str, SourceFile]):
    """Nothing known; acts once after the tree was listed and before the first file is read."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act: Callable[[], object] | None = act

    def __bool__(self) -> bool:
        return True

    def get(self, key: str, default: object = None) -> None:  # type: ignore[override]
        if self._act is not None:
            act, self._act = self._act, None
            act()


class MeddlingShard:
    """Holds every path; acts once when the file ``trigger`` is listed."""

    index, count = 0, 1

    def __init__(self, trigger: str, act: Callable[[], object]) -> None:
        self._trigger, self._act = trigger, act

    def holds(self, path: str) -> bool:
        if path == self._trigger:
            self._trigger = ""
            self._act()
        return True


def test_01_a_directory_link_out_of_the_root_is_not_followed(tree: Tree, tmp_path: Path) -> None:
    """Kind 1."""
    outside = Tree(tmp_path / "outside")
    outside.write("secret.md")
    tree.write("a.md")
    tree.link("out", outside.root)
    listing = tree.list()
    assert paths(listing) == ["a.md"]
    assert reasons(listing) == {"out/": "outside_root"}


def test_02_a_file_link_out_of_the_root_is_left_out(tree: Tree, tmp_path: Path) -> None:
    """Kind 2; also a chain that leaves the root and comes back."""
    outside = Tree(tmp_path / "outside")
    outside.write("secret.md")
    outside.link("back.md", tree.root / "data.txt")
    tree.write("data.txt")
    tree.link("a.md", outside.root / "secret.md")
    tree.link("b.md", outside.root / "back.md")
    listing = tree.list()
    assert reasons(listing) == {"a.md": "outside_root"}
    assert paths(listing) == ["b.md"]  # what is read lies inside


def test_03_link_loops_end(tree: Tree) -> None:
    """Kind 3: to itself, to each other, to the folder it lies in."""
    tree.write("a.md")
    tree.link("self.md", "self.md")
    tree.link("x.md", "y.md")
    tree.link("y.md", "x.md")
    tree.link("sub/up", "..")
    tree.link("here", ".")
    listing = tree.list()
    assert paths(listing) == ["a.md"]
    assert reasons(listing) == {
        "self.md": "not_a_regular_file",
        "x.md": "not_a_regular_file",
        "y.md": "not_a_regular_file",
        "sub/up/": "alias",
        "here/": "alias",
    }


def test_04_dangling_links_are_no_error(tree: Tree) -> None:
    """Kind 4: reported where it has the name of a document, counted elsewhere."""
    tree.write("a.md")
    tree.link("gone.md", "nowhere.md")
    tree.link("gone.png", "nowhere.png")
    listing = tree.list()
    assert reasons(listing) == {"gone.md": "not_a_regular_file"}
    assert listing.other_files == 1


def test_05_a_hard_link_is_a_file_of_its_own(tree: Tree, tmp_path: Path) -> None:
    """Kind 5: nothing tells it from any other file of the folder."""
    outside = Tree(tmp_path / "outside")
    os.link(outside.write("other.md", "# Autre\n"), tree.root / "a.md")
    assert paths(tree.list()) == ["a.md"]


@pytest.mark.parametrize("kind", ["fifo", "socket", "device"])
def test_06_07_special_files_are_never_opened(tree: Tree, kind: str) -> None:
    """Kinds 6 and 7: opening a pipe without a writer would wait for ever."""
    odd = tree.root / "odd.md"
    tree.write("a.md")
    server = socket.socket(socket.AF_UNIX)
    if kind == "fifo":
        os.mkfifo(odd)
    elif kind == "socket":
        server.bind(str(odd))
    else:
        try:
            os.mknod(odd, 0o20600, os.makedev(1, 5))  # /dev/zero never ends
        except PermissionError:
            pytest.skip("devices can only be made by root")
    with server:
        tree.link("link.md", "odd.md")
        listing = tree.list()
        assert paths(listing) == ["a.md"]
        assert reasons(listing) == {
            "odd.md": "not_a_regular_file",
            "link.md": "not_a_regular_file",
        }
        assert not tree.source().look(listing.look_state)


def test_08_a_folder_with_the_name_of_a_document_is_entered(tree: Tree) -> None:
    """Kind 8: the name is reported; the documents in it are not lost."""
    tree.write("guide.md/page.md")
    listing = tree.list()
    assert paths(listing) == ["guide.md/page.md"]
    assert reasons(listing) == {"guide.md": "not_a_regular_file"}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        pytest.param(b"caf\xe9.md", "caf\\xe9.md", id="09-latin-1"),
        pytest.param(b"a\nb.md", "a\\x0ab.md", id="10-newline"),
        pytest.param(b"a\rb.md", "a\\x0db.md", id="10-carriage-return"),
        pytest.param(b"\x1b[2Ja.md", "\\x1b[2Ja.md", id="10-escape"),
        pytest.param("a\u2028b.md".encode(), "a\\u2028b.md", id="10-line-separator"),
        pytest.param("a\u202edm.md".encode(), "a\\u202edm.md", id="10-bidi-override"),
    ],
)
def test_09_10_unsafe_names_are_reported_in_a_printable_form(
    tree: Tree, name: bytes, shown: str
) -> None:
    """Kinds 9 and 10, and WK-09: the path survives UTF-8, JSON and one line of a log."""
    tree.write("ok.md")
    (tree.root / os.fsdecode(name)).write_text("x")
    (tree.root / os.fsdecode(name.replace(b".md", b""))).mkdir()
    listing = tree.list()
    assert paths(listing) == ["ok.md"]
    folder = shown.replace(".md", "") + "/"
    assert reasons(listing) == {shown: "unsafe_name", folder: "unsafe_name"}
    row = next(row for row in listing.left_out if row.path == shown)
    assert row.status == "quarantined"
    for text in (row.path, row.rule, json.dumps(listing.look_state, ensure_ascii=False)):
        assert text.encode("utf-8").decode().isprintable()
    assert not tree.source().look(json.loads(json.dumps(listing.look_state)))
    assert tree.source().explain(shown) == row


def test_09_an_unsafe_name_never_takes_the_path_of_another_file(tree: Tree) -> None:
    """The escaped form may be the real name of a document."""
    tree.write("caf\\xe9.md")
    (tree.root / os.fsdecode(b"caf\xe9.md")).write_text("x")
    listing = tree.list()
    assert paths(listing) == ["caf\\xe9.md"]
    assert reasons(listing) == {"caf\\xe9.md#2": "unsafe_name"}


def test_09_an_unsafe_name_that_a_rule_excludes_is_no_problem(tree: Tree) -> None:
    """Rules come first, so that such a run is not partial."""
    (tree.root / os.fsdecode(b"caf\xe9.md")).write_text("x")
    tree.write(".aiignore", "caf*\n")
    assert reasons(tree.list()) == {"caf\\xe9.md": "aiignore"}


def test_11_nfc_and_nfd_twins_are_two_documents(tree: Tree) -> None:
    """Kind 11: paths are kept as the source spells them."""
    twins = [unicodedata.normalize(form, "été.md") for form in ("NFC", "NFD")]
    for twin in twins:
        tree.write(twin)
    assert paths(tree.list()) == sorted(twins)


def test_12_hard_exclusions_hold_in_a_walk(tree: Tree) -> None:
    """Kind 12: whatever the case, and not through a link either."""
    tree.write("LEGACY/a.md")
    tree.write("sub/scratch.MD")
    tree.write("sub/PassBolt/a.md")
    tree.link("smuggled.md", "LEGACY/a.md")
    tree.link("notes.md", "sub/scratch.MD")
    listing = tree.list(included_paths=["LEGACY", "sub", "smuggled.md", "notes.md"])
    assert paths(listing) == []
    assert reasons(listing) == dict.fromkeys(
        ["LEGACY/", "sub/scratch.MD", "sub/PassBolt/", "smuggled.md", "notes.md"],
        "hard_exclusion",
    )


def test_13_odd_but_harmless_names_are_ordinary(tree: Tree) -> None:
    """Kind 13: a leading dash, dots, spaces, brackets, emoji."""
    names = ["-rf.md", "..md", ".caché.md", " a .md", "[x](y).md", "😀.md", "a\u00a0b.MARKDOWN"]
    for name in names:
        tree.write(name)
    assert paths(tree.list()) == sorted(names)


def test_14_a_sparse_file_of_20_gib_is_never_read(tree: Tree) -> None:
    """Kind 14."""
    with open(tree.root / "big.md", "wb") as file:
        try:
            file.truncate(20 << 30)
        except OSError:
            pytest.skip("this file system holds no such file")
    start = time.perf_counter()
    listing = tree.list()
    assert reasons(listing) == {"big.md": "too_large"}
    assert listing.read == 0
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b" \t\r\n\x0b\x0c",
        b"\xef\xbb\xbf\n",
        " \u00a0\u2003\u3000\n".encode(),
        b"\xff\xfe \x00\n\x00",
        b"\xfe\xff\x00 \x00\n",
        b"\xff\xfe\x00\x00 \x00\x00\x00",
        b"\n" * 100_000,
    ],
)
def test_15_blank_files_are_left_out(tree: Tree, content: bytes) -> None:
    """Kind 15: nothing but white space and byte order marks, in any encoding."""
    tree.write("a.md", content)
    listing = tree.list()
    assert reasons(listing) == {"a.md": "blank"}
    assert not tree.source().look(listing.look_state)


@pytest.mark.parametrize("content", [b"a", b"\n" * 300 + b"a", b"\xff\xfea\x00", b"\xe9", b"\x00"])
def test_15_files_with_a_character_are_not_blank(tree: Tree, content: bytes) -> None:
    """Also when it comes late, or belongs to no known encoding (WK-05): later stages judge that."""
    tree.write("a.md", content)
    assert paths(tree.list()) == ["a.md"]


def test_16_a_file_without_permissions_is_left_out(open_tree: Tree) -> None:
    """Kind 16: mode 000; the others are listed."""
    open_tree.write("a.md")
    open_tree.write("secret.md").chmod(0)
    with unprivileged():
        listing = open_tree.list()
        assert not open_tree.source().look(listing.look_state)
    assert paths(listing) == ["a.md"]
    assert reasons(listing) == {"secret.md": "unreadable"}
    (open_tree.root / "secret.md").chmod(0o644)
    assert open_tree.source().look(listing.look_state).modified == ("secret.md",)


@pytest.mark.parametrize("mode", [0o000, 0o444, 0o111])
def test_16_a_folder_without_permissions_makes_the_listing_incomplete(
    open_tree: Tree, mode: int
) -> None:
    """Absence is not deletion: unless a rule excludes it, no listing comes out."""
    open_tree.write("a.md")
    locked = open_tree.write("locked/b.md").parent
    locked.chmod(mode)
    state = open_tree.source().list().look_state if os.geteuid() == 0 else None
    try:
        with unprivileged():
            with pytest.raises(IncompleteEnumeration, match="locked"):
                open_tree.list()
            assert open_tree.source().look(state)
            assert paths(open_tree.list(excluded_paths=["locked"])) == ["a.md"]
    finally:
        locked.chmod(0o755)


def test_17_a_file_that_vanishes_after_listing_is_reported(tree: Tree) -> None:
    """Kind 17."""
    tree.write("a.md")
    gone = tree.write("b.md")
    listing = tree.source().list(Meddling(gone.unlink))
    assert paths(listing) == ["a.md"]
    assert reasons(listing) == {"b.md": "vanished"}
    assert not tree.source().look(listing.look_state)


def test_17_a_folder_that_vanishes_after_listing_is_no_error(tree: Tree) -> None:
    """Its documents are gone, and no other."""
    tree.write("a.md")
    tree.write("trigger.txt")
    folder = tree.write("sub/b.md").parent
    shard = MeddlingShard("trigger.txt", lambda: shutil.rmtree(folder))
    listing = tree.list(shard=shard)
    assert paths(listing) == ["a.md"]
    assert reasons(listing) == {"sub/": "vanished"}


def test_17_a_root_that_vanishes_is_not_an_empty_tree(tree: Tree, tmp_path: Path) -> None:
    """An emptied listing would empty the index."""
    tree.write("sub/b.md")
    tree.write("trigger.txt")
    shard = MeddlingShard("trigger.txt", lambda: tree.root.rename(tmp_path / "moved"))
    with pytest.raises(SourceUnavailable, match="docs"):
        tree.list(shard=shard)


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_18_a_file_swapped_for_a_link_is_not_read(tree: Tree, tmp_path: Path, where: str) -> None:
    """Kind 18: the run is partial, and the next look asks for another listing."""
    outside = Tree(tmp_path / "outside")
    target = outside.write("secret.md") if where == "outside" else tree.write("legacy/secret.md")
    victim = tree.write("a.md", "# Vrai\n")

    def swap() -> None:
        victim.unlink()
        victim.symlink_to(target)

    listing = tree.source().list(Meddling(swap))
    assert paths(listing) == []
    assert reasons(listing)["a.md"] == "changed_while_read"
    assert tree.source().look(listing.look_state).modified == ("a.md",)


def test_18_a_folder_swapped_for_a_link_before_its_files_are_read(
    tree: Tree, tmp_path: Path
) -> None:
    """The file that is opened must be the one that was listed."""
    outside = Tree(tmp_path / "outside")
    outside.write("a.md", "# Secret\n")
    folder = tree.write("sub/a.md").parent

    def swap() -> None:
        folder.rename(tmp_path / "moved")
        folder.symlink_to(outside.root)

    listing = tree.source().list(Meddling(swap))
    assert paths(listing) == []
    assert reasons(listing) == {"sub/a.md": "changed_while_read"}


def test_18_a_folder_swapped_for_a_link_before_it_is_entered(tree: Tree, tmp_path: Path) -> None:
    """It is not entered, whether the link is the folder itself or lies on the way."""
    outside = Tree(tmp_path / "outside")
    outside.write("deep/a.md", "# Secret\n")
    folder = tree.write("sub/deep/a.md").parent.parent
    tree.write("sub/trigger.txt")

    def swap() -> None:
        folder.rename(tmp_path / "moved")
        folder.symlink_to(outside.root)

    listing = tree.list(shard=MeddlingShard("sub/trigger.txt", swap))
    assert paths(listing) == []
    assert reasons(listing) == {"sub/deep/": "changed_while_read"}
    assert tree.source().look(listing.look_state)


def test_18_a_file_replaced_as_editors_do_is_read(tree: Tree) -> None:
    """Saving by renaming gives another inode at the same place: no swap."""
    tree.write("a.md", "# Avant\n")
    fresh = tree.write("a.tmp", "# Après\n")
    listing = tree.source().list(Meddling(lambda: fresh.rename(tree.root / "a.md")))
    assert [file.content.decode() for file in listing.files] == ["# Après\n"]


def test_19_a_file_that_grows_all_the_time_is_left_out(tree: Tree) -> None:
    """Kind 19: read three times, then reported; never cut."""
    log = tree.write("log.md", "# Journal\n")
    tree.write("a.md")
    reads = []

    def read_while_it_grows(descriptor: int, length: int) -> bytes:
        data = os.read(descriptor, length)
        if data.startswith(b"# Journal"):
            reads.append(length)
            with open(log, "ab") as file:
                file.write(b"ligne\n")
        return data

    listing = tree.list(disk=Disk(read=read_while_it_grows))
    assert paths(listing) == ["a.md"]
    assert reasons(listing) == {"log.md": "changed_while_read"}
    assert len(reads) == 3
    assert tree.source().look(listing.look_state).modified == ("log.md",)


def test_19_a_file_that_changes_once_is_read_whole(tree: Tree) -> None:
    """The second reading counts."""
    page = tree.write("a.md", "# Un\n")
    again = [b"# Deux, plus long\n"]

    def read(descriptor: int, length: int) -> bytes:
        data = os.read(descriptor, length)
        if again:
            page.write_bytes(again.pop())
        return data

    listing = tree.list(disk=Disk(read=read))
    assert [file.content for file in listing.files] == [b"# Deux, plus long\n"]


@pytest.fixture
def deep_tree(tree: Tree) -> Iterator[Tree]:
    """A folder that is removed by a program that can go as deep as the test did."""
    yield tree
    subprocess.run(["rm", "-rf", str(tree.root)], check=True)


def test_20_a_depth_of_1000_is_walked(deep_tree: Tree) -> None:
    """Kind 20: no recursion, and a path the system can still open."""
    folder = deep_tree.root
    for _ in range(1000):
        folder = folder / "d"
        os.mkdir(folder)
    (folder / "a.md").write_text("# Profond\n")
    listing = deep_tree.list()
    assert paths(listing) == ["d/" * 1000 + "a.md"]
    assert not deep_tree.source().look(listing.look_state)


def test_20_a_path_too_long_to_open_is_reported(deep_tree: Tree) -> None:
    """Folders below PATH_MAX are left out as one row, and do not look changed for ever."""
    name, handle = "d" * 250, os.open(deep_tree.root, os.O_RDONLY)
    try:
        for _ in range(20):
            os.mkdir(name, dir_fd=handle)
            inner = os.open(name, os.O_RDONLY, dir_fd=handle)
            os.close(handle)
            handle = inner
            long_file = os.open("é" * 120 + ".md", os.O_CREAT | os.O_WRONLY, dir_fd=handle)
            os.write(long_file, b"x")
            os.close(long_file)
    finally:
        os.close(handle)
    deep_tree.write("a.md")
    listing = deep_tree.list()
    assert set(reasons(listing).values()) == {"path_too_long"}
    assert len(listing.files) + len(listing.left_out) <= 21
    assert not deep_tree.source().look(listing.look_state)


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.EMFILE])
def test_trouble_of_the_disk_is_not_absence(tree: Tree, code: int) -> None:
    """A file that cannot be read for such a reason fails the listing instead of vanishing."""
    tree.write("a.md")

    def broken(path: str, flags: int) -> int:
        raise OSError(code, os.strerror(code), path)

    with pytest.raises(SourceUnavailable, match=r"a\.md"):
        tree.list(disk=Disk(open=broken))


@pytest.mark.parametrize("kind", ["missing", "file", "dangling"])
def test_a_root_that_is_no_folder_is_unavailable(tree: Tree, kind: str) -> None:
    """For a listing and for a look; the error names the root."""
    tree.write("a.md")
    state = tree.list().look_state
    shutil.rmtree(tree.root)
    if kind == "file":
        tree.root.write_text("x")
    elif kind == "dangling":
        tree.root.symlink_to("nowhere")
    for call in (tree.list, lambda: tree.source().look(state)):
        with pytest.raises(SourceUnavailable, match="docs"):
            call()


def test_the_root_itself_may_be_a_link(tree: Tree, tmp_path: Path) -> None:
    """It is resolved first, and a link that leads elsewhere later is another tree."""
    tree.write("a.md")
    other = Tree(tmp_path / "other")
    other.write("b.md")
    link = tmp_path / "current"
    link.symlink_to(tree.root)
    current = Tree(link)
    listing = current.list()
    assert paths(listing) == ["a.md"]
    assert not current.source().look(listing.look_state)
    link.unlink()
    link.symlink_to(other.root)
    assert current.source().look(listing.look_state).unknown


def test_64_65_66_ignore_files_of_every_kind(tree: Tree, tmp_path: Path) -> None:
    """A link inside the root is read as the file; BOM and CRLF do not hurt."""
    tree.write("rules/ignore.txt", "\ufeffdrafts/\r\n*.tmp.md\r\n")
    tree.link(".aiignore", "rules/ignore.txt")
    tree.write("drafts/a.md")
    tree.write("b.tmp.md")
    tree.write("ok.md")
    listing = tree.list()
    assert paths(listing) == ["ok.md"]
    assert reasons(listing) == {"drafts/": "aiignore", "b.tmp.md": "aiignore"}
    assert not tree.source().look(listing.look_state)
    tree.write("rules/ignore.txt", "drafts/\n")
    assert tree.source().look(listing.look_state).modified == (".aiignore",)


@pytest.mark.parametrize(
    "kind",
    [
        "66-link-outside",
        "66-dangling",
        "66-loop",
        "folder",
        "fifo",
        "not-utf8",
        "utf16",
        "too-large",
        "bad-pattern",
    ],
)
def test_an_ignore_file_that_cannot_be_used_stops_the_listing(
    tree: Tree, tmp_path: Path, kind: str
) -> None:
    """What it might have excluded is never published; the error names the file."""
    tree.write("a.md")
    file = tree.root / ".aiignore"
    contents = {
        "not-utf8": b"ok\ncaf\xe9/\n",
        "utf16": "drafts/\n".encode("utf-16"),
        "too-large": b"# \n" * 400_000,
        "bad-pattern": b"drafts/\n[abc\n",
    }
    if kind in contents:
        file.write_bytes(contents[kind])
    elif kind == "folder":
        file.mkdir()
    elif kind == "fifo":
        os.mkfifo(file)
    else:
        (tmp_path / "outside").write_text("a.md\n")
        targets = {"66-link-outside": "../outside", "66-dangling": "none", "66-loop": ".aiignore"}
        file.symlink_to(targets[kind])
    with pytest.raises(ConfigurationError, match=r"\.aiignore") as caught:
        tree.list()
    if kind in ("not-utf8", "bad-pattern"):
        assert ".aiignore:2" in str(caught.value)
    with pytest.raises(RagError):
        tree.source().explain("a.md")


def test_an_ignore_file_that_may_not_be_read_stops_the_listing(open_tree: Tree) -> None:
    """Mode 000."""
    open_tree.write("a.md")
    open_tree.write(".aiignore", "a.md\n").chmod(0)
    with unprivileged(), pytest.raises(ConfigurationError, match=r"\.aiignore"):
        open_tree.list()


def test_wk01_a_link_to_a_parent_folder_ends(tree: Tree) -> None:
    """WK-01: each real file once; what lies outside is refused."""
    tree.write("racine/a/x.md")
    tree.link("racine/a/lien", "../..")
    tree.link("racine/a/dehors", "../../..")
    listing = tree.list()
    assert paths(listing) == ["racine/a/x.md"]
    assert reasons(listing) == {"racine/a/lien/": "alias", "racine/a/dehors/": "outside_root"}


def test_wk03_an_alias_is_recorded_and_makes_no_duplicate(tree: Tree) -> None:
    """WK-03: a link beside its target is no loop; it names what it is an alias of."""
    tree.write("v1.2/a.md")
    tree.link("courant", "v1.2")
    tree.link("b.md", "v1.2/a.md")
    listing = tree.list()
    assert paths(listing) == ["v1.2/a.md"]
    assert {row.path: row.rule for row in listing.left_out} == {
        "courant/": "links to v1.2/",
        "b.md": "links to v1.2/a.md",
    }


def test_wk03_links_to_a_file_that_is_no_document_give_one_document(tree: Tree) -> None:
    """The first by path; it is read through the link, and the others are aliases of it."""
    tree.write("data.txt", "# Données\n")
    for name in ("c.md", "a.md", "b.md"):
        tree.link(name, "data.txt")
    listing = tree.list()
    assert [(file.path, file.content.decode()) for file in listing.files] == [
        ("a.md", "# Données\n")
    ]
    assert {row.path: row.rule for row in listing.left_out} == {
        "b.md": "links to a.md",
        "c.md": "links to a.md",
    }


@pytest.mark.parametrize(
    "content", [b"caf\xe9", b"# Titre\n1990\x962000\n"], ids=["WK-05", "WK-07"]
)
def test_bytes_that_are_not_utf8_do_not_stop_the_others(tree: Tree, content: bytes) -> None:
    """The source hands them on as they are; decoding is not its business."""
    tree.write("note.md", content)
    tree.write("ok.md")
    assert [file.content for file in tree.list().files] == [content, b"# Titre\n"]


def test_wk11_one_bad_name_among_a_thousand(tree: Tree) -> None:
    """WK-11: 999 documents, one reported."""
    for number in range(999):
        (tree.root / f"{number}.md").write_text("x")
    (tree.root / os.fsdecode(b"998\xff.md")).write_text("x")
    listing = tree.list()
    assert len(listing.files) == 999
    assert reasons(listing) == {"998\\xff.md": "unsafe_name"}


def test_every_row_has_the_status_of_its_reason(tree: Tree) -> None:
    """What nobody chose is quarantined, what a rule says is excluded."""
    tree.write("legacy/a.md")
    tree.write("blank.md", "")
    (tree.root / os.fsdecode(b"\xff.md")).write_text("x")
    for row in tree.list().left_out:
        assert row.status == ("quarantined" if row.reason in PROBLEM_REASONS else "excluded")

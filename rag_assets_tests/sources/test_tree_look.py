"""The cheap look finds what a full listing would find, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_assets.acl import AclRules
from rag_assets.errors import SourceUnavailable
from rag_assets.models import SourceListing
from rag_assets.sources import tree_look
from rag_assets.sources.shards import Shard
from rag_assets.sources.tree_look import TreeChanges, look_tree

from .conftest import Tree

LATER_NS = 10_000_000_000


def settled_clock() -> int:
    """A clock for which files just written are old."""
    return time.time_ns() + LATER_NS


def look(state: Mapping[str, Any], **options: Any) -> TreeChanges:
    """A look at the state as it is after a stay in a file."""
    return look_tree(json.loads(json.dumps(state)), **options)


def wait_a_tick() -> None:
    """Until the clock of the file system has moved on (it has 4 ms at most)."""
    time.sleep(0.02)


def test_an_untouched_tree_shows_nothing(tree: Tree) -> None:
    """Whether its files are old or were written a moment ago."""
    tree.write("a.md")
    tree.write("sub/b.md")
    tree.write("image.png")
    for clock in (time.time_ns, settled_clock):
        state = tree.list(clock=clock).look_state
        changes = look(state)
        assert not changes
        assert (changes.added, changes.modified, changes.removed) == ([], [], [])


def test_each_kind_of_change_is_named(tree: Tree) -> None:
    """Added, modified, removed; other files do not count."""
    for name in ("a.md", "b.md", "c.md", "sub/d.md"):
        tree.write(name)
    state = tree.list().look_state
    tree.write("a.md", "# Autre\n")
    (tree.root / "b.md").unlink()
    (tree.root / "sub/d.md").rename(tree.root / "sub/e.md")
    tree.write("new/f.md")
    tree.write("new/image.png")
    changes = look(state)
    assert changes.modified == ["a.md"]
    assert changes.removed == ["b.md", "sub/d.md"]
    assert changes.added == ["new/f.md", "sub/e.md"]
    assert not changes.unknown


def test_inc11_a_same_size_edit_with_its_time_set_back_is_found(tree: Tree) -> None:
    """INC-11: by the look and by the listing, for files just written and for old ones."""
    for clock in (time.time_ns, settled_clock):
        page = tree.write("a.md", "aaaa")
        listing = tree.list(clock=clock)
        before = page.stat()
        if clock is settled_clock:
            wait_a_tick()
        page.write_text("bbbb")
        os.utime(page, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert look(listing.look_state).modified == ["a.md"]
        known = {file.path: file for file in listing.files}
        assert [file.content for file in tree.source().list(known).files] == [b"bbbb"]


def test_a_touched_file_is_not_a_changed_one(tree: Tree) -> None:
    """Its content is compared, and the settled state spares that the next time."""
    page = tree.write("a.md")
    state = tree.list(clock=settled_clock).look_state
    wait_a_tick()
    page.touch()
    changes = look(state, now_ns=settled_clock())
    assert not changes
    assert changes.settled is not None
    assert changes.settled["directories"][""]["a.md"] != state["directories"][""]["a.md"]
    again = look(changes.settled, now_ns=settled_clock())
    assert not again
    assert again.settled is None


def test_racy_entries_settle(tree: Tree) -> None:
    """Once they are old enough, a look that read them leaves a state that needs no reading."""
    tree.write("a.md")
    tree.write(".aiignore", "drafts/\n")
    tree.write("data.txt")
    tree.link("link.md", "data.txt")
    state = tree.list().look_state
    assert "~" in json.dumps(state)
    settled = look(state, now_ns=settled_clock()).settled
    assert settled is not None
    assert "~" not in json.dumps(settled)
    assert not look(settled)
    assert "~" in json.dumps(state), "the given state is left alone"


def test_a_look_reads_a_bounded_amount(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it, a file whose signature differs counts as changed."""
    monkeypatch.setattr(tree_look, "REHASH_LIMIT_BYTES", 10)
    tree.write("a.md", "x" * 8)
    tree.write("b.md", "x" * 8)
    changes = look(tree.list().look_state)
    assert len(changes.modified) == 1


def test_what_was_left_out_is_watched_as_far_as_it_matters(tree: Tree) -> None:
    """A blank file that is filled, a rule that changes; not the text of an excluded file."""
    tree.write("blank.md", "\n")
    tree.write("SCRATCH.md", "1")
    tree.write("legacy/a.md")
    tree.write("drafts/a.md")
    tree.write(".aiignore", "drafts/\n")
    state = tree.list().look_state
    tree.write("SCRATCH.md", "2")
    tree.write("legacy/b.md")
    tree.write("drafts/b.md")
    assert not look(state)
    tree.write("blank.md", "texte")
    assert look(state).modified == ["blank.md"]
    tree.write(".aiignore", "")
    assert ".aiignore" in look(state).modified
    (tree.root / ".aiignore").unlink()
    assert ".aiignore" in look(state).modified


def test_a_large_file_that_grows_is_still_too_large(tree: Tree) -> None:
    """Only becoming small enough is a change."""
    page = tree.write("a.md", "x" * 20)
    state = tree.list(max_file_bytes=10).look_state
    page.write_text("x" * 30)
    assert not look(state)
    page.write_text("x" * 5)
    assert look(state).modified == ["a.md"]


def test_links_are_watched(tree: Tree) -> None:
    """Their target's content, where they lead, and their coming and going."""
    data = tree.write("data.txt", "un")
    tree.write("other.txt", "un")
    link = tree.link("a.md", "data.txt")
    tree.link("gone.md", "nowhere")
    state = tree.list().look_state
    assert not look(state)
    data.write_text("deux")
    assert look(state).modified == ["a.md"]
    data.write_text("un")
    assert not look(state)
    link.unlink()
    assert look(state).removed == ["a.md"]
    link.symlink_to("other.txt")
    assert look(state).modified == ["a.md"]
    tree.write("nowhere")
    assert "gone.md" in look(state).modified


@pytest.mark.parametrize("replacement", ["folder", "link", "fifo"])
def test_a_file_that_became_something_else_is_found(tree: Tree, replacement: str) -> None:
    """A document replaced by a folder, a link or a pipe of its name."""
    page = tree.write("a.md")
    tree.write("b.md")
    state = tree.list().look_state
    page.unlink()
    if replacement == "folder":
        page.mkdir()
    elif replacement == "link":
        page.symlink_to("b.md")
    else:
        os.mkfifo(page)
    assert look(state).modified == ["a.md"]


@pytest.mark.parametrize("replacement", ["file", "link", "nothing"])
def test_a_folder_that_became_something_else_is_found(
    tree: Tree, tmp_path: Path, replacement: str
) -> None:
    """Its documents are gone, even when a link of its name leads to equal ones."""
    tree.write("sub/a.md")
    state = tree.list().look_state
    (tree.root / "sub").rename(tmp_path / "moved")
    if replacement == "file":
        tree.write("sub", "x")
    elif replacement == "link":
        tree.link("sub", tmp_path / "moved")
    assert look(state)


def test_the_data_folder_is_skipped_even_before_it_exists(tree: Tree) -> None:
    """It appears during the first run."""
    tree.write("a.md")
    data = tree.root / ".rag_assets"
    source = tree.source(skip_directories=[data])
    state = source.list().look_state
    tree.write(".rag_assets/export.md")
    tree.write(".git/description.md")
    assert not source.look(state)
    assert [file.path for file in source.list().files] == ["a.md"]
    assert source.list().left_out == ()


def test_a_state_of_other_settings_is_void(tree: Tree) -> None:
    """And so is none, or one of another format."""
    tree.write("a.md")
    source = tree.source()
    state = source.list().look_state
    assert not source.look(state)
    assert source.look(None).unknown
    assert source.look({**state, "format": 0}).unknown
    for changed in ({"excluded_paths": ["x"]}, {"acl": AclRules()}, {"url_template": "u/{path}"}):
        assert tree.source(**changed).look(state).unknown


def test_a_missing_root_is_unavailable(tree: Tree, tmp_path: Path) -> None:
    """It is not a tree whose documents were all removed."""
    tree.write("a.md")
    state = tree.list().look_state
    tree.root.rename(tmp_path / "moved")
    with pytest.raises(SourceUnavailable, match="docs"):
        look(state)


def test_a_shard_looks_at_its_own_files(tree: Tree) -> None:
    """A change shows in the shard that holds the path, and in no other."""
    for number in range(40):
        tree.write(f"{number}.md")
    tree.write("SCRATCH.md")
    sources = [tree.source(shard=Shard(index, 4)) for index in range(4)]
    states = [source.list().look_state for source in sources]

    def changed() -> list[int]:
        return [index for index in range(4) if sources[index].look(states[index])]

    def holder(path: str) -> list[int]:
        return [index for index in range(4) if Shard(index, 4).holds(path)]

    assert changed() == []
    tree.write("7.md", "# Autre\n")
    assert changed() == holder("7.md")
    tree.write("7.md")
    tree.write("new.md")
    assert changed() == holder("new.md")
    (tree.root / "new.md").unlink()
    (tree.root / "SCRATCH.md").unlink()
    assert changed() == holder("SCRATCH.md")


def test_the_look_imports_almost_nothing() -> None:
    """Only the standard library, and of that little: it runs before every ingest."""
    code = (
        "import sys; before = set(sys.modules); import rag_assets.sources.tree_look;"
        "print(*sorted(set(sys.modules) - before))"
    )
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": str(root)}
    out = subprocess.run(
        [sys.executable, "-S", "-c", code], env=env, check=True, stdout=subprocess.PIPE, text=True
    )
    allowed = {
        "rag_assets",
        "rag_assets.sources",
        "rag_assets.sources.tree_look",
        "__future__",
        "_collections_abc",
        "genericpath",
        "os",
        "os.path",
        "posixpath",
        "stat",
        "_stat",
        "time",
    }
    assert set(out.stdout.split()) <= allowed


# The law: a look shows something if and only if a full listing would.

_PATHS = st.sampled_from(
    [
        *("a.md", "b.md", "B.MD", "sub/a.md", "sub/deep/c.md", "x.md/in.md", "legacy/d.md"),
        *("SCRATCH.md", "image.png", "data.txt", "drafts/e.md", "a\nb.md", "\udce9.md"),
    ]
)
_CONTENTS = st.sampled_from(["", "aaaa", "bbbb", "texte", "x" * 50])
_EDIT = st.one_of(
    st.tuples(st.just("write"), _PATHS, _CONTENTS),
    st.tuples(st.just("write and set back"), _PATHS, _CONTENTS),
    st.tuples(st.just("touch"), _PATHS, st.none()),
    st.tuples(st.just("remove"), _PATHS, st.none()),
    st.tuples(st.just("rename"), _PATHS, _PATHS),
    st.tuples(st.just("make folder"), _PATHS, st.none()),
)
_LINK = st.tuples(st.just("link"), _PATHS, _PATHS)
_RULES = st.tuples(
    st.just("rules"), st.none(), st.sampled_from(["", "drafts/\n", "*.MD\n", "sub\n", "!a.md\n"])
)


def apply_edit(root: Path, edit: tuple[str, str, str]) -> None:
    """One change as people and programs make them; an impossible one does nothing."""
    what, path, more = edit
    file = root / (path or "")
    try:
        if what == "rules":
            (root / ".aiignore").write_text(more)
        elif what == "touch":
            os.utime(file)
        elif what == "remove":
            os.unlink(file)
        elif what == "make folder":
            file.mkdir(parents=True)
        elif what == "rename":
            os.rename(file, root / more)
        elif what == "link":
            file.symlink_to(os.path.relpath(root / more, file.parent))
        else:
            old = file.stat() if what == "write and set back" and file.exists() else None
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(more)
            if old is not None:
                os.utime(file, ns=(old.st_atime_ns, old.st_mtime_ns))
    except OSError:
        pass


def essence(listing: SourceListing) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """What a listing yields, apart from times and wording."""
    files = {(file.path, file.content_hash) for file in listing.files}
    return files, {(row.path, row.reason) for row in listing.left_out}


@pytest.mark.parametrize("old", [False, True], ids=["just-written", "old"])
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(before=st.lists(st.one_of(_EDIT, _LINK, _RULES), max_size=8), after=st.data())
def test_look_equals_list(old: bool, before: list[Any], after: st.DataObject) -> None:
    """After any edits: nothing shown means equal listings, and equal listings show nothing."""
    with TemporaryDirectory() as folder:
        tree = Tree(Path(folder).resolve() / "docs")
        for edit in before:
            apply_edit(tree.root, edit)
        source = tree.source(max_file_bytes=40, clock=settled_clock if old else time.time_ns)
        first = source.list()
        if old:
            wait_a_tick()
        edits = after.draw(st.lists(st.one_of(_EDIT, _LINK, _RULES), max_size=4))
        for edit in edits:
            apply_edit(tree.root, edit)
        full = tree.source(max_file_bytes=40).list()
        known = {file.path: file for file in first.files}
        assert essence(tree.source(max_file_bytes=40).list(known)) == essence(full)
        changes = look(first.look_state)
        if not changes:
            assert essence(full)[0] == essence(first)[0]
            # A new folder that rules exclude is noticed when it holds Markdown.
            assert {row for row in essence(full)[1] if row not in essence(first)[1]} <= {
                ("legacy/", "hard_exclusion"),
                ("drafts/", "aiignore"),
                ("sub/", "aiignore"),
            }
        elif not any(edit[0] in ("link", "rules") for edit in [*before, *edits]):
            assert essence(full) != essence(first), changes.modified

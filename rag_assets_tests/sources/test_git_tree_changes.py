"""What a look and the next listing make of every kind of change to a git repository."""

from __future__ import annotations

import json
import random
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rag_assets.errors import SourceUnavailable
from rag_assets.models import Changes, SourceListing
from rag_assets.sources.git.tree import GitTree
from rag_assets.sources.shards import Shard

from .conftest import paths
from .git_repositories import Repository, contents, known_of, run_git

SHARED = Path(__file__).parents[2] / ".." / "shared" / "data"
NOTHING = Changes()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A repository with three documents and some code."""
    repository = Repository(tmp_path / "r")
    repository.commit(
        {"a.md": "# A\n", "sub/b.md": "# B\n" * 20, "sub/c.md": "# C\n", "code.py": "1"}
    )
    return repository


def look(repository: Repository, listing: SourceListing, **settings: Any) -> Changes:
    """A look with the state as it comes back from a file."""
    return repository.source(**settings).look(json.loads(json.dumps(listing.look_state)))


def change(added: str = "", modified: str = "", removed: str = "") -> Changes:
    """Changes of the paths between blanks."""
    return Changes(*(tuple(names.split()) for names in (added, modified, removed)))


def test_an_unchanged_repository_shows_no_change(repository: Repository) -> None:
    """Nor do an empty commit, code, other branches and tags, or uncommitted edits."""
    listing = repository.list()
    assert look(repository, listing) == NOTHING
    repository.commit()
    repository.commit({"code.py": "2", "img.png": b"1", "sub/data.csv": "x"})
    repository.git("tag", "v1")
    repository.git("branch", "other")
    repository.write("a.md", "# Draft\n")
    assert look(repository, listing) == NOTHING


def test_each_kind_of_change_is_named_and_read_once(repository: Repository) -> None:
    """Add, change, rename, move, delete: the look names them, the listing is exact."""
    listing = repository.list()

    def next_listing(expected: Changes, read: int) -> None:
        nonlocal listing
        assert look(repository, listing) == expected
        listing = repository.list(listing)
        assert listing.read == read
        assert contents(listing) == contents(repository.list())
        assert look(repository, listing) == NOTHING

    repository.commit({"new.md": "# N\n"})
    next_listing(change(added="new.md"), 1)
    repository.commit({"a.md": "# A2\n"})
    next_listing(change(modified="a.md"), 1)
    repository.git("mv", "a.md", "z.md")
    repository.commit()
    next_listing(change(added="z.md", removed="a.md"), 0)
    repository.git("mv", "sub", "moved")
    repository.commit({"moved/b.md": "# B\n" * 20 + "# More\n"})
    next_listing(change("moved/b.md moved/c.md", "", "sub/b.md sub/c.md"), 1)
    repository.git("rm", "-q", "z.md")
    repository.commit()
    next_listing(change(removed="z.md"), 0)
    repository.git("revert", "--no-edit", "HEAD")
    next_listing(change(added="z.md"), 1)
    repository.git("mv", "new.md", "keep.md")
    repository.git("mv", "z.md", "new.md")
    repository.commit()
    next_listing(change("keep.md", "new.md", "z.md"), 0)


def test_branch_switches_merges_and_force_pushes_are_followed(repository: Repository) -> None:
    """The listing is that of the commit, wherever the branch was before."""
    listing = repository.list(ref="main")
    repository.git("checkout", "-q", "-b", "side")
    repository.commit({"side.md": "# S\n"})
    assert look(repository, listing, ref="main") == NOTHING
    assert repository.source(ref="side").look(listing.look_state).unknown
    assert paths(repository.list(listing, ref="side")) == ["a.md", "side.md", "sub/b.md",
                                                           "sub/c.md"]  # fmt: skip
    repository.git("checkout", "-q", "main")
    repository.commit({"main.md": "# M\n"})
    repository.git("merge", "-q", "--no-ff", "side", "-m", "merge")
    assert look(repository, listing, ref="main") == change("main.md side.md")
    listing = repository.list(listing, ref="main")
    repository.git("reset", "-q", "--hard", "HEAD~2")
    repository.commit({"sub/c.md": "# C2\n"})
    assert look(repository, listing, ref="main") == change("", "sub/c.md", "main.md side.md")
    assert contents(repository.list(listing, ref="main")) == contents(repository.list())


def test_an_old_commit_that_is_gone_means_list_to_know(repository: Repository) -> None:
    """After a force-push and garbage collection there is nothing to compare with."""
    repository.commit({"x.md": "# X\n"})
    listing = repository.list()
    repository.git("reset", "-q", "--hard", "HEAD~1")
    repository.commit({"y.md": "# Y\n"})
    repository.git("reflog", "expire", "--expire=all", "--all")
    repository.git("gc", "-q", "--prune=now")
    assert look(repository, listing) == Changes(unknown=True)
    second = repository.list(listing)
    assert second.read == 1
    assert contents(second) == contents(repository.list())


def test_the_look_says_only_what_a_listing_would_show(repository: Repository) -> None:
    """Edits of excluded files do not count, their coming and going does; pruned folders never."""
    settings: dict[str, Any] = {"excluded_paths": ("private.md", "private")}
    repository.commit({
        "private.md": "1", "private/x.md": "1", "legacy/x.md": "1", "drafts/x.md": "1",
        "tmp.md": "1", ".aiignore": "drafts/\ntmp*.md\n",
    })  # fmt: skip
    listing = repository.list(**settings)
    repository.commit({"private.md": "2", "private/x.md": "2", "legacy/x.md": "2",
                       "drafts/x.md": "2", "drafts/y.md": "2", "tmp.md": "2"})  # fmt: skip
    assert look(repository, listing, **settings) == NOTHING
    repository.git("rm", "-q", "private.md")
    repository.commit({"tmp2.md": "1"})
    assert look(repository, listing, **settings) == change("tmp2.md", "", "private.md")
    repository.commit({".aiignore": "drafts/\n"})
    assert look(repository, listing, **settings).modified == (".aiignore", "tmp.md")


def test_kinds_of_files_that_change_are_seen(repository: Repository) -> None:
    """A file that becomes a link; a submodule that comes; a mere permission that does not count."""
    listing = repository.list()
    repository.git("update-index", "--chmod=+x", "a.md")
    repository.git("commit", "-q", "-m", "mode")
    assert look(repository, listing) == NOTHING
    (repository.root / "a.md").unlink()
    (repository.root / "a.md").symlink_to("sub/c.md")
    repository.commit()
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{repository.head},ext")
    repository.git("commit", "-q", "-m", "submodule")
    assert look(repository, listing) == change("ext", "a.md")
    assert paths(repository.list(listing)) == ["sub/b.md", "sub/c.md"]


def test_a_folder_is_compared_by_itself(repository: Repository) -> None:
    """Changes elsewhere do not count; a folder that vanished is no deletion."""
    listing = repository.list(folder="sub")
    repository.commit({"a.md": "# A2\n", "new.md": "# N\n"})
    assert look(repository, listing, folder="sub") == NOTHING
    repository.commit({"sub/c.md": "# C2\n"})
    assert look(repository, listing, folder="sub") == change("", "c.md")
    repository.git("mv", "sub", "elsewhere")
    repository.commit()
    for act in (lambda: look(repository, listing, folder="sub"),
                lambda: repository.list(listing, folder="sub")):  # fmt: skip
        with pytest.raises(SourceUnavailable, match="no folder 'sub'"):
            act()


def test_each_shard_looks_at_its_own(repository: Repository) -> None:
    """A change is one of exactly one shard."""
    shards = [Shard(index, 3) for index in range(3)]
    listings = [repository.list(shard=shard) for shard in shards]
    repository.commit({f"{number}.md": f"# {number}\n" for number in range(9)})
    found = [
        look(repository, listing, shard=shard)
        for shard, listing in zip(shards, listings, strict=True)
    ]
    assert sorted(path for changes in found for path in changes.added) == [
        f"{number}.md" for number in range(9)
    ]


@pytest.mark.parametrize(
    "settings",
    [{"ref": "main"}, {"folder": "sub"}, {"excluded_paths": ("x",)}, {"included_paths": ("a.md",)},
     {"url_template": "https://x/{path}"}, {"max_file_bytes": 9}, {"shard": Shard(0, 2)}],
)  # fmt: skip
def test_a_state_of_other_settings_is_void(
    repository: Repository, settings: dict[str, Any]
) -> None:
    """Then only a listing tells; secrets and time-outs are no such settings."""
    listing = repository.list()
    assert look(repository, listing, **settings).unknown
    assert not look(repository, listing, timeout_seconds=7)


@pytest.mark.parametrize(
    "state",
    [None, {}, {"format": 1}, {"format": "git-1"}, {"format": "git-1", "settings": "x"}],
)
def test_a_state_that_is_none_of_ours_is_void(
    repository: Repository, state: dict[str, Any] | None
) -> None:
    """A folder's state, a damaged one, none at all."""
    assert repository.source().look(state).unknown


def test_a_damaged_state_is_no_error(repository: Repository) -> None:
    """Commits that cannot be, states without their rows: list to know."""
    for place in (str(repository.root), repository.url):
        source = repository.source(place)
        listing = source.list()
        for commit in ("", "--output=x", "0" * 40, "HEAD\nHEAD", "é"):
            assert source.look({**listing.look_state, "commit": commit}).unknown
        for damaged in ({"documents": None}, {"left_out": [{"x": 1}]}, {"other_files": None}):
            state = {**listing.look_state, **damaged}
            again = repository.source(place, last_look=state).list(known_of(listing))
            assert again.files == listing.files


def test_random_histories_are_followed_exactly(repository: Repository) -> None:
    """After every commit: what the look names is what differs between two full listings."""
    chance = random.Random(7)
    names = [f"{folder}{name}" for folder in ("", "x/", "x/y/", "legacy/", "priv/")
             for name in ("a.md", "b.MD", "été.markdown", "code.py", "SCRATCH.md")]  # fmt: skip
    listing = last = repository.list(excluded_paths=("priv",))
    for _ in range(16):
        for path in chance.sample(names, 3):
            file = repository.root / path
            if file.exists() and chance.random() < 0.4:
                file.unlink()
            elif file.exists() and chance.random() < 0.3:
                target = chance.choice(names)
                repository.write(target, file.read_bytes())
            else:
                repository.write(path, chance.choice(("# A\n", "# B\n", "# C\n", "", " \n")))
        if chance.random() < 0.2:
            repository.git("checkout", "-q", "--orphan", f"b{chance.random()}")
        repository.commit()
        source = repository.source(excluded_paths=("priv",))
        full = source.list()
        found = source.look(listing.look_state)
        listing = source.list(known_of(listing))
        assert contents(listing) == contents(full)
        assert listing.left_out == full.left_out
        old, new = contents(last), contents(full)
        assert set(found.added) >= new.keys() - old.keys() - set(found.modified)
        assert set(found.removed) >= old.keys() - new.keys() - set(found.modified)
        assert set(found.modified) >= {p for p in old.keys() & new.keys() if old[p] != new[p]}
        if not found:
            assert old == new
        last = full


def replayed(tmp_path: Path, count: int) -> tuple[Path, list[str]]:
    """A bare copy of a real tree of guides, and commits of its whole history, oldest first."""
    bundle = SHARED / "trees" / "etalab-guides.bundle"
    if not bundle.exists():
        pytest.skip("the shared data is not here")
    bare = tmp_path / "guides.git"
    run_git(tmp_path, "clone", "-q", "--bare", str(bundle.resolve()), str(bare))
    commits = run_git(bare, "rev-list", "--reverse", "--first-parent", "HEAD").split()
    step = (len(commits) - 1) / (count - 1)
    return bare, [commits[round(index * step)] for index in range(count)]


def name_status(repository: Path, old: str, new: str) -> Changes:
    """What ``git diff`` says of the Markdown files."""
    output = subprocess.run(
        ["git", "-C", str(repository), "diff", "--name-status", "--no-renames", "-z", old, new],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    fields = output.split("\0")[:-1]
    found: dict[str, list[str]] = {"A": [], "M": [], "D": []}
    for status, path in zip(fields[::2], fields[1::2], strict=True):
        if path.lower().endswith((".md", ".markdown")):
            found[status].append(path)
    return Changes(*(tuple(sorted(found[kind])) for kind in "AMD"))


def test_a_real_history_is_followed_exactly(tmp_path: Path) -> None:
    """At every commit: look = git diff, listing = a full one, blobs read = blobs never seen."""
    repository, commits = replayed(tmp_path, 21)
    branch = run_git(repository, "symbolic-ref", "HEAD")
    listing: SourceListing | None = None
    last, total = "", Counter[str]()
    for commit in commits:
        run_git(repository, "update-ref", branch, commit)
        source = GitTree("guides", str(repository), work_dir=tmp_path)
        full = source.list()
        if listing is None:
            listing = full
        else:
            found = source.look(json.loads(json.dumps(listing.look_state)))
            assert found == name_status(repository, last, commit)
            new = {f.version for f in full.files} - {f.version for f in listing.files}
            blank = sum(row.reason == "blank" for row in full.left_out)
            listing = source.list(known_of(listing))
            assert len(new) <= listing.read <= len(new) + blank
            total.update(read=listing.read, changes=len(new), files=len(full.files))
        assert contents(listing) == contents(full)
        assert listing.left_out == full.left_out
        assert listing.other_files == full.other_files
        assert [f.version for f in listing.files] == [f.version for f in full.files]
        last = commit
    assert total["read"] < total["files"] / 3

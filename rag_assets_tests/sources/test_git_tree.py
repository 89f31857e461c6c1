"""What a listing of a git repository yields, from scratch and from what is known already."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rag_assets.acl import AclRule, AclRules
from rag_assets.errors import ConfigurationError, IncompleteEnumeration, SourceUnavailable
from rag_assets.models import SourceListing
from rag_assets.sources.base import Source
from rag_assets.sources.markdown_tree import MarkdownTree
from rag_assets.sources.shards import Shard

from .conftest import NOBODY, paths, reasons
from .git_repositories import Repository, contents, known_of, run_git, snapshot_of

TEMPLATE = "https://git.example.org/org/repo/blob/{commit}/{path}"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A repository without commits."""
    return Repository(tmp_path / "dépôt")


def commits_cited(listing: SourceListing) -> dict[str, str]:
    """The commit in each URL of ``TEMPLATE``."""
    return {file.path: file.url.split("/")[6] for file in listing.files}


def test_it_is_a_source(repository: Repository) -> None:
    """The contract that the pipeline relies on."""
    assert isinstance(repository.source(), Source)


def test_a_document_carries_what_later_stages_need(repository: Repository) -> None:
    """Bytes as committed, blob as version, committer's time in UTC, tags, URL of the commit."""
    page = b"# \xc3\x89t\xc3\xa9\r\n"
    commit = repository.commit({"guide/l'été 100%.md": page})
    (file,) = repository.list(
        url_template="https://g.example.org/{source}/blob/{commit}/{path}",
        acl=AclRules(("public",), (AclRule(("guide",), ("service:it",)),)),
    ).files
    assert file.source == "docs"
    assert file.path == "guide/l'été 100%.md"
    assert file.content == page
    assert file.content_hash == hashlib.sha256(page).hexdigest()
    assert file.version == repository.git("rev-parse", "HEAD:guide/l'été 100%.md")
    assert file.modified_at == "2026-03-01T09:30:00Z"
    assert file.acl_tags == ("service:it",)
    assert file.url == (
        f"https://g.example.org/docs/blob/{commit}/guide/l%27%C3%A9t%C3%A9%20100%25.md"
    )
    assert repository.list().files[0].url == ""


def test_only_what_is_committed_counts(repository: Repository) -> None:
    """Changed, new and staged files of the working copy are not documents; nothing is touched."""
    repository.commit({"a.md": "# Committed\n", "b.md": "# B\n"})
    repository.write("a.md", "# Draft\n")
    repository.write("new.md")
    (repository.root / "b.md").unlink()
    repository.git("add", "new.md")
    before = snapshot_of(repository.root)
    listing = repository.list()
    repository.source().look(listing.look_state)
    assert contents(listing) == {"a.md": b"# Committed\n", "b.md": b"# B\n"}
    assert snapshot_of(repository.root) == before
    assert not repository.work_dir.exists()


def test_bare_repositories_git_folders_and_worktrees_are_read_too(
    repository: Repository, tmp_path: Path
) -> None:
    """Whatever git itself takes for a repository."""
    repository.commit({"a.md": "# A\n"})
    bare, worktree = tmp_path / "bare.git", tmp_path / "worktree"
    run_git(tmp_path, "clone", "-q", "--bare", str(repository.root), str(bare))
    repository.git("worktree", "add", "-q", "-b", "side", str(worktree))
    for path in (bare, worktree, repository.root / ".git"):
        assert paths(repository.source(str(path)).list()) == ["a.md"]


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
def test_both_hash_algorithms_are_read(tmp_path: Path, algorithm: str) -> None:
    """Names of objects have 40 or 64 digits, from a path as from a URL."""
    repository = Repository(tmp_path / "r")
    (repository.root / ".git/config").unlink()
    repository.git("init", "-q", f"--object-format={algorithm}", "-b", "main")
    commit = repository.commit({"a.md": "# A\n", "vide.md": ""})
    for place in (str(repository.root), repository.url):
        listing = repository.source(place, url_template=TEMPLATE).list()
        assert commits_cited(listing) == {"a.md": commit}
        assert reasons(listing) == {"vide.md": "blank"}
        again = repository.source(place, url_template=TEMPLATE, ref=commit).list()
        assert again.files == listing.files


def test_refs_are_branches_tags_full_names_and_commits(repository: Repository) -> None:
    """Each leads to its commit; an annotated tag to the one it is of; a branch beats a tag."""
    first = repository.commit({"a.md": "# Un\n"})
    repository.git("tag", "-a", "v1", "-m", "release")
    repository.git("branch", "stable/été")
    repository.git("update-ref", "refs/remotes/origin/dev", first)
    second = repository.commit({"a.md": "# Deux\n"})
    repository.git("tag", "both", first)
    repository.git("branch", "both", second)
    refs = {
        "HEAD": second, "main": second, "refs/heads/main": second, second: second,
        "v1": first, "stable/été": first, first: first, "both": second, "refs/tags/both": first,
    }  # fmt: skip
    for place in (str(repository.root), repository.url):
        for ref, commit in refs.items():
            listing = repository.source(place, ref=ref).list()
            assert listing.look_state["commit"] == commit, (place, ref)
    assert repository.list(ref="origin/dev").look_state["commit"] == first


def test_paths_begin_at_the_folder(repository: Repository) -> None:
    """Documents elsewhere are not listed, nor counted."""
    repository.commit({"docs/fr/a.md": "# A\n", "docs/fr/i.png": b"1", "docs/b.md": "# B\n",
                       "docs/fr/.aiignore": "", "x.py": ""})  # fmt: skip
    listing = repository.list(folder="./docs/fr/", url_template=TEMPLATE)
    assert (paths(listing), listing.other_files) == (["a.md"], 2)
    assert listing.files[0].url.endswith("/a.md")


@pytest.mark.parametrize("folder", ["absent", "a.md", "link", "sub"])
def test_a_folder_that_is_none_stops_the_listing(repository: Repository, folder: str) -> None:
    """A folder that moved away must not count as deletion of all that was in it."""
    (repository.root / "link").symlink_to(".")
    commit = repository.commit({"a.md": "# A\n"})
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{commit},sub")
    repository.git("commit", "-q", "-m", "submodule")
    for place in (str(repository.root), repository.url):
        with pytest.raises(SourceUnavailable, match=f"no folder '{folder}' at HEAD.*Nothing was"):
            repository.source(place, folder=folder).list()


def test_rules_decide_as_for_a_folder(repository: Repository) -> None:
    """Rows and documents are those of a walk over a checkout of the same commit."""
    files = {
        "a.md": "# A\n", "B.MARKDOWN": "# B\n", "blank.md": " \n", "empty.md": "", "img.png": b"1",
        "SCRATCH.md": "x", "sub/scratch.MD": "x", "Legacy/a.md": "x", "Legacy/deep/b.md": "x",
        "passbolt.md": "x", "sub/Passbolt/a.md": "x", "private/a.md": "x", "private2/a.md": "# P\n",
        "drafts/a.md": "x", "drafts/keep.md": "x", "notes/b.txt": "x", "notes/tmp.md": "x",
        "dir.md/inner.md": "# I\n", "-rf.md": "# R\n", "..md": "# D\n", ".hidden.md": "# H\n",
        ".aiignore": "drafts\n!drafts/keep.md\n*tmp.md\n", ".hg/a.md": "x", "big.md": "y" * 200,
        "out/a.md": "x", "e\u0301te\u0301.md": "# NFD\n", "\u00e9t\u00e9.md": "# NFC\n",
        "two\nlines.md": "x", "bidi\u202edm.md": "x", "new\nfolder/a.md": "x",
    }  # fmt: skip
    repository.commit(files)
    settings = {"excluded_paths": ("private", "out/"), "max_file_bytes": 100}
    listing = repository.list(**settings)
    walked = MarkdownTree("docs", repository.root, **settings).list()
    assert contents(listing) == contents(walked)
    assert listing.left_out == walked.left_out
    assert listing.other_files == walked.other_files
    allowed = {"included_paths": ("sub", "drafts/keep.md", "notes"), "max_file_bytes": 100}
    walked = MarkdownTree("docs", repository.root, **allowed).list()
    assert repository.list(**allowed).left_out == walked.left_out


def test_what_is_not_the_text_itself_is_left_out(repository: Repository) -> None:
    """Links, submodules and pointers of Git LFS, each with its reason."""
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"
    (repository.root / "link.md").symlink_to("a.md")
    (repository.root / "folder").symlink_to(".")
    commit = repository.commit({"a.md": "# A\n", "large.md": pointer})
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{commit},vendor/sub")
    repository.git("commit", "-q", "-m", "submodule")
    listing = repository.list()
    assert paths(listing) == ["a.md"]
    assert reasons(listing) == {
        "large.md": "not_text", "link.md": "not_a_regular_file", "vendor/sub/": "not_a_regular_file"
    }  # fmt: skip
    assert {row.reason: row.status for row in listing.left_out}["not_text"] == "quarantined"
    assert listing.other_files == 1


def test_names_that_no_working_copy_can_hold_are_left_out(repository: Repository) -> None:
    """Not UTF-8, the way out, twice the same, longer than any path: the rest is listed."""
    repository.commit({"a.md": "# A\n"})
    blob, other = repository.blob(b"# A\n"), repository.blob(b"# B\n")
    inner = repository.git("mktree", "-z", stdin=f"100644 blob {blob}\tevil.md\0".encode())
    repository.commit_tree([
        ("100644", blob, b"caf\xe9.md"),
        ("040000", inner, b".."),
        ("040000", inner, b"."),
        ("040000", inner, b".git"),
        ("100644", blob, b"twin.md"),
        ("100644", other, b"twin.md"),
        ("100644", blob, b"l" * 4200 + b".md"),
        ("100644", blob, b"z.md"),
    ])  # fmt: skip
    listing = repository.list()
    assert contents(listing) == {"twin.md": b"# A\n", "z.md": b"# A\n"}
    assert reasons(listing) == {
        "caf\\xe9.md": "unsafe_name", "../": "unsafe_name", "./": "unsafe_name",
        "twin.md#2": "unsafe_name", "l" * 4200 + ".md": "path_too_long",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"caf\xe9\n", "not UTF-8"), (b"a\n" * 600_000, "more than"), (b"[\n", "aiignore:1")],
)
def test_an_ignore_file_that_cannot_be_used_stops_the_listing(
    repository: Repository, content: bytes, words: str
) -> None:
    """What it might have excluded is never published."""
    repository.commit({"a.md": "# A\n", ".aiignore": content})
    for place in (str(repository.root), repository.url):
        with pytest.raises(ConfigurationError, match=words):
            repository.source(place).list()


def test_an_ignore_file_must_be_a_regular_file(repository: Repository) -> None:
    """A link or a folder of that name is refused."""
    (repository.root / ".aiignore").symlink_to("rules")
    repository.commit({"a.md": "# A\n", "rules": "a.md\n"})
    with pytest.raises(ConfigurationError, match="not a regular file"):
        repository.list()
    (repository.root / ".aiignore").unlink()
    repository.commit({".aiignore/x": "1"})
    with pytest.raises(ConfigurationError, match="not a regular file"):
        repository.list()


def test_unchanged_files_are_carried_over_unread(repository: Repository) -> None:
    """Nothing is read twice; the files are the very same objects."""
    repository.commit({f"{number}.md": f"# {number}\n" for number in range(5)})
    first = repository.list(url_template=TEMPLATE)
    assert first.read == 5
    repository.commit({"code.py": "1"})
    second = repository.list(first, url_template=TEMPLATE)
    assert second.read == 0
    assert all(a is b for a, b in zip(first.files, second.files, strict=True))


def test_urls_go_on_citing_the_commit_of_their_content(repository: Repository) -> None:
    """Only what is new, changed or renamed cites the commit of this listing."""
    one = repository.commit({"kept.md": "# K\n", "changed.md": "# C\n", "old.md": "# O\n"})
    first = repository.list(url_template=TEMPLATE)
    repository.git("mv", "old.md", "moved.md")
    two = repository.commit({"changed.md": "# C2\n", "new.md": "# N\n"})
    second = repository.list(first, url_template=TEMPLATE)
    assert commits_cited(second) == {
        "kept.md": one, "changed.md": two, "moved.md": two, "new.md": two
    }  # fmt: skip
    assert second.read == 2
    third = repository.list(second, url_template=TEMPLATE)
    assert third.files == second.files


def test_a_commit_that_a_force_push_took_away_is_not_cited(repository: Repository) -> None:
    """Citations of a rewritten history would lead nowhere; those of the shared part stay."""
    base = repository.commit({"a.md": "# A\n"})
    listing = repository.list(url_template=TEMPLATE)
    repository.commit({"b.md": "# B\n"})
    listing = repository.list(listing, url_template=TEMPLATE)
    repository.git("reset", "-q", "--hard", base)
    rewritten = repository.commit({"c.md": "# C\n", "b.md": "# B\n"})
    listing = repository.list(listing, url_template=TEMPLATE)
    assert commits_cited(listing) == {"a.md": base, "b.md": rewritten, "c.md": rewritten}
    assert listing.read == 1


def test_a_lost_commit_that_was_deleted_is_not_cited(repository: Repository) -> None:
    """The same once git has collected it."""
    base = repository.commit({"a.md": "# A\n"})
    lost = repository.commit({"b.md": "# B\n"})
    listing = repository.list(url_template=TEMPLATE)
    assert set(commits_cited(listing).values()) == {lost}
    repository.git("reset", "-q", "--hard", base)
    now = repository.commit({"b.md": "# B\n", "c.md": "# C\n"})
    repository.git("reflog", "expire", "--expire=all", "--all")
    repository.git("gc", "-q", "--prune=now")
    listing = repository.list(listing, url_template=TEMPLATE)
    assert set(commits_cited(listing).values()) == {now}


def test_files_of_other_settings_get_the_present_ones(repository: Repository) -> None:
    """Tags, name and URL are those of now, without reading again."""
    commit = repository.commit({"a.md": "# A\n"})
    first = repository.list(url_template="https://old.example.org/{path}")
    second = repository.list(
        first, url_template=TEMPLATE, acl=AclRules(("admin_only",))
    )  # fmt: skip
    assert (second.read, second.files[0].acl_tags) == (0, ("admin_only",))
    assert commits_cited(second) == {"a.md": commit}
    (file,) = repository.list(second).files
    assert (file.url, file.acl_tags) == ("", ("public",))
    assert paths(repository.list(second, max_file_bytes=3)) == []
    assert reasons(repository.list(second, max_file_bytes=3)) == {"a.md": "too_large"}


def test_times_are_those_of_the_commit_that_gave_the_content(repository: Repository) -> None:
    """Merges, later commits and other files do not count; a renamed file keeps its time."""
    repository.commit({"a.md": "# A\n", "sub/b.md": "# B\n"})
    repository.git("checkout", "-q", "-b", "side")
    repository.commit({"sub/b.md": "# B2\n"})
    repository.git("checkout", "-q", "main")
    repository.commit({"c.md": "# C\n"})
    repository.moment += 86_400
    repository.git("merge", "-q", "--no-ff", "side", "-m", "merge")
    repository.commit({"x.py": "1"})
    listing = repository.list()
    times = {file.path: (file.modified_at or "")[:10] for file in listing.files}
    assert times == {"a.md": "2026-03-01", "sub/b.md": "2026-03-02", "c.md": "2026-03-03"}
    assert repository.list(folder="sub").files[0].modified_at == "2026-03-02T09:30:00Z"
    repository.git("mv", "a.md", "d.md")
    repository.commit()
    moved = {f.path: (f.modified_at or "")[:10] for f in repository.list(listing).files}
    assert moved == {"d.md": "2026-03-01", "sub/b.md": "2026-03-02", "c.md": "2026-03-03"}


def test_a_merge_that_changes_a_file_itself_gives_its_time(repository: Repository) -> None:
    """A conflict resolved in the merge is a change of no other commit."""
    repository.commit({"a.md": "# A\n"})
    repository.git("checkout", "-q", "-b", "side")
    repository.commit({"a.md": "# Side\n"})
    repository.git("checkout", "-q", "main")
    repository.commit({"a.md": "# Main\n"})
    repository.git("merge", "-q", "--no-commit", "-s", "ours", "side")
    repository.write("a.md", "# Both\n")
    repository.moment += 86_400
    repository.git("commit", "-q", "-a", "-m", "merge")
    (file,) = repository.list().files
    assert file.modified_at == "2026-03-04T09:30:00Z"


@pytest.mark.parametrize("seconds", ["0", "-5", "99999999999999", "253402300800"])
def test_impossible_times_are_no_error(repository: Repository, seconds: str) -> None:
    """Before 1970, or after the year 9999."""
    repository.commit({"a.md": "# A\n"})
    tree = repository.git("rev-parse", "HEAD^{tree}")
    text = f"tree {tree}\nauthor A <a> {seconds} +0000\ncommitter A <a> {seconds} +0000\n\nx\n"
    commit = repository.git(
        "hash-object", "-w", "-t", "commit", "--literally", "--stdin", stdin=text.encode()
    )
    repository.git("update-ref", "HEAD", commit)
    (file,) = repository.list().files
    assert file.modified_at is None or len(file.modified_at) == 20


def test_a_thousand_folders_inside_one_another_are_listed(repository: Repository) -> None:
    """Deeper than any recursion; a path beyond what a system allows is left out."""
    deep, deeper = "d/" * 1000 + "a.md", "dossier/" * 600 + "a.md"
    lines = "commit refs/heads/main\ncommitter A <a@b> 1772357400 +0000\ndata 1\nx\n" + "".join(
        f"M 100644 inline {path}\ndata 4\n# A\n\n" for path in (deep, deeper)
    )
    repository.git("fast-import", "--quiet", stdin=lines.encode())
    listing = repository.list()
    assert (paths(listing), reasons(listing)) == ([deep], {deeper: "path_too_long"})


def test_the_same_blob_under_several_names_is_read_once(repository: Repository) -> None:
    """Two documents, one content."""
    repository.commit({"a.md": "# A\n", "copie/a.md": "# A\n"})
    listing = repository.list()
    assert (paths(listing), listing.read) == (["a.md", "copie/a.md"], 1)


def test_shards_share_the_documents_out(repository: Repository) -> None:
    """Together they hold everything exactly once, and each reads its own only."""
    repository.commit({f"{number}.md": f"# {number}\n" for number in range(40)} | {"i.png": b"1"})
    shards = [repository.list(shard=Shard(index, 3)) for index in range(3)]
    assert sorted(path for shard in shards for path in paths(shard)) == paths(repository.list())
    assert [shard.read for shard in shards] == [len(shard.files) for shard in shards]
    assert sum(shard.other_files for shard in shards) == 1


def test_explain_names_the_deciding_rule(repository: Repository) -> None:
    """For rules, contents, names and folders; nothing for documents and absent files."""
    repository.commit({
        "a.md": "# A\n", "b.txt": "x", "blank.md": "\n", "drafts/x.md": "x", "private/p.md": "x",
        ".aiignore": "drafts/\n", "legacy/l.md": "x", "big.md": "y" * 99, "two\nlines.md": "x",
    })  # fmt: skip
    for place in (str(repository.root), repository.url):
        source = repository.source(place, excluded_paths=("private",), max_file_bytes=50)
        expected = {
            "a.md": None, "./a.md": None, "": None, "absent.md": None,
            "drafts/absent.md": "aiignore",
            "b.txt": "not_markdown", "blank.md": "blank", "drafts/x.md": "aiignore",
            "private/p.md": "excluded_paths", "legacy": "hard_exclusion",
            "legacy/": "hard_exclusion",
            "legacy/l.md": "hard_exclusion", "big.md": "too_large",
            "two\\x0alines.md": "unsafe_name",
            "../a.md": "outside_root", "/etc/x.md": "outside_root",
        }  # fmt: skip
        found = {path: source.explain(path) for path in expected}
        assert {p: row.reason if row else None for p, row in found.items()} == expected, place
    rule = found["drafts/x.md"]
    assert rule is not None
    assert (rule.rule, rule.rule_file, rule.rule_line) == ("drafts/", ".aiignore", 1)


def test_a_hostile_repository_runs_nothing(repository: Repository, tmp_path: Path) -> None:
    """Hooks, monitors, pagers, filters and helpers that its own settings name never start."""
    marker = tmp_path / "ran"
    script = tmp_path / "evil.sh"
    script.write_text(f"#!/bin/sh\ntouch {marker}\ncat\n")
    script.chmod(0o755)
    repository.commit({"a.md": "# A\n", ".gitattributes": "*.md filter=evil diff=evil\n"})
    for key in (
        "core.fsmonitor", "core.pager", "core.sshCommand", "core.alternateRefsCommand",
        "core.askPass", "credential.helper", "gpg.program", "diff.external", "diff.evil.textconv",
        "diff.evil.command", "filter.evil.smudge", "filter.evil.process", "pager.log",
        "uploadpack.packObjectsHook", "remote.origin.uploadpack", "core.gitProxy",
    ):  # fmt: skip
        repository.git("config", key, str(script))
    repository.git("config", "log.showSignature", "true")
    repository.git("config", "alias.cat-file", f"!{script}")
    hooks = repository.root / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-index-change", "reference-transaction", "post-checkout", "pre-auto-gc"):
        (hooks / name).symlink_to(script)
    for place in (str(repository.root), repository.url):
        source = repository.source(place)
        listing = source.list()
        assert paths(listing) == ["a.md"]
        repository.git("commit", "-q", "--allow-empty", "-m", "x", "--no-verify")
        marker.unlink(missing_ok=True)
        source.look(listing.look_state)
        source.explain("a.md")
        assert not marker.exists()


def test_replaced_objects_are_read_as_they_are(repository: Repository) -> None:
    """A content under the name of another blob would stay when it is taken back."""
    repository.commit({"a.md": "# A\n"})
    original = repository.git("rev-parse", "HEAD:a.md")
    repository.git("replace", original, repository.blob(b"# False\n"))
    assert contents(repository.list()) == {"a.md": b"# A\n"}


def test_variables_of_the_caller_do_not_lead_elsewhere(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipeline started by a git hook has GIT_DIR and its like set."""
    other = Repository(tmp_path / "other")
    other.commit({"other.md": "# O\n"})
    repository.commit({"a.md": "# A\n"})
    monkeypatch.setenv("GIT_DIR", str(other.root / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other.root))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.root / ".git/index"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(other.root / ".git/objects"))
    monkeypatch.setenv("GIT_TRACE", str(tmp_path / "trace"))
    for place in (str(repository.root), repository.url):
        assert paths(repository.source(place).list()) == ["a.md"]
    assert not (tmp_path / "trace").exists()


def test_a_folder_inside_of_a_repository_is_not_taken_for_it(repository: Repository) -> None:
    """An unmounted folder must not stand for the repository above it."""
    repository.commit({"sub/a.md": "# A\n"})
    with pytest.raises(SourceUnavailable, match=r"is not there.*not a git repository"):
        repository.source(str(repository.root / "sub")).list()


def test_missing_places_are_named(repository: Repository, tmp_path: Path) -> None:
    """A path that is none, a file, a repository without commits."""
    with pytest.raises(SourceUnavailable, match=r"docs: the repository .*absent is not a folder"):
        repository.source(str(tmp_path / "absent")).list()
    (tmp_path / "file").write_text("x")
    with pytest.raises(SourceUnavailable, match="is not a folder"):
        repository.source(str(tmp_path / "file")).list()
    for place in (str(repository.root), repository.url):
        with pytest.raises(SourceUnavailable, match="is empty: it has no commits yet"):
            repository.source(place).list()


def test_a_missing_ref_names_what_is_close(repository: Repository) -> None:
    """The branch was renamed, or has a slip of the pen in it."""
    commit = repository.commit({"a.md": "# A\n"})
    repository.git("branch", "documentation")
    for place in (str(repository.root), repository.url):
        with pytest.raises(SourceUnavailable, match="'documentaton'; there is documentation"):
            repository.source(place, ref="documentaton").list()
        with pytest.raises(SourceUnavailable, match="all its digits"):
            repository.source(place, ref=commit[:10]).list()
    with pytest.raises(SourceUnavailable, match="no branch"):
        repository.list(ref="0" * 40)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_repository_of_another_user_says_what_to_do(repository: Repository) -> None:
    """Git refuses to read it; the sentence holds the command that allows it."""
    repository.commit({"a.md": "# A\n"})
    for path in (repository.root, repository.root / ".git"):
        os.chown(path, NOBODY, NOBODY)
    with pytest.raises(ConfigurationError, match=r"another user.*--add safe.directory '/"):
        repository.list()


def test_a_damaged_repository_is_not_an_emptied_one(repository: Repository) -> None:
    """A lost folder, a lost blob or a blob of zeros: nothing may be deleted on such a listing."""
    repository.commit({"sub/a.md": "# A\n", "b.md": "# B\n"})
    objects = repository.root / ".git/objects"
    for expression in ("HEAD:sub/a.md", "HEAD:sub", "HEAD^{tree}"):
        name = repository.git("rev-parse", expression)
        file = objects / name[:2] / name[2:]
        content = file.read_bytes()
        file.chmod(0o644)
        for damaged in (None, content[: len(content) // 2], b"\0" * len(content)):
            file.unlink() if damaged is None else file.write_bytes(damaged)
            with pytest.raises((IncompleteEnumeration, SourceUnavailable)) as raised:
                repository.list()
            assert "source docs: the repository" in str(raised.value)
            file.write_bytes(content)
    assert len(repository.list().files) == 2


def test_a_partial_clone_says_that_it_lacks_objects(repository: Repository, tmp_path: Path) -> None:
    """They are not fetched behind the user's back."""
    repository.commit({"a.md": "# A\n"})
    repository.allow_filter()
    partial = tmp_path / "partial"
    run_git(tmp_path, "clone", "-q", "--bare", "--filter=blob:none", repository.url, str(partial))
    before = snapshot_of(partial)
    with pytest.raises(IncompleteEnumeration, match="partial clones do"):
        repository.source(str(partial)).list()
    assert snapshot_of(partial) == before


def test_a_shallow_clone_is_read_and_its_citations_stay(
    repository: Repository, tmp_path: Path
) -> None:
    """It cannot tell what its history was, so no citation is called lost."""
    one = repository.commit({"a.md": "# A\n"})
    shallow = tmp_path / "shallow"
    run_git(tmp_path, "clone", "-q", "--depth=1", repository.url, str(shallow))
    first = repository.source(str(shallow), url_template=TEMPLATE).list()
    two = repository.commit({"b.md": "# B\n"})
    run_git(shallow, "fetch", "-q", "--depth=1")
    run_git(shallow, "reset", "-q", "--hard", "origin/main")
    second = repository.source(str(shallow), url_template=TEMPLATE).list(known_of(first))
    assert commits_cited(second) == {"a.md": one, "b.md": two}


def test_git_that_is_not_installed_is_said(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instead of a traceback."""
    repository.commit({"a.md": "# A\n"})
    monkeypatch.setenv("PATH", "/nonexistent")
    for place in (str(repository.root), repository.url):
        with pytest.raises(ConfigurationError, match="git is not installed"):
            repository.source(place).list()


def test_a_command_that_hangs_is_killed_with_its_children(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole process group is gone after the deadline."""
    repository.commit({"a.md": "# A\n"})
    program = tmp_path / "bin/git"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {tmp_path}/child\nwait\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with pytest.raises(SourceUnavailable, match=r"did not answer within 0.5 s .*timeout_seconds"):
        repository.list(timeout_seconds=0.5)
    child = int((tmp_path / "child").read_text())
    time.sleep(0.1)
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


def test_ten_thousand_unchanged_files_are_listed_quickly(tmp_path: Path) -> None:
    """Within a second, from what is known; the look needs one command."""
    repository = Repository(tmp_path / "r")
    lines = ["blob\nmark :1\ndata 4\n# A\n", "commit refs/heads/main\nmark :2\n",
             "committer A <a@b> 1772357400 +0000\ndata 1\nx\n"]  # fmt: skip
    for number in range(10_000):
        data = f"# {number}\n"
        lines.append(f"M 100644 inline d{number % 100}/{number}.md\ndata {len(data)}\n{data}\n")
    repository.git("fast-import", "--quiet", stdin="".join(lines).encode())
    first = repository.list(url_template=TEMPLATE)
    assert len(first.files) == 10_000
    known = known_of(first)
    source = repository.source(url_template=TEMPLATE)
    started = time.process_time()
    second = source.list(known)
    assert time.process_time() - started < 1.0
    assert (second.read, second.files) == (0, first.files)
    assert not source.look(json.loads(json.dumps(first.look_state)))


def test_a_listing_equals_one_made_from_nothing(repository: Repository) -> None:
    """Whatever is known: other sources' files, stale ones, wrong versions."""
    repository.commit({"a.md": "# A\n", "b.md": "# B\n", "c.md": "# C\n"})
    full = repository.list()
    known = known_of(full)
    known["a.md"] = replace(known["a.md"], version="10:20:30:40")
    known["b.md"] = replace(known["b.md"], version="")
    known["gone.md"] = replace(known["c.md"], path="gone.md", version="f" * 40)
    assert repository.source().list(known).files == full.files


def test_nothing_is_asked_of_a_terminal(repository: Repository) -> None:
    """The commands run in a session of their own, without a terminal to read from."""
    repository.commit({"a.md": "# A\n"})
    code = (
        "import os, pty, sys\n"
        "from pathlib import Path\n"
        "from rag_assets.sources.git.tree import GitTree\n"
        "print(len(GitTree('docs', sys.argv[1], work_dir=Path(sys.argv[2])).list().files))\n"
    )
    done = subprocess.run(
        [os.sys.executable, "-c", code, repository.url, str(repository.work_dir)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("1\n", "")

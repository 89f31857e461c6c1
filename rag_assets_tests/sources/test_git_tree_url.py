"""A git repository behind a URL: what is asked for, what is fetched, what stays on disk."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_assets.models import Changes, SourceListing
from rag_assets.sources.git.remote import BATCH_BYTES
from rag_assets.sources.git.tree import GitTree
from rag_assets.sources.shards import Shard

from .conftest import paths, reasons
from .git_http_server import GitServer, git_server
from .git_repositories import Repository, contents, known_of

TOKEN = "glpat-CanaryCanary12345"
CANARY = b"CANARY-of-an-excluded-document"
TEMPLATE = "https://git.example.org/org/repo/blob/{commit}/{path}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    """A server of the repositories below ``served``."""
    with git_server(tmp_path / "served") as server:
        yield server


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A served repository that allows partial clones."""
    repository = Repository(tmp_path / "served" / "docs.git")
    repository.allow_filter()
    repository.commit({"a.md": "# A\n", "sub/b.md": "# B\n", "sub/c.md": "# C\n", "code.py": "1"})
    return repository


def over_http(server: GitServer, work_dir: Path, **settings: Any) -> GitTree:
    """The source over the served repository."""
    return GitTree("docs", server.url("docs.git/.git"), work_dir=work_dir, **settings)


class SpiedTree(GitTree):
    """Keeps a copy of each temporary clone as it is when its listing ends."""

    kept: Path

    def _clone(self, full_name: str, commit: str) -> Any:
        from contextlib import contextmanager

        clone = super()._clone(full_name, commit)

        @contextmanager
        def spied() -> Iterator[Any]:
            with clone as repository:
                yield repository
                shutil.copytree(repository._folder, self.kept)

        return spied()


def objects_in(folder: Path) -> dict[str, list[str]]:
    """Names of all objects of a clone, by kind."""
    found: dict[str, list[str]] = {"blob": [], "tree": [], "commit": []}
    for repository in folder.glob("*.git"):
        output = subprocess.run(
            ["git", "--git-dir", str(repository), "cat-file", "--batch-all-objects",
             "--batch-check=%(objecttype) %(objectname)"],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        for line in output.splitlines():
            kind, _, name = line.partition(" ")
            found[kind].append(name)
    return found


def every_object(folder: Path) -> bytes:
    """All objects of a clone, decompressed."""
    output = b""
    for repository in folder.glob("*.git"):
        output += subprocess.run(
            ["git", "--git-dir", str(repository), "cat-file", "--batch-all-objects", "--batch"],
            capture_output=True, check=True,
        ).stdout  # fmt: skip
    return output


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize("version_2", [True, False])
def test_listings_over_http_equal_those_of_a_path(
    repository: Repository, server: GitServer, tmp_path: Path, allowed: bool, version_2: bool
) -> None:
    """With and without partial clones, in the new and the old protocol, from scratch and not."""
    repository.allow_filter(allowed)
    server.speak_version_2 = version_2
    listing: SourceListing | None = None
    for step in range(3):
        repository.commit({"sub/b.md": f"# B{step}\n", f"new{step}.md": f"# N{step}\n",
                           ".aiignore": "tmp*\n", "tmp.md": "x", "blank.md": "\n"})  # fmt: skip
        source = over_http(server, tmp_path / "work", url_template=TEMPLATE)
        known = known_of(listing) if listing else None
        listing = source.list(known)
        local = repository.list()
        assert contents(listing) == contents(local)
        assert listing.left_out == local.left_out
        assert listing.other_files == local.other_files
        assert all(file.url.startswith("https://git.example.org/") for file in listing.files)
        assert listing.read == (5 if step == 0 else 3)
        assert os.listdir(tmp_path / "work") == []
    times = {file.path: (file.modified_at or "")[:10] for file in listing.files}
    assert (times["a.md"], times["new2.md"]) == ("2026-03-02", "2026-03-04")


def test_an_unchanged_commit_costs_one_request(
    repository: Repository, server: GitServer, tmp_path: Path
) -> None:
    """Look and listing ask for the refs only, and clone nothing."""
    source = over_http(server, tmp_path / "work", url_template=TEMPLATE)
    first = source.list()
    state = json.loads(json.dumps(first.look_state))
    server.requests.clear()
    assert not source.look(state)
    asked = len(server.requests)
    assert server.fetches == 0
    again = over_http(server, tmp_path / "work", url_template=TEMPLATE, last_look=state)
    second = again.list(known_of(first))
    assert (second.files, second.left_out, second.read) == (first.files, first.left_out, 0)
    assert second.look_state == first.look_state
    assert (server.fetches, len(server.requests)) == (0, 2 * asked)
    assert asked <= 2


def test_what_is_not_known_any_more_is_fetched_again(
    repository: Repository, server: GitServer, tmp_path: Path
) -> None:
    """The state spares a clone only while every document of it is there."""
    first = over_http(server, tmp_path / "work").list()
    known = known_of(first)
    del known["a.md"]
    second = over_http(server, tmp_path / "work", last_look=first.look_state).list(known)
    assert (second.files, second.read) == (first.files, 1)


def test_a_pinned_commit_needs_no_request_at_all(
    repository: Repository, server: GitServer, tmp_path: Path
) -> None:
    """What cannot change is not asked about; a commit that no branch names can be fetched."""
    commit = repository.head
    repository.commit({"a.md": "# A2\n"})
    first = over_http(server, tmp_path / "work", ref=commit).list()
    assert contents(first)["a.md"] == b"# A\n"
    server.requests.clear()
    source = over_http(server, tmp_path / "work", ref=commit, last_look=first.look_state)
    assert not source.look(first.look_state)
    assert source.list(known_of(first)).files == first.files
    assert server.requests == []


def test_a_changed_commit_must_be_listed(repository: Repository, tmp_path: Path) -> None:
    """Even if only code changed: the look does not fetch."""
    source = repository.source(repository.url)
    listing = source.list()
    assert source.look(listing.look_state) == Changes()
    repository.commit({"code.py": "2"})
    assert source.look(listing.look_state) == Changes(unknown=True)
    assert source.list(known_of(listing)).read == 0


def test_excluded_and_known_blobs_are_never_fetched(
    repository: Repository, server: GitServer, tmp_path: Path
) -> None:
    """The temporary clone holds the documents that are new, and nothing of what is left out."""
    repository.commit({
        "private/secret.md": CANARY, "legacy/old.md": CANARY + b"2", "tmp.md": CANARY + b"3",
        "SCRATCH.md": CANARY + b"4", "image.png": CANARY + b"5", "new.md": "# N\n",
        ".aiignore": "tmp.md\n",
    })  # fmt: skip
    known = known_of(repository.list(excluded_paths=("private",)))
    del known["new.md"]
    source = SpiedTree(
        "docs", server.url("docs.git/.git"), work_dir=tmp_path / "work", excluded_paths=("private",)
    )
    source.kept = tmp_path / "kept"
    listing = source.list(known)
    assert paths(listing) == ["a.md", "new.md", "sub/b.md", "sub/c.md"]
    names = {path: repository.git("rev-parse", f"HEAD:{path}") for path in ("new.md", ".aiignore")}
    found = objects_in(tmp_path / "kept")
    assert sorted(found["blob"]) == sorted(names.values())
    assert found["commit"] == [repository.head]
    assert CANARY not in every_object(tmp_path / "kept")


def test_only_the_shard_s_own_blobs_are_fetched(
    repository: Repository, server: GitServer, tmp_path: Path
) -> None:
    """A source spread over partitions fetches each document once in all."""
    repository.commit({f"{number}.md": f"# {number}\n" for number in range(20)})
    total = 0
    for index in range(3):
        shard = Shard(index, 3)
        source = SpiedTree(
            "docs", server.url("docs.git/.git"), work_dir=tmp_path / "work", shard=shard
        )
        source.kept = tmp_path / f"kept{index}"
        listing = source.list()
        assert len(objects_in(source.kept)["blob"]) == len(listing.files)
        total += len(listing.files)
    assert total == 23


def test_too_large_blobs_are_left_out_and_the_rest_is_fetched(
    repository: Repository, tmp_path: Path
) -> None:
    """Sizes are not known before: a fetch that grows too large is given up and made smaller."""
    noise = os.urandom(BATCH_BYTES + (1 << 20))
    for key, value in (("core.compression", "0"), ("core.bigFileThreshold", "1m")):
        repository.git("config", key, value)
    repository.commit({"huge.md": noise, "medium.md": b"x" * 3000})
    listing = repository.source(repository.url, max_file_bytes=2000).list()
    assert paths(listing) == ["a.md", "sub/b.md", "sub/c.md"]
    assert reasons(listing) == {"huge.md": "too_large", "medium.md": "too_large"}
    details = {row.path: row.rule for row in listing.left_out}
    assert details["medium.md"] == "3000 bytes, more than max_file_bytes = 2000"
    assert details["huge.md"] == "more than max_file_bytes = 2000"
    assert os.listdir(repository.work_dir) == []


def test_explain_fetches_one_document_at_most(
    repository: Repository, server: GitServer, tmp_path: Path
) -> None:
    """Rules of the configuration are told without asking the server."""
    repository.commit({"blank.md": "\n", "private/x.md": "1"})
    source = over_http(server, tmp_path / "work", excluded_paths=("private",))
    row = source.explain("private/x.md")
    assert row is not None
    assert (row.reason, server.requests) == ("excluded_paths", [])
    blank, document = source.explain("blank.md"), source.explain("a.md")
    assert blank is not None
    assert (blank.reason, document) == ("blank", None)
    assert os.listdir(tmp_path / "work") == []


def test_the_token_opens_and_is_seen_nowhere(
    repository: Repository,
    server: GitServer,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither on a command line, nor in a file, nor printed, nor in what a listing yields."""
    server.credentials = f"ada:{TOKEN}"
    program = tmp_path / "bin/git"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/commands\nexec {shutil.which("git")} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[credential]\n\thelper = store\n")
    monkeypatch.setenv("HOME", str(home))
    source = SpiedTree(
        "docs", server.url("docs.git/.git"), work_dir=tmp_path / "work", username="ada", token=TOKEN
    )
    source.kept = tmp_path / "kept"
    listing = source.list()
    assert len(listing.files) == 3
    assert server.seen_headers
    server.credentials = "ada:other"
    with pytest.raises(Exception, match="refuses access") as raised:
        source.list()
    printed = capfd.readouterr()
    texts = [printed.out, printed.err, caplog.text, repr(listing), repr(vars(raised.value))]
    error: BaseException | None = raised.value
    while error is not None:
        texts.append(f"{error!r} {error}")
        error = error.__cause__ or error.__context__
    texts += [
        file.read_bytes().decode("latin-1")
        for folder in (tmp_path / "kept", home, tmp_path / "work", tmp_path / "commands")
        for file in ([folder] if folder.is_file() else folder.rglob("*"))
        if file.is_file()
    ]
    basic = server.seen_headers[0].removeprefix("Basic ")
    assert len((tmp_path / "commands").read_text().splitlines()) > 5
    assert not [text for text in texts if TOKEN in text or basic in text]
    assert not (home / ".git-credentials").exists()


def test_other_protocols_of_git_itself_are_spoken(repository: Repository, tmp_path: Path) -> None:
    """A ``git daemon``, too."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    daemon = subprocess.Popen(
        ["git", "daemon", "--reuseaddr", "--listen=127.0.0.1", f"--port={port}", "--export-all",
         f"--base-path={repository.root.parent}"],
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        url = f"git://127.0.0.1:{port}/docs.git"
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        assert contents(GitTree("docs", url, work_dir=tmp_path).list()) == contents(
            repository.list()
        )
    finally:
        os.killpg(daemon.pid, signal.SIGTERM)
        daemon.wait()


def test_what_a_killed_run_left_is_deleted_at_the_next_start(
    repository: Repository, server: GitServer, tmp_path: Path
) -> None:
    """Its documents do not stay; the clone of a run that lives is left alone."""
    work = tmp_path / "work"
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from rag_assets.sources.git.scratch import scratch_folder\n"
        "with scratch_folder(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'document').write_bytes(b'CANARY')\n"
        "    print(folder, flush=True)\n"
        "    time.sleep(600)\n"
    )
    runs = [
        subprocess.Popen([sys.executable, "-c", code, str(work)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    folders = [Path((run.stdout or sys.stdin).readline().strip()) for run in runs]
    runs[0].kill()
    runs[0].wait()
    (work / "clone-without-lock").mkdir()
    source = over_http(server, work)
    assert len(source.list().files) == 3
    assert [folder.exists() for folder in folders] == [False, True]
    assert not (work / "clone-without-lock").exists()
    runs[1].kill()
    runs[1].wait()
    source.look(source.list().look_state)
    assert os.listdir(work) == []


def test_a_listing_that_fails_leaves_nothing_behind(
    repository: Repository, server: GitServer, tmp_path: Path
) -> None:
    """Whether git fails, or the ignore file, or an interrupt comes."""
    work = tmp_path / "work"
    repository.commit({".aiignore": b"\xff\n"})
    with pytest.raises(Exception, match="not UTF-8"):
        over_http(server, work).list()
    assert os.listdir(work) == []
    repository.commit({".aiignore": ""})
    server.cut_at = 400
    with pytest.raises(Exception, match="source docs"):
        over_http(server, work).list()
    assert os.listdir(work) == []

"""Ignore patterns mean what they mean to git."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import unicodedata
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_assets.errors import ConfigurationError
from rag_assets.sources.ignore_rules import IgnoreRules

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def ignored(text: str, path: str) -> bool:
    is_dir = path.endswith("/")
    return IgnoreRules(text).decide(path.rstrip("/"), is_dir=is_dir) is not None


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        pytest.param("brouillons\n!garder.md", "brouillons/garder.md", True, id="IG-01"),
        pytest.param("build\n!/foo/build", "foo/build/a.md", False, id="IG-03"),
        pytest.param("prive/\n!prive/ok.md", "prive/ok.md", True, id="IG-05-folder"),
        pytest.param("prive/*\n!prive/ok.md", "prive/ok.md", False, id="IG-05-contents"),
        pytest.param("prive/*\n!prive/ok.md", "prive/no.md", True, id="IG-05-others"),
        pytest.param("café/*.md", unicodedata.normalize("NFD", "café/a.md"), True, id="IG-07"),
        pytest.param(
            unicodedata.normalize("NFD", "café/*.md"), "café/a.md", True, id="IG-07-reversed"
        ),
        pytest.param("notes/", "notes.md", False, id="IG-09-file"),
        pytest.param("notes/", "notes/a.md", True, id="IG-09-folder"),
        pytest.param("\ufeffdrafts/\r\n*.tmp.md\r\n", "drafts/a.md", True, id="65-bom"),
        pytest.param("drafts/\r\n*.tmp.md\r\n", "a.tmp.md", True, id="65-crlf"),
        pytest.param("drafts/\r*.tmp.md\r", "a.tmp.md", True, id="65-lone-cr"),
        pytest.param("secret.md\t \n", "secret.md", True, id="blanks-at-the-end"),
        pytest.param("a\\ \n", "a ", True, id="escaped-space"),
        pytest.param("*\n!*/\n!*.md\n", "a/b.md", False, id="allow-list"),
        pytest.param("*\n!*/\n!*.md\n", "a/b.txt", True, id="allow-list-others"),
        pytest.param("??t?.md", "étés.md", False, id="one-character-each"),
        pytest.param("?t?.md", "été.md", True, id="a-character-is-not-a-byte"),
        pytest.param("[[:upper:]]*", "A.md", True, id="posix-class"),
        pytest.param("a[!x]b", "a/b", False, id="a-set-never-matches-a-slash"),
    ],
)
def test_pattern(text: str, path: str, expected: bool) -> None:
    """One kind of pattern each."""
    assert ignored(text, path) is expected


@pytest.mark.parametrize(
    "line",
    [
        "[abc",
        "name\\",
        "/",
        "!",
        "!/",
        "a//b",
        "./drafts",
        "../drafts",
        "a/../b",
        "[[:letter:]]",
        "a[/]b",
        "a\x07b",
        "x" * 5000,
        "*a" * 200,
    ],
)
def test_a_pattern_that_could_never_match_is_refused(line: str) -> None:
    """It was meant to hide something: going on would publish that; file and line are named."""
    with pytest.raises(ConfigurationError, match=r"\.aiignore:2 "):
        IgnoreRules(f"ok.md\n{line}\n")


def test_pathological_patterns_take_linear_time() -> None:
    """Kind 64: nested stars do not blow up, on the longest of paths."""
    text = "\n".join(["*a" * 50 + "b", "**/" * 30 + "x", "a*" * 50])
    start = time.perf_counter()
    assert ignored(text, "/".join(["a" * 200] * 20))
    assert time.perf_counter() - start < 2


def test_thousands_of_patterns_are_matched() -> None:
    """More than fit into one set of expressions; the last one that matches decides."""
    lines = [f"*x{number}*y*.md" for number in range(3000)] + ["!*x7*y.md"]
    rules = IgnoreRules("\n".join(lines))
    row = rules.decide("a/x2999-y-z.md", is_dir=False)
    assert row is not None
    assert row.line == 3000
    assert rules.decide("x7-y.md", is_dir=False) is None


def test_names_that_are_not_utf8_are_matched() -> None:
    """A lone surrogate, as such names have in Python, is no reason to fail."""
    assert ignored("*.md", "caf\udce9.md")
    assert not ignored("*.txt", "caf\udce9.md")


_NAMES = ["a", "b", "ab", "a.md", "b.md", "[x]", "x y", "#h", "!n", "-", "]", "A"]
_FOLDERS = ["a", "b", "ab", "A", "x y"]
_ATOMS = (
    *("a", "b", "ab", "A", "a.md", "b.md", "[x]", "x y", "#h", "!n", "-", "]"),
    *("*", "*", "?", "**", "***", "*.md", "a*", "?b", "[ab]", "[!a]", "[^b]", "[a-b]", "[]]"),
    *("[!]]", "[[:alpha:]]", "[a/]", "[-a]", "[a-]", "[\\]]", "\\a", "\\*", "\\ ", " ", "#"),
)
_SEGMENT = st.lists(st.sampled_from(_ATOMS), min_size=1, max_size=2).map("".join)
_LINE = st.tuples(
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "", "/"]),
    st.lists(st.one_of(st.sampled_from(_ATOMS), _SEGMENT), min_size=1, max_size=3).map("/".join),
    st.sampled_from(["", "", "/"]),
).map("".join)
_TEXT = st.tuples(st.lists(_LINE, min_size=1, max_size=4), st.sampled_from(["\n", "\r\n"])).map(
    lambda drawn: drawn[1].join(drawn[0]) + drawn[1]
)


class GitRepository:
    """Folders two deep with files of many names, and git's opinion of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.entries: dict[str, bool] = {}
        for first in ["", *_FOLDERS]:
            for second in ["", *_FOLDERS] if first else [""]:
                folder = "/".join(filter(None, (first, second)))
                (root / folder).mkdir(parents=True, exist_ok=True)
                if folder:
                    self.entries[folder] = True
                for name in _NAMES:
                    file = root / folder / name
                    if folder.count("/") == 1 or name not in _FOLDERS:
                        file.write_bytes(b"")
                        self.entries[f"{folder}/{name}".lstrip("/")] = False
        self.env = {
            **os.environ,
            "HOME": str(root),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
        }
        subprocess.run(["git", "init", "-q", str(root)], env=self.env, check=True)

    def deciding_lines(self, text: str) -> dict[str, int | None]:
        """The 1-based line that ignores each entry."""
        (self.root / ".gitignore").write_text(text, newline="")
        command = ["git", "-C", str(self.root), "check-ignore", "--no-index", "-vnz", "--stdin"]
        out = subprocess.run(
            command,
            input="".join(f"{entry}\0" for entry in self.entries).encode(),
            env=self.env,
            stdout=subprocess.PIPE,
            check=False,
        ).stdout.decode()
        fields = out.split("\0")[:-1]
        rows = [fields[at : at + 4] for at in range(0, len(fields), 4)]
        return {
            path: int(line) if pattern and not pattern.startswith("!") else None
            for _, line, pattern, path in rows
        }


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> GitRepository:
    """One repository for all examples."""
    return GitRepository(tmp_path_factory.mktemp("git"))


@needs_git
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=_TEXT)
def test_git_decides_by_the_same_line(repository: GitRepository, text: str) -> None:
    """For every entry, the very line by which `git check-ignore` ignores it, or none."""
    try:
        rules = IgnoreRules(text)
    except ConfigurationError:
        return  # refused: git would silently never match it
    for path, line in repository.deciding_lines(text).items():
        rule = rules.decide(path, is_dir=repository.entries[path])
        assert (rule.line if rule else None) == line, path

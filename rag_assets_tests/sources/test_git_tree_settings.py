"""Which addresses, refs, folders and other settings of a git source are refused, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_assets.errors import ConfigurationError
from rag_assets.sources.git.citations import CitationUrls
from rag_assets.sources.git.tree import GitTree

CANARY = "glpat-CanaryCanary12345"


def build(
    tmp_path: Path, repository: str = "https://g.example.org/a/b.git", **settings: Any
) -> None:
    """Build a source; nothing is asked of anybody."""
    GitTree("docs", repository, work_dir=tmp_path, **settings)


@pytest.mark.parametrize(
    "repository",
    [
        "https://git.example.org/org/repo.git", "http://127.0.0.1:8080/x", "git://h/x",
        "ssh://git@git.example.org:2222/org/repo.git", "git@git.example.org:org/repo.git",
        "git.example.org:repo", "file:///srv/git/repo.git", "HTTPS://git.example.org/x",
        "/srv/git/repo", "relative/dépôt",
    ],
)  # fmt: skip
def test_what_git_can_clone_is_taken(tmp_path: Path, repository: str) -> None:
    """URLs, addresses of ssh, paths."""
    build(tmp_path, repository)


@pytest.mark.parametrize(
    ("repository", "words"),
    [
        ("", "neither a URL nor a path"),
        ("  ", "neither a URL nor a path"),
        ("-oProxyCommand=touch x", "neither a URL nor a path"),
        ("--upload-pack=touch x", "neither a URL nor a path"),
        ("ext::sh -c touch% x", "run other programs"),
        ("fd::7", "run other programs"),
        ("ftp://h/x", "'ftp' is not allowed"),
        ("ext://h/x", "'ext' is not allowed"),
        ("ssh://-oProxyCommand=x/y", "must not begin with '-'"),
        ("ssh://-oProxyCommand=x@h/y", "must not begin with '-'"),
        ("-oProxyCommand=x:y", "neither a URL nor a path"),
        ("git@-oProxyCommand=x:y", "does not name a host"),
        ("git@host:-x", "does not name a host"),
        ("https://h", "name a host and a repository"),
        ("https:///x", "name a host and a repository"),
        ("https://h:port/x", "check host and port"),
        ("https://h/x?private=1", r"no blanks, '\?' or '#'"),
        ("https://h/a b", "no blanks"),
        ("https://h/x\nhttps://h/y", "neither a URL nor a path"),
        ("https://git.example.org/ops/passbolt.git", "assbolt"),
    ],
)
def test_addresses_that_could_do_harm_are_refused(
    tmp_path: Path, repository: str, words: str
) -> None:
    """Options, programs, other transports: before git sees them."""
    with pytest.raises(ConfigurationError, match=words):
        build(tmp_path, repository)


@pytest.mark.parametrize(
    "repository", [f"https://{CANARY}@h/x", f"https://user:{CANARY}@h/x", f"ssh://git:{CANARY}@h/x"]
)
def test_secrets_in_a_url_are_refused_and_not_shown(tmp_path: Path, repository: str) -> None:
    """The message says where they belong."""
    with pytest.raises(ConfigurationError, match=r"token: \{env: NAME\}") as raised:
        build(tmp_path, repository)
    assert CANARY not in str(raised.value)


@pytest.mark.parametrize(
    "ref",
    ["", "-x", "--output=x", "a b", "a..b", "main~1", "main^", "a:b", "a\nb", "@{upstream}", "@",
     "a//b", "/a", "a/", "a.lock", "a.", "x" * 2000, ":/fix", "*"],
)  # fmt: skip
def test_refs_that_are_none_are_refused(tmp_path: Path, ref: str) -> None:
    """Options and expressions are no names."""
    with pytest.raises(ConfigurationError, match="cannot be a branch, tag or commit"):
        build(tmp_path, ref=ref)


@pytest.mark.parametrize(
    ("folder", "words"),
    [("/docs", "must be relative"), ("../docs", r"without '\.\.'"), ("a/../../b", "leaves"),
     ("a\\b", "must be relative"), ("a\nb", "must be relative"), ("legacy", "never indexed"),
     ("docs/Legacy/x", "never indexed"), ("docs/passbolt", "never indexed")],
)  # fmt: skip
def test_folders_that_cannot_be_are_refused(tmp_path: Path, folder: str, words: str) -> None:
    """Outside of the repository, or never indexed whatever a setting says."""
    with pytest.raises(ConfigurationError, match=words):
        build(tmp_path, folder=folder)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_file_bytes": 0}, "at least 1"),
        ({"timeout_seconds": 0}, "more than 0"),
        ({"timeout_seconds": float("nan")}, "more than 0"),
        ({"url_template": "https://x/{line}"}, r"\{line\}"),
        ({"excluded_paths": ("/x",)}, "is absolute"),
        ({"username": f"a:{CANARY}"}, "must not hold ':'"),
        ({"repository": "git@h:x", "token": CANARY}, "token is for https"),
        ({"repository": "/srv/x", "token": CANARY}, "token is for https"),
    ],
)
def test_impossible_settings_are_refused(
    tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    """At once, with the name of the source, without secrets."""
    with pytest.raises(ConfigurationError, match=words) as raised:
        build(tmp_path, **settings)
    assert CANARY not in str(raised.value)


@given(
    path=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
    commit=st.from_regex(r"[0-9a-f]{40}([0-9a-f]{24})?", fullmatch=True),
    template=st.sampled_from([
        "https://g/{source}/blob/{commit}/{path}", "https://g/{path}?ref={commit}",
        "{commit}{path}", "https://g/{commit}/{path}#{commit}", "https://g/{path}{commit}",
    ]),
)  # fmt: skip
def test_the_commit_of_a_url_can_be_read_back(path: str, commit: str, template: str) -> None:
    """For every path and template; another path or another template has none."""
    urls = CitationUrls("docs", template)
    assert urls.commit_of(path, urls.url(path, commit)) == commit
    assert urls.commit_of(path + "x", urls.url(path, commit)) is None
    assert urls.commit_of(path, "https://elsewhere/" + commit) is None
    assert CitationUrls("docs", "https://g/{path}").commit_of(path, f"https://g/{path}") is None

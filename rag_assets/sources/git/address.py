"""Which git repository, ref and folder a configuration means; what could do harm is refused."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from rag_assets.errors import ConfigurationError
from rag_assets.sources.governance import Governance
from rag_assets.sources.passbolt import refuse_passbolt_address

URL_SCHEMES: Final = ("https", "http", "ssh", "git", "file")
"""Transports that git has built in; the others start a program of the URL's choosing."""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_HELPER: Final = re.compile(r"[A-Za-z0-9+.-]+::")
_SCP_LIKE: Final = re.compile(r"(?:[^/@:\s]+@)?[^/@:\s]{2,}:(?!:)")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
# As git-check-ref-format(1) has it, but for the rules on single names.
_NO_REF: Final = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|^/|/$|\.$|\.lock$|^-|^@$")


@dataclass(frozen=True, slots=True)
class GitAddress:
    """Where a repository is."""

    location: str
    """What git is given: an absolute path, or a URL without secrets."""
    transport: str
    """One of ``URL_SCHEMES``; empty for a path."""

    @property
    def is_local(self) -> bool:
        """Whether objects are read where they are."""
        return not self.transport


def parse_repository(source: str, repository: str) -> GitAddress:
    """The address that ``repository`` is: a URL, ``user@host:path``, or a path.

    Raises:
        ConfigurationError: it is empty, an option, carries a password, or names a transport that
            is not built into git. The message never shows a URL with a user in it.
    """
    text = repository.strip()
    if not text or text.startswith("-") or not text.isprintable():
        raise _refused(source, f"{text[:80]!r} is neither a URL nor a path; write one of them")
    if _HELPER.match(text):
        raise _refused(
            source, "'<helper>::' addresses run other programs; write an https or ssh URL"
        )
    refuse_passbolt_address(f"source {source}: repository", text)
    if scheme := _SCHEME.match(text):
        return _parse_url(source, text, scheme[1].lower())
    if _SCP_LIKE.match(text):
        return GitAddress(_checked_scp(source, text), "ssh")
    return GitAddress(os.path.abspath(text), "")


def _parse_url(source: str, url: str, scheme: str) -> GitAddress:
    if scheme not in URL_SCHEMES:
        known = ", ".join(URL_SCHEMES)
        raise _refused(source, f"the transport {scheme!r} is not allowed; use one of {known}")
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        assert parts.port is None or parts.port >= 0  # reading it checks it
    except ValueError as exc:
        raise _refused(source, "the URL cannot be understood; check host and port") from exc
    if parts.password is not None or (parts.username is not None and scheme != "ssh"):
        raise _refused(
            source,
            "the URL holds a user or a password, which would be shown in logs; write it without, "
            "and set 'username' and 'token: {env: NAME}'",
        )
    if (parts.username or "").startswith("-") or host.startswith("-"):
        raise _refused(source, "user and host must not begin with '-'")
    if " " in url or (scheme in ("http", "https") and (parts.query or parts.fragment)):
        raise _refused(source, "the URL must hold no blanks, '?' or '#'; write what clones")
    if not parts.path.strip("/") or not (host or scheme == "file"):
        raise _refused(source, "the URL must name a host and a repository on it")
    return GitAddress(scheme + url[len(scheme) :], scheme)


def _checked_scp(source: str, address: str) -> str:
    place, _, path = address.partition(":")
    host = place.rpartition("@")[2]
    if host.startswith("-") or path.startswith("-") or not path.strip("/"):
        raise _refused(source, f"{address!r} does not name a host and a repository on it")
    return address


def check_ref(source: str, ref: str) -> str:
    """``ref`` itself: ``HEAD``, the name of a branch or tag, or all digits of a commit.

    Raises:
        ConfigurationError: it can be none of these.
    """
    if not ref or len(ref) > 1024 or _NO_REF.search(ref):
        raise ConfigurationError(
            f"source {source}: ref {ref[:80]!r} cannot be a branch, tag or commit; write its name, "
            "or all 40 digits of a commit"
        )
    return ref


def is_commit(ref: str) -> bool:
    """Whether ``ref`` is the full name of an object (SHA-1 or SHA-256)."""
    return _COMMIT.fullmatch(ref) is not None


def full_names(ref: str) -> tuple[str, ...]:
    """The full names that ``ref`` may stand for, the likeliest first."""
    if is_commit(ref) or ref == "HEAD" or ref.startswith("refs/"):
        return (ref,)
    return (f"refs/heads/{ref}", f"refs/tags/{ref}", f"refs/remotes/{ref}")


def check_folder(source: str, kind: str, folder: str) -> str:
    """``folder`` without ``.`` and slashes at its ends; empty for the whole repository.

    Raises:
        ConfigurationError: it is absolute, leaves the repository, or is one that is never indexed.
    """
    if folder.startswith("/") or "\\" in folder or not (folder.isprintable() or not folder):
        raise ConfigurationError(
            f"source {source}: folder {folder!r} must be relative to the top of the repository, "
            "with '/' between names"
        )
    names = [name for name in folder.split("/") if name not in ("", ".")]
    if ".." in names:
        raise ConfigurationError(
            f"source {source}: folder {folder!r} leaves the repository; write it without '..'"
        )
    plain = "/".join(names)
    if plain and (ruled := Governance(source, kind).decide(plain, is_dir=True)) is not None:
        raise ConfigurationError(
            f"source {source}: folder {folder!r} is never indexed ({ruled.rule}); name another one"
        )
    return plain


def _refused(source: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"source {source}: repository: {why}")

"""Turn what git complains of into the errors of this package: what is wrong, where, what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rag_assets.errors import (
    ConfigurationError,
    IncompleteEnumeration,
    RagError,
    SourceUnavailable,
)
from rag_assets.refusals import excerpt
from rag_assets.sources.git.commands import GitFailure

_LONGEST_WORDS: Final = 4_000


@dataclass(frozen=True, slots=True)
class _Cause:
    """What some of git's words mean."""

    words: re.Pattern[str]
    error: type[RagError]
    meaning: str
    """A clause that follows the repository; may hold ``{path}``."""
    quotes: bool = False
    """Whether git's own words help to tell what is meant."""


def _cause(words: str, error: type[RagError], meaning: str, *, quotes: bool = False) -> _Cause:
    return _Cause(re.compile(words, re.IGNORECASE), error, meaning, quotes)


# The first that matches counts: the more special ones come first.
_CAUSES: Final = (
    _cause(
        "dubious ownership|unsafe repository",
        ConfigurationError,
        "belongs to another user, and git refuses to read it. If you trust it, run as the user of "
        "the pipeline: git config --global --add safe.directory '{path}'",
    ),
    _cause(
        "cannot use bare repository",
        ConfigurationError,
        "is bare, and git's setting safe.bareRepository forbids that; set it to 'all', or name a "
        "working copy",
    ),
    _cause(
        "No space left on device|Disk quota exceeded",
        SourceUnavailable,
        "could not be fetched: the disk is full; free space in the data folder and run again",
    ),
    _cause(
        "Host key verification failed",
        SourceUnavailable,
        "cannot be read: the host's SSH key is not known here; connect once by hand as the user of "
        "the pipeline, or add the key to known_hosts",
    ),
    _cause(
        "Permission denied \\(|Load key .* invalid|Too many authentication failures",
        SourceUnavailable,
        "refuses the SSH key; give the user of the pipeline a key that may read it",
    ),
    _cause(
        "certificate|SSL peer|gnutls_handshake|unable to get local issuer|SSL_connect|schannel",
        SourceUnavailable,
        "cannot be trusted: its TLS certificate does not verify. Install the authority's "
        "certificate, or name its file in git's setting http.sslCAInfo; verification is never "
        "turned off",
        quotes=True,
    ),
    _cause(
        "Authentication failed|could not read Username|could not read Password|"
        "returned error: 40[13]|HTTP Basic: Access denied|Invalid credentials",
        SourceUnavailable,
        "refuses access; check that 'username' and 'token' are right, not expired, and may read "
        "the repository",
    ),
    _cause(
        "returned error: 30\\d|unable to update url base from redirection|redirect",
        SourceUnavailable,
        "redirects to another address, which is never followed, because the token would go with "
        "it; write the final address (often the same with .git at its end)",
    ),
    _cause(
        "returned error: 429",
        SourceUnavailable,
        "says that too many requests were made; run again later",
    ),
    _cause(
        "returned error: 5\\d\\d",
        SourceUnavailable,
        "cannot answer now; run again later",
        quotes=True,
    ),
    _cause(
        "Could not resolve (host|hostname|proxy)|Name or service not known|"
        "unable to look up|Temporary failure in name resolution",
        SourceUnavailable,
        "cannot be reached: its host name is not known; check the URL and the network",
        quotes=True,
    ),
    _cause(
        "Failed to connect|Connection refused|Connection timed out|unable to connect|"
        "Network is unreachable|No route to host|Couldn't connect|Could not connect|"
        "Operation timed out|Operation too slow|Proxy CONNECT",
        SourceUnavailable,
        "cannot be reached; check the URL, the network and the proxy",
        quotes=True,
    ),
    _cause(
        "repository .* not found|returned error: 404|does not exist|not a git repository|"
        "does not appear to be a git repository|no such repository|access denied or repository|"
        "Repository not found|not exported|project you were looking for could not be found",
        SourceUnavailable,
        "is not there, or this account may not see it; check the address and the token",
        quotes=True,
    ),
    _cause(
        "not valid: is this a git repository|invalid server response|dumb http transport|"
        "bad line length character|unexpected content-type",
        SourceUnavailable,
        "does not answer as a git server does (a login page, perhaps); check the address",
    ),
    _cause(
        "transport '.*' not allowed|promisor remote|missing blob object|lazy fetch",
        IncompleteEnumeration,
        "lacks objects, as partial clones do; complete it with 'git fetch --refetch --no-filter', "
        "or name its URL",
    ),
    _cause(
        "early EOF|unexpected disconnect|RPC failed|hung up|transfer closed|Connection reset|"
        "premature|expected flush|unpack-objects|index-pack|protocol error|Empty reply|"
        "Recv failure|Send failure|unexpected EOF|outstanding read",
        IncompleteEnumeration,
        "broke off in the middle; nothing was changed. Run again",
        quotes=True,
    ),
    _cause(
        "corrupt|bad object|inflate|unable to read|object .* is missing|bad tree|"
        "not a valid object|packfile|unable to parse|too-short tree|could not read|malformed",
        IncompleteEnumeration,
        "is damaged; check it with 'git fsck', and clone it again",
        quotes=True,
    ),
)


def explain_failure(failure: GitFailure, where: str, path: str, timeout_seconds: float) -> RagError:
    """The error that a failure is.

    ``where`` begins the sentence (``source docs: the repository https://...``); ``path`` is the
    repository as git was given it.
    """
    if failure.kind == "timeout":
        return SourceUnavailable(
            f"{where} did not answer within {timeout_seconds:g} s (git {failure.command}); check "
            "the network, or raise timeout_seconds"
        )
    if failure.kind == "too_much":
        return IncompleteEnumeration(
            f"{where} is larger than can be listed (git {failure.command} wrote {failure.words})"
        )
    words = failure.words[-_LONGEST_WORDS:]
    said = excerpt(words.encode())
    for cause in _CAUSES:
        if cause.words.search(words):
            detail = f" (git says: {said})" if cause.quotes else ""
            return cause.error(f"{where} {cause.meaning.format(path=path)}{detail}")
    ended = "ended too early" if failure.kind == "cut_short" else "failed"
    detail = f": {said}" if said else ""
    return IncompleteEnumeration(
        f"{where} could not be read: git {failure.command} {ended}{detail}"
    )


def no_such_ref(
    where: str, ref: str, branches: Sequence[str], *, is_http: bool
) -> SourceUnavailable:
    """There is no ``ref``, but there are ``branches``; none of them means an empty repository.

    Over HTTP any page that is no list of refs reads like an empty one.
    """
    if not branches and is_http:
        return SourceUnavailable(
            f"{where} has no commits yet, or the server does not answer as a git server does (a "
            "login page, perhaps); check the address, or push a commit"
        )
    if not branches:
        return SourceUnavailable(f"{where} is empty: it has no commits yet; push one")
    from difflib import get_close_matches

    close = get_close_matches(ref, branches, n=5, cutoff=0.4) or sorted(branches)[:5]
    return SourceUnavailable(
        f"{where} has no branch, tag or commit {ref!r}; there is {', '.join(close)}. Correct 'ref' "
        "(a commit needs all its digits)"
    )


def no_such_folder(where: str, ref: str, folder: str) -> SourceUnavailable:
    """At ``ref`` the folder is missing, or is none."""
    return SourceUnavailable(
        f"{where} has no folder {folder!r} at {ref}; correct 'folder' or 'ref'. Nothing was removed"
    )

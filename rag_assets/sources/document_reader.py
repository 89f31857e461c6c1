"""Turn the candidates of a walk into source files, reading only what changed since the last."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from rag_assets.fingerprints import sha256_hex
from rag_assets.models import LeftOut, SourceFile
from rag_assets.sources import tree_look
from rag_assets.sources.file_reading import Disk, NotReadable, is_blank, read_file
from rag_assets.sources.tree_look import settled_signature, signature
from rag_assets.sources.tree_walk import Candidate, TreeListing, left_out

_MARKS = {
    "too_large": tree_look.TOO_LARGE,
    "path_too_long": tree_look.NAMED,
    "unreadable": tree_look.UNREADABLE,
}


class DocumentReader:
    """Collects the files of one listing, and notes in it what the next look shall compare.

    ``started_ns`` is when the listing began: a file that changed later, or shortly before, gets a
    version that equals none, so that it is read again next time. ``acl_tags`` and ``url`` give
    those of a path; a file carried over gets the present ones.
    """

    def __init__(
        self,
        source: str,
        listing: TreeListing,
        known: Mapping[str, SourceFile],
        *,
        acl_tags: Callable[[str], tuple[str, ...]],
        url: Callable[[str], str],
        max_file_bytes: int,
        started_ns: int,
        disk: Disk,
    ) -> None:
        self._source = source
        self._listing = listing
        self._known = known
        self._acl_tags = acl_tags
        self._url = url
        self._max_file_bytes = max_file_bytes
        self._started_ns = started_ns
        self._disk = disk
        self.files: list[SourceFile] = []
        self.left_out: list[LeftOut] = []
        self.read = 0
        """How many files were read."""

    def take(self, candidate: Candidate) -> None:
        """Add the document, or the reason why it is none.

        Raises:
            SourceUnavailable: the disk fails.
        """
        known = self._known.get(candidate.path)
        if known is not None and known.version == signature(candidate.status):
            self._carry_over(candidate, known)
            return
        try:
            content, status = read_file(
                candidate.target, candidate.status, self._max_file_bytes, self._disk
            )
        except NotReadable as exc:
            self._leave_out(candidate, exc)
            return
        self.read += 1
        version, digest = settled_signature(status, self._started_ns), sha256_hex(content)
        self._record(candidate, version, digest)
        if is_blank(content):
            self.left_out.append(left_out(self._source, candidate.path, "blank", ""))
            return
        self.files.append(
            SourceFile(
                source=self._source,
                path=candidate.path,
                url=self._url(candidate.path),
                content=content,
                content_hash=digest,
                modified_at=_modified_at(status, known, digest),
                acl_tags=self._acl_tags(candidate.path),
                version=version,
            )
        )

    def _carry_over(self, candidate: Candidate, known: SourceFile) -> None:
        url, acl_tags = self._url(candidate.path), self._acl_tags(candidate.path)
        if (known.source, known.url, known.acl_tags) != (self._source, url, acl_tags):
            known = replace(known, source=self._source, url=url, acl_tags=acl_tags)
        self._record(candidate, known.version, known.content_hash)
        self.files.append(known)

    def _leave_out(self, candidate: Candidate, fault: NotReadable) -> None:
        row = left_out(self._source, candidate.path, fault.reason, fault.detail)
        self.left_out.append(row)
        if fault.reason == "vanished":
            return
        mark = _MARKS.get(fault.reason, tree_look.UNKNOWN)
        if mark == tree_look.NAMED and not candidate.link_identity:
            self._listing.record(candidate.path, mark)
        else:
            self._record(candidate, settled_signature(candidate.status, self._started_ns), mark)

    def _record(self, candidate: Candidate, version: str, mark: str) -> None:
        if candidate.link_identity:
            self._listing.record_link(candidate.path, candidate.link_identity, version, mark)
        else:
            self._listing.record(candidate.path, f"{version} {mark}")


def _modified_at(status: os.stat_result, known: SourceFile | None, digest: str) -> str | None:
    """ISO 8601; a file that was only touched keeps the time at which its content changed."""
    if known is not None and known.content_hash == digest:
        return known.modified_at
    try:
        moment = time.gmtime(status.st_mtime_ns // 1_000_000_000)
    except (OverflowError, ValueError, OSError):
        return None
    if not 1 <= moment.tm_year <= 9999:
        return None
    return f"{moment.tm_year:04d}{time.strftime('-%m-%dT%H:%M:%SZ', moment)}"

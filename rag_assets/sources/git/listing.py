"""List one commit of a repository that is at hand: carry over what is known, read the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from rag_assets.acl import AclRules
from rag_assets.fingerprints import sha256_hex
from rag_assets.models import LeftOut, Reason, SourceFile
from rag_assets.sources.file_reading import is_blank, too_large_detail
from rag_assets.sources.git.citations import CitationUrls
from rag_assets.sources.git.commands import Git
from rag_assets.sources.git.failures import no_such_folder
from rag_assets.sources.git.history import changed_at, lost_commits
from rag_assets.sources.git.objects import (
    EMPTY_BLOBS,
    commit_moment,
    object_infos,
    read_objects,
    tree_entries,
)
from rag_assets.sources.git.snapshot import (
    Snapshot,
    SnapshotJudge,
    distinct_rows,
    ignore_entry,
    read_ignore_text,
)
from rag_assets.sources.governance import Governance
from rag_assets.sources.path_names import printable
from rag_assets.sources.tree_walk import left_out

_LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/"
_MOST_POINTER_BYTES: Final = 1024
"""The specification of Git LFS: a pointer file is smaller."""

Fault = tuple[Reason, str]
"""Why a blob is no document, and the detail."""


class OpenRepository(Protocol):
    """A repository whose objects can be read, at one commit."""

    git: Git
    """May become another one by ``bring``."""
    commit: str
    has_history: bool
    """Whether earlier commits are there too."""

    def bring(self, blobs: Sequence[str], most_bytes: int) -> Collection[str]:
        """Make the blobs readable; those larger than ``most_bytes`` may be returned instead.

        Raises:
            GitFailure: one cannot be had.
        """
        ...


@dataclass(frozen=True, slots=True)
class ListingRules:
    """What the configuration of one partition says."""

    source: str
    where: str
    """The repository in words, for messages."""
    ref: str
    folder: str
    acl: AclRules
    urls: CitationUrls
    max_file_bytes: int
    holds: Callable[[str], bool]
    governance: Callable[[str | None], Governance]
    """The rules, given the text of the ignore file."""


@dataclass(frozen=True, slots=True)
class Listed:
    """What one commit holds."""

    files: tuple[SourceFile, ...]
    left_out: tuple[LeftOut, ...]
    other_files: int
    read: int
    """How many blobs were read."""


class GitListing:
    """One look into one commit.

    Its methods raise ``GitFailure`` when git fails, ``ConfigurationError`` for a wrong ignore file,
    ``SourceUnavailable`` when the folder is not there.
    """

    def __init__(self, rules: ListingRules, repository: OpenRepository) -> None:
        self._rules = rules
        self._repository = repository
        self._read = 0

    def run(self, known: Mapping[str, SourceFile]) -> Listed:
        """Every document and everything left out."""
        rules = self._rules
        snapshot = self._judge(self.governance(), rules.holds)
        carried = self._carried(snapshot.documents, known)
        new = {path: b for path, b in snapshot.documents.items() if path not in carried}
        contents = self._contents(sorted(set(new.values())))
        moments = self._moments({p: b for p, b in new.items() if isinstance(contents[b], bytes)})
        files, rows = [], [*snapshot.left_out]
        for path, file in carried.items():
            fault = self._size_fault(len(file.content))
            if fault is None:
                files.append(file)
            else:
                rows.append(left_out(rules.source, path, *fault))
        for path, blob in new.items():
            content = contents[blob]
            if isinstance(content, bytes):
                files.append(self._new(path, blob, content, moments[path]))
            else:
                rows.append(left_out(rules.source, path, *content))
        return Listed(
            files=tuple(sorted(files, key=lambda file: file.path)),
            left_out=distinct_rows(rows, {file.path for file in files}),
            other_files=snapshot.other_files,
            read=self._read,
        )

    def explain(self, path: str) -> LeftOut | None:
        """What keeps ``path`` out; None when nothing does, or there is no such file."""
        governance = self.governance()
        if (row := governance.decide(path, is_dir=path.endswith("/"))) is not None:
            return row
        judge = SnapshotJudge(self._rules.source, governance, _everything)
        met = False
        for entry in tree_entries(self._git, self._tree):
            judge.take(entry)
            met = met or entry.path == path
        snapshot = judge.snapshot
        rows = {row.path: row for row in distinct_rows(snapshot.left_out, snapshot.documents)}
        plain = path.rstrip("/")
        if (row := rows.get(plain) or _row_above(rows, plain)) is not None:
            return row
        if (blob := snapshot.documents.get(path)) is not None:
            content = self._contents([blob])[blob]
            if isinstance(content, bytes):
                return None
            return left_out(self._rules.source, path, *content)
        detail = "neither .md nor .markdown"
        return left_out(self._rules.source, path, "not_markdown", detail) if met else None

    @property
    def _git(self) -> Git:
        return self._repository.git

    @property
    def _tree(self) -> str:
        return tree_expression(self._repository.commit, self._rules.folder)

    def governance(self) -> Governance:
        """The rules with those of the ignore file at the top of the folder."""
        rules = self._rules
        (info,) = object_infos(self._git, [self._tree])
        if info is None or info.kind != "tree":
            raise no_such_folder(rules.where, rules.ref, rules.folder)
        entry = ignore_entry(self._git, self._tree)
        if entry is None:
            return rules.governance(None)
        self._repository.bring([entry.name], rules.max_file_bytes)
        return rules.governance(read_ignore_text(self._git, rules.where, entry))

    def _judge(self, governance: Governance, holds: Callable[[str], bool]) -> Snapshot:
        judge = SnapshotJudge(self._rules.source, governance, holds)
        return judge.judge(tree_entries(self._git, self._tree))

    def _carried(
        self, documents: Mapping[str, str], known: Mapping[str, SourceFile]
    ) -> dict[str, SourceFile]:
        """The documents whose blob is known under their path, or under another one."""
        by_blob = {file.version: file for file in known.values()}
        kept: dict[str, SourceFile] = {}
        moved: dict[str, SourceFile] = {}
        for path, blob in documents.items():
            held = known.get(path)
            if held is not None and held.version == blob:
                kept[path] = held
            elif (other := by_blob.get(blob)) is not None:
                moved[path] = other
        commits = self._cited(kept)
        now = self._repository.commit
        files = {path: self._as_now(path, file, commits[path]) for path, file in kept.items()}
        files.update((path, self._as_now(path, file, now)) for path, file in moved.items())
        return files

    def _cited(self, kept: Mapping[str, SourceFile]) -> dict[str, str]:
        """The commit each URL goes on citing: the one it cited, while that is in the history."""
        now, urls = self._repository.commit, self._rules.urls
        if not urls.has_commit:
            return dict.fromkeys(kept, now)
        cited = {path: urls.commit_of(path, file.url) or now for path, file in kept.items()}
        if not self._repository.has_history:
            return cited
        lost = lost_commits(self._git, now, set(cited.values()))
        return {path: now if commit in lost else commit for path, commit in cited.items()}

    def _as_now(self, path: str, file: SourceFile, commit: str) -> SourceFile:
        """The same content under the present path, URL and tags."""
        rules = self._rules
        url, acl_tags = rules.urls.url(path, commit), rules.acl.tags_for(path)
        if (file.source, file.path, file.url, file.acl_tags) == (rules.source, path, url, acl_tags):
            return file
        return replace(file, source=rules.source, path=path, url=url, acl_tags=acl_tags)

    def _contents(self, blobs: Sequence[str]) -> dict[str, bytes | Fault]:
        """The content of each blob, or why it is no document."""
        most = self._rules.max_file_bytes
        found: dict[str, bytes | Fault] = dict.fromkeys(
            EMPTY_BLOBS.intersection(blobs), ("blank", "")
        )
        asked = [blob for blob in blobs if blob not in found]
        refused = set(self._repository.bring(asked, most))
        found.update(
            (blob, ("too_large", f"more than max_file_bytes = {most}")) for blob in refused
        )
        here = [blob for blob in asked if blob not in refused]
        for blob, info in zip(here, object_infos(self._git, here), strict=True):
            if info is not None and (fault := self._size_fault(info.size)) is not None:
                found[blob] = fault
        for blob, content in read_objects(self._git, [b for b in here if b not in found]):
            self._read += 1
            found[blob] = _fault(content) or content
        return found

    def _moments(self, new: Mapping[str, str]) -> dict[str, str | None]:
        """When each new document got its content: by history, else when the commit was made."""
        if not new:
            return {}
        repository = self._repository
        moment = commit_moment(self._git, repository.commit)
        found: dict[str, str | None] = dict.fromkeys(new, moment)
        if repository.has_history:
            found.update(changed_at(self._git, repository.commit, self._rules.folder, new))
        return found

    def _new(self, path: str, blob: str, content: bytes, modified_at: str | None) -> SourceFile:
        return SourceFile(
            source=self._rules.source,
            path=path,
            url=self._rules.urls.url(path, self._repository.commit),
            content=content,
            content_hash=sha256_hex(content),
            modified_at=modified_at,
            acl_tags=self._rules.acl.tags_for(path),
            version=blob,
        )

    def _size_fault(self, size: int) -> Fault | None:
        most = self._rules.max_file_bytes
        return ("too_large", too_large_detail(size, most)) if size > most else None


def tree_expression(commit: str, folder: str) -> str:
    """What git understands as the folder at that commit."""
    return f"{commit}:{folder}"


def _fault(content: bytes) -> Fault | None:
    """Why the content of a document is none."""
    if is_blank(content):
        return "blank", ""
    if len(content) < _MOST_POINTER_BYTES and content.startswith(_LFS_POINTER):
        return "not_text", "a Git LFS pointer: the text itself is stored elsewhere"
    return None


def _row_above(rows: Mapping[str, LeftOut], path: str) -> LeftOut | None:
    """The row of ``path`` as a folder, or of a folder above it."""
    at = printable(path)
    while at:
        if (row := rows.get(at + "/")) is not None:
            return row
        at = at.rpartition("/")[0]
    return None


def _everything(_path: str) -> bool:
    return True

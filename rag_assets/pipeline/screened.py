"""Which files of a listing may be stored: each new content is judged once, and not again.

Files that were left out for what they hold keep no bytes, only their change marker and hash; so
an unchanged one is neither read nor judged again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Final

import pyarrow as pa

from rag_assets.fingerprints import DOCUMENTS_VERSION, SCREENING_VERSION, fingerprint
from rag_assets.models import LeftOut, SourceFile
from rag_assets.pipeline import tables
from rag_assets.pipeline.worker import Worker
from rag_assets.releases import Release

_NO_CONTENT: Final = b""


@dataclass(frozen=True, slots=True)
class Screening:
    """What one source's documents are screened for, and by whom."""

    policies: Mapping[str, str]
    """``flag`` or ``quarantine`` by kind of finding."""
    released: Mapping[str, Release]
    """By content hash."""
    worker: Worker

    @property
    def fingerprint(self) -> str:
        """Changes whenever the same content could be judged differently; releases do not count."""
        reads_office = find_spec("kreuzberg") is not None
        policies = sorted(self.policies.items())
        return fingerprint(DOCUMENTS_VERSION, SCREENING_VERSION, policies, reads_office)


@dataclass(frozen=True, slots=True)
class Screened:
    """Files with what was found in them."""

    files: Sequence[SourceFile] = ()
    left_out: Sequence[LeftOut] = ()
    """Left out for their content."""
    flags: Mapping[str, LeftOut] = field(default_factory=dict)
    """By path."""

    @classmethod
    def of(cls, table: pa.Table, screening: Screening) -> Screened:
        """What an earlier listing found and still holds; ``files`` have been judged."""
        if tables.stamp_of(table).get("screening") != screening.fingerprint:
            return cls()
        flags = tables.flags(table)
        left_out = [
            row
            for row in tables.left_out(table)
            if row.content_hash and row.content_hash not in screening.released
        ]
        # What is flagged is judged again: a release may have been given or taken back.
        files = [file for file in tables.source_files(table) if file.path not in flags]
        return cls(files, left_out, flags)

    def bare_files(self) -> dict[str, SourceFile]:
        """The left-out files as a source knows them, by path, without their bytes."""
        return {
            row.path: SourceFile(
                source=row.source,
                path=row.path,
                url="",
                content=_NO_CONTENT,
                content_hash=row.content_hash,
                modified_at=None,
                acl_tags=(),
                version=row.version,
            )
            for row in self.left_out
            if row.version
        }


def screen_files(files: Sequence[SourceFile], before: Screened, screening: Screening) -> Screened:
    """Files that may be stored, those that their content leaves out, and what was found.

    A file is judged when its content, path, title or type is new. One that comes without its bytes
    is one of ``before.left_out``, unchanged.
    """
    judged = {_judged_by(file) for file in before.files}
    out = {row.content_hash: row for row in before.left_out}
    kept: list[SourceFile] = []
    left_out: list[LeftOut] = []
    flags: dict[str, LeftOut] = {}
    fresh: list[SourceFile] = []
    for file in files:
        if not file.content and (row := out.get(file.content_hash)) is not None:
            left_out.append(replace(row, path=file.path, version=file.version))
        elif _judged_by(file) in judged:
            kept.append(file)
        else:
            fresh.append(file)
    verdicts = screening.worker.judge(fresh, screening.policies, screening.released)
    for file, verdict in zip(fresh, verdicts, strict=True):
        if verdict.left_out is not None:
            left_out.append(verdict.left_out)
            continue
        kept.append(file)
        if verdict.flag is not None:
            flags[file.path] = verdict.flag
    kept.sort(key=lambda file: file.path)
    return Screened(kept, left_out, flags)


def _judged_by(file: SourceFile) -> tuple[str, ...]:
    return file.content_hash, file.path, file.title, file.media_type

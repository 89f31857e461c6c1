"""Judging and parsing in a child process, which is ended when one file takes too much."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Final, Protocol

from rag_assets.acl import most_restrictive
from rag_assets.chunking.base import Chunker
from rag_assets.chunking.markdown import MarkdownChunker
from rag_assets.documents.isolation.worker import IsolatedWorker, WorkerFailed
from rag_assets.documents.languages import find_language
from rag_assets.documents.parse import left_out
from rag_assets.models import PDF, Document, LeftOut, SourceFile
from rag_assets.pipeline.preparation import Judgement
from rag_assets.releases import Release


class Worker(Protocol):
    """Judges and parses files; no file can make it raise or stall."""

    def judge(
        self,
        files: Sequence[SourceFile],
        policies: Mapping[str, str],
        released: Mapping[str, Release],
    ) -> Iterator[Judgement]:
        """A judgement per file, in order."""
        ...

    def parse(
        self, files: Iterable[SourceFile], language: str | None, chunker: Chunker
    ) -> Iterator[Document | LeftOut]:
        """A document per file, in order, or why there is none; ``chunker`` will cut it."""
        ...


_SAMPLE: Final = SourceFile(
    source="warm-up",
    path="sample.md",
    url="",
    content="---\ntitle: é\n---\n# A <b>b</b> &amp; c\n\n[d](https://example.org)\n".encode(),
    content_hash="",
    modified_at=None,
    acl_tags=(),
    version="",
)
"""What a child opens, screens and parses before its limits hold: all that is loaded on first use
counts for no document."""
_POLICIES: Final = dict.fromkeys(("instructions", "secret", "personal_number"), "flag")


class ChildWorker:
    """The ``Worker`` of the pipeline: one child process, started when it is first needed.

    ``seconds`` and ``megabytes`` bound what one file may take, each time; a file that needs more is
    quarantined as ``document_too_complex``, and tried again at the next listing.
    """

    def __init__(self, *, seconds: float, megabytes: int) -> None:
        self._child = IsolatedWorker(
            "rag_assets.pipeline.preparation:work",
            seconds=seconds,
            megabytes=megabytes,
            warm_up=[("judge", _SAMPLE, _POLICIES, ""), *_office_warm_up()],
            result_types=(Judgement,),
        )

    def judge(
        self,
        files: Sequence[SourceFile],
        policies: Mapping[str, str],
        released: Mapping[str, Release],
    ) -> Iterator[Judgement]:
        """See ``Worker.judge``."""
        by = {content_hash: release.by for content_hash, release in released.items()}
        tasks = (("judge", f, dict(policies), by.get(f.content_hash, "")) for f in files)
        for file, outcome in zip(files, self._child.map(tasks), strict=True):
            if isinstance(outcome, Judgement) and _speaks_of(outcome, file):
                yield outcome
            else:
                yield Judgement(_too_complex(file, outcome))

    def parse(
        self, files: Iterable[SourceFile], language: str | None, chunker: Chunker
    ) -> Iterator[Document | LeftOut]:
        """See ``Worker.parse``."""
        cut = chunker if isinstance(chunker, MarkdownChunker) else None
        listed = list(files)
        tasks = (("parse", file, language, cut) for file in listed)
        for file, outcome in zip(listed, self._child.map(tasks), strict=True):
            if isinstance(outcome, Document) and _is_of(outcome, file):
                yield replace(
                    outcome, language=find_language(outcome.metadata, language, outcome.body)
                )
            elif isinstance(outcome, LeftOut) and _is_same(outcome, file):
                yield outcome
            else:
                yield _too_complex(file, outcome)

    def close(self) -> None:
        """End the child process; it starts again when needed."""
        self._child.close()


def _office_warm_up() -> list[tuple[object, ...]]:
    """A first PDF, where the extra for office files is installed: its library unpacks itself."""
    if find_spec("kreuzberg") is None:
        return []
    from rag_assets.documents.office import WARM_UP

    sample = replace(_SAMPLE, path="sample.pdf", content=WARM_UP, media_type=PDF)
    return [("judge", sample, _POLICIES, "")]


def _is_same(row: LeftOut, file: SourceFile) -> bool:
    return (row.source, row.path) == (file.source, file.path)


def _speaks_of(judgement: Judgement, file: SourceFile) -> bool:
    """Whether it is of this file: a parser that was taken over must not speak for another."""
    rows = (judgement.left_out, judgement.flag)
    return all(row is None or _is_same(row, file) for row in rows)


def _is_of(document: Document, file: SourceFile) -> bool:
    """Whether it is of this file, and grants no more than its source does."""
    same = (document.source, document.path, document.url, document.content_hash) == (
        file.source,
        file.path,
        file.url,
        file.content_hash,
    )
    return same and most_restrictive(document.acl_tags, file.acl_tags) == document.acl_tags


def _too_complex(file: SourceFile, outcome: object) -> LeftOut:
    why = str(outcome) if isinstance(outcome, WorkerFailed) else "gave no answer"
    row = left_out(file, "quarantined", "document_too_complex", why)
    # Without its hash it is not remembered: a busy machine may have been the reason.
    return LeftOut(row.source, row.path, row.status, row.reason, row.rule)


_of_thread = threading.local()


def shared_worker(seconds: float, megabytes: int) -> ChildWorker:
    """The ``ChildWorker`` of this thread with these limits; its processes serve run after run."""
    workers: dict[tuple[int, float, int], ChildWorker] | None
    workers = getattr(_of_thread, "workers", None)
    if workers is None:
        workers = _of_thread.workers = {}
    # A forked process must not talk to its parent's children.
    key = (os.getpid(), seconds, megabytes)
    if key not in workers:
        workers[key] = ChildWorker(seconds=seconds, megabytes=megabytes)
    return workers[key]

"""What the page shows of an index: sources, runs, files left out, one document and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final

from rag_assets.acl import Everything
from rag_assets.components import build_source
from rag_assets.errors import IndexMissing, RagError, VectorStoreError
from rag_assets.models import PROBLEM_REASONS, Chunk, Document, IndexStats, IngestRun, LeftOut

if TYPE_CHECKING:
    from rag_assets.acl import AclTags
    from rag_assets.config import Config
    from rag_assets.service.core import SearchService

ROWS_PER_PAGE: Final = 100
"""Rows of the ledger and passages of a document on one page."""
RUNS_READ: Final = 500
"""Runs in which the last one of each source is looked for."""


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One source as the overview shows it."""

    name: str
    configured: bool
    documents: int
    chunks: int
    share: float
    """Of all passages, 0 to 1."""
    size_bytes: float
    """Its share of the index's size: passages differ little in size."""
    last_indexed_at: str | None
    """End of its last run that reached the index."""
    left_out: int


@dataclass(frozen=True, slots=True)
class ReasonRow:
    """How many files are left out for one reason."""

    status: str
    reason: str
    count: int
    share: float
    """Of the largest count, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Overview:
    """The whole index at a glance."""

    stats: IndexStats | None
    """None when there is no index, or it cannot be read: ``problem`` says why."""
    problem: VectorStoreError | None
    sources: Sequence[SourceRow] = ()
    runs: Sequence[IngestRun] = ()
    reasons: Sequence[ReasonRow] = ()

    @property
    def is_missing(self) -> bool:
        """Nothing was indexed yet."""
        return isinstance(self.problem, IndexMissing)


def overview(service: SearchService, *, runs: int) -> Overview:
    """The index at a glance, with its last ``runs`` runs."""
    try:
        store = service.reader()
        stats, recorded, left_out = store.stats(), store.runs(RUNS_READ), store.left_out()
    except VectorStoreError as exc:
        return Overview(None, exc)
    sources = _source_rows(service.config, stats, recorded, left_out)
    return Overview(stats, None, sources, recorded[:runs], reasons(left_out))


def _source_rows(
    config: Config, stats: IndexStats, runs: Sequence[IngestRun], left_out: Iterable[LeftOut]
) -> list[SourceRow]:
    configured = [source.name for source in config.sources]
    last: dict[str, str] = {}
    for run in runs:
        if run.status in ("ok", "partial") and run.finished_at:
            last[run.source] = max(run.finished_at, last.get(run.source, ""))
    missing = Counter(item.source for item in left_out)
    rows = []
    for name in dict.fromkeys((*configured, *stats.sources)):
        counts: Mapping[str, int] = stats.sources.get(name, {})
        share = counts.get("chunks", 0) / stats.chunks if stats.chunks else 0.0
        rows.append(
            SourceRow(
                name=name,
                configured=name in configured,
                documents=counts.get("documents", 0),
                chunks=counts.get("chunks", 0),
                share=share,
                size_bytes=share * stats.size_bytes,
                last_indexed_at=last.get(name),
                left_out=missing[name],
            )
        )
    return rows


def reasons(left_out: Iterable[LeftOut]) -> list[ReasonRow]:
    """Counts by reason: what nobody chose first, then the largest."""
    counts = Counter((item.status, item.reason) for item in left_out)
    largest = max(counts.values(), default=1)
    rows = [
        ReasonRow(status, reason, count, count / largest)
        for (status, reason), count in counts.items()
    ]
    return sorted(
        rows,
        key=lambda row: (
            row.status != "quarantined",
            row.status != "flagged",
            row.reason not in PROBLEM_REASONS,
            -row.count,
            row.reason,
        ),
    )


@dataclass(frozen=True, slots=True)
class LeftOutFilter:
    """Which part of the ledger is asked for; empty fields let everything through."""

    source: str = ""
    reason: str = ""
    status: str = ""
    path: str = ""

    def lets(self, item: LeftOut) -> bool:
        """Whether an entry is asked for; the path is looked for without regard to case."""
        return (
            self.source in ("", item.source)
            and self.reason in ("", item.reason)
            and self.status in ("", item.status)
            and self.path.casefold() in item.path.casefold()
        )

    @property
    def query(self) -> dict[str, str]:
        """The fields that are set, for an address."""
        fields = {"source": self.source, "reason": self.reason, "status": self.status}
        return {key: value for key, value in {**fields, "path": self.path}.items() if value}


@dataclass(frozen=True, slots=True)
class Page:
    """Which rows of how many stand on a page."""

    number: int
    """1-based, within what there is."""
    total: int

    @classmethod
    def of(cls, wanted: str, total: int) -> Page:
        """The page asked for, or the nearest there is."""
        number = int(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) < 10 else 1
        return cls(min(max(1, number), max(1, ceil(total / ROWS_PER_PAGE))), total)

    @property
    def rows(self) -> slice:
        """The rows of this page."""
        return slice(self.first - 1 if self.total else 0, self.last)

    @property
    def first(self) -> int:
        """1-based number of the first row; 0 when there is none."""
        return min(self.total, (self.number - 1) * ROWS_PER_PAGE + 1)

    @property
    def last(self) -> int:
        """1-based number of the last row."""
        return min(self.total, self.number * ROWS_PER_PAGE)

    @property
    def previous(self) -> int | None:
        """Number of the page before, None on the first."""
        return self.number - 1 if self.number > 1 else None

    @property
    def next(self) -> int | None:
        """Number of the page after, None on the last."""
        return self.number + 1 if self.last < self.total else None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a document is, or is not, in the index."""

    source: str
    path: str
    status: str
    """``indexed``, ``excluded``, ``quarantined``, ``absent`` or ``no_source``."""
    document: Document | None = None
    chunks: Sequence[Chunk] = ()
    left_out: LeftOut | None = None
    run_id: str | None = None
    indexed_at: str | None = None


def explain(service: SearchService, source: str, path: str, *, acl_tags: AclTags) -> Explanation:
    """All that is known of one path; a document outside ``acl_tags`` is ``absent``.

    Raises:
        VectorStoreError: the index cannot be read.
    """
    try:
        known = service.reader().explain(source, path)
    except IndexMissing:
        known = None
    if known is not None and known.document is not None:
        if not _visible(known.document, acl_tags):
            return Explanation(source, path, "absent")
        return Explanation(
            source,
            known.document.path,
            "indexed",
            document=known.document,
            chunks=known.chunks,
            left_out=known.left_out,
            run_id=known.run_id,
            indexed_at=known.indexed_at,
        )
    if source not in [one.name for one in service.config.sources]:
        return Explanation(source, path, "no_source")
    left_out = known.left_out if known is not None else None
    left_out = left_out or _rule(service.config, source, path)
    if left_out is None:
        return Explanation(source, path, "absent")
    return Explanation(source, path, left_out.status, left_out=left_out)


def _visible(document: Document, acl_tags: AclTags) -> bool:
    return isinstance(acl_tags, Everything) or not set(acl_tags).isdisjoint(document.acl_tags)


def _rule(config: Config, source: str, path: str) -> LeftOut | None:
    """What the source's own rules say of a path that the ledger does not name: a folder above it
    may be left out as a whole."""
    try:
        return build_source(config, config.partitions([source])[0]).explain(path)
    except (RagError, OSError, ValueError):
        return None  # the source cannot be asked now

"""Bring the index up to date: look, plan, and run the stale partitions on the Dagster instance.

Dagster is imported only when there is something to run.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from rag_assets.changes import nothing_changed
from rag_assets.errors import IndexMissing, SourceError
from rag_assets.models import COUNTS, IngestRun, RunStatus
from rag_assets.project import config_path

if TYPE_CHECKING:
    from rag_assets.config import Config, Partition
    from rag_assets.pipeline.pipeline import Pipeline
    from rag_assets.pipeline.progress import Progress

ReportStatus = Literal["unchanged", "ok", "partial", "failed"]


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """What one run did to one partition."""

    partition: str
    run_id: str
    status: RunStatus
    error: str | None = None
    documents_seen: int = 0
    documents_indexed: int = 0
    documents_skipped: int = 0
    documents_removed: int = 0
    documents_excluded: int = 0
    chunks_upserted: int = 0
    chunks_unchanged: int = 0
    chunks_embedded: int = 0
    duration_seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The shape of ``ingest --json``."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What ``ingest`` did; the counts are sums over the partitions that ran."""

    source: str | None
    """The one source asked for, None for several."""
    status: ReportStatus
    partitions: tuple[PartitionReport, ...] = ()
    documents_seen: int = 0
    documents_indexed: int = 0
    documents_skipped: int = 0
    documents_removed: int = 0
    documents_excluded: int = 0
    chunks_upserted: int = 0
    chunks_unchanged: int = 0
    chunks_embedded: int = 0
    duration_seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The shape of ``ingest --json``."""
        totals = {name: getattr(self, name) for name in COUNTS}
        return {
            "status": self.status,
            "partitions": [partition.to_json() for partition in self.partitions],
            "totals": {**totals, "duration_seconds": self.duration_seconds},
        }


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """What a run of one partition would do."""

    partition: str
    stale: bool
    documents_added: int = 0
    documents_changed: int = 0
    documents_removed: int = 0
    documents_left_out: int = 0
    chunks: int = 0
    chunks_to_embed: int = 0
    """Distinct texts that neither the last run nor the cache has vectors for."""
    estimated_tokens: int = 0


@dataclass(frozen=True, slots=True)
class IngestPlan:
    """What ``ingest`` would do."""

    partitions: tuple[PartitionPlan, ...] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        """The shape of ``ingest --plan --json``."""
        names = [f.name for f in fields(PartitionPlan)][2:]
        totals = {name: sum(getattr(p, name) for p in self.partitions) for name in names}
        status = "stale" if any(p.stale for p in self.partitions) else "unchanged"
        return {
            "status": status,
            "partitions": [asdict(p) for p in self.partitions],
            "totals": totals,
        }


def ingest(
    config: str | os.PathLike[str] | Config | None = None,
    source: str | Sequence[str] | None = None,
    incremental: bool = True,
    *,
    confirm_removals: bool = False,
    progress: Progress | None = None,
) -> IngestReport:
    """Bring the index up to date with its sources.

    Nothing changed: nothing is run. Otherwise every stale partition is one run on the Dagster
    instance, in this process. ``incremental=False`` reprocesses everything: all sources into a new
    index generation that replaces the live one when it is complete, or the named sources in place.
    A run that fails does not raise; its report says ``failed`` and why.

    Raises:
        ConfigurationError: the configuration is wrong, or a source is not configured.
        VectorStoreError: the index cannot be read.
        EmbeddingError: the embedder cannot be asked who it is.
    """
    began = time.monotonic()
    names = [source] if isinstance(source, str) else list(source or ())
    one = names[0] if len(names) == 1 else None
    if incremental and not names and _known_unchanged(config):
        return IngestReport(one, "unchanged")
    from rag_assets.config import load_config
    from rag_assets.pipeline.pipeline import Pipeline

    loaded = load_config(config)
    partitions = loaded.partitions(names)
    if incremental:
        pipeline = Pipeline(loaded)
        partitions = stale_partitions(pipeline, partitions)
        if not partitions:
            pipeline.refresh_state()
            return IngestReport(one, "unchanged", duration_seconds=_since(began))
    from rag_assets.defs.in_process import run_partitions

    reports = run_partitions(
        loaded,
        [partition.key for partition in partitions],
        build_id=None if incremental or names else _new_build_id(),
        reprocess=not incremental,
        confirm_removals=confirm_removals,
        progress=progress,
    )
    return _report(one, reports, _since(began))


def _known_unchanged(config: str | os.PathLike[str] | Config | None) -> bool:
    path = config_path(config) if config is None or isinstance(config, (str, os.PathLike)) else None
    return path is not None and nothing_changed(path)


def _new_build_id() -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()) + "-" + uuid.uuid4().hex[:8]


def _since(began: float) -> float:
    return round(time.monotonic() - began, 3)


def _report(source: str | None, reports: Sequence[PartitionReport], seconds: float) -> IngestReport:
    statuses = {report.status for report in reports}
    status: ReportStatus = "ok"
    if statuses - {"ok", "partial"}:
        status = "failed"
    elif "partial" in statuses:
        status = "partial"
    totals = {name: sum(getattr(r, name) for r in reports) for name in COUNTS}
    return IngestReport(source, status, tuple(reports), **totals, duration_seconds=seconds)


def report_of(run: IngestRun) -> PartitionReport:
    """The report of a row of ``ingest_run``."""
    return PartitionReport(
        run.partition,
        run.run_id,
        run.status,
        run.error,
        **{name: getattr(run, name) for name in COUNTS},
        duration_seconds=run.duration_seconds,
    )


def stale_partitions(pipeline: Pipeline, partitions: Sequence[Partition]) -> list[Partition]:
    """The partitions whose contents or stages are not what the index holds.

    Sources are listed, but only files whose change marker is new are read. A source that cannot
    be listed counts as stale: its run says why and is recorded.
    """
    from rag_assets.components import open_reader
    from rag_assets.pipeline.pipeline import drop_unconfigured_now

    try:
        store = open_reader(pipeline.config)
    except IndexMissing:
        return list(partitions)
    try:
        pipeline.refuse_other_fingerprint()
        recorded = dict(store.partitions())
        sound = not store.quick_check()
    finally:
        store.close()
    if not sound:
        return list(partitions)
    stale = [p for p in partitions if _is_stale(pipeline, p, recorded.get(p.key))]
    configured = {p.key for p in pipeline.config.partitions()}
    if not stale and recorded.keys() - configured:
        drop_unconfigured_now(pipeline)
    return stale


def _is_stale(pipeline: Pipeline, partition: Partition, recorded: str | None) -> bool:
    from rag_assets.pipeline.pipeline import ASSETS, RunOptions

    if recorded is None or not pipeline.files.all_exist(ASSETS, partition.key):
        return True
    previous = pipeline.files.read("source_files", partition.key)
    try:
        result = pipeline.source_files(partition, previous, RunOptions("look"))
    except SourceError:
        return True
    return recorded != pipeline.target_version(result.data_version)


def plan(
    config: str | os.PathLike[str] | Config | None = None,
    source: str | Sequence[str] | None = None,
    incremental: bool = True,
) -> IngestPlan:
    """What ``ingest`` would do: list, parse and chunk in memory; nothing is written or embedded.

    Raises:
        ConfigurationError, SourceError, VectorStoreError: as ``ingest`` and its runs would.
    """
    from rag_assets.config import load_config
    from rag_assets.pipeline.pipeline import Pipeline

    loaded = load_config(config)
    names = [source] if isinstance(source, str) else list(source or ())
    pipeline = Pipeline(loaded)
    partitions = loaded.partitions(names)
    recorded = pipeline.recorded_partitions()
    return IngestPlan(
        tuple(_plan(pipeline, p, recorded.get(p.key), incremental) for p in partitions)
    )


def _plan(
    pipeline: Pipeline, partition: Partition, recorded: str | None, incremental: bool
) -> PartitionPlan:
    from rag_assets.pipeline.pipeline import RunOptions
    from rag_assets.pipeline.steps import texts_to_embed

    key, files = partition.key, pipeline.files
    options = RunOptions("plan", reprocess=not incremental, removals_confirmed=True)
    listed, _ = pipeline.list_files(partition, files.read("source_files", key), options)
    stale = not incremental or recorded != pipeline.target_version(listed.data_version)
    parsed = pipeline.parsed_documents(listed.table, files.read("parsed_documents", key), options)
    chunked = pipeline.chunks(parsed.table, files.read("chunks", key), options)
    hashes = set(chunked.table["content_hash"].to_pylist())
    known = pipeline.vectors_known(key, hashes)
    missing = texts_to_embed(chunked.table, known)
    return PartitionPlan(
        key,
        stale,
        listed.counts["added"],
        listed.counts["changed"],
        listed.counts["removed"],
        listed.counts["left_out"],
        chunked.counts["chunks"],
        len(missing),
        sum(missing.values()),
    )

"""Bring the index up to date: look, plan, and run the stale partitions on the Dagster instance.

Dagster is imported only when there is something to run.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from rag_assets.changes import nothing_changed
from rag_assets.components import is_replaced
from rag_assets.errors import AssetError, RemovalRefused, SourceError
from rag_assets.models import COUNTS, IngestRun
from rag_assets.project import config_path, process_name

if TYPE_CHECKING:
    from rag_assets.config import Config, Partition
    from rag_assets.pipeline.pipeline import Pipeline
    from rag_assets.pipeline.progress import Progress

ReportStatus = Literal["unchanged", "ok", "partial", "failed"]


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What ``ingest`` did; the counts are sums over the partitions that ran."""

    source: str | None
    """The one source asked for, None for several."""
    status: ReportStatus
    partitions: tuple[IngestRun, ...] = ()
    """One run per partition that was stale."""
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
            "partitions": [_run_json(run) for run in self.partitions],
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
    documents: int = 0
    """All documents of the partition, quarantined ones not counted."""
    chunks: int = 0
    chunks_to_embed: int = 0
    """Distinct texts that neither the last run nor the cache has vectors for."""
    estimated_tokens: int = 0
    blocked: str | None = None
    """Why ``ingest`` would refuse to run it, when it would."""
    unconfigured: bool = False
    """No longer configured: all its documents would be removed."""


@dataclass(frozen=True, slots=True)
class IngestPlan:
    """What ``ingest`` would do."""

    partitions: tuple[PartitionPlan, ...] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        """The shape of ``ingest --plan --json``."""
        names = [f.name for f in fields(PartitionPlan) if f.type == "int"]
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
    if incremental and not names and not is_replaced() and _known_unchanged(config):
        return IngestReport(one, "unchanged")
    from rag_assets.config import load_config
    from rag_assets.pipeline.pipeline import Pipeline

    loaded = load_config(config)
    partitions = loaded.partitions(names)
    pipeline = Pipeline(loaded)
    pipeline.require_components(partitions)
    if incremental:
        partitions = stale_partitions(pipeline, partitions)
        if not partitions:
            dropped = _drop_unconfigured(pipeline)
            pipeline.refresh_state()
            if dropped is not None:
                return _report(one, [dropped], _since(began))
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
    if config is not None and not isinstance(config, (str, os.PathLike)):
        return False
    path = config_path(config)
    try:
        return nothing_changed(path)
    except Exception:  # noqa: BLE001 (whatever it is, the closer look says it better)
        return False


def _new_build_id() -> str:
    """Unique, and says which process makes it, so that a dead one's build can be told."""
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return f"{moment}-{uuid.uuid4().hex[:8]}@{process_name()}"


def _since(began: float) -> float:
    return round(time.monotonic() - began, 3)


def _report(source: str | None, reports: Sequence[IngestRun], seconds: float) -> IngestReport:
    statuses = {report.status for report in reports}
    status: ReportStatus = "ok"
    if statuses - {"ok", "partial"}:
        status = "failed"
    elif "partial" in statuses:
        status = "partial"
    totals = {name: sum(getattr(r, name) for r in reports) for name in COUNTS}
    return IngestReport(source, status, tuple(reports), **totals, duration_seconds=seconds)


def _run_json(run: IngestRun) -> dict[str, Any]:
    names = ("partition", "run_id", "status", "error", *COUNTS, "duration_seconds")
    return {name: getattr(run, name) for name in names}


def stale_partitions(
    pipeline: Pipeline, partitions: Sequence[Partition], *, retry: bool = True
) -> list[Partition]:
    """The partitions whose contents or stages are not what the index holds.

    ``retry``: what could not be read last time is tried again.

    Sources are listed, but only files whose change marker is new are read. A source that cannot
    be listed counts as stale: its run says why and is recorded.
    """
    from rag_assets.components import live_index

    with live_index(pipeline.config) as store:
        if store is None:
            return list(partitions)
        pipeline.refuse_other_fingerprint()
        recorded = dict(store.partitions())
        if store.quick_check():
            return list(partitions)
    return [p for p in partitions if _is_stale(pipeline, p, recorded.get(p.key), retry)]


def _drop_unconfigured(pipeline: Pipeline) -> IngestRun | None:
    """Take sources that are no longer configured out of the index; None when there are none."""
    from rag_assets.pipeline.upkeep import drop_unconfigured_now

    if not pipeline.recorded_partitions().keys() - {p.key for p in pipeline.config.partitions()}:
        return None
    return drop_unconfigured_now(pipeline.config, run_id=str(uuid.uuid4()))


def _is_stale(pipeline: Pipeline, partition: Partition, recorded: str | None, retry: bool) -> bool:
    from rag_assets.pipeline.pipeline import RunOptions

    if recorded is None:
        return True
    try:
        if (found := pipeline.look(partition, recorded, retry=retry)) is not None:
            return bool(found)
        previous = pipeline.files.read("source_files", partition.key)
        result = pipeline.source_files(partition, previous, RunOptions("look"))
    except (SourceError, AssetError):
        return True
    return not pipeline.holds(partition, recorded, result.data_version)


def plan(
    config: str | os.PathLike[str] | Config | None = None,
    source: str | Sequence[str] | None = None,
    incremental: bool = True,
) -> IngestPlan:
    """What ``ingest`` would do: list, parse and chunk in memory; nothing is written or embedded.

    A removal that ``ingest`` would refuse is in ``blocked``; partitions that are no longer
    configured are planned as removals.

    Raises:
        ConfigurationError, SourceError, VectorStoreError: as ``ingest`` and its runs would.
    """
    from rag_assets.config import load_config
    from rag_assets.pipeline.pipeline import Pipeline

    loaded = load_config(config)
    names = [source] if isinstance(source, str) else list(source or ())
    pipeline = Pipeline(loaded)
    partitions = loaded.partitions(names)
    if incremental:
        pipeline.refuse_other_fingerprint()
    recorded = pipeline.recorded_partitions()
    plans = [_plan(pipeline, p, recorded.get(p.key), incremental) for p in partitions]
    gone = sorted(recorded.keys() - {p.key for p in loaded.partitions()}) if not names else []
    plans += [PartitionPlan(key, stale=True, unconfigured=True) for key in gone]
    return IngestPlan(tuple(plans))


def _plan(
    pipeline: Pipeline, partition: Partition, recorded: str | None, incremental: bool
) -> PartitionPlan:
    from rag_assets.pipeline.pipeline import RunOptions
    from rag_assets.pipeline.steps import texts_to_embed

    key, files = partition.key, pipeline.files
    options = RunOptions("plan", reprocess=not incremental, stores=False)
    before = files.read_or_none("source_files", key)
    blocked = None
    try:
        listed, _ = pipeline.list_files(partition, before, options)
    except RemovalRefused as exc:
        blocked = str(exc)
        options = replace(options, removals_confirmed=True)
        listed, _ = pipeline.list_files(partition, before, options)
    up_to_date = recorded is not None and pipeline.holds(partition, recorded, listed.data_version)
    parsed = pipeline.parsed_documents(
        partition, listed.table, files.read_or_none("parsed_documents", key), options
    )
    chunked = pipeline.chunks(partition, parsed.table, files.read_or_none("chunks", key), options)
    hashes = set(chunked.table["content_hash"].to_pylist())
    known = pipeline.vectors_known(key, hashes)
    missing = texts_to_embed(chunked.table, known)
    return PartitionPlan(
        key,
        stale=not incremental or not up_to_date,
        documents_added=listed.counts["documents" if recorded is None else "added"],
        documents_changed=0 if recorded is None else listed.counts["changed"],
        documents=parsed.counts["documents"],
        documents_removed=listed.counts["removed"],
        documents_left_out=parsed.counts["excluded"] + parsed.counts["quarantined"],
        chunks=chunked.counts["chunks"],
        chunks_to_embed=len(missing),
        estimated_tokens=sum(missing.values()),
        blocked=blocked,
    )

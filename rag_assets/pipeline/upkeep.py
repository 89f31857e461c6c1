"""Taking away what nobody wants any more: unconfigured partitions, rows of dead runs."""

from __future__ import annotations

import time
from dataclasses import replace

from rag_assets import components
from rag_assets.config import Config
from rag_assets.index.base import VectorStore
from rag_assets.models import IngestRun
from rag_assets.pipeline.indexing import utc
from rag_assets.pipeline.storage import AssetFiles
from rag_assets.project import DataFolder


def close_abandoned_runs(store: VectorStore) -> None:
    """Rows still ``running`` are of dead writers: whoever writes holds the lease, and we do."""
    for run in store.runs(limit=100):
        if run.status == "running":
            store.record_run(
                replace(
                    run,
                    status="failed",
                    finished_at=utc(time.time()),
                    error="its process ended without a word",
                )
            )


def forget_unconfigured_files(config: Config, data: DataFolder, files: AssetFiles) -> None:
    """Delete tables and look states of partitions that are no longer configured."""
    keys = {partition.key for partition in config.partitions()}
    files.keep_only(keys)
    for state in data.state.iterdir() if data.state.exists() else ():
        kept = state == data.indexed or state.stem in keys
        if not kept and state.suffix in (".json", ".fetched"):
            state.unlink(missing_ok=True)


def drop_unconfigured(
    store: VectorStore, config: Config, data: DataFolder, files: AssetFiles
) -> int:
    """Remove what belongs to sources and partitions that are no longer configured.

    Returns how many documents were removed. The lease is held by the caller.
    """
    names = {source.name for source in config.sources}
    keys = {partition.key for partition in config.partitions()}
    removed = 0
    for name in store.stats().sources.keys() - names:
        removed += store.delete_documents(name, list(store.document_digests(name)))
    for name in {item.source for item in store.left_out()} - names:
        store.replace_left_out(name, [], remove=[item.path for item in store.left_out(name)])
    for key in store.partitions().keys() - keys:
        store.forget_partition(key)
    forget_unconfigured_files(config, data, files)
    return removed


def drop_unconfigured_now(config: Config, run_id: str) -> IngestRun:
    """``drop_unconfigured`` outside of a Dagster run, because nothing else is stale; its row."""
    began = time.time()
    data = DataFolder(config.data_dir)
    store = components.open_index(config)
    try:
        wait_seconds = config.index.wait_seconds
        with store.writing(run_id=run_id, partition="*", wait_seconds=wait_seconds):
            removed = drop_unconfigured(store, config, data, AssetFiles(data.assets))
            store.finish()
            run = IngestRun(
                run_id=run_id,
                partition="*",
                source="*",
                started_at=utc(began),
                finished_at=utc(time.time()),
                status="ok",
                documents_removed=removed,
                duration_seconds=round(time.time() - began, 3),
            )
            store.record_run(run)
        return run
    finally:
        store.close()

"""What every asset does around its step: options from tags, its previous table, its failures."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dagster as dg
import pyarrow as pa

from rag_assets.config import Partition
from rag_assets.errors import AssetError, RagError, SourceUnavailable, Unavailable
from rag_assets.pipeline.indexing import utc
from rag_assets.pipeline.pipeline import Pipeline, RunOptions
from rag_assets.pipeline.steps import StepResult
from rag_assets.resources import PipelineResource

FULL_TAG = "rag_assets/full"
"""Names a build: everything is reprocessed into a new index generation of that name."""
REPROCESS_TAG = "rag_assets/reprocess"
"""``true``: nothing is carried over from earlier tables (vectors still come from the cache)."""
REREAD_TAG = "rag_assets/reread"
"""``true``: every file is read again and compared by content."""
CONFIRM_TAG = "rag_assets/confirm_removals"
"""``true``: the run may remove more documents than ``max_removed_fraction``."""
PROCESS_TAG = "rag_assets/process"
"""host:pid:start of the command that runs in process, so that a killed one can be told."""

RETRIES = 3
RETRY_SECONDS = 30.0


class StepRun:
    """One step of one partition, in the terms of the pipeline."""

    def __init__(self, context: dg.AssetExecutionContext, resource: PipelineResource) -> None:
        tags = context.run.tags
        self.context = context
        self.pipeline: Pipeline = resource.pipeline(context.log)
        self.partition: Partition = self.pipeline.config.partition(context.partition_key)
        self.options = RunOptions(
            run_id=context.run.run_id,
            build_id=tags.get(FULL_TAG),
            reprocess=tags.get(REPROCESS_TAG) == "true",
            reread=tags.get(REREAD_TAG) == "true",
            removals_confirmed=tags.get(CONFIRM_TAG) == "true",
        )

    @property
    def previous(self) -> pa.Table | None:
        """What this asset made of this partition last time; None if that cannot be read."""
        asset = self.context.asset_key.to_python_identifier()
        try:
            return self.pipeline.files.read(asset, self.partition.key)
        except AssetError as exc:
            self.context.log.warning(f"made again from nothing: {exc}")
            return None

    @property
    def shows_text(self) -> bool:
        """Whether text of public documents may be shown: it stays in Dagster's event history."""
        return self.pipeline.config.automation.text_samples

    def output(
        self, result: StepResult, metadata: Mapping[str, Any]
    ) -> dg.MaterializeResult[pa.Table]:
        """The table with its data version and what a person wants to see."""
        return dg.MaterializeResult(
            value=result.table,
            data_version=dg.DataVersion(result.data_version),
            metadata=metadata,
        )


@contextmanager
def step_run(context: dg.AssetExecutionContext, resource: PipelineResource) -> Iterator[StepRun]:
    """Run a step; a failure is written to ``ingest_run`` and becomes one clear line.

    What may go through later is tried again by Dagster, unless a command waits for the answer.
    """
    started = utc(time.time())
    run = StepRun(context, resource)
    try:
        yield run
    except RagError as exc:
        _record(run, started, str(exc))
        if isinstance(exc, (Unavailable, SourceUnavailable)) and _unattended(context):
            raise dg.RetryRequested(RETRIES, RETRY_SECONDS) from exc
        raise dg.Failure(
            str(exc), {"error": dg.MetadataValue.text(type(exc).__name__)}, allow_retries=False
        ) from exc
    except BaseException as exc:
        _record(run, started, f"{type(exc).__name__}: {exc}")
        raise


def _unattended(context: dg.AssetExecutionContext) -> bool:
    return PROCESS_TAG not in context.run.tags


def _record(run: StepRun, started: str, error: str) -> None:
    try:
        run.pipeline.record_failure(run.partition, run.options.run_id, started, error)
    except RagError as exc:
        run.context.log.warning(f"the failure could not be written to ingest_run: {exc}")


def counts_metadata(counts: Mapping[str, int]) -> dict[str, dg.MetadataValue]:
    """Counts as numbers, which Dagster plots over time."""
    return {name: dg.MetadataValue.int(value) for name, value in counts.items()}


def left_out_metadata(table: pa.Table, most: int = 200) -> dict[str, dg.MetadataValue]:
    """The files left out with their reasons, as a table."""
    from rag_assets.pipeline.tables import left_out

    items = left_out(table)
    rows = [
        dg.TableRecord(
            {
                "path": item.path,
                "status": item.status,
                "reason": item.reason,
                "rule": item.rule,
                "where": f"{item.rule_file}:{item.rule_line}" if item.rule_file else "",
            }
        )
        for item in items[:most]
    ]
    columns = [dg.TableColumn(name) for name in ("path", "status", "reason", "rule", "where")]
    return {
        "left_out_files": dg.MetadataValue.table(rows, schema=dg.TableSchema(columns)),
        "left_out_shown": dg.MetadataValue.text(f"{len(rows)} of {len(items)}"),
    }

"""source_files: the documents of a source with their bytes, and what is left out and why."""

import time

import dagster as dg
import pyarrow as pa

from rag_assets.defs.options import partition_asset
from rag_assets.defs.running import counts_metadata, left_out_metadata, step_run
from rag_assets.resources import PipelineResource


def build(partitions: dg.PartitionsDefinition[str], code_version: str) -> dg.AssetsDefinition:
    """The asset over these partitions."""

    @partition_asset(
        "source_files",
        partitions,
        code_version,
        kinds={"markdown", "parquet"},
        io_manager_key="parquet",
        description=(
            "Files of one source after governance. Data version: paths, content hashes, ACL tags "
            "and URLs, and what is left out. Unchanged files are not read again."
        ),
    )
    def source_files(
        context: dg.AssetExecutionContext, pipeline: PipelineResource
    ) -> dg.MaterializeResult[pa.Table]:
        began = time.monotonic()
        with step_run(context, pipeline) as run:
            result = run.pipeline.source_files(run.partition, run.previous, run.options)
            return run.output(
                result,
                {
                    **counts_metadata(result.counts),
                    "seconds": round(time.monotonic() - began, 3),
                    **left_out_metadata(result.table),
                },
            )

    return source_files

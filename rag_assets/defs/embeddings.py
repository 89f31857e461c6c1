"""embeddings: a vector for every distinct passage text, none computed twice."""

import time

import dagster as dg
import pyarrow as pa

from rag_assets.defs.options import partition_asset, when_data_changed
from rag_assets.defs.running import counts_metadata, step_run
from rag_assets.resources import PipelineResource


def build(partitions: dg.PartitionsDefinition[str], code_version: str) -> dg.AssetsDefinition:
    """The asset over these partitions."""

    @partition_asset(
        "embeddings",
        partitions,
        code_version,
        kinds={"parquet"},
        io_manager_key="parquet",
        automation_condition=when_data_changed(),
        description="Vectors of passage texts, from the previous table, the cache or the embedder.",
    )
    def embeddings(
        context: dg.AssetExecutionContext, pipeline: PipelineResource, chunks: pa.Table
    ) -> dg.MaterializeResult[pa.Table]:
        began = time.monotonic()
        with step_run(context, pipeline) as run:
            result = run.pipeline.embeddings(chunks, run.previous, run.options)
            seconds = max(time.monotonic() - began, 1e-9)
            health = run.pipeline.health
            return run.output(
                result,
                {
                    **counts_metadata(result.counts),
                    "model": health.model,
                    "dimension": health.dim,
                    "seconds": round(seconds, 3),
                    "texts_per_second": round(result.counts["embedded"] / seconds, 1),
                },
            )

    return embeddings

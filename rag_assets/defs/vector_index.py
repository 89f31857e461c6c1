"""vector_index: the searchable index, brought to exactly what the tables of a partition say."""

import dataclasses

import dagster as dg
import pyarrow as pa

from rag_assets.defs.options import partition_asset, when_data_changed
from rag_assets.defs.running import counts_metadata, step_run
from rag_assets.models import COUNTS
from rag_assets.resources import PipelineResource

WRITER_POOL = "rag_assets_index_writer"
"""Pool with one slot: Dagster queues writers instead of letting them wait for the lease."""


def build(partitions: dg.PartitionsDefinition[str], code_version: str) -> dg.AssetsDefinition:
    """The asset over these partitions."""

    @partition_asset(
        "vector_index",
        partitions,
        code_version,
        kinds={"sqlite"},
        pool=WRITER_POOL,
        automation_condition=when_data_changed(),
        description=(
            "Documents, passages and vectors in the index: replaced document by document in "
            "transactions, removed when they are gone from a complete listing."
        ),
    )
    def vector_index(
        context: dg.AssetExecutionContext,
        pipeline: PipelineResource,
        parsed_documents: pa.Table,
        chunks: pa.Table,
        embeddings: pa.Table,
    ) -> dg.MaterializeResult[None]:
        stats = context.instance.get_run_stats(context.run.run_id)
        with step_run(context, pipeline) as run:
            row, version = run.pipeline.vector_index(
                run.partition,
                parsed_documents,
                chunks,
                embeddings,
                run.options,
                started=stats.start_time,
            )
            counts = {name: getattr(row, name) for name in COUNTS}
            return dg.MaterializeResult(
                data_version=dg.DataVersion(version),
                metadata={
                    **counts_metadata(counts),
                    "status": row.status,
                    "seconds": row.duration_seconds,
                    "ingest_run": dg.MetadataValue.json(dataclasses.asdict(row)),
                },
            )

    return vector_index

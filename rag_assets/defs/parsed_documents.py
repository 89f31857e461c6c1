"""parsed_documents: front matter taken off, titles and ACL tags known, bodies as text."""

import time

import dagster as dg
import pyarrow as pa

from rag_assets.defs.options import partition_asset, when_data_changed
from rag_assets.defs.running import counts_metadata, left_out_metadata, step_run
from rag_assets.models import PUBLIC
from rag_assets.pipeline import tables
from rag_assets.resources import PipelineResource


def build(partitions: dg.PartitionsDefinition[str], code_version: str) -> dg.AssetsDefinition:
    """The asset over these partitions."""

    @partition_asset(
        "parsed_documents",
        partitions,
        code_version,
        kinds={"parquet"},
        io_manager_key="parquet",
        automation_condition=when_data_changed(),
        description="Documents with title, metadata and ACL tags; or why one is quarantined.",
    )
    def parsed_documents(
        context: dg.AssetExecutionContext, pipeline: PipelineResource, source_files: pa.Table
    ) -> dg.MaterializeResult[pa.Table]:
        began = time.monotonic()
        with step_run(context, pipeline) as run:
            result = run.pipeline.parsed_documents(source_files, run.previous, run.options)
            seconds = max(time.monotonic() - began, 1e-9)
            return run.output(
                result,
                {
                    **counts_metadata(result.counts),
                    "seconds": round(seconds, 3),
                    "documents_per_second": round(result.counts["parsed"] / seconds, 1),
                    "warnings": dg.MetadataValue.md(_warnings(result.table)),
                    **left_out_metadata(result.table),
                },
            )

    return parsed_documents


def _warnings(table: pa.Table, most: int = 50) -> str:
    """Warnings of public documents, as they may quote them."""
    lines = [
        f"- `{document.path}`: {warning.removeprefix(document.path + ': ')}"
        for document in tables.documents(table, with_body=False)
        if PUBLIC in document.acl_tags
        for warning in document.warnings
    ]
    more = f"\n\n({len(lines) - most} more)" if len(lines) > most else ""
    return "\n".join(lines[:most]) + more if lines else "none"

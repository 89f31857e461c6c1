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
            result = run.pipeline.parsed_documents(
                run.partition, source_files, run.previous, run.options
            )
            seconds = max(time.monotonic() - began, 1e-9)
            return run.output(
                result,
                {
                    **counts_metadata(result.counts),
                    "seconds": round(seconds, 3),
                    "documents_per_second": round(result.counts["parsed"] / seconds, 1),
                    **_warnings(result.table, with_text=run.shows_text),
                    **left_out_metadata(result.table),
                },
            )

    return parsed_documents


def _warnings(table: pa.Table, *, with_text: bool, most: int = 50) -> dict[str, dg.MetadataValue]:
    """How many, and in which documents; their words, which may quote a document, of public ones."""
    warned = [d for d in tables.documents(table, with_body=False) if d.warnings]
    rows = [dg.TableRecord({"path": d.path, "warnings": len(d.warnings)}) for d in warned[:most]]
    columns = [dg.TableColumn("path"), dg.TableColumn("warnings", "int")]
    found: dict[str, dg.MetadataValue] = {
        "warnings": dg.MetadataValue.int(sum(len(d.warnings) for d in warned)),
        "warned_documents": dg.MetadataValue.table(rows, schema=dg.TableSchema(columns)),
    }
    lines = [
        f"- `{document.path}`: {warning.removeprefix(document.path + ': ')}"
        for document in warned
        if with_text and PUBLIC in document.acl_tags
        for warning in document.warnings
    ]
    if lines:
        more = f"\n\n({len(lines) - most} more)" if len(lines) > most else ""
        found["warning_texts"] = dg.MetadataValue.md("\n".join(lines[:most]) + more)
    return found

"""chunks: passages with heading path, anchor and lines, ready to embed and to cite."""

import time

import dagster as dg
import pyarrow as pa

from rag_assets.defs.options import partition_asset, when_data_changed
from rag_assets.defs.running import StepRun, counts_metadata, step_run
from rag_assets.models import PUBLIC
from rag_assets.pipeline import tables
from rag_assets.resources import PipelineResource

SAMPLE_CHUNKS = 3
SAMPLE_CHARACTERS = 600
CITATIONS = 20
"""Passages listed in the metadata of a run."""


def build(partitions: dg.PartitionsDefinition[str], code_version: str) -> dg.AssetsDefinition:
    """The asset over these partitions."""

    @partition_asset(
        "chunks",
        partitions,
        code_version,
        kinds={"parquet"},
        io_manager_key="parquet",
        automation_condition=when_data_changed(),
        description="Passages of every document; an edit that changes no passage stops here.",
    )
    def chunks(
        context: dg.AssetExecutionContext, pipeline: PipelineResource, parsed_documents: pa.Table
    ) -> dg.MaterializeResult[pa.Table]:
        began = time.monotonic()
        with step_run(context, pipeline) as run:
            result = run.pipeline.chunks(run.partition, parsed_documents, run.previous, run.options)
            seconds = max(time.monotonic() - began, 1e-9)
            return run.output(
                result,
                {
                    **counts_metadata(result.counts),
                    "seconds": round(seconds, 3),
                    "documents_per_second": round(result.counts["documents_chunked"] / seconds, 1),
                    "passages": _citations(result.table),
                    **_sample(run, parsed_documents, result.table),
                },
            )

    return chunks


def _citations(chunked: pa.Table) -> dg.TableMetadataValue:
    """Where the first passages stand. No anchors: they are made of headings, which are text."""
    names = ("path", "start_line", "end_line", "tokens")
    rows = chunked.slice(0, CITATIONS).select(names).to_pylist()
    return dg.MetadataValue.table(
        [dg.TableRecord(row) for row in rows],
        schema=dg.TableSchema([dg.TableColumn(name) for name in names]),
    )


def _sample(run: StepRun, parsed: pa.Table, chunked: pa.Table) -> dict[str, dg.MetadataValue]:
    """The first passages of documents that everybody may read, where text may be shown at all."""
    if not run.shows_text:
        return {}
    public = {
        document.path
        for document in tables.documents(parsed, with_body=False)
        if PUBLIC in document.acl_tags
    }
    shown = []
    for chunk in tables.chunks(chunked.slice(0, 200)):
        if chunk.path in public:
            where = f"{chunk.path}#{chunk.anchor}, lines {chunk.start_line}-{chunk.end_line}"
            quoted = chunk.content[:SAMPLE_CHARACTERS].replace("\n", "\n> ")
            shown.append(f"**{where}** ({chunk.tokens} tokens)\n\n> {quoted}")
        if len(shown) == SAMPLE_CHUNKS:
            break
    return {"sample": dg.MetadataValue.md("\n\n---\n\n".join(shown) or "No public document.")}

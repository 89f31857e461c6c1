"""Everything Dagster: assets, jobs, sensor, schedule and resources of one configuration."""

import dagster as dg
from upath import UPath

from rag_assets.config import Config
from rag_assets.defs import (
    automation,
    chunks,
    embeddings,
    parsed_documents,
    source_files,
    vector_index,
)
from rag_assets.defs.io import ParquetIOManager
from rag_assets.fingerprints import (
    CHUNKING_VERSION,
    DOCUMENTS_VERSION,
    INDEX_VERSION,
    SOURCES_VERSION,
    fingerprint,
)
from rag_assets.project import DataFolder
from rag_assets.resources import PipelineResource, RetrieverResource


def build_definitions(config: Config) -> dg.Definitions:
    """The code location of one configuration; nothing is read, called or loaded yet."""
    partitions = dg.StaticPartitionsDefinition([p.key for p in config.partitions()])
    versions = code_versions(config)
    assets = [
        module.build(partitions, versions[module.__name__.rsplit(".", 1)[-1]])
        for module in (source_files, parsed_documents, chunks, embeddings, vector_index)
    ]
    job = automation.build_job(partitions)
    return dg.Definitions(
        assets=assets,
        jobs=[job],
        sensors=[automation.build_sensor(config, job)],
        schedules=[automation.build_schedule(config, job)],
        resources={
            "pipeline": PipelineResource(config_path=str(config.path)),
            "retriever": RetrieverResource(config_path=str(config.path)),
            "parquet": ParquetIOManager(UPath(DataFolder(config.data_dir).assets)),
        },
        executor=dg.in_process_executor,
    )


def code_versions(config: Config) -> dict[str, str]:
    """Per asset, what its code and settings are: a change makes it and what follows stale.

    Like the stage fingerprints, but without asking an embedding server for its model.
    """
    sources = fingerprint(
        SOURCES_VERSION,
        [
            s.model_dump(mode="json", exclude={"shards", "max_removed_fraction", "language"})
            for s in config.sources
        ],
    )
    languages = [(s.name, s.language) for s in config.sources]
    documents = fingerprint(DOCUMENTS_VERSION, languages)
    chunking = fingerprint(
        DOCUMENTS_VERSION,
        CHUNKING_VERSION,
        config.chunk.model_dump(mode="json"),
        config.embedding.max_tokens,
    )
    settings = config.embedding
    model = fingerprint(
        settings.backend, settings.url, settings.model, settings.precision, settings.max_tokens
    )
    return {
        "source_files": sources,
        "parsed_documents": documents,
        "chunks": chunking,
        "embeddings": model,
        "vector_index": fingerprint(INDEX_VERSION, documents, chunking, model),
    }

"""Does the index hold what the assets and the configuration say?"""

from __future__ import annotations

from itertools import groupby

from rag_assets.config import Config
from rag_assets.errors import EmbeddingError
from rag_assets.fingerprints import document_digest
from rag_assets.index.base import VectorStore
from rag_assets.pipeline import tables
from rag_assets.pipeline.pipeline import Pipeline


def compare_with_assets(store: VectorStore, config: Config) -> list[str]:
    """Contradictions between the index, its assets and the configuration, one sentence each.

    Raises:
        AssetError: a table cannot be read.
    """
    pipeline = Pipeline(config)
    problems = _fingerprint(store, pipeline)
    configured = {source.name for source in config.sources}
    for name in sorted(store.stats().sources.keys() - configured):
        problems.append(f"source {name!r} is indexed but not configured; run `rag-assets ingest`")
    for source in config.sources:
        problems += _documents(store, pipeline, source.name)
    return problems


def _fingerprint(store: VectorStore, pipeline: Pipeline) -> list[str]:
    try:
        wanted = pipeline.index_fingerprint
    except EmbeddingError as exc:
        return [f"the embedder cannot be asked for its fingerprint: {exc}"]
    held = store.fingerprint()
    if held == wanted:
        return []
    if held is None:
        return ["the index was never written to; run `rag-assets ingest`"]
    return [
        f"the index was built by {what} {ours}, the configuration has {theirs}; "
        "run `rag-assets ingest --full`, or put the setting back"
        for what, ours, theirs in (
            ("model", held.model, wanted.model),
            ("dimension", held.dim, wanted.dim),
            ("chunker", held.chunker, wanted.chunker),
        )
        if ours != theirs
    ]


def _documents(store: VectorStore, pipeline: Pipeline, source: str) -> list[str]:
    recorded = store.partitions()
    expected: dict[str, str] = {}
    for partition in pipeline.config.partitions([source]):
        parsed = pipeline.files.read("parsed_documents", partition.key)
        chunked = pipeline.files.read("chunks", partition.key)
        if parsed is None or chunked is None or partition.key not in recorded:
            return [f"partition {partition.key!r} was never indexed; run `rag-assets ingest`"]
        by_path = {
            path: list(group)
            for path, group in groupby(tables.chunks(chunked), key=lambda chunk: chunk.path)
        }
        for document in tables.documents(parsed, with_body=False):
            expected[document.path] = document_digest(document, by_path.get(document.path, ()))
    rejected = {i.path for i in store.left_out(source) if i.reason == "embedding_rejected"}
    held = store.document_digests(source)
    problems = []
    for path in sorted(expected.keys() - held.keys() - rejected):
        problems.append(f"{source}/{path}: parsed but not indexed; run `rag-assets ingest`")
    for path in sorted(held.keys() - expected.keys()):
        problems.append(f"{source}/{path}: indexed but not among the parsed documents")
    for path in sorted(held.keys() & expected.keys()):
        if held[path] != expected[path]:
            problems.append(f"{source}/{path}: the index holds another version than the assets")
    return problems

"""Build what the configuration names: sources, chunker, embedder, index, reranker, retriever.

Each can be a class of the integrator's own (``package.module:Class``), called with the ``options``
of its section as keyword arguments, or an object that ``replacing`` puts in its place. Heavy
modules are imported only when they are used.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from rag_assets.errors import ConfigurationError, IndexMissing
from rag_assets.fingerprints import SOURCES_VERSION, fingerprint
from rag_assets.project import DataFolder, build_is_abandoned

if TYPE_CHECKING:
    import os

    from rag_assets.chunking.anchors import AnchorStyle
    from rag_assets.chunking.base import Chunker
    from rag_assets.config import Config, Partition
    from rag_assets.embeddings.base import Embedder
    from rag_assets.index.base import VectorStore
    from rag_assets.pipeline.progress import Progress
    from rag_assets.retrieval import Retriever
    from rag_assets.retrieval.reranking import Reranker
    from rag_assets.sources.base import Source


PATIENCE: Final = {
    "look_every_seconds",
    "requests_per_minute",
    "concurrency",
    "timeout_seconds",
    "connect_timeout_seconds",
    "deadline_seconds",
    "retries",
    "retry_after_cap_seconds",
    "full_walk_hours",
    "permissions_max_age_hours",
}
"""Settings of a source that decide how it is read, not what it yields."""

_objects: ContextVar[Mapping[str, Any]] = ContextVar(
    "rag_assets_objects", default=MappingProxyType({})
)


@contextmanager
def replacing(
    *,
    source: Source | None = None,
    chunker: Chunker | None = None,
    embedder: Embedder | None = None,
    open_store: Callable[[], VectorStore] | None = None,
) -> Iterator[None]:
    """Use these objects instead of what the configuration names, in this thread and block.

    ``open_store`` is called whenever the index is opened, and what it gives is closed afterwards.

    >>> with replacing(embedder=mine):              # doctest: +SKIP
    ...     ingest("rag_assets.yaml")
    """
    given = {"source": source, "chunker": chunker, "embedder": embedder, "open_store": open_store}
    token = _objects.set({**_objects.get(), **{k: v for k, v in given.items() if v is not None}})
    try:
        yield
    finally:
        _objects.reset(token)


def is_replaced() -> bool:
    """Whether ``replacing`` is active here: what was remembered of earlier runs may not apply."""
    return bool(_objects.get())


def build_source(
    config: Config,
    partition: Partition,
    *,
    full: bool = False,
    stores: bool = True,
    progress: Progress | None = None,
) -> Source:
    """The source of one partition.

    ``full``: it takes nothing from its last listing. ``stores``: what it lists will be stored, so
    that what it fetched until an interruption is worth keeping. ``progress`` is told how many
    documents a server has given.

    Raises:
        ConfigurationError: the class cannot be imported or does not take its options, or the
            environment lacks a secret.
    """
    if (given := _objects.get().get("source")) is not None:
        replaced: Source = given
        return replaced
    from rag_assets.source_building import configured_source

    return configured_source(config, partition, full=full, stores=stores, progress=progress)


def source_fingerprint(config: Config, partition: Partition) -> str:
    """Changes whenever the same place could give another listing."""
    settings = config.source(partition.source)
    told_elsewhere = {"shards", "max_removed_fraction", "language", "anchor_style", "screening"}
    return fingerprint(
        SOURCES_VERSION,
        settings.model_dump(mode="json", exclude=told_elsewhere | PATIENCE),
        partition.shard_index,
        partition.shard_count,
    )


def source_place(config: Config, partition: Partition) -> str:
    """Where contents come from: while it is the same, a change marker means the same content.

    Of a server that is its address, of anything else all that decides a listing.
    """
    settings = config.source(partition.source)
    address = getattr(settings, "base_url", None)
    if address is None:
        return source_fingerprint(config, partition)
    return fingerprint(SOURCES_VERSION, settings.kind, address, getattr(settings, "user", ""))


def build_chunker(config: Config, anchor_style: AnchorStyle | None = None) -> Chunker:
    """The configured chunker; ``anchor_style`` is a source's own, in place of the general one.

    Raises:
        ChunkingError: its settings are impossible.
        ConfigurationError: a class of the user's own cannot be built.
    """
    if (given := _objects.get().get("chunker")) is not None:
        replaced: Chunker = given
        return replaced
    if config.chunk.chunker is not None:
        built: Chunker = construct(
            config, config.chunk.chunker, config.chunk.options, "Chunker", "chunk.chunker"
        )
        return built
    from rag_assets.chunking.markdown import MarkdownChunker

    return MarkdownChunker(
        config.chunk.size,
        config.chunk.overlap,
        anchor_style=anchor_style or config.chunk.anchor_style,
        limit_tokens=config.embedding.max_tokens,
    )


def build_embedder(config: Config) -> Embedder:
    """The configured embedder; nothing is loaded and nothing is called yet.

    Raises:
        ConfigurationError: a class of the user's own cannot be built, or an extra is missing.
    """
    if (given := _objects.get().get("embedder")) is not None:
        replaced: Embedder = given
        return replaced
    settings = config.embedding
    if settings.backend == "local":
        from rag_assets.embeddings.local import LocalEmbedder

        precision = {} if settings.precision is None else {"precision": settings.precision}
        return LocalEmbedder(
            DataFolder(config.data_dir).models,
            threads=settings.threads,
            batch_size=settings.batch_size,
            **precision,
        )
    if settings.backend == "fast":
        from rag_assets.embeddings.fast import FastEmbedder

        return FastEmbedder(threads=settings.threads, batch_size=settings.batch_size)
    if settings.backend == "http":
        from rag_assets.embeddings.http import HttpEmbedder

        assert settings.url is not None  # the model requires it for this backend
        return HttpEmbedder(
            settings.url,
            model=settings.model,
            batch_size=settings.batch_size,
            timeout_seconds=settings.timeout_seconds,
            connect_timeout_seconds=settings.connect_timeout_seconds,
            deadline_seconds=settings.deadline_seconds,
            retries=settings.retries,
            retry_after_cap_seconds=settings.retry_after_cap_seconds,
            max_tokens=settings.max_tokens,
            concurrency=settings.concurrency,
            ca_file=settings.ca_file,
        )
    built: Embedder = construct(
        config, settings.backend, settings.options, "Embedder", "embedding.backend"
    )
    return built


def build_reranker(config: Config) -> Reranker | None:
    """The configured reranker, or None without one; nothing is called yet.

    Raises:
        ConfigurationError: a class of the user's own cannot be built, or a setting is wrong.
    """
    settings = config.retrieval.reranker
    if settings is None:
        return None
    if settings.backend == "http":
        from rag_assets.retrieval.reranking import HttpReranker

        assert settings.url is not None  # the model requires it for this backend
        return HttpReranker(
            settings.url,
            model=settings.model,
            batch_size=settings.batch_size,
            timeout_seconds=settings.timeout_seconds,
            connect_timeout_seconds=settings.connect_timeout_seconds,
            deadline_seconds=settings.deadline_seconds,
            retries=settings.retries,
            ca_file=settings.ca_file,
        )
    built: Reranker = construct(
        config, settings.backend, settings.options, "Reranker", "retrieval.reranker.backend"
    )
    return built


def open_index(config: Config, *, build_id: str | None = None) -> VectorStore:
    """The index to write: the live generation, or the unpromoted one of that build.

    Raises:
        VectorStoreError: it cannot be opened.
        ConfigurationError: a class of the user's own cannot be built.
    """
    if (given := _objects.get().get("open_store")) is not None:
        replaced: VectorStore = given()
        return replaced
    if config.index.backend == "sqlite":
        from rag_assets.index.generations import IndexDirectory

        return IndexDirectory(DataFolder(config.data_dir).index).writable_store(build_id)
    options = dict(config.index.options, build_id=build_id)
    built: VectorStore = construct(
        config, config.index.backend, options, "VectorStore", "index.backend"
    )
    return built


def open_reader(config: Config) -> VectorStore:
    """The live index, for reading only.

    Raises:
        IndexMissing: nothing was indexed yet.
    """
    if config.index.backend != "sqlite" or "open_store" in _objects.get():
        return open_index(config)
    from rag_assets.index.generations import IndexDirectory

    store = IndexDirectory(DataFolder(config.data_dir).index).live_store()
    if store is None:
        raise IndexMissing(
            f"{config.data_dir}: there is no index yet; run `rag-assets ingest` to build it"
        )
    return store


@contextmanager
def live_index(config: Config) -> Iterator[VectorStore | None]:
    """The live index for reading, closed afterwards; None when nothing was indexed yet.

    Raises:
        VectorStoreError: it is there and cannot be read.
    """
    try:
        store = open_reader(config)
    except IndexMissing:
        yield None
        return
    try:
        yield store
    finally:
        store.close()


def prune_generations(config: Config) -> None:
    """Delete every generation but the live one and builds still under way, with all their text."""
    if config.index.backend == "sqlite" and "open_store" not in _objects.get():
        from rag_assets.index.generations import IndexDirectory

        folder = IndexDirectory(DataFolder(config.data_dir).index)
        folder.prune(is_abandoned=build_is_abandoned)


def build_retriever(config: str | os.PathLike[str] | Config | None = None) -> Retriever:
    """A retriever over the live index with the configured embedder.

    Raises:
        ConfigurationError: the configuration is missing or wrong.
    """
    from rag_assets.config import load_config
    from rag_assets.retrieval import Retriever
    from rag_assets.retrieval.fusion import Fusion

    loaded = load_config(config)
    settings = loaded.retrieval
    return Retriever(
        lambda: open_reader(loaded),
        build_embedder(loaded),
        default_k=settings.k,
        mode=settings.mode,
        deduplicate=settings.deduplicate,
        merge=settings.merge,
        max_query_characters=settings.max_query_characters,
        fusion=Fusion(settings.text_weight),
        reranker=build_reranker(loaded),
        rerank_candidates=settings.reranker.candidates if settings.reranker else 0,
    )


def construct(
    config: Config, import_path: str, options: Mapping[str, Any], contract: str, key: str
) -> Any:
    """An object of the integrator's own class ``package.module:Class``.

    Raises:
        ConfigurationError: it cannot be imported, or does not take these options.
    """
    module_name, _, name = import_path.partition(":")
    folder = str(config.path.parent)
    if folder not in sys.path:
        sys.path.append(folder)  # modules beside rag_assets.yaml are found, whatever starts us
    try:
        factory = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as exc:
        raise ConfigurationError(
            f"{config.path} {key}: {import_path!r} cannot be imported ({exc}); "
            f"it must name a class that implements {contract}"
        ) from exc
    try:
        return factory(**options)
    except TypeError as exc:
        raise ConfigurationError(
            f"{config.path} {key}: {import_path!r} does not take its options: {exc}"
        ) from exc

"""Dagster resources: the pipeline of the assets, and a retriever for other code locations."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from rag_assets.config import load_config
from rag_assets.pipeline.pipeline import Pipeline
from rag_assets.pipeline.progress import LoggedProgress, told_to_watcher
from rag_assets.retrieval import Retriever, open_retriever


class PipelineResource(dg.ConfigurableResource[None]):
    """The configured pipeline of this code location."""

    config_path: str

    def pipeline(self, log: dg.DagsterLogManager) -> Pipeline:
        """A pipeline whose long work shows in the log. Raises ConfigurationError."""
        progress = told_to_watcher(LoggedProgress(log.info))
        return Pipeline(load_config(self.config_path), progress)


class RetrieverResource(dg.ConfigurableResource[None]):
    """A retriever over the live index, for assets of any code location.

    Example::

        @dg.asset
        def answers(retriever: RetrieverResource):
            with retriever.open() as found:
                hits = found.retrieve("How do I ask for leave?", acl_tags=["public"])
    """

    config_path: str | None = None
    """``rag_assets.yaml``; unset: $RAG_ASSETS_CONFIG, then the current folder."""

    @contextmanager
    def open(self) -> Iterator[Retriever]:
        """A thread-safe retriever, closed at the end.

        Raises:
            ConfigurationError: the configuration is missing or wrong.
        """
        with open_retriever(self.config_path) as retriever:
            yield retriever

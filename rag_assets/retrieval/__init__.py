"""Questions in, cited passages out: the retriever, and its hits packed for a prompt.

>>> from rag_assets.retrieval import open_retriever
>>> retriever = open_retriever("rag_assets.yaml")                          # doctest: +SKIP
>>> hits = retriever.retrieve("How do I renew a badge?", acl_tags=["public"])  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag_assets.acl import EVERYTHING
from rag_assets.models import Hit
from rag_assets.retrieval.context import Context, build_context
from rag_assets.retrieval.retriever import Retriever

if TYPE_CHECKING:
    import os

    from rag_assets.config import Config

__all__ = ["EVERYTHING", "Context", "Hit", "Retriever", "build_context", "open_retriever"]


def open_retriever(config: str | os.PathLike[str] | Config | None = None) -> Retriever:
    """A retriever over the index that a configuration names, with its embedder.

    ``config`` is the path of a ``rag_assets.yaml``, a loaded configuration, or None to find the
    file as the command line does. Index and model are opened by the first question.

    Raises:
        ConfigurationError: the configuration is missing or wrong.
    """
    from rag_assets.components import build_retriever

    return build_retriever(config)

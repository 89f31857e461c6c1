"""For integrators: contract tests to subclass for own parts, and a stub embedder.

Exported lazily, because the contract classes import pytest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rag_assets.testing.embedder_contract import EmbedderContract
    from rag_assets.testing.embedders import StubEmbedder
    from rag_assets.testing.search_contract import SearchContract
    from rag_assets.testing.source_contract import SourceContract
    from rag_assets.testing.store_contract import VectorStoreContract

__all__ = [
    "EmbedderContract",
    "SearchContract",
    "SourceContract",
    "StubEmbedder",
    "VectorStoreContract",
]

_HOMES = {
    "EmbedderContract": "embedder_contract",
    "SearchContract": "search_contract",
    "SourceContract": "source_contract",
    "StubEmbedder": "embedders",
    "VectorStoreContract": "store_contract",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)

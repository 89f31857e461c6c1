"""A question in, the nearest passages out, under the caller's ACL tags."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from rag_assets.acl import Everything
from rag_assets.errors import (
    ConfigurationError,
    DimensionMismatch,
    EmbeddingError,
    FingerprintMismatch,
    IndexMissing,
)

if TYPE_CHECKING:
    from rag_assets.acl import AclTags
    from rag_assets.embeddings.base import Embedder
    from rag_assets.index.base import VectorStore
    from rag_assets.models import Hit

DEFAULT_K: Final = 10
MODES: Final = ("vector",)
"""The ways of ranking that there are."""


class Retriever:
    """Finds passages for questions. Safe to use from several threads at once.

    ``store`` is a ``VectorStore``, or a function that opens one: it is called by the first
    question, and again by the next one if it raised. ``embedder`` must be the one that built the
    index, which is checked for every generation of the index.
    """

    def __init__(
        self,
        store: VectorStore | Callable[[], VectorStore],
        embedder: Embedder,
        *,
        default_k: int = DEFAULT_K,
    ) -> None:
        if default_k < 1:
            raise ConfigurationError(f"default_k is {default_k}; it must be at least 1")
        self._open_store: Callable[[], VectorStore] | None = store if callable(store) else None
        self._store: VectorStore | None = None if callable(store) else store
        self._embedder = embedder
        self._default_k = default_k
        self._lock = threading.Lock()
        self._checked_generation: str | None = None

    def retrieve(
        self,
        query: str,
        k: int | None = None,
        *,
        acl_tags: AclTags,
        mode: str = "vector",
        sources: Collection[str] | None = None,
    ) -> list[Hit]:
        """The min(k, visible) nearest passages, best first.

        ``acl_tags`` are the caller's tags (or ``EVERYTHING``): a passage is returned only when its
        document carries one of them. ``sources`` limits the answer to these sources. A blank
        question, ``k <= 0``, no tags or no sources: [], without a call to index or embedder.

        Raises:
            ConfigurationError: an unknown ``mode``.
            TypeError: one str where a collection of tags or sources is needed.
            IndexMissing: there is no index yet.
            IndexDamaged: the index cannot be read.
            FingerprintMismatch, DimensionMismatch: the index was built by another embedder.
            EmbeddingError: the embedder gave no vector (see ``rag_assets.errors``).
        """
        wanted = self._default_k if k is None else operator.index(k)
        _check_arguments(mode, acl_tags, sources)
        if wanted <= 0 or not query.strip() or _names_nothing(acl_tags, sources):
            return []
        store = self._opened_store()
        generation = self._check_embedder(store)
        vector = self._embedder.embed("query", [query])[0]
        while True:
            hits = store.search(vector, wanted, acl_tags=acl_tags, sources=sources)
            if store.generation == generation:
                return hits
            # The index was replaced meanwhile: these hits may be of another model's vectors.
            generation = self._check_embedder(store)

    def close(self) -> None:
        """Release the connections of the index and the embedder."""
        with self._lock:
            store, self._store = self._store, None
            self._open_store = None
        if store is not None:
            store.close()
        self._embedder.close()

    def __enter__(self) -> Retriever:
        """The retriever itself; it is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _opened_store(self) -> VectorStore:
        store = self._store
        if store is not None:
            return store
        with self._lock:
            if self._store is None:
                if self._open_store is None:
                    raise ConfigurationError("this retriever was closed; open another one")
                self._store = self._open_store()
            return self._store

    def _check_embedder(self, store: VectorStore) -> str:
        """The live generation, once it is certain that our embedder built it."""
        generation = store.generation
        if generation == self._checked_generation:
            return generation
        held = store.fingerprint()
        if held is None:
            raise IndexMissing(
                f"index {generation}: nothing was indexed yet; run `rag-assets ingest`"
            )
        own = self._embedder.fingerprint
        if held.model != own:
            raise self._mismatch(generation, held.model, held.dim, own)
        self._checked_generation = generation
        return generation

    def _mismatch(
        self, generation: str, model: str, dim: int, own: str
    ) -> FingerprintMismatch | DimensionMismatch:
        way_out = "configure that embedder, or run `rag-assets ingest --full` to rebuild the index"
        try:
            own_dim = self._embedder.health().dim
        except EmbeddingError:
            own_dim = dim  # it cannot be asked now; that the models differ is known anyway
        if own_dim != dim:
            return DimensionMismatch(
                f"index {generation} holds vectors of dimension {dim} (embedder {model}), the "
                f"configured embedder gives dimension {own_dim} ({own}); {way_out}"
            )
        return FingerprintMismatch(
            f"index {generation} was built by embedder {model}, the configured one is {own}; "
            f"{way_out}"
        )


def _check_arguments(mode: str, acl_tags: AclTags, sources: Collection[str] | None) -> None:
    if mode not in MODES:
        raise ConfigurationError(f"mode {mode!r} is not known; known modes: {', '.join(MODES)}")
    for name, value in (("acl_tags", acl_tags), ("sources", sources)):
        if isinstance(value, str):
            raise TypeError(f"{name} must be a collection of str, not the str {value!r}")


def _names_nothing(acl_tags: AclTags, sources: Collection[str] | None) -> bool:
    no_tags = not isinstance(acl_tags, Everything) and not acl_tags
    return no_tags or (sources is not None and not sources)

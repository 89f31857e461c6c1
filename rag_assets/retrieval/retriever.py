"""A question in, the best passages out, under the caller's ACL tags and filters."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rag_assets.acl import Everything
from rag_assets.citations import hit_from_chunk
from rag_assets.errors import (
    ConfigurationError,
    DimensionMismatch,
    EmbeddingError,
    FingerprintMismatch,
    IndexMissing,
    InvalidQuery,
)
from rag_assets.filters import Filters
from rag_assets.retrieval.deduplication import renumbered, without_near_duplicates
from rag_assets.retrieval.fusion import DEPTH, Fusion
from rag_assets.retrieval.merging import merge_adjacent
from rag_assets.retrieval.reranking import Reranker, rerank_hits

if TYPE_CHECKING:
    from rag_assets.acl import AclTags
    from rag_assets.embeddings.base import Embedder, Vectors
    from rag_assets.index.base import ExplainedDocument, VectorStore
    from rag_assets.models import Chunk, Hit, IndexStats

T = TypeVar("T")

DEFAULT_K: Final = 10
MODES: Final = ("hybrid", "vector", "text")
"""The ways of ranking that there are."""
MAXIMUM_QUERY_CHARACTERS: Final = 8000
"""What is read of a question: the embedded model takes about a second for so much."""
PARALLEL_SEARCHES: Final = 4
"""Questions of ``retrieve_many`` that are searched at once."""


class Retriever:
    """Finds passages for questions. Safe to use from several threads at once.

    ``store`` is a ``VectorStore``, or a function that opens one: it is called by the first
    question, and again by the next one if it raised. ``embedder`` must be the one that built the
    index, which is checked for every generation of the index. The other arguments are what a
    question is answered with when it does not say otherwise; a ``reranker`` reads the best
    ``rerank_candidates`` passages of every question.
    """

    def __init__(
        self,
        store: VectorStore | Callable[[], VectorStore],
        embedder: Embedder,
        *,
        default_k: int = DEFAULT_K,
        mode: str = "hybrid",
        deduplicate: bool = False,
        merge: bool = False,
        max_query_characters: int = MAXIMUM_QUERY_CHARACTERS,
        fusion: Fusion | None = None,
        reranker: Reranker | None = None,
        rerank_candidates: int = 50,
    ) -> None:
        if default_k < 1:
            raise ConfigurationError(f"default_k is {default_k}; it must be at least 1")
        _check_mode(mode)
        self._open_store: Callable[[], VectorStore] | None = store if callable(store) else None
        self._store: VectorStore | None = None if callable(store) else store
        self._embedder = embedder
        self._default_k = default_k
        self._mode = mode
        self._deduplicate = deduplicate
        self._merge = merge
        self._max_query_characters = max_query_characters
        self._fusion = fusion or Fusion()
        self._reranker = reranker
        self._rerank_candidates = rerank_candidates
        self._lock = threading.Lock()
        self._checked_generation: str | None = None

    def retrieve(
        self,
        query: str,
        k: int | None = None,
        *,
        acl_tags: AclTags,
        mode: str | None = None,
        filters: Filters | Mapping[str, Any] | None = None,
        deduplicate: bool | None = None,
        merge: bool | None = None,
    ) -> list[Hit]:
        """The best passages for a question, best first.

        ``acl_tags`` are the caller's tags (or ``EVERYTHING``): a passage is returned only when its
        document carries one of them. ``mode``: ``vector`` gives the min(k, visible) nearest
        passages, ``text`` those that hold a word of the question, ``hybrid`` the min(k, visible)
        best by both. ``filters`` narrows further (see ``Filters.of``). ``deduplicate`` leaves out
        near copies of a better passage, ``merge`` joins adjacent passages of one section; both may
        give fewer than k when there is nothing else. Any text is a question; what goes beyond
        ``max_query_characters`` is not read. A blank question, ``k <= 0`` or no tags: [], without a
        call to index or embedder.

        Raises:
            InvalidQuery: an unknown ``mode``, or a filter that cannot be understood.
            TypeError: one str where a collection of tags is needed.
            IndexMissing: there is no index yet.
            IndexDamaged: the index cannot be read.
            FingerprintMismatch, DimensionMismatch: the index was built by another embedder.
            EmbeddingError: the embedder, or the reranker, gave no answer (``rag_assets.errors``).
        """
        return self.retrieve_many(
            [query],
            k,
            acl_tags=acl_tags,
            mode=mode,
            filters=filters,
            deduplicate=deduplicate,
            merge=merge,
        )[0]

    def retrieve_many(
        self,
        queries: Sequence[str],
        k: int | None = None,
        *,
        acl_tags: AclTags,
        mode: str | None = None,
        filters: Filters | Mapping[str, Any] | None = None,
        deduplicate: bool | None = None,
        merge: bool | None = None,
    ) -> list[list[Hit]]:
        """``retrieve`` for each question, embedded in one call and searched side by side.

        Raises: as ``retrieve``; one question that cannot be understood fails them all.
        """
        if isinstance(queries, str):
            raise TypeError("queries must be a sequence of str; retrieve takes one question")
        if any(not isinstance(query, str) for query in queries):
            raise TypeError("a question must be a str")
        request = _Request(
            k=self._default_k if k is None else operator.index(k),
            mode=_check_mode(self._mode if mode is None else mode),
            acl_tags=_check_tags(acl_tags),
            filters=Filters.of(filters),
            deduplicate=self._deduplicate if deduplicate is None else deduplicate,
            merge=self._merge if merge is None else merge,
        )
        questions = [query[: self._max_query_characters] for query in queries]
        asked = list(dict.fromkeys(question for question in questions if question.strip()))
        if request.is_empty or not asked:
            return [[] for _ in queries]
        answers = dict(zip(asked, self._answers(asked, request), strict=True))
        return [list(answers.get(question, ())) for question in questions]

    def neighbours(
        self, hit: Hit, *, acl_tags: AclTags, before: int = 1, after: int = 1
    ) -> list[Hit]:
        """The passages around ``hit`` in its document, in reading order, without the hit itself.

        At most ``before`` of those that precede it and ``after`` of those that follow. [] when the
        document is gone, changed where the hit was, or is not visible to ``acl_tags``.
        """
        found = self.document(hit.source, hit.path, acl_tags=acl_tags)
        if found is None or found.document is None:
            return []
        chunks, first = found.chunks, hit.position
        last = _last_position(hit, chunks)
        if last is None:
            return []
        around = [*chunks[max(0, first - max(0, before)) : first]]
        around += chunks[last + 1 : last + 1 + max(0, after)]
        return [
            hit_from_chunk(
                chunk,
                url=found.document.url,
                language=found.document.language,
                modified_at=found.document.modified_at,
                rank=rank,
                score=0.0,
                score_kind="neighbour",
            )
            for rank, chunk in enumerate(around, start=1)
        ]

    def document(self, source: str, path: str, *, acl_tags: AclTags) -> ExplainedDocument | None:
        """An indexed document with its passages; None when it is absent or not visible."""
        tags = _check_tags(acl_tags)
        if isinstance(tags, Everything) or tags:
            return self._opened_store().document(source, path, acl_tags=tags)
        return None

    def stats(self, *, acl_tags: AclTags) -> IndexStats:
        """Counts of the documents that ``acl_tags`` may see."""
        return self._opened_store().stats(acl_tags=_check_tags(acl_tags))

    # -- without blocking an event loop ----------------------------------------------------------

    async def aretrieve(self, query: str, k: int | None = None, **options: Any) -> list[Hit]:
        """``retrieve`` in a worker thread, with the same keywords."""
        return await _in_thread(partial(self.retrieve, query, k, **options))

    async def aretrieve_many(
        self, queries: Sequence[str], k: int | None = None, **options: Any
    ) -> list[list[Hit]]:
        """``retrieve_many`` in a worker thread, with the same keywords."""
        return await _in_thread(partial(self.retrieve_many, queries, k, **options))

    async def aneighbours(
        self, hit: Hit, *, acl_tags: AclTags, before: int = 1, after: int = 1
    ) -> list[Hit]:
        """``neighbours`` in a worker thread."""
        return await _in_thread(
            partial(self.neighbours, hit, acl_tags=acl_tags, before=before, after=after)
        )

    async def adocument(
        self, source: str, path: str, *, acl_tags: AclTags
    ) -> ExplainedDocument | None:
        """``document`` in a worker thread."""
        return await _in_thread(partial(self.document, source, path, acl_tags=acl_tags))

    # -- opening and closing ---------------------------------------------------------------------

    def close(self) -> None:
        """Release the connections of the index, the embedder and the reranker."""
        with self._lock:
            store, self._store = self._store, None
            self._open_store = None
        if store is not None:
            store.close()
        self._embedder.close()
        if self._reranker is not None:
            self._reranker.close()

    def __enter__(self) -> Retriever:
        """The retriever itself; it is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    # -- inside ----------------------------------------------------------------------------------

    def _answers(self, queries: Sequence[str], request: _Request) -> list[list[Hit]]:
        store = self._opened_store()
        while True:
            generation = ""
            vectors: Sequence[Vectors | None] = [None] * len(queries)
            if request.mode != "text":
                generation = self._check_embedder(store)
                vectors = list(self._embedder.embed("query", queries))
            one = partial(self._answer, store, request)
            if len(queries) == 1:
                found = [one(queries[0], vectors[0])]
            else:
                from concurrent.futures import ThreadPoolExecutor

                with ThreadPoolExecutor(PARALLEL_SEARCHES) as pool:
                    found = list(pool.map(one, queries, vectors))
            if not generation or store.generation == generation:
                return found
            # The index was replaced meanwhile: these hits may be of another model's vectors.

    def _answer(
        self, store: VectorStore, request: _Request, query: str, vector: Vectors | None
    ) -> list[Hit]:
        """As many candidates as it takes to have k passages after what leaves some out."""
        asked = request.k
        if self._reranker is not None:
            asked = max(asked, self._rerank_candidates)
        elif request.leaves_out:
            asked *= 2
        while True:
            hits = store.search(
                vector,
                asked,
                acl_tags=request.acl_tags,
                filters=request.filters,
                text=None if request.mode == "vector" else query,
                fuse=self._fusion if request.mode == "hybrid" else None,
                depth=DEPTH,
            )
            complete = len(hits) < asked or self._reranker is not None
            if self._reranker is not None:
                hits = rerank_hits(query, hits, self._reranker, len(hits))
            if request.deduplicate:
                hits = without_near_duplicates(hits)
            if request.merge:
                hits = merge_adjacent(hits)
            if complete or len(hits) >= request.k:
                return renumbered(hits[: request.k])
            asked *= 4

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


@dataclass(frozen=True, slots=True)
class _Request:
    """What a question is answered with."""

    k: int
    mode: str
    acl_tags: AclTags
    filters: Filters
    deduplicate: bool
    merge: bool

    @property
    def is_empty(self) -> bool:
        """True when nothing can be found, whatever the question."""
        no_tags = not isinstance(self.acl_tags, Everything) and not self.acl_tags
        return self.k <= 0 or no_tags or self.filters.nothing_matches

    @property
    def leaves_out(self) -> bool:
        """True when some of the passages found are not returned."""
        return self.deduplicate or self.merge


def _check_mode(mode: str) -> str:
    if mode not in MODES:
        raise InvalidQuery(f"mode {mode!r} is not known; known modes: {', '.join(MODES)}")
    return mode


def _check_tags(acl_tags: AclTags) -> AclTags:
    if isinstance(acl_tags, str):
        raise TypeError(f"acl_tags must be a collection of str, not the str {acl_tags!r}")
    if isinstance(acl_tags, Everything):
        return acl_tags
    tags = None if acl_tags is None else tuple(acl_tags)
    if tags is None or any(not isinstance(tag, str) for tag in tags):
        raise TypeError("acl_tags must be a collection of str, or EVERYTHING")
    return tags


def _last_position(hit: Hit, chunks: Sequence[Chunk]) -> int | None:
    """Position of the last passage that ``hit`` holds (several when it was merged), or None when
    the document has changed there."""
    if hit.position >= len(chunks):
        return None
    if chunks[hit.position].content_hash == hit.content_hash:
        return hit.position
    merged = [c.position for c in chunks[hit.position :] if c.end_line <= hit.end_line]
    if len(merged) < 2 or chunks[hit.position].start_line != hit.start_line:
        return None
    return merged[-1] if chunks[merged[-1]].end_line == hit.end_line else None


async def _in_thread(call: Callable[[], T]) -> T:
    from anyio import to_thread

    return await to_thread.run_sync(call, abandon_on_cancel=True)

"""Texts without a vector -> batches -> embedder -> cache, each batch kept before the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NoReturn, Protocol, TypeAlias

import numpy as np

from rag_assets.embeddings.base import Embedder, InputType, Vectors
from rag_assets.embeddings.vectors import check_shape
from rag_assets.errors import EmbeddingError, InvalidInput, MalformedResponse, Unavailable
from rag_assets.models import EmbedderHealth
from rag_assets.refusals import without_texts

KNOWN_GOOD_TEXT: Final = "This sentence only asks whether the embedder still works."
"""Sent when texts fail, to tell bad texts from an embedder that is down."""

OnProgress: TypeAlias = Callable[[int, int], None]
"""Called with (texts dealt with, texts to embed) at the start and after each batch is kept."""


Embedded: TypeAlias = "tuple[list[str], Vectors]"
"""Content hashes and their vectors, float32 [len(hashes), dim]."""


class VectorCache(Protocol):
    """What ``embed_missing`` needs of ``EmbeddingCache``."""

    def missing(self, fingerprint: str, type: InputType, hashes: Iterable[str]) -> list[str]: ...

    def put_many(
        self, fingerprint: str, type: InputType, hashes: Sequence[str], vectors: Vectors
    ) -> None: ...

    def touch(self, fingerprint: str, type: InputType, hashes: Iterable[str]) -> None: ...

    def forget(self, fingerprint: str, type: InputType, hashes: Iterable[str]) -> int: ...


@dataclass(frozen=True, slots=True)
class EmbedOutcome:
    """What became of the texts; ``embedded + reused + len(rejected)`` is their number."""

    embedded: int
    """Distinct texts that got their vector from the embedder, now in the cache."""
    reused: int
    """Distinct texts whose vector was in the cache already."""
    rejected: Mapping[str, str]
    """``content_hash`` -> reason, of texts that the embedder will not take. Nothing is cached for
    them: they are tried again whenever they are asked for."""


def embed_missing(
    embedder: Embedder,
    type: InputType,
    items: Mapping[str, str] | Iterable[tuple[str, str]],
    cache: VectorCache,
    *,
    on_progress: OnProgress | None = None,
) -> EmbedOutcome:
    """Make sure that the cache holds a vector for every (content_hash, text) of ``items``.

    A batch is committed to the cache before the next one is sent, so a killed run resumes where it
    stopped. Texts of about the same length share a batch (little padding). When a batch fails for
    a reason that may lie in its texts, it is halved until the bad ones stand alone, in about
    2 log2(n) calls for one; a text is given up only when the embedder takes a plain sentence at
    the same time, so an embedder that is down rejects nothing. An embedder with an attribute
    ``concurrency`` above 1 is given that many batches at once.

    Raises:
        Unavailable: the embedder does not answer; what was embedded stays in the cache.
        MalformedResponse: it breaks its contract, or became another model during the call (then
            nothing of this call stays in the cache).
        VectorStoreError: the cache cannot be written.
        ValueError: two texts under one content_hash.
    """
    texts = _distinct(items)
    if not texts:
        return EmbedOutcome(0, 0, {})
    fingerprint = embedder.fingerprint
    missing = cache.missing(fingerprint, type, texts)
    cache.touch(fingerprint, type, texts.keys() - set(missing))
    reused = len(texts) - len(missing)
    if not missing:
        return EmbedOutcome(0, reused, {})
    # Shortest first; the hash makes the order, and with it the batches, the same every time.
    missing.sort(key=lambda content_hash: (len(texts[content_hash]), content_hash))
    work = _Work(embedder, type, texts, len(missing), on_progress)
    before = embedder.health()
    for hashes, vectors in work.run(missing):
        if hashes:
            cache.put_many(fingerprint, type, hashes, vectors)
            work.embedded.extend(hashes)
        work.report()
    changed = _changed_model(embedder, before)
    if changed:
        cache.forget(fingerprint, type, work.embedded)
        raise MalformedResponse(changed)
    return EmbedOutcome(len(work.embedded), reused, work.rejected)


@dataclass(slots=True)
class _Work:
    """One call of ``embed_missing`` under way."""

    embedder: Embedder
    type: InputType
    texts: Mapping[str, str]
    total: int
    on_progress: OnProgress | None
    embedded: list[str] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)
    embedded_at_rejection: int = 0
    """How many texts were embedded when one was last rejected."""

    def run(self, hashes: Sequence[str]) -> Iterator[Embedded]:
        """Batch after batch, as they come; the next is not begun before the caller asks for it."""
        self.report()
        size = max(1, self.embedder.batch_size)
        batches = deque(hashes[start : start + size] for start in range(0, len(hashes), size))
        concurrency = max(1, getattr(self.embedder, "concurrency", 1))
        if concurrency == 1 or len(batches) == 1:
            for batch in batches:
                yield from self._embed(batch)
        else:
            yield from self._run_concurrently(batches, concurrency)

    def report(self) -> None:
        if self.on_progress is not None:
            self.on_progress(len(self.embedded) + len(self.rejected), self.total)

    def _run_concurrently(
        self, batches: deque[Sequence[str]], concurrency: int
    ) -> Iterator[Embedded]:
        """As many batches in flight as allowed; after a failure the others are still kept."""
        failure: EmbeddingError | None = None
        with ThreadPoolExecutor(concurrency, thread_name_prefix="embed") as threads:
            flying: set[Future[tuple[list[Embedded], EmbeddingError | None]]] = set()
            while flying or (batches and failure is None):
                while batches and failure is None and len(flying) < concurrency:
                    flying.add(threads.submit(self._embed_whole, batches.popleft()))
                landed, flying = wait(flying, return_when=FIRST_COMPLETED)
                for future in landed:
                    done, error = future.result()
                    yield from done
                    failure = failure or error
        if failure is not None:
            raise failure

    def _embed_whole(self, hashes: Sequence[str]) -> tuple[list[Embedded], EmbeddingError | None]:
        """All of a batch that succeeds, and what kept the rest from it."""
        done: list[Embedded] = []
        try:
            done.extend(self._embed(hashes))
        except EmbeddingError as error:
            return done, error
        return done, None

    def _embed(self, hashes: Sequence[str]) -> Iterator[Embedded]:
        """One batch, or the parts it had to be cut into."""
        try:
            embedded = self._call(hashes)
        except EmbeddingError as error:
            if not error.texts_suspected:
                raise
            yield from self._isolate(hashes, error)
        else:
            yield embedded

    def _isolate(self, hashes: Sequence[str], error: EmbeddingError) -> Iterator[Embedded]:
        """Halve a batch that failed with ``error`` until the texts that fail stand alone."""
        if not isinstance(error, InvalidInput) or len(hashes) == 1:
            self._require_working(error)
        if len(hashes) > 1:
            half = len(hashes) // 2
            yield from self._embed(hashes[:half])
            yield from self._embed(hashes[half:])
            return
        if not isinstance(error, InvalidInput):
            # Not a refusal but a fault, which may have been a moment's: the text gets a last try.
            try:
                embedded = self._call(hashes)
            except EmbeddingError as again:
                if not again.texts_suspected:
                    raise
                self._require_working(again)
                error = again
            else:
                yield embedded
                return
        self.rejected[hashes[0]] = str(error)
        self.embedded_at_rejection = len(self.embedded)
        yield [], np.empty((0, 0), np.float32)

    def _call(self, hashes: Sequence[str]) -> Embedded:
        batch = [self.texts[content_hash] for content_hash in hashes]
        try:
            vectors = self.embedder.embed(self.type, batch)
        except EmbeddingError as error:
            _raise_without(batch, error)
        check_shape(vectors, batch)
        return list(hashes), vectors

    def _require_working(self, error: EmbeddingError) -> None:
        """Raise unless the embedder takes a plain sentence now: then it, not the text, is at fault.

        For a refusal, a text embedded since the last rejection is proof enough.
        """
        if isinstance(error, InvalidInput) and len(self.embedded) > self.embedded_at_rejection:
            return
        try:
            self.embedder.embed(self.type, [KNOWN_GOOD_TEXT])
        except InvalidInput as refusal:
            raise Unavailable(
                f"the embedder refuses every text, even a plain sentence: {refusal}"
            ) from error
        except EmbeddingError:
            raise error from None


def _raise_without(texts: Sequence[str], error: EmbeddingError) -> NoReturn:
    """Raise ``error`` again without what it quotes of the texts: run histories outlive them."""
    said = str(error)
    clean = without_texts(said, texts)
    if clean == " ".join(said.split()):
        raise error
    kinds = (InvalidInput, Unavailable, MalformedResponse)
    kind = next((kind for kind in kinds if isinstance(error, kind)), EmbeddingError)
    cleaned = kind(clean)
    cleaned.texts_suspected = error.texts_suspected
    raise cleaned from None


def _distinct(items: Mapping[str, str] | Iterable[tuple[str, str]]) -> dict[str, str]:
    """content_hash -> text, each once."""
    texts: dict[str, str] = {}
    for content_hash, text in items.items() if isinstance(items, Mapping) else items:
        if texts.setdefault(content_hash, text) != text:
            raise ValueError(f"two different texts have the content_hash {content_hash}")
    return texts


def _changed_model(embedder: Embedder, before: EmbedderHealth) -> str | None:
    """What to say when the embedder is not the model any more that it was."""
    with suppress(Unavailable):  # it answered a moment ago, all is kept: nothing to complain of
        after = embedder.health()
        if (after.model, after.dim) != (before.model, before.dim):
            return (
                f"the embedder's model changed while it was used, from {before.model!r} "
                f"(dimension {before.dim}) to {after.model!r} ({after.dim}): vectors of two models "
                "must not be mixed, so none of them was kept. Run again"
            )
    return None

"""The contract of a vector index: documents replaced whole, top-k filled inside the store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from rag_assets.acl import EVERYTHING, AclTags
from rag_assets.errors import DimensionMismatch, FingerprintMismatch
from rag_assets.filters import Filters
from rag_assets.models import (
    Chunk,
    Document,
    Hit,
    IndexFingerprint,
    IndexStats,
    IngestRun,
    LeftOut,
)

if TYPE_CHECKING:  # numpy is not needed to look whether anything changed
    import numpy as np
    import numpy.typing as npt

    from rag_assets.embeddings.base import Vectors

    Scores: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class IndexedDocument:
    """A document with its passages and their vectors: what an index stores, whole."""

    document: Document
    """``body`` is not stored and may be empty."""
    chunks: Sequence[Chunk]
    vectors: Vectors = field(repr=False)
    """float32 [len(chunks), dim], unit rows; row i belongs to ``chunks[i]``."""


@dataclass(frozen=True, slots=True)
class UpsertCounts:
    """What an upsert did to passages."""

    chunks_upserted: int
    """Passages inserted, or changed in text, place or citation."""
    chunks_unchanged: int
    """Passages that were already there, to the byte."""


@dataclass(frozen=True, slots=True)
class ExplainedDocument:
    """What the index knows of one path: indexed (``document``), left out, or neither."""

    source: str
    path: str
    document: Document | None
    """``body`` is empty."""
    chunks: Sequence[Chunk]
    left_out: LeftOut | None
    """Of an indexed document: what was found in it (status ``flagged``)."""
    run_id: str | None
    indexed_at: str | None


@dataclass(frozen=True, slots=True)
class Candidates:
    """The best passages of both legs, row by row, for a fusion to rank."""

    vector_scores: Scores
    """float64 [n]: cosine of question and passage."""
    text_scores: Scores
    """float64 [n]: BM25; 0 where no word matches."""
    text_shares: Scores
    """float64 [n]: the text score as a share, 0 to 1, of the highest that any passage could have:
    small when the question's words, or its language, are not those of the passage."""


Fuse: TypeAlias = "Callable[[Candidates], Scores]"
"""Turns the scores of both legs into one, float64 [n]: higher is better. Must be elementwise up to
order: a permutation of the rows permutes the result."""


@runtime_checkable
class VectorStore(Protocol):
    """One generation of an index.

    Reading is safe from several threads and processes at any time; every answer is taken from one
    committed state. Writing needs the lease that ``writing`` gives. ``search`` never returns, and
    no number it returns depends on, a document outside ``acl_tags``.
    """

    @property
    def generation(self) -> str:
        """Name of this generation (a file name, a table name)."""
        ...

    def initialize(self, fingerprint: IndexFingerprint) -> None:
        """Create the schema if there is none, else check that it is ours and of this fingerprint.

        Raises:
            FingerprintMismatch: the index holds vectors or chunks of another fingerprint.
            DimensionMismatch: likewise, for the dimension; the message has both numbers.
            IndexDamaged: not an index of this package, or not a sound one.
        """
        ...

    def fingerprint(self) -> IndexFingerprint | None:
        """The fingerprint the index was initialised with, None before that."""
        ...

    def writing(
        self, *, run_id: str, partition: str, wait_seconds: float
    ) -> AbstractContextManager[None]:
        """Hold the one writer lease of the index, waiting for it at most ``wait_seconds``.

        The lease has a generation number that every write transaction checks: a writer whose lease
        was taken over writes nothing more. It is taken over when its process is gone or it has
        not been renewed for its time to live.

        Raises:
            IndexLocked: somebody else is writing; the message says who, since when.
        """
        ...

    def upsert_documents(self, items: Sequence[IndexedDocument], *, run_id: str) -> UpsertCounts:
        """Replace each document whole; all of ``items`` in one transaction, or none of them.

        Raises:
            VectorStoreError: as many vectors as chunks are required, finite, non-zero, of unit
                length; a lease is required.
            DimensionMismatch: vectors of another dimension.
        """
        ...

    def delete_documents(self, source: str, paths: Iterable[str]) -> int:
        """Remove these documents with all their passages; how many there were."""
        ...

    def document_hash(self, source: str, path: str) -> str | None:
        """``content_hash`` of the indexed document, None when it is not indexed."""
        ...

    def document_digests(self, source: str) -> Mapping[str, str]:
        """Path -> ``fingerprints.document_digest`` of every indexed document of the source."""
        ...

    def replace_left_out(
        self, source: str, rows: Sequence[LeftOut], *, remove: Collection[str]
    ) -> None:
        """Put ``rows`` into the ledger of files left out, take the paths in ``remove`` out."""
        ...

    def left_out(self, source: str | None = None) -> list[LeftOut]:
        """The ledger of files left out, ordered by source and path."""
        ...

    def record_run(self, run: IngestRun) -> None:
        """Insert or replace the row (run_id, partition). Needs no lease."""
        ...

    def runs(self, limit: int = 20) -> list[IngestRun]:
        """The latest runs, newest first."""
        ...

    def record_partition(self, partition: str, data_version: str) -> None:
        """Say that the index now holds exactly this version of the partition."""
        ...

    def partitions(self) -> Mapping[str, str]:
        """Partition -> data version last recorded."""
        ...

    def forget_partition(self, partition: str) -> None:
        """Take back what ``record_partition`` said."""
        ...

    def search(
        self,
        vector: Vectors | None,
        k: int,
        *,
        acl_tags: AclTags,
        filters: Filters | None = None,
        text: str | None = None,
        fuse: Fuse | None = None,
        depth: int = 0,
    ) -> list[Hit]:
        """The min(k, visible) best passages, best first, ties by (source, path, position).

        ``vector`` (float32 [dim], unit length) alone: the nearest ones. ``text`` alone: those that
        hold a word of it, by BM25; the statistics are those of what ``acl_tags`` may see. Both:
        the best max(k, depth) of each leg, ranked by ``fuse``. ``k <= 0``, no tags, or filters
        that let nothing through: []. ACL and every filter apply before top-k, in both legs.

        Raises:
            DimensionMismatch: the vector is not of the index's dimension.
            VectorStoreError: the vector is not finite, or zero.
            InvalidQuery: a path filter that cannot match anything.
            IndexDamaged: the file cannot be read.
            ValueError: neither vector nor text, or both without ``fuse``.
        """
        ...

    def document(self, source: str, path: str, *, acl_tags: AclTags) -> ExplainedDocument | None:
        """An indexed document with its passages; None when it is absent or not visible."""
        ...

    def explain(self, source: str, path: str) -> ExplainedDocument:
        """All the index knows of one path (NFC and NFD spellings are the same here)."""
        ...

    def stats(self, *, acl_tags: AclTags = EVERYTHING) -> IndexStats:
        """Counts of what the tags may see, and the size of it all."""
        ...

    def verify(self) -> list[str]:
        """Every way in which the index contradicts itself, one sentence each; [] when sound.

        Compares documents, chunks, vectors (a checksum each), ledger and fingerprint, and runs the
        store's own integrity check.
        """
        ...

    def quick_check(self) -> list[str]:
        """The contradictions that comparing counts shows in a few ms; [] when there is none."""
        ...

    def repair(self) -> int:
        """Forget documents that ``verify`` would complain of, so that the next run writes them
        again; how many. Needs the lease."""
        ...

    def finish(self) -> None:
        """End of a run: compact if it pays, leave no deleted bytes in any file. Needs the lease."""
        ...

    def promote(self) -> None:
        """Make this generation the one that readers open; atomic, idempotent."""
        ...

    def close(self) -> None:
        """Release connections; the object is not used afterwards."""
        ...


def check_fingerprint(held: IndexFingerprint, given: IndexFingerprint, where: object) -> None:
    """Compare what an index holds with what a writer brings; ``where`` names the index.

    Raises:
        DimensionMismatch, FingerprintMismatch: the message has both.
    """
    if held.dim != given.dim:
        raise DimensionMismatch(
            f"{where}: the index holds vectors of dimension {held.dim} (model {held.model}), the "
            f"embedder gives {given.dim} (model {given.model}); configure the former model, or "
            f"run `rag-assets ingest --full`"
        )
    for what in ("model", "chunker"):
        ours, theirs = getattr(held, what), getattr(given, what)
        if ours != theirs:
            raise FingerprintMismatch(
                f"{where}: the index was made by {what} {ours}, the configuration now has "
                f"{theirs}; configure the former {what}, or run `rag-assets ingest --full`"
            )

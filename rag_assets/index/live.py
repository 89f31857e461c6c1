"""The live generation for readers: looks at the pointer before every answer and follows it."""

# ruff: noqa: ARG002  (the writing half of the contract is refused whatever its arguments)

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NoReturn, TypeVar

from rag_assets.acl import EVERYTHING
from rag_assets.errors import IndexDamaged, IndexMissing, VectorStoreError
from rag_assets.index.faults import translated_errors
from rag_assets.index.sqlite import SqliteStore
from rag_assets.models import IndexFingerprint, IndexStats, IngestRun, LeftOut

if TYPE_CHECKING:
    from pathlib import Path

    from rag_assets.acl import AclTags
    from rag_assets.embeddings.base import Vectors
    from rag_assets.filters import Filters
    from rag_assets.index.base import ExplainedDocument, Fuse, IndexedDocument, UpsertCounts
    from rag_assets.index.generations import IndexDirectory
    from rag_assets.models import Hit

T = TypeVar("T")
Signature = tuple[int, int, int]
"""mtime (ns), inode and size of the pointer file: differs after every promotion."""


class LiveStore:
    """A read-only ``VectorStore`` over whatever generation is live at the moment of the call.

    A call costs one ``stat`` more than on the generation itself. Calls that began before a
    promotion finish on the generation they began with.
    """

    def __init__(self, directory: IndexDirectory) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._opened: tuple[Signature, SqliteStore] | None = None
        self._inode: int | None = None

    @property
    def generation(self) -> str:
        """The name of the live file."""
        return self._store().generation

    def fingerprint(self) -> IndexFingerprint | None:
        """What the live index was made with."""
        return self._ask(lambda store: store.fingerprint())

    def document_hash(self, source: str, path: str) -> str | None:
        """``content_hash`` of an indexed document."""
        return self._ask(lambda store: store.document_hash(source, path))

    def document_digests(self, source: str) -> Mapping[str, str]:
        """Path -> digest of every indexed document of ``source``."""
        return self._ask(lambda store: store.document_digests(source))

    def documents(self, source: str | None = None) -> Iterator[IndexedDocument]:
        """Every document with passages and vectors, streamed, from one state of the index."""
        return self._store().documents(source)

    def left_out(self, source: str | None = None) -> list[LeftOut]:
        """The ledger of files left out."""
        return self._ask(lambda store: store.left_out(source))

    def runs(self, limit: int = 20) -> list[IngestRun]:
        """The latest runs, newest first."""
        return self._ask(lambda store: store.runs(limit))

    def partitions(self) -> Mapping[str, str]:
        """Partition -> data version last recorded."""
        return self._ask(lambda store: store.partitions())

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
        """The best passages; see ``VectorStore.search``."""
        return self._ask(
            lambda store: store.search(
                vector, k, acl_tags=acl_tags, filters=filters, text=text, fuse=fuse, depth=depth
            )
        )

    def document(self, source: str, path: str, *, acl_tags: AclTags) -> ExplainedDocument | None:
        """An indexed document that the tags may see."""
        return self._ask(lambda store: store.document(source, path, acl_tags=acl_tags))

    def explain(self, source: str, path: str) -> ExplainedDocument:
        """All the index knows of one path."""
        return self._ask(lambda store: store.explain(source, path))

    def stats(self, *, acl_tags: AclTags = EVERYTHING) -> IndexStats:
        """Counts of what the tags may see, and the size of the file."""
        return self._ask(lambda store: store.stats(acl_tags=acl_tags))

    def verify(self) -> list[str]:
        """Every contradiction of the live index."""
        return self._ask(lambda store: store.verify())

    def quick_check(self) -> list[str]:
        """The contradictions that counting shows."""
        return self._ask(lambda store: store.quick_check())

    def promote(self) -> None:
        """The live generation is promoted already."""

    def close(self) -> None:
        """Release connections."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened[1].close()

    # -- writing is refused ------------------------------------------------------------------------

    def initialize(self, fingerprint: IndexFingerprint) -> None:
        """Refused."""
        self._refuse()

    def writing(
        self, *, run_id: str, partition: str, wait_seconds: float
    ) -> AbstractContextManager[None]:
        """Refused."""
        self._refuse()

    def upsert_documents(self, items: Sequence[IndexedDocument], *, run_id: str) -> UpsertCounts:
        """Refused."""
        self._refuse()

    def delete_documents(self, source: str, paths: Iterable[str]) -> int:
        """Refused."""
        self._refuse()

    def replace_left_out(
        self, source: str, rows: Sequence[LeftOut], *, remove: Collection[str]
    ) -> None:
        """Refused."""
        self._refuse()

    def record_run(self, run: IngestRun) -> None:
        """Refused."""
        self._refuse()

    def record_partition(self, partition: str, data_version: str) -> None:
        """Refused."""
        self._refuse()

    def forget_partition(self, partition: str) -> None:
        """Refused."""
        self._refuse()

    def repair(self) -> int:
        """Refused."""
        self._refuse()

    def finish(self) -> None:
        """Refused."""
        self._refuse()

    # -- inside ----------------------------------------------------------------------------------

    def _refuse(self) -> NoReturn:
        raise VectorStoreError(
            f"{self._directory.directory}: opened for reading only; write through "
            "IndexDirectory.writable_store()"
        )

    def _ask(self, question: Callable[[SqliteStore], T]) -> T:
        """Ask the live generation; once more if it was replaced and deleted meanwhile."""
        store = self._store()
        try:
            return question(store)
        except (IndexMissing, IndexDamaged):
            again = self._store()
            if again is store:
                raise
            return question(again)

    def _store(self) -> SqliteStore:
        with translated_errors(self._directory.pointer):
            signature = self._signature()
            opened = self._opened
            if opened is not None and opened[0] == signature:
                return opened[1]
            with self._lock:
                return self._follow(signature)

    def _follow(self, signature: Signature | None) -> SqliteStore:
        opened = self._opened
        if opened is not None and opened[0] == signature:
            return opened[1]
        path = self._directory.current()
        if path is None or signature is None:
            raise IndexMissing(
                f"{self._directory.directory}: there is no index yet; run `rag-assets ingest`"
            )
        if opened is not None and opened[1].path == path and self._inode == _inode(path):
            store = opened[1]
        else:
            store, self._inode = self._directory.store(path), _inode(path)
            if opened is not None:
                opened[1].close()
        self._opened = (signature, store)
        return store

    def _signature(self) -> Signature | None:
        try:
            stat = self._directory.pointer.stat()
        except FileNotFoundError:
            return None
        return stat.st_mtime_ns, stat.st_ino, stat.st_size


def _inode(path: Path) -> int | None:
    """Tells a file from another of the same name that took its place."""
    try:
        return path.stat().st_ino
    except OSError:
        return None

"""The SQLite vector store: one file, sqlite-vec inside, many readers and one leased writer."""

# ruff: noqa: S608  (only this package's own names are spelled into SQL; values are always bound)

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rag_assets.acl import EVERYTHING
from rag_assets.errors import IndexMissing, VectorStoreError
from rag_assets.filters import Filters
from rag_assets.index.connections import (
    ReaderPool,
    configure_writer,
    open_for_writing,
)
from rag_assets.index.faults import translated_errors
from rag_assets.index.lease import DEFAULT_TTL_SECONDS, WriterLease
from rag_assets.index.locks import exclusive
from rag_assets.index.schema import create_index, immediate, read_fingerprint, set_fingerprint
from rag_assets.index.times import utc_now
from rag_assets.models import IndexFingerprint, IndexStats, IngestRun, LeftOut

if TYPE_CHECKING:
    import apsw

    from rag_assets.acl import AclTags
    from rag_assets.embeddings.base import Vectors
    from rag_assets.index.base import ExplainedDocument, Fuse, IndexedDocument, UpsertCounts
    from rag_assets.index.generations import IndexDirectory
    from rag_assets.index.text_memory import TextMemory
    from rag_assets.index.verifying import Problem
    from rag_assets.models import Hit

_LOG = logging.getLogger(__name__)


class SqliteStore:
    """One generation of the index in one SQLite file: a ``VectorStore``.

    Building the object touches nothing. Reading opens read-only connections when they are needed
    and never creates or changes a file. ``directory`` is where ``promote`` makes this generation
    the live one; without it the file stands alone and is always live.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        directory: IndexDirectory | None = None,
        lease_ttl_seconds: float = DEFAULT_TTL_SECONDS,
    ) -> None:
        self.path = Path(path).absolute()
        self._directory = directory
        self._lease_ttl_seconds = lease_ttl_seconds
        self._readers = ReaderPool(self.path)
        self._fingerprint: IndexFingerprint | None = None
        self._lease: WriterLease | None = None
        self._text_memory: TextMemory | None = None

    @property
    def generation(self) -> str:
        """The name of the file."""
        return self.path.name

    # -- opening and writing ---------------------------------------------------------------------

    def initialize(self, fingerprint: IndexFingerprint) -> None:
        """Create the file and its tables if there is no file, else check what it was made with."""
        with translated_errors(self.path):
            if not self.path.exists():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with exclusive(self.path.parent):
                    if not self.path.exists():
                        create_index(self.path, build_id=None, configure=configure_writer)
            connection = open_for_writing(self.path)
            try:
                set_fingerprint(connection, fingerprint, self.path)
            finally:
                connection.close()
        self._fingerprint = fingerprint

    def fingerprint(self) -> IndexFingerprint | None:
        """What the index was made with; None while it was never initialised."""
        if self._fingerprint is None:
            try:
                with self._reading() as connection:
                    self._fingerprint = read_fingerprint(connection)
            except IndexMissing:
                return None
        return self._fingerprint

    @contextmanager
    def writing(self, *, run_id: str, partition: str, wait_seconds: float) -> Iterator[None]:
        """Hold the writer lease; see ``VectorStore.writing``."""
        if self._lease is not None:
            raise VectorStoreError(f"{self.path}: this object is already writing; use another one")
        with translated_errors(self.path):
            lease = WriterLease(
                self.path,
                lambda: open_for_writing(self.path),
                run_id=run_id,
                partition=partition,
                ttl_seconds=self._lease_ttl_seconds,
            )
            lease.acquire(wait_seconds)
        self._lease = lease
        try:
            yield
        finally:
            self._lease = None
            lease.release()

    def upsert_documents(self, items: Sequence[IndexedDocument], *, run_id: str) -> UpsertCounts:
        """Replace each document whole, all in one transaction."""
        from rag_assets.index.writing import BatchWriter, prepare

        lease = self._require_lease()
        prepared = prepare(items, self._require_fingerprint().dim)
        with translated_errors(self.path), lease.transaction() as connection:
            return BatchWriter(connection, run_id).write(prepared)

    def delete_documents(self, source: str, paths: Iterable[str]) -> int:
        """Remove documents with passages and vectors, all in one transaction."""
        from rag_assets.index.writing import delete_documents

        self._require_fingerprint()
        with self._transaction() as connection:
            return delete_documents(connection, source, paths)

    def replace_left_out(
        self, source: str, rows: Sequence[LeftOut], *, remove: Collection[str]
    ) -> None:
        """Bring the ledger of one source up to date, in one transaction."""
        from rag_assets.index.records import LEFT_OUT_COLUMNS, left_out_row, storable

        marks = ", ".join("?" * len(LEFT_OUT_COLUMNS.split(", ")))
        with self._transaction() as connection:
            connection.executemany(
                "DELETE FROM left_out WHERE source = ? AND path = ?",
                [(storable(source), storable(path)) for path in remove],
            )
            connection.executemany(
                f"INSERT OR REPLACE INTO left_out ({LEFT_OUT_COLUMNS}) VALUES ({marks})",
                [left_out_row(row) for row in rows],
            )

    def record_run(self, run: IngestRun) -> None:
        """Insert or replace the row of a run; needs no lease."""
        from rag_assets.index.records import RUN_COLUMNS, run_row

        marks = ", ".join("?" * len(RUN_COLUMNS.split(", ")))
        with translated_errors(self.path):
            connection = open_for_writing(self.path)
            try:
                with immediate(connection):
                    connection.execute(
                        f"INSERT OR REPLACE INTO ingest_run ({RUN_COLUMNS}) VALUES ({marks})",
                        run_row(run),
                    )
            finally:
                connection.close()

    def record_partition(self, partition: str, data_version: str) -> None:
        """Say which version of a partition the index holds."""
        with self._transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO partition_state (partition, data_version, recorded_at) "
                "VALUES (?, ?, ?)",
                (partition, data_version, utc_now()),
            )

    def forget_partition(self, partition: str) -> None:
        """Take back what ``record_partition`` said."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM partition_state WHERE partition = ?", (partition,))

    def repair(self) -> int:
        """Forget the documents that contradict themselves; how many."""
        from rag_assets.index.upkeep import repair

        lease = self._require_lease()
        with translated_errors(self.path):
            return repair(lease, self.path)

    def finish(self) -> None:
        """Compact where it pays and leave no deleted bytes."""
        from rag_assets.index.upkeep import finish

        lease = self._require_lease()
        with translated_errors(self.path):
            if not finish(lease):
                _LOG.warning(
                    "%s: a reader held the write-ahead log, which still has bytes of deleted "
                    "documents; the next run empties it",
                    self.path,
                )

    def promote(self) -> None:
        """Make this the generation that readers open."""
        if self._directory is not None:
            self._directory.promote(self.path)

    # -- reading ---------------------------------------------------------------------------------

    def document_hash(self, source: str, path: str) -> str | None:
        """``content_hash`` of an indexed document."""
        from rag_assets.index import reading

        with self._reading() as connection:
            return reading.document_hash(connection, source, path)

    def document_digests(self, source: str) -> Mapping[str, str]:
        """Path -> digest of every indexed document of ``source``."""
        from rag_assets.index import reading

        with self._reading() as connection:
            return reading.document_digests(connection, source)

    def documents(self, source: str | None = None) -> Iterator[IndexedDocument]:
        """Every document with passages and vectors, streamed, from one state of the index."""
        from rag_assets.index import reading

        with self._reading() as connection:
            yield from reading.documents(connection, source)

    def left_out(self, source: str | None = None) -> list[LeftOut]:
        """The ledger of files left out."""
        from rag_assets.index import reading

        with self._reading() as connection:
            return reading.left_out(connection, source)

    def runs(self, limit: int = 20) -> list[IngestRun]:
        """The latest runs, newest first."""
        from rag_assets.index import reading

        with self._reading() as connection:
            return reading.runs(connection, limit)

    def partitions(self) -> Mapping[str, str]:
        """Partition -> data version last recorded."""
        from rag_assets.index import reading

        with self._reading() as connection:
            return reading.partitions(connection)

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
        """The min(k, visible) best passages; see ``VectorStore.search``.

        sqlite-vec itself refuses k above 4,096; there every visible vector is compared instead, so
        the answer is complete at any k and only slower.

        Raises:
            TypeError: tags given as one str instead of a collection.
            IndexMissing: the index was never written.
        """
        from rag_assets.index.searching import query_vector, search
        from rag_assets.index.text_memory import TextMemory

        if isinstance(acl_tags, str):
            raise TypeError(f"acl_tags must be a collection of str, not the str {acl_tags!r}")
        if vector is None and text is None:
            raise ValueError("a search needs a vector, a text, or both")
        if vector is not None and text is not None and fuse is None:
            raise ValueError("a search by vector and text needs a fusion")
        dim = self._require_fingerprint().dim
        query = None if vector is None else query_vector(vector, dim)
        if k <= 0:
            return []
        memory = self._text_memory = self._text_memory or TextMemory()
        with self._reading() as connection:
            return search(
                connection,
                query,
                text,
                k,
                acl_tags=acl_tags,
                filters=filters or Filters(),
                fuse=fuse,
                depth=depth,
                memory=memory,
            )

    def document(self, source: str, path: str, *, acl_tags: AclTags) -> ExplainedDocument | None:
        """An indexed document that the tags may see."""
        from rag_assets.index import reading

        with self._reading() as connection:
            return reading.visible_document(connection, source, path, acl_tags)

    def explain(self, source: str, path: str) -> ExplainedDocument:
        """All the index knows of one path."""
        from rag_assets.index import reading

        with self._reading() as connection:
            return reading.explain(connection, source, path)

    def stats(self, *, acl_tags: AclTags = EVERYTHING) -> IndexStats:
        """Counts of what the tags may see, and the size of the file."""
        from rag_assets.index import reading

        with self._reading() as connection:
            return reading.stats(connection, self.path, acl_tags)

    def verify(self) -> list[str]:
        """Every contradiction, one sentence each; the contents of every row are read."""
        from rag_assets.index.verifying import find_problems, sentences

        with self._reading() as connection:
            postings = self._compared_postings()
            found = list(find_problems(connection, postings_compared=postings is not None))
            return sentences([*found, *(postings or ())])

    def _compared_postings(self) -> list[Problem] | None:
        """What FTS5 says of its postings; None when somebody writes, or nobody can."""
        import apsw

        from rag_assets.index.verifying import Problem as Found
        from rag_assets.index.verifying import compare_postings

        if self.fingerprint() is None:
            return None
        try:
            connection = open_for_writing(self.path)
        except (apsw.Error, VectorStoreError):
            return None
        try:
            connection.set_busy_timeout(0)
            return compare_postings(connection)
        except (apsw.BusyError, apsw.LockedError, apsw.ReadOnlyError):
            return None
        except apsw.Error as exc:
            return [Found(f"the full-text index cannot be compared: {exc}", text=True)]
        finally:
            connection.close()

    def quick_check(self) -> list[str]:
        """The contradictions that counting shows, in milliseconds."""
        from rag_assets.index.health import count

        with self._reading() as connection:
            return count(connection).problems()

    def close(self) -> None:
        """Release connections."""
        self._readers.close()

    # -- inside ----------------------------------------------------------------------------------

    @contextmanager
    def _reading(self) -> Iterator[apsw.Connection]:
        with translated_errors(self.path), self._readers.snapshot() as connection:
            yield connection

    @contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
        lease = self._require_lease()
        with translated_errors(self.path), lease.transaction() as connection:
            yield connection

    def _require_lease(self) -> WriterLease:
        if self._lease is None:
            raise VectorStoreError(
                f"{self.path}: writing needs the writer lease: `with store.writing(...)`"
            )
        return self._lease

    def _require_fingerprint(self) -> IndexFingerprint:
        fingerprint = self.fingerprint()
        if fingerprint is None:
            raise IndexMissing(f"{self.path}: the index was never written; run `rag-assets ingest`")
        return fingerprint

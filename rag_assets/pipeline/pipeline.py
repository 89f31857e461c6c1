"""One configured pipeline: builds its components once and runs the five steps of a partition."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final

import pyarrow as pa

from rag_assets import components
from rag_assets.changes import remember_indexed, remember_look, remembered_look, retries
from rag_assets.chunking.anchors import AnchorStyle
from rag_assets.chunking.base import Chunker
from rag_assets.config import Config, Partition
from rag_assets.embeddings.base import Embedder
from rag_assets.embeddings.cache import EmbeddingCache
from rag_assets.errors import AssetError, Unavailable, VectorStoreError
from rag_assets.fingerprints import DOCUMENTS_VERSION, INDEX_VERSION, fingerprint
from rag_assets.index.base import VectorStore, check_fingerprint
from rag_assets.models import (
    RETRIED_REASONS,
    Changes,
    EmbedderHealth,
    IndexFingerprint,
    IngestRun,
    SourceListing,
)
from rag_assets.pipeline import steps, tables
from rag_assets.pipeline.indexing import index_partition, utc, wanted
from rag_assets.pipeline.progress import Progress, silent
from rag_assets.pipeline.screened import Screening
from rag_assets.pipeline.steps import StepResult
from rag_assets.pipeline.storage import AssetFiles
from rag_assets.pipeline.upkeep import (
    close_abandoned_runs,
    drop_unconfigured,
    forget_unconfigured_files,
)
from rag_assets.pipeline.worker import Worker, shared_worker
from rag_assets.project import ASSETS, DataFolder
from rag_assets.releases import Releases
from rag_assets.source_settings import CustomSettings, ServerSettings
from rag_assets.sources.shards import Shard

SECONDS_PER_DAY: Final = 86_400.0
ANCHOR_STYLES: Final[Mapping[str, AnchorStyle]] = {"gitlab": "gitlab", "bookstack": "bookstack"}
"""How a kind of source makes anchors, unless its settings say otherwise."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What one run was asked to do."""

    run_id: str
    build_id: str | None = None
    """Set: write into the unpromoted index generation of that build."""
    reprocess: bool = False
    """Carry nothing over from earlier tables; vectors still come from the cache."""
    reread: bool = False
    """Read every file again, whatever its change marker says."""
    removals_confirmed: bool = False
    stores: bool = True
    """Whether what is listed will be stored: a plan keeps nothing."""


class Pipeline:
    """The steps and their components. Not thread-safe; use one object per run."""

    def __init__(self, config: Config, progress: Progress = silent) -> None:
        self.config = config
        self.data = DataFolder(config.data_dir)
        self.files = AssetFiles(self.data.assets)
        self.progress = progress

    @cached_property
    def chunker(self) -> Chunker:
        """Built on first use."""
        return components.build_chunker(self.config)

    def chunker_of(self, partition: Partition) -> Chunker:
        """The chunker with the anchors of that source."""
        style = self._anchor_style(partition)
        return self.chunker if style is None else components.build_chunker(self.config, style)

    def _anchor_style(self, partition: Partition) -> AnchorStyle | None:
        settings = self.config.source(partition.source)
        return settings.anchor_style or ANCHOR_STYLES.get(settings.kind)

    @cached_property
    def worker(self) -> Worker:
        """Judges and parses files."""
        limits = self.config.parsing
        return shared_worker(limits.seconds, limits.megabytes)

    @cached_property
    def embedder(self) -> Embedder:
        """Built on first use; the model is loaded when the first text is embedded."""
        return components.build_embedder(self.config)

    @cached_property
    def health(self) -> EmbedderHealth:
        """What the embedder says of itself, asked once per run.

        Raises:
            Unavailable: it does not answer, or says that it is not well.
        """
        health = self.embedder.health()
        if health.status != "ok":
            raise Unavailable(f"embedder {health.model!r} says it is {health.status!r}, not 'ok'")
        return health

    @cached_property
    def cache(self) -> EmbeddingCache:
        """The embedding cache of the data folder."""
        return EmbeddingCache(self.data.cache)

    @cached_property
    def index_fingerprint(self) -> IndexFingerprint:
        """What the index must be made of to belong to this configuration."""
        return IndexFingerprint(
            self.embedder.fingerprint, self.health.dim, self.chunker.fingerprint
        )

    def source_stage(self, partition: Partition) -> str:
        """Fingerprint of ``source_files``."""
        return components.source_fingerprint(self.config, partition)

    def documents_stage(self, partition: Partition) -> str:
        """Fingerprint of ``parsed_documents``."""
        language = self.config.source(partition.source).language
        return fingerprint("documents", DOCUMENTS_VERSION, language)

    def look_stage(self, partition: Partition) -> str:
        """Fingerprint of all that decides which documents a listing lets through."""
        screening = self.screening(partition)
        released = sorted(screening.released)
        return fingerprint(self.source_stage(partition), screening.fingerprint, released)

    def screening(self, partition: Partition) -> Screening:
        """What the documents of that source are screened for.

        Raises:
            ConfigurationError: the record of releases cannot be read.
        """
        settings = self.config.source(partition.source)
        released = Releases(self.data.releases).of_source(settings.name)
        return Screening(settings.screening.policies(), released, self.worker)

    def chunks_stage(self, partition: Partition) -> str:
        """Fingerprint of ``chunks``."""
        chunker = self.chunker_of(partition).fingerprint
        return fingerprint("chunks", DOCUMENTS_VERSION, chunker)

    @property
    def embeddings_stage(self) -> str:
        """Fingerprint of ``embeddings``."""
        return fingerprint("embeddings", self.embedder.fingerprint)

    def target_version(self, partition: Partition, listing_version: str) -> str:
        """What the index records for a partition that is up to date with that listing."""
        stages = self._later_stages(partition)
        return steps.partition_version(listing_version, *stages, INDEX_VERSION)

    def require_components(self, partitions: Sequence[Partition]) -> None:
        """Build every component that a run will need, so that what cannot be built is told first.

        Raises:
            ConfigurationError, ChunkingError: a class or a setting is wrong.
        """
        assert self.chunker is not None
        assert self.embedder is not None
        for partition in partitions:
            components.build_source(self.config, partition)

    def holds(self, partition: Partition, recorded: str, listing_version: str) -> bool:
        """Whether index and tables are what that listing and the present stages make."""
        target = self.target_version(partition, listing_version)
        return recorded == target and self.tables_current(partition, listing_version)

    def tables_current(self, partition: Partition, listing_version: str) -> bool:
        """Whether the kept tables were made from that listing, one from another, by these stages.

        A run that died half-way leaves tables that are ahead of the index; they are not current
        even when the source went back to what the index holds.
        """
        upstream = ""
        stages = (self.source_stage(partition), *self._later_stages(partition))
        for asset, stage in zip(ASSETS, stages, strict=True):
            stamp = self.files.stamp(asset, partition.key)
            if stamp.get("stage") != stage or stamp.get("upstream") != upstream:
                return False
            upstream = stamp["data_version"]
            if asset == "source_files" and upstream != listing_version:
                return False
        return True

    def _later_stages(self, partition: Partition) -> tuple[str, str, str]:
        chunks = self.chunks_stage(partition)
        return self.documents_stage(partition), chunks, self.embeddings_stage

    def list_files(
        self, partition: Partition, previous: pa.Table | None, options: RunOptions
    ) -> tuple[StepResult, SourceListing]:
        """List and read the partition; nothing is written."""
        settings = self.config.source(partition.source)
        # A server's change markers are trusted: its contents are fetched again by --full alone.
        is_server = isinstance(settings, ServerSettings)
        return steps.list_files(
            components.build_source(
                self.config,
                partition,
                full=options.reread,
                stores=options.stores,
                progress=self.progress,
            ),
            previous,
            indexed=() if previous is not None else self._indexed_paths(partition),
            documents_of_source=self._documents_of_source(partition),
            reread=options.reprocess or (options.reread and not is_server),
            stage=self.source_stage(partition),
            place=components.source_place(self.config, partition),
            screen=self.screening(partition),
            max_removed_fraction=settings.max_removed_fraction,
            removals_confirmed=options.removals_confirmed,
        )

    def _documents_of_source(self, partition: Partition) -> int:
        """Documents of all shards together in the live index; 0 when the source is not sharded."""
        return len(self._indexed(partition.source)) if partition.shard_count > 1 else 0

    def _indexed_paths(self, partition: Partition) -> list[str]:
        """The partition's documents in the live index."""
        shard = Shard(partition.shard_index, partition.shard_count)
        return [path for path in self._indexed(partition.source) if shard.holds(path)]

    def _indexed(self, source: str) -> Collection[str]:
        """Paths of the source in the live index; none when there is no sound index."""
        try:
            with components.live_index(self.config) as store:
                return store.document_digests(source).keys() if store is not None else ()
        except VectorStoreError:
            return ()

    def source_files(
        self, partition: Partition, previous: pa.Table | None, options: RunOptions
    ) -> StepResult:
        """The partition's files, and what the next cheap look compares with."""
        result, listing = self.list_files(partition, previous, options)
        remember_look(
            self.data,
            partition.key,
            listing.look_state,
            listing_version=result.data_version,
            stage=self.look_stage(partition),
            retry=any(row.reason in RETRIED_REASONS for row in tables.left_out(result.table)),
        )
        return result

    def look(self, partition: Partition, recorded: str, *, retry: bool = True) -> Changes | None:
        """What a cheap look finds changed since the listing that the index was made from.

        None when only a listing can tell: folders are listed as cheaply as they are looked at, and
        with ``retry`` what could not be read last time may be readable now.

        Raises:
            SourceError: the source cannot be asked.
        """
        settings = self.config.source(partition.source)
        if components.is_replaced() or settings.is_folder:
            return None
        # A source of the integrator's own may know no look.
        unknown = None if isinstance(settings, CustomSettings) else Changes(unknown=True)
        remembered = remembered_look(self.data, partition.key, self.look_stage(partition))
        if remembered is None or not self.holds(partition, recorded, remembered[0]):
            return unknown
        if retry and retries(self.data, partition.key):
            return None
        found = components.build_source(self.config, partition).look(remembered[1])
        return unknown if found.unknown else found

    def parsed_documents(
        self,
        partition: Partition,
        files: pa.Table,
        previous: pa.Table | None,
        options: RunOptions,
    ) -> StepResult:
        """The partition's documents."""
        return steps.parse_documents(
            files,
            None if options.reprocess else previous,
            stage=self.documents_stage(partition),
            progress=self.progress,
            worker=self.worker,
            chunker=self.chunker_of(partition),
            language=self.config.source(partition.source).language,
        )

    def chunks(
        self,
        partition: Partition,
        parsed: pa.Table,
        previous: pa.Table | None,
        options: RunOptions,
    ) -> StepResult:
        """The partition's passages."""
        return steps.chunk_documents(
            parsed,
            None if options.reprocess else previous,
            self.chunker_of(partition),
            stage=self.chunks_stage(partition),
            progress=self.progress,
        )

    def embeddings(
        self, chunked: pa.Table, previous: pa.Table | None, options: RunOptions
    ) -> StepResult:
        """The vectors of the partition's passages.

        Raises:
            FingerprintMismatch: the index holds vectors of another model; nothing is embedded.
        """
        if options.build_id is None:
            self.refuse_other_fingerprint()
        return steps.embed_chunks(
            chunked,
            None if options.reprocess else previous,
            self.embedder,
            self.cache,
            dim=self.health.dim,
            stage=self.embeddings_stage,
            run_id=options.run_id,
            progress=self.progress,
        )

    def refuse_other_fingerprint(self) -> None:
        """Make sure that the live index, if there is one, was made by this model and chunker.

        Raises:
            FingerprintMismatch, DimensionMismatch: it was not; the message has the way out.
        """
        with components.live_index(self.config) as store:
            held = store.fingerprint() if store is not None else None
        if held is not None:
            check_fingerprint(held, self.index_fingerprint, self.data.index)

    def vector_index(
        self,
        partition: Partition,
        parsed: pa.Table,
        chunked: pa.Table,
        embedded: pa.Table,
        options: RunOptions,
        *,
        started: float | None = None,
    ) -> tuple[IngestRun, str]:
        """Bring the index to what the tables say; the run's row and the partition's data version.

        ``started`` is when the run began, in seconds since the epoch; default: now.

        Raises:
            AssetError: the tables were not made from one another by these stages, or are old.
            IndexLocked: somebody else is writing.
            FingerprintMismatch: the index holds another model's vectors.
        """
        listing_version = self._chain(partition, parsed, chunked, embedded)
        version = self.target_version(partition, listing_version)
        began = time.time() if started is None else started
        counted = tables.stamp_of(embedded)
        fresh = counted.get("embedded", 0) if counted.get("run_id") == options.run_id else 0
        run = IngestRun(
            run_id=options.run_id,
            partition=partition.key,
            source=partition.source,
            started_at=utc(began),
            finished_at=None,
            status="running",
            chunks_embedded=fresh,
        )
        with self._writing(partition, options) as store:
            self._refuse_older_tables(partition, listing_version)
            close_abandoned_runs(store)
            store.record_run(run)
            if store.quick_check():
                store.repair()
            shard = Shard(partition.shard_index, partition.shard_count)
            run = index_partition(
                store,
                wanted(parsed, chunked, embedded),
                run,
                shard=shard if partition.shard_count > 1 else None,
                version=version,
                progress=self.progress,
            )
            if options.build_id is None:
                drop_unconfigured(store, self.config, self.data, self.files)
            store.finish()
            run = replace(
                run,
                finished_at=utc(time.time()),
                duration_seconds=round(max(0.0, time.time() - began), 3),
            )
            store.record_run(run)
            self._promote_when_complete(store, options)
        components.prune_generations(self.config)
        self.forget_unused_embeddings()
        self.refresh_state()
        return run, version

    def run(self, partition: Partition, options: RunOptions) -> IngestRun:
        """All five steps, one after the other, without Dagster; tables are kept as it would.

        Raises:
            RagError: whatever a step raises; tables of earlier steps stay, the index is unchanged.
        """
        key, started = partition.key, time.time()
        made = self.source_files(partition, self.files.read_or_none("source_files", key), options)
        self.files.write("source_files", key, made.table)
        steps_left: tuple[Callable[..., StepResult], ...] = (
            partial(self.parsed_documents, partition),
            partial(self.chunks, partition),
            self.embeddings,
        )
        results = [made.table]
        for asset, step in zip(ASSETS[1:], steps_left, strict=True):
            made = step(results[-1], self.files.read_or_none(asset, key), options)
            self.files.write(asset, key, made.table)
            results.append(made.table)
        _, parsed, chunked, embedded = results
        run, _ = self.vector_index(partition, parsed, chunked, embedded, options, started=started)
        return run

    def _chain(
        self, partition: Partition, parsed: pa.Table, chunked: pa.Table, embedded: pa.Table
    ) -> str:
        """The listing version all three tables come from.

        Raises:
            AssetError: one was made from an older version of the one before it, or by other
                settings than the present ones.
        """
        upstream = listing_version = tables.stamp_of(parsed).get("upstream", "")
        made = {"parsed_documents": parsed, "chunks": chunked, "embeddings": embedded}
        for (name, table), stage in zip(made.items(), self._later_stages(partition), strict=True):
            stamp = tables.stamp_of(table)
            if stamp.get("upstream") != upstream or stamp.get("stage") != stage:
                raise AssetError(
                    f"partition {partition.key!r}: {name} was made from an older version of what "
                    f"comes before it, or with other settings; materialise {name} (or the whole "
                    "partition) first"
                )
            upstream = stamp["data_version"]
        return str(listing_version)

    def _refuse_older_tables(self, partition: Partition, listing_version: str) -> None:
        """A run that waited for the lease must not bring back what a newer one replaced."""
        newest = self.files.stamp("source_files", partition.key).get("data_version")
        if newest is not None and newest != listing_version:
            raise AssetError(
                f"partition {partition.key!r}: source_files was made again meanwhile; materialise "
                "the whole partition"
            )

    @contextmanager
    def _writing(self, partition: Partition, options: RunOptions) -> Iterator[VectorStore]:
        store = components.open_index(self.config, build_id=options.build_id)
        try:
            store.initialize(self.index_fingerprint)
            with store.writing(
                run_id=options.run_id,
                partition=partition.key,
                wait_seconds=self.config.index.wait_seconds,
            ):
                yield store
        finally:
            store.close()

    def _promote_when_complete(self, store: VectorStore, options: RunOptions) -> None:
        """A new generation goes live once every configured partition is in it."""
        keys = {p.key for p in self.config.partitions()}
        if options.build_id is not None and keys <= store.partitions().keys():
            with self._live_lease(options):
                store.promote()
            forget_unconfigured_files(self.config, self.data, self.files)

    @contextmanager
    def _live_lease(self, options: RunOptions) -> Iterator[None]:
        """Hold the live index still while another takes its place; nothing to hold if unsound."""
        try:
            components.open_reader(self.config).close()
            live = components.open_index(self.config)
        except VectorStoreError:
            yield
            return
        try:
            wait_seconds = self.config.index.wait_seconds
            with live.writing(
                run_id=options.run_id, partition="promotion", wait_seconds=wait_seconds
            ):
                yield
        finally:
            live.close()

    def record_failure(
        self, partition: Partition, run_id: str, started_at: str, error: str
    ) -> None:
        """A row of ``ingest_run`` for a run that failed; none when there is no index yet."""
        with components.live_index(self.config) as live:
            if live is None:
                return
        store = components.open_index(self.config)
        try:
            store.record_run(
                IngestRun(
                    run_id=run_id,
                    partition=partition.key,
                    source=partition.source,
                    started_at=started_at,
                    finished_at=utc(time.time()),
                    status="failed",
                    error=error,
                )
            )
        finally:
            store.close()
        self.refresh_state()

    def forget_unused_embeddings(self) -> None:
        """Drop cached vectors that no partition uses and that have been unused for long enough."""
        used: set[str] = set()
        try:
            for partition in self.config.partitions():
                used |= self.files.column("embeddings", partition.key, "content_hash")
        except AssetError:
            return  # without knowing what is used, nothing is forgotten; that partition's run tells
        self.cache.forget_unused(
            self.embedder.fingerprint,
            used,
            older_than_seconds=self.config.embedding.keep_unused_days * SECONDS_PER_DAY,
        )

    def recorded_partitions(self) -> dict[str, str]:
        """What the live index says it holds: partition -> version; empty without an index."""
        with components.live_index(self.config) as store:
            return dict(store.partitions()) if store is not None else {}

    def vectors_known(self, partition: str, hashes: set[str]) -> set[str]:
        """Which of these texts have a vector already, in the last table or in the cache."""
        known: set[str] = set()
        previous = self.files.read_or_none("embeddings", partition)
        schema = tables.embeddings_schema(self.health.dim)
        previous = tables.same_stage(previous, self.embeddings_stage, schema)
        if previous is not None:
            good = previous.filter(pa.compute.is_null(previous["rejected"]))
            known = set(good["content_hash"].to_pylist())
        missing = sorted(hashes - known)
        if not self.data.cache.exists():
            return known
        return known | set(self.cache.get_many(self.embedder.fingerprint, "passage", missing))

    def refresh_state(self) -> None:
        """Say on disk whether the index is up to date with every partition's last listing."""
        try:
            recorded = self.recorded_partitions()
        except VectorStoreError:
            return  # a damaged live index beside the new one that is being built

        def current(key: str, listing_version: str) -> bool:
            return self.holds(self.config.partition(key), recorded.get(key, ""), listing_version)

        stages = {p.key: self.look_stage(p) for p in self.config.partitions()}
        remember_indexed(self.data, self.config.path, stages, set(recorded), current)
        self._forget_journals(recorded)

    def _forget_journals(self, recorded: Mapping[str, str]) -> None:
        """Delete what interrupted listings had fetched, once its partition is up to date."""
        for journal in self.data.state.glob("*.fetched"):
            stamp = self.files.stamp("source_files", journal.stem)
            partitions = [p for p in self.config.partitions() if p.key == journal.stem]
            listed, held = stamp.get("data_version", ""), recorded.get(journal.stem, "")
            if not partitions or self.holds(partitions[0], held, listed):
                journal.unlink(missing_ok=True)

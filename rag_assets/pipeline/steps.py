"""The five steps of one partition as pure functions: tables in, a table and its data version out.

Every step takes its own previous table and carries over whatever its input did not change.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_assets.chunking.base import Chunker
from rag_assets.embeddings.base import Embedder
from rag_assets.embeddings.batching import EmbedOutcome, embed_missing
from rag_assets.embeddings.cache import EmbeddingCache
from rag_assets.errors import RemovalRefused
from rag_assets.fingerprints import sha256_hex
from rag_assets.models import PROBLEM_REASONS, LeftOut, SourceListing
from rag_assets.pipeline import tables
from rag_assets.pipeline.progress import Progress
from rag_assets.pipeline.screened import Screened, Screening, screen_files
from rag_assets.pipeline.worker import Worker
from rag_assets.sources.base import Source

REMOVAL_GUARD_FROM_DOCUMENTS: Final = 10
"""Smaller sources may lose any share of their documents: there a person sees what happens."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step made."""

    table: pa.Table = field(repr=False)
    data_version: str
    counts: Mapping[str, int]


def list_files(
    source: Source,
    previous: pa.Table | None,
    *,
    indexed: Collection[str],
    documents_of_source: int,
    reread: bool,
    stage: str,
    place: str,
    screen: Screening,
    max_removed_fraction: float,
    removals_confirmed: bool,
) -> tuple[StepResult, SourceListing]:
    """List the source; contents of files whose change marker is unchanged are carried over.

    ``indexed`` are the partition's paths in the index, for when there is no previous table;
    ``documents_of_source`` counts those of all shards; ``reread`` reads every file again. ``place``
    is a fingerprint of where contents come from: those of another place are read anew.

    Raises:
        RemovalRefused: too large a share of the documents is gone.
        SourceError: the listing is not complete.
    """
    readable = previous is not None and previous.schema.equals(tables.SOURCE_FILES)
    known = {f.path: f for f in tables.source_files(previous)} if readable else {}
    usable = readable and tables.stamp_of(previous).get("place") == place and not reread
    before = Screened.of(previous, screen) if usable else Screened()
    listing = source.list({**known, **before.bare_files()} if usable else None)
    found = screen_files(listing.files, before, screen)
    left_out = [*listing.left_out, *found.left_out]
    if not removals_confirmed:
        contents = {path: file.content_hash for path, file in known.items()}
        contents = contents or dict.fromkeys(indexed, "")
        kept = replace(listing, files=tuple(found.files), left_out=tuple(left_out))
        check_removals(source.name, contents, kept, max_removed_fraction, documents_of_source)
    table = tables.source_files_table(found.files, left_out, found.flags)
    changed = sum(
        1 for f in found.files if f.path in known and f.content_hash != known[f.path].content_hash
    )
    present = {f.path for f in found.files}
    counts = {
        "documents": len(found.files),
        "added": len(present - known.keys()),
        "changed": changed,
        "removed": len(known.keys() - present),
        "left_out": len(left_out),
        "quarantined": sum(1 for row in left_out if row.status == "quarantined"),
        "flagged": len(found.flags),
        "other_files": listing.other_files,
        "read": listing.read,
    }
    version = source_files_version(table)
    stamped = tables.stamped(table, stage, version, "", place=place, screening=screen.fingerprint)
    return StepResult(stamped, version, counts), listing


def source_files_version(table: pa.Table) -> str:
    """sha256 over (path, content_hash, ACL tags, URL) and over what is left out and why."""
    columns = ["path", "status", "content_hash", "acl_tags", "url", "title", "reason", "rule"]
    return tables.table_digest(table, columns, extra="")


def check_removals(
    source: str,
    before: Mapping[str, str],
    listing: SourceListing,
    max_removed_fraction: float,
    documents_of_source: int = 0,
) -> None:
    """Refuse a listing that lost more documents than allowed.

    ``before`` maps paths to content hashes (empty when not known). A document whose content is
    there under another path was moved, and one that a rule leaves out was taken away on purpose:
    neither is lost. One that cannot be read any more is. A small shard of a source that is not
    small may lose some of its documents, but not all.

    Raises:
        RemovalRefused: with the first paths and the way to confirm.
    """
    small = len(before) < REMOVAL_GUARD_FROM_DOCUMENTS
    if not before or (small and documents_of_source < REMOVAL_GUARD_FROM_DOCUMENTS):
        return
    present = {f.path for f in listing.files}
    contents = {f.content_hash for f in listing.files}
    ruled = {i.path for i in listing.left_out if i.reason not in PROBLEM_REASONS}
    folders = tuple(path for path in ruled if path.endswith("/"))
    lost = [
        path
        for path, content_hash in before.items()
        if path not in present
        and content_hash not in contents
        and path not in ruled
        and not path.startswith(folders)
    ]
    allowed = max_removed_fraction * len(before)
    if small:
        allowed = max(allowed, len(before) - 1)
    if len(lost) > allowed:
        shown = ", ".join(sorted(lost)[:10]) + (" ..." if len(lost) > 10 else "")
        raise RemovalRefused(
            f"source {source!r}: {len(lost)} of {len(before)} documents are gone, more than "
            f"max_removed_fraction {max_removed_fraction:g} allows; nothing was removed. Gone: "
            f"{shown}. If this is meant, run `rag-assets ingest --source {source} "
            "--confirm-removals`, or tag the Dagster run `rag_assets/confirm_removals: true`"
        )


def parse_documents(
    files: pa.Table,
    previous: pa.Table | None,
    *,
    stage: str,
    progress: Progress,
    worker: Worker,
    chunker: Chunker,
    language: str | None = None,
) -> StepResult:
    """Parse what is new; a row whose input is the same is carried over untouched.

    ``language`` is the source's configured one; it must be part of ``stage``. ``worker`` parses,
    ``chunker`` will cut what it made.
    """
    previous = tables.same_stage(previous, stage, tables.PARSED_DOCUMENTS)
    is_document = pc.equal(files["status"], tables.DOCUMENT)
    inputs = files.filter(is_document)
    keys = _keys(inputs, "path", "input_key")
    old = _keys(previous, "path", "input_key") if previous is not None else []
    carried = set(keys) & {key for key in old if key[1] is not None}
    kept = _where(previous, [key in carried for key in old])
    todo = inputs.filter(pa.array([key not in carried for key in keys], pa.bool_()))
    rows = []
    input_keys = todo["input_key"].to_pylist()
    flags = tables.flags(files)
    for done, parsed in enumerate(worker.parse(tables.source_files(todo), language, chunker)):
        key = input_keys[done]
        rows.append(
            tables.left_out_row(parsed, key)
            if isinstance(parsed, LeftOut)
            else tables.document_row(parsed, key, flags.get(parsed.path))
        )
        if done % 256 == 0:
            progress("documents parsed", done, len(todo))
    rows += [tables.left_out_row(item) for item in tables.left_out(files)]
    rows += _flag_rows(flags, rows, kept)
    fresh = pa.Table.from_pylist(rows, schema=tables.PARSED_DOCUMENTS)
    table = _merged(kept, fresh, [("path", "ascending"), ("status", "ascending")])
    statuses = table["status"].to_pylist()
    columns = [
        "path", "status", "url", "title", "body_start_line", "content_hash", "acl_tags",
        "metadata", "language", "lines", "reason", "rule",
    ]  # fmt: skip
    counts = {
        "documents": statuses.count(tables.DOCUMENT),
        "parsed": len(todo),
        "carried_over": len(inputs) - len(todo),
        "excluded": statuses.count("excluded"),
        "quarantined": statuses.count("quarantined"),
        "flagged": statuses.count("flagged"),
    }
    version = tables.table_digest(table, columns, extra=stage)
    return _result(table, stage, version, files, counts)


def _flag_rows(
    flags: Mapping[str, LeftOut], fresh: Sequence[Mapping[str, Any]], kept: pa.Table | None
) -> list[dict[str, Any]]:
    """Rows that tell of the flagged documents among the parsed ones."""
    documents = {row["path"] for row in fresh if row["status"] == tables.DOCUMENT}
    if kept is not None:
        documents |= {row["path"] for row in tables.rows_of(kept, ["path"], tables.DOCUMENT)}
    return [tables.left_out_row(row) for path, row in flags.items() if path in documents]


def chunk_documents(
    parsed: pa.Table, previous: pa.Table | None, chunker: Chunker, *, stage: str, progress: Progress
) -> StepResult:
    """Chunk documents whose text is new; the chunks of the others are carried over."""
    previous = tables.same_stage(previous, stage, tables.CHUNKS)
    inputs = parsed.filter(pc.equal(parsed["status"], tables.DOCUMENT))
    keys = _keys(inputs, "path", "cut_key")
    old = _keys(previous, "path", "cut_key") if previous is not None else []
    carried = set(keys) & set(old)
    kept = _where(previous, [key in carried for key in old])
    todo = inputs.filter(pa.array([key not in carried for key in keys], pa.bool_()))
    rows = []
    cut_keys = todo["cut_key"].to_pylist()
    for done, document in enumerate(tables.documents(todo, with_body=True)):
        rows += [tables.chunk_row(c, cut_keys[done]) for c in chunker.chunk(document)]
        if done % 256 == 0:
            progress("documents chunked", done, len(todo))
    fresh = pa.Table.from_pylist(rows, schema=tables.CHUNKS)
    table = _merged(kept, fresh, [("path", "ascending"), ("position", "ascending")])
    columns = [
        "path",
        "position",
        "content_hash",
        "heading_path",
        "anchor",
        "start_line",
        "end_line",
    ]
    counts = {
        "documents": len(inputs),
        "documents_chunked": len(todo),
        "chunks": len(table),
        "chunks_new": len(fresh),
        "tokens": pc.sum(table["tokens"]).as_py() or 0,
    }
    version = tables.table_digest(table, columns, extra=stage)
    return _result(table, stage, version, parsed, counts)


def embed_chunks(
    chunked: pa.Table,
    previous: pa.Table | None,
    embedder: Embedder,
    cache: EmbeddingCache,
    *,
    dim: int,
    stage: str,
    run_id: str,
    progress: Progress,
) -> StepResult:
    """Vectors of every distinct chunk text: from the previous table, the cache, or the embedder."""
    previous = tables.same_stage(previous, stage, tables.embeddings_schema(dim))
    first_row = _first_rows(chunked["content_hash"].to_pylist())
    old = previous.filter(pc.is_null(previous["rejected"])) if previous is not None else None
    carried = set(old["content_hash"].to_pylist()) & first_row.keys() if old is not None else set()
    missing = [h for h in first_row if h not in carried]
    texts = _texts(chunked, [first_row[h] for h in missing])
    outcome = embed_missing(
        embedder,
        "passage",
        list(zip(missing, texts, strict=True)),
        cache,
        on_progress=lambda done, total: progress("texts embedded", done, total),
    )
    table = _embeddings(old, carried, missing, outcome, embedder, cache, dim)
    counts = {
        "texts": len(first_row),
        "embedded": outcome.embedded,
        "reused": len(first_row) - outcome.embedded - len(outcome.rejected),
        "rejected": len(outcome.rejected),
    }
    columns = ["content_hash", "rejected"]
    version = tables.table_digest(table, columns, extra=stage)
    return _result(table, stage, version, chunked, counts, run_id=run_id)


def _embeddings(
    old: pa.Table | None,
    carried: Collection[str],
    missing: Sequence[str],
    outcome: EmbedOutcome,
    embedder: Embedder,
    cache: EmbeddingCache,
    dim: int,
) -> pa.Table:
    """Carried rows and those that are now in the cache, sorted by hash."""
    good = [h for h in missing if h not in outcome.rejected]
    found = cache.get_many(embedder.fingerprint, "passage", good)
    vectors = np.stack([found[h] for h in good]) if good else np.empty((0, dim), np.float32)
    fresh = tables.embeddings_table(good, vectors, dict(outcome.rejected), dim)
    hashes = old["content_hash"].to_pylist() if old is not None else []
    kept = _where(old, [h in carried for h in hashes])
    return _merged(kept, fresh, [("content_hash", "ascending")])


def texts_to_embed(chunked: pa.Table, known: Collection[str]) -> dict[str, int]:
    """Distinct chunk texts not in ``known``: content_hash -> estimated tokens."""
    hashes, tokens = chunked["content_hash"].to_pylist(), chunked["tokens"].to_pylist()
    return {h: t for h, t in zip(hashes, tokens, strict=True) if h not in known}


def partition_version(listing_version: str, *stages: str) -> str:
    """What the index records for a partition: its contents and everything that was done to them."""
    return sha256_hex(json.dumps([listing_version, *stages]))


def _result(
    table: pa.Table,
    stage: str,
    version: str,
    upstream: pa.Table,
    counts: Mapping[str, int],
    **run: str,
) -> StepResult:
    upstream_version = tables.stamp_of(upstream).get("data_version", "")
    stamped = tables.stamped(table, stage, version, upstream_version, **counts, **run)
    return StepResult(stamped, version, counts)


def _where(table: pa.Table | None, mask: Sequence[bool]) -> pa.Table | None:
    return None if table is None else table.filter(pa.array(mask, pa.bool_()))


def _keys(table: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    return list(zip(*(table[name].to_pylist() for name in columns), strict=True))


def _first_rows(hashes: Sequence[str]) -> dict[str, int]:
    first: dict[str, int] = {}
    for row, content_hash in enumerate(hashes):
        first.setdefault(content_hash, row)
    return first


def _texts(chunked: pa.Table, rows: Sequence[int]) -> list[str]:
    return [chunk.text for chunk in tables.chunks(chunked.take(pa.array(rows, pa.int64())))]


def _merged(kept: pa.Table | None, fresh: pa.Table, order: list[tuple[str, str]]) -> pa.Table:
    if kept is None or not len(kept):
        return fresh.sort_by(order)
    kept = kept.replace_schema_metadata(None)
    return pa.concat_tables([kept, fresh.replace_schema_metadata(None)]).sort_by(order)

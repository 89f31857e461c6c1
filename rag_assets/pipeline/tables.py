"""The Arrow tables that the assets keep, and their rows as the values of ``models.py`` and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from rag_assets.embeddings.base import Vectors
from rag_assets.fingerprints import sha256_hex
from rag_assets.models import Chunk, Document, LeftOut, SourceFile

DOCUMENT: Final = "document"
"""``status`` of rows that are documents; the other rows are left out: excluded or quarantined."""

STAMP_KEY: Final = b"rag_assets"
"""Schema metadata: JSON with ``stage`` (the fingerprint of what made the table; a table of another
stage carries nothing over), ``data_version``, ``upstream`` (the data version it was made from) and
what the run counted."""

_LEFT_OUT = [
    pa.field("reason", pa.string()),
    pa.field("rule", pa.string()),
    pa.field("rule_file", pa.string()),
    pa.field("rule_line", pa.int32()),
]

SOURCE_FILES: Final = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("url", pa.string()),
        pa.field("content", pa.large_binary()),
        pa.field("content_hash", pa.string()),
        pa.field("modified_at", pa.string()),
        pa.field("acl_tags", pa.list_(pa.string())),
        pa.field("version", pa.string()),
        pa.field("media_type", pa.string()),
        pa.field("title", pa.string()),
        pa.field("input_key", pa.string()),
        *_LEFT_OUT,
    ]
)
PARSED_DOCUMENTS: Final = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("url", pa.string()),
        pa.field("title", pa.string()),
        pa.field("body", pa.large_string()),
        pa.field("body_start_line", pa.int32()),
        pa.field("content_hash", pa.string()),
        pa.field("modified_at", pa.string()),
        pa.field("acl_tags", pa.list_(pa.string())),
        pa.field("metadata", pa.string()),
        pa.field("warnings", pa.list_(pa.string())),
        pa.field("language", pa.string()),
        pa.field("lines", pa.list_(pa.int32())),
        pa.field("cut_key", pa.string()),
        pa.field("input_key", pa.string()),
        *_LEFT_OUT,
    ]
)
CHUNKS: Final = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("cut_key", pa.string(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("title", pa.string()),
        pa.field("heading_path", pa.list_(pa.string())),
        pa.field("anchor", pa.string()),
        pa.field("start_line", pa.int32()),
        pa.field("end_line", pa.int32()),
        pa.field("tokens", pa.int32()),
        pa.field("content", pa.large_string()),
        pa.field("content_hash", pa.string(), nullable=False),
    ]
)


def embeddings_schema(dim: int) -> pa.Schema:
    """content_hash -> vector float32[dim], or the reason why the embedder refuses the text."""
    return pa.schema(
        [
            pa.field("content_hash", pa.string(), nullable=False),
            pa.field("vector", pa.list_(pa.float32(), dim)),
            pa.field("rejected", pa.string()),
        ]
    )


def stamped(
    table: pa.Table, stage: str, data_version: str, upstream: str, **counts: Any
) -> pa.Table:
    """The table with its provenance in the schema metadata."""
    stamp = {"stage": stage, "data_version": data_version, "upstream": upstream, **counts}
    return table.replace_schema_metadata({STAMP_KEY: json.dumps(stamp).encode()})


def stamp_of(made: pa.Table | pa.Schema) -> dict[str, Any]:
    """What ``stamped`` recorded; empty for a table of another origin."""
    schema = made if isinstance(made, pa.Schema) else made.schema
    raw = (schema.metadata or {}).get(STAMP_KEY)
    return dict(json.loads(raw)) if raw else {}


def same_stage(table: pa.Table | None, stage: str, schema: pa.Schema) -> pa.Table | None:
    """``table`` when it was made by the same stage with the same columns, else None."""
    if table is None or stamp_of(table).get("stage") != stage:
        return None
    return table if table.schema.equals(schema) else None


FLAGGED: Final = "flagged"
"""Metadata key that says what was found in a document; front matter cannot set it."""


def input_key(file: SourceFile, flag: LeftOut | None = None) -> str:
    """Equal keys mean that parsing would see the same input."""
    known = (file.content_hash, file.url, file.modified_at or "", file.media_type, file.title)
    found = flag.reason if flag is not None else ""
    return sha256_hex("\0".join((*known, found, *file.acl_tags)))[:24]


def source_files_table(
    files: Iterable[SourceFile],
    left_out: Iterable[LeftOut],
    flags: Mapping[str, LeftOut] | None = None,
) -> pa.Table:
    """One row per document or left-out file, sorted by path.

    ``flags`` tell, by path, what was found in documents: it stands in the columns that say of
    other rows why they are left out.
    """
    flags = flags or {}
    rows: list[dict[str, Any]] = [
        {
            "path": f.path,
            "source": f.source,
            "status": DOCUMENT,
            "url": f.url,
            "content": f.content,
            "content_hash": f.content_hash,
            "modified_at": f.modified_at,
            "acl_tags": list(f.acl_tags),
            "version": f.version,
            "media_type": f.media_type,
            "title": f.title,
            "input_key": input_key(f, flags.get(f.path)),
            **(_why(flags[f.path]) if f.path in flags else {}),
        }
        for f in files
    ]
    rows += [left_out_row(item) for item in left_out]
    rows.sort(key=lambda row: (row["path"], row["status"]))
    return pa.Table.from_pylist(rows, schema=SOURCE_FILES)


def source_files(table: pa.Table) -> Iterator[SourceFile]:
    """The documents of a ``source_files`` table."""
    columns = [
        "source", "path", "url", "content", "content_hash", "modified_at", "acl_tags", "version",
        "media_type", "title",
    ]  # fmt: skip
    for row in rows_of(table, columns, DOCUMENT):
        row["acl_tags"] = tuple(row["acl_tags"])
        yield SourceFile(**row)


def cut_key(document: Document) -> str:
    """Equal keys mean that chunking would see the same input."""
    lines = ",".join(map(str, (document.body_start_line, *document.lines)))
    return sha256_hex("\0".join((document.title, lines, document.body)))[:24]


def document_row(document: Document, key: str, flag: LeftOut | None = None) -> dict[str, Any]:
    """A row of ``parsed_documents``; ``flag`` tells what was found in it."""
    metadata = {name: v for name, v in document.metadata.items() if name != FLAGGED}
    if flag is not None:
        metadata[FLAGGED] = flag.reason
    return {
        "path": document.path,
        "source": document.source,
        "status": DOCUMENT,
        "url": document.url,
        "title": document.title,
        "body": document.body,
        "body_start_line": document.body_start_line,
        "content_hash": document.content_hash,
        "modified_at": document.modified_at,
        "acl_tags": list(document.acl_tags),
        "metadata": json.dumps(metadata, ensure_ascii=False, sort_keys=True),
        "warnings": list(document.warnings),
        "language": document.language,
        "lines": list(document.lines),
        "cut_key": cut_key(document),
        "input_key": key,
    }


def left_out_row(item: LeftOut, key: str | None = None) -> dict[str, Any]:
    """A row of ``source_files`` or ``parsed_documents`` for a file that is left out."""
    return {
        "path": item.path,
        "source": item.source,
        "status": item.status,
        "content_hash": item.content_hash,
        "version": item.version,
        "input_key": key,
        **_why(item),
    }


def _why(item: LeftOut) -> dict[str, Any]:
    return {
        "reason": item.reason,
        "rule": item.rule,
        "rule_file": item.rule_file,
        "rule_line": item.rule_line,
    }


def documents(table: pa.Table, *, with_body: bool) -> Iterator[Document]:
    """The documents of a ``parsed_documents`` table; bodies are left empty unless asked for."""
    columns = [
        "source", "path", "url", "title", "body_start_line", "content_hash", "modified_at",
        "acl_tags", "metadata", "warnings", "language", "lines",
    ]  # fmt: skip
    for row in rows_of(table, [*columns, "body"] if with_body else columns, DOCUMENT):
        row.setdefault("body", "")
        row["acl_tags"] = tuple(row["acl_tags"])
        row["warnings"] = tuple(row["warnings"])
        row["lines"] = tuple(row["lines"])
        row["metadata"] = json.loads(row["metadata"])
        yield Document(**row)


_LEFT_OUT_COLUMNS: Final = ["source", "path", "status", "reason", "rule", "rule_file", "rule_line"]


def left_out(table: pa.Table) -> list[LeftOut]:
    """The left-out and flagged rows of a ``source_files`` or ``parsed_documents`` table."""
    mask = pa.compute.not_equal(table["status"], DOCUMENT)
    columns = [*_LEFT_OUT_COLUMNS, "content_hash"]
    versioned = [*columns, "version"] if "version" in table.column_names else columns
    rows = table.filter(mask).select(versioned).to_pylist()
    for row in rows:
        row.update({key: row[key] or "" for key in versioned[len(_LEFT_OUT_COLUMNS) :]})
    return [LeftOut(**row) for row in rows]


def flags(table: pa.Table) -> dict[str, LeftOut]:
    """By path, what was found in the documents of a ``source_files`` table."""
    found = pa.compute.and_(
        pa.compute.equal(table["status"], DOCUMENT), pa.compute.is_valid(table["reason"])
    )
    columns = [*_LEFT_OUT_COLUMNS, "content_hash", "version"]
    rows = table.filter(found).select(columns).to_pylist()
    return {row["path"]: LeftOut(**{**row, "status": "flagged"}) for row in rows}


def chunk_row(chunk: Chunk, key: str) -> dict[str, Any]:
    """A row of ``chunks``."""
    return {
        "path": chunk.path,
        "source": chunk.source,
        "cut_key": key,
        "position": chunk.position,
        "title": chunk.title,
        "heading_path": list(chunk.heading_path),
        "anchor": chunk.anchor,
        "start_line": chunk.start_line,
        "end_line": chunk.end_line,
        "tokens": chunk.tokens,
        "content": chunk.content,
        "content_hash": chunk.content_hash,
    }


def chunks(table: pa.Table) -> Iterator[Chunk]:
    """The chunks of a ``chunks`` table, in its order (path, position)."""
    columns = [name for name in CHUNKS.names if name != "cut_key"]
    for row in table.select(columns).to_pylist():
        row["heading_path"] = tuple(row["heading_path"])
        yield Chunk(**row)


def embeddings_table(
    hashes: Sequence[str], vectors: Vectors, rejected: dict[str, str], dim: int
) -> pa.Table:
    """Rows for embedded texts (``vectors`` float32 [len(hashes), dim]) and for refused ones."""
    schema = embeddings_schema(dim)
    flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).reshape(-1))
    good = pa.table(
        {
            "content_hash": pa.array(hashes, pa.string()),
            "vector": pa.FixedSizeListArray.from_arrays(flat, dim),
            "rejected": pa.nulls(len(hashes), pa.string()),
        },
        schema=schema,
    )
    bad = pa.Table.from_pylist(
        [{"content_hash": h, "vector": None, "rejected": why} for h, why in rejected.items()],
        schema=schema,
    )
    return pa.concat_tables([good, bad])


def embedding_vectors(table: pa.Table) -> tuple[dict[str, int], Vectors]:
    """Row number by content_hash, and the vectors float32 [rows, dim], of the embedded texts."""
    dim = table.schema.field("vector").type.list_size
    good = table.filter(pa.compute.is_valid(table["vector"])).combine_chunks()
    column = good["vector"]
    parts = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]
    flat = np.concatenate(parts) if parts else np.empty(0, np.float32)
    rows = {h: i for i, h in enumerate(good["content_hash"].to_pylist())}
    return rows, flat.astype(np.float32, copy=False).reshape(-1, dim)


def rows_of(table: pa.Table, columns: Sequence[str], status: str) -> list[dict[str, Any]]:
    """The rows of that status as dictionaries of the named columns."""
    mask = pa.compute.equal(table["status"], status)
    rows: list[dict[str, Any]] = table.filter(mask).select(columns).to_pylist()
    return rows


def table_digest(table: pa.Table, columns: Sequence[str], *, extra: str) -> str:
    """sha256 over the named columns of every row and ``extra`` (a stage fingerprint)."""
    rows = table.select(columns).to_pylist()
    return sha256_hex(json.dumps([extra, *([*row.values()] for row in rows)], ensure_ascii=False))

"""Rows of the index from and to the values of the package, and the checksums kept beside them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from rag_assets.models import (
    Chunk,
    Document,
    IngestRun,
    LeftOut,
    LeftOutStatus,
    Reason,
    RunStatus,
)

CHUNK_COLUMNS: Final = (
    "position, title, heading_path, anchor, start_line, end_line, tokens, content_hash, content"
)
"""What ``chunk_row`` gives and ``chunk_from_row`` takes, in this order."""
DOCUMENT_COLUMNS: Final = (
    "source, path, url, title, body_start_line, content_hash, modified_at, language, metadata, "
    "warnings"
)
"""What ``document_row`` gives and ``document_from_row`` takes, in this order."""
LEFT_OUT_COLUMNS: Final = "source, path, status, reason, rule, rule_file, rule_line"
RUN_COLUMNS: Final = (
    "run_id, partition, source, started_at, finished_at, status, error, documents_seen, "
    "documents_indexed, documents_skipped, documents_removed, documents_excluded, "
    "chunks_upserted, chunks_unchanged, chunks_embedded, duration_seconds"
)
"""The fields of ``IngestRun``, in this order."""

_LANGUAGE: Final = re.compile("[a-z]{2,8}")
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def storable(text: str) -> str:
    """``text`` as UTF-8 can hold it: lone surrogates spelled out, as ``\\udc80``."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def stored_language(language: str) -> str:
    """A primary language subtag, or nothing for what is none: it becomes part of every term."""
    return language if _LANGUAGE.fullmatch(language) and language != "und" else ""


def checksum(data: bytes) -> int:
    """The first eight bytes of BLAKE2b of ``data`` as a signed integer, what SQLite stores best."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little", signed=True)


def json_text(value: Any) -> str:
    """Compact JSON of strings, lists and mappings, as it is stored."""
    return storable(_encode(value))


def tags_text(tags: Iterable[str]) -> str:
    """The canonical text of a set of ACL tags."""
    return json_text(sorted(set(tags)))


def chunk_row(chunk: Chunk) -> tuple[Any, ...]:
    """``CHUNK_COLUMNS`` of ``chunk``."""
    return (
        chunk.position,
        storable(chunk.title),
        json_text(chunk.heading_path),
        storable(chunk.anchor),
        chunk.start_line,
        chunk.end_line,
        chunk.tokens,
        chunk.content_hash,
        storable(chunk.content),
    )


def row_checksum(row: Sequence[Any]) -> int:
    """The checksum over all of ``CHUNK_COLUMNS``, as one JSON list in UTF-8."""
    return checksum(_encode(row).encode())


def chunk_from_row(source: str, path: str, row: Sequence[Any]) -> Chunk:
    """The chunk that ``CHUNK_COLUMNS`` hold."""
    position, title, heading_path, anchor, start, end, tokens, content_hash, content = row
    return Chunk(
        source=source,
        path=path,
        position=position,
        title=title,
        heading_path=tuple(json.loads(heading_path)),
        anchor=anchor,
        start_line=start,
        end_line=end,
        tokens=tokens,
        content=content,
        content_hash=content_hash,
    )


def document_row(document: Document) -> tuple[Any, ...]:
    """``DOCUMENT_COLUMNS`` of ``document``."""
    return (
        storable(document.source),
        storable(document.path),
        storable(document.url),
        storable(document.title),
        document.body_start_line,
        document.content_hash,
        document.modified_at,
        stored_language(document.language),
        json_text(dict(document.metadata)),
        json_text(document.warnings),
    )


def document_from_row(row: Sequence[Any], tags: str) -> Document:
    """The document, without its body, that ``DOCUMENT_COLUMNS`` and the text of its tags hold."""
    source, path, url, title, start, content_hash, modified_at, language, metadata, warnings = row
    return Document(
        source=source,
        path=path,
        url=url,
        title=title,
        body="",
        body_start_line=start,
        content_hash=content_hash,
        modified_at=modified_at,
        acl_tags=tuple(json.loads(tags)),
        metadata=json.loads(metadata),
        warnings=tuple(json.loads(warnings)),
        language=language,
    )


def left_out_row(item: LeftOut) -> tuple[Any, ...]:
    """``LEFT_OUT_COLUMNS`` of ``item``."""
    rule_file = None if item.rule_file is None else storable(item.rule_file)
    return (
        storable(item.source),
        storable(item.path),
        item.status,
        item.reason,
        storable(item.rule),
        rule_file,
        item.rule_line,
    )


def left_out_from_row(row: Sequence[Any]) -> LeftOut:
    """The ledger entry that ``LEFT_OUT_COLUMNS`` hold."""
    source, path, status, reason, rule, rule_file, rule_line = row
    return LeftOut(
        source,
        path,
        cast("LeftOutStatus", status),
        cast("Reason", reason),
        rule,
        rule_file,
        rule_line,
    )


def run_row(run: IngestRun) -> tuple[Any, ...]:
    """``RUN_COLUMNS`` of ``run``."""
    values = (getattr(run, name) for name in RUN_COLUMNS.split(", "))
    return tuple(storable(value) if isinstance(value, str) else value for value in values)


def run_from_row(row: Sequence[Any]) -> IngestRun:
    """The run that ``RUN_COLUMNS`` hold."""
    fields = dict(zip(RUN_COLUMNS.split(", "), row, strict=True))
    return IngestRun(**{**fields, "status": cast("RunStatus", fields["status"])})

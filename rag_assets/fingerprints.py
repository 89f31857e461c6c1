"""Hashes that say "the same": of contents, of what a stage does, of what an index row holds.

Standard library only: the look for changes imports this before anything heavy.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rag_assets.models import Chunk, Document

SOURCES_VERSION: Final = "3"
"""Raise when governance or the listing would leave in or out other files."""
DOCUMENTS_VERSION: Final = "3"
"""Raise when parsing would give another document."""
SCREENING_VERSION: Final = "1"
"""Raise when screening would find other things."""
CHUNKING_VERSION: Final = "1"
"""Raise when chunking would give other chunks."""
ANALYSIS_VERSION: Final = "1"
"""Raise when the analyser of the full-text index would make other terms of a text."""
INDEX_VERSION: Final = "2"
"""Raise when the index would hold other rows for the same chunks and vectors."""


def sha256_hex(data: bytes | str) -> str:
    """sha256 as 64 hex digits; a str is encoded as UTF-8 (lone surrogates kept as three bytes)."""
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest()


def fingerprint(*parts: Any) -> str:
    """A short stable name for a tuple of JSON-able values: 16 hex digits."""
    return sha256_hex(json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str))[:16]


def document_digest(document: Document, chunks: Sequence[Chunk]) -> str:
    """sha256 over all that an index stores for a document, so equal digests mean nothing to write.

    ``modified_at`` is left out: a file that was merely touched is the same document.
    """
    head = [
        INDEX_VERSION,
        ANALYSIS_VERSION,
        document.source,
        document.path,
        document.url,
        document.title,
        document.content_hash,
        list(document.acl_tags),
        sorted(document.metadata.items()),
        document.language,
    ]
    rows = [
        [c.position, c.content_hash, list(c.heading_path), c.anchor, c.start_line, c.end_line]
        for c in chunks
    ]
    return sha256_hex(json.dumps([head, rows], ensure_ascii=False))

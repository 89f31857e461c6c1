"""A passage and its document in, what can be cited of them out: a hit, a URL with its anchor."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from rag_assets.models import Chunk, Hit, ScoreKind

_FRAGMENT_SAFE: Final = "!$&'()*+,;=:@/?-._~"
"""What RFC 3986 allows in a fragment without percent-encoding, letters and digits apart."""


def citation_url(url: str, anchor: str) -> str:
    """``url`` with ``anchor`` as its fragment, percent-encoded; a URL that has one keeps it."""
    if not url or not anchor or "#" in url:
        return url
    return f"{url}#{quote(anchor, safe=_FRAGMENT_SAFE)}"


def hit_from_chunk(
    chunk: Chunk,
    *,
    url: str,
    language: str,
    modified_at: str | None,
    rank: int,
    score: float,
    score_kind: ScoreKind,
    vector_score: float | None = None,
    text_score: float | None = None,
    vector_rank: int | None = None,
    text_rank: int | None = None,
) -> Hit:
    """A hit: the chunk, what is cited of its document, and its scores."""
    return Hit(
        rank=rank,
        score=score,
        vector_score=vector_score,
        source=chunk.source,
        path=chunk.path,
        title=chunk.title,
        section=chunk.section,
        heading_path=chunk.heading_path,
        anchor=chunk.anchor,
        url=citation_url(url, chunk.anchor),
        start_line=chunk.start_line,
        end_line=chunk.end_line,
        position=chunk.position,
        content=chunk.content,
        content_hash=chunk.content_hash,
        text_score=text_score,
        score_kind=score_kind,
        vector_rank=vector_rank,
        text_rank=text_rank,
        language=language,
        modified_at=modified_at,
    )

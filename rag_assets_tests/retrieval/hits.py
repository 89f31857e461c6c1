"""Hits made of text, or of a real document cut by the real chunker, for the retrieval tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rag_assets.models import Chunk, Hit
from rag_assets_tests.chunking.documents import chunks_of


def hit(content: str, **fields: Any) -> Hit:
    """A hit with this text; every other field has a plausible value."""
    values: dict[str, Any] = {
        "rank": 1,
        "score": 0.9,
        "vector_score": 0.9,
        "source": "guides",
        "path": "a.md",
        "title": "Titre",
        "section": "Section",
        "heading_path": ("Section",),
        "anchor": "section",
        "url": "https://wiki.example/a.md#section",
        "start_line": 3,
        "end_line": 9,
        "position": 0,
    }
    return Hit(content=content, **{**values, **fields})


def ranked(*contents: str) -> list[Hit]:
    """Hits with these texts from documents of their own, best first."""
    return [
        hit(content, rank=rank, path=f"{rank}.md", score=1 / rank)
        for rank, content in enumerate(contents, start=1)
    ]


def hit_of(chunk: Chunk, rank: int) -> Hit:
    """The hit that the index would make of a chunk."""
    return hit(
        chunk.content,
        rank=rank,
        score=1 / rank,
        source=chunk.source,
        path=chunk.path,
        title=chunk.title,
        section=chunk.section,
        heading_path=chunk.heading_path,
        anchor=chunk.anchor,
        start_line=chunk.start_line,
        end_line=chunk.end_line,
        position=chunk.position,
        content_hash=chunk.content_hash,
    )


def hits_of(body: str, size: int, overlap: int, order: Sequence[int] | None = None) -> list[Hit]:
    """All passages of a document as hits, ranked in reading order or in the given ``order``."""
    chunks = chunks_of(body, size, overlap)
    places = range(len(chunks)) if order is None else order
    return [hit_of(chunks[place], rank) for rank, place in enumerate(places, start=1)]

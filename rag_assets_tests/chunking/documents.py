"""Documents made of a body, and the law that chunking keeps, for the chunking tests."""

from __future__ import annotations

from rag_assets.chunking.markdown import MarkdownChunker
from rag_assets.fingerprints import sha256_hex
from rag_assets.markdown import normalise_line_ends, outline
from rag_assets.models import Chunk, Document


def document(body: str, *, title: str = "Page", body_start_line: int = 1) -> Document:
    """A document as the documents stage would give it."""
    return Document(
        "docs", "page.md", "", title, body, body_start_line, sha256_hex(body), None, ("public",)
    )


def chunks_of(body: str, *args: int, title: str = "Page", **settings: object) -> list[Chunk]:
    """The passages of ``body``, cut with the given settings."""
    chunker = MarkdownChunker(*args, **settings)  # type: ignore[arg-type]
    return chunker.chunk(document(body, title=title))


def anchors_of(body: str, style: str = "github") -> list[str]:
    """The anchors of the sections of ``body``, in order, one for each section."""
    found: list[str] = []
    for chunk in chunks_of(body, anchor_style=style):
        if not found or found[-1] != chunk.anchor:
            found.append(chunk.anchor)
    return found


def assert_nothing_is_lost(
    body: str, *args: int, title: str = "Page", **settings: object
) -> list[Chunk]:
    """Cut ``body`` and hold the passages to the law; returns them.

    Every passage is a run of the source (below the repeated header rows of a table). What is new in
    it follows what the passages before held, with nothing but white space between; what is not new
    is the end of the passage before. Passages begin ever later, and their lines are true.
    """
    chunker = MarkdownChunker(*args, **settings)  # type: ignore[arg-type]
    text = normalise_line_ends(body)
    chunks = chunker.chunk(document(body, title=title))
    places = [passage for _, passage in chunker.passages(title, outline(text))]
    covered = 0
    last_start = -1
    for chunk, place in zip(chunks, places, strict=True):
        content = text[place.start : place.end]
        if place.header:
            content = text[place.header.start : place.header.end] + "\n" + content
        assert chunk.content == content
        assert not text[covered : place.new_from].strip(), (
            f"lost {text[covered : place.new_from]!r}"
        )
        assert last_start < place.start <= place.new_from < place.end
        assert place.start == place.new_from or place.start < covered
        assert chunk.start_line == text.count("\n", 0, place.start) + 1
        assert chunk.end_line == text.count("\n", 0, place.end) + 1
        covered, last_start = place.end, place.start
    assert not text[covered:].strip(), f"lost at the end: {text[covered:][:200]!r}"
    return chunks

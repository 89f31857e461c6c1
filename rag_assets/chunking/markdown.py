"""Documents in, passages out: sections packed to a size, each with its place and anchor."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final, get_args

from rag_assets.chunking.anchors import AnchorStyle, anchors
from rag_assets.chunking.packing import Limits, Passage, pack
from rag_assets.chunking.sections import Section, sections
from rag_assets.errors import ChunkingError
from rag_assets.fingerprints import CHUNKING_VERSION, fingerprint, sha256_hex
from rag_assets.markdown import Outline, normalise_line_ends, outline
from rag_assets.models import Chunk, Document, embedding_text
from rag_assets.tokens import (
    BASE_TOKENS,
    HUNDREDTHS,
    TOKENS_PER_WORD,
    estimate_tokens,
    token_weight,
)

RESERVED_TOKENS: Final = 8
"""Of ``limit_tokens``, for what the embedder adds: ``<s>``, ``</s>`` and a prefix (``passage: ``
has 2 tokens, ``search_document: `` 5)."""
MAX_REAL_PER_ESTIMATED: Final = 3
"""A passage is also full at ``size`` x this in ``upper_bound_tokens``: text without spaces
(Chinese, Japanese) has almost no words to count."""
OVERLAP_REAL_PER_ESTIMATED: Final = 2
"""The same for the overlap, which is repeated and so should stay small."""


class MarkdownChunker:
    """The ``Chunker`` for Markdown.

    A passage is a slice of the document's text with line ends as LF (so that a file whose line ends
    alone changed gives the same passages and nothing is embedded again), below the repeated header
    rows where a table had to be split. ``start_line`` and ``end_line`` are those of the slice, its
    overlap included. A passage never reaches into another section.
    """

    def __init__(
        self,
        size: int = 512,
        overlap: int = 64,
        *,
        anchor_style: AnchorStyle = "github",
        limit_tokens: int = 512,
    ) -> None:
        """``size`` and ``overlap`` are in ``estimate_tokens``, ``limit_tokens`` is how many tokens
        the embedder reads, in ``upper_bound_tokens`` of ``Chunk.text``.

        Raises:
            ChunkingError: unless ``size > 0``, ``0 <= overlap < size``, ``limit_tokens > 0``, whole
                numbers all, and a known anchor style.
        """
        _check_whole("size", size, at_least=1)
        _check_whole("overlap", overlap, at_least=0)
        _check_whole("limit_tokens", limit_tokens, at_least=1)
        if overlap >= size:
            raise ChunkingError(
                f"chunk.overlap is {overlap} and chunk.size is {size}: the overlap must be smaller."
            )
        if anchor_style not in get_args(AnchorStyle):
            raise ChunkingError(
                f"chunk.anchor_style is {anchor_style!r}; choose one of "
                f"{', '.join(get_args(AnchorStyle))}."
            )
        self._anchor_style: AnchorStyle = anchor_style
        self._limit_weight = limit_tokens * HUNDREDTHS
        self._size_weight = size * MAX_REAL_PER_ESTIMATED * HUNDREDTHS
        self._words = _words_of(size)
        self._overlap_words = _words_of(overlap)
        self._overlap_weight = overlap * OVERLAP_REAL_PER_ESTIMATED * HUNDREDTHS
        self._fingerprint = fingerprint(
            "markdown", CHUNKING_VERSION, size, overlap, anchor_style, limit_tokens
        )

    @property
    def fingerprint(self) -> str:
        """16 hex digits over the settings and ``CHUNKING_VERSION``."""
        return self._fingerprint

    def chunk(self, document: Document) -> list[Chunk]:
        """The passages of ``document`` in reading order; together they hold all of its text."""
        found = outline(normalise_line_ends(document.body))
        passages = enumerate(self.passages(document.title, found))
        return [
            _chunk(document, found, section, passage, position)
            for position, (section, passage) in passages
        ]

    def passages(self, title: str, found: Outline) -> Iterator[tuple[Section, Passage]]:
        """Where the passages of an outlined text lie, in order, each with its section."""
        for section in sections(found, anchors(found.headings, self._anchor_style)):
            blocks = found.blocks[section.first : section.last]
            for passage in pack(found, blocks, self._limits(title, section)):
                yield section, passage

    def _limits(self, title: str, section: Section) -> Limits:
        """What the title and headings leave of the embedder's limit, at least half of it."""
        prefix = token_weight(embedding_text(title, section.heading_path, ""))
        taken = prefix + (RESERVED_TOKENS + BASE_TOKENS) * HUNDREDTHS
        hard = max(self._limit_weight // 2, self._limit_weight - taken)
        weight = min(hard, self._size_weight)
        return Limits(
            words=self._words,
            weight=weight,
            hard_weight=hard,
            overlap_words=self._overlap_words,
            overlap_weight=min(self._overlap_weight, weight // 2),
        )


def _chunk(
    document: Document, found: Outline, section: Section, passage: Passage, position: int
) -> Chunk:
    text, starts = found.text, found.line_starts
    content = text[passage.start : passage.end]
    if passage.header is not None:
        content = f"{text[passage.header.start : passage.header.end]}\n{content}"
    first_line = bisect_right(starts, passage.start)
    last_line = bisect_right(starts, max(passage.start, passage.end - 1))
    return Chunk(
        source=document.source,
        path=document.path,
        position=position,
        title=document.title,
        heading_path=section.heading_path,
        anchor=section.anchor,
        start_line=_line_of_file(document, first_line),
        end_line=_line_of_file(document, last_line),
        tokens=estimate_tokens(content),
        content=content,
        content_hash=sha256_hex(embedding_text(document.title, section.heading_path, content)),
    )


def _line_of_file(document: Document, line: int) -> int:
    """Where the 1-based ``line`` of the body stands in the file."""
    if document.lines:
        return document.lines[line - 1]
    return document.body_start_line - 1 + line


def _words_of(tokens: int) -> int:
    """The most words whose estimate is within ``tokens``."""
    words = int(tokens / TOKENS_PER_WORD) + 1
    while math.ceil(words * TOKENS_PER_WORD) > tokens:
        words -= 1
    return words


def _check_whole(name: str, value: Any, *, at_least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise ChunkingError(f"chunk.{name} is {value!r}; give a whole number, {at_least} or more.")

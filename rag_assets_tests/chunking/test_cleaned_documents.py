"""Passages of a cleaned document cite the lines of the file, not those of the cleaned text."""

from __future__ import annotations

from dataclasses import replace

from rag_assets.chunking.markdown import MarkdownChunker
from rag_assets_tests.chunking.documents import document


def test_passages_cite_the_lines_that_the_document_tells() -> None:
    """Lines may be missing in the text, or several may come from one."""
    cleaned = replace(
        document("# Un\n\ntexte\n# Deux\n\n| a |\n| - |\n| b |\n", body_start_line=4),
        lines=(4, 5, 9, 12, 13, 14, 14, 15, 16),
    )
    chunks = MarkdownChunker().chunk(cleaned)
    assert [(chunk.start_line, chunk.end_line) for chunk in chunks] == [(4, 9), (12, 15)]


def test_without_told_lines_they_follow_the_beginning_of_the_body() -> None:
    """As for every document in which nothing had to be moved."""
    chunks = MarkdownChunker().chunk(document("# Un\n\ntexte\n", body_start_line=4))
    assert [(chunk.start_line, chunk.end_line) for chunk in chunks] == [(4, 6)]

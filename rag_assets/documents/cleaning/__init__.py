"""Markdown in, Markdown of what a reader sees out, on the same lines."""

from rag_assets.documents.cleaning.clean import Cleaned, clean_markdown

__all__ = ["Cleaned", "clean_markdown"]

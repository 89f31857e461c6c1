"""Markdown in a git repository: read at a ref, without a checkout."""

from rag_assets.sources.git.tree import GitTree

__all__ = ["GitTree"]

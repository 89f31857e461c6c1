"""The pages of a BookStack."""

from rag_assets.sources.bookstack.source import BookStackSource

__all__ = ["BookStackSource"]

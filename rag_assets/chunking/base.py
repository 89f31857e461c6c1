"""The contract of a chunker: a document in, its passages out, no text lost."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from rag_assets.models import Chunk, Document


@runtime_checkable
class Chunker(Protocol):
    """Cuts documents into passages. Pure: the same document gives the same chunks."""

    @property
    def fingerprint(self) -> str:
        """Changes whenever the same document could give other chunks."""
        ...

    def chunk(self, document: Document) -> list[Chunk]:
        """The passages of ``document`` in reading order; together they hold all of its text.

        A document without any text gives an empty list.
        """
        ...

"""Embedders that fail, for tests; named in configurations by import path."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rag_assets.embeddings.base import InputType, Vectors
from rag_assets.errors import InvalidInput, Unavailable
from rag_assets.testing.embedders import StubEmbedder

FAILS_AFTER_TEXTS: int | None = None
"""How many lines the log may have before the embedder is down."""


class FailingEmbedder(StubEmbedder):
    """Goes down when its log has ``FAILS_AFTER_TEXTS`` lines."""

    def __init__(self, log_path: str, **options: Any) -> None:
        super().__init__(log_path=log_path, **options)
        self.log = Path(log_path)

    def embed(self, type: InputType, texts: Sequence[str]) -> Vectors:
        """As its base, until it is down."""
        done = self.log.read_bytes().count(b"\n")
        if FAILS_AFTER_TEXTS is not None and done >= FAILS_AFTER_TEXTS:
            raise Unavailable("the embedder is down")
        return super().embed(type, texts)


class PickyEmbedder(StubEmbedder):
    """Refuses one word."""

    def __init__(self, **options: Any) -> None:
        super().__init__(reject=lambda text: "INDIGESTE" in text and "?" not in text, **options)


class QuotingEmbedder(StubEmbedder):
    """Quotes the whole text in every error.

    With ``INDIGESTE`` the text is refused, with ``PANNE`` the embedder says that it is down.
    """

    def embed(self, type: InputType, texts: Sequence[str]) -> Vectors:
        """As its base, or an error that holds the text in several spellings."""
        for text in texts:
            quoted = f"{text!r} and {json.dumps(text)} and {text}"
            if "INDIGESTE" in text:
                raise InvalidInput(f"cannot read {quoted}")
            if "PANNE" in text:
                raise Unavailable(f"out of memory at {quoted}")
        return super().embed(type, texts)

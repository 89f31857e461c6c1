"""The contract of an embedder: texts in, unit vectors out, in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from rag_assets.models import EmbedderHealth

InputType = Literal["query", "passage"]
Vectors = npt.NDArray[np.float32]
"""float32, shape [n, dim], rows of length 1."""


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors. Implementations are safe to call from several threads.

    Prefixes that a model needs are applied by exactly one side: the adapter, or the server behind
    it. A text longer than the model reads is embedded by windows, never cut off silently.
    """

    @property
    def fingerprint(self) -> str:
        """Identifies the vector space: model, weights, prefix rule. May call ``health`` once.

        Raises:
            Unavailable: the model cannot be asked.
        """
        ...

    @property
    def batch_size(self) -> int:
        """How many texts a caller should hand over at once for good throughput."""
        ...

    def health(self) -> EmbedderHealth:
        """Ask the embedder who it is.

        Raises:
            Unavailable: it does not answer.
            MalformedResponse: it answers something else.
        """
        ...

    def embed(self, type: InputType, texts: Sequence[str]) -> Vectors:
        """float32 [len(texts), dim], row i for ``texts[i]``, finite, length 1. [] gives [0, dim].

        Raises:
            InvalidInput: a text is refused and will always be.
            Unavailable: no answer now; retries inside are used up.
            MalformedResponse: wrong count, dimension, type or model, or a vector that is not
                finite or is zero.
        """
        ...

    def close(self) -> None:
        """Release connections and memory; the object is not used afterwards."""
        ...

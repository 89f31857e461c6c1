"""A deterministic embedder that costs nothing: texts that share words get vectors that are near."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from rag_assets.embeddings.base import InputType, Vectors
from rag_assets.errors import InvalidInput
from rag_assets.fingerprints import sha256_hex
from rag_assets.models import EmbedderHealth

_PUNCTUATION: Final = '.,;:!?…()[]{}<>«»"`*_#|-–—'
"""Stripped from words; a regular expression would cost more than all the rest."""
_OWN_SHARE: Final = 1e-3
"""How much of a vector is the text's own, so texts with the same words still differ."""


class StubEmbedder:
    """An ``Embedder`` for tests: a bag of hashed words, equal on every machine and in every run.

    ``texts_embedded`` and ``calls`` count what it was asked. With ``log_path``, the sha256 of every
    text is appended to that file, one per line, before its vector is given: what a killed process
    had embedded can be read there. ``reject`` names texts to refuse with ``InvalidInput``,
    ``before`` is called with every batch and may raise or wait.
    """

    def __init__(
        self,
        dim: int = 32,
        *,
        model: str = "stub",
        batch_size: int = 64,
        concurrency: int = 1,
        log_path: Path | str | None = None,
        reject: Callable[[str], bool] | None = None,
        before: Callable[[Sequence[str]], None] | None = None,
        seconds_per_text: float = 0.0,
    ) -> None:
        self.dim = dim
        self.model = model
        self.concurrency = concurrency
        self.texts_embedded = 0
        self.calls = 0
        self._batch_size = batch_size
        self._log_path = log_path
        self._reject = reject
        self._before = before
        self._seconds_per_text = seconds_per_text
        self._rows: dict[str, int] = {}
        self._table = np.empty((1024, dim), np.float32)
        """Vectors of the words met so far; ``_rows`` says which is whose."""
        self._lock = threading.Lock()

    @property
    def fingerprint(self) -> str:
        return f"stub:{self.model}:{self.dim}"

    @property
    def batch_size(self) -> int:
        return self._batch_size

    def health(self) -> EmbedderHealth:
        """Always well."""
        return EmbedderHealth("ok", self.model, self.dim)

    def embed(self, type: InputType, texts: Sequence[str]) -> Vectors:
        """float32 [len(texts), dim], unit rows; queries and passages share one space.

        Raises:
            InvalidInput: ``reject`` says so of a text.
        """
        if type not in ("query", "passage"):
            raise ValueError(f"type must be 'query' or 'passage', not {type!r}")
        with self._lock:
            self.calls += 1
            self.texts_embedded += len(texts)
        if self._before is not None:
            self._before(texts)
        if self._seconds_per_text:
            time.sleep(self._seconds_per_text * len(texts))
        for position, text in enumerate(texts):
            if self._reject is not None and self._reject(text):
                raise InvalidInput(f"text {position} is refused")
        self._log(texts)
        if not texts:
            return np.empty((0, self.dim), np.float32)
        return np.stack([self._vector(text) for text in texts])

    def close(self) -> None:
        """Nothing to release."""

    def _vector(self, text: str) -> Vectors:
        total = self._hashed(text) * np.float32(_OWN_SHARE)
        words = text.casefold().replace("'", " ").replace("’", " ").split()
        if words:
            known = self._rows
            bare = [word.strip(_PUNCTUATION) for word in words]
            rows = [known[word] if word in known else self._learn(word) for word in bare]
            total = total + self._table[rows].sum(axis=0)
        unit: Vectors = (total / np.linalg.norm(total)).astype(np.float32)
        return unit

    def _learn(self, word: str) -> int:
        with self._lock:
            row = self._rows.get(word, len(self._rows))
            if row == len(self._table):
                self._table = np.concatenate([self._table, np.empty_like(self._table)])
            self._table[row] = self._hashed(word)
            # Last, so that no other thread sees a row before its vector is there.
            self._rows[word] = row
        return row

    def _hashed(self, text: str) -> Vectors:
        """float32 [dim], about unit length, out of nothing but the text's bytes."""
        seed = text.encode("utf-8", "surrogatepass")
        raw = hashlib.shake_128(seed).digest(self.dim * 4)
        numbers = np.frombuffer(raw, "<i4").astype(np.float32)
        unit: Vectors = numbers / np.float32(np.linalg.norm(numbers))
        return unit

    def _log(self, texts: Sequence[str]) -> None:
        if self._log_path is None or not texts:
            return
        lines = "".join(f"{sha256_hex(text)}\n" for text in texts)
        # One write in append mode: lines of several processes never mix.
        file = os.open(self._log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(file, lines.encode("ascii"))
        finally:
            os.close(file)

"""The HTTP embedder keeps the embedder contract, over a real socket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rag_assets.embeddings.base import Embedder
from rag_assets.embeddings.http import HttpEmbedder
from rag_assets.testing.embedder_contract import EmbedderContract
from rag_assets.testing.embedders import StubEmbedder

from .contract_server import serve


class TestHttpEmbedder(EmbedderContract):
    """One request at a time."""

    concurrency = 1

    @pytest.fixture(scope="class")
    def embedder(self) -> Iterator[Embedder]:
        with serve(StubEmbedder()) as url:
            embedder = HttpEmbedder(url, batch_size=16, concurrency=self.concurrency)
            yield embedder
            embedder.close()


class TestConcurrentHttpEmbedder(TestHttpEmbedder):
    """Several requests under way at once."""

    concurrency = 4


class TestServerThatRefusesEmptyTexts(EmbedderContract):
    """Refusing (422) is as good as embedding."""

    @pytest.fixture(scope="class")
    def embedder(self) -> Iterator[Embedder]:
        with serve(StubEmbedder(reject=lambda text: not text.strip())) as url:
            embedder = HttpEmbedder(url)
            yield embedder
            embedder.close()

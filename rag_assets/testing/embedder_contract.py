"""What every ``Embedder`` must do, as tests: subclass, override one fixture, run pytest."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
import pytest

from rag_assets.embeddings.base import Embedder, InputType, Vectors
from rag_assets.errors import InvalidInput

TEXTS: Final = (
    "Comment demander des congés ?",
    "The backup runs every night at two.",
    "L'été, le pare-feu de l'œuvre reste ouvert.",
    "def main() -> int:\n    return 0\n",
    "Réinitialiser le mot de passe d'un compte",
    "38.101 % of C++ builds failed (see l. 12).",
    "短い文章です。",
)
"""Different texts, French and English first of all."""

HOSTILE_TEXTS: Final = {
    "empty": "",
    "blank": " \t\n\u00a0 ",
    "nul": "before\x00after",
    "lone_surrogate": "half \ud83d of an emoji",
    "emoji": "👩‍👩‍👧‍👦 🇫🇷 ❤️",
    "right_to_left": "\u202eadmin\u202c مرحبا",
    "long_ligature": "\ufdfa" * 1000,
    "combining": "e" + "\u0301" * 500,
    "no_blanks": "a" * 20_000,
    "long": "Une phrase assez ordinaire, répétée. " * 2_800,
}
"""Each is either embedded or refused with ``InvalidInput``; nothing else, and no crash."""

LONG_TEXT_WORDS: Final = 1_500
UNIT_TOLERANCE: Final = 1e-3
BATCH_TOLERANCE: Final = 1e-2
"""How far (cosine) a vector may move with the texts beside it: padding in quantised arithmetic."""


class EmbedderContract:
    """Tests of the promises in ``rag_assets.embeddings.base``.

    ::

        class TestMine(EmbedderContract):
            @pytest.fixture(scope="class")
            def embedder(self):
                mine = MyEmbedder()
                yield mine
                mine.close()
    """

    @pytest.fixture(scope="class")
    def embedder(self) -> Iterator[Embedder]:
        """The embedder under test; override this."""
        raise NotImplementedError("override the fixture `embedder`")

    def test_health_names_model_and_dimension(self, embedder: Embedder) -> None:
        """A model name and a positive dimension, equal to that of the vectors."""
        health = embedder.health()
        assert health.status == "ok"
        assert health.model
        assert health.dim == embedder.embed("passage", TEXTS[:1]).shape[1]

    def test_it_is_an_embedder(self, embedder: Embedder) -> None:
        """All members of the protocol are there."""
        assert isinstance(embedder, Embedder)
        assert embedder.batch_size >= 1

    def test_fingerprint_is_stable(self, embedder: Embedder) -> None:
        """The same before and after embedding, printable, on one line."""
        before = embedder.fingerprint
        embedder.embed("passage", TEXTS[:2])
        assert embedder.fingerprint == before
        assert before
        assert before.isprintable()

    @pytest.mark.parametrize("type", ["query", "passage"])
    def test_vectors_are_finite_unit_rows(self, embedder: Embedder, type: InputType) -> None:
        """float32 [n, dim], every row finite and of length 1."""
        vectors = embedder.embed(type, TEXTS)
        assert vectors.dtype == np.float32
        assert vectors.shape == (len(TEXTS), embedder.health().dim)
        assert_unit_rows(vectors)

    def test_no_texts_give_no_rows(self, embedder: Embedder) -> None:
        """An empty list gives [0, dim], so that it can be concatenated."""
        vectors = embedder.embed("passage", [])
        assert vectors.shape == (0, embedder.health().dim)
        assert vectors.dtype == np.float32

    def test_other_input_types_are_refused(self, embedder: Embedder) -> None:
        """A misspelt type must not silently embed without its prefix."""
        with pytest.raises(ValueError, match="type"):
            embedder.embed("document", TEXTS[:1])  # type: ignore[arg-type]

    def test_same_call_gives_same_bytes(self, embedder: Embedder) -> None:
        """Embedding is deterministic."""
        first, second = (embedder.embed("passage", TEXTS) for _ in range(2))
        assert first.tobytes() == second.tobytes()

    def test_different_texts_give_different_vectors(self, embedder: Embedder) -> None:
        """No two rows are equal."""
        vectors = embedder.embed("passage", TEXTS)
        assert len({row.tobytes() for row in vectors}) == len(TEXTS)

    def test_equal_texts_give_equal_vectors(self, embedder: Embedder) -> None:
        """Duplicates in one call are allowed and agree."""
        vectors = embedder.embed("passage", [TEXTS[0], TEXTS[1], TEXTS[0]])
        assert float(vectors[0] @ vectors[2]) >= 1 - BATCH_TOLERANCE

    def test_order_is_kept(self, embedder: Embedder) -> None:
        """Row i belongs to text i, whatever the order of the texts and their lengths."""
        forward = embedder.embed("passage", TEXTS)
        backward = embedder.embed("passage", TEXTS[::-1])[::-1]
        nearest = np.argmax(forward @ backward.T, axis=1)
        assert nearest.tolist() == list(range(len(TEXTS)))

    def test_neighbours_in_a_batch_do_not_matter(self, embedder: Embedder) -> None:
        """A text has the same vector alone and in a batch, also one larger than ``batch_size``."""
        many = [f"{text} ({n})" for n in range(-(-embedder.batch_size // 7) + 1) for text in TEXTS]
        together = embedder.embed("passage", many)
        for row in (0, 1, len(many) - 1):
            alone = embedder.embed("passage", [many[row]])
            assert float(together[row] @ alone[0]) >= 1 - BATCH_TOLERANCE

    @pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS.keys())
    def test_hostile_text_is_embedded_or_refused(self, embedder: Embedder, text: str) -> None:
        """A vector or ``InvalidInput``, and the embedder still works afterwards."""
        try:
            assert_unit_rows(embedder.embed("passage", [text]))
        except InvalidInput as refusal:
            assert str(refusal)  # noqa: PT017
        assert_unit_rows(embedder.embed("passage", TEXTS[:1]))

    def test_long_text_is_not_cut_off(self, embedder: Embedder) -> None:
        """What stands at the end of a text longer than any model reads still changes its vector."""
        sentence = "The meeting room on the second floor is cleaned on Monday morning. "
        body = sentence * (LONG_TEXT_WORDS // 12)
        ending = "Cryptographic keys rotate quarterly; chemists distil ethanol in Grenoble. " * 12
        plain, ended = embedder.embed("passage", [body, body + ending])
        assert float(plain @ ended) < 1 - 1e-4

    def test_threads_may_share_it(self, embedder: Embedder) -> None:
        """Calls from several threads give what they give one after the other."""
        groups = [[f"{text} {n}" for text in TEXTS[:3]] for n in range(8)]
        expected = [embedder.embed("passage", group) for group in groups]
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda group: embedder.embed("passage", group), groups))
        for one, other in zip(expected, found, strict=True):
            assert np.allclose(one, other, atol=BATCH_TOLERANCE)


def assert_unit_rows(vectors: Vectors) -> None:
    """Every row is finite and of length 1."""
    assert np.isfinite(vectors).all()
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=UNIT_TOLERANCE)

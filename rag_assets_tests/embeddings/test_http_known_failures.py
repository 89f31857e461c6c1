"""Failures that other programs had with embedding services, one test per kind."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_assets.embeddings.batching import KNOWN_GOOD_TEXT, embed_missing
from rag_assets.embeddings.cache import EmbeddingCache
from rag_assets.embeddings.http import HttpEmbedder
from rag_assets.errors import MalformedResponse, Unavailable
from rag_assets.fingerprints import sha256_hex

from .fault_server import (
    DIM,
    MODEL,
    FaultServer,
    answer,
    answer_json,
    failing_on,
    limited_to,
    stub_vectors,
    well,
)


def quick(server: FaultServer, **settings: Any) -> HttpEmbedder:
    return HttpEmbedder(server.url, **{"backoff_seconds": 0.01, "retries": 3, **settings})


def items(count: int) -> dict[str, str]:
    texts = [f"Passage numéro {n} du guide." for n in range(count)]
    return {sha256_hex(text): text for text in texts}


def kept(cache: EmbeddingCache, embedder: HttpEmbedder, wanted: dict[str, str]) -> list[str]:
    """The hashes whose cached vector is the right one for their text."""
    found = cache.get_many(embedder.fingerprint, "passage", wanted)
    return [
        content_hash
        for content_hash, vector in found.items()
        if np.allclose(vector, stub_vectors([wanted[content_hash]])[0], atol=1e-6)
    ]


def more_texts_than_the_server_takes(cache: EmbeddingCache) -> None:
    """129 texts, limit 128: the client splits, 129 vectors in order."""
    texts = list(items(129).values())
    with FaultServer(limited_to(128)) as server:
        vectors = quick(server, batch_size=256).embed("passage", texts)
    assert np.allclose(vectors, stub_vectors(texts), atol=1e-6)


def limit_told_by_another_status(cache: EmbeddingCache) -> None:
    """136 texts, limit 64, 400 with a code: the body is in the message, batch_size is a setting."""
    refusal = answer_json(400, {"code": 20042})
    wanted = items(136)
    with FaultServer(limited_to(64, refusal)) as server:
        with pytest.raises(Unavailable, match=r'400.*\{"code": 20042\}'):
            quick(server, batch_size=136).embed("passage", list(wanted.values()))
        assert quick(server, batch_size=64).embed("passage", list(wanted.values())).shape[0] == 136
        outcome = embed_missing(quick(server, batch_size=136), "passage", wanted, cache)
    assert (outcome.embedded, outcome.rejected) == (136, {})


def server_fails_on_one_text(cache: EmbeddingCache) -> None:
    """500 whenever a certain text is in the batch: retried, isolated, the others embedded."""
    wanted = items(33)
    bad = sorted(wanted)[7]
    failure = answer(500, '{"error":"json: unsupported value: NaN"}')
    with FaultServer(failing_on(lambda text: text == wanted[bad], failure)) as server:
        embedder = quick(server)
        outcome = embed_missing(embedder, "passage", wanted, cache)
        assert outcome.rejected.keys() == {bad}
        assert "unsupported value" in outcome.rejected[bad]
        assert set(kept(cache, embedder, wanted)) == wanted.keys() - {bad}


def unordered_concurrent_batches(cache: EmbeddingCache) -> None:
    """6 chunks, batches of 5, the first one slow: every vector is that of its text."""
    wanted = items(6)
    with FaultServer(well(delay_seconds=0.3), well()) as server:
        embedder = quick(server, batch_size=5, concurrency=2)
        texts = list(wanted.values())
        assert np.allclose(embedder.embed("passage", texts), stub_vectors(texts), atol=1e-6)
    with FaultServer(well(delay_seconds=0.3), well()) as server:
        embedder = quick(server, batch_size=5, concurrency=2)
        embed_missing(embedder, "passage", wanted, cache)
        assert set(kept(cache, embedder, wanted)) == wanted.keys()


def rate_limit_in_a_long_build(cache: EmbeddingCache) -> None:
    """429 with Retry-After on call 3: waited for; nothing finished is embedded again."""
    wanted = items(12)
    behaviours = [well(), well(), answer(429, Retry_After="1"), well()]
    with FaultServer(*behaviours) as server:
        began = time.monotonic()
        outcome = embed_missing(quick(server, batch_size=3), "passage", wanted, cache)
        assert time.monotonic() - began >= 0.9
        sent = [tuple(post.texts) for post in server.posts]
    assert outcome.embedded == 12
    assert len(sent) == 5
    assert sent[2] == sent[3]
    assert len(set(sent)) == 4


def state_recovers_after_a_rate_limit(cache: EmbeddingCache) -> None:
    """429 ended the run: the next run goes on where it stopped."""
    wanted = items(6)
    with FaultServer(well(), answer(429, "busy"), answer(429), well()) as server:
        with pytest.raises(Unavailable, match="429"):
            embed_missing(quick(server, batch_size=3, retries=1), "passage", wanted, cache)
        outcome = embed_missing(quick(server, batch_size=3, retries=1), "passage", wanted, cache)
    assert (outcome.embedded, outcome.reused, outcome.rejected) == (3, 3, {})


def network_blip_in_a_long_job(cache: EmbeddingCache) -> None:
    """503 twice then 200 is absorbed; 4xx and a wrong count are not retried."""
    with FaultServer(answer(503), answer(503), well()) as server:
        assert quick(server).embed("passage", ["texte"]).shape == (1, DIM)
        assert len(server.posts) == 3
    for behaviour, error in (
        (answer(404), Unavailable),
        (well(lambda value: {**value, "vectors": []}), MalformedResponse),
    ):
        with FaultServer(behaviour, well()) as server:
            with pytest.raises(error):
                quick(server).embed("passage", ["texte"])
            assert len(server.posts) == 1


def provenance_is_the_exact_model(cache: EmbeddingCache) -> None:
    """The stored fingerprint has the model's name as /health tells it; a swap keeps nothing."""
    with FaultServer(well(), well(lambda value: {**value, "model": "other"})) as server:
        embedder = quick(server, batch_size=3)
        assert MODEL in embedder.fingerprint
        wanted = items(6)
        with pytest.raises(MalformedResponse, match="two models"):
            embed_missing(embedder, "passage", wanted, cache)
        assert len(kept(cache, embedder, wanted)) == 3  # what the named model made before the swap


def last_rate_limit_is_no_vector(cache: EmbeddingCache) -> None:
    """429 for one text until the retries are used up: the run fails, the text keeps no vector."""
    wanted = items(5)
    victim = max(wanted, key=lambda content_hash: (len(wanted[content_hash]), content_hash))
    failure = answer(429, "slow down")
    with FaultServer(failing_on(lambda text: text == wanted[victim], failure)) as server:
        embedder = quick(server, batch_size=1, retries=2)
        with pytest.raises(Unavailable, match=r"429.*slow down"):
            embed_missing(embedder, "passage", wanted, cache)
        asked = [post.texts for post in server.posts]
        assert asked.count([wanted[victim]]) == 3
        assert [KNOWN_GOOD_TEXT] not in asked
        assert set(kept(cache, embedder, wanted)) == wanted.keys() - {victim}
        assert cache.missing(embedder.fingerprint, "passage", wanted) == [victim]


KINDS: dict[str, Callable[[EmbeddingCache], None]] = {
    "EMB-01": more_texts_than_the_server_takes,
    "EMB-03": limit_told_by_another_status,
    "EMB-05": server_fails_on_one_text,
    "EMB-07": unordered_concurrent_batches,
    "EMB-09": rate_limit_in_a_long_build,
    "EMB-11": state_recovers_after_a_rate_limit,
    "EMB-13": network_blip_in_a_long_job,
    "EMB-15": provenance_is_the_exact_model,
    "EMB-17": last_rate_limit_is_no_vector,
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_known_failure_does_not_happen(
    kind: Callable[[EmbeddingCache], None], tmp_path: Path
) -> None:
    """Each kind states what is expected in its own docstring."""
    cache = EmbeddingCache(tmp_path / "embeddings.sqlite")
    kind(cache)
    cache.close()

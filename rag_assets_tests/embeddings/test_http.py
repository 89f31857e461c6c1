"""The HTTP embedder with a server that means well, or has limits."""

from __future__ import annotations

import base64
import json
import multiprocessing
import threading
import time
from typing import Any

import numpy as np
import pytest

from rag_assets.embeddings.http import RESERVED_TOKENS, HttpEmbedder
from rag_assets.errors import ConfigurationError, InvalidInput, MalformedResponse, Unavailable
from rag_assets.tokens import upper_bound_tokens

from .fault_server import (
    DIM,
    MODEL,
    FaultServer,
    answer,
    answer_json,
    failing_on,
    healthy,
    limited_to,
    reset,
    stub_vectors,
    well,
)


def quick(server: FaultServer, **settings: Any) -> HttpEmbedder:
    return HttpEmbedder(server.url, **{"backoff_seconds": 0.01, **settings})


def test_no_prefix_is_added_and_the_type_is_told() -> None:
    """Prefixes are the service's: the texts leave as they are, with their type."""
    with FaultServer(well()) as server:
        quick(server).embed("query", ["Où est l'été ?"])
        assert server.posts[0].texts == ["Où est l'été ?"]
        assert b'"type":"query"' in server.posts[0].body
        assert server.posts[0].path == "/embed"


def test_path_of_the_address_is_kept() -> None:
    """A service behind a path of a proxy."""
    with FaultServer(well()) as server:
        server.url += "/models/e5/"
        quick(server).embed("passage", ["texte"])
        assert [r.path for r in server.requests] == ["/models/e5/health", "/models/e5/embed"]


def test_health_is_asked_once_and_connections_are_kept() -> None:
    """One /health, then one connection for many calls."""
    with FaultServer(well()) as server:
        embedder = quick(server)
        for n in range(5):
            embedder.embed("passage", [f"texte {n}"])
        assert [r.path for r in server.requests] == ["/health"] + ["/embed"] * 5
        assert server.connections == 1


@pytest.mark.parametrize("concurrency", [1, 3])
def test_batches_come_back_in_order(concurrency: int) -> None:
    """Whatever finishes first, row i belongs to text i."""
    texts = [f"texte numéro {n}" for n in range(50)]
    with FaultServer(well(delay_seconds=0.05), well()) as server:
        embedder = quick(server, batch_size=8, concurrency=concurrency)
        vectors = embedder.embed("passage", texts)
        assert len(server.posts) == 7
    assert np.allclose(vectors, stub_vectors(texts), atol=1e-6)


def test_concurrency_has_requests_under_way_together() -> None:
    """Four slow batches take the time of one."""
    with FaultServer(well(delay_seconds=0.4)) as server:
        embedder = quick(server, batch_size=1, concurrency=4)
        began = time.monotonic()
        embedder.embed("passage", list("abcd"))
        assert time.monotonic() - began < 1.4


def test_too_large_batch_is_halved_and_the_size_remembered() -> None:
    """413 halves until it passes; later calls begin with what passed."""
    texts = [f"texte {n}" for n in range(40)]
    with FaultServer(limited_to(6)) as server:
        embedder = quick(server, batch_size=40)
        vectors = embedder.embed("passage", texts)
        assert embedder.batch_size == 5
        before = len(server.posts)
        embedder.embed("passage", texts[:10])
        assert len(server.posts) == before + 2
    assert np.allclose(vectors, stub_vectors(texts), atol=1e-6)


def test_400_that_speaks_of_the_batch_is_halved_too() -> None:
    """Some servers say 400 where they mean 413."""
    refusal = answer_json(400, {"error": "Too many inputs: at most 3 are allowed"})
    with FaultServer(limited_to(3, refusal)) as server:
        assert quick(server).embed("passage", list("abcdefgh")).shape == (8, DIM)


def test_single_text_too_large_is_invalid_input() -> None:
    """No smaller batch exists: the text itself is refused, its length named."""
    with (
        FaultServer(limited_to(0)) as server,
        pytest.raises(InvalidInput, match="one text of 9,000 characters as too large"),
    ):
        quick(server, max_tokens=5000).embed("passage", ["mot " * 2250])


def test_long_texts_are_sent_as_windows() -> None:
    """No text sent is longer than the model reads; nothing of the text is missing."""
    text = " ".join(f"Phrase numéro {n} du règlement." for n in range(400))
    with FaultServer(well()) as server:
        vectors = quick(server, max_tokens=128).embed("passage", ["court", text])
        sent = [text for post in server.posts for text in post.texts]
    assert vectors.shape == (2, DIM)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert sent[0] == "court"
    assert "".join(sent[1:]) == text
    assert max(map(upper_bound_tokens, sent)) <= 128 - RESERVED_TOKENS


def test_lone_surrogates_are_replaced_before_sending() -> None:
    """What UTF-8 cannot encode does not stop a batch."""
    with FaultServer(well()) as server:
        quick(server).embed("passage", ["demi \ud83d emoji", "entier 😀"])
        assert server.posts[0].texts == ["demi \ufffd emoji", "entier 😀"]


def test_other_model_than_configured_is_refused() -> None:
    """``embedding.model`` pins the name; the message has both."""
    with FaultServer(well()) as server:
        with pytest.raises(MalformedResponse, match=f"'{MODEL}'.*asks for 'e5'"):
            quick(server, model="e5").embed("passage", ["texte"])
        assert quick(server, model=MODEL).embed("passage", ["texte"]).shape == (1, DIM)


def test_model_exchanged_behind_the_address_is_refused() -> None:
    """From one call to the next the server becomes another model of the same dimension."""
    swapped = well(lambda value: {**value, "model": "newer"})
    with FaultServer(well(), swapped) as server:
        embedder = quick(server)
        embedder.embed("passage", ["avant"])
        with pytest.raises(MalformedResponse, match=r"'newer'.*must not be mixed"):
            embedder.embed("passage", ["après"])


def test_fingerprint_names_what_makes_vectors_comparable() -> None:
    """Model, dimension and window rule: yes. Address, batch size and time-outs: no."""

    def of(health_model: str = MODEL, dim: int = DIM, **settings: Any) -> str:
        with FaultServer(well(), health=healthy(health_model, dim)) as server:
            return quick(server, **settings).fingerprint

    assert of() == of(batch_size=3, timeout_seconds=9.0, model=MODEL)
    assert MODEL in of()
    assert len({of(), of("other"), of(dim=9), of(max_tokens=256)}) == 4


@pytest.mark.parametrize("vectors", [3.0, 1e-30, 1e30], ids=["three", "tiny", "huge"])
def test_vectors_are_scaled_to_unit_length(vectors: float) -> None:
    """Whatever length the service gives, also where float32 would over- or underflow."""
    scale = well(lambda v: {**v, "vectors": [[x * vectors for x in r] for r in v["vectors"]]})
    with FaultServer(scale) as server:
        found = quick(server).embed("passage", ["a", "b"])
    assert np.allclose(found, stub_vectors(["a", "b"]), atol=1e-6)


def test_texts_are_never_echoed_in_messages() -> None:
    """A server that quotes its input does not carry it into logs and metadata."""
    secret = "Le salaire de Marie Dupont est de 4 200 euros par mois."
    for body in (
        f"cannot embed '{secret}'",
        f"cannot embed {secret[:30]}...",
        '{"detail": "bad input: Le salaire de Marie Dupont est"}',
        json.dumps({"error": {"input": [secret], "code": 7}}),
    ):
        with (
            FaultServer(failing_on(lambda text: True, answer(400, body))) as server,
            pytest.raises(Unavailable) as caught,
        ):
            quick(server).embed("passage", ["autre", secret])
        assert "Dupont" not in str(caught.value)
        assert "[text]" in str(caught.value)


def test_credentials_are_sent_but_never_shown() -> None:
    """User name and password of the address, and header values, stay out of every message."""
    with FaultServer(answer(401, "bad token s3cr3t-t0ken or hunter2hunter2")) as server:
        address = server.url.replace("://", "://alice:hunter2hunter2@")
        embedder = HttpEmbedder(address, headers={"X-Api-Key": "s3cr3t-t0ken"})
        with pytest.raises(Unavailable) as caught:
            embedder.embed("query", ["question"])
        sent = server.posts[0].headers
    assert sent["authorization"] == "Basic " + base64.b64encode(b"alice:hunter2hunter2").decode()
    assert sent["x-api-key"] == "s3cr3t-t0ken"
    for error in (caught.value, caught.value.__cause__):
        assert "hunter2" not in str(error)
        assert "s3cr3t" not in str(error)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"url": "ftp://host"}, "begin with http"),
        ({"url": "http://"}, "begin with http|not a valid"),
        ({"url": "http://host:99999"}, "not a valid"),
        ({"url": "http://u:pass@[bad"}, "not a valid"),
        ({"url": "http://host/embed?key=abc"}, r"end before any '\?'"),
        ({"batch_size": 0}, "batch_size"),
        ({"concurrency": 0}, "concurrency"),
        ({"max_tokens": 16}, "max_tokens"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"retries": -1}, "retries"),
        ({"deadline_seconds": float("nan")}, "deadline_seconds"),
        ({"headers": {"X-Key": "a\r\nEvil: b"}}, "X-Key"),
        ({"ca_file": "/nowhere/ca.pem", "url": "https://host"}, "/nowhere/ca.pem"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_impossible_settings_are_refused_at_once(settings: dict[str, Any], says: str) -> None:
    """Before anything is sent, with the setting's name; no password in the message."""
    with pytest.raises(ConfigurationError, match=says) as caught:
        HttpEmbedder(**{"url": "http://host", **settings})
    assert "pass@" not in str(caught.value)
    assert "abc" not in str(caught.value)


def _embed_in_child(embedder: HttpEmbedder, results: Any) -> None:
    results.put(embedder.embed("passage", ["enfant"]).tolist())


def test_child_after_fork_uses_its_own_connection() -> None:
    """Parent and child never share a socket."""
    with FaultServer(well()) as server:
        embedder = quick(server)
        embedder.embed("passage", ["parent"])
        context = multiprocessing.get_context("fork")
        results = context.Queue()
        child = context.Process(target=_embed_in_child, args=(embedder, results))
        child.start()
        vectors = results.get(timeout=20)
        child.join()
        embedder.embed("passage", ["parent encore"])
        assert server.connections == 2
    assert np.allclose(vectors, stub_vectors(["enfant"]), atol=1e-6)


def test_many_threads_share_one_embedder() -> None:
    """Each gets its own vectors."""
    wrong: list[str] = []
    with FaultServer(well()) as server:
        embedder = quick(server)

        def work(number: int) -> None:
            for n in range(10):
                text = f"fil {number} texte {n}"
                if not np.allclose(
                    embedder.embed("query", [text]), stub_vectors([text]), atol=1e-6
                ):
                    wrong.append(text)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_connection_the_server_closed_meanwhile_is_opened_anew() -> None:
    """A kept-alive connection that died is no fault the user sees."""
    with FaultServer(well(), reset(), well()) as server:
        embedder = quick(server)
        embedder.embed("passage", ["un"])
        assert embedder.embed("passage", ["deux"]).shape == (1, DIM)

"""What the HTTP embedder does about everything a server may do, on real sockets."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import time
import tracemalloc
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_assets.embeddings.http import PROBE_TEXTS, HttpEmbedder
from rag_assets.errors import EmbeddingError, InvalidInput, MalformedResponse, Unavailable

from .fault_server import (
    DIM,
    MODEL,
    Behaviour,
    FaultServer,
    Received,
    answer,
    answer_json,
    constant_vectors,
    drip,
    endless,
    gzip_bomb,
    gzipped,
    healthy,
    raw,
    reset,
    reset_connection,
    silent,
    stub_vectors,
    vectors_as,
    well,
)

TEXTS = ["Le pare-feu de la salle serveur", "Holiday requests", "Troisième texte secret"]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
LONG_HEAD = HEAD + b"Content-Length: 100000\r\n\r\n"
MEGABYTE = 1_048_576


def embedder_of(server: FaultServer, **settings: Any) -> HttpEmbedder:
    """Small time-outs, so that a test of patience takes a second."""
    fast: dict[str, Any] = {
        "timeout_seconds": 0.3,
        "connect_timeout_seconds": 0.3,
        "deadline_seconds": 1.0,
        "retries": 2,
        "backoff_seconds": 0.01,
        "retry_after_cap_seconds": 0.05,
    }
    return HttpEmbedder(server.url, **{**fast, **settings})


@dataclass(frozen=True)
class Fault:
    """One kind: what the server does, and what must come of it."""

    behaviour: Behaviour
    error: type[EmbeddingError]
    says: str
    """Regular expression found in the message."""
    attempts: int = 1
    """How often /embed is asked in all, with two retries allowed."""


def rows(number: str) -> str:
    """JSON of three vectors, one of whose numbers is written like this."""
    vectors = [[str(float(n + 1)) for n in range(DIM)] for _ in TEXTS]
    vectors[1][3] = number
    return "[" + ", ".join("[" + ", ".join(v) + "]" for v in vectors) + "]"


def dropping(value: dict[str, Any]) -> None:
    value["vectors"].pop()


def adding(value: dict[str, Any]) -> None:
    value["vectors"].append(value["vectors"][0])


def shortening(value: dict[str, Any]) -> None:
    value["vectors"][1].pop()


def deepening(value: dict[str, Any]) -> None:
    value["vectors"][1][2] = [0.5]


def setting(key: str, new: object) -> Any:
    def change(value: dict[str, Any]) -> None:
        value[key] = new

    return change


def without(key: str) -> Any:
    def change(value: dict[str, Any]) -> None:
        del value[key]

    return change


def sized(body: bytes, length: int) -> Behaviour:
    return raw(HEAD + f"Content-Length: {length}\r\n\r\n".encode() + body)


GOOD_BODY = json.dumps({"model": MODEL, "dim": DIM, "vectors": stub_vectors(TEXTS)}).encode()
DETAILS = [{"loc": ["body", "texts", 1], "msg": "too long", "input": TEXTS[1], "type": "value"}]

FAULTS = {
    "reset_before_headers": Fault(reset(), Unavailable, "broke off", 3),
    "reset_in_headers": Fault(reset(b"HTTP/1.1 200 OK\r\nConte"), Unavailable, "broke off", 3),
    "reset_after_headers": Fault(reset(LONG_HEAD, b'{"mod'), Unavailable, "broke off", 3),
    "closed_without_a_word": Fault(raw(), Unavailable, "broke off", 3),
    "not_http": Fault(raw(b"SSH-2.0-OpenSSH_9.2\r\n"), Unavailable, "broke off", 3),
    "timeout_first_byte": Fault(silent(), Unavailable, r"silent for 0.3 s.*batch_size", 3),
    "timeout_between_bytes": Fault(
        lambda c, r: (c.sendall(LONG_HEAD + b"{"), silent()(c, r))[0],
        Unavailable,
        "silent for 0.3 s",
        3,
    ),
    "drip_in_headers": Fault(drip(HEAD + b"X-Slow: ", b"a"), Unavailable, "within 1 s"),
    "drip_in_body": Fault(drip(LONG_HEAD, b" "), Unavailable, "within 1 s"),
    "401": Fault(answer(401, "no"), Unavailable, "answered 401.*no.*credentials"),
    "403": Fault(answer(403), Unavailable, "answered 403"),
    "404": Fault(answer(404, "Not Found"), Unavailable, "404.*embedding.url"),
    "408": Fault(answer(408), Unavailable, "answered 408", 3),
    "418": Fault(answer(418), Unavailable, "answered 418"),
    "422_string": Fault(
        answer_json(422, {"detail": "text 1 is empty"}), InvalidInput, "text 1 is empty"
    ),
    "422_list": Fault(
        answer_json(422, {"detail": DETAILS}), InvalidInput, r"body\.texts\.1: too long"
    ),
    "422_missing": Fault(answer(422), InvalidInput, "422.*no detail"),
    "422_not_json": Fault(answer(422, "\x1b[31mbad\x00 text"), InvalidInput, r"\[31mbad text"),
    "429_seconds": Fault(answer(429, Retry_After="1"), Unavailable, "429.*concurrency", 3),
    "429_absurd": Fault(answer(429, Retry_After="2099"), Unavailable, "answered 429", 3),
    "429_without": Fault(answer(429), Unavailable, "answered 429", 3),
    "429_date": Fault(
        answer(429, Retry_After="Fri, 31 Dec 2100 23:59:59 GMT"), Unavailable, "answered 429", 3
    ),
    "429_nonsense": Fault(answer(429, Retry_After="-3.5 soon"), Unavailable, "answered 429", 3),
    "500": Fault(answer(500, '{"error": "unsupported value"}'), Unavailable, "unsupported", 3),
    "502": Fault(answer(502, "<html><title>Bad Gateway</title>"), Unavailable, "HTML page", 3),
    "503": Fault(answer(503, "loading"), Unavailable, "503.*loading", 3),
    "504": Fault(answer(504), Unavailable, "answered 504", 3),
    "redirect_to_other_host": Fault(
        answer(302, Location="http://evil.example/embed?token=abc"),
        Unavailable,
        r"redirect to http://evil\.example is not followed",
    ),
    "redirect_to_nowhere": Fault(answer(307), Unavailable, "redirect is not followed"),
    "html_with_200": Fault(
        answer(200, "<!DOCTYPE html><title>Login</title>"), MalformedResponse, "an HTML page"
    ),
    "empty_body": Fault(answer(200), MalformedResponse, "empty body"),
    "no_content": Fault(answer(204), Unavailable, "answered 204"),
    "cut_json": Fault(answer(200, GOOD_BODY[:-20]), MalformedResponse, "not JSON"),
    "wrong_encoding": Fault(answer(200, b'{"model": "\xff\xfe"}'), MalformedResponse, "not JSON"),
    "deep_json": Fault(answer(200, "[" * 50_000), MalformedResponse, "not JSON"),
    "huge_integer": Fault(vectors_as(rows("9" * 5000)), MalformedResponse, "not JSON"),
    "json_list": Fault(answer_json(200, stub_vectors(TEXTS)), MalformedResponse, "not an object"),
    "json_of_another_api": Fault(
        answer_json(200, {"data": [], "model": MODEL, "dim": DIM}), MalformedResponse, "missing"
    ),
    "nan_literal": Fault(vectors_as(rows("NaN")), MalformedResponse, "NaN"),
    "infinity_literal": Fault(vectors_as(rows("-Infinity")), MalformedResponse, "-Infinity"),
    "overflow_to_infinity": Fault(vectors_as(rows("1e999")), MalformedResponse, "not finite"),
    "overflow_integer": Fault(vectors_as(rows("9" * 400)), MalformedResponse, "too large"),
    "string_for_number": Fault(vectors_as(rows('"0.5"')), MalformedResponse, "str among"),
    "boolean_for_number": Fault(vectors_as(rows("true")), MalformedResponse, "bool among"),
    "null_for_number": Fault(vectors_as(rows("null")), MalformedResponse, "null for a number"),
    "nested_list": Fault(well(deepening), MalformedResponse, "list among"),
    "object_for_vector": Fault(
        well(setting("vectors", {"0": [1.0]})), MalformedResponse, "of type dict"
    ),
    "base64_for_vectors": Fault(well(setting("vectors", "AAAA")), MalformedResponse, "type str"),
    "zero_vector": Fault(
        well(setting("vectors", [[0] * DIM] * 3)), MalformedResponse, "vector 0 is zero"
    ),
    "one_vector_too_few": Fault(well(dropping), MalformedResponse, "2 vectors came for 3 texts"),
    "one_vector_too_many": Fault(well(adding), MalformedResponse, "4 vectors came for 3 texts"),
    "one_vector_shorter": Fault(well(shortening), MalformedResponse, "has 7 numbers, expected 8"),
    "other_dimension": Fault(well(setting("dim", 16)), MalformedResponse, "two models"),
    "other_model": Fault(well(setting("model", "other")), MalformedResponse, "'other'.*two models"),
    "model_missing": Fault(well(without("model")), MalformedResponse, "None.*two models"),
    "same_vectors_for_all": Fault(well(constant_vectors), MalformedResponse, "one and the same", 2),
    "gzip_bomb": Fault(
        answer(200, gzip_bomb(), Content_Encoding="gzip"), MalformedResponse, "more than"
    ),
    "gzip_cut": Fault(
        answer(200, gzipped(GOOD_BODY.decode())[:-9], Content_Encoding="gzip"),
        MalformedResponse,
        "ends too early",
    ),
    "gzip_that_is_none": Fault(
        answer(200, GOOD_BODY, Content_Encoding="gzip"), MalformedResponse, "decompressed"
    ),
    "unknown_encoding": Fault(
        answer(200, GOOD_BODY, Content_Encoding="zstd"), MalformedResponse, "zstd"
    ),
    "endless_body": Fault(
        endless(HEAD + b"\r\n", b"[1.0, " * 10_000), MalformedResponse, "more than"
    ),
    "endless_error_body": Fault(
        endless(b"HTTP/1.1 400 Bad\r\n\r\n", b"sorry " * 10_000), Unavailable, "400.*sorry"
    ),
    "endless_headers": Fault(endless(HEAD, b"X-A: b\r\n" * 1000), Unavailable, "broke off", 3),
    "huge_header": Fault(
        raw(HEAD + b"X-A: " + b"a" * 20_000_000 + b"\r\n\r\n"), Unavailable, "broke off", 3
    ),
    "length_too_long": Fault(
        sized(GOOD_BODY, len(GOOD_BODY) + 10), Unavailable, "broke off", 3
    ),
    "length_too_short": Fault(sized(GOOD_BODY, 40), MalformedResponse, "not JSON"),
    "length_absurd": Fault(raw(HEAD + b"Content-Length: -5\r\n\r\n"), Unavailable, "broke off", 3),
    "bad_chunks": Fault(
        raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n"), Unavailable, "broke off", 3
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_fault_has_its_error_in_bounded_time_and_memory(fault: Fault) -> None:
    """The right class, a message that names the server and not the texts, few seconds and bytes."""
    with FaultServer(fault.behaviour) as server:
        embedder = embedder_of(server)
        embedder.health()
        tracemalloc.start()
        began = time.monotonic()
        with pytest.raises(fault.error, match=f"(?s){fault.says}") as caught:
            embedder.embed("passage", TEXTS)
        elapsed = time.monotonic() - began
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        embedder.close()
        attempts = len(server.posts)
        port = server.url.rpartition(":")[2]
    message = str(caught.value)
    assert elapsed < 8
    assert peak < 48 * MEGABYTE
    assert type(caught.value) is fault.error or fault.error is MalformedResponse
    assert attempts == fault.attempts
    assert f"127.0.0.1:{port}" in message
    assert message.isprintable()
    assert len(message) < 700
    assert not any(text in message for text in TEXTS)


def test_refused_connection_is_unavailable() -> None:
    """Nobody listens: the address is in the message, after the retries."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    embedder = HttpEmbedder(f"http://127.0.0.1:{port}", retries=2, backoff_seconds=0.01)
    with pytest.raises(Unavailable, match=rf"127\.0\.0\.1:{port} cannot be reached.*3 attempts"):
        embedder.embed("query", ["question"])


def test_unknown_host_is_unavailable() -> None:
    """A host that no name server knows."""
    embedder = HttpEmbedder("http://embedder.invalid", retries=0)
    with pytest.raises(Unavailable, match=r"embedder\.invalid cannot be reached"):
        embedder.health()


def test_reset_right_after_connecting_is_unavailable() -> None:
    """The server takes the connection and throws it away before reading."""
    with FaultServer(well(), on_accept=reset_connection) as server:
        with pytest.raises(Unavailable, match=r"broke off|cannot be reached"):
            embedder_of(server).embed("query", ["question"])
        assert server.connections == 3


def test_connect_timeout_is_unavailable() -> None:
    """A listener whose queue is full drops the handshake: the connect time-out ends it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for client in waiting:
            client.setblocking(False)
            client.connect_ex(address)
        embedder = HttpEmbedder(
            f"http://127.0.0.1:{address[1]}", connect_timeout_seconds=0.2, retries=1,
            backoff_seconds=0.01,
        )  # fmt: skip
        began = time.monotonic()
        with pytest.raises(Unavailable, match=r"accepted no connection within 0\.2 s"):
            embedder.health()
        assert time.monotonic() - began < 5
        for client in waiting:
            client.close()


@pytest.mark.parametrize(
    ("behaviour", "error", "says"),
    [
        (answer(200, "<html>"), MalformedResponse, "an HTML page"),
        (answer_json(200, {"status": "ok"}), MalformedResponse, "model is missing"),
        (healthy(dim=0), MalformedResponse, "dim is not a number"),
        (healthy(dim=True), MalformedResponse, "dim is not a number"),
        (healthy(model="a\nb"), MalformedResponse, "cannot be shown"),
        (healthy(status="loading"), Unavailable, "status 'loading'"),
        (answer(404), Unavailable, "/health answered 404"),
        (answer(422, '{"detail": "no"}'), Unavailable, "/health answered 422"),
        (endless(HEAD + b"\r\n", b" " * 10_000), MalformedResponse, "more than 65,536 bytes"),
    ],
    ids=lambda value: None if callable(value) else str(value)[:20],
)
def test_bad_health_stops_before_any_text_is_sent(
    behaviour: Behaviour, error: type[EmbeddingError], says: str
) -> None:
    """Who does not say which model it is gets no texts."""
    with FaultServer(well(), health=behaviour) as server:
        with pytest.raises(error, match=says):
            embedder_of(server).embed("passage", TEXTS)
        assert server.posts == []


@pytest.mark.parametrize(
    "retry_after",
    ["1", lambda: format_datetime(datetime.now(timezone.utc) + timedelta(seconds=2), usegmt=True)],
    ids=["seconds", "date"],
)
def test_retry_after_is_waited_for(retry_after: Any) -> None:
    """The next attempt comes when the server asked for it, and the texts get their vectors."""
    value = retry_after if isinstance(retry_after, str) else retry_after()
    with FaultServer(answer(429, Retry_After=value), well()) as server:
        began = time.monotonic()
        vectors = embedder_of(server, retry_after_cap_seconds=30).embed("passage", TEXTS)
        assert 0.9 < time.monotonic() - began < 8
    assert vectors.shape == (3, DIM)


def test_waiting_on_request_does_not_use_up_the_deadline() -> None:
    """Three waits of 0.4 s pass under a deadline of 1 s."""
    busy = answer(429, Retry_After="9")
    with FaultServer(busy, busy, busy, well()) as server:
        embedder = embedder_of(server, retries=3, retry_after_cap_seconds=0.4)
        assert embedder.embed("passage", TEXTS).shape == (3, DIM)


def test_order_changed_by_the_server_cannot_be_seen() -> None:
    """The contract has no ids: a server that shuffles is believed. Stated here, not hidden."""
    shuffle = well(lambda value: {**value, "vectors": value["vectors"][::-1]})
    with FaultServer(shuffle) as server:
        vectors = embedder_of(server).embed("passage", TEXTS)
    assert np.allclose(vectors, stub_vectors(TEXTS[::-1]), atol=1e-6)


@pytest.mark.parametrize(
    "texts",
    [["Oui.", "oui"], ["même texte"] * 12, ["一", "二", "三"], ["§", "†", "‡"], ["seul"]],
    ids=["case_and_punctuation", "duplicates", "unknown_to_the_model", "symbols", "one_text"],
)
def test_texts_that_may_share_a_vector_are_accepted(texts: list[str]) -> None:
    """Duplicates, and texts that a working model cannot tell apart, are no sign of a broken one."""

    def behave(connection: socket.socket, request: Received) -> None:
        change = None if request.texts == list(PROBE_TEXTS) else constant_vectors
        well(change)(connection, request)

    with FaultServer(behave) as server:
        assert embedder_of(server).embed("passage", texts).shape == (len(texts), DIM)


def test_eight_different_texts_with_one_vector_are_refused_at_once() -> None:
    """No probe is needed where chance is ruled out."""
    with FaultServer(well(constant_vectors)) as server:
        with pytest.raises(MalformedResponse, match="8 different texts one and the same"):
            embedder_of(server).embed("passage", [f"texte {n}" for n in range(8)])
        assert len(server.posts) == 1


@pytest.fixture(scope="module")
def self_signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that no authority signed."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = [
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
        "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
        "-keyout", str(key), "-out", str(certificate),
    ]  # fmt: skip
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"openssl is needed to make a certificate: {error}")
    return certificate, key


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def test_untrusted_certificate_is_refused_without_retry(self_signed: tuple[Path, Path]) -> None:
    """TLS is always verified; a certificate does not become better by asking again."""
    with FaultServer(well(), tls=server_context(*self_signed)) as server:
        with pytest.raises(Unavailable, match=r"cannot be trusted over TLS.*self.signed"):
            embedder_of(server).embed("query", ["question"])
        assert server.connections == 1
        assert server.requests == []


def test_private_authority_is_trusted_when_named(self_signed: tuple[Path, Path]) -> None:
    """``ca_file`` is the way to a server with a certificate of one's own."""
    with FaultServer(well(), tls=server_context(*self_signed)) as server:
        embedder = embedder_of(server, ca_file=self_signed[0])
        assert embedder.embed("query", ["question"]).shape == (1, DIM)


def test_tls_against_a_plain_server_is_refused() -> None:
    """https:// in front of a server that speaks plain HTTP."""
    with FaultServer(well()) as server:
        server.url = server.url.replace("http://", "https://")
        with pytest.raises(Unavailable, match=r"TLS|accepted no connection"):
            embedder_of(server, deadline_seconds=1).health()

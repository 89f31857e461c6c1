"""A server on raw sockets that does to its clients everything a real one may do."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import ssl
import struct
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rag_assets.testing.embedders import StubEmbedder

DIM = 8
MODEL = "fault-model"


@dataclass
class Received:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = field(repr=False)

    @property
    def texts(self) -> list[str]:
        texts: list[str] = json.loads(self.body)["texts"]
        return texts


Behaviour = Callable[[socket.socket, Received], None]


class FaultServer:
    """Answers ``/health`` well (unless told otherwise) and ``/embed`` by its list of behaviours.

    The n-th POST gets the n-th behaviour, the last one again and again. ``on_accept`` runs before
    anything is read and may close the connection.
    """

    def __init__(
        self,
        *behaviours: Behaviour,
        health: Behaviour | None = None,
        on_accept: Callable[[socket.socket], None] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.behaviours = list(behaviours)
        self.health = health or healthy()
        self.requests: list[Received] = []
        self.connections = 0
        self._on_accept = on_accept
        self._tls = tls
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def posts(self) -> list[Received]:
        return [request for request in self.requests if request.method == "POST"]

    def __enter__(self) -> FaultServer:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # shutdown wakes the thread in accept(), close alone does not
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls:
                connection = self._tls.wrap_socket(connection, server_side=True)
            if self._on_accept:
                self._on_accept(connection)
            while (request := _receive(connection)) is not None:
                self._next_behaviour(request)(connection, request)
        except (OSError, ValueError):
            pass
        finally:
            connection.close()

    def _next_behaviour(self, request: Received) -> Behaviour:
        with self._lock:
            self.requests.append(request)
            if request.path.endswith("/health"):
                return self.health
            return self.behaviours[min(len(self.posts), len(self.behaviours)) - 1]


def _receive(connection: socket.socket) -> Received | None:
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65_536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += connection.recv(65_536)
    method, path, _ = first.split(" ")
    return Received(method, path, headers, body)


# ---------------------------------------------------------------- what a server may do


def raw(*pieces: bytes, close: bool = True, pause_seconds: float = 0.0) -> Behaviour:
    """Exactly these bytes, then the end of the connection."""

    def behave(connection: socket.socket, request: Received) -> None:
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(pause_seconds)
        if close:
            connection.close()

    return behave


def answer(status: int, body: bytes | str = b"", **headers: str) -> Behaviour:
    """A proper HTTP answer; ``Retry_After="2"`` is written ``Retry-After: 2``."""
    body = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return raw("\r\n".join([*lines, "", ""]).encode() + body, close=False)


def answer_json(status: int, value: object, **headers: str) -> Behaviour:
    return answer(status, json.dumps(value), Content_Type="application/json", **headers)


def healthy(model: str = MODEL, dim: int = DIM, status: str = "ok") -> Behaviour:
    return answer_json(200, {"status": status, "model": model, "dim": dim})


def stub_vectors(texts: Sequence[str]) -> list[list[float]]:
    """What a well server answers: a function of the text alone."""
    vectors: list[list[float]] = StubEmbedder(DIM, model=MODEL).embed("passage", texts).tolist()
    return vectors


def well(
    change: Callable[[dict[str, Any]], object] | None = None, delay_seconds: float = 0.0
) -> Behaviour:
    """The right answer, or what ``change`` makes of it (in place, or another value)."""

    def behave(connection: socket.socket, request: Received) -> None:
        value: dict[str, Any] = {"model": MODEL, "dim": DIM, "vectors": stub_vectors(request.texts)}
        changed = change(value) if change else None
        time.sleep(delay_seconds)
        answer_json(200, value if changed is None else changed)(connection, request)

    return behave


def vectors_as(text: str) -> Behaviour:
    """An answer whose vectors are written as this JSON text."""
    return answer(200, f'{{"model": "{MODEL}", "dim": {DIM}, "vectors": {text}}}')


def limited_to(most_texts: int, refusal: Behaviour | None = None) -> Behaviour:
    """Well for so many texts, 413 for more."""
    refusal = refusal or answer(413, '{"error": "batch size > maximum allowed batch size"}')

    def behave(connection: socket.socket, request: Received) -> None:
        respond = well() if len(request.texts) <= most_texts else refusal
        respond(connection, request)

    return behave


def failing_on(bad: Callable[[str], bool], failure: Behaviour) -> Behaviour:
    """Well unless a text is bad."""

    def behave(connection: socket.socket, request: Received) -> None:
        respond = failure if any(bad(text) for text in request.texts) else well()
        respond(connection, request)

    return behave


def reset(*first: bytes) -> Behaviour:
    """Some bytes, then a reset (RST) instead of an orderly end."""

    def behave(connection: socket.socket, request: Received) -> None:
        for piece in first:
            connection.sendall(piece)
            time.sleep(0.02)
        reset_connection(connection)

    return behave


def reset_connection(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def silent(seconds: float = 20.0) -> Behaviour:
    """Nothing at all until the client has gone."""

    def behave(connection: socket.socket, request: Received) -> None:
        connection.settimeout(seconds)
        connection.recv(1)
        connection.close()

    return behave


def drip(first: bytes, drop: bytes, pause_seconds: float = 0.05) -> Behaviour:
    """A byte now and then, for ever: never silent for as long as the time-out."""

    def behave(connection: socket.socket, request: Received) -> None:
        connection.sendall(first)
        while True:
            connection.sendall(drop)
            time.sleep(pause_seconds)

    return behave


def endless(first: bytes, block: bytes) -> Behaviour:
    """As fast as the client reads, for ever."""

    def behave(connection: socket.socket, request: Received) -> None:
        connection.sendall(first)
        while True:
            connection.sendall(block)

    return behave


def gzip_bomb(megabytes: int = 512) -> bytes:
    """A small body that unfolds to so many megabytes of blanks, inside valid JSON's beginning."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = b" " * 1_048_576
    parts = [packer.compress(b'{"vectors": ')]
    parts += [packer.compress(block) for _ in range(megabytes)]
    return b"".join(parts) + packer.flush()


def gzipped(value: object) -> bytes:
    return gzip.compress(json.dumps(value).encode())


def constant_vectors(value: dict[str, Any]) -> None:
    """One and the same vector for every text."""
    value["vectors"] = [list(np.ones(DIM))] * len(value["vectors"])

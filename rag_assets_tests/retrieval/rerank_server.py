"""A reranking server on a real socket, as Text Embeddings Inference answers, and its faults."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ERRORS = {
    413: "Validation",
    422: "Tokenizer",
    424: "Backend",
    429: "Overloaded",
    503: "Unhealthy",
}
"""TEI's ``error_type`` for each status."""


def relevance(query: str, text: str) -> float:
    """What the server's model says: the share of the question's words that the text has."""
    words = query.lower().split()
    return sum(word in text.lower().split() for word in words) / len(words)


@dataclass
class Answer:
    """An HTTP answer as it is sent."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


def error(status: int, message: str = "refused", **headers: str) -> Answer:
    """TEI's error: ``{error, error_type}``."""
    body = json.dumps({"error": message, "error_type": ERRORS.get(status, "Unknown")})
    return Answer(status, body.encode(), {k.replace("_", "-"): v for k, v in headers.items()})


def raw(body: str | bytes, status: int = 200) -> Answer:
    """Exactly this body."""
    return Answer(status, body.encode() if isinstance(body, str) else body)


def ranks(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """The right answer: every index once, best first."""
    scores = [relevance(asked["query"], text) for text in asked["texts"]]
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    return [{"index": index, "score": scores[index]} for index in order]


Behaviour = Callable[[dict[str, Any]], Answer]


def well(change: Callable[[list[dict[str, Any]]], Any] = lambda value: value) -> Behaviour:
    """The right answer, or what ``change`` makes of it."""
    return lambda asked: raw(json.dumps(change(ranks(asked))))


class RerankServer:
    """``POST /rerank`` for at most ``most_texts`` texts at once; the rest as TEI refuses it.

    The n-th request gets the n-th of ``behaviours``, the last one again and again.
    """

    def __init__(self, *behaviours: Behaviour, most_texts: int = 32) -> None:
        self.behaviours = behaviours or (well(),)
        self.requests: list[dict[str, Any]] = []
        handler = type("Handler", (_Handler,), {"owner": self})
        self._most_texts = most_texts
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> RerankServer:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, body: bytes) -> Answer:
        """What is sent back for a request."""
        if path != "/rerank":
            return error(404, "not found")
        asked: dict[str, Any] = json.loads(body)
        self.requests.append(asked)
        count = len(asked["texts"])
        if count > self._most_texts:
            limit = self._most_texts
            return error(413, f"batch size {count} > maximum allowed batch size {limit}")
        number = min(len(self.requests), len(self.behaviours))
        return self.behaviours[number - 1](asked)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: RerankServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = self.owner.answer(self.path, body)
        self.send_response(answer.status)
        for name, value in {"Content-Type": "application/json", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal."""

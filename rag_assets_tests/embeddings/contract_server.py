"""The embedding service's own contract on a loopback socket, around any embedder."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rag_assets.embeddings.base import Embedder
from rag_assets.errors import InvalidInput


@contextmanager
def serve(embedder: Embedder) -> Iterator[str]:
    """The address of a service in a thread of this process."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body leave in two writes: without this, each answer waits 40 ms for an ACK.
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            health = embedder.health()
            self._answer(200, {"status": health.status, "model": health.model, "dim": health.dim})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                vectors = embedder.embed(asked["type"], asked["texts"])
            except InvalidInput as refusal:
                self._answer(422, {"detail": str(refusal)})
                return
            health = embedder.health()
            answer = {"model": health.model, "dim": health.dim, "vectors": vectors.tolist()}
            self._answer(200, answer)

        def _answer(self, status: int, value: dict[str, Any]) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

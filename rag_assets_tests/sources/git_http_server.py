"""Git's own ``http-backend`` behind a small HTTP server on loopback, which can misbehave."""

from __future__ import annotations

import base64
import os
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class GitServer:
    """What it serves, whom it lets in, what goes wrong, and what it was asked."""

    root: Path
    credentials: str = ""
    """``user:token``; empty: everybody is let in."""
    fault: Callable[[BaseHTTPRequestHandler], bool] | None = None
    """Answers in place of git when it returns True."""
    cut_at: int | None = None
    """How many bytes of an answer to a POST are sent before the connection breaks."""
    speak_version_2: bool = True
    port: int = 0
    requests: list[str] = field(default_factory=list)
    """Method and path of each."""
    seen_headers: list[str] = field(default_factory=list)
    """The Authorization headers that arrived."""

    def url(self, name: str) -> str:
        """The URL of a repository below the root."""
        return f"http://127.0.0.1:{self.port}/{name}"

    @property
    def fetches(self) -> int:
        """How many times objects were asked for (listings of refs are POSTs too, shorter ones)."""
        return sum(request.startswith("POST fetch") for request in self.requests)


@contextmanager
def git_server(root: Path, tls: ssl.SSLContext | None = None) -> Iterator[GitServer]:
    """Serve the repositories below the folder until the block ends."""
    state = GitServer(root)

    class Handler(_Handler):
        server_state = state

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server_state: GitServer

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._answer(body)

    def _answer(self, body: bytes) -> None:
        state = self.server_state
        what = "fetch " if b"command=fetch" in body else ""
        state.requests.append(f"{self.command} {what}{self.path}")
        authorization = self.headers.get("Authorization")
        if authorization:
            state.seen_headers.append(authorization)
        if state.fault is not None and state.fault(self):
            return
        wanted = "Basic " + base64.b64encode(state.credentials.encode()).decode()
        if state.credentials and authorization != wanted:
            self.reply(401, b"denied", {"WWW-Authenticate": 'Basic realm="git"'})
            return
        self._run_backend(body)

    def _run_backend(self, body: bytes) -> None:
        state = self.server_state
        path, _, query = self.path.partition("?")
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(state.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "REMOTE_ADDR": "127.0.0.1",
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        if state.speak_version_2:
            environment["GIT_PROTOCOL"] = self.headers.get("Git-Protocol", "")
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=environment, capture_output=True, check=False
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(
            line.decode().split(": ", 1) for line in head.split(b"\r\n") if b": " in line
        )
        status = int(headers.pop("Status", "200").split()[0])
        self.reply(status, content, headers)

    def reply(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        """One whole answer, or the beginning of one."""
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        cut_at = self.server_state.cut_at if self.command == "POST" else None
        self.wfile.write(content[:cut_at])
        self.wfile.flush()
        if cut_at is not None and cut_at < len(content):
            self.close_connection = True

"""A proxy on raw sockets that stands before any HTTP server and does what networks and servers do.

Requests that no rule names pass through; the others meet a fault of ``fault_kinds.FAULTS``.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Final, Literal
from urllib.parse import urlsplit

from rag_assets_tests.certificates import Certificates, make_certificates

ServerKind = Literal[
    "plain",
    "refusing",
    "deaf",
    "hanging_up",
    "resetting",
    "tls_trusted",
    "tls_self_signed",
    "tls_expired",
    "tls_wrong_host",
    "tls_spoken_to_plain",
]
"""What the proxy is before it reads anything: ``refusing`` has no listener, ``deaf`` has one whose
backlog is full and is never accepted, ``tls_spoken_to_plain`` is given an https address but knows
no TLS."""

Outcome = Literal["must_fail", "must_heal", "may_either", "may_leave_out"]
"""What a listing must come to. ``must_fail``: an error. ``must_heal``: the complete right listing.
``may_either``: one of these two. ``may_leave_out``: one of these two, or complete but for the one
document whose content met the fault, which is reported with a reason."""

MOST_SILENCE_SECONDS: Final = 20.0
"""How long a silent fault waits for its client to give up."""
_HOP_HEADERS: Final = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "content-length", "accept-encoding", "te"}
)


class NotApplicable(Exception):
    """This answer cannot have this fault: no list in it, no XML."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes = field(repr=False)

    @property
    def line(self) -> str:
        """``GET /path?query``: what rules match."""
        return f"{self.method} {self.target}"

    def header(self, name: str) -> str:
        """The first header of that name, or an empty string."""
        return next((v for k, v in self.headers if k.lower() == name.lower()), "")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer with its whole body; ``encode`` gives it its Content-Length."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    reason: str = "Whatever"

    def header(self, name: str) -> str:
        """The first header of that name, or an empty string."""
        return next((v for k, v in self.headers if k.lower() == name.lower()), "")

    def with_header(self, name: str, value: str) -> Answer:
        """The same with that header and no other of its name."""
        kept = tuple((k, v) for k, v in self.headers if k.lower() != name.lower())
        return replace(self, headers=(*kept, (name, value)))

    def head(self, length: int | None) -> bytes:
        """Status line and headers; ``length`` None: no Content-Length."""
        lines = [f"HTTP/1.1 {self.status} {self.reason}"]
        lines += [f"{k}: {v}" for k, v in self.headers if k.lower() not in _HOP_HEADERS]
        lines += [] if length is None else [f"Content-Length: {length}"]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")

    def encode(self) -> bytes:
        """The bytes on the wire."""
        return self.head(len(self.body)) + self.body


@dataclass(frozen=True, slots=True)
class When:
    """Which requests meet a fault.

    Of the requests whose ``METHOD target`` line has a match of ``pattern``, the ``first``-th
    (1-based) and those after it, ``count`` in all; None: to the end.
    """

    pattern: str = ""
    first: int = 1
    count: int | None = None

    def admits(self, number: int) -> bool:
        """Whether the ``number``-th matching request (1-based) is one of them."""
        return number >= self.first and (self.count is None or number < self.first + self.count)


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault, and what a source must make of it."""

    name: str
    does: str
    """What the server or the network does, for a person."""
    outcome: Outcome
    behave: Callable[[Exchange], None] | None = None
    """Called in place of passing the request on; None: the fault lies in ``server``."""
    on_content: Outcome | None = None
    """What counts instead of ``outcome`` when the request is for one document's content."""
    count: int | None = None
    """How often the same request meets it; None: for ever."""
    reach: Literal["request", "path", "server"] = "request"
    """``path``: every request of the same path, whatever its query. ``server``: every request."""
    server: ServerKind = "plain"
    media: Literal["", "json", "xml"] = ""
    """The only type of answer that can have it; empty: any."""
    slow: bool = False
    """The client finds out by waiting."""

    def expected(self, *, on_content: bool) -> Outcome:
        """What must come of it."""
        return self.on_content or self.outcome if on_content else self.outcome


@dataclass(slots=True)
class Rule:
    """A fault and the requests that meet it, with what has happened so far."""

    fault: Fault
    when: When = field(default_factory=When)
    matched: int = 0
    fired: int = 0
    inapplicable: int = 0
    memory: dict[str, object] = field(default_factory=dict)
    """What a fault remembers from one request to the next."""

    def restart(self) -> None:
        """Forget what has happened."""
        self.matched = self.fired = self.inapplicable = 0
        self.memory.clear()


@dataclass(slots=True)
class Exchange:
    """One request under way, as a fault sees it."""

    proxy: FaultProxy
    rule: Rule
    request: Request
    connection: socket.socket

    def forward(self, target: str | None = None) -> Answer:
        """What the real server answers (to another target, where one is given)."""
        asked = self.request if target is None else replace(self.request, target=target)
        return self.proxy.forward(asked)

    def respond(self, answer: Answer) -> None:
        """A proper HTTP answer."""
        body = b"" if self.request.method == "HEAD" else answer.body
        self.send(answer.head(len(answer.body)) + body)

    def send(self, *pieces: bytes, pause_seconds: float = 0.0) -> None:
        """Exactly these bytes."""
        for piece in pieces:
            self.connection.sendall(piece)
            if pause_seconds:
                time.sleep(pause_seconds)

    def close(self) -> None:
        """An orderly end of the connection."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()

    def reset(self) -> None:
        """A reset (RST) in place of an orderly end."""
        reset(self.connection)

    def stay_silent(self) -> None:
        """Nothing more, until the client has gone."""
        self.connection.settimeout(MOST_SILENCE_SECONDS)
        with contextlib.suppress(OSError):
            self.connection.recv(1)
        self.close()


class FaultProxy:
    """Listens on a free port of 127.0.0.1 in front of ``peer_url``.

    ``url`` is the peer's address with the proxy in place of its host. ``requests`` are all that
    came, in their order. ``canary`` is where redirects lead.
    """

    def __init__(
        self,
        peer_url: str,
        rules: Iterable[Rule] = (),
        *,
        server: ServerKind = "plain",
        canary: Canary | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        parts = urlsplit(peer_url)
        self._peer = (parts.hostname or "", parts.port or 80)
        self.rules = list(rules)
        self.canary = canary
        self.requests: list[Request] = []
        self.media: dict[str, str] = {}
        """By ``METHOD target``, the content type of the peer's last answer."""
        self.gave_up = False
        """The proxy ended the run itself: the client would not stop."""
        self._lock = threading.Lock()
        self._live: set[socket.socket] = set()
        self._server: ServerKind = server
        self._tls = _server_context(server, certificates)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._listening = True
        self.port: int = self._listener.getsockname()[1]
        scheme = "https" if server.startswith("tls") else "http"
        self.origin = f"{scheme}://127.0.0.1:{self.port}"
        self.url = self.origin + parts.path.rstrip("/")

    @property
    def address(self) -> str:
        """Host and port, as an error message must name them."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> FaultProxy:
        if self._server == "refusing":
            self.stop_listening()
        elif self._server == "deaf":
            self._fill_backlog()
        else:
            threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop_listening()
        self.drop_connections()

    def stop_listening(self) -> None:
        """Refuse every connection from now on."""
        self._listening = False
        # shutdown wakes the thread in accept(), close alone does not
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def listen_again(self) -> None:
        """Accept connections on the same port, after a fault that ended it."""
        if not self._listening:
            self._listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
            self._listening = True
            threading.Thread(target=self._accept, daemon=True).start()

    def drop_connections(self) -> None:
        """Reset every connection that is open."""
        with self._lock:
            live = tuple(self._live)
        for connection in live:
            reset(connection)

    def give_up(self) -> None:
        """End a run that would not end."""
        self.gave_up = True
        self.stop_listening()
        self.drop_connections()

    def forward(self, request: Request) -> Answer:
        """What the peer answers, its own address replaced by the proxy's in headers."""
        host, port = self._peer
        peer = http.client.HTTPConnection(host, port, timeout=MOST_SILENCE_SECONDS)
        try:
            peer.putrequest(request.method, request.target, skip_host=True,
                            skip_accept_encoding=True)  # fmt: skip
            for name, value in request.headers:
                if name.lower() not in _HOP_HEADERS:
                    peer.putheader(name, value)
            peer.putheader("Connection", "close")
            if request.body or request.method in ("POST", "PUT", "PROPFIND", "REPORT"):
                peer.putheader("Content-Length", str(len(request.body)))
            peer.endheaders(request.body or None)
            answer = peer.getresponse()
            headers = tuple((k, self._ours(k, v, request)) for k, v in answer.getheaders())
            self.media[request.line] = answer.getheader("content-type") or ""
            return Answer(answer.status, headers, answer.read(), answer.reason)
        finally:
            peer.close()

    def _ours(self, name: str, value: str, request: Request) -> str:
        if name.lower() not in ("location", "link", "content-location"):
            return value
        for host in {request.header("host"), f"{self._peer[0]}:{self._peer[1]}"} - {""}:
            value = re.sub(rf"https?://{re.escape(host)}(?=[/?]|$)", self.origin, value)
        return value

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with self._lock:
            self._live.add(connection)
        opened = connection
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._server == "hanging_up":
                return
            if self._server == "resetting":
                reset(connection)
                return
            if self._tls:
                connection = self._tls.wrap_socket(connection, server_side=True)
                with self._lock:
                    self._live.add(connection)
            while (request := receive(connection)) is not None:
                self._answer(connection, request)
                if request.header("connection").lower() == "close":
                    return
        except (OSError, ValueError, http.client.HTTPException):
            pass  # the client has gone, or the fault has closed the connection
        finally:
            with self._lock:
                self._live -= {opened, connection}
            connection.close()

    def _answer(self, connection: socket.socket, request: Request) -> None:
        with self._lock:
            self.requests.append(request)
            rule = self._rule_for(request)
        if rule is not None:
            exchange = Exchange(self, rule, request, connection)
            assert rule.fault.behave is not None  # `_rule_for` chooses only such
            rule.fired += 1
            try:
                rule.fault.behave(exchange)
                return
            except NotApplicable:
                rule.fired -= 1
                rule.inapplicable += 1
        answer = self.forward(request)
        body = b"" if request.method == "HEAD" else answer.body
        connection.sendall(answer.head(len(answer.body)) + body)

    def _rule_for(self, request: Request) -> Rule | None:
        found = None
        for rule in self.rules:
            if rule.fault.behave is None or not re.search(rule.when.pattern, request.line):
                continue
            rule.matched += 1
            if found is None and rule.when.admits(rule.matched):
                found = rule
        return found

    def _fill_backlog(self) -> None:
        """As many connections as the kernel queues, so that the next one gets no answer."""
        self._listener.listen(0)
        for _ in range(8):
            waiting = socket.socket()
            waiting.setblocking(False)
            with contextlib.suppress(OSError):
                waiting.connect(("127.0.0.1", self.port))
            self._live.add(waiting)


class Canary:
    """Another server: what arrives here was sent where it must not go.

    It passes what it gets on to the peer, so that who follows a redirect is not stopped by it.
    ``url`` has another host name than the proxy.
    """

    def __init__(self, peer_url: str) -> None:
        self._proxy = FaultProxy(peer_url)
        self.origin = f"http://localhost:{self._proxy.port}"

    @property
    def requests(self) -> list[Request]:
        """All that came."""
        return self._proxy.requests

    def __enter__(self) -> Canary:
        self._proxy.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._proxy.__exit__(None, None, None)


def reset(connection: socket.socket) -> None:
    """End a connection by RST, at once also for a thread that waits on it."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RD)
    connection.close()


def receive(connection: socket.socket) -> Request | None:
    """The next request of a connection; None when the client has closed it.

    Raises:
        ValueError: it is not HTTP.
    """
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65_536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = tuple((k, v.strip()) for k, _, v in (line.partition(":") for line in lines))
    method, target, _ = first.split(" ")
    request = Request(method, target, headers, b"")
    if "chunked" in request.header("transfer-encoding").lower():
        body = _dechunked(connection, body)
    while len(body) < int(request.header("content-length") or 0):
        body += connection.recv(65_536)
    return replace(request, body=body)


def _dechunked(connection: socket.socket, data: bytes) -> bytes:
    body = b""
    while True:
        while b"\r\n" not in data:
            data += connection.recv(65_536)
        size, _, data = data.partition(b"\r\n")
        length = int(size.split(b";")[0], 16)
        while len(data) < length + 2:
            data += connection.recv(65_536)
        if not length:
            return body
        body, data = body + data[:length], data[length + 2 :]


def _server_context(kind: ServerKind, certificates: Certificates | None) -> ssl.SSLContext | None:
    if not kind.startswith("tls") or kind == "tls_spoken_to_plain":
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*(certificates or make_certificates()).pair(kind))
    return context

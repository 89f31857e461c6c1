"""HTTP as every connector speaks it: bounded in time and bytes, retried with patience, verified."""

from __future__ import annotations

import os
import ssl
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import unquote, urlsplit

import httpcore
import httpx
from httpx_retries import Retry, RetryTransport

from rag_assets.errors import ConfigurationError, RagError

FailureKind = Literal["connect", "tls", "timeout", "interrupted", "protocol", "too_large"]
"""``connect``: nobody answers there. ``tls``: who answers cannot be trusted. ``timeout``: too slow.
``interrupted``: the connection broke. ``protocol``: not HTTP. ``too_large``: over the byte cap."""

RETRIED_STATUSES: Final = frozenset({408, 429, 500, 502, 503, 504})
"""408 is what a proxy sends when a kept-alive connection went idle; other 4xx are answers."""
DOUBTFUL_RETRIES: Final = 2
"""Retries after 500 or a time-out: mostly the request's own doing, and each may cost a lot."""
ERROR_BODY_BYTES: Final = 65_536
"""How much of an error's body is read; the rest says nothing more."""
REDIRECT_STATUSES: Final = frozenset({301, 302, 303, 307, 308})

_MOST_REDIRECTS: Final = 5
_WRITE_SLICE_BYTES: Final = 65_536

Response = httpx.Response
"""An answer whose whole body is in ``content``, decompressed."""


class HttpError(RagError):
    """No usable HTTP answer came. The message names the server, never credentials."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """How long, how often and how much one request may take."""

    connect_timeout_seconds: float = 5.0
    timeout_seconds: float = 30.0
    """The longest silence."""
    deadline_seconds: float = 120.0
    """One request on the wire, all its attempts together; waits between attempts do not count.

    Looking up a host name has only the resolver's own limits (some seconds)."""
    retries: int = 4
    backoff_seconds: float = 0.5
    """The wait before the first retry is half to all of this; it doubles for each one after it."""
    retry_after_cap_seconds: float = 30.0
    """The longest wait between two attempts, whatever the server asks for."""
    max_response_bytes: int = 64 * 1024 * 1024
    """After decompression."""
    connections: int = 32

    def __post_init__(self) -> None:
        for name in ("connect_timeout_seconds", "timeout_seconds", "deadline_seconds"):
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"{name} must be more than 0, not {getattr(self, name)}")
        for name in ("retries", "backoff_seconds", "retry_after_cap_seconds"):
            if not getattr(self, name) >= 0:
                raise ConfigurationError(f"{name} must be at least 0, not {getattr(self, name)}")
        for name in ("max_response_bytes", "connections"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {getattr(self, name)}")


@dataclass(slots=True)
class _Call:
    """One request under way in this thread."""

    deadline: float
    """``time.monotonic()`` after which nothing more is read or written."""
    max_response_bytes: int
    attempts: int = 0

    def remaining(self) -> float:
        return self.deadline - time.monotonic()


_call: ContextVar[_Call] = ContextVar("rag_assets_http_call")


class HttpClient:
    """A client of one server: keeps connections, verifies certificates, retries, never runs away.

    Safe to share between threads; after a fork the child opens its own connections. User name and
    password inside ``base_url`` become Basic authentication and are kept out of every message.
    """

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str] | None = None,
        limits: HttpLimits | None = None,
        ca_file: Path | None = None,
    ) -> None:
        """Opens nothing yet.

        Raises:
            ConfigurationError: ``base_url`` is not an http(s) address, a header cannot be sent, or
                ``ca_file`` (certificates to trust instead of the usual ones) cannot be read.
        """
        self.limits = limits or HttpLimits()
        self.address, self._credentials = _split_address(base_url)
        self._headers = {"Accept-Encoding": "gzip, deflate", **(headers or {})}
        _check_headers(self._headers)
        self._ssl_context = _trust(ca_file) if self.address.startswith("https:") else None
        self._owner: tuple[int, httpx.Client] | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown: the password, and values of headers that authenticate."""
        words = ("auth", "token", "key", "secret", "cookie")
        values = [v for k, v in self._headers.items() if any(word in k.lower() for word in words)]
        parts = [part for value in values for part in (value, value.split(" ")[-1])]
        if self._credentials:
            parts.append(self._credentials[1])
        return tuple(sorted({part for part in parts if len(part) >= 4}, key=len, reverse=True))

    def request(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        max_response_bytes: int | None = None,
        follow_redirects: bool = False,
    ) -> Response:
        """The server's answer, whatever its status, after retries.

        Redirects come back as they are; with ``follow_redirects`` a GET or HEAD follows those that
        stay on the same scheme, host and port. Every method counts as repeatable: callers of a
        server where a request may not be repeated say ``retries=0``.

        Raises:
            HttpError: no answer, not in time, not whole, too large, or not to be trusted.
        """
        limits = self.limits
        cap = min(max_response_bytes or limits.max_response_bytes, limits.max_response_bytes)
        call = _Call(time.monotonic() + limits.deadline_seconds, cap)
        token = _call.set(call)
        try:
            client = self._client()
            request = client.build_request(
                method, self.address + path, content=content, headers=dict(headers or {})
            )
            response = client.send(request)
            return self._follow(client, response) if follow_redirects else response
        except httpx.HTTPError as error:
            raise _failure(error, self.address, limits, call) from error
        finally:
            _call.reset(token)

    def close(self) -> None:
        """Close the connections; the client is not used afterwards."""
        owner, self._owner = self._owner, None
        if owner and owner[0] == os.getpid():
            owner[1].close()

    def _client(self) -> httpx.Client:
        """This process's httpx client: connections must not be shared across a fork."""
        owner = self._owner
        if owner is None or owner[0] != os.getpid():
            # Two threads may both get here; the loser's client is empty and is dropped.
            owner = self._owner = (os.getpid(), self._open())
        return owner[1]

    def _open(self) -> httpx.Client:
        limits = self.limits
        policy = _Patience(
            total=limits.retries,
            allowed_methods=("GET", "HEAD", "POST", "PUT", "DELETE", "PROPFIND", "REPORT"),
            status_forcelist=RETRIED_STATUSES,
            backoff_factor=limits.backoff_seconds / 2,
            max_backoff_wait=max(limits.retry_after_cap_seconds, 1e-9),
            backoff_jitter=0.5,
        )
        return httpx.Client(
            transport=RetryTransport(_BoundedTransport(self._ssl_context, limits), policy),
            timeout=httpx.Timeout(limits.timeout_seconds, connect=limits.connect_timeout_seconds),
            headers=self._headers,
            auth=self._credentials,
            follow_redirects=False,
            trust_env=False,
        )

    def _follow(self, client: httpx.Client, response: Response) -> Response:
        """The end of a chain of redirects, as far as it stays on this server."""
        for _ in range(_MOST_REDIRECTS):
            following = response.next_request
            if following is None or following.method not in ("GET", "HEAD"):
                return response
            if _origin(following.url) != _origin(response.url):
                return response
            response = client.send(following)
        return response


class _Patience(Retry):
    """The policy of httpx-retries, with fewer attempts where the request itself is in doubt."""

    def is_retryable_status_code(self, status_code: int) -> bool:
        if status_code == 500 and self.attempts_made >= DOUBTFUL_RETRIES:
            return False
        return super().is_retryable_status_code(status_code)

    def is_retryable_exception(self, exception: Exception) -> bool:
        call = _call.get()
        if call.remaining() <= 0 or _certificate_error(exception) is not None:
            return False
        if isinstance(exception, httpx.ReadTimeout) and self.attempts_made >= DOUBTFUL_RETRIES:
            return False
        return super().is_retryable_exception(exception)

    def sleep(self, response: httpx.Response | Exception) -> None:
        began = time.monotonic()
        super().sleep(response)
        # A wait is the server's wish, not its slowness: it does not use up the deadline.
        _call.get().deadline += time.monotonic() - began


class _TooLarge(httpx.HTTPError):
    """The body is over the cap."""


class _BoundedTransport(httpx.BaseTransport):
    """Sends one attempt and reads its whole body, under the deadline and the cap of the call.

    The body is read here, below the retries, so that a connection that breaks in the middle of a
    body is retried like one that breaks before it.
    """

    def __init__(self, ssl_context: ssl.SSLContext | None, limits: HttpLimits) -> None:
        self._pool = httpcore.ConnectionPool(
            ssl_context=ssl_context,
            max_connections=limits.connections,
            keepalive_expiry=5.0,
            network_backend=_DeadlineBackend(),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        call = _call.get()
        call.attempts += 1
        with _as_httpx_errors(request):
            answer = self._pool.handle_request(
                httpcore.Request(
                    request.method,
                    httpcore.URL(
                        scheme=request.url.raw_scheme,
                        host=request.url.raw_host,
                        port=request.url.port,
                        target=request.url.raw_path,
                    ),
                    headers=request.headers.raw,
                    content=request.read(),
                    extensions=request.extensions,
                )
            )
            try:
                body = _read_body(answer, call.max_response_bytes)
            finally:
                answer.close()
        kept = [(k, v) for k, v in answer.headers if k.lower() not in _BODY_HEADERS]
        return httpx.Response(answer.status, headers=kept, content=body, request=request)

    def close(self) -> None:
        self._pool.close()


_BODY_HEADERS: Final = (b"content-encoding", b"content-length", b"transfer-encoding")


class _DeadlineStream(httpcore.NetworkStream):
    """A socket whose every read and write ends by the deadline of the call.

    The time-out of a read alone does not stop a server that sends a byte now and then.
    """

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        left = _time_left(timeout, httpcore.ReadTimeout)
        return self._stream.read(max_bytes, left)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _WRITE_SLICE_BYTES):
            left = _time_left(timeout, httpcore.WriteTimeout)
            self._stream.write(buffer[start : start + _WRITE_SLICE_BYTES], left)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left = _time_left(timeout, httpcore.ConnectTimeout)
        return _DeadlineStream(self._stream.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _DeadlineBackend(httpcore.NetworkBackend):
    """Opens sockets that know the deadline."""

    def __init__(self) -> None:
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        left = _time_left(timeout, httpcore.ConnectTimeout)
        try:
            stream = self._backend.connect_tcp(host, port, left, local_address, socket_options)
        except UnicodeError as error:  # a host name that IDNA cannot encode
            raise httpcore.ConnectError(f"host name cannot be looked up: {error}") from error
        return _DeadlineStream(stream)


def _time_left(timeout: float | None, expired: type[httpcore.TimeoutException]) -> float:
    """The shorter of ``timeout`` and what remains of the call's deadline, in seconds."""
    remaining = _call.get().remaining()
    if remaining <= 0:
        raise expired("the deadline has passed")
    return remaining if timeout is None else min(timeout, remaining)


@contextmanager
def _as_httpx_errors(request: httpx.Request) -> Iterator[None]:
    """Every httpcore error has a namesake in httpx."""
    try:
        yield
    except (
        httpcore.TimeoutException,
        httpcore.NetworkError,
        httpcore.ProtocolError,
        httpcore.UnsupportedProtocol,
    ) as error:
        namesake: type[httpx.TransportError] = getattr(httpx, type(error).__name__)
        raise namesake(str(error), request=request) from error


def _read_body(answer: httpcore.Response, cap: int) -> bytes:
    """The decompressed body, at most ``cap`` bytes; an error's body is cut rather than refused."""
    encoding = _header(answer, b"content-encoding").lower()
    failed = answer.status >= 300
    if failed:
        cap = min(cap, ERROR_BODY_BYTES)
    parts: list[bytes] = []
    size = 0
    for part in _decoded(answer.iter_stream(), encoding, cap + 1):
        size += len(part)
        if size > cap and not failed:
            raise _TooLarge(f"more than {cap:,} bytes")
        parts.append(part)
        if size > cap:
            break
    return b"".join(parts)[:cap]


def _decoded(stream: Iterable[bytes], encoding: str, step: int) -> Iterator[bytes]:
    """The pieces of a body, decompressed ``step`` bytes at a time: a bomb never unfolds."""
    if encoding in ("", "identity"):
        yield from stream
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise httpx.DecodingError(f"content encoding {encoding[:40]!r} was not asked for")
    decoder = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    try:
        for piece in stream:
            while piece and not decoder.eof:
                yield decoder.decompress(piece, step)
                piece = decoder.unconsumed_tail
        yield decoder.flush()
    except zlib.error as error:
        raise httpx.DecodingError(f"the {encoding} body cannot be decompressed") from error
    if not decoder.eof:
        raise httpx.DecodingError(f"the {encoding} body ends too early")


def _header(answer: httpcore.Response, name: bytes) -> str:
    found = [value for key, value in answer.headers if key.lower() == name]
    return b", ".join(found).decode("latin-1").strip()


def _failure(error: httpx.HTTPError, address: str, limits: HttpLimits, call: _Call) -> HttpError:
    """What went wrong, for a person; the only place where httpx's errors are read."""
    tried = f" ({call.attempts} attempts)" if call.attempts > 1 else ""
    certificate = _certificate_error(error)
    if certificate is not None:
        return HttpError("tls", f"{address} cannot be trusted over TLS: {certificate}")
    if isinstance(error, _TooLarge):
        return HttpError("too_large", f"{address} answered {error}: refused")
    if isinstance(error, httpx.ConnectTimeout) and call.remaining() > 0:
        seconds = limits.connect_timeout_seconds
        said = f"{address} accepted no connection within {seconds:g} s{tried}"
        return HttpError("connect", said)
    if isinstance(error, httpx.TimeoutException):
        return HttpError("timeout", _slowness(error, address, limits, call) + tried)
    detail = _detail(error)
    if isinstance(error, httpx.ConnectError):
        return HttpError("connect", f"{address} cannot be reached: {detail}{tried}")
    if isinstance(error, (httpx.DecodingError, httpx.LocalProtocolError)):
        return HttpError("protocol", f"{address} did not answer in valid HTTP: {detail}{tried}")
    return HttpError("interrupted", f"{address} broke off the exchange: {detail}{tried}")


def _slowness(error: httpx.TimeoutException, address: str, limits: HttpLimits, call: _Call) -> str:
    if call.remaining() <= 0:
        return f"{address} gave no complete answer within {limits.deadline_seconds:g} s"
    if isinstance(error, httpx.PoolTimeout):
        return f"all {limits.connections} connections to {address} are busy"
    return f"{address} was silent for {limits.timeout_seconds:g} s"


def _detail(error: httpx.HTTPError) -> str:
    words = " ".join(str(error).split())[:200]
    return words or type(error).__name__


def _certificate_error(error: BaseException) -> str | None:
    """Why TLS failed, when that is what lies under ``error``: trying again would not help."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLCertVerificationError):
            return f"{seen.verify_message} (trust a private authority with its certificate file)"
        if isinstance(seen, ssl.SSLError) and not isinstance(seen, ssl.SSLEOFError):
            return " ".join(str(seen.reason or seen).split())
        # httpcore's pool raises "from None", which leaves only the context.
        seen = seen.__cause__ or seen.__context__
    return None


def _split_address(url: str) -> tuple[str, tuple[str, str] | None]:
    """The address without anything secret, and the credentials that stood in it."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        shown = httpx.URL(url).copy_with(username=None, password=None, query=None, fragment=None)
    except (ValueError, httpx.InvalidURL) as error:
        # The error's own words may quote the address, password included.
        raise ConfigurationError("the url is not a valid http(s) address") from error
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigurationError("the url must begin with http:// or https:// and name a host")
    if parts.query or parts.fragment or port == 0:
        raise ConfigurationError(
            f"the url {shown} must end before any '?' or '#', with a real port"
        )
    if parts.username is None and parts.password is None:
        return str(shown).rstrip("/"), None
    return str(shown).rstrip("/"), (unquote(parts.username or ""), unquote(parts.password or ""))


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not (name.isascii() and value.isascii() and value.isprintable()):
            raise ConfigurationError(f"header {name!r} has characters that HTTP cannot carry")


def _trust(ca_file: Path | None) -> ssl.SSLContext:
    """The usual certificate authorities (or SSL_CERT_FILE), or only those in ``ca_file``."""
    if ca_file is None:
        return httpx.create_ssl_context()
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except OSError as error:
        raise ConfigurationError(f"certificates cannot be read from {ca_file}: {error}") from error


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port

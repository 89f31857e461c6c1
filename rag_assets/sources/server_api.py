"""One server's API as a connector speaks to it: paced, bounded, and with errors for people."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import urlencode, urlsplit

from rag_assets.errors import IncompleteEnumeration, SourceError, SourceUnavailable
from rag_assets.http_client import (
    REDIRECT_STATUSES,
    HttpClient,
    HttpError,
    HttpLimits,
    Response,
)
from rag_assets.refusals import excerpt

if TYPE_CHECKING:
    from rag_assets.source_settings import ServerSettings

SHORTEST_SECRET: Final = 6
"""Shorter strings stand in any message by chance; no server makes such secrets."""
MOST_JSON_BYTES: Final = 32 * 1024 * 1024
"""A page of a listing is far smaller; a larger answer is a fault."""


def limits_of(settings: ServerSettings) -> HttpLimits:
    """The limits of HTTP that a source's settings ask for."""
    return HttpLimits(
        connect_timeout_seconds=settings.connect_timeout_seconds,
        timeout_seconds=settings.timeout_seconds,
        deadline_seconds=settings.deadline_seconds,
        retries=settings.retries,
        retry_after_cap_seconds=settings.retry_after_cap_seconds,
        connections=max(settings.concurrency, 1),
    )


class NotThere(SourceError):
    """The server says that one thing does not exist (404, 410)."""


class Refused(SourceError):
    """The server does not let this account see one thing (403)."""


class TooLarge(SourceError):
    """One answer is larger than allowed."""


class ServerApi:
    """Requests to one server for one source. Safe to share between threads.

    ``secrets`` are further strings that no message may show, beside those that ``headers`` carry.
    ``requests`` counts what was sent, retries not counted. With ``pace_of`` the requests of both
    share one limit: many servers count by the address that asks, whoever it says it is.
    """

    def __init__(
        self,
        source: str,
        base_url: str,
        *,
        headers: Mapping[str, str] | None = None,
        secrets: Sequence[str] = (),
        limits: HttpLimits | None = None,
        ca_file: Path | None = None,
        requests_per_minute: int = 600,
        pace_of: ServerApi | None = None,
    ) -> None:
        self.source = source
        self._pace_of = pace_of
        self._client = HttpClient(base_url, headers=headers, limits=limits, ca_file=ca_file)
        self.address = self._client.address
        known = (*secrets, *self._client.secrets)
        self._secrets = tuple(secret for secret in known if len(secret) >= SHORTEST_SECRET)
        self._requests_per_minute = requests_per_minute
        self._limiter: Any = None
        self._lock = threading.Lock()
        self.requests = 0

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        expected: Sequence[int] = (200,),
        max_response_bytes: int | None = None,
    ) -> Response:
        """The answer to one request, whose status is one of ``expected``.

        Redirects are followed within the same scheme, host and port, never elsewhere.

        Raises:
            NotThere, Refused: 404 or 410, and 403.
            TooLarge: the body is larger than ``max_response_bytes``.
            SourceUnavailable: no answer, or one that means that nothing can be read: 401, 429 to
                the last, 5xx, a redirect to another host.
        """
        self._pace()
        target = path + ("?" + urlencode(query) if query else "")
        try:
            response = self._client.request(
                method,
                target,
                content=content,
                headers=headers,
                max_response_bytes=max_response_bytes,
                follow_redirects=True,
            )
        except HttpError as failure:
            if failure.kind == "too_large" and max_response_bytes is not None:
                raise TooLarge(self._message(method, target, str(failure))) from failure
            raise SourceUnavailable(
                self._message(method, target, f"{failure}. {_remedy(failure)}")
            ) from failure
        if response.status_code not in expected:
            self._refuse(method, target, response)
        return response

    def json(self, path: str, *, query: Mapping[str, object] | None = None) -> Any:
        """The JSON value that a GET answers.

        Raises:
            IncompleteEnumeration: the answer is not JSON (a login page, a cut body).
            SourceError: as ``send``.
        """
        return self.json_of(path, query)[0]

    def json_of(self, path: str, query: Mapping[str, object] | None = None) -> tuple[Any, Response]:
        """The JSON value that a GET answers, and the answer with its headers; see ``json``."""
        response = self.send(
            "GET",
            path,
            query=query,
            headers={"Accept": "application/json"},
            max_response_bytes=MOST_JSON_BYTES,
        )
        return self.value_of(path, response), response

    def value_of(self, path: str, response: Response) -> Any:
        """The JSON value in an answer that ``send`` gave for ``path``; see ``json``."""
        try:
            return json.loads(response.content, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            said = excerpt(response.content, secrets=self._secrets)
            if response.content.lstrip()[:1] == b"<":
                said += " (a login page?)"
            self.malformed(path, f"answered what is not JSON: {said or 'nothing'}")

    def malformed(self, path: str, why: str, *, method: str = "GET") -> NoReturn:
        """Give up on an answer that is not what this API documents.

        Raises:
            IncompleteEnumeration: always.
        """
        raise IncompleteEnumeration(
            self._message(method, path, why)
            + "; nothing was removed. Check that base_url leads to the API and not to a proxy or "
            "a login page"
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _pace(self) -> None:
        with self._lock:
            self.requests += 1
        limiter = (self._pace_of or self)._shared_limiter()
        limiter.try_acquire(self.source)

    def _shared_limiter(self) -> Any:
        from pyrate_limiter import Duration, Limiter, Rate

        with self._lock:
            if self._limiter is None:
                self._limiter = Limiter(Rate(self._requests_per_minute, Duration.MINUTE))
        return self._limiter

    def _refuse(self, method: str, target: str, response: Response) -> NoReturn:
        status = response.status_code
        said = excerpt(response.content, secrets=self._secrets)
        words = f"answered {status}" + (f" ({said})" if said else "")
        if status in REDIRECT_STATUSES:
            words = f"answered {status} and leads to {_elsewhere(response)}, which is not followed"
        message = self._message(method, target, words)
        if status in (404, 410):
            raise NotThere(f"{message}. Check base_url and that this exists there")
        if status == 403:
            raise Refused(f"{message}. The account may not see this: give its role the right to")
        remedy = {
            401: "The token or password is wrong, expired or lacks the right: make a new one",
            405: "Check base_url: what answers there is not the API",
            501: "Check base_url: what answers there is not the API",
            429: "It asks for fewer requests: lower requests_per_minute of this source",
        }.get(status, "Run again when the server is well")
        if status in REDIRECT_STATUSES:
            remedy = "Set base_url to the address that the server itself uses"
        raise SourceUnavailable(f"{message}. {remedy}; nothing was removed")

    def _message(self, method: str, target: str, words: str) -> str:
        message = f"source {self.source}: {method} {self.address}{target[:300]}: {words}"
        for secret in self._secrets:
            message = message.replace(secret, "[secret]")
        return message


def _refuse_constant(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is not JSON")


def _elsewhere(response: Response) -> str:
    """Scheme and host of a redirect; its path and query may carry anything."""
    location = response.headers.get("location", "")
    try:
        parts = urlsplit(location)
        host = parts.hostname or ""
    except ValueError:
        return "an address that cannot be read"
    return f"{parts.scheme}://{host}"[:200] if host else "another page"


def _remedy(failure: HttpError) -> str:
    if failure.kind == "tls":
        return "Certificates are always checked: mend the server's, or set ca_file"
    if failure.kind == "connect":
        return "Check base_url and that the server runs"
    return "Run again when the server is well"

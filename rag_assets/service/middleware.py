"""Around every request: the host name it may use, the headers it gets, and its line in the log."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from starlette.datastructures import Headers, MutableHeaders

from rag_assets.service.answers import error_answer, translated
from rag_assets.service.errors import BadRequest

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\s/]+)(?::\d{1,5})?\Z")
_HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}
"""What an answer gets unless its route set the header itself."""

access_log = logging.getLogger("rag_assets.service.access")


class Gate:
    """Refuses foreign host names, adds headers, turns what nobody caught into a 500, logs.

    A page of a foreign site can make its own name resolve to this machine (DNS rebinding) and
    would then read answers as if they were its own; its requests still carry that name.

    The log has method, route, status, time and token, never the path or the text of a request:
    questions and names of documents may be secret.
    """

    def __init__(self, app: ASGIApp, *, hosts: Collection[str], routes: Mapping[Any, str]) -> None:
        self._app = app
        self._names = {host.lower() for host in hosts if not host.startswith("*.")}
        self._endings = tuple(host[1:].lower() for host in hosts if host.startswith("*."))
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        scope.setdefault("state", {})
        status = 0

        async def sender(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._answer(scope, receive, sender)
        except Exception as exc:
            if status:
                raise  # too late for another answer
            await error_answer(translated(exc))(scope, receive, sender)
        finally:
            access_log.info(
                "%s %s %s %.1f ms %s",
                scope["method"] if scope["method"].isalpha() else "-",
                self._routes.get(scope.get("endpoint"), "-"),
                status or "-",
                (time.perf_counter() - began) * 1000,
                scope["state"].get("caller", "-"),
            )

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._is_known(Headers(scope=scope).get("host", "")):
            await self._app(scope, receive, send)
        else:
            refusal = BadRequest(
                "this service does not answer to that host name; service.allowed_hosts lists them"
            )
            await error_answer(refusal)(scope, receive, send)

    def _is_known(self, host_header: str) -> bool:
        match = _HOST.match(host_header)
        if match is None:
            return False
        name = match.group(1).lower().rstrip(".")
        return name in self._names or name.endswith(self._endings)

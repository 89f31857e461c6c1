"""What every route shares: the retriever, the callers and their limits, the worker threads."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from rag_assets.acl import AclTags
from rag_assets.components import build_retriever, open_reader
from rag_assets.errors import ConfigurationError
from rag_assets.service.errors import (
    Forbidden,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from rag_assets.service.limits import RateLimiter
from rag_assets.service.tokens import TokenStore

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from rag_assets.config import Config
    from rag_assets.index.base import VectorStore
    from rag_assets.retrieval import Retriever

__all__ = ["Caller", "SearchService", "create_app"]

FAILURES_PER_MINUTE: Final = 60
"""Refused tokens of one address that are answered 401; more are answered 429. A known token is
let in all the same, or whoever shares an address with an attacker would be shut out."""
MOST_WAITING: Final = 64
"""Requests that may wait for a worker thread; one more is told to come back."""

logger = logging.getLogger("rag_assets.service")

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, by token, and what it may see."""

    name: str
    acl_tags: AclTags
    admin: bool


class SearchService:
    """One per process, thread-safe: what routes need to answer.

    ``retriever`` is closed with the service, whoever made it.
    """

    def __init__(self, config: Config, *, retriever: Retriever | None = None) -> None:
        self.config: Config = config
        self.retriever: Retriever = retriever or build_retriever(config)
        self.tokens: TokenStore = TokenStore(config.data_dir)
        settings = config.service
        self._requests = RateLimiter(settings.rate_per_minute)
        self._failures = RateLimiter(FAILURES_PER_MINUTE)
        self._workers = ThreadPoolExecutor(settings.concurrency, thread_name_prefix="search")
        self._running = 0
        self._reader: VectorStore | None = None
        self._opening = threading.Lock()
        self._lock = threading.Lock()

    def reader(self) -> VectorStore:
        """The live index for reading, opened by the first call; it follows rebuilds.

        Raises:
            IndexMissing: there is no index yet; the next call looks again.
            VectorStoreError: it cannot be opened.
        """
        with self._opening:  # not the lock of the counts: opening may take long
            if self._reader is None:
                self._reader = open_reader(self.config)
            return self._reader

    def authenticate(self, authorization: str | None, *, client: str = "") -> Caller:
        """Who asks, by the value of its ``Authorization`` header.

        Takes one request from the caller's limit. ``client`` is the address that refused tokens
        are counted for.

        Raises:
            Unauthorized: no token, or one that is not known.
            TooManyRequests: more requests, or more refused tokens, than the limits allow.
            ServiceUnavailable: the token file cannot be read.
        """
        secret = _bearer(authorization or "")
        try:
            token = self.tokens.find(secret) if secret else None
            empty = token is None and not self.tokens.all()
        except ConfigurationError:
            logger.exception("the token file cannot be read; every request is refused")
            raise ServiceUnavailable(
                "tokens cannot be checked now; the server's log says why"
            ) from None
        if token is None:
            raise self._refusal(empty=empty, given=bool(authorization), client=client)
        if wait := self._requests.take(token.name):
            raise TooManyRequests(
                f"more than {self.config.service.rate_per_minute} requests in a minute", wait
            )
        return Caller(token.name, token.visible, token.admin)

    def require_admin(self, caller: Caller) -> None:
        """Raises ``Forbidden`` unless the caller's token was made with ``--admin``."""
        if not caller.admin:
            raise Forbidden("this needs a token made with `rag-assets token add NAME --admin`")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``function`` in a worker thread, within ``service.timeout_seconds``.

        At most ``service.concurrency`` run at once and ``MOST_WAITING`` wait; the time limit
        counts the wait. A call that is given up runs on in its thread and keeps its place there,
        so calls that hang cannot pile up.

        Raises:
            ServiceUnavailable: too many wait already, or it took too long.
        """
        with self._lock:
            if self._running >= self.config.service.concurrency + MOST_WAITING:
                raise ServiceUnavailable("too many requests are waiting; try again")
            self._running += 1
        context = contextvars.copy_context()
        work = self._workers.submit(lambda: context.run(function, *args, **kwargs))
        work.add_done_callback(self._count_done)
        waiting = asyncio.wrap_future(work)
        try:
            await asyncio.wait([waiting], timeout=self.config.service.timeout_seconds)
            if waiting.done():
                return waiting.result()
        finally:
            waiting.cancel()
        raise ServiceUnavailable("it took too long; try again, or ask for less")

    def close(self) -> None:
        """Stop taking work and release the index and the embedder."""
        self._workers.shutdown(wait=True, cancel_futures=True)
        with self._opening:
            reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
        self.retriever.close()

    def _count_done(self, _: Future[Any]) -> None:
        with self._lock:
            self._running -= 1

    def _refusal(self, *, empty: bool, given: bool, client: str) -> Exception:
        if wait := self._failures.take(client):
            return TooManyRequests("too many refused tokens from this address", wait)
        if empty:
            return Unauthorized(
                "no token exists yet: run `rag-assets token add NAME --acl TAG` on the server and "
                "send it as `Authorization: Bearer <token>`"
            )
        if given:
            return Unauthorized("this token is not known; it may have been removed")
        return Unauthorized("a token is needed: send `Authorization: Bearer <token>`")


def _bearer(authorization: str) -> str:
    """The token of an ``Authorization`` value; the scheme is not case-sensitive (RFC 9110)."""
    scheme, _, token = authorization.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def create_app(config: Config, *, retriever: Retriever | None = None) -> Starlette:
    """The service as an ASGI application; ``app.state.service`` is its ``SearchService``."""
    from rag_assets.service.app import build_app

    return build_app(SearchService(config, retriever=retriever))

"""The ASGI application: routes and what stands around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Route

from rag_assets.service.answers import HANDLED
from rag_assets.service.api import api_routes
from rag_assets.service.middleware import LOOPBACK, Gate
from rag_assets.service.page import page_routes

if TYPE_CHECKING:
    from rag_assets.service.core import SearchService
    from rag_assets.settings import ServiceSettings


def build_app(service: SearchService) -> Starlette:
    """The routes of the API and the page over one service, which is closed at shutdown."""
    routes: list[BaseRoute] = [*api_routes(service), *page_routes(service)]
    settings = service.config.service
    templates = {route.endpoint: route.path for route in routes if isinstance(route, Route)}
    around = [Middleware(Gate, hosts=host_names(settings), routes=templates)]
    if settings.allowed_origins:
        around.append(
            Middleware(
                CORSMiddleware,
                allow_origins=settings.allowed_origins,
                allow_methods=("GET", "POST"),
                allow_headers=("Authorization", "Content-Type"),
                expose_headers=("Retry-After",),
            )
        )
    app = Starlette(
        routes=routes,
        middleware=around,
        exception_handlers=dict(HANDLED),
        lifespan=_closing(service),
    )
    app.router.redirect_slashes = False  # a redirect would repeat the caller's Host
    app.state.service = service
    return app


def host_names(settings: ServiceSettings) -> list[str]:
    """The host names that the service answers to, as a ``Host`` header has them."""
    host = settings.host
    own = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return list(dict.fromkeys((*LOOPBACK, own, *settings.allowed_hosts)))


def _closing(service: SearchService) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(service.close)

    return lifespan

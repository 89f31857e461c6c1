"""The service on a port: uvicorn, set up so that slow or greedy clients cannot hold it up."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from uvicorn.config import LOGGING_CONFIG

from rag_assets.service.core import create_app
from rag_assets.service.protocol import DeadlineProtocol

if TYPE_CHECKING:
    from rag_assets.config import Config
    from rag_assets.retrieval import Retriever

MOST_CONNECTIONS: Final = 1000
"""Open connections; one more is answered 503."""
GRACE_SECONDS: Final = 10
"""How long requests under way may take to end when the service is stopped."""


class Server(uvicorn.Server):
    """A uvicorn server that says where it listens, once it does."""

    def __init__(self, config: uvicorn.Config, listening: Callable[[str], None]) -> None:
        super().__init__(config)
        self._listening = listening

    async def startup(self, sockets: Any = None) -> None:
        """Listen, then call ``listening`` with the address of the service."""
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._listening(f"http://{f'[{host}]' if ':' in host else host}:{port}")


def build_server(
    config: Config,
    *,
    listening: Callable[[str], None],
    retriever: Retriever | None = None,
) -> Server:
    """A server for ``service.host`` and ``service.port``; ``run()`` serves until it is stopped.

    ``listening`` is called with its address (``http://127.0.0.1:8000``).
    """
    settings = config.service
    return Server(
        uvicorn.Config(
            create_app(config, retriever=retriever),
            host=settings.host.strip("[]"),
            port=settings.port,
            http=DeadlineProtocol,
            ws="none",
            log_config=_log_config(),
            access_log=False,  # it would hold names of documents; the service has its own
            proxy_headers=False,
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        ),
        listening,
    )


def _log_config() -> dict[str, Any]:
    """uvicorn's own, and one line a request from the service, all on stderr."""
    settings: dict[str, Any] = copy.deepcopy(LOGGING_CONFIG)
    settings["formatters"]["plain"] = {"format": "%(asctime)s %(levelname)s %(message)s"}
    settings["handlers"]["plain"] = {
        "formatter": "plain",
        "class": "logging.StreamHandler",
        "stream": "ext://sys.stderr",
    }
    settings["loggers"]["rag_assets"] = {"handlers": ["plain"], "level": "INFO"}
    return settings

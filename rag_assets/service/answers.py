"""Answers as bytes, and errors as answers: the one place where an exception becomes a status."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from rag_assets.errors import IndexMissing, InvalidInput, InvalidQuery, RagError
from rag_assets.service.errors import (
    BadRequest,
    Internal,
    MethodNotAllowed,
    NotFound,
    ServiceError,
    ServiceUnavailable,
    Unprocessable,
)

if TYPE_CHECKING:
    from starlette.requests import Request

logger = logging.getLogger("rag_assets.service")


def json_bytes(value: Any) -> bytes:
    """Compact JSON. A lone surrogate becomes its JSON escape, as UTF-8 cannot carry it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


def json_answer(
    body: bytes | Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A JSON response; ``body`` may have been made into bytes by a worker already."""
    content = body if isinstance(body, bytes) else json_bytes(body)
    return Response(content, status, headers, media_type="application/json")


def error_answer(error: ServiceError) -> Response:
    """The response that an error is."""
    return json_answer(error.body, error.status, error.headers)


async def answer_error(request: Request, exc: Exception) -> Response:  # noqa: ARG001
    """Starlette's exception handler for everything in ``HANDLED``."""
    if isinstance(exc, HTTPException):
        return _http_error(exc)
    return error_answer(translated(exc))


HANDLED: Mapping[Any, Any] = {
    ServiceError: answer_error,
    RagError: answer_error,
    HTTPException: answer_error,
}
"""What ``create_app`` gives Starlette as ``exception_handlers``."""


def translated(exc: Exception) -> ServiceError:
    """What the service answers for an error; what the caller must not read goes to the log."""
    if isinstance(exc, ServiceError):
        return exc
    if isinstance(exc, InvalidQuery):
        return Unprocessable(str(exc))
    if isinstance(exc, InvalidInput):
        return Unprocessable("query: the embedder refuses this text")
    if isinstance(exc, IndexMissing):
        return ServiceUnavailable("there is no index yet; run an ingest first")
    reference = secrets.token_hex(4)
    logger.error("error %s", reference, exc_info=exc)
    if isinstance(exc, RagError):
        return ServiceUnavailable(
            f"the search cannot answer now; the server's log says why (error {reference})"
        )
    return Internal(f"unexpected error {reference}; the server's log says more")


def _http_error(exc: HTTPException) -> Response:
    """What the router says: no such path, or not this method there (with ``Allow``)."""
    if exc.status_code == NotFound.status:
        return error_answer(NotFound("there is nothing at this path"))
    if exc.status_code == MethodNotAllowed.status:
        return error_answer(MethodNotAllowed("this path has no such method", exc.headers))
    return error_answer(BadRequest("this request is not understood", exc.headers))

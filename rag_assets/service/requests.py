"""From a request to what a route needs: who asks, and the body it sent, within the limits."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from rag_assets.service.errors import (
    BadRequest,
    BodyTimeout,
    BodyTooLarge,
    Unprocessable,
    WrongContentType,
)

if TYPE_CHECKING:
    from starlette.requests import Request

    from rag_assets.service.core import Caller, SearchService

LONGEST_SHOWN: Final = 80
"""Characters of a key that a message repeats."""

Body = TypeVar("Body", bound=BaseModel)


def caller_of(service: SearchService, request: Request) -> Caller:
    """Who asks; see ``SearchService.authenticate``. The access log will have the token's name."""
    client = request.client.host if request.client else ""
    caller = service.authenticate(request.headers.get("authorization"), client=client)
    request.state.caller = caller.name
    return caller


async def read_body(service: SearchService, request: Request, model: type[Body]) -> Body:
    """The JSON object of a request, checked.

    Raises:
        WrongContentType, BodyTooLarge, BodyTimeout, BadRequest, Unprocessable
    """
    _check_content_type(request)
    settings = service.config.service
    reading = _read_bytes(request, settings.max_body_bytes)
    try:
        raw = await asyncio.wait_for(reading, settings.timeout_seconds)
    except asyncio.TimeoutError:
        raise BodyTimeout(
            f"the body did not arrive within {settings.timeout_seconds:g} s"
        ) from None
    except ClientDisconnect:
        raise BadRequest("the body ended early") from None
    return checked(model, _json(raw))


def checked(model: type[Body], value: Any) -> Body:
    """``value`` as a model.

    Raises:
        Unprocessable: a key or a value is wrong; the message names it.
    """
    try:
        return model.model_validate(value)
    except ValidationError as exc:
        raise Unprocessable(_explain(exc)) from None


def _check_content_type(request: Request) -> None:
    kind, _, parameters = request.headers.get("content-type", "").partition(";")
    charset = parameters.strip().lower().replace('"', "").partition("charset=")[2]
    if kind.strip().lower() != "application/json" or charset not in ("", "utf-8"):
        raise WrongContentType("send JSON in UTF-8, with `Content-Type: application/json`")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise WrongContentType("send the body without Content-Encoding")


async def _read_bytes(request: Request, limit: int) -> bytes:
    """The body; it is counted as it arrives, as it need not say how long it is."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > limit:
        _too_large(limit)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            _too_large(limit)
    return bytes(body)


def _too_large(limit: int) -> NoReturn:
    raise BodyTooLarge(f"the body is larger than {limit:,} bytes")


def _json(raw: bytes) -> Any:
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise BadRequest("the body is not valid JSON in UTF-8") from None
    if rb"\u" in raw:
        _check_unicode(value)
    return value


def _check_unicode(value: Any) -> None:
    """JSON can escape half of a surrogate pair, which is a character of no text."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise Unprocessable("body: a text has half of a surrogate pair") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)  # NaN and Infinity are not JSON


def _explain(exc: ValidationError) -> str:
    """The faults, a key each; values are not repeated."""
    faults: dict[str, str] = {}
    for error in exc.errors(include_input=False, include_url=False):
        key = ".".join(str(part) for part in error["loc"] if part in _keys(error["loc"]))
        message = error["msg"].removeprefix("Value error, ")
        if error["type"] == "extra_forbidden":
            message = "unknown key"
        elif error["type"] == "missing":
            message = "missing"
        elif error["type"] in ("model_type", "model_attributes_type"):
            message = "must be a JSON object"
        faults.setdefault(_printable(key) or "body", message)
    return "; ".join(f"{key}: {message}" for key, message in list(faults.items())[:10])


def _keys(location: tuple[int | str, ...]) -> list[int | str]:
    """Without the names that pydantic gives the branches of a union (``list[str]``)."""
    return [part for part in location if not (isinstance(part, str) and _is_branch(part))]


def _is_branch(part: str) -> bool:
    return part in ("str", "constrained-str") or part.startswith(("list[", "function-", "dict["))


def _printable(text: str) -> str:
    shown = text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "..."
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in shown)

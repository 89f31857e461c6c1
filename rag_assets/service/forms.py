"""Forms that a browser sends: their fields, within the limits, and whether this site made them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import ClientDisconnect

from rag_assets.service.errors import BadRequest, BodyTimeout, BodyTooLarge, WrongContentType

if TYPE_CHECKING:
    from starlette.requests import Request

MOST_FIELDS: Final = 50


async def read_form(
    request: Request, *, max_body_bytes: int, timeout_seconds: float
) -> Mapping[str, str]:
    """The fields of a form; the last one of a name counts.

    Raises:
        WrongContentType, BodyTooLarge, BodyTimeout, BadRequest
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise WrongContentType("send a form as application/x-www-form-urlencoded")
    try:
        body = await asyncio.wait_for(_read(request, max_body_bytes), timeout_seconds)
    except asyncio.TimeoutError:
        raise BodyTimeout(f"the form did not arrive within {timeout_seconds:g} s") from None
    except ClientDisconnect:
        raise BadRequest("the form ended early") from None
    try:
        pairs = parse_qsl(
            body.decode("ascii", "replace"), keep_blank_values=True, max_num_fields=MOST_FIELDS
        )
    except ValueError:
        raise BadRequest(f"the form has more than {MOST_FIELDS} fields") from None
    return dict(pairs)


def sent_from_here(request: Request) -> bool:
    """False when the browser says that another site sent this request.

    ``Sec-Fetch-Site`` is asked first: with ``Referrer-Policy: no-referrer`` browsers send
    ``Origin: null`` even for forms of the same site. A client that sends neither is not a browser
    with somebody's cookies; the token in the form is checked all the same.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin")
    if origin is None or origin == "null":
        return True
    return urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()


async def _read(request: Request, limit: int) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise BodyTooLarge(f"the form is larger than {limit:,} bytes")
    return bytes(body)

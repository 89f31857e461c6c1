"""What the service answers when it does not answer: a status, a type, a sentence, headers.

* ``ServiceError``
    * ``BadRequest`` 400             not JSON, or not a request of this service
    * ``Unauthorized`` 401           no token, or one that is not known
    * ``Forbidden`` 403              the token is known and may not do this
    * ``NotFound`` 404               absent, or not visible to the caller: never told apart
    * ``MethodNotAllowed`` 405
    * ``BodyTimeout`` 408            the body did not arrive in time
    * ``BodyTooLarge`` 413
    * ``WrongContentType`` 415
    * ``Unprocessable`` 422          JSON, but a key or a value is wrong
    * ``TooManyRequests`` 429
    * ``Internal`` 500               nobody foresaw it; the log has the details under an id
    * ``ServiceUnavailable`` 503     no index, no embedder, too much work: try again

A message never holds a path of the server, SQL, a stack, a token, or text of a document.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import ClassVar, Final

RETRY_AFTER_SECONDS: Final = 5
"""What a caller is told to wait when the service cannot know better."""
REALM: Final = 'Bearer realm="rag_assets"'


class ServiceError(Exception):
    """Base of the errors that are answers."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "internal_error"
    """The kind of error, for a program."""

    def __init__(self, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.headers: dict[str, str] = dict(headers or {})

    @property
    def body(self) -> dict[str, dict[str, str]]:
        """The JSON body of the answer."""
        return {"error": {"type": self.type, "message": self.message}}


class BadRequest(ServiceError):
    """The request is not HTTP or JSON as the service reads it."""

    status = 400
    type = "bad_request"


class Unauthorized(ServiceError):
    """No token, or one that is not known."""

    status = 401
    type = "unauthorized"

    def __init__(self, message: str) -> None:
        super().__init__(message, {"WWW-Authenticate": REALM})


class Forbidden(ServiceError):
    """The token is known and may not do this."""

    status = 403
    type = "forbidden"


class NotFound(ServiceError):
    """Absent, or not visible to the caller: the two are never told apart."""

    status = 404
    type = "not_found"


class MethodNotAllowed(ServiceError):
    """The path exists, without this method; the headers say which there are."""

    status = 405
    type = "method_not_allowed"


class BodyTimeout(ServiceError):
    """The body of the request did not arrive in time."""

    status = 408
    type = "request_timeout"

    def __init__(self, message: str) -> None:
        super().__init__(message, {"Connection": "close"})


class BodyTooLarge(ServiceError):
    """The body of the request is larger than ``service.max_body_bytes``."""

    status = 413
    type = "body_too_large"


class WrongContentType(ServiceError):
    """The body is not declared as JSON."""

    status = 415
    type = "wrong_content_type"


class Unprocessable(ServiceError):
    """JSON, but a key or a value is wrong; the message names it."""

    status = 422
    type = "invalid_request"


class TooManyRequests(ServiceError):
    """A limit of requests per minute is used up."""

    status = 429
    type = "too_many_requests"

    def __init__(self, message: str, wait_seconds: float) -> None:
        super().__init__(message, {"Retry-After": str(max(1, ceil(wait_seconds)))})


class Internal(ServiceError):
    """Nobody foresaw it; the server's log has the details under the id in the message."""


class ServiceUnavailable(ServiceError):
    """It cannot be answered now: no index, no embedder, too much work, or it took too long."""

    status = 503
    type = "unavailable"

    def __init__(self, message: str) -> None:
        super().__init__(message, {"Retry-After": str(RETRY_AFTER_SECONDS)})

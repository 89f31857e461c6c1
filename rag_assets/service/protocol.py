"""HTTP/1.1 as uvicorn speaks it, with a deadline for the head of a request."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS: Final = 15.0
"""A request's head must arrive within this time of its first byte, or of the connection.

uvicorn itself waits for ever, and connections that send a byte now and then would use up all
places. A client that goes on sending a body after the answer gets as long to end it.
"""


READ_SECONDS: Final = 30.0
"""A client that reads nothing of its answers for so long is let go."""


class DeadlineProtocol(H11Protocol):
    """Closes a connection on which no request is being answered for ``HEAD_SECONDS``, and one whose
    answers nobody reads for ``READ_SECONDS``.

    The time a route takes, reading the body included, is the service's own to limit.
    """

    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Hand on what arrived; wait on when no request came out of it."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
        else:
            self._wait()

    def pause_writing(self) -> None:
        """The client does not read: give it a while, then let go of the connection."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """It reads on."""
        super().resume_writing()
        self._stop_counting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing to wait for any more."""
        self._stop_waiting()
        self._stop_counting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_counting(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

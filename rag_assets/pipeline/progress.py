"""How long work tells what it is doing: documents or texts done, of how many, at what rate."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Progress(Protocol):
    """Told of every batch; must be cheap."""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """``done`` of ``total`` units of ``stage`` ("documents read", "texts embedded" ...)."""
        ...


def silent(stage: str, done: int, total: int) -> None:
    """Say nothing."""


class LoggedProgress:
    """Writes a line now and then: done, rate and time left."""

    def __init__(self, write: Callable[[str], None], every_seconds: float = 10.0) -> None:
        self._write = write
        self._every = every_seconds
        self._stage = ""
        self._started = 0.0
        self._written = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Write a line when the last one is old enough."""
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._started, self._written = stage, now, now
        if now - self._written < self._every:
            return
        self._written = now
        self._write(describe(stage, done, total, now - self._started))


def describe(stage: str, done: int, total: int, seconds: float) -> str:
    """``embedding: 640 of 10,000 texts (6.4 %), 12.8/s, 12 min 11 s left``."""
    rate = done / seconds if seconds > 0 else 0.0
    left = f", {duration((total - done) / rate)} left" if rate > 0 else ""
    share = 100 * done / total if total else 100.0
    return f"{stage}: {done:,} of {total:,} ({share:.1f} %), {rate:,.1f}/s{left}"


def duration(seconds: float) -> str:
    """A duration a person can read."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"


_watcher: ContextVar[Progress | None] = ContextVar("rag_assets_progress", default=None)


@contextmanager
def watched_by(progress: Progress) -> Iterator[None]:
    """Let ``progress`` hear of every step that runs in this context (an in-process run)."""
    token = _watcher.set(progress)
    try:
        yield
    finally:
        _watcher.reset(token)


def told_to_watcher(progress: Progress) -> Progress:
    """``progress``, and whoever watches this context."""

    def both(stage: str, done: int, total: int) -> None:
        progress(stage, done, total)
        watcher = _watcher.get()
        if watcher is not None:
            watcher(stage, done, total)

    return both

"""Token buckets: how many requests a minute each caller may make."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MOST_KEYS: Final = 10_000
"""Callers remembered at once; the one unseen for longest is forgotten first, which only ever
gives it a full bucket back."""


@dataclass(slots=True)
class _Bucket:
    level: float
    filled_at: float


class RateLimiter:
    """A bucket per key: ``per_minute`` requests at once, refilled evenly over a minute.

    Thread-safe. Time is monotonic, so a clock that is set does nothing.
    """

    def __init__(self, per_minute: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._capacity = float(per_minute)
        self._per_second = per_minute / 60.0
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: str) -> float:
        """Take one request of ``key``: 0.0 when it may go on, else the seconds to wait."""
        with self._lock:
            now = self._clock()
            bucket = self._buckets.pop(key, None) or _Bucket(self._capacity, now)
            self._buckets[key] = bucket
            if len(self._buckets) > MOST_KEYS:
                self._buckets.popitem(last=False)
            gained = (now - bucket.filled_at) * self._per_second
            bucket.level = min(self._capacity, bucket.level + gained)
            bucket.filled_at = now
            if bucket.level >= 1.0:
                bucket.level -= 1.0
                return 0.0
            return (1.0 - bucket.level) / self._per_second

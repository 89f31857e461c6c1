"""The one form in which the index writes a time."""

from __future__ import annotations

import time


def utc_now() -> str:
    """Now as ISO 8601, UTC, whole seconds: ``2026-03-01T09:30:00Z``."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

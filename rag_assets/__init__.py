"""A Dagster pipeline that keeps a searchable, cited vector index true to its sources."""

from __future__ import annotations

__version__ = "0.1.0"

"""Decoded text in, findings out: text addressed to a model, secrets, personal numbers."""

from __future__ import annotations

from rag_assets.screening.findings import FINDING_KINDS, MAX_FINDINGS, Finding, FindingKind
from rag_assets.screening.screen import screen

__all__ = ["FINDING_KINDS", "MAX_FINDINGS", "Finding", "FindingKind", "screen"]

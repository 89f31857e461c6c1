"""What screening reports: the kind, the rule and the line, never any of the text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

FindingKind = Literal["instructions", "secret", "personal_number"]
"""``instructions``: text addressed to a model. ``secret``: a password, key or token.
``personal_number``: a social security number, bank account or payment card."""

FINDING_KINDS: Final[tuple[FindingKind, ...]] = ("instructions", "secret", "personal_number")

MAX_FINDINGS: Final = 200
"""Of one document: whoever decides needs the first ones, not a megabyte of them."""


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One place of a document that a rule matched."""

    line: int
    """1-based line of the text that was screened."""
    kind: FindingKind
    rule: str
    """Stable name of the rule, such as ``ignore-previous-fr`` or ``aws-access-key``."""

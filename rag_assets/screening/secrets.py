"""A reading of a text in, places that hold a password, key or token out; no value is ever kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from rag_assets.screening.assignments import assignment_rules
from rag_assets.screening.credential_tables import find_in_tables
from rag_assets.screening.detect_secrets_rules import detect_secrets_rules
from rag_assets.screening.findings import Finding
from rag_assets.screening.pattern_files import read_patterns
from rag_assets.screening.placeholders import is_token_placeholder
from rag_assets.screening.rules import GroupedRules, LiteralRules, Rule
from rag_assets.screening.views import View

_NEEDS_DIGIT = frozenset(
    {"openai-key", "fireworks-key", "resend-key", "cargo-token", "vercel-token"}
)
"""Formats that a long name with dashes could have, too."""
_WITHOUT_LITERAL = frozenset(
    {
        "asana-token",
        "aws-access-key",
        "bitbucket-token",
        "command-line-password",
        "detect-secrets-aws",
        "detect-secrets-discord",
        "detect-secrets-telegram-token",
        "discord-token",
        "mailgun-key",
        "password-hash",
        "telegram-token",
        "twilio-key",
    }
)
"""Rules whose literals are too short or too common to be looked for first."""


def find_secrets(views: Iterable[View]) -> Iterator[Finding]:
    """One finding per rule and line of each view; linear in the views."""
    for view in views:
        for rules in _rules():
            for name, line in rules.matches(view.text):
                yield Finding(line, "secret", name)
        for line in find_in_tables(view.text):
            yield Finding(line, "secret", "password-in-table")


@lru_cache(maxsize=1)
def _rules() -> tuple[LiteralRules, GroupedRules]:
    tokens = [
        Rule(name, pattern, _has_digit if name in _NEEDS_DIGIT else _is_token)
        for name, pattern in read_patterns("tokens")
    ]
    rules = [*tokens, *detect_secrets_rules(), *assignment_rules()]
    literal = [rule for rule in rules if rule.name not in _WITHOUT_LITERAL]
    return LiteralRules(literal), GroupedRules([r for r in rules if r.name in _WITHOUT_LITERAL])


def _is_token(match: Any) -> bool:
    value = _value(match)
    return not value or not is_token_placeholder(value)


def _has_digit(match: Any) -> bool:
    value = _value(match)
    return (
        sum(c.isdigit() for c in value) >= 2
        and any(c.isupper() for c in value)
        and not is_token_placeholder(value)
    )


def _value(match: Any) -> str:
    """The first group that took part; empty when the pattern has none."""
    for group in match.groups():
        if group:
            value: bytes = group
            return value.decode("ascii")
    return ""

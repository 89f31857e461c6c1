"""detect-secrets' patterns of fixed token formats, run by RE2 instead of its own machinery.

Its plugins use backtracking expressions that need minutes for some long lines, so only the
patterns are taken, and none of the entropy and keyword plugins, which find mostly prose and code
in documentation. Nothing is verified over the network.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any, Final

from rag_assets.screening.placeholders import is_token_placeholder
from rag_assets.screening.rules import Rule, compile_pattern

# module -> class of detect_secrets.plugins; those whose formats cannot be words of a text
PLUGINS: Final[dict[str, str]] = {
    "aws": "AWSKeyDetector",
    "azure_storage_key": "AzureStorageKeyDetector",
    "cloudant": "CloudantDetector",
    "discord": "DiscordBotTokenDetector",
    "github_token": "GitHubTokenDetector",
    "gitlab_token": "GitLabTokenDetector",
    "mailchimp": "MailchimpDetector",
    "npm": "NpmDetector",
    "openai": "OpenAIDetector",
    "pypi_token": "PypiTokenDetector",
    "sendgrid": "SendGridDetector",
    "slack": "SlackDetector",
    "softlayer": "SoftlayerDetector",
    "square_oauth": "SquareOAuthDetector",
    "stripe": "StripeDetector",
    "telegram_token": "TelegramBotTokenDetector",
}

_LOOK_AHEAD: Final = re.compile(r"\(\?!\\w\)$")


def detect_secrets_rules() -> list[Rule]:
    """One rule per pattern, named after its plugin (``detect-secrets-slack``)."""
    rules = []
    for module, name in PLUGINS.items():
        plugin = getattr(import_module(f"detect_secrets.plugins.{module}"), name)
        for expression in plugin.denylist:
            pattern = _for_re2(expression)
            if pattern is not None:
                shown = module.replace("_", "-")
                rules.append(Rule(f"detect-secrets-{shown}", pattern, _accepts))
    return rules


def _for_re2(expression: re.Pattern[str]) -> str | None:
    """The pattern in RE2's syntax; None for those with look-behind or counts RE2 refuses."""
    import re2

    flags = "(?i)" if expression.flags & re.IGNORECASE else ""
    pattern = flags + _LOOK_AHEAD.sub(r"(?:\\W|$)", expression.pattern)
    try:
        compile_pattern(pattern)
    except (re2.error, UnicodeEncodeError):
        return None
    return pattern


def _accepts(match: Any) -> bool:
    value: bytes = match[0]
    return not is_token_placeholder(value.decode("ascii"))

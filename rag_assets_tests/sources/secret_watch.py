"""Watches what a process logs and prints for a secret, in every form it takes."""

from __future__ import annotations

import base64
import contextlib
import io
import logging
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

from rag_assets_tests.fault_proxy import Request


class SecretWatch(logging.Handler):
    """Looks for the secret, in every form it takes, in log records and in what is printed."""

    def __init__(self, secret: str, printed: io.StringIO) -> None:
        super().__init__(logging.DEBUG)
        self.forms = _forms(secret)
        self.found: list[str] = []
        self._printed = printed

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage() + repr(record.args) + str(record.exc_info or "")
        if self.holds_secret(text):
            self.found.append(f"the secret stands in a log record of {record.name}")

    def holds_secret(self, text: str) -> bool:
        """Whether one of the forms is in it."""
        return any(form in text for form in self.forms)

    def learn(self, requests: Iterable[Request]) -> None:
        """What authenticates requests is secret too, as it was sent."""
        names = re.compile(r"auth|token|cookie|key|secret", re.IGNORECASE)
        sent = {v for r in requests for k, v in r.headers if names.search(k)}
        words = {word for value in sent for word in (value, value.split(" ")[-1])}
        self.forms |= {word for word in words if len(word) >= 8}

    def take(self) -> list[str]:
        """What was found since the last time."""
        printed = self._printed.getvalue()
        if self.holds_secret(printed):
            self.found.append("the secret was printed")
        self._printed.truncate(0)
        self._printed.seek(0)
        found, self.found = sorted(set(self.found)), []
        return found


def _forms(secret: str) -> set[str]:
    """The secret and its last part, plain, percent-encoded and in base64."""
    plain = {secret, secret.rpartition(":")[2]}
    coded = {base64.b64encode(form.encode()).decode().rstrip("=") for form in plain}
    return {form for form in plain | {quote(p) for p in plain} | {quote_plus(p) for p in plain}
            | coded if len(form) >= 6}  # fmt: skip


@contextlib.contextmanager
def watching(secret: str) -> Iterator[SecretWatch]:
    """Every log record of the process, at its most talkative, and all that is printed."""
    printed = io.StringIO()
    watch = SecretWatch(secret, printed)
    root = logging.getLogger()
    level, handlers = root.level, root.handlers
    root.handlers = [watch]  # no others: they would write down every byte that passes
    root.setLevel(logging.DEBUG)
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            yield watch
    finally:
        root.setLevel(level)
        root.handlers = handlers

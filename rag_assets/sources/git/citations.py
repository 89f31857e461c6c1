"""Citation URLs that name a commit, and the commit that an earlier one named."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from rag_assets.errors import ConfigurationError

PLACEHOLDERS: Final = ("path", "source", "commit")

_COMMIT: Final = "{commit}"
_NAME: Final = re.compile(r"[0-9a-f]{64}|[0-9a-f]{40}")


class CitationUrls:
    """URLs of documents from a template with ``{path}``, ``{source}`` and ``{commit}``.

    Raises:
        ConfigurationError: the template has another placeholder.
    """

    def __init__(self, source: str, template: str | None) -> None:
        for placeholder in re.findall(r"\{([^{}]*)\}", template or ""):
            if placeholder not in PLACEHOLDERS:
                raise ConfigurationError(
                    f"source {source}: the URL template {template!r} has {{{placeholder}}}; only "
                    "{path}, {source} and {commit} are filled in"
                )
        self.template = template or ""
        self.has_commit = _COMMIT in self.template
        # `{source}` first: a quoted name holds no brace, so it cannot stand for another one.
        self._filled = self.template.replace("{source}", quote(source, safe=""))

    def url(self, path: str, commit: str) -> str:
        """Where a reader opens ``path`` as of ``commit``; empty without a template."""
        if not self._filled:
            return ""
        return self._filled.replace("{path}", quote(path, safe="/")).replace(_COMMIT, commit)

    def commit_of(self, path: str, url: str) -> str | None:
        """The commit for which ``url(path, commit)`` is ``url``; None when there is none."""
        if not self.has_commit:
            return None
        before = self._filled.replace("{path}", quote(path, safe="/")).partition(_COMMIT)[0]
        if not url.startswith(before):
            return None
        found = _NAME.match(url, len(before))
        if found is None or self.url(path, found[0]) != url:
            return None
        return found[0]

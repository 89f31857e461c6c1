"""The contract of a source: a complete listing, or an error; and a cheap look for changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from rag_assets.models import Changes, LeftOut, SourceFile, SourceListing


@runtime_checkable
class Source(Protocol):
    """Where documents come from.

    An implementation is built for one partition (one source, or one shard of it) and is not
    required to be thread-safe.
    """

    name: str
    """The configured name of the source: the ``source`` of everything it yields."""

    def list(self, known: Mapping[str, SourceFile] | None = None) -> SourceListing:
        """Every document of the partition, and everything left out with its reason.

        ``known`` holds, by path, what the previous listing yielded: a file whose change marker
        still equals ``known[path].version`` is carried over without being read. ``known=None``
        reads all.

        Raises:
            IncompleteEnumeration: a part could not be listed, so absence proves nothing.
            SourceUnavailable: the source cannot be reached at all.
        """
        ...

    def look(self, state: Mapping[str, Any] | None) -> Changes:
        """Compare the source with ``look_state`` of an earlier listing, without reading contents.

        ``state=None`` or a state of other settings gives ``Changes(unknown=True)``.

        Raises:
            SourceUnavailable: the source cannot be reached at all.
        """
        ...

    def explain(self, path: str) -> LeftOut | None:
        """The rule that keeps ``path`` out of the index today, or None when no rule does."""
        ...

"""The contract of a source: a complete listing, or an error; and a cheap look for changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rag_assets.models import Changes, LeftOut, SourceFile, SourceListing

if TYPE_CHECKING:
    from rag_assets.sources.journal import Journal
    from rag_assets.sources.shards import Shard


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


def _silent(stage: str, done: int, total: int) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What the pipeline gives a source of a server beside its settings."""

    shard: Shard | None = None
    """The part of the source to list; None: all of it."""
    config_locations: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Where each excluded and included path stands in the configuration: file and 1-based line."""
    journal: Journal | None = None
    """Keeps what was fetched until the listing is complete."""
    last_look: Mapping[str, Any] | None = None
    """``look_state`` of the last complete listing, when there was one."""
    progress: Callable[[str, int, int], None] = _silent
    """Told of a stage, and how much of how much is done."""

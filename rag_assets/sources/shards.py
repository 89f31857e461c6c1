"""How a large source is spread over partitions: by a hash of the path."""

from __future__ import annotations

from dataclasses import dataclass

from rag_assets.errors import ConfigurationError
from rag_assets.sources.tree_look import shard_of


@dataclass(frozen=True, slots=True)
class Shard:
    """One of ``count`` parts of a source; every path belongs to exactly one.

    Raises:
        ConfigurationError: ``index`` is not within ``0 <= index < count``.
    """

    index: int
    """0-based."""
    count: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise ConfigurationError(
                f"shard {self.index} of {self.count}: the index counts from 0 and must be less "
                "than the number of shards"
            )

    def holds(self, path: str) -> bool:
        """Whether ``path`` belongs to this shard: sha256 of the path modulo ``count``."""
        return shard_of(path, self.count) == self.index

    @property
    def label(self) -> str:
        """``1of4`` for the first of four."""
        return f"{self.index + 1}of{self.count}"

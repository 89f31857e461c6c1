"""What one project of a GitLab gives to a listing, and what its parts have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rag_assets.models import LeftOut
from rag_assets.sources.remote import Entry

if TYPE_CHECKING:
    from rag_assets.sources.governance import Governance


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides which files of a source are listed."""

    source: str
    governance: Governance
    holds: Callable[[str], bool]
    """Whether a path belongs to the shard that is listed."""


@dataclass(frozen=True, slots=True)
class Part:
    """The repository or the wiki of one project, as listed."""

    entries: Sequence[Entry] = ()
    left_out: Sequence[LeftOut] = ()
    other_files: int = 0
    record: Mapping[str, Any] | None = None
    """What lets the next listing skip it when it is unchanged; JSON-able."""


@dataclass(frozen=True, slots=True)
class BlobHandle:
    """Where to read a file of a repository."""

    project_id: int
    blob_id: str


@dataclass(frozen=True, slots=True)
class WikiHandle:
    """Where to read a page of a wiki, or its content when the listing carried it."""

    project_id: int
    slug: str
    content: bytes | None

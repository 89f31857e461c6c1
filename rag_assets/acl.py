"""ACL tags: what a document carries, what a caller names, and which of two readings is stricter.

A document is visible to a caller who names at least one of its tags. No tags on the document, or
none named by the caller: not visible. Tags are compared byte for byte; there are no prefixes,
patterns or case folding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, final

from rag_assets.models import PUBLIC


@final
class Everything:
    """The type of ``EVERYTHING``; there is one instance."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "EVERYTHING"


EVERYTHING: Final = Everything()
"""Explicit trust: the caller may see every document, tagged or not (the local command line)."""

AclTags = Collection[str] | Everything
"""What a caller names: its tags, or ``EVERYTHING``."""


def normalise_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Sorted, stripped, without blanks or duplicates: the form in which tags are stored."""
    return tuple(sorted({tag.strip() for tag in tags} - {""}))


def most_restrictive(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    """The tags of a document for which two readings (source and front matter) disagree.

    ``public`` stands for everybody, so the other reading decides; otherwise only tags that both
    grant remain. The result may be empty: visible to nobody.

    >>> most_restrictive(["public"], ["service:hr"])
    ('service:hr',)
    >>> most_restrictive(["service:hr"], ["public"])
    ('service:hr',)
    >>> most_restrictive(["service:hr", "admin_only"], ["service:hr", "service:it"])
    ('service:hr',)
    """
    one, two = set(normalise_tags(first)), set(normalise_tags(second))
    if PUBLIC in one:
        return normalise_tags(two)
    if PUBLIC in two:
        return normalise_tags(one)
    return normalise_tags(one & two)

"""ACL tags: what a document carries, what a caller names, and which of two readings is stricter.

A document is visible to a caller who names at least one of its tags. No tags on the document, or
none named by the caller: not visible. Tags are compared byte for byte; there are no prefixes,
patterns or case folding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import reduce
from typing import Final, final

from rag_assets.errors import ConfigurationError
from rag_assets.models import PUBLIC
from rag_assets.path_globs import compile_paths


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

    When only one of them says ``public``, which stands for everybody, the other decides; otherwise
    only tags that both grant remain. The result may be empty: visible to nobody. The order of the
    readings does not matter, nor, with more than two, how they are grouped.

    >>> most_restrictive(["public"], ["service:hr"])
    ('service:hr',)
    >>> most_restrictive(["service:hr"], ["public"])
    ('service:hr',)
    >>> most_restrictive(["service:hr", "admin_only"], ["service:hr", "service:it"])
    ('service:hr',)
    """
    one, two = set(normalise_tags(first)), set(normalise_tags(second))
    if (PUBLIC in one) == (PUBLIC in two):
        return normalise_tags(one & two)
    return normalise_tags(two if PUBLIC in one else one)


@dataclass(frozen=True, slots=True)
class AclRule:
    """Tags for the documents of a source whose path matches one of ``paths``.

    Raises:
        ConfigurationError: a path pattern is wrong (see ``path_globs``).
        TypeError: one str where a collection of str is needed.
    """

    paths: tuple[str, ...]
    """Prefixes of whole names (``hr``) or globs (``hr/**``, ``**/*.private.md``)."""
    tags: tuple[str, ...]
    """Normalised; empty: visible to nobody."""
    _matches: Callable[[str], bool] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.tags, str):
            raise TypeError("tags must be a collection of str, not a str")
        try:
            matches = compile_paths(self.paths)
        except ValueError as exc:
            raise ConfigurationError(f"ACL rule: {exc}") from exc
        object.__setattr__(self, "paths", tuple(self.paths))
        object.__setattr__(self, "tags", normalise_tags(self.tags))
        object.__setattr__(self, "_matches", matches)

    def matches(self, path: str) -> bool:
        """Whether the rule speaks of that path, relative to the root of the source."""
        return self._matches(path)


@dataclass(frozen=True, slots=True)
class AclRules:
    """Which tags the configuration of one source gives to each of its documents.

    Rules that match a path take the place of ``default``, so a rule may widen it; of several that
    match only what all of them grant remains. Front matter can only narrow the result.

    >>> rules = AclRules(("public",), (AclRule(("hr/**",), ("service:hr",)),))
    >>> rules.tags_for("guides/a.md"), rules.tags_for("hr/a.md")
    (('public',), ('service:hr',))
    """

    default: tuple[str, ...] = ()
    """Normalised; empty: what no rule matches is visible to nobody."""
    rules: tuple[AclRule, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "default", normalise_tags(self.default))
        object.__setattr__(self, "rules", tuple(self.rules))

    def matching(self, path: str) -> tuple[int, ...]:
        """0-based positions of the rules that decide for the path; empty: ``default`` does."""
        return tuple(at for at, rule in enumerate(self.rules) if rule.matches(path))

    def tags_for(self, path: str) -> tuple[str, ...]:
        """The tags of the document at that path, sorted; empty: visible to nobody."""
        granted = [self.rules[at].tags for at in self.matching(path)]
        return reduce(most_restrictive, granted) if granted else self.default

    def as_lists(self) -> list[object]:
        """All that decides, JSON-able: part of a fingerprint."""
        return [list(self.default), [[list(rule.paths), list(rule.tags)] for rule in self.rules]]


EVERYBODY: Final = AclRules((PUBLIC,))
"""What a source grants that is built without access rules, outside of a configuration."""

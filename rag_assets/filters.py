"""What narrows a search besides the caller's ACL tags: source, path, front matter, time, language.

Filters are applied inside the index, before the nearest passages are chosen. They never widen what
a caller may see.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any, Final

from rag_assets.errors import InvalidQuery

KEYS: Final = ("source", "path", "metadata", "modified_after", "modified_before", "language")
"""What ``Filters.of`` understands, in the order in which it is shown."""
MAXIMUM_VALUES: Final = 1000
"""Values that one filter may list."""
MAXIMUM_KEYS: Final = 50
"""Keys of front matter that a filter may name; every document is compared with all of them."""

_LANGUAGE: Final = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]+)*\Z")
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions on documents; all must hold, and within one of them any of its values.

    An unset filter is None (or an empty mapping) and lets everything through; an empty tuple lets
    nothing through.

    Raises:
        TypeError: one str where a collection of str is needed.
    """

    sources: tuple[str, ...] | None = None
    """Names of sources."""
    paths: tuple[str, ...] | None = None
    """Prefixes of whole names (``guides`` holds ``guides/a.md``) or globs (``**/*.fr.md``)."""
    metadata: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    """Front matter that the document has, key and value exactly as typed there."""
    modified_after: str | None = None
    """ISO 8601, UTC, whole seconds: ``modified_at`` is at or after it."""
    modified_before: str | None = None
    """``modified_at`` is before it."""
    languages: tuple[str, ...] | None = None
    """Primary subtags in lower case (``fr``)."""

    def __post_init__(self) -> None:
        for name in ("sources", "paths", "languages"):
            if isinstance(getattr(self, name), str):
                raise TypeError(f"{name} must be a collection of str, not a str")

    @property
    def nothing_matches(self) -> bool:
        """True when no document can pass."""
        return () in (self.sources, self.paths, self.languages)

    @classmethod
    def of(cls, given: Filters | Mapping[str, Any] | None) -> Filters:
        """Filters as a caller writes them: a mapping with some of ``KEYS``.

        ``source``, ``path`` and ``language`` take a str or a list of str, ``metadata`` a mapping
        of str to str, the times a date (``2026-03-01``) or a time, in UTC where it has no offset;
        a date means its first second.

        Raises:
            InvalidQuery: an unknown key, or a value that cannot be understood; it names the key.
        """
        if given is None:
            return cls()
        if isinstance(given, Filters):
            return given
        if not isinstance(given, Mapping):
            raise InvalidQuery(f"filters must be a mapping with some of {', '.join(KEYS)}")
        unknown = [key for key in given if key not in KEYS]
        if unknown:
            shown = str(unknown[0])[:80]
            raise InvalidQuery(f"unknown filter {shown!r}; known filters: {', '.join(KEYS)}")
        languages = _values(given, "language")
        return cls(
            sources=_values(given, "source"),
            paths=_values(given, "path"),
            metadata=_metadata(given.get("metadata")),
            modified_after=_moment(given, "modified_after"),
            modified_before=_moment(given, "modified_before"),
            languages=None if languages is None else tuple(map(_language, languages)),
        )


def _values(given: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    value = given.get(key)
    if value is None:
        return None
    values = (value,) if isinstance(value, str) else value
    is_collection = isinstance(values, Iterable) and not isinstance(values, (bytes, Mapping))
    values = tuple(values) if is_collection else (None,)
    if any(not isinstance(one, str) for one in values):
        raise InvalidQuery(f"filter {key} must be a text or a list of texts")
    if len(values) > MAXIMUM_VALUES:
        raise InvalidQuery(f"filter {key} lists {len(values)} values; {MAXIMUM_VALUES} at most")
    return tuple(dict.fromkeys(values))


def _metadata(value: Any) -> Mapping[str, str]:
    if value is None:
        return _NOTHING
    if not isinstance(value, Mapping) or any(
        not isinstance(one, str) for pair in value.items() for one in pair
    ):
        raise InvalidQuery('filter metadata must be a mapping of texts, such as {"version": "3"}')
    if len(value) > MAXIMUM_KEYS:
        raise InvalidQuery(f"filter metadata names {len(value)} keys; {MAXIMUM_KEYS} at most")
    return MappingProxyType(dict(value))


def _language(tag: str) -> str:
    if not _LANGUAGE.match(tag):
        raise InvalidQuery(f"filter language: {tag[:80]!r} is not a language tag such as 'fr'")
    return re.split("[-_]", tag)[0].lower()


def _moment(given: Mapping[str, Any], key: str) -> str | None:
    value = given.get(key)
    if value is None:
        return None
    try:
        moment = _parsed(value)
        utc = moment.astimezone(timezone.utc)
        if utc.microsecond:
            # Documents have whole seconds: the next one is the first at or after this moment.
            utc = utc.replace(microsecond=0) + timedelta(seconds=1)
    except (TypeError, ValueError, OverflowError):
        raise InvalidQuery(
            f"filter {key}: {str(value)[:80]!r} is not a date (2026-03-01) nor a time "
            "(2026-03-01T09:30:00+01:00)"
        ) from None
    return utc.strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")


def _parsed(value: Any) -> datetime:
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, date):
        moment = datetime(value.year, value.month, value.day)
    elif isinstance(value, str):
        text = value.strip()
        # Python 3.10 knows no Z.
        moment = datetime.fromisoformat(text[:-1] + "+00:00" if text[-1:] in ("Z", "z") else text)
    else:
        raise TypeError
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)

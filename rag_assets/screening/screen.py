"""The one entry: reads a text in every way it could be read, and puts the findings in order."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from rag_assets.screening.findings import MAX_FINDINGS, Finding, FindingKind
from rag_assets.screening.instructions import find_instructions
from rag_assets.screening.personal_numbers import find_personal_numbers
from rag_assets.screening.secrets import find_secrets
from rag_assets.screening.views import covert_views, plain_views

_WORDS: Final = re.compile(r"[^\W\d_]{3}")


def screen(
    text: str, *, kinds: Collection[FindingKind], hidden: Sequence[str] = ()
) -> tuple[Finding, ...]:
    """What ``text`` (decoded, front matter included) holds of ``kinds``, by line.

    ``hidden`` are messages decoded from characters that nobody sees: one that reads as words is a
    finding by itself (line 1). At most ``MAX_FINDINGS``; time is linear in the text.
    """
    if not kinds:
        return ()
    found = set(_find(text, kinds, hidden))
    return tuple(sorted(found)[:MAX_FINDINGS])


def _find(text: str, kinds: Collection[FindingKind], hidden: Sequence[str]) -> Iterator[Finding]:
    views = plain_views(text)
    if "instructions" in kinds:
        yield from find_instructions([*views, *covert_views(text, views)])
        if any(_reads_as_words(message) for message in hidden):
            yield Finding(1, "instructions", "invisible-message")
    if "secret" in kinds:
        yield from find_secrets(views)
        for message in hidden:
            yield from (replace(found, line=1) for found in find_secrets(plain_views(message)))
    if "personal_number" in kinds:
        yield from find_personal_numbers(views)


def _reads_as_words(message: str) -> bool:
    """Three letters in a row somewhere: more than a stray flag or fraction."""
    return _WORDS.search(message) is not None

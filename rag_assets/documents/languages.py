"""The language of a document: what its front matter says, what its source says, how it reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rag_assets.analysis.languages import detect_language, primary_subtag

LANGUAGE_KEYS: Final = ("lang", "language", "locale")
"""Front matter keys, in any case; the first that holds a language tag counts."""


def find_language(metadata: Mapping[str, str], configured: str | None, body: str) -> str:
    """Primary subtag in lower case (``fr`` for ``fr-FR``); empty when it cannot be told.

    A front matter value that is no language tag is passed over.
    """
    stated = {key.casefold(): value for key, value in metadata.items()}
    for key in LANGUAGE_KEYS:
        if language := primary_subtag(stated.get(key, "")):
            return language
    return primary_subtag(configured or "") or detect_language(body)

"""Text in, terms out: the one analyser of the full-text index and of the questions put to it."""

from __future__ import annotations

from rag_assets.analysis.analyser import (
    MAXIMUM_QUERY_TERMS,
    analyse,
    query_terms,
)
from rag_assets.analysis.languages import detect_language, primary_subtag
from rag_assets.analysis.matching import matching_spans
from rag_assets.analysis.words import MAXIMUM_TERM_LENGTH, TERM_CHARACTERS

__all__ = [
    "MAXIMUM_QUERY_TERMS",
    "MAXIMUM_TERM_LENGTH",
    "TERM_CHARACTERS",
    "analyse",
    "detect_language",
    "matching_spans",
    "primary_subtag",
    "query_terms",
]

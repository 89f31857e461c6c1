"""The text leg of a search: BM25 over what the caller may see, from FTS5's postings.

FTS5's own ``bm25()`` counts hidden documents, so that a score would tell of them. Here every number
in the formula is taken over the visible passages: they are looked up by terms that carry their ACL
set (``sauvegard~fr3``), and nothing else is read.

The formula is BM25 as in Lucene: Robertson and Zaragoza, "The Probabilistic Relevance Framework"
(2009), with an IDF that is never negative.
"""

# ruff: noqa: S608  (only this package's own names are spelled into SQL; values are always bound)

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import apsw
import numpy as np
import numpy.typing as npt

from rag_assets.analysis import query_terms
from rag_assets.index.visibility import Visible, document_conditions

SATURATION: Final = 1.2
"""BM25's k1: how soon more occurrences of a term add nothing."""
LENGTH_WEIGHT: Final = 0.75
"""BM25's b: how much a long passage is held against it."""
POSTINGS_SHARE: Final = 1 / 8
"""At most this many occurrences are read for one question, as a share of the visible passages,
rarest terms first: more frequent terms say little, and reading them would take longer than the
vector leg does."""
MINIMUM_POSTINGS: Final = 10_000
"""So many occurrences are read in any case: reading them takes about 10 ms."""
UNKNOWN_LANGUAGE: Final = "und"
"""How terms of documents without a language are marked (ISO 639: undetermined)."""

Scores = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TextMatches:
    """Every visible passage that holds a term of the question."""

    ids: Ids
    """Ascending."""
    scores: Scores
    """BM25."""
    shares: Scores
    """``scores`` as a share, between 0 and 1, of what a passage with all of the question's words
    in endless repetition would reach: how much of the question the passage speaks of."""


@dataclass(frozen=True, slots=True)
class _Statistics:
    """Of the visible passages."""

    chunks: int
    mean_length: float
    acl_sets: Mapping[str, Sequence[int]]
    """Language -> the ACL sets that have passages in it."""


def term_text(terms: Iterable[str], language: str, acl_set: int) -> str:
    """What ``chunk.terms`` holds: the analysed terms, each marked with language and ACL set."""
    mark = _mark(language) + str(acl_set)
    return " ".join([term + mark for term in terms])


def _mark(language: str) -> str:
    return "~" + (language or UNKNOWN_LANGUAGE)


def match_text(
    connection: apsw.Connection, question: str, visible: Visible, *, skip_frequent: bool
) -> TextMatches:
    """Score every visible passage that holds a term of ``question``.

    A document is searched with the question's terms in its own language. ``skip_frequent``: when
    every term is too frequent to say anything, nothing matches; else the rarest is searched then.
    """
    statistics = _statistics(connection, visible)
    if statistics.chunks == 0:
        return _no_matches()
    everything = visible.acl_sets is None
    terms = {language: query_terms(question, language) for language in statistics.acl_sets}
    spread = _Spread(connection, statistics, everything)
    kept = _affordable(spread, list(dict.fromkeys(t for ts in terms.values() for t in ts)))
    if not kept.wanted and not skip_frequent and kept.frequent:
        kept.keep_rarest()
    parts = [
        _score_language(spread, language, words, kept, visible) for language, words in terms.items()
    ]
    return _joined([part for part in parts if len(part.ids)])


class _Spread:
    """Where terms are looked up: marked with every language and ACL set the caller may see."""

    def __init__(
        self, connection: apsw.Connection, statistics: _Statistics, everything: bool
    ) -> None:
        self.connection = connection
        self.statistics = statistics
        self._everything = everything

    def condition(self, term: str, language: str | None = None) -> tuple[str, list[str]]:
        """SQL on the column ``term`` for one term, in one language or all, and its bindings."""
        if self._everything:
            low = term + ("~" if language is None else _mark(language) + "0")
            high = term + ("\x7f" if language is None else _mark(language) + ":")
            return "term >= ? AND term < ?", [low, high]
        marked = [
            f"{term}{_mark(one)}{acl_set}"
            for one, acl_sets in self.statistics.acl_sets.items()
            if language in (None, one)
            for acl_set in acl_sets
        ]
        return f"term IN ({', '.join('?' * len(marked))})", marked

    def occurrences(self, term: str, limit: int) -> int:
        """How often ``term`` occurs, counted up to ``limit``."""
        where, bindings = self.condition(term)
        return self._number(
            f"SELECT count(*) FROM (SELECT 1 FROM chunk_term WHERE {where} LIMIT {limit:d})",
            bindings,
        )

    def passages(self, term: str) -> int:
        """How many visible passages hold ``term``, in any language."""
        where, bindings = self.condition(term)
        return self._number(f"SELECT ifnull(sum(doc), 0) FROM chunk_term_count WHERE {where}",
                            bindings)  # fmt: skip

    def _number(self, sql: str, bindings: list[str]) -> int:
        row = self.connection.execute(sql, bindings).fetchone()
        assert row is not None
        return int(row[0])


@dataclass(slots=True)
class _Kept:
    """The terms that are searched, with the number of passages that hold each."""

    spread: _Spread
    passages: dict[str, int]
    """Of the terms wanted; 0 for a term that is nowhere."""
    frequent: list[str]

    @property
    def wanted(self) -> list[str]:
        return [term for term, passages in self.passages.items() if passages]

    def keep_rarest(self) -> None:
        """Search the rarest of the frequent terms after all."""
        counts = {term: self.spread.passages(term) for term in self.frequent}
        rarest = min(counts, key=lambda term: (counts[term], term))
        self.passages[rarest] = counts[rarest]
        self.frequent.remove(rarest)


def _affordable(spread: _Spread, terms: Sequence[str]) -> _Kept:
    """Rarest first, as many terms as can be read."""
    budget = max(MINIMUM_POSTINGS, int(POSTINGS_SHARE * spread.statistics.chunks))
    counted = sorted((spread.occurrences(term, budget + 1), term) for term in terms)
    kept, frequent = {}, []
    for occurrences, term in counted:
        budget -= occurrences
        if budget < 0:
            frequent.append(term)
        else:
            kept[term] = spread.passages(term) if occurrences else 0
    return _Kept(spread, kept, frequent)


def _statistics(connection: apsw.Connection, visible: Visible) -> _Statistics:
    where = "TRUE" if visible.acl_sets is None else "acl_set IN (SELECT value FROM json_each(?))"
    bindings = [] if visible.acl_sets is None else [json.dumps(visible.acl_sets)]
    acl_sets: dict[str, list[int]] = {}
    chunks = terms = 0
    for acl_set, language, some_chunks, some_terms in connection.execute(
        f"SELECT acl_set, language, chunks, terms FROM text_statistics WHERE {where} "
        "ORDER BY language, acl_set",
        bindings,
    ):
        acl_sets.setdefault(language, []).append(acl_set)
        chunks += some_chunks
        terms += some_terms
    return _Statistics(chunks, terms / chunks if chunks else 1.0, acl_sets)


def _score_language(
    spread: _Spread, language: str, terms: Sequence[str], kept: _Kept, visible: Visible
) -> TextMatches:
    """BM25 of the passages in one language."""
    statistics = spread.statistics
    weights = {
        term: math.log1p((statistics.chunks - passages + 0.5) / (passages + 0.5))
        for term in terms
        if (passages := kept.passages.get(term)) is not None
    }
    bound = sum(weights.values()) * (SATURATION + 1.0)
    found: list[tuple[Ids, Scores]] = []
    for term, weight in weights.items():
        if kept.passages[term]:
            ids, lengths, counts = _postings(spread, term, language, visible)
            length = lengths / max(statistics.mean_length, 1.0)
            norm = SATURATION * (1.0 - LENGTH_WEIGHT + LENGTH_WEIGHT * length)
            found.append((ids, weight * counts * (SATURATION + 1.0) / (counts + norm)))
    if not found:
        return _no_matches()
    ids, place = np.unique(np.concatenate([ids for ids, _ in found]), return_inverse=True)
    # Added up in the order of the terms, so that equal passages have equal scores to the last bit.
    scores: Scores = np.bincount(place, np.concatenate([scores for _, scores in found]))
    return TextMatches(ids, scores, scores / bound)


def _postings(
    spread: _Spread, term: str, language: str, visible: Visible
) -> tuple[Ids, Scores, Scores]:
    """Ids, lengths and numbers of occurrences of the passages that hold ``term``."""
    where, bindings = spread.condition(term, language)
    narrowed: list[Any] = []
    if visible.is_filtered:
        conditions, narrowed = document_conditions(visible)
        where += (
            " AND v.doc IN (SELECT c.id FROM document d JOIN chunk c ON c.document_id = d.id "
            f"WHERE {conditions})"
        )
    rows: list[Any] = spread.connection.execute(
        "SELECT v.doc, l.terms FROM chunk_term v CROSS JOIN text_length l ON l.chunk_id = v.doc "
        f"WHERE {where}",
        [*bindings, *narrowed],
    ).fetchall()
    pairs = np.array(rows, dtype=np.int64).reshape(-1, 2)
    ids, first, counts = np.unique(pairs[:, 0], return_index=True, return_counts=True)
    return ids, pairs[first, 1].astype(np.float64), counts.astype(np.float64)


def _joined(parts: Sequence[TextMatches]) -> TextMatches:
    if not parts:
        return _no_matches()
    ids = np.concatenate([part.ids for part in parts])
    order = np.argsort(ids)
    return TextMatches(
        ids[order],
        np.concatenate([part.scores for part in parts])[order],
        np.concatenate([part.shares for part in parts])[order],
    )


def _no_matches() -> TextMatches:
    return TextMatches(np.empty(0, np.int64), np.empty(0), np.empty(0))

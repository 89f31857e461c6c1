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
from itertools import chain
from typing import Final

import apsw
import numpy as np
import numpy.typing as npt

from rag_assets.analysis import query_terms
from rag_assets.index.text_memory import Ids, Remembered, TextMemory
from rag_assets.index.visibility import Visible

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
MAXIMUM_MARKS: Final = 256
"""With more ACL sets than this, counted in each language, all marks of a term are read at once and
narrowed afterwards: FTS5 looks every mark up in every segment, 20 to 500 microseconds each. With
fewer, reading what others may see would cost more."""
COUNTED_BY_MARK: Final = 8
"""From so many ACL sets on occurrences are counted set by set, a third of the time for each; with
fewer, a frequent term is counted one by one, to stop sooner."""
UNKNOWN_LANGUAGE: Final = "und"
"""How terms of documents without a language are marked (ISO 639: undetermined)."""

Scores = npt.NDArray[np.float64]


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


@dataclass(frozen=True, slots=True)
class _Postings:
    """The visible passages in one language that hold one term, row by row."""

    ids: Ids
    """Ascending."""
    lengths: Scores
    """Terms of the passage."""
    counts: Scores
    """How often the passage holds the term."""
    asked: npt.NDArray[np.bool_]
    """Whether the passage passes the filters."""


def term_text(terms: Iterable[str], language: str, acl_set: int) -> str:
    """What ``chunk.terms`` holds: the analysed terms, each marked with language and ACL set."""
    mark = _mark(language) + str(acl_set)
    return " ".join([term + mark for term in terms])


def _mark(language: str) -> str:
    return "~" + (language or UNKNOWN_LANGUAGE)


def match_text(
    connection: apsw.Connection,
    question: str,
    visible: Visible,
    asked: Ids | None,
    memory: TextMemory,
    *,
    skip_frequent: bool,
) -> TextMatches:
    """Score every visible passage that holds a term of ``question``.

    A document is searched with the question's terms in its own language. Statistics are those of
    what the caller may see, whatever the filters. ``asked`` are the passages that pass the narrow
    filters, ascending; None: no such filter. ``skip_frequent``: when every term is too frequent to
    say anything, nothing matches; else the rarest is searched then.
    """
    index = _TermIndex(connection, visible, asked, memory.at(connection))
    terms = {language: query_terms(question, language) for language in index.statistics.acl_sets}
    kept = _affordable(index, list(dict.fromkeys(chain.from_iterable(terms.values()))))
    if kept.nothing_found and kept.frequent and not skip_frequent:
        kept.keep_rarest(index)
    postings = {
        term: {
            language: index.postings(term, language)
            for language, own in terms.items()
            if term in own
        }
        for term, occurrences in kept.occurrences.items()
        if occurrences
    }
    weights = {term: _weight(index, term, postings.get(term, {})) for term in kept.occurrences}
    parts = []
    for language, own in terms.items():
        searched = [term for term in own if term in weights]
        found = [(weights[term], postings.get(term, {}).get(language)) for term in searched]
        parts.append(_scored(found, index.statistics))
    return _joined(parts)


class _TermIndex:
    """Looks terms up, marked with the languages and ACL sets that the caller may see."""

    def __init__(
        self,
        connection: apsw.Connection,
        visible: Visible,
        asked: Ids | None,
        remembered: Remembered,
    ) -> None:
        self.statistics = _statistics(connection, visible)
        self._connection = connection
        self._acl_sets = None if visible.acl_sets is None else tuple(visible.acl_sets)
        self._marks = sum(map(len, self.statistics.acl_sets.values()))
        self._reads_all = self._acl_sets is None or self._marks > MAXIMUM_MARKS
        self._remembered = remembered
        self._sources = visible.sources
        self._asked = asked

    def occurrences(self, term: str, limit: int) -> int:
        """How often ``term`` occurs in any language; somewhere above ``limit``, counting ends."""
        return self._remembered.count(
            self._acl_sets, term, lambda: self._count_occurrences(term, limit)
        )

    def _count_occurrences(self, term: str, limit: int) -> int:
        table, where, bindings = self._visible(term, None)
        if table != "chunk_term" or self._marks < COUNTED_BY_MARK:
            sql = f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {where} LIMIT {limit:d})"
            return self._number(sql, bindings)
        counted = 0
        sql = f"SELECT cnt FROM chunk_term_count WHERE {where}"
        for (count,) in self._connection.execute(sql, bindings):
            counted += int(count)
            if counted >= limit:
                break
        return min(counted, limit)

    def passages(self, term: str, language: str) -> int:
        """How many passages in ``language`` hold ``term``."""
        table, where, bindings = self._visible(term, language)
        return self._number(f"SELECT count(DISTINCT doc) FROM {table} WHERE {where}", bindings)

    def postings(self, term: str, language: str) -> _Postings:
        """The passages in ``language`` that hold ``term``."""
        where, bindings = self._condition(term, language)
        rows = self._connection.execute(f"SELECT doc FROM chunk_term WHERE {where}", bindings)
        occurrences = np.fromiter(chain.from_iterable(rows), np.int64)
        ids, counts = np.unique(occurrences, return_counts=True)
        known = self._remembered.lengths(ids)
        if self._acl_sets is not None:
            # Needed when all marks were read; else the marks said so already, and whatever happens
            # to an index, it is asked twice.
            seen = np.isin(known.acl_sets, self._acl_sets)
            ids, counts = ids[seen], counts[seen]
            known = self._remembered.lengths(ids)
        asked = np.ones(len(ids), dtype=bool)
        if self._sources is not None:
            asked &= np.isin(known.sources, self._sources)
        if self._asked is not None:
            asked &= np.isin(ids, self._asked, assume_unique=True)
        return _Postings(ids, known.terms, counts.astype(np.float64), asked)

    def _visible(self, term: str, language: str | None) -> tuple[str, str, list[str]]:
        """Where a term stands that the caller may see: tables, condition, bindings."""
        where, bindings = self._condition(term, language)
        if not self._reads_all or self._acl_sets is None:
            return "chunk_term", where, bindings
        return (
            "chunk_term CROSS JOIN text_length ON chunk_id = doc",
            f"{where} AND acl_set IN (SELECT value FROM json_each(?))",
            [*bindings, json.dumps(self._acl_sets)],
        )

    def _condition(self, term: str, language: str | None) -> tuple[str, list[str]]:
        """SQL on the column ``term``, in one language or all, and its bindings."""
        if self._reads_all:
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

    def _number(self, sql: str, bindings: list[str]) -> int:
        row = self._connection.execute(sql, bindings).fetchone()
        assert row is not None
        return int(row[0])


@dataclass(slots=True)
class _Kept:
    """Which terms of a question are searched."""

    occurrences: dict[str, int]
    """Of the terms that are searched; 0 for one that is nowhere."""
    frequent: list[str]
    """Those that are left out."""

    @property
    def nothing_found(self) -> bool:
        return not any(self.occurrences.values())

    def keep_rarest(self, index: _TermIndex) -> None:
        """Search the rarest of the frequent terms after all."""
        languages = index.statistics.acl_sets
        counts = {
            term: sum(index.passages(term, language) for language in languages)
            for term in self.frequent
        }
        rarest = min(counts, key=lambda term: (counts[term], term))
        self.occurrences[rarest] = counts[rarest]
        self.frequent.remove(rarest)


def _affordable(index: _TermIndex, terms: Sequence[str]) -> _Kept:
    """Rarest first, as many terms as can be read."""
    if not index.statistics.chunks:
        return _Kept({}, [])
    budget = max(MINIMUM_POSTINGS, int(POSTINGS_SHARE * index.statistics.chunks))
    kept: dict[str, int] = {}
    frequent: list[str] = []
    for occurrences, term in sorted((index.occurrences(t, budget + 1), t) for t in terms):
        budget -= occurrences
        if budget < 0:
            frequent.append(term)
        else:
            kept[term] = occurrences
    return _Kept(kept, frequent)


def _weight(index: _TermIndex, term: str, found: Mapping[str, _Postings]) -> float:
    """The IDF of a term over all visible passages, those in other languages included."""
    chunks = index.statistics.chunks
    passages = sum(len(postings.ids) for postings in found.values())
    if found:
        elsewhere = index.statistics.acl_sets.keys() - found.keys()
        passages += sum(index.passages(term, language) for language in elsewhere)
    return math.log1p((chunks - passages + 0.5) / (passages + 0.5))


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


def _scored(
    terms: Sequence[tuple[float, _Postings | None]], statistics: _Statistics
) -> TextMatches:
    """BM25 of the passages in one language; ``terms`` are IDFs and where each term is."""
    bound = sum(weight for weight, _ in terms) * (SATURATION + 1.0)
    ids, scores = [np.empty(0, np.int64)], [np.empty(0)]
    for weight, found in terms:
        if found is not None:
            length = found.lengths / max(statistics.mean_length, 1.0)
            norm = SATURATION * (1.0 - LENGTH_WEIGHT + LENGTH_WEIGHT * length)
            score = weight * found.counts * (SATURATION + 1.0) / (found.counts + norm)
            ids.append(found.ids[found.asked])
            scores.append(score[found.asked])
    matched, place = np.unique(np.concatenate(ids), return_inverse=True)
    # Added up in the order of the terms, so that equal passages have equal scores to the last bit.
    total = np.bincount(place, np.concatenate(scores), len(matched)).astype(np.float64)
    return TextMatches(matched, total, total / (bound or 1.0))


def _joined(parts: Sequence[TextMatches]) -> TextMatches:
    """The matches in all languages; a passage is in one of them."""
    if not parts:
        return TextMatches(np.empty(0, np.int64), np.empty(0), np.empty(0))
    ids = np.concatenate([part.ids for part in parts])
    order = np.argsort(ids)
    return TextMatches(
        ids[order],
        np.concatenate([part.scores for part in parts])[order],
        np.concatenate([part.shares for part in parts])[order],
    )

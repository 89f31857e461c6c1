"""What a search must answer, worked out from its definition in plain Python over a few documents.

It shares nothing with a store but the analyser, the path patterns and the constants' values, which
are written out again: BM25 with k1 = 1.2 and b = 0.75 over the passages a caller may read, the
cosine in double precision, and their sum as the default fusion has it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from rag_assets.acl import AclTags, Everything
from rag_assets.analysis import analyse
from rag_assets.embeddings.base import Vectors
from rag_assets.filters import Filters
from rag_assets.index.base import IndexedDocument
from rag_assets.models import Chunk, Document
from rag_assets.path_globs import compile_paths

Name = tuple[str, str, int]
"""Source, path, position: what a passage is known by, and the order of equal scores."""

_NEAR = 1e-9
"""Scores of which rounding alone may decide which is the higher."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A passage with all that a search may say of it."""

    document: Document
    chunk: Chunk
    score: float
    vector_score: float | None = None
    text_score: float | None = None
    vector_rank: int | None = None
    text_rank: int | None = None
    twin: Hashable = None
    """Equal for passages that no score can tell apart: their order is that of their names."""

    @property
    def name(self) -> Name:
        """Source, path, position."""
        return _name(self.chunk)


@dataclass(frozen=True, slots=True)
class Ranking:
    """All that may be in an answer, best first, before it is cut at k."""

    passages: list[Expected] = field(default_factory=list)
    is_certain: bool = True
    """False when rounding decides which passages a leg proposes."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One passage, analysed."""

    document: Document
    chunk: Chunk
    vector: Sequence[float]
    terms: Mapping[str, int]
    length: int

    @property
    def name(self) -> Name:
        return _name(self.chunk)


@dataclass(frozen=True, slots=True)
class _Scored:
    """One row in one leg."""

    score: float
    share: float
    twin: Hashable
    row: _Row


class ReferenceSearch:
    """The answers that one caller must get, under one set of filters."""

    def __init__(
        self, items: Iterable[IndexedDocument], acl_tags: AclTags, filters: Filters
    ) -> None:
        readable = [item for item in items if may_read(item.document, acl_tags)]
        self._readable = [row for item in readable for row in _rows(item)]
        self._asked = [row for row in self._readable if passes(row.document, filters)]

    def by_vector(self, question: Vectors) -> Ranking:
        """Every passage asked for, nearest first."""
        leg = self._vector_leg(question)
        return Ranking(
            [
                Expected(
                    one.row.document,
                    one.row.chunk,
                    one.score,
                    vector_score=one.score,
                    vector_rank=rank,
                    twin=one.twin,
                )
                for rank, one in enumerate(leg, start=1)
            ]
        )

    def by_text(self, question: str) -> Ranking:
        """Every passage asked for that holds a term of the question."""
        leg = self._text_leg(question)
        return Ranking(
            [
                Expected(
                    one.row.document,
                    one.row.chunk,
                    one.score,
                    text_score=one.score,
                    text_rank=rank,
                    twin=one.twin,
                )
                for rank, one in enumerate(leg, start=1)
            ]
        )

    def by_both(self, vector: Vectors, question: str, depth: int, text_weight: float) -> Ranking:
        """The best ``depth`` of each leg, by cosine + ``text_weight`` x share."""
        vector_leg, text_leg = self._vector_leg(vector), self._text_leg(question)
        near, texts = ({one.row.name: one for one in leg} for leg in (vector_leg, text_leg))
        vector_ranks = {one.row.name: at for at, one in enumerate(vector_leg[:depth], start=1)}
        text_ranks = {one.row.name: at for at, one in enumerate(text_leg[:depth], start=1)}
        found = []
        for name in {**vector_ranks, **text_ranks}:
            by_vector, by_text = near[name], texts.get(name)
            share = 0.0 if by_text is None else by_text.share
            found.append(
                Expected(
                    by_vector.row.document,
                    by_vector.row.chunk,
                    by_vector.score + text_weight * share,
                    by_vector.score,
                    0.0 if by_text is None else by_text.score,
                    vector_ranks.get(name),
                    text_ranks.get(name),
                    (by_vector.twin, None if by_text is None else by_text.twin),
                )
            )
        found.sort(key=lambda one: (-one.score, one.name))
        is_certain = all(_cut_is_certain(leg, depth) for leg in (vector_leg, text_leg))
        return Ranking(found, is_certain)

    def _vector_leg(self, question: Vectors) -> list[_Scored]:
        asked = [float(x) for x in question]
        length = math.sqrt(sum(x * x for x in asked))
        leg = []
        for row in self._asked:
            product = sum(x * y for x, y in zip(asked, row.vector, strict=True))
            leg.append(_Scored(product / length, 0.0, tuple(row.vector), row))
        return sorted(leg, key=lambda one: (-one.score, one.row.name))

    def _text_leg(self, question: str) -> list[_Scored]:
        """BM25; every number but the passage's own is over all that the caller may read."""
        total = len(self._readable)
        mean = sum(row.length for row in self._readable) / total if total else 1.0
        holding = Counter(term for row in self._readable for term in row.terms)
        leg = []
        for row in self._asked:
            wanted = list(dict.fromkeys(_terms(question, row.document.language)))[:64]
            weights = [
                math.log(1 + (total - holding[term] + 0.5) / (holding[term] + 0.5))
                for term in wanted
            ]
            counts = [row.terms.get(term, 0) for term in wanted]
            if not any(counts):
                continue
            saturation = 1.2 * (1 - 0.75 + 0.75 * row.length / max(mean, 1.0))
            score = sum(
                weight * count * 2.2 / (count + saturation)
                for weight, count in zip(weights, counts, strict=True)
            )
            twin = (row.document.language, row.length, *counts)
            # Rounded, so that sums equal but for their order are equal, as they are in the formula.
            leg.append(_Scored(round(score, 12), score / (2.2 * sum(weights)), twin, row))
        return sorted(leg, key=lambda one: (-one.score, one.row.name))


def may_read(document: Document, acl_tags: AclTags) -> bool:
    """Whether the caller names one of the document's tags, to the byte."""
    if isinstance(acl_tags, Everything):
        return True
    return any(tag in acl_tags for tag in document.acl_tags)


def passes(document: Document, filters: Filters) -> bool:
    """Whether every filter that is set lets the document through."""
    modified = document.modified_at
    listed = (
        (filters.sources, document.source),
        (filters.languages, document.language),
    )
    if any(values is not None and value not in values for values, value in listed):
        return False
    if filters.paths is not None and not compile_paths(filters.paths)(document.path):
        return False
    if any(document.metadata.get(key) != value for key, value in filters.metadata.items()):
        return False
    after, before = filters.modified_after, filters.modified_before
    if after is not None and (modified is None or modified < after):
        return False
    return before is None or (modified is not None and modified < before)


def _cut_is_certain(leg: Sequence[_Scored], depth: int) -> bool:
    """False when the last passage proposed and the first one not are equal but for rounding."""
    if not 0 < depth < len(leg):
        return True
    last, cut = leg[depth - 1], leg[depth]
    return last.twin == cut.twin or last.score - cut.score > _NEAR


def _name(chunk: Chunk) -> Name:
    return chunk.source, chunk.path, chunk.position


def _rows(item: IndexedDocument) -> Iterable[_Row]:
    for chunk, vector in zip(item.chunks, item.vectors, strict=True):
        terms = _terms(chunk.text, item.document.language)
        yield _Row(item.document, chunk, vector.tolist(), Counter(terms), len(terms))


@lru_cache(maxsize=1 << 14)
def _terms(text: str, language: str) -> tuple[str, ...]:
    return tuple(analyse(text, language))

"""One question asked in every mode, and the passages found with their rank in each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup

from rag_assets.errors import (
    DimensionMismatch,
    EmbeddingError,
    FingerprintMismatch,
    IndexMissing,
    RagError,
    VectorStoreError,
)
from rag_assets.service.display import excerpt, marked, visible

if TYPE_CHECKING:
    from rag_assets.acl import AclTags
    from rag_assets.models import Hit
    from rag_assets.retrieval import Retriever

MODES: Final = ("vector", "hybrid", "text")
"""In the order in which the columns stand: the fused ranking between the two it is made of."""
CHART_RANKS: Final = 20
"""Ranks that the chart shows; more lines cannot be followed."""
FEWEST_PASSAGES: Final = 4
"""Among fewer passages no word is taken for a common one."""
MOST_PASSAGES: Final = 0.6
"""A word of the question in a larger share of the passages shown is not marked."""

Spans = Callable[[str, str, str], Sequence[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class SearchForm:
    """A search as a person filled in the form; all but ``k`` as typed."""

    question: str
    k: int
    source: str = ""
    language: str = ""
    path: str = ""
    order: str = "hybrid"
    acl: str = ""

    @classmethod
    def of(cls, fields: Mapping[str, str], *, default_k: int, max_k: int) -> SearchForm:
        """What a form holds; a number of passages that is none, or too large, is put right."""
        typed = fields.get("k", "").strip()
        wanted = int(typed) if typed.isascii() and typed.isdigit() and len(typed) < 7 else default_k
        order = fields.get("order", "")
        return cls(
            question=fields.get("question", "").strip(),
            k=max(1, min(wanted, max_k)),
            source=fields.get("source", "").strip(),
            language=fields.get("language", "").strip(),
            path=fields.get("path", "").strip(),
            order=order if order in MODES else "hybrid",
            acl=fields.get("acl", "").strip(),
        )

    @property
    def acl_tags(self) -> tuple[str, ...]:
        """The tags typed, without blanks or duplicates."""
        return tuple(dict.fromkeys(tag.strip() for tag in self.acl.split(",") if tag.strip()))

    @property
    def filters(self) -> dict[str, Any]:
        """What ``Filters.of`` understands, without the fields left empty."""
        named = {"source": self.source, "path": self.path, "language": self.language}
        return {key: [value] for key, value in named.items() if value}

    @property
    def has_options(self) -> bool:
        """Whether anything beside the question was chosen."""
        return bool(self.filters or self.acl or self.order != "hybrid")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a passage stands in one ranking."""

    rank: int
    score: float | None


@dataclass(frozen=True, slots=True)
class Row:
    """A passage with its places."""

    number: int
    """1-based, in the order asked for."""
    hit: Hit
    places: Mapping[str, Place | None]
    """By mode; None: not among the candidates of that ranking."""
    excerpt: Markup
    whole: Markup | None
    """The passage in full, None when the excerpt is all of it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why rankings are missing."""

    modes: tuple[str, ...]
    key: str
    """The text that says what to do."""
    detail: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the three rankings found."""

    rows: Sequence[Row]
    failures: Sequence[Failure]


def compare(retriever: Retriever, search: SearchForm, acl_tags: AclTags) -> Comparison:
    """Ask in every mode; a mode that fails leaves the others standing."""
    found: dict[str, list[Hit]] = {}
    failures: dict[str, RagError] = {}
    for mode in MODES:
        try:
            found[mode] = retriever.retrieve(
                search.question,
                search.k,
                acl_tags=acl_tags,
                mode=mode,
                filters=search.filters,
                deduplicate=False,
                merge=False,
            )
        except RagError as exc:
            failures[mode] = exc
    return Comparison(_rows(found, search), _failures(failures))


def _failures(errors: Mapping[str, RagError]) -> list[Failure]:
    """The modes that failed, those of one cause together."""
    causes: dict[tuple[str, str], list[str]] = {}
    for mode, error in errors.items():
        if isinstance(error, (FingerprintMismatch, DimensionMismatch)):
            key = "results_mismatch"
        elif isinstance(error, EmbeddingError):
            key = "results_embedder"
        elif isinstance(error, IndexMissing):
            key = "overview_empty_hint"
        elif isinstance(error, VectorStoreError):
            key = "results_index"
        else:
            key = "results_refused"
        causes.setdefault((key, str(error)), []).append(mode)
    return [Failure(tuple(modes), key, detail) for (key, detail), modes in causes.items()]


def _rows(found: Mapping[str, list[Hit]], search: SearchForm) -> list[Row]:
    hits: dict[tuple[str, str, int], Hit] = {}
    places: dict[tuple[str, str, int], dict[str, Place | None]] = {}
    # The fused hits come last: they know their ranks in both legs, even beyond the first k.
    for mode in sorted(found, key=lambda mode: mode == "hybrid"):
        for hit in found[mode]:
            if mode == "text" and not hit.text_score:
                continue  # no word of it matches: it only fills the answer up
            key = (hit.source, hit.path, hit.position)
            hits[key] = hit
            at = places.setdefault(key, dict.fromkeys(MODES))
            at[mode] = Place(hit.rank, hit.score)
            if mode == "hybrid":
                at["vector"] = at["vector"] or _leg(hit.vector_rank, hit.vector_score)
                at["text"] = at["text"] or _leg(hit.text_rank, hit.text_score)
    order = (search.order, *(mode for mode in ("hybrid", "vector", "text") if mode != search.order))

    def ranks(key: tuple[str, str, int]) -> tuple[float, ...]:
        return tuple(place.rank if (place := places[key][m]) else float("inf") for m in order)

    ordered = sorted(hits, key=lambda key: (ranks(key), key))
    telling = telling_words(search.question, list(hits.values()))
    return [
        _row(number, hits[key], places[key], telling) for number, key in enumerate(ordered, start=1)
    ]


def telling_words(question: str, hits: Sequence[Hit]) -> str:
    """``question`` without the words that most passages hold (the, de ...): marking them would
    hide the others. All of it when nothing else would be left, or with few passages."""
    from rag_assets.analysis import matching_spans

    if len(hits) < FEWEST_PASSAGES:
        return question
    words = question.split()
    telling = [
        word
        for word in words
        if sum(bool(matching_spans(hit.content, word, hit.language)) for hit in hits)
        <= MOST_PASSAGES * len(hits)
    ]
    return " ".join(telling or words)


def _leg(rank: int | None, score: float | None) -> Place | None:
    return None if rank is None else Place(rank, score)


def _row(number: int, hit: Hit, places: Mapping[str, Place | None], telling: str) -> Row:
    from rag_assets.analysis import matching_spans

    spans = matching_spans(hit.content, telling, hit.language)
    text, kept = excerpt(hit.content, spans)
    whole = None if text == hit.content else marked(hit.content, spans)
    return Row(number, hit, places, marked(text, kept) if kept else visible(text), whole)


@dataclass(frozen=True, slots=True)
class Line:
    """One passage's way through the columns of the chart."""

    number: int
    """Of its row."""
    hue: int
    points: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Chart:
    """Ranks as heights in one column for each ranking, in SVG user units of a 300 wide picture."""

    height: int
    """0: nothing to show."""
    columns: Mapping[str, int]
    lines: Sequence[Line]


def chart(rows: Sequence[Row]) -> Chart:
    """Lines between the ranks of each passage, for ranks up to ``CHART_RANKS``."""
    columns = dict(zip(MODES, (40, 150, 260), strict=True))
    lines = []
    for row in rows:
        points = [
            (columns[mode], 16 + at.rank * 24)
            for mode in MODES
            if (at := row.places[mode]) is not None and at.rank <= CHART_RANKS
        ]
        if points:
            lines.append(Line(row.number, (row.number - 1) % 8, points))
    lowest = max((y for line in lines for _, y in line.points), default=0)
    return Chart(lowest + 16 if len(lines) > 1 else 0, columns, lines)

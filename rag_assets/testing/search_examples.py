"""Random indexes, callers and questions for tests of a search; needs hypothesis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

from rag_assets.acl import EVERYTHING, AclTags
from rag_assets.embeddings.base import InputType, Vectors
from rag_assets.filters import Filters
from rag_assets.fingerprints import sha256_hex
from rag_assets.index.base import IndexedDocument
from rag_assets.models import Chunk, Document, EmbedderHealth, embedding_text
from rag_assets.testing.documents import DIM, FINGERPRINT, unit_vector

SOURCES: Final = ("guides", "wiki", "guide", "équipe")
PATHS: Final = (
    "a.md", "a/b.md", "a/é.md", "a/e\u0301.md", "ab/b.md", "c.en.md", "hr/paie 2024.md", "A/b.md",
)  # fmt: skip
LANGUAGES: Final = ("fr", "en", "", "de")
TAGS: Final = (
    "public", "PUBLIC", "publi", "service:rh", "service:r", "100%", "100", "l'équipe",
    "l'e\u0301quipe", '"admin"', "\\udc80",
)  # fmt: skip
STRANGE_TAGS: Final = ("inconnu", "%", "", "Service:rh", "public ", "' OR 1=1 --", "\udc80")
"""On no document, whatever they look like."""
WORDS: Final = (
    "sauvegarde", "sauvegardes", "Sauvegardé", "réseau", "reseaux", "l'été", "cœur", "coeur",
    "pare-feu", "feu", "backup", "backups", "running", "runs", "state-of-the-art", "C++", "v1.2",
    "38.101", "50%", "getUserById", "user",
)  # fmt: skip
QUESTION_WORDS: Final = (*WORDS, "inconnu", '"', "AND", "*")
METADATA: Final[tuple[dict[str, str], ...]] = (
    {},
    {"auteur": "Zoé"},
    {"auteur": "zoé"},
    {"auteur": "Zoé", "version": "1.10"},
)
TIMES: Final = (
    None, "2026-03-01T09:30:00Z", "2026-03-01T09:30:01Z", "2024-12-31T23:59:59Z",
)  # fmt: skip

_FOUR: Final = (0.5, 0.5, 0.5, 0.5)
_ZERO: Final = (0.0, 0.0, 0.0, 0.0)
VECTORS: Final[tuple[Vectors, ...]] = tuple(
    np.array(vector, dtype=np.float32)
    for vector in (
        (1.0, 0.0, 0.0, 0.0, *_ZERO),
        (0.0, 1.0, 0.0, 0.0, *_ZERO),
        (-1.0, 0.0, 0.0, 0.0, *_ZERO),
        (*_FOUR, *_ZERO),
        (0.5, 0.5, -0.5, -0.5, *_ZERO),
        (*_ZERO, *_FOUR),
        unit_vector("un"),
        unit_vector("deux"),
    )
)
"""Few, so that many passages are equally near; of length 1 to the last bit, but for two."""

_TITLES: Final = ("Guide", "Sauvegarde", "Network backups")
_PATH_FILTERS: Final = (("a",), ("a/",), ("**/*.md",), ("*.md", "hr"), ("a/é.md",), ("zz",), ())
_SOURCE_FILTERS: Final = (("guides",), ("wiki", "équipe"), ("GUIDES", "guide"), ("absent",), ())
_LANGUAGE_FILTERS: Final = (("fr",), ("en", "de"), ("",), ("fr", "en", ""), ("it",))
_METADATA_FILTERS: Final = (
    {"auteur": "Zoé"}, {"auteur": "Zoé", "version": "1.10"}, {"version": "1"}, {"absent": "x"},
)  # fmt: skip

_NAMES: Final = tuple((source, path) for path in PATHS for source in SOURCES)
_WORD_CHOICES: Final = (*WORDS, "")
_TAG_CHOICES: Final = (*["public"] * 6, *TAGS, "", "", "")
_SAID: Final[tuple[Sequence[Any], ...]] = (
    _TITLES, LANGUAGES, TIMES, METADATA, _TAG_CHOICES, _TAG_CHOICES,
)  # fmt: skip
"""What a document says of itself: each of these, tags twice."""


@dataclass(frozen=True)
class SearchExample:
    """An index, and a question put to it by several callers, one after the other."""

    items: Sequence[IndexedDocument]
    question: str
    vector: Vectors
    k: int
    depth: int
    filters: Filters
    callers: Sequence[AclTags]


class ChosenVectors:
    """An ``Embedder`` that gives every question the vector it was built with."""

    batch_size = 64
    fingerprint = FINGERPRINT.model

    def __init__(self, vector: Vectors) -> None:
        self._vector = vector

    def health(self) -> EmbedderHealth:
        """Always well."""
        return EmbedderHealth("ok", "chosen", DIM)

    def embed(self, type: InputType, texts: Sequence[str]) -> Vectors:  # noqa: ARG002
        """float32 [len(texts), DIM]: the same row for every text."""
        return np.tile(self._vector, (len(texts), 1))

    def close(self) -> None:
        """Release nothing."""


def indexes(*, minimum: int = 0, maximum: int = 9) -> st.SearchStrategy[list[IndexedDocument]]:
    """Documents of few words, under few tags, in few folders.

    A passage, and all that a document says of itself, are each drawn as one number, which is
    several times faster than drawing their parts.
    """
    passages = st.lists(
        st.integers(0, len(VECTORS) * len(_WORD_CHOICES) ** 4 - 1), min_size=1, max_size=4
    )
    document = st.tuples(
        st.sampled_from(_NAMES), st.integers(0, math.prod(map(len, _SAID)) - 1), passages
    )
    raw = st.lists(document, min_size=minimum, max_size=maximum, unique_by=lambda one: one[0])
    return raw.map(lambda documents: [_indexed(*one) for one in documents])


def callers() -> st.SearchStrategy[AclTags]:
    """Tags a caller names: known ones, strange ones, none, or all trust."""
    few = st.lists(st.sampled_from((*TAGS, *STRANGE_TAGS)), min_size=1, max_size=3)
    some = [  # hypothesis takes the same strategy given twice for one
        st.lists(st.sampled_from((*["public"] * 4, *TAGS)), min_size=2, max_size=longest)
        for longest in (3, 4, 5)
    ]
    special: list[AclTags] = [EVERYTHING, EVERYTHING, [], list(TAGS)]
    return st.one_of(few, *some, st.sampled_from(special))


def any_filters() -> st.SearchStrategy[Filters]:
    """None at all in more than a third of the cases, else one or a few together."""

    def combined(unset: int) -> st.SearchStrategy[Filters]:
        def some(values: Sequence[Any]) -> st.SearchStrategy[Any]:
            return st.sampled_from([None] * unset * len(values) + list(values))

        return st.builds(
            Filters,
            sources=some(_SOURCE_FILTERS),
            paths=some(_PATH_FILTERS),
            metadata=some(_METADATA_FILTERS).map(lambda given: given or {}),
            modified_after=some(TIMES[1:]),
            modified_before=some(TIMES[1:]),
            languages=some(_LANGUAGE_FILTERS),
        )

    return st.one_of(st.just(Filters()), combined(2), combined(5))


def search_examples(*, minimum: int = 0, maximum: int = 9) -> st.SearchStrategy[SearchExample]:
    """Everything that decides an answer; ``minimum`` to ``maximum`` documents."""
    words = st.lists(st.sampled_from(QUESTION_WORDS), min_size=1, max_size=4)
    return st.builds(
        SearchExample,
        items=st.one_of(
            indexes(minimum=minimum, maximum=maximum),
            indexes(minimum=max(minimum, maximum - 4), maximum=maximum),
            indexes(minimum=max(minimum, maximum - 4), maximum=maximum),
        ),
        question=st.one_of(words.map(" ".join), st.sampled_from(["", "sauvegarde", "AND *"])),
        vector=st.sampled_from([*VECTORS, unit_vector("trois")]),
        k=st.one_of(st.integers(1, 6), st.sampled_from([0, 1, 10, 60, 5_000, 2**63])),
        depth=st.integers(0, 6),
        filters=any_filters(),
        callers=st.lists(callers(), min_size=2, max_size=2),
    )


def _indexed(name: tuple[str, str], said: int, passages: Sequence[int]) -> IndexedDocument:
    (source, path), told = name, _digits(said, _SAID)
    title, language, modified_at, metadata, *tags = told
    document = Document(
        source=source,
        path=path,
        url=f"https://wiki.example/{path}" if modified_at else "",
        title=title,
        body="",
        body_start_line=1,
        content_hash=sha256_hex(repr(passages)),
        modified_at=modified_at,
        acl_tags=tuple(sorted({tag for tag in tags if tag})),
        metadata=metadata,
        warnings=(),
        language=language,
    )
    drawn = [_digits(passage, (VECTORS, *[_WORD_CHOICES] * 4)) for passage in passages]
    chunks = [
        _chunk(document, position, " ".join(words).strip())
        for position, (_, *words) in enumerate(drawn)
    ]
    return IndexedDocument(document, chunks, np.stack([vector for vector, *_ in drawn]))


def _digits(number: int, choices: Sequence[Sequence[Any]]) -> list[Any]:
    """One of each of ``choices``: the digits of ``number`` in as many bases."""
    digits = []
    for some in choices:
        number, digit = divmod(number, len(some))
        digits.append(some[digit])
    return digits


def _chunk(document: Document, position: int, content: str) -> Chunk:
    heading_path = ("Début",) if position else ()
    return Chunk(
        source=document.source,
        path=document.path,
        position=position,
        title=document.title,
        heading_path=heading_path,
        anchor="début" if position else "",
        start_line=2 * position + 1,
        end_line=2 * position + 2,
        tokens=len(content.split()),
        content=content,
        content_hash=sha256_hex(embedding_text(document.title, heading_path, content)),
    )

"""A search that is right for every caller: a pytest class to subclass, overriding one fixture."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal

import pytest
from hypothesis import HealthCheck, given, settings

from rag_assets.acl import AclTags
from rag_assets.citations import citation_url
from rag_assets.filters import Filters
from rag_assets.index.base import IndexedDocument, VectorStore
from rag_assets.models import Hit
from rag_assets.retrieval import Retriever
from rag_assets.retrieval.fusion import DEPTH, TEXT_WEIGHT, Fusion
from rag_assets.testing.documents import FINGERPRINT, found
from rag_assets.testing.reference_search import (
    Expected,
    Name,
    Ranking,
    ReferenceSearch,
    may_read,
    passes,
)
from rag_assets.testing.search_examples import (
    SOURCES,
    ChosenVectors,
    SearchExample,
    search_examples,
)

MakeStore = Callable[[], VectorStore]

EXAMPLES: Final = 2000
"""Of the property; one takes about 30 ms with SQLite."""
TOLERANCE: Final = 1e-6
"""What single precision may make of a cosine."""

_UNMINDED: Final = (
    HealthCheck.function_scoped_fixture,  # every example begins by removing what the last wrote
    HealthCheck.differing_executors,  # the class is made to be subclassed
    HealthCheck.too_slow,
)
_HIT_FIELDS: Final = tuple(one.name for one in fields(Hit))


class SearchContract:
    """Subclass it in a test module and override ``make_store``."""

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """A function that gives another store each time, over a new and empty place."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, make_store: MakeStore) -> Iterator[VectorStore]:
        """An initialised store, open for writing."""
        store = make_store()
        with opened(store):
            yield store

    @given(example=search_examples())
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=_UNMINDED)
    def test_answer_is_brute_force_over_what_the_caller_may_see(
        self, store: VectorStore, example: SearchExample
    ) -> None:
        """In every mode, for several callers in turn; and hidden documents change no bit of it."""
        check_example(store, example)

    @given(example=search_examples(minimum=3, maximum=12))
    @settings(max_examples=60, deadline=None, suppress_health_check=_UNMINDED)
    def test_index_that_never_had_the_hidden_documents_answers_alike(
        self, make_store: MakeStore, example: SearchExample
    ) -> None:
        """Even where rows got other numbers, in another order."""
        with opened(make_store()) as full, opened(make_store()) as small:
            write_all(full, example.items)
            acl_tags = example.callers[0]
            seen = [item for item in example.items if may_read(item.document, acl_tags)]
            write_all(small, seen[::-1])
            told = [
                everything_told(
                    store, example, acl_tags, ask(store, example, acl_tags), dated=False
                )
                for store in (full, small)
            ]
            assert told[0] == told[1]

    @given(example=search_examples(minimum=24, maximum=32))
    @settings(max_examples=25, deadline=None, suppress_health_check=_UNMINDED)
    def test_more_passages_than_a_leg_proposes(
        self, store: VectorStore, example: SearchExample
    ) -> None:
        """The same where the legs are cut at their default depth."""
        check_example(store, example)


class opened:  # noqa: N801  (used as a function)
    """A context in which a store is initialised and may be written to; it is closed at the end."""

    def __init__(self, store: VectorStore) -> None:
        self._store = store
        store.initialize(FINGERPRINT)
        self._writing = store.writing(run_id="run-1", partition="all", wait_seconds=10)

    def __enter__(self) -> VectorStore:
        """The store."""
        self._writing.__enter__()
        return self._store

    def __exit__(self, *exc: Any) -> None:
        """Give the lease back and close the store."""
        self._writing.__exit__(*exc)
        self._store.close()


@dataclass(frozen=True, slots=True)
class Answers:
    """What one caller gets for one question, in each way it can be asked."""

    by_mode: dict[str, list[Hit]]
    direct: list[Hit]
    """From the store itself, with legs cut early."""


def check_example(store: VectorStore, example: SearchExample) -> None:
    """Write the documents, ask for every caller, compare; then again without what is hidden.

    Raises:
        AssertionError: an answer is not what it must be.
    """
    remove_all(store)
    write_all(store, example.items)
    for acl_tags in example.callers:
        answers = ask(store, example, acl_tags)
        check_answers(answers, example, acl_tags)
    hidden = [item.document for item in example.items if not may_read(item.document, acl_tags)]
    if not hidden:
        return
    before = everything_told(store, example, acl_tags, answers)
    for document in hidden:
        store.delete_documents(document.source, [document.path])
    answers = ask(store, example, acl_tags)
    after = everything_told(store, example, acl_tags, answers)
    assert after == before, f"hidden documents show: {before} became {after}"


def ask(store: VectorStore, example: SearchExample, acl_tags: AclTags) -> Answers:
    """Put the question through the retriever in each mode, and to the store itself."""
    retriever = Retriever(store, ChosenVectors(example.vector))
    by_mode = {
        mode: retriever.retrieve(
            example.question, example.k, acl_tags=acl_tags, mode=mode, filters=example.filters
        )
        for mode in ("vector", "text", "hybrid")
    }
    direct = store.search(
        example.vector,
        example.k,
        acl_tags=acl_tags,
        filters=example.filters,
        text=example.question,
        fuse=Fusion(),
        depth=example.depth,
    )
    return Answers(by_mode, direct)


def check_answers(answers: Answers, example: SearchExample, acl_tags: AclTags) -> None:
    """Compare with brute force; every failure names the mode and the caller."""
    reference = ReferenceSearch(example.items, acl_tags, example.filters)
    asked, k = example.question.strip(), example.k
    deep = max(k, DEPTH)
    rankings = {
        "vector": reference.by_vector(example.vector),
        "text": reference.by_text(asked),
        "hybrid": reference.by_both(example.vector, asked, deep, TEXT_WEIGHT),
    }
    visible = len(rankings["vector"].passages)
    for mode, hits in answers.by_mode.items():
        where = f"{mode} mode, caller {acl_tags!r}"
        check_ranking(hits, rankings[mode] if asked else Ranking(), k, mode, where)
        if asked and mode != "text":
            assert len(hits) == min(k, visible), where
        check_allowed(hits, example.items, acl_tags, example.filters, where)
    early = reference.by_both(example.vector, asked, max(k, example.depth), TEXT_WEIGHT)
    where = f"store.search, depth {example.depth}, caller {acl_tags!r}"
    check_ranking(answers.direct, early, k, "hybrid", where)
    assert len(answers.direct) == min(k, visible), where


def check_ranking(hits: Sequence[Hit], ranking: Ranking, k: int, kind: str, where: str) -> None:
    """The first k of ``ranking``, in its order but for what rounding may swap."""
    expected = ranking.passages
    names = found(hits)
    assert len(names) == len(set(names)) == min(k, len(expected)), where
    assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1)), where
    assert {hit.score_kind for hit in hits} <= {kind}, where
    in_order = sorted(hits, key=lambda hit: (-hit.score, hit.source, hit.path, hit.position))
    assert found(in_order) == names, f"{where}: not by score, then by name"
    if not ranking.is_certain:
        return
    known = {one.name: one for one in expected}
    for hit, name, at_its_rank in zip(hits, names, expected, strict=False):
        assert name in known, f"{where}: {name} is not among the candidates"
        one = known[name]
        assert _near(one.score, at_its_rank.score), f"{where}: {name} at rank {hit.rank}"
        check_scores(hit, one, expected, where)
        check_provenance(hit, one, where)
    check_twins(hits, known, expected, where)


def check_scores(hit: Hit, one: Expected, expected: Sequence[Expected], where: str) -> None:
    """Every score is that of brute force, and every rank one that its score can have."""
    where = f"{where}: {one.name}"
    assert _near(hit.score, one.score), f"{where}: score {hit.score}, not {one.score}"
    assert _near(hit.vector_score, one.vector_score), f"{where}: {hit.vector_score}"
    assert _near(hit.text_score, one.text_score), f"{where}: {hit.text_score}"
    for name, score in (("vector_rank", "vector_score"), ("text_rank", "text_score")):
        given, right = getattr(hit, name), getattr(one, name)
        if given != right:
            assert None not in (given, right), f"{where}: {name} {given}, not {right}"
            of_rank = next(other for other in expected if getattr(other, name) == given)
            assert _near(getattr(of_rank, score), getattr(one, score)), f"{where}: {name} {given}"


def check_provenance(hit: Hit, one: Expected, where: str) -> None:
    """The hit says what document and chunk say."""
    chunk, document = one.chunk, one.document
    for name in ("title", "section", "heading_path", "anchor", "start_line", "end_line"):
        assert getattr(hit, name) == getattr(chunk, name), f"{where}: {name} of {one.name}"
    assert (hit.content, hit.content_hash) == (chunk.content, chunk.content_hash), where
    assert (hit.language, hit.modified_at) == (document.language, document.modified_at), where
    assert hit.url == citation_url(document.url, chunk.anchor), where


def check_twins(
    hits: Sequence[Hit], known: dict[Name, Expected], expected: Sequence[Expected], where: str
) -> None:
    """Passages that no score can tell apart: equal scores, first by name, none left out."""
    given: dict[Hashable, list[Hit]] = defaultdict(list)
    for hit, name in zip(hits, found(hits), strict=True):
        given[known[name].twin].append(hit)
    right: dict[Hashable, list[Name]] = defaultdict(list)
    for one in sorted(expected, key=lambda one: one.name):
        right[one.twin].append(one.name)
    for twin, some in given.items():
        assert found(some) == right[twin][: len(some)], f"{where}: order of equal passages"
        assert len({hit.score for hit in some}) == 1, f"{where}: scores of equal passages"


def check_allowed(
    hits: Sequence[Hit],
    items: Sequence[IndexedDocument],
    acl_tags: AclTags,
    filters: Filters,
    where: str,
) -> None:
    """Every hit is of a document that the caller may read and that passes the filters."""
    documents = {(item.document.source, item.document.path): item.document for item in items}
    for hit in hits:
        document = documents[hit.source, hit.path]
        assert may_read(document, acl_tags), f"{where}: {hit.citation} is hidden"
        assert passes(document, filters), f"{where}: {hit.citation} is not within the filters"


def everything_told(
    store: VectorStore,
    example: SearchExample,
    acl_tags: AclTags,
    answers: Answers,
    *,
    dated: bool = True,
) -> list[str]:
    """All that an index tells one caller, to the last bit; ``dated``: with the times of writing."""
    told = [
        repr([getattr(hit, name) for name in _HIT_FIELDS])
        for hits in (*answers.by_mode.values(), answers.direct)
        for hit in hits
    ]
    stats = store.stats(acl_tags=acl_tags)
    if not dated or stats.size_bytes:  # the size is told to those who see everything
        stats = replace(stats, last_indexed_at=None, size_bytes=0)
    told.append(repr(replace(stats, sources=sorted(stats.sources.items()))))  # type: ignore[arg-type]
    for source, path in sorted(spellings(example.items)):
        document = store.document(source, path, acl_tags=acl_tags)
        if document is not None:
            shown = document if dated else replace(document, indexed_at=None)
            told.append(f"{source} {path!a}: {shown}")
    return told


def spellings(items: Sequence[IndexedDocument]) -> set[tuple[str, str]]:
    """Source and path of every document, as spelled and in both Unicode normal forms."""
    names = [(item.document.source, item.document.path) for item in items]
    forms: tuple[Literal["NFC", "NFD"], ...] = ("NFC", "NFD")
    return {*names, *((s, unicodedata.normalize(form, p)) for s, p in names for form in forms)}


def write_all(store: VectorStore, items: Sequence[IndexedDocument]) -> None:
    """Upsert under the lease that is held."""
    store.upsert_documents(items, run_id="run-1")


def remove_all(store: VectorStore) -> None:
    """Leave an empty index."""
    for source in SOURCES:
        if paths := list(store.document_digests(source)):
            store.delete_documents(source, paths)


def _near(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= TOLERANCE * max(1.0, abs(other))

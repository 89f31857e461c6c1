"""No document, however made, takes a parsing worker more than its two seconds and 256 MB."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from rag_assets.documents.isolation.worker import IsolatedWorker
from rag_assets.models import PROBLEM_REASONS, Document
from rag_assets_tests.documents.hostile import (
    FAMILIES,
    MEGABYTES,
    SAFE,
    SECONDS,
    Family,
    documents_of,
    hostile_documents,
    parse_hostile,
    parsing_worker,
    source_file,
)

OUTCOMES = {"Document", "blank", "timeout", "memory", "crash", *PROBLEM_REASONS}
RESTART_SECONDS = 6.0
"""A new child loads the language model, on a machine that may be busy with something else."""


@pytest.fixture(scope="module")
def worker() -> Iterator[IsolatedWorker]:
    """One worker for all documents, as in a run."""
    with parsing_worker() as worker:
        yield worker


@pytest.fixture(scope="module")
def expected(worker: IsolatedWorker) -> Document:
    """What the harmless document is parsed to."""
    document, _ = worker.call(source_file(SAFE.encode()))
    assert isinstance(document, Document)
    assert document.title == "Congés d'été"
    return document


@pytest.mark.parametrize(
    ("family", "media_type"), FAMILIES, ids=[family.__name__.strip("_") for family, _ in FAMILIES]
)
def test_a_hostile_document_costs_only_itself(
    worker: IsolatedWorker, expected: Document, family: Family, media_type: str
) -> None:
    """It is parsed, left out with a reason, or given up in time; the next one is parsed."""
    for hostile in documents_of(family, media_type):
        start = time.monotonic()
        outcome = parse_hostile(worker, hostile)
        after, _ = worker.call(source_file(SAFE.encode()))
        assert after == expected, hostile
        assert time.monotonic() - start < SECONDS + RESTART_SECONDS, hostile
        assert outcome.seconds < SECONDS + 1, hostile
        assert outcome.megabytes <= MEGABYTES, hostile
        assert outcome.kind in OUTCOMES, (hostile, outcome)


def test_every_kind_of_the_list_is_there() -> None:
    """Items 21 to 62 of the list of inputs that hurt, each at least once."""
    numbers = {number for family, _ in FAMILIES for number, _, _ in family()}
    assert numbers >= set(range(21, 63))


def test_who_may_read_is_never_lost(worker: IsolatedWorker) -> None:
    """No document that hides or doubles its ``acl`` becomes public."""
    outcomes = [
        (hostile.name, parse_hostile(worker, hostile).kind)
        for hostile in hostile_documents()
        if hostile.number in (33, 34) or "acl n" in hostile.name or "acl of" in hostile.name
    ]
    assert len(outcomes) >= 5
    assert {kind for _, kind in outcomes} == {"acl_unreadable"}

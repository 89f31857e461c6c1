"""Terms so frequent that reading where they stand would take longer than a search by vectors."""

from __future__ import annotations

from pathlib import Path

import pytest

from rag_assets.acl import EVERYTHING
from rag_assets.index.full_text import MAXIMUM_MARKS, MINIMUM_POSTINGS
from rag_assets.index.sqlite import SqliteStore
from rag_assets.models import Hit
from rag_assets.retrieval.fusion import Fusion
from rag_assets.testing.documents import FINGERPRINT, indexed_document, unit_vector, write

PASSAGES = 120


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    """120 passages that repeat one word 100 times; one in ten holds a rare word as well."""
    assert PASSAGES * 100 > MINIMUM_POSTINGS
    store = SqliteStore(tmp_path / "index.sqlite")
    store.initialize(FINGERPRINT)
    texts = ["banal " * 100 + ("trésor" if n % 10 == 0 else f"sujet{n}") for n in range(PASSAGES)]
    write(store, indexed_document("a.md", texts), indexed_document("b.md", ["banal"], tags=["x"]))
    return store


def by_text(store: SqliteStore, question: str, acl_tags: object = EVERYTHING) -> list[Hit]:
    """What the text leg alone finds."""
    return store.search(None, 1000, acl_tags=acl_tags, text=question)  # type: ignore[arg-type]


def test_a_rare_word_is_searched_without_the_frequent_one(store: SqliteStore) -> None:
    """The frequent one would add little: the answer is that of the rare word alone."""
    found = by_text(store, "banal trésor")
    assert found == by_text(store, "trésor")
    assert [hit.position for hit in found] == list(range(0, PASSAGES, 10))


def test_a_frequent_word_alone_is_searched_after_all(store: SqliteStore) -> None:
    """Whoever searches by words gets every passage that holds it."""
    assert len(by_text(store, "banal")) == PASSAGES + 1
    assert len(by_text(store, "banal introuvable")) == PASSAGES + 1


def test_a_frequent_word_alone_leaves_the_ranking_to_the_vectors(store: SqliteStore) -> None:
    """In hybrid mode it says nothing: no text score, the order of the vector leg."""
    vector = unit_vector("question")
    fused = store.search(vector, 20, acl_tags=EVERYTHING, text="banal", fuse=Fusion(), depth=30)
    nearest = store.search(vector, 20, acl_tags=EVERYTHING)
    assert [hit.position for hit in fused] == [hit.position for hit in nearest]
    assert {hit.text_score for hit in fused} == {0.0}


def test_what_is_frequent_depends_on_the_caller_alone(store: SqliteStore) -> None:
    """To whom sees one passage of it the word is rare, however often hidden ones hold it."""
    assert [hit.path for hit in by_text(store, "banal", ["x"])] == ["b.md"]
    fused = store.search(unit_vector("q"), 5, acl_tags=["x"], text="banal", fuse=Fusion(), depth=30)
    assert fused[0].text_score == by_text(store, "banal", ["x"])[0].text_score


@pytest.mark.parametrize("seen", [MAXIMUM_MARKS - 10, MAXIMUM_MARKS + 10])
def test_callers_of_many_acl_sets_find_what_is_theirs(tmp_path: Path, seen: int) -> None:
    """However many sets a caller names, the answer is that of an index without the others."""
    items = [
        indexed_document(f"{n}.md", [f"commun sujet{n % 7} " + "banal " * (n % 5)], tags=[f"t{n}"])
        for n in range(MAXIMUM_MARKS + 60)
    ]
    tags = [f"t{n}" for n in range(0, 2 * seen, 2)][: len(items) // 2]
    tags += [f"t{n}" for n in range(1, len(items), 2)][: seen - len(tags)]
    answers = []
    for name, held in (
        ("all", items),
        ("own", [i for i in items if i.document.acl_tags[0] in tags]),
    ):
        store = SqliteStore(tmp_path / name / "index.sqlite")
        store.initialize(FINGERPRINT)
        write(store, *held)
        answers.append(
            [by_text(store, q, tags) for q in ("commun sujet3", "banal", "sujet5 absent")]
        )
        store.close()
    assert answers[0] == answers[1]
    assert len(answers[0][0]) == seen

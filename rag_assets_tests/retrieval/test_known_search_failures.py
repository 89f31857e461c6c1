"""Faults that users of comparable searches met, each as its whole kind, and hostile questions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_assets.acl import EVERYTHING
from rag_assets.embeddings.base import Vectors
from rag_assets.errors import InvalidQuery
from rag_assets.index.base import IndexedDocument
from rag_assets.index.sqlite import SqliteStore
from rag_assets.models import Hit, IndexFingerprint
from rag_assets.retrieval import Retriever
from rag_assets.retrieval.fusion import Fusion
from rag_assets.testing.documents import DIM, FINGERPRINT, found, indexed_document, write
from rag_assets.testing.embedders import StubEmbedder
from rag_assets.testing.search_examples import ChosenVectors

MODES = ("vector", "text", "hybrid")
Fill = Callable[..., Retriever]


@pytest.fixture
def fill(tmp_path: Path) -> Iterator[Fill]:
    """A function that indexes documents as the stub embeds them, and opens a retriever."""
    opened: list[Retriever] = []

    def index(*items: IndexedDocument) -> Retriever:
        embedder = StubEmbedder()
        store = SqliteStore(tmp_path / f"{len(opened)}.sqlite")
        store.initialize(IndexFingerprint(embedder.fingerprint, embedder.dim, "c"))
        texts = [[chunk.content for chunk in item.chunks] for item in items]
        write(
            store,
            *(
                replace(item, vectors=embedder.embed("passage", some))
                for item, some in zip(items, texts, strict=True)
            ),
        )
        opened.append(Retriever(store, embedder))
        return opened[-1]

    yield index
    for retriever in opened:
        retriever.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """A store whose vectors a test chooses."""
    store = SqliteStore(tmp_path / "chosen.sqlite")
    store.initialize(FINGERPRINT)
    yield store
    store.close()


def at_cosine(cosine: float, axis: int = 1) -> Vectors:
    """A unit vector with that cosine to ``QUESTION``."""
    vector = np.zeros(DIM)
    vector[0], vector[axis] = cosine, np.sqrt(1 - cosine * cosine)
    return vector.astype(np.float32)


QUESTION = at_cosine(1.0)


def placed(path: str, text: str, cosine: float, **options: Any) -> IndexedDocument:
    """A document of one passage, that near to the question."""
    item = indexed_document(path, [text], title="t", **options)
    return replace(item, vectors=np.stack([at_cosine(cosine)]))


def paths(hits: Sequence[Hit]) -> list[str]:
    """Where hits are."""
    return [hit.path for hit in hits]


# -- any text is a question --------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["text", "hybrid"])
@pytest.mark.parametrize(
    ("question", "text", "language"),
    [
        pytest.param("l'été à l'hôtel", "Un été à l’hôtel de la plage", "fr", id="HYB-01-straight"),
        pytest.param("l’été à l’hôtel", "Un été à l'hôtel de la plage", "fr", id="HYB-01-curly"),
        pytest.param("aujourd'hui", "c'est pour aujourd’hui", "fr", id="HYB-01-inside"),
        pytest.param("don't panic", "do not panic, don’t", "en", id="HYB-01-english"),
        pytest.param("'", "une apostrophe : '", "fr", id="HYB-01-alone"),
        pytest.param("v1.2.", "la version v1.2 est sortie", "fr", id="HYB-03-version"),
        pytest.param("C++", "du code en C++ moderne", "fr", id="HYB-03-plus"),
        pytest.param("jour?", "un jour férié", "fr", id="HYB-03-question-mark"),
        pytest.param("50%", "une remise de 50 %", "fr", id="HYB-03-per-cent"),
        pytest.param("@equipe", "prévenir @équipe", "fr", id="HYB-03-at"),
        pytest.param("38.101", "norme 38.101", "fr", id="HYB-03-number"),
        pytest.param("(vpn", "le vpn du siège", "fr", id="HYB-03-parenthesis"),
        pytest.param("state-of-the-art", "a state-of-the-art system", "en", id="HYB-05-hyphens"),
        pytest.param("pare-feu", "le pare-feu du siège", "fr", id="HYB-05-french"),
        pytest.param("title:vpn", "le vpn du siège", "fr", id="HYB-05-column"),
        pytest.param("-vpn", "le vpn du siège", "fr", id="HYB-05-minus"),
        pytest.param("^vpn", "le vpn du siège", "fr", id="HYB-05-caret"),
        pytest.param("sécurité réseau", "la sécurité du réseau", "fr", id="HYB-07-accents"),
        pytest.param("securite reseau", "la sécurité du réseau", "fr", id="HYB-07-bare-question"),
        pytest.param("sécurité réseau", "la securite du reseau", "fr", id="HYB-07-bare-text"),
        pytest.param("RE\u0301SEAU", "le réseau", "fr", id="HYB-07-decomposed"),
        pytest.param("coeur", "le cœur de réseau", "fr", id="HYB-07-ligature"),
        pytest.param("сеть", "локальная сеть", "ru", id="HYB-07-cyrillic"),
        pytest.param("東京", "東京の天気", "ja", id="HYB-07-japanese"),
    ],
)
def test_words_are_found_however_they_are_typed(
    store: SqliteStore, mode: str, question: str, text: str, language: str
) -> None:
    """Hits and no exception: the words alone, for the vectors are equal, bring the passage up."""
    write(
        store,
        placed("autre.md", "rien de commun", 0.5, language=language),
        placed("vise.md", text, 0.5, language=language),
    )
    retriever = Retriever(store, ChosenVectors(QUESTION))
    hits = retriever.retrieve(question, 5, acl_tags=["public"], mode=mode)
    assert len(hits) == (2 if mode == "hybrid" else int(question != "'"))
    if question == "'":  # there is no word in it
        assert all(hit.text_rank is None for hit in hits)
        return
    best = hits[0]
    assert (best.path, best.text_rank, best.score_kind) == ("vise.md", 1, mode)
    assert best.text_score is not None
    assert best.text_score > 0


# -- fusion ------------------------------------------------------------------------------------


def test_passage_that_both_legs_propose_comes_first(store: SqliteStore) -> None:
    """HYB-09: X, a, Y by vector and b, c, Y by text: Y is first; ranks are those of the legs.

    What a leg did not propose has no rank in it, instead of an invented last one, and ranks count
    from 1.
    """
    write(
        store,
        placed("X.md", "tout autre sujet", 0.90),
        placed("a.md", "encore autre chose", 0.89),
        placed("Y.md", "sauvegarde quotidienne des postes", 0.88),
        placed("p.md", "une page", 0.87),
        placed("q.md", "une autre page", 0.86),
        placed("b.md", "sauvegarde", 0.40),
        placed("c.md", "sauvegarde quotidienne", 0.39),
    )
    hits = store.search(QUESTION, 5, acl_tags=EVERYTHING, text="sauvegarde", fuse=Fusion(), depth=5)
    by_path = {hit.path: hit for hit in hits}
    assert paths(hits)[0] == "Y.md"
    assert (by_path["Y.md"].vector_rank, by_path["Y.md"].text_rank) == (3, 3)
    assert (by_path["X.md"].vector_rank, by_path["X.md"].text_rank) == (1, None)
    assert by_path["X.md"].text_score == 0
    everything = store.search(
        QUESTION, 6, acl_tags=EVERYTHING, text="sauvegarde", fuse=Fusion(), depth=1
    )
    assert {hit.vector_rank for hit in everything if hit.text_rank is None} <= {1, 2, 4, 5, 6}


@pytest.mark.parametrize("rank", range(5))
def test_both_legs_beat_one_at_the_same_rank(store: SqliteStore, rank: int) -> None:
    """HYB-09: as near as another passage and with the question's word besides: before it."""
    cosines = [0.9, 0.8, 0.7, 0.6, 0.5]
    items = [placed(f"a{n}.md", "un autre sujet", cosine) for n, cosine in enumerate(cosines)]
    items.append(placed("z.md", "une sauvegarde ici", cosines[rank]))
    write(store, *items)
    retriever = Retriever(store, ChosenVectors(QUESTION))
    order = paths(retriever.retrieve("sauvegarde", 10, acl_tags=EVERYTHING))
    assert order.index("z.md") < order.index(f"a{rank}.md")
    vectors_only = paths(retriever.retrieve("sauvegarde", 10, acl_tags=EVERYTHING, mode="vector"))
    assert vectors_only.index("z.md") == rank + 1


def test_long_document_is_ranked_by_its_passages(store: SqliteStore) -> None:
    """HYB-11: both legs rank passages, so that the scores of a passage meet.

    A handbook of 60 passages mentions the word in each of them, and its passages are nearly as
    near to the question as nine short pages that are about it. Were the legs to speak of documents
    on one side and of passages on the other, all of the handbook would be lifted together. Here a
    short page, better than the handbook's passages in both legs, stands before them; the handbook
    gets the slots that are left, not all of them, and is not shut out either.
    """
    long = indexed_document(
        "manuel.md",
        [
            f"chapitre {n} : entre autres sujets, la sauvegarde, et bien d'autres encore"
            for n in range(60)
        ],
        title="t",
    )
    long = replace(long, vectors=np.stack([at_cosine(0.85 - n / 1000) for n in range(60)]))
    short = [placed(f"court{n}.md", "la sauvegarde des postes", 0.86) for n in range(9)]
    write(store, long, *short)
    retriever = Retriever(store, ChosenVectors(QUESTION))
    for mode in MODES:
        hits = retriever.retrieve("sauvegarde", 10, acl_tags=EVERYTHING, mode=mode)
        assert paths(hits) == [*(f"court{n}.md" for n in range(9)), "manuel.md"], mode
    hits = retriever.retrieve("sauvegarde", 69, acl_tags=EVERYTHING)
    assert len(set(found(hits))) == 69
    for hit in hits:
        assert hit.vector_rank is not None
        assert hit.text_rank is not None
        assert hit.score == pytest.approx(
            (hit.vector_score or 0) + 0.35 * _share(hit.text_score, hits), abs=1e-9
        )


def _share(text_score: float | None, hits: Sequence[Hit]) -> float:
    """The share that a text score stands for, from the first hit's own."""
    first = hits[0]
    assert first.text_score is not None
    assert first.vector_score is not None
    return (text_score or 0) * ((first.score - first.vector_score) / 0.35) / first.text_score


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)])
def test_equal_words_are_ordered_by_vector(store: SqliteStore, order: tuple[int, ...]) -> None:
    """HYB-13: three texts with the same word: equal text scores, so the vectors decide.

    By text alone the tie is decided by source, path and position, whatever the order of writing.
    """
    cosines = dict(zip("abc", (0.3, 0.9, 0.6), strict=True))
    items = [placed(f"{name}.md", "mot commun ici", cosine) for name, cosine in cosines.items()]
    write(store, *(items[at] for at in order))
    retriever = Retriever(store, ChosenVectors(QUESTION))
    text = retriever.retrieve("commun", 10, acl_tags=EVERYTHING, mode="text")
    assert paths(text) == ["a.md", "b.md", "c.md"]
    assert len({hit.score for hit in text}) == 1
    hybrid = retriever.retrieve("commun", 10, acl_tags=EVERYTHING)
    assert paths(hybrid) == ["b.md", "c.md", "a.md"]
    assert paths(retriever.retrieve("commun", 1, acl_tags=EVERYTHING)) == ["b.md"]


# -- access control and filters ----------------------------------------------------------------


def test_private_document_that_only_its_meaning_matches_stays_hidden(fill: Fill) -> None:
    """ACL-01: not returned, not counted; every answer is that of an index without it."""
    public = [indexed_document(f"p{n}.md", [f"page publique {n}"]) for n in range(4)]
    private = indexed_document("prive.md", ["salaire du directeur"], tags=["service:rh"])
    with_it, without = fill(*public, private), fill(*public)
    for mode in MODES:
        for k in (1, 4, 5, 100):
            asked = {"acl_tags": ["public"], "mode": mode}
            hits = with_it.retrieve("salaire du directeur", k, **asked)
            assert hits == without.retrieve("salaire du directeur", k, **asked)
            assert "prive.md" not in paths(hits)
            assert len(hits) == (0 if mode == "text" else min(k, 4))
    counts = with_it.stats(acl_tags=["public"])
    assert (counts.documents, counts.chunks, counts.vectors) == (4, 4, 4)
    assert counts.sources == without.stats(acl_tags=["public"]).sources
    assert with_it.document("guides", "prive.md", acl_tags=["public"]) is None
    seen = with_it.retrieve("salaire du directeur", 1, acl_tags=["service:rh"], mode="vector")
    assert paths(seen) == ["prive.md"]


@pytest.mark.parametrize("mode", MODES)
def test_thousand_private_documents_that_are_nearer_cost_no_hit(
    store: SqliteStore, mode: str
) -> None:
    """ACL-03: 1,000 private ones near, 10 allowed ones far, k = 10: the 10 allowed ones."""
    private = [
        placed(f"prive/{n}.md", "la sauvegarde", 0.9 + n / 20_000, tags=["admin_only"])
        for n in range(1000)
    ]
    allowed = [
        placed(f"ouvert/{n}.md", "parmi d'autres mots, la sauvegarde", 0.1 + n / 100)
        for n in range(10)
    ]
    write(store, *private, *allowed)
    retriever = Retriever(store, ChosenVectors(QUESTION))
    hits = retriever.retrieve("sauvegarde", 10, acl_tags=["public"], mode=mode)
    names = [f"ouvert/{n}.md" for n in range(10)]
    assert paths(hits) == (names if mode == "text" else names[::-1])
    ranks = [(hit.vector_rank, hit.text_rank) for hit in hits]
    assert all(rank is None or rank <= 10 for pair in ranks for rank in pair)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "filters",
    [
        {"source": "vise"},
        {"path": "loin"},
        {"path": "**/*.fr.md"},
        {"metadata": {"version": "2"}},
        {"language": "fr"},
        {"modified_after": "2026-06-01"},
        {"source": ["vise", "absent"], "path": "loin/", "language": ["fr", "de"]},
    ],
    ids=["source", "folder", "glob", "metadata", "language", "time", "several"],
)
@pytest.mark.parametrize("tags", [["public"], EVERYTHING], ids=["public", "everything"])
def test_filter_and_k_give_k_passages_when_there_are_so_many(
    store: SqliteStore, mode: str, filters: dict[str, Any], tags: Any
) -> None:
    """ACL-09: 5 matching documents among hundreds that are nearer: k = 5 gives 5."""
    others = [placed(f"pres/{n}.md", "la sauvegarde", 0.9, language="en") for n in range(300)]
    wanted = [
        placed(f"loin/{n}.fr.md", "la sauvegarde", 0.1, source="vise", language="fr")
        for n in range(5)
    ]
    wanted = [
        replace(
            item,
            document=replace(
                item.document, metadata={"version": "2"}, modified_at="2026-07-01T00:00:00Z"
            ),
        )
        for item in wanted
    ]
    write(store, *others, *wanted)
    retriever = Retriever(store, ChosenVectors(QUESTION))
    for k in (1, 4, 5, 50):
        hits = retriever.retrieve("sauvegarde", k, acl_tags=tags, mode=mode, filters=filters)
        assert paths(hits) == [f"loin/{n}.fr.md" for n in range(min(k, 5))]


# -- hostile input -----------------------------------------------------------------------------

HOSTILE = {
    "nothing": "",
    "blanks": " \t\n\u00a0\u2003\u200b",
    "nul": "mot\0secret",
    "nul alone": "\0",
    "lone surrogates": "mot \ud800 \udfff",
    "7,999 letters": "a" * 7_999,
    "7,999 words": "a " * 3_999 + "a",
    "8,000 quotes": '"' * 8_000,
    "combining marks": "e" + "\u0301" * 7_000,
    "AND": "AND",
    "operators": "mot AND NOT secret OR",
    "near": "NEAR(mot secret",
    "quote": '"',
    "half a phrase": '"mot secret',
    "star": "*",
    "prefix": "m*",
    "column": "terms:mot",
    "marked term": "mot~fr1 mot~fr2 secret~und1",
    "parentheses": "(" * 2000,
    "closed parentheses": "(" * 2000 + "mot" + ")" * 2000,
    "sql": "'; DROP TABLE document; --",
    "union": "mot' UNION SELECT content FROM chunk --",
    "placeholders": "? ?1 :mot @mot $mot %s {} %(mot)s",
    "pattern": "%_mot[a-z]{1,}",
    "regular expression": "(a+)+$" * 300,
    "rtl": "\u202emot\u202c",
    "emoji": "🫀" * 500,
}


@pytest.fixture
def guarded(fill: Fill) -> Retriever:
    """Two public passages and two that are not."""
    return fill(
        indexed_document("un.md", ["un mot public"], tags=["public"]),
        indexed_document("deux.md", ["un autre mot"], tags=["public", "service:rh"], language=""),
        indexed_document("secret.md", ["un mot secret"], tags=["admin_only"]),
        indexed_document("ferme.md", ["un mot secret, fermé"], tags=[]),
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("question", HOSTILE.values(), ids=HOSTILE.keys())
def test_any_text_is_a_question(guarded: Retriever, question: str, mode: str) -> None:
    """Passages or none, never an exception, never one that is hidden; the index stays whole."""
    hits = guarded.retrieve(question, 10, acl_tags=["public"], mode=mode)
    assert set(paths(hits)) <= {"un.md", "deux.md"}
    if not question.strip():
        assert hits == []
    elif mode != "text":
        assert len(hits) == 2
    assert guarded.stats(acl_tags=EVERYTHING).documents == 4


@pytest.mark.parametrize("mode", MODES)
def test_question_beyond_the_limit_is_read_to_the_limit(guarded: Retriever, mode: str) -> None:
    """8,000 characters are read, of however many; tags count as ever."""
    for length in (8_000, 8_001, 100_000):
        assert guarded.retrieve("a" * length, 1, acl_tags=["absent"], mode=mode) == []
        hits = guarded.retrieve("a" * length, 1, acl_tags=["public"], mode=mode)
        assert hits == guarded.retrieve("a" * 8_000, 1, acl_tags=["public"], mode=mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("k", "count"),
    [(-(2**63), 0), (-1, 0), (0, 0), (1, 1), (4097, 2), (10**9, 2), (2**63, 2), (2**64, 2)],
)
def test_any_number_is_a_k(guarded: Retriever, k: int, count: int, mode: str) -> None:
    """Nothing for k <= 0, all that is visible for a k beyond it, in every mode."""
    for filters in (None, {"path": "**"}):
        hits = guarded.retrieve("mot", k, acl_tags=["public"], mode=mode, filters=filters)
        assert len(hits) == count
        assert set(paths(hits)) <= {"un.md", "deux.md"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "tags",
    [
        [], [""], ["%"], ["_dmin_only"], ["*"], ["admin"], ["admin_onl"], ["ADMIN_ONLY"],
        ["admin_only "], ["admin_only\0"], ['"admin_only"'], ["admin_only%"], ["' OR '1'='1"],
        ["'; DROP TABLE acl_set; --"], ['["admin_only"]'], ["[]"], ["1"], ["NULL"], ["\udc80"],
        ["admin_onl\u200by"], [f"tag:{n}" for n in range(10_000)],
    ],
    ids=lambda tags: repr(tags)[:24],
)  # fmt: skip
def test_tags_that_only_resemble_see_nothing(
    guarded: Retriever, tags: list[str], mode: str
) -> None:
    """Whole and to the byte; in every mode, and for documents and counts."""
    assert guarded.retrieve("mot secret", 10, acl_tags=tags, mode=mode) == []
    for path in ("un.md", "secret.md", "ferme.md"):
        assert guarded.document("guides", path, acl_tags=tags) is None
    counts = guarded.stats(acl_tags=tags)
    assert (counts.documents, counts.chunks, counts.vectors) == (0, 0, 0)
    assert (dict(counts.sources), counts.size_bytes, counts.last_indexed_at) == ({}, 0, None)


def test_tag_spelled_like_an_impossible_one_is_not_that_one(fill: Fill) -> None:
    """A lone surrogate cannot be stored; how it would be spelled out is another tag."""
    retriever = fill(indexed_document("a.md", ["un mot"], tags=["\\udc80"]))
    assert retriever.retrieve("mot", 5, acl_tags=["\udc80"]) == []
    assert len(retriever.retrieve("mot", 5, acl_tags=["\\udc80"])) == 1


def test_hidden_spelling_of_a_path_hides_no_visible_one(fill: Fill) -> None:
    """Of two spellings of one path, equal under NFC, the visible one is found as if alone."""
    composed, decomposed = "caf\u00e9.md", "cafe\u0301.md"
    hidden = indexed_document(composed, ["caché"], tags=["admin_only"])
    visible = indexed_document(decomposed, ["ouvert"], tags=["public"])
    for retriever in (fill(hidden, visible), fill(visible)):
        for asked in (composed, decomposed):
            explained = retriever.document("guides", asked, acl_tags=["public"])
            assert explained is not None
            assert explained.path == decomposed


@pytest.mark.parametrize("mode", MODES)
def test_ten_thousand_tags_are_as_good_as_one(guarded: Retriever, mode: str) -> None:
    """The one that counts is found among them."""
    tags = [*(f"tag:{n}" for n in range(10_000)), "admin_only"]
    hits = guarded.retrieve("mot secret", 10, acl_tags=tags, mode=mode)
    assert paths(hits) == ["secret.md"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "filters",
    [
        {"source": "guides' OR 1=1 --"},
        {"source": ["%", "*", "GUIDES"]},
        {"source": []},
        {"path": "%"},
        {"path": "**/*.txt"},
        {"path": "UN.md"},
        {"metadata": {"auteur": "zoé"}},
        {"metadata": {"$.auteur": "Zoé"}},
        {"metadata": {"auteur": "%"}},
        {"metadata": {"auteur' OR 1=1 --": "\0"}},
        {"metadata": {"\ud800": "\udfff"}},
        {"language": "xx"},
        {"modified_after": "9999-12-31"},
        {"modified_before": "0001-01-01"},
    ],
    ids=lambda given: repr(given)[:40],
)
def test_filters_that_only_resemble_let_nothing_through(
    guarded: Retriever, filters: dict[str, Any], mode: str
) -> None:
    """Values are compared whole; nothing of them is read as a pattern or as SQL."""
    assert guarded.retrieve("mot", 10, acl_tags=["public"], mode=mode, filters=filters) == []


@pytest.mark.parametrize(
    "filters",
    [
        {"acl": ["admin_only"]},
        {"acl_tags": "admin_only"},
        {"Source": "guides"},
        {"path": "/etc/passwd"},
        {"path": "../secret.md"},
        {"path": "[a"},
        {"path": ""},
        {"language": "fr' OR 1=1"},
        {"modified_after": "demain"},
        {"modified_after": 10**40},
        {"metadata": ["auteur"]},
        {"source": [1]},
        ["source"],
        "source",
    ],
    ids=lambda given: repr(given)[:40],
)
def test_filters_that_mean_nothing_are_refused(guarded: Retriever, filters: Any) -> None:
    """InvalidQuery in every mode; there is no filter that could widen what is seen."""
    for mode in MODES:
        with pytest.raises(InvalidQuery):
            guarded.retrieve("mot", 10, acl_tags=["public"], mode=mode, filters=filters)

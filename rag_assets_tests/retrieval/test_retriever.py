"""The retriever: what it asks of index and embedder, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rag_assets.acl import EVERYTHING
from rag_assets.errors import (
    ConfigurationError,
    DimensionMismatch,
    FingerprintMismatch,
    IndexMissing,
    InvalidQuery,
    RagError,
    Unavailable,
)
from rag_assets.index.generations import IndexDirectory
from rag_assets.index.live import LiveStore
from rag_assets.index.sqlite import SqliteStore
from rag_assets.models import IndexFingerprint
from rag_assets.retrieval import Retriever
from rag_assets.retrieval.retriever import MODES
from rag_assets.testing.documents import indexed_document, write
from rag_assets.testing.embedders import StubEmbedder

REPOSITORY = Path(__file__).parents[2]
TEXTS = ["les congés payés", "le badge d'accès", "le réseau sans fil"]


def fill(directory: IndexDirectory, embedder: StubEmbedder, build_id: str | None = None) -> None:
    """Index three passages with ``embedder``, and make them live."""
    store = directory.writable_store(build_id)
    store.initialize(IndexFingerprint(embedder.fingerprint, embedder.dim, "c"))
    for number, text in enumerate(TEXTS):
        item = indexed_document(f"{number}.md", [text], dim=embedder.dim)
        vectors = embedder.embed("passage", [text])
        write(store, type(item)(item.document, item.chunks, vectors))
    store.promote()
    store.close()


@pytest.fixture
def directory(tmp_path: Path) -> IndexDirectory:
    """A live index of three passages, embedded by the stub."""
    directory = IndexDirectory(tmp_path / "index")
    fill(directory, StubEmbedder())
    return directory


@pytest.fixture
def embedder() -> StubEmbedder:
    """The embedder that built the index, with its counters at zero."""
    return StubEmbedder()


@pytest.fixture
def retriever(directory: IndexDirectory, embedder: StubEmbedder) -> Retriever:
    """A retriever over the live index."""
    return Retriever(LiveStore(directory), embedder)


def test_nearest_passage_comes_first(retriever: Retriever) -> None:
    """With its provenance and its score."""
    hits = retriever.retrieve("badge d'accès", acl_tags=["public"])
    assert [hit.rank for hit in hits] == [1, 2, 3]
    assert hits[0].content == "le badge d'accès"
    assert hits[0].citation == "guides/1.md#début:1-2"
    assert hits[0].url == "https://wiki.example/1.md#d%C3%A9but"
    assert 1 >= hits[0].score > hits[1].score


@pytest.mark.parametrize("query", ["", " ", "\n\t", "\u00a0\u2003"])
def test_blank_question_calls_nobody(query: str) -> None:
    """Neither index nor embedder is touched."""
    embedder = StubEmbedder()
    retriever = Retriever(_must_not_be_called, embedder)
    assert retriever.retrieve(query, acl_tags=EVERYTHING) == []
    assert embedder.calls == 0


@pytest.mark.parametrize("k", [0, -1, -(2**63)])
def test_no_hits_wanted_calls_nobody(k: int) -> None:
    """k <= 0 is an empty answer."""
    embedder = StubEmbedder()
    assert Retriever(_must_not_be_called, embedder).retrieve("x", k, acl_tags=EVERYTHING) == []
    assert embedder.calls == 0


def test_no_tags_or_no_sources_call_nobody() -> None:
    """Who may see nothing costs nothing."""
    embedder = StubEmbedder()
    retriever = Retriever(_must_not_be_called, embedder)
    assert retriever.retrieve("x", acl_tags=[]) == []
    assert retriever.retrieve("x", acl_tags=EVERYTHING, filters={"source": []}) == []
    assert embedder.calls == 0


def _must_not_be_called() -> LiveStore:
    raise AssertionError


def test_k_defaults_to_the_setting(directory: IndexDirectory, embedder: StubEmbedder) -> None:
    """``default_k`` when none is given."""
    retriever = Retriever(LiveStore(directory), embedder, default_k=2)
    assert len(retriever.retrieve("x", acl_tags=EVERYTHING)) == 2
    assert len(retriever.retrieve("x", 3, acl_tags=EVERYTHING)) == 3
    with pytest.raises(ConfigurationError, match="default_k"):
        Retriever(LiveStore(directory), embedder, default_k=0)


@pytest.mark.parametrize("mode", ["bm25", "", "VECTOR"])
def test_unknown_mode_names_those_that_are_known(retriever: Retriever, mode: str) -> None:
    """Even for a question that would find nothing."""
    with pytest.raises(InvalidQuery, match="hybrid, vector, text"):
        retriever.retrieve("", acl_tags=EVERYTHING, mode=mode)


def test_one_str_is_refused_as_tags_or_questions(retriever: Retriever) -> None:
    """It would be read letter by letter."""
    with pytest.raises(TypeError):
        retriever.retrieve("x", acl_tags="public")
    with pytest.raises(TypeError):
        retriever.retrieve_many("x", acl_tags=EVERYTHING)
    for tags in (None, ["public", 3]):
        with pytest.raises(TypeError, match="acl_tags"):
            retriever.retrieve("x", acl_tags=tags)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="question"):
        retriever.retrieve(None, acl_tags=EVERYTHING)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", MODES)
def test_filters_limit_the_answer(retriever: Retriever, mode: str) -> None:
    """Unknown sources find nothing; an unknown filter is named."""

    def count(**filters: object) -> int:
        return len(retriever.retrieve(" ".join(TEXTS), acl_tags=EVERYTHING, mode=mode,
                                      filters=filters))  # fmt: skip

    assert count(source=["guides"]) == count(source="guides") == 3
    assert count(source=["wiki"]) == 0
    assert count(path="*.md", modified_after="2026-03-01", modified_before="2026-03-02") == 3
    assert count(metadata={"auteur": "Zoé"}, language="fr-FR") == 3
    assert count(metadata={"auteur": "zoé"}) == count(language="en") == 0
    with pytest.raises(InvalidQuery, match="'couleur'"):
        count(couleur="bleu")


@pytest.mark.parametrize("mode", MODES)
def test_the_score_says_what_it_is(retriever: Retriever, mode: str) -> None:
    """Each mode ranks by its own score and fills the scores it knows."""
    hit = retriever.retrieve(TEXTS[0], 1, acl_tags=["public"], mode=mode)[0]
    assert hit.content == TEXTS[0]
    assert hit.score_kind == mode
    known = {"vector": hit.vector_score, "text": hit.text_score}
    for leg, score in known.items():
        assert (score is not None) == (mode in ("hybrid", leg))
    assert hit.score == known.get(mode, hit.score)
    assert (hit.vector_rank, hit.text_rank) == (
        1 if mode != "text" else None,
        1 if mode != "vector" else None,
    )


def test_text_mode_needs_no_embedder(directory: IndexDirectory) -> None:
    """Words are searched while the model is down."""

    def fail(texts: object) -> None:
        raise Unavailable("the embedder does not answer")

    retriever = Retriever(LiveStore(directory), StubEmbedder(before=fail))
    hits = retriever.retrieve(TEXTS[1], acl_tags=["public"], mode="text")
    assert hits[0].content == TEXTS[1]


@pytest.mark.parametrize("mode", MODES)
def test_many_questions_are_answered_as_one_by_one(directory: IndexDirectory, mode: str) -> None:
    """In one call to the embedder; blank ones are empty, repeated ones the same."""
    embedder = StubEmbedder()
    retriever = Retriever(LiveStore(directory), embedder)
    questions = [TEXTS[2], "", TEXTS[0], " \t", TEXTS[2], "introuvable"]
    many = retriever.retrieve_many(questions, 2, acl_tags=["public"], mode=mode)
    assert embedder.calls == (mode != "text")
    one_by_one = [retriever.retrieve(q, 2, acl_tags=["public"], mode=mode) for q in questions]
    assert many == one_by_one
    assert retriever.retrieve_many([], acl_tags=EVERYTHING) == []


def test_neighbours_stand_around_the_hit(tmp_path: Path, embedder: StubEmbedder) -> None:
    """In reading order, under the caller's tags, and none once the document has changed."""
    store = SqliteStore(tmp_path / "index.sqlite")
    store.initialize(IndexFingerprint(embedder.fingerprint, 32, "c"))
    texts = [f"partie {n}" for n in range(5)]
    write(store, indexed_document("a.md", texts, tags=("public", "x"), dim=32))
    retriever = Retriever(store, embedder)
    hit = retriever.retrieve("partie 2", 1, acl_tags=["x"], mode="text")[0]
    assert hit.position == 2

    def around(**wanted: int) -> list[int]:
        hits = retriever.neighbours(hit, acl_tags=["x"], **wanted)
        assert [one.rank for one in hits] == list(range(1, len(hits) + 1))
        assert {one.score_kind for one in hits} <= {"neighbour"}
        return [one.position for one in hits]

    assert around() == [1, 3]
    assert around(before=9, after=9) == [0, 1, 3, 4]
    assert around(before=0, after=-1) == []
    merged = retriever.retrieve("partie 1 2 3", 5, acl_tags=["x"], mode="text", merge=True)[0]
    assert (merged.position, merged.start_line, merged.end_line) == (0, 1, 10)
    assert retriever.neighbours(merged, acl_tags=["x"]) == []
    assert retriever.neighbours(hit, acl_tags=["y"]) == retriever.neighbours(hit, acl_tags=[]) == []
    write(store, indexed_document("a.md", ["autre", *texts], tags=("x",), dim=32))
    assert around() == []


def test_async_twins_give_the_same_and_do_not_block(retriever: Retriever) -> None:
    """They run in worker threads: the loop goes on while a question is being answered."""
    import anyio

    async def ask() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await anyio.sleep(0)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tick)
            hits = await retriever.aretrieve(TEXTS[0], 2, acl_tags=["public"])
            many = await retriever.aretrieve_many([TEXTS[0]], 2, acl_tags=["public"])
            around = await retriever.aneighbours(hits[0], acl_tags=["public"])
            found = await retriever.adocument("guides", hits[0].path, acl_tags=["public"])
            tasks.cancel_scope.cancel()
        assert many == [hits] == [retriever.retrieve(TEXTS[0], 2, acl_tags=["public"])]
        assert around == retriever.neighbours(hits[0], acl_tags=["public"])
        assert found == retriever.document("guides", hits[0].path, acl_tags=["public"])
        assert ticks > 4

    anyio.run(ask)


def test_documents_and_counts_are_those_of_the_caller(
    tmp_path: Path, embedder: StubEmbedder
) -> None:
    """A hidden document looks like one that is not there, and is not counted."""
    store = SqliteStore(tmp_path / "index.sqlite")
    store.initialize(IndexFingerprint(embedder.fingerprint, 32, "c"))
    write(
        store,
        indexed_document("a.md", ["un", "deux"], dim=32),
        indexed_document("b.md", ["trois"], tags=("service:rh",), source="rh", dim=32),
    )
    retriever = Retriever(store, embedder)
    assert retriever.document("rh", "b.md", acl_tags=["public"]) is None
    assert retriever.document("rh", "b.md", acl_tags=[]) is None
    seen = retriever.document("rh", "b.md", acl_tags=["service:rh"])
    assert seen is not None
    assert [chunk.content for chunk in seen.chunks] == ["trois"]
    stats = retriever.stats(acl_tags=["public"])
    assert (stats.documents, stats.chunks, stats.vectors, stats.size_bytes) == (1, 2, 2, 0)
    assert set(stats.sources) == {"guides"}
    assert retriever.stats(acl_tags=EVERYTHING).chunks == 3
    assert retriever.stats(acl_tags=EVERYTHING).without_tags == 0
    assert retriever.stats(acl_tags=[]).documents == 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("query", ['"', "NEAR(", "l'été", "C++", "50%", "a\0b", "\ud800", "*"])
def test_any_text_is_a_question(retriever: Retriever, query: str, mode: str) -> None:
    """No character of a question means anything to the index."""
    found = len(retriever.retrieve(query, acl_tags=EVERYTHING, mode=mode))
    assert found == (0 if mode == "text" else 3)


@pytest.mark.parametrize("mode", MODES)
def test_only_the_beginning_of_a_book_is_read(directory: IndexDirectory, mode: str) -> None:
    """Any text is a question: reading all of a pasted one would take minutes."""
    read: list[int] = []
    embedder = StubEmbedder(before=lambda texts: read.extend(map(len, texts)))
    retriever = Retriever(LiveStore(directory), embedder)
    question = f"{TEXTS[0]} {'x' * 10**6}"
    hits = retriever.retrieve(question, acl_tags=EVERYTHING, mode=mode)
    assert hits == retriever.retrieve(question[:8000], acl_tags=EVERYTHING, mode=mode)
    assert len(hits) == 3
    assert set(read) == (set() if mode == "text" else {8000})


def test_missing_index_is_named_and_found_later(tmp_path: Path, embedder: StubEmbedder) -> None:
    """Before the first run: the command to run; afterwards the same retriever answers."""
    directory = IndexDirectory(tmp_path / "index")

    def open_store() -> LiveStore:
        store = directory.live_store()
        if store is None:
            raise IndexMissing("no index yet; run `rag-assets ingest`")
        return store

    retriever = Retriever(open_store, embedder)
    with pytest.raises(IndexMissing, match="rag-assets ingest"):
        retriever.retrieve("x", acl_tags=EVERYTHING)
    directory.writable_store()
    with pytest.raises(IndexMissing, match="rag-assets ingest"):
        retriever.retrieve("x", acl_tags=EVERYTHING)
    fill(directory, embedder)
    assert len(retriever.retrieve("x", acl_tags=EVERYTHING)) == 3


def test_other_model_is_refused_with_both_names(directory: IndexDirectory) -> None:
    """Same dimension, other model: no answer at all."""
    retriever = Retriever(LiveStore(directory), StubEmbedder(model="autre"))
    with pytest.raises(FingerprintMismatch, match=r"stub:stub.*stub:autre.*--full"):
        retriever.retrieve("x", acl_tags=EVERYTHING)


def test_other_dimension_is_refused_with_both_numbers(directory: IndexDirectory) -> None:
    """Other dimension: both are named before the question is embedded."""
    embedder = StubEmbedder(dim=48)
    with pytest.raises(DimensionMismatch, match=r"32.*48.*--full"):
        Retriever(LiveStore(directory), embedder).retrieve("x", acl_tags=EVERYTHING)
    assert embedder.calls == 0


def test_errors_of_the_embedder_come_through(directory: IndexDirectory) -> None:
    """They are of the package's own tree already."""

    def fail(texts: object) -> None:
        raise Unavailable("the embedder does not answer")

    retriever = Retriever(LiveStore(directory), StubEmbedder(before=fail))
    with pytest.raises(Unavailable):
        retriever.retrieve("x", acl_tags=EVERYTHING)


def test_replacement_during_a_question_is_noticed(directory: IndexDirectory) -> None:
    """The index is rebuilt by another model while the question is being embedded: refused."""
    rebuilt = threading.Event()

    def rebuild(texts: object) -> None:
        if not rebuilt.is_set():
            rebuilt.set()
            fill(directory, StubEmbedder(model="autre"), "b1")

    retriever = Retriever(LiveStore(directory), StubEmbedder(before=rebuild))
    with pytest.raises(FingerprintMismatch):
        retriever.retrieve("x", acl_tags=EVERYTHING)


def test_replacement_by_the_same_model_is_followed(directory: IndexDirectory) -> None:
    """A rebuild by the same model during a question: the answer is of the new index."""
    rebuilt = threading.Event()

    def rebuild(texts: object) -> None:
        if not rebuilt.is_set():
            rebuilt.set()
            fill(directory, StubEmbedder(), "b1")
            directory.prune()

    retriever = Retriever(LiveStore(directory), StubEmbedder(before=rebuild))
    assert len(retriever.retrieve("x", acl_tags=EVERYTHING)) == 3


def test_many_threads_share_a_retriever(retriever: Retriever) -> None:
    """Every thread gets its own answer."""
    failures: list[object] = []

    def ask(number: int) -> None:
        for _ in range(20):
            hits = retriever.retrieve(TEXTS[number % 3], 1, acl_tags=["public"])
            if hits[0].content != TEXTS[number % 3]:
                failures.append(hits)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_closed_retriever_says_so(retriever: Retriever) -> None:
    """Using it after ``close`` is an error of this package."""
    retriever.close()
    with pytest.raises(RagError, match="closed"):
        retriever.retrieve("x", acl_tags=EVERYTHING)


SEARCH = """
import sys
import rag_assets.retrieval
{more}
heavy = {{"dagster", "pyarrow", "pydantic", "onnxruntime", "onnx", "httpx", "sqlite3"}}
print(sorted(heavy & set(sys.modules)))
"""
ASK = """
from rag_assets.retrieval import Retriever
from rag_assets.index.generations import IndexDirectory
from rag_assets.testing.embedders import StubEmbedder
retriever = Retriever(IndexDirectory(sys.argv[1]).live_store, StubEmbedder())
assert len(retriever.retrieve("x", acl_tags=["public"])) == 3
"""


@pytest.mark.parametrize("more", ["", ASK], ids=["import", "search"])
def test_searching_imports_nothing_heavy(directory: IndexDirectory, more: str) -> None:
    """A program that only searches loads neither Dagster nor what only the pipeline needs."""
    result = subprocess.run(
        [sys.executable, "-c", SEARCH.format(more=more), str(directory.directory)],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=True,
    )
    assert result.stdout == "[]\n"


def test_looking_for_damage_imports_only_the_driver(directory: IndexDirectory) -> None:
    """The look for changes counts rows without numpy."""
    program = (
        "import sys; from pathlib import Path; from rag_assets.index.health import quick_problems\n"
        "from rag_assets.index.generations import IndexDirectory\n"
        "assert quick_problems(IndexDirectory(sys.argv[1]).current()) == []\n"
        "assert IndexDirectory(sys.argv[1]).live_store().quick_check() == []\n"
        "print('numpy' in sys.modules, 'apsw' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, str(directory.directory)],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=True,
    )
    assert result.stdout == "False True\n"

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
    RagError,
    Unavailable,
)
from rag_assets.index.generations import IndexDirectory
from rag_assets.index.live import LiveStore
from rag_assets.models import IndexFingerprint
from rag_assets.retrieval import Retriever
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
    assert retriever.retrieve("x", acl_tags=EVERYTHING, sources=[]) == []
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


@pytest.mark.parametrize("mode", ["hybrid", "text", "", "VECTOR"])
def test_unknown_mode_names_those_that_are_known(retriever: Retriever, mode: str) -> None:
    """Even for a question that would find nothing."""
    with pytest.raises(ConfigurationError, match="vector"):
        retriever.retrieve("", acl_tags=EVERYTHING, mode=mode)


def test_one_str_is_refused_as_tags_or_sources(retriever: Retriever) -> None:
    """It would be read letter by letter."""
    with pytest.raises(TypeError):
        retriever.retrieve("x", acl_tags="public")
    with pytest.raises(TypeError):
        retriever.retrieve("x", acl_tags=EVERYTHING, sources="guides")


def test_sources_limit_the_answer(retriever: Retriever) -> None:
    """Unknown sources find nothing."""
    assert len(retriever.retrieve("x", acl_tags=EVERYTHING, sources=["guides"])) == 3
    assert retriever.retrieve("x", acl_tags=EVERYTHING, sources=["wiki"]) == []


@pytest.mark.parametrize(
    "query", ['"', "NEAR(", "l'été", "C++", "50%", "a\0b", "\ud800", "x" * 10**6]
)
def test_any_text_is_a_question(retriever: Retriever, query: str) -> None:
    """No character of a question means anything to the index."""
    assert len(retriever.retrieve(query, acl_tags=EVERYTHING)) == 3


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

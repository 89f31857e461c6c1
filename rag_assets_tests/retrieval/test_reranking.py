"""Reranking: the order a server gives, checked; nothing stands in for one that fails."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_assets.components import build_reranker
from rag_assets.config import load_config
from rag_assets.errors import ConfigurationError, InvalidInput, MalformedResponse, Unavailable
from rag_assets.models import embedding_text
from rag_assets.retrieval.hits import hit_json
from rag_assets.retrieval.reranking import HttpReranker, rerank_hits
from rag_assets_tests.project import Project
from rag_assets_tests.retrieval.hits import hit, ranked
from rag_assets_tests.retrieval.rerank_server import (
    Behaviour,
    RerankServer,
    error,
    raw,
    relevance,
    well,
)

TEXTS = ["le badge est perdu", "renouveler le badge", "rien à voir"]


def reranker(server: RerankServer, **settings: Any) -> HttpReranker:
    """A client of ``server`` that does not wait long."""
    quick = {"backoff_seconds": 0.01, "retries": 1, "retry_after_cap_seconds": 0.05}
    return HttpReranker(server.url, **{**quick, **settings})


class FixedReranker:
    """Gives what it was told to give."""

    def __init__(self, scores: Any = None) -> None:
        self.scores = scores
        self.calls: list[tuple[str, list[str]]] = []

    def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        self.calls.append((query, list(texts)))
        scores: list[float] = self.scores
        return scores

    def close(self) -> None:
        """Nothing is held."""


def test_scores_come_back_in_the_order_of_the_texts() -> None:
    """The server answers best first; each score belongs to its index."""
    with RerankServer() as server:
        scores = reranker(server).rerank("renouveler badge", TEXTS)
    assert scores == [relevance("renouveler badge", text) for text in TEXTS] == [0.5, 1.0, 0.0]
    asked = {"query": "renouveler badge", "texts": TEXTS, "raw_scores": False, "truncate": True}
    assert server.requests == [asked]


def test_the_model_is_named_only_when_configured() -> None:
    """Servers of several models are told which one."""
    with RerankServer() as server:
        reranker(server, model="BAAI/bge-reranker-v2-m3").rerank("q", ["t"])
    assert server.requests[0]["model"] == "BAAI/bge-reranker-v2-m3"


def test_many_texts_go_in_batches() -> None:
    """No request is larger than the batch size; no text is lost or mixed up."""
    texts = [f"texte {n}" for n in range(70)]
    with RerankServer() as server:
        scores = reranker(server).rerank("texte 7", texts)
    assert [len(request["texts"]) for request in server.requests] == [32, 32, 6]
    assert scores == [relevance("texte 7", text) for text in texts]


def test_a_batch_too_large_for_the_server_is_halved_and_the_size_kept() -> None:
    """413 is no failure; the next call begins with what went through."""
    texts = [f"texte {n}" for n in range(32)]
    with RerankServer(most_texts=10) as server:
        client = reranker(server)
        assert client.rerank("texte 7", texts) == [relevance("texte 7", text) for text in texts]
        assert client.batch_size == 8
        before = len(server.requests)
        client.rerank("texte 9", texts)
    assert [len(request["texts"]) for request in server.requests[before:]] == [8, 8, 8, 8]


def test_one_text_too_large_is_invalid_input() -> None:
    """413 for a single text will not go away; the message has its length, not its words."""
    with (
        RerankServer(lambda asked: error(413, f"too long: {asked['texts'][0]}")) as server,
        pytest.raises(InvalidInput, match=r"one passage of 23 characters as too large") as caught,
    ):
        reranker(server).rerank("q", ["un secret de la maison!"])
    assert "secret de la maison" not in str(caught.value)


def test_no_texts_ask_nobody() -> None:
    """No server is needed for nothing."""
    assert HttpReranker("http://127.0.0.1:9").rerank("q", []) == []


@pytest.mark.parametrize(
    ("status", "exception", "said", "requests"),
    [
        (400, Unavailable, "answered 400", 1),
        (401, Unavailable, "credentials are missing or wrong", 1),
        (404, Unavailable, "without /rerank", 1),
        (422, InvalidInput, "refuses the input", 1),
        (424, Unavailable, "is no reranker", 1),
        (429, Unavailable, "still refuses after waiting", 2),
        (500, Unavailable, "answered 500", 2),
        (503, Unavailable, "too much to do", 2),
        (302, Unavailable, "answered 302", 1),
    ],
)
def test_each_refusal_is_an_error_of_its_kind(
    status: int, exception: type[Exception], said: str, requests: int
) -> None:
    """Only what may pass is tried again; the server's own words are in the message."""
    with (
        RerankServer(lambda _: error(status, "the server's words", Retry_After="0")) as server,
        pytest.raises(exception, match=said) as caught,
    ):
        reranker(server).rerank("q", TEXTS)
    assert len(server.requests) == requests
    assert status == 302 or "the server's words" in str(caught.value)


def test_an_overloaded_server_is_asked_again() -> None:
    """One 429 and one 503 are survived."""
    busy: list[Behaviour] = [lambda _: error(429), lambda _: error(503), well()]
    with RerankServer(*busy) as server:
        assert len(reranker(server, retries=3).rerank("q", TEXTS)) == 3


def without_last(value: list[Any]) -> list[Any]:
    """One rank too few."""
    return value[:-1]


def scored(score: str) -> Behaviour:
    """Three ranks, the last with this score as JSON."""
    first = '{"index": 0, "score": 0.5}, {"index": 1, "score": 0.4}'
    return lambda _: raw(f'[{first}, {{"index": 2, "score": {score}}}]')


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (well(without_last), "2 scores for 3 texts"),
        (well(lambda value: [*value, value[0]]), "4 scores for 3 texts"),
        (well(lambda value: [value[0], value[1], value[1]]), "came twice"),
        (well(lambda value: [*value[:2], {"index": 3, "score": 1.0}]), "no index from 0 to 2"),
        (well(lambda value: [*value[:2], {"index": -1, "score": 1.0}]), "no index"),
        (well(lambda value: [*value[:2], {"index": True, "score": 1.0}]), "no index"),
        (well(lambda value: [*value[:2], {"index": "2", "score": 1.0}]), "no index"),
        (well(lambda value: [*value[:2], {"index": 2.0, "score": 1.0}]), "no index"),
        (well(lambda value: [*value[:2], {"score": 1.0}]), "no index"),
        (well(lambda value: [*value[:2], 1.0]), "no index"),
        (well(lambda value: {"results": value}), "a JSON dict"),
        (well(lambda _: "ok"), "a JSON str"),
        (well(lambda _: None), "a JSON NoneType"),
        (well(lambda _: []), "0 scores for 3 texts"),
        (scored('"0.9"'), "is a str, no number"),
        (scored("null"), "is a NoneType, no number"),
        (scored("true"), "is a bool, no number"),
        (scored("[0.5]"), "is a list, no number"),
        (scored("NaN"), "not JSON"),
        (scored("-Infinity"), "not JSON"),
        (scored("1e999"), "is not finite"),
        (scored("1" + "0" * 400), "is not finite"),
        (scored("1" + "0" * 5000), "not JSON|more than"),
        (lambda _: raw(""), "not JSON"),
        (lambda _: raw("<html>Sign in</html>"), "not JSON"),
        (lambda _: raw(b"\xff\xfe"), "not JSON"),
        (lambda _: raw("[" * 100_000), "not JSON|more than"),
        (lambda _: raw(b" " * 200_000 + b"[]"), "more than"),
    ],
)
def test_an_answer_that_is_not_one_score_a_text_is_malformed(
    behaviour: Behaviour, said: str
) -> None:
    """Never guessed, never filled up, never replaced by the old order."""
    with RerankServer(behaviour) as server, pytest.raises(MalformedResponse, match=said):
        reranker(server).rerank("q", TEXTS)


def test_nobody_there_is_unavailable() -> None:
    """The address is in the message."""
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9"):
        HttpReranker("http://127.0.0.1:9", retries=0).rerank("q", ["t"])


def test_a_server_too_slow_is_unavailable() -> None:
    """The deadline holds, and the message says which setting to change."""

    def slow(asked: dict[str, Any]) -> Any:
        time.sleep(2)
        return well()(asked)

    began = time.monotonic()
    with RerankServer(slow) as server, pytest.raises(Unavailable, match="candidates or raise"):
        reranker(server, timeout_seconds=0.2, retries=0).rerank("q", ["t"])
    assert time.monotonic() - began < 10


@given(st.text(max_size=50), st.lists(st.text(max_size=50), min_size=1, max_size=5))
def test_any_text_can_be_sent(query: str, texts: list[str]) -> None:
    """Lone surrogates, NUL and quotes arrive as JSON that the server can read."""
    with RerankServer(lambda asked: raw(json.dumps(_zeros(asked)))) as server:
        assert reranker(server).rerank(query, texts) == [0.0] * len(texts)


def _zeros(asked: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"index": index, "score": 0} for index in range(len(asked["texts"]))]


def test_hits_are_ordered_by_the_reranker() -> None:
    """Best first, ranked from 1, at most k; other scores stay; equal scores keep their order."""
    hits = ranked("un", "deux", "trois", "quatre")
    found = rerank_hits("q", hits, FixedReranker([0.1, -2.0, 0.7, 0.1]), 3)
    assert [h.content for h in found] == ["trois", "un", "quatre"]
    assert [(h.rank, h.score, h.score_kind) for h in found] == [
        (1, 0.7, "rerank"),
        (2, 0.1, "rerank"),
        (3, 0.1, "rerank"),
    ]
    assert {h.vector_score for h in found} == {0.9}


def test_the_reranker_reads_what_the_embedder_read() -> None:
    """Title and headings stand above the passage."""
    fixed = FixedReranker([1.0])
    rerank_hits("Où est mon badge ?", [hit("texte")], fixed, 5)
    assert fixed.calls == [("Où est mon badge ?", [embedding_text("Titre", ("Section",), "texte")])]


def test_nothing_to_rerank_asks_nobody() -> None:
    """No hits, or none wanted: no call."""
    fixed = FixedReranker()
    assert rerank_hits("q", [], fixed, 5) == []
    assert rerank_hits("q", ranked("a"), fixed, 0) == []
    assert rerank_hits("q", ranked("a"), fixed, -1) == []
    assert fixed.calls == []


@pytest.mark.parametrize(
    "scores", [[0.5], [0.5, 0.4, 0.3], [0.5, float("nan")], [0.5, "1"], [0.5, True], [0.5, None]]
)
def test_a_reranker_of_ones_own_is_checked_too(scores: Any) -> None:
    """A class that breaks the contract is an error, not another order."""
    with pytest.raises(MalformedResponse):
        rerank_hits("q", ranked("a", "b"), FixedReranker(scores), 2)


def test_scores_of_numpy_are_numbers() -> None:
    """A model that returns float32 needs no conversion; hits carry plain floats."""
    scores = list(np.array([0.25, 0.5], np.float32))
    found = rerank_hits("q", ranked("a", "b"), FixedReranker(scores), 2)
    assert [(type(h.score), h.score) for h in found] == [(float, 0.5), (float, 0.25)]


def test_hyb_15_a_hit_says_which_score_it_has() -> None:
    """In its repr and its JSON: a threshold for one kind is never taken for another (HYB-15)."""
    one = hit("texte", score=0.016, score_kind="hybrid", text_score=3.5)
    [again] = rerank_hits("q", [one], FixedReranker([0.99]), 1)
    assert "score_kind='hybrid'" in repr(one)
    assert "score_kind='rerank'" in repr(again)
    for found, kind, score in ((one, "hybrid", 0.016), (again, "rerank", 0.99)):
        row = json.loads(json.dumps(hit_json(found)))
        assert (row["score_kind"], row["score"]) == (kind, score)
        assert (row["vector_score"], row["text_score"]) == (0.9, 3.5)


# ---------------------------------------------------------------- configuration


def test_no_reranker_unless_configured(tmp_path: Path) -> None:
    """Off by default."""
    assert build_reranker(Project(tmp_path).config) is None


def test_the_configured_server_is_asked(tmp_path: Path) -> None:
    """Address, model and batch size come from the file."""
    with RerankServer() as server:
        settings = {"url": server.url, "model": "m", "batch_size": 2, "timeout_seconds": 3}
        config = Project(tmp_path, retrieval={"reranker": settings}).config
        assert config.retrieval.reranker is not None
        assert config.retrieval.reranker.candidates == 50
        built = build_reranker(config)
        assert built is not None
        assert built.rerank("badge", ["badge", "b", "c"]) == [1.0, 0.0, 0.0]
        built.close()
    assert [(r["model"], len(r["texts"])) for r in server.requests] == [("m", 2), ("m", 1)]


def test_a_class_of_ones_own_is_built_with_its_options(tmp_path: Path) -> None:
    """``package.module:Class``, as for every other part."""
    settings = {"backend": f"{__name__}:FixedReranker", "options": {"scores": [1.0]}}
    built = build_reranker(Project(tmp_path, retrieval={"reranker": settings}).config)
    assert isinstance(built, FixedReranker)
    assert built.scores == (1.0,)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "retrieval.reranker: url is missing"),
        ({"url": "ftp://host"}, "retrieval.reranker: url is missing"),
        ({"url": "http://h", "candidates": 0}, "retrieval.reranker.candidates"),
        ({"url": "http://h", "modle": "m"}, "retrieval.reranker.modle: unknown key"),
        ({"backend": "tei", "url": "http://h"}, "'tei' is unknown; use 'http' or"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    """File, line and key, as for the rest of the configuration."""
    project = Project(tmp_path)
    project.configure(retrieval={"reranker": settings})
    with pytest.raises(ConfigurationError, match=said):
        load_config(project.path)


@pytest.mark.parametrize(
    "make",
    [
        lambda: HttpReranker("nowhere"),
        lambda: HttpReranker("http://h", batch_size=0),
        lambda: HttpReranker("http://h", timeout_seconds=0),
    ],
)
def test_impossible_settings_are_refused_at_once(make: Callable[[], object]) -> None:
    """With the section of the configuration in the message."""
    with pytest.raises(ConfigurationError, match=r"^retrieval\.reranker"):
        make()

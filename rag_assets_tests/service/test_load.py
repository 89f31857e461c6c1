"""Many requests, slow ones and broken parts: the service answers, in time, and goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest

from rag_assets.errors import EmbeddingError, IndexDamaged, InvalidInput, InvalidQuery, Unavailable
from rag_assets.service.core import SearchService
from rag_assets_tests.project import Project
from rag_assets_tests.service.live import HIDDEN, Live, make_live


class SlowOrBroken:
    """A retriever that waits, or raises what the question names."""

    errors: ClassVar[dict[str, Exception]] = {
        "query": InvalidQuery("mode 'x' is not known"),
        "embedder": Unavailable(f"http://10.0.0.1:9/{HIDDEN} refused"),
        "refused": InvalidInput(f"{HIDDEN} is too long"),
        "embedding": EmbeddingError(HIDDEN),
        "damaged": IndexDamaged(f"/srv/{HIDDEN}.sqlite: SELECT failed"),
        "bug": KeyError(HIDDEN),
        "os": PermissionError(13, "no", f"/srv/{HIDDEN}"),
        "timeout": TimeoutError(HIDDEN),
    }

    def __init__(self) -> None:
        self.closed = False
        self.at_once = self.most_at_once = 0

    def retrieve(self, query: str, k: int | None = None, **_: Any) -> list[Any]:
        """Nothing, after so many seconds; or the error."""
        if query in self.errors:
            raise self.errors[query]
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep(float(query))
        self.at_once -= 1
        return []

    def close(self) -> None:
        """Remember it."""
        self.closed = True


@pytest.fixture
def slow(project: Project) -> Iterator[Live]:
    """A service over ``SlowOrBroken``: two workers, one second."""
    retriever = SlowOrBroken()
    service = Live(project, retriever=retriever, timeout_seconds=1, concurrency=2)
    service.token("reader", "public")
    yield service
    service.close()
    assert retriever.closed


def retriever_of(live: Live) -> SlowOrBroken:
    """The retriever of the service."""
    service: SearchService = live.server.config.app.state.service
    return service.retriever


@pytest.mark.parametrize(
    ("question", "status", "kind"),
    [("query", 422, "invalid_request"), ("refused", 422, "invalid_request"),
     ("embedder", 503, "unavailable"), ("embedding", 503, "unavailable"),
     ("damaged", 503, "unavailable"), ("bug", 500, "internal_error"),
     ("os", 500, "internal_error"), ("timeout", 500, "internal_error")],
)  # fmt: skip
def test_an_error_is_answered_without_what_it_says(slow: Live, caplog, question, status, kind):
    """Its id leads to the details in the log."""
    answer = slow.post("/search", {"query": question})
    assert (answer.status_code, answer.json()["error"]["type"]) == (status, kind)
    for word in (HIDDEN, "/srv", "10.0.0.1", "SELECT", "Error(", "Traceback"):
        assert word not in answer.text
    if status >= 500:
        reference = answer.json()["error"]["message"].partition("error ")[2][:8]
        assert f"error {reference}" in caplog.text
        assert HIDDEN in caplog.text
    assert (status == 503) == ("retry-after" in answer.headers)
    assert slow.post("/search", {"query": "0"}).status_code == 200


def test_a_search_that_takes_too_long_is_given_up(slow: Live):
    """503 after service.timeout_seconds, with when to come back."""
    began = time.monotonic()
    answer = slow.post("/search", {"query": "2"})
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"
    assert 0.9 < time.monotonic() - began < 1.9


def test_a_burst_waits_and_the_rest_stays_quick(slow: Live):
    """No more at once than service.concurrency, and what needs no search is answered meanwhile."""
    with ThreadPoolExecutor(8) as pool:
        burst = [pool.submit(slow.post, "/search", {"query": "0.2"}) for _ in range(8)]
        time.sleep(0.1)
        began = time.monotonic()
        assert slow.get("/openapi.json", None).status_code == 200
        assert slow.get("/nothing").status_code == 404
        assert time.monotonic() - began < 0.3
        assert [future.result().status_code for future in burst] == [200] * 8
    assert retriever_of(slow).most_at_once == 2


def test_more_than_can_wait_are_told_to_come_back(slow: Live, monkeypatch):
    """503 at once, instead of a queue without end."""
    monkeypatch.setattr("rag_assets.service.core.MOST_WAITING", 2)
    with ThreadPoolExecutor(8) as pool:
        burst = [pool.submit(slow.post, "/search", {"query": "0.3"}) for _ in range(8)]
        statuses = sorted(future.result().status_code for future in burst)
    assert statuses == [200] * 4 + [503] * 4
    assert slow.post("/search", {"query": "0"}).status_code == 200


def test_searches_of_different_callers_at_once_do_not_mix(tmp_path: Path):
    """200 requests of three tokens from eight threads: each sees its own."""
    live = make_live(tmp_path)
    expected = {"reader": 3, "hr": 4, "nobody": 0}

    def ask(number: int) -> bool:
        name = list(expected)[number % 3]
        answer = live.post("/search", {"query": "VPN badge congés", "k": 50}, name)
        return len({hit["path"] for hit in answer.json()["hits"]}) == expected[name]

    try:
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(ask, range(200)))
    finally:
        live.close()


def test_a_page_of_an_allowed_origin_may_call_from_a_browser(project: Project):
    """The preflight is answered for it and for no other."""
    service = Live(project, allowed_origins=["https://chat.example.org"])
    asked = {"Access-Control-Request-Method": "POST",
             "Access-Control-Request-Headers": "authorization,content-type"}  # fmt: skip
    try:
        for origin, allowed in (
            ("https://chat.example.org", True),
            ("https://evil.example", False),
        ):
            answer = service.client.options("/search", headers={"Origin": origin, **asked})
            assert (answer.headers.get("access-control-allow-origin") == origin) is allowed
            assert "access-control-allow-credentials" not in answer.headers
            refused = service.client.post("/search", json={}, headers={"Origin": origin})
            assert refused.status_code == 401
            assert (refused.headers.get("access-control-allow-origin") == origin) is allowed
    finally:
        service.close()


def test_without_allowed_origins_no_page_may_read_an_answer(live: Live):
    """No CORS header at all."""
    headers = {**live.headers("reader"), "Origin": "https://evil.example"}
    answer: httpx.Response = live.client.get("/stats", headers=headers)
    assert not [name for name in answer.headers if name.startswith("access-control-")]

"""The JSON API over a real socket: shapes, limits, and what each token sees."""

from __future__ import annotations

import pytest

from rag_assets.retrieval.hits import FIELDS
from rag_assets_tests.service.live import HIDDEN, Live

MANY = {"query": "VPN badge congés", "k": 50}


def paths(answer) -> set[str]:
    """Paths of the hits of an answer."""
    assert answer.status_code == 200, answer.text
    return {hit["path"] for hit in answer.json()["hits"]}


def test_search_answers_hits_with_all_that_a_citation_needs(live: Live):
    """The shape is that of `rag-assets search --json`."""
    answer = live.post("/search", {"query": "Install the client", "k": 1})
    assert answer.headers["content-type"] == "application/json"
    value = answer.json()
    assert list(value) == ["query", "mode", "hits"]
    [hit] = value["hits"]
    assert tuple(hit) == FIELDS
    assert (hit["rank"], hit["source"], hit["path"], hit["title"]) == (1, "docs", "vpn.md", "VPN")
    assert hit["url"] == "https://docs.example.org/vpn.md#install-the-client"
    assert hit["citation"] == "docs/vpn.md#install-the-client:7-9"
    assert "setup <all>" in hit["content"]


@pytest.mark.parametrize("mode", ["hybrid", "vector", "text"])
def test_each_mode_is_answered_and_named(live: Live, mode):
    """The default is the configured one."""
    value = live.post("/search", {"query": "badge", "mode": mode}).json()
    assert value["mode"] == mode
    assert value["hits"][0]["path"] == "badge.md"
    assert live.post("/search", {"query": "badge"}).json()["mode"] == "hybrid"


def test_each_token_sees_its_documents_only(live: Live):
    """Tags come from the token; one that no document has sees nothing."""
    public = {"vpn.md", "rh/congés.md", "badge.md"}
    assert paths(live.post("/search", MANY, "reader")) == public
    assert paths(live.post("/search", MANY, "hr")) == {*public, f"hr/{HIDDEN}.md"}
    assert paths(live.post("/search", MANY, "root")) > {f"hr/{HIDDEN}.md", f"{HIDDEN}.md"}
    assert paths(live.post("/search", MANY, "nobody")) == set()
    sources = {hit["source"] for hit in live.post("/search", MANY, "root").json()["hits"]}
    assert sources == {"docs", f"vault-{HIDDEN}", "untagged"}


@pytest.mark.parametrize("key", ["acl", "acl_tags", "tags", "everything", "admin", "sources"])
def test_rights_cannot_be_asked_for(live: Live, key):
    """A key that the service does not know is refused, whatever it says."""
    answer = live.post("/search", {**MANY, key: ["admin_only"]})
    assert answer.status_code == 422
    assert answer.json() == {"error": {"type": "invalid_request", "message": f"{key}: unknown key"}}


@pytest.mark.parametrize("k", [0, -1, 101, 10**9, 10**30, -(10**30), 1.5, "3", True, [], {}])
def test_k_outside_its_limits_is_refused(live: Live, k):
    """At least 1, at most service.max_k, a whole number."""
    answer = live.post("/search", {"query": "badge", "k": k})
    assert answer.status_code == 422
    assert answer.json()["error"]["message"].startswith("k: ")


@pytest.mark.parametrize("k", [1, 100, 2.0, None])
def test_k_within_its_limits_is_taken(live: Live, k):
    """JSON knows one kind of number; null is as good as nothing."""
    hits = live.post("/search", {"query": "badge", "k": k}).json()["hits"]
    assert len(hits) == (min(int(k), 4) if k else 4)


@pytest.mark.parametrize("query", ["", "   ", "\u00a0\n", "\x00", "?!"])
def test_a_blank_question_finds_nothing_and_is_no_error(live: Live, query):
    """Blank, or without a word (text mode)."""
    answer = live.post("/search", {"query": query, "mode": "text"})
    assert (answer.status_code, answer.json()["hits"]) == (200, [])


def test_filters_narrow_the_search(live: Live):
    """By source, path, front matter, language, time."""
    for filters, expected in (
        ({"source": "docs", "path": "rh"}, {"rh/congés.md"}),
        ({"source": ["docs"], "path": ["rh", "badge.md"]}, {"rh/congés.md", "badge.md"}),
        ({"metadata": {"owner": "Équipe réseau"}}, {"vpn.md"}),
        ({"modified_after": "2100-01-01"}, set()),
        ({"source": []}, set()),
        ({"source": "untagged"}, set()),
        ({"path": "hr"}, set()),
        ({"source": None, "path": "badge.md"}, {"badge.md"}),
    ):
        assert paths(live.post("/search", {**MANY, "filters": filters})) == expected, filters


@pytest.mark.parametrize(
    ("filters", "named"),
    [
        ({"author": "x"}, "filters.author"),
        ({"source": 3}, "filters.source"),
        ({"source": ["docs", 3]}, "filters.source"),
        ({"metadata": {"a": 1}}, "filters.metadata"),
        ({"metadata": ["a"]}, "filters.metadata"),
        ({"modified_after": "yesterday"}, "modified_after"),
        ({"modified_before": 5}, "filters.modified_before"),
        ({"modified_before": "9999-12-31T23:59:59.9Z"}, "modified_before"),
        ({"modified_after": "0001-01-01T00:00:00+14:00"}, "modified_after"),
        ({"path": ""}, "path"),
        ({"path": "../x"}, "path"),
        ({"path": ["a", "["]}, "path"),
        ({"language": "français"}, "filters.language"),
        ("docs", "filters"),
        ([], "filters"),
    ],
)
def test_a_wrong_filter_is_named(live: Live, filters, named):
    """Unknown keys, wrong types, values that are no dates or languages."""
    answer = live.post("/search", {**MANY, "filters": filters})
    assert answer.status_code == 422
    assert named in answer.json()["error"]["message"]


def test_context_numbers_what_it_cites(live: Live):
    """The text, the citations and the hits tell the same."""
    value = live.post("/context", {"query": "Renew a badge", "k": 2}).json()
    assert list(value) == ["text", "citations", "hits"]
    assert [c["number"] for c in value["citations"]] == [1, 2]
    assert [c["path"] for c in value["citations"]] == [hit["path"] for hit in value["hits"]]
    assert "[1]" in value["text"]
    assert "front desk" in value["text"]
    assert HIDDEN not in live.post("/context", {"query": HIDDEN, "k": 50}).text


@pytest.mark.parametrize("style", ["fenced", "xml", "plain"])
def test_context_comes_in_each_style(live: Live, style):
    """Each holds the passage."""
    value = live.post("/context", {"query": "Renew a badge", "style": style}).json()
    assert "front desk" in value["text"]


def test_context_of_few_tokens_is_empty(live: Live):
    """A passage is taken whole or not at all."""
    value = live.post("/context", {"query": "badge", "max_tokens": 1}).json()
    assert value == {"text": "", "citations": [], "hits": []}
    assert live.post("/context", {"query": "badge", "max_tokens": 0}).status_code == 422


def test_a_document_is_given_whole_in_reading_order(live: Live):
    """Metadata and passages; accents and slashes in the path."""
    value = live.get("/documents/docs/vpn.md").json()
    assert (value["title"], value["metadata"]["owner"]) == ("VPN", "Équipe réseau")
    assert [chunk["position"] for chunk in value["chunks"]] == [0, 1]
    assert value["acl_tags"] is None
    assert live.get("/documents/docs/rh%2Fcong%C3%A9s.md").json()["title"] == "Congés payés"
    assert live.get("/documents/docs/rh/congés.md").json()["path"] == "rh/congés.md"
    assert live.get("/documents/docs/vpn.md", "root").json()["acl_tags"] == ["public"]


def test_an_invisible_document_and_an_absent_one_are_alike(live: Live):
    """Not a byte differs, but for the date."""
    absent = live.get("/documents/docs/no.md")
    assert absent.status_code == 404
    for path in (f"docs/hr/{HIDDEN}.md", f"vault-{HIDDEN}/{HIDDEN}.md", "no/no.md", "docs/hr"):
        hidden = live.get(f"/documents/{path}")
        assert (hidden.status_code, hidden.content) == (404, absent.content)
        assert [(k, v) for k, v in hidden.headers.items() if k != "date"] == [
            (k, v) for k, v in absent.headers.items() if k != "date"
        ]
    assert live.get(f"/documents/docs/hr/{HIDDEN}.md", "hr").status_code == 200


def test_stats_count_what_the_caller_sees(live: Live):
    """Not the index: that is for admins."""
    value = live.get("/stats").json()
    assert (value["documents"], value["sources"]) == (
        3, {"docs": {"documents": 3, "chunks": 4}},
    )  # fmt: skip
    assert value["index"] is None
    assert live.get("/stats", "hr").json()["documents"] == 4
    empty = live.get("/stats", "nobody").json()
    assert (empty["documents"], empty["chunks"], empty["sources"]) == (0, 0, {})
    assert empty["last_indexed_at"] is None


def test_stats_give_an_admin_the_whole_index_without_paths(live: Live):
    """Model, sizes, files left out."""
    answer = live.get("/stats", "root")
    index = answer.json()["index"]
    assert (index["documents"], index["dimension"]) == (6, 32)
    assert index["size_bytes"] > 0
    assert str(live.project.folder) not in answer.text


def test_health_needs_no_token_and_tells_no_counts(live: Live):
    """For monitoring."""
    answer = live.get("/health", None)
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_answers_are_not_kept_by_anybody(live: Live):
    """What a token sees must not stand in a cache, nor be taken for a page."""
    for path in ("/stats", "/health", "/documents/docs/no.md"):
        headers = live.get(path).headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers

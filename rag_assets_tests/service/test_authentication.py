"""Who is let in: only a known token, at once or no more, within its rate."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_assets.service.core import FAILURES_PER_MINUTE
from rag_assets_tests.project import Project
from rag_assets_tests.service.live import Live, make_live

PATHS = ("/stats", "/documents/docs/vpn.md")


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Live]:
    """A service of the test's own, to change."""
    service = make_live(tmp_path, rate_per_minute=6)
    yield service
    service.close()


@pytest.mark.parametrize(
    "value",
    [None, "", "Bearer", "Bearer x", "Basic dXNlcjpwYXNz", "Bearer rag_",
     "Bearer " + "a" * 5000, "Bearer \xff", "Bearer null", "rag_x"],
)  # fmt: skip
def test_without_a_known_token_nothing_is_answered(live: Live, value):
    """401 in JSON, with the scheme to use; the token sent is not repeated."""
    headers = {} if value is None else {"Authorization": value.encode("latin-1")}
    for path in PATHS:
        answer = live.client.get(path, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == 'Bearer realm="rag_assets"'
        assert answer.json()["error"]["type"] == "unauthorized"
        assert "rag_x" not in answer.text
    for path in ("/search", "/context"):
        assert live.client.post(path, json={"query": "x"}, headers=headers).status_code == 401


def test_the_scheme_is_read_in_any_case(live: Live):
    """As RFC 9110 says."""
    for scheme in ("Bearer", "bearer", "BEARER"):
        headers = {"Authorization": f"{scheme} {live.secrets['reader']}"}
        assert live.client.get("/stats", headers=headers).status_code == 200


def test_a_token_elsewhere_in_the_request_is_not_taken(live: Live):
    """A cookie would let any page of the browser search; a URL is written to logs."""
    secret = live.secrets["root"]
    for path in (f"/stats?token={secret}", f"/stats?access_token={secret}"):
        assert live.client.get(path).status_code == 401
    for name in ("token", "session", "rag_assets"):
        headers = {"Cookie": f"{name}={secret}"}
        assert live.client.get("/stats", headers=headers).status_code == 401
    answer = live.client.post("/search", json={"query": "x", "token": secret})
    assert answer.status_code == 401


def test_adding_and_removing_tokens_takes_effect_without_a_restart(own: Live):
    """A leaked token is closed at once."""
    own.token("new", "public")
    assert own.get("/stats", "new").json()["documents"] == 3
    own.tokens.rotate("new")
    assert own.get("/stats", "new").status_code == 401
    own.tokens.remove("reader")
    assert own.get("/stats", "reader").status_code == 401
    assert own.get("/stats", "hr").status_code == 200


def test_the_rate_limit_is_per_token(own: Live):
    """The seventh request of a minute is told when to come back; others go on."""
    statuses = [own.get("/stats").status_code for _ in range(7)]
    assert statuses == [200] * 6 + [429]
    refused = own.post("/search", {"query": "x"})
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 10
    assert refused.json()["error"]["type"] == "too_many_requests"
    assert own.get("/stats", "hr").status_code == 200


def test_refused_tokens_are_limited_per_address_but_known_ones_pass(own: Live):
    """Guessing gets slow; whoever shares the address is not shut out."""
    headers = {"Authorization": "Bearer rag_guess"}
    statuses = [
        own.client.get("/stats", headers=headers).status_code
        for _ in range(FAILURES_PER_MINUTE + 5)
    ]
    assert statuses[:FAILURES_PER_MINUTE] == [401] * FAILURES_PER_MINUTE
    assert statuses[-1] == 429
    assert own.get("/stats").status_code == 200


def test_an_unreadable_token_file_refuses_everybody(own: Live, caplog):
    """503 without a word of the file, which is in the log."""
    held = own.tokens.path.read_text()
    own.tokens.path.write_text(held[:50])
    answer = own.get("/stats")
    assert answer.status_code == 503
    assert "tokens.json" not in answer.text
    assert "tokens.json" in caplog.text
    own.tokens.path.write_text(held)
    assert own.get("/stats").status_code == 200


def test_without_any_token_every_request_is_refused_with_the_way_out(project: Project):
    """On loopback too: any page in a browser could send requests there."""
    project.write("a.md", "# A\n")
    project.run()
    service = Live(project)
    try:
        answer = service.get("/stats", None)
        assert answer.status_code == 401
        assert "rag-assets token add NAME --acl TAG" in answer.json()["error"]["message"]
        service.token("first", "public")
        assert service.get("/stats", "first").status_code == 200
    finally:
        service.close()


def test_without_an_index_searches_say_so_and_work_once_there_is_one(project: Project):
    """503, then 200, without a restart."""
    service = Live(project)
    try:
        service.token("reader", "public")
        assert service.get("/health", None).json() == {"status": "no index"}
        assert service.get("/health", None).status_code == 503
        for answer in (service.post("/search", {"query": "vpn"}), service.get("/stats")):
            assert answer.status_code == 503
            assert answer.json()["error"]["message"].startswith("there is no index yet")
            assert answer.headers["retry-after"] == "5"
            assert str(project.folder) not in answer.text
        project.write("vpn.md", "# VPN\n\nvpn client\n")
        project.run()
        assert service.get("/health", None).json() == {"status": "ok"}
        assert len(service.post("/search", {"query": "vpn"}).json()["hits"]) == 1
    finally:
        service.close()


def test_the_token_file_holds_no_secret(live: Live):
    """Nor does any other file of the data folder."""
    for file in live.project.config.data_dir.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            assert not any(secret.encode() in data for secret in live.secrets.values())
    assert len(json.loads(live.tokens.path.read_text())["tokens"]) == 4

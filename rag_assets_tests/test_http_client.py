"""The one HTTP client: what later connectors rely on besides what the embedder's tests cover."""

from __future__ import annotations

import gzip
import socket
import zlib
from typing import Any

import pytest

from rag_assets.http_client import HttpClient, HttpError, HttpLimits

from .embeddings.fault_server import (
    Behaviour,
    FaultServer,
    Received,
    answer,
    gzip_bomb,
    silent,
    well,
)


def client_of(server: FaultServer, **limits: Any) -> HttpClient:
    fast = {"timeout_seconds": 1.0, "backoff_seconds": 0.01, "retries": 1}
    return HttpClient(server.url, limits=HttpLimits(**{**fast, **limits}))


def pages(**by_path: Behaviour) -> Behaviour:
    """A behaviour for each path."""

    def behave(connection: socket.socket, request: Received) -> None:
        by_path[request.path.strip("/") or "root"](connection, request)

    return behave


def test_redirects_on_the_same_server_are_followed_when_asked() -> None:
    """GET follows; by default it does not."""
    behaviour = pages(old=answer(301, Location="/new"), new=answer(200, "here"))
    with FaultServer(well(), health=None) as server:
        server.behaviours = [behaviour]
        server.health = behaviour
        client = client_of(server)
        assert client.request("GET", "/old").status_code == 301
        assert client.request("GET", "/old", follow_redirects=True).content == b"here"


def test_redirects_to_another_server_are_never_followed() -> None:
    """Another port is another server; nothing is sent there."""
    with FaultServer(answer(200, "stolen")) as other:
        target = other.url + "/take"
        with FaultServer(answer(302, Location=target)) as server:
            client = HttpClient(server.url, headers={"Authorization": "Bearer abc"})
            assert client.request("GET", "/a", follow_redirects=True).status_code == 302
        assert other.requests == []


def test_redirect_loops_end() -> None:
    """A chain longer than a handful is handed back as it is."""
    with FaultServer(answer(302, Location="/again")) as server:
        assert client_of(server).request("GET", "/again", follow_redirects=True).status_code == 302
        assert len(server.requests) <= 7


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [("gzip", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress)],
)
def test_compressed_bodies_are_unpacked(encoding: str, pack: Any) -> None:
    """Also those that unpack to much more than one read."""
    body = b"0123456789" * 100_000
    with FaultServer(answer(200, pack(body), Content_Encoding=encoding)) as server:
        response = client_of(server).request("GET", "/big")
    assert response.content == body
    assert "content-encoding" not in response.headers


def test_cap_is_exact() -> None:
    """As many bytes as allowed pass, one more does not; also per request."""
    with FaultServer(answer(200, b"x" * 1000)) as server:
        client = client_of(server, max_response_bytes=1000)
        assert len(client.request("GET", "/").content) == 1000
        with pytest.raises(HttpError, match="more than 999 bytes") as caught:
            client.request("GET", "/", max_response_bytes=999)
    assert caught.value.kind == "too_large"


def test_error_bodies_are_cut_not_refused() -> None:
    """Even a bomb in an error's body leaves the status readable."""
    with FaultServer(answer(403, gzip_bomb(64), Content_Encoding="gzip")) as server:
        response = client_of(server).request("GET", "/")
    assert response.status_code == 403
    assert len(response.content) == 65_536


@pytest.mark.parametrize("kind", ["connect", "timeout", "interrupted", "protocol"])
def test_failures_tell_their_kind(kind: str) -> None:
    """Connectors decide by kind, not by words."""
    behaviours: dict[str, Behaviour] = {
        "timeout": silent(),
        "interrupted": lambda c, r: c.close(),
        "protocol": answer(200, b"junk", Content_Encoding="br"),
    }
    with FaultServer(behaviours.get(kind, well())) as server:
        client = client_of(server, timeout_seconds=0.2, retries=0)
        if kind == "connect":
            server.__exit__()
        with pytest.raises(HttpError) as caught:
            client.request("PROPFIND", "/dav")
    assert caught.value.kind == kind


def test_cookies_and_environment_do_not_leak_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies of the environment are not used for a server that the configuration names."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with FaultServer(answer(200, "direct")) as server:
        assert client_of(server).request("GET", "/").content == b"direct"


def test_close_may_be_called_twice_and_before_use() -> None:
    """Closing is idempotent."""
    client = HttpClient("http://127.0.0.1:1")
    client.close()
    client.close()

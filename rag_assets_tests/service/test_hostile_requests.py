"""What nobody should send: 4xx or an empty answer, never 5xx, never a word of what is hidden."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from rag_assets.service import protocol
from rag_assets_tests.service.live import HIDDEN, Live, make_live

QUERIES = [
    "", " ", "\x00", "a\x00b", "'", '"', "''", '"" OR ""', "*", "%", "_", "-", "--", ";", "\\",
    "AND", "OR", "NOT", "NEAR", "NEAR(a b, 2)", "a AND", "^a", "a*", "col:x", "content:*",
    "{a b}:c", "(", ")", "((((", "l'été", "pare-feu", "C++", "38.101", "jour?", "50%", "@user",
    "v1.2.", "state-of-the-art", "'; DROP TABLE chunk; --", "1 OR 1=1", "\" OR 1=1 --",
    "x' UNION SELECT content FROM chunk --", "${jndi:ldap://x}", "{{7*7}}", "<script>", "../..",
    "/etc/passwd", "%00", "\u202e", "\u200b" * 50, "\ufeff", "\ufffe", "\U0010ffff", "œ", "ﬁ",
    "e\u0301" * 500, "\U0001f600" * 100, "字" * 1000, "a " * 3000, "a" * 8000, "\n" * 8000,
    "NEAR " * 1000, '"' * 8000, "*" * 8000, "(" * 8000, f"path:{HIDDEN}", HIDDEN,
]  # fmt: skip


def is_clean(live: Live, answer: httpx.Response) -> bool:
    """No server error, nothing hidden, no path of the server, SQL or stack."""
    words = (HIDDEN, str(live.project.folder), "Traceback", "sqlite", "SELECT ", 'File "', "fts5")
    return answer.status_code < 500 and not any(word in answer.text for word in words)


@pytest.mark.parametrize("mode", ["hybrid", "vector", "text"])
def test_any_question_is_answered(live: Live, mode):
    """FTS operators, SQL, control characters, scripts, long ones: always 200."""
    for query in QUERIES:
        answer = live.post("/search", {"query": query, "mode": mode, "k": 50})
        assert answer.status_code == 200, (query, answer.text)
        sent_back = {**answer.json(), "query": ""}
        assert HIDDEN not in json.dumps(sent_back, ensure_ascii=False), query
    assert live.post("/context", {"query": HIDDEN, "k": 50}).text.count(HIDDEN) == 0


@pytest.mark.parametrize("length", [8_001, 20_000, 60_000, 65_536, 100_000, 1_000_000])
def test_a_question_too_long_is_refused(live: Live, length):
    """422 up to the size of a body, 413 beyond."""
    answer = live.post("/search", {"query": "é" * length})
    assert answer.status_code in (413, 422)
    assert len(answer.content) < 500


@pytest.mark.parametrize(
    "body",
    [b'{"query":"\\ud800"}', b'{"query":"\\udc00\\ud800"}', b'{"query":"x","\\ud800":1}',
     b'{"query":"x","filters":{"path":"\\ud800"}}', b'{"query":"x","mode":"\\ud800"}',
     b'{"query":"x","filters":{"metadata":{"\\ud800":"\\udfff"}}}'],
)  # fmt: skip
def test_a_lone_surrogate_is_refused(live: Live, body):
    """It is JSON and no text: 422 that can be read."""
    answer = live.client.post(
        "/search",
        content=body,
        headers={**live.headers("reader"), "Content-Type": "application/json"},
    )
    assert answer.status_code == 422
    assert answer.json()["error"]["type"] == "invalid_request"


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"x", b"\xff", b'{"query":"\xe9"}', b'{"query":NaN}', b'{"k":Infinity}',
     b"[" * 60_000, b'{"a":' * 10_000, b'{"query":"x"}{"query":"x"}', b"\xef\xbb\xbf{}",
     b'{"k":' + b"9" * 60_000 + b"}", '{"query":"x"}'.encode("utf-16"), b"'query'", b"{'a':1}"],
)  # fmt: skip
def test_what_is_not_json_is_a_bad_request(live: Live, body):
    """400, whatever it is."""
    answer = live.client.post(
        "/search",
        content=body,
        headers={**live.headers("reader"), "Content-Type": "application/json"},
    )
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "bad_request"


@pytest.mark.parametrize(
    "value",
    [None, True, 0, 1.5, "x", [], [1], {}, {"query": None}, {"query": 5}, {"query": ["x"]},
     {"query": {"a": 1}}, {"Query": "x"}, {"query": "x", "": 1}, {"query": "x", "k" * 5000: 1},
     {"query": "x", "mode": "sql"}, {"query": "x", "mode": "HYBRID"}, {"query": "x", "mode": ""},
     {"query": "x", "deduplicate": 1}, {"query": "x", "merge": "yes"}, {"query": "x", "filters": 1},
     {"query": "x", "filters": {"path": ["a"] * 1001}}],
)  # fmt: skip
def test_json_of_another_shape_is_unprocessable(live: Live, value):
    """422 that names the key and does not repeat the value."""
    for path in ("/search", "/context"):
        headers = {**live.headers("reader"), "Content-Type": "application/json"}
        answer = live.client.post(path, content=json.dumps(value), headers=headers)
        assert answer.status_code == 422, answer.text
        assert len(answer.content) < 1000


@pytest.mark.parametrize(
    ("kind", "extra"),
    [("text/plain", {}), ("application/x-www-form-urlencoded", {}), ("", {}), ("json", {}),
     ("application/json; charset=latin-1", {}), ("application/json", {"Content-Encoding": "gzip"}),
     ("multipart/form-data; boundary=x", {}), ("application/json, text/plain", {})],
)  # fmt: skip
def test_another_content_type_is_refused(live: Live, kind, extra):
    """A form of a foreign page can send none that is taken."""
    headers = {**live.headers("reader"), "Content-Type": kind, **extra}
    answer = live.client.post("/search", content=b'{"query":"x"}', headers=headers)
    assert (answer.status_code, answer.json()["error"]["type"]) == (415, "wrong_content_type")


def test_json_with_its_charset_is_taken(live: Live):
    """As many clients send it."""
    for kind in ("application/json; charset=utf-8", 'Application/JSON;charset="UTF-8"'):
        headers = {**live.headers("reader"), "Content-Type": kind}
        answer = live.client.post("/search", content=b'{"query":"x"}', headers=headers)
        assert answer.status_code == 200


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "TRACE", "OPTIONS", "FOO"])
def test_another_method_is_refused_with_those_there_are(live: Live, method):
    """405 with Allow."""
    answer = live.client.request(method, "/search", headers=live.headers("reader"))
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    assert answer.json()["error"]["type"] == "method_not_allowed"


@pytest.mark.parametrize(
    "path",
    ["/nothing", "/search/", "/documents", "/documents/", "/documents/docs",
     "/documents/docs/", "/documents//vpn.md", "/documents/docs/..%2f..%2fetc%2fpasswd",
     "/documents/docs/%2fetc%2fpasswd", "/documents/docs/vpn.md%00", "/documents/docs/%ff",
     "/documents/docs/" + "a" * 8000, "/documents/'%20OR%201=1--/x", "/documents/docs/VPN.MD",
     "/documents/%25/%25", "/static/../../rag_assets.yaml", "/.env", "/tokens.json",
     "/documents/docs/%0d%0aSet-Cookie:%20a=b"],
)  # fmt: skip
def test_no_other_path_leads_anywhere(live: Live, path):
    """404 in JSON for strange paths, none of which is one of the file system."""
    for name in ("reader", "root"):
        answer = live.get(path, name)
        assert answer.status_code == 404, answer.text
        assert answer.json()["error"]["type"] == "not_found"
        assert is_clean(live, answer)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "a b", "[::1", "*",
     "localhost:80:80", "@localhost", "evil.example:8000", "localhost/x", "0.0.0.0"],
)  # fmt: skip
def test_a_foreign_host_name_is_refused(live: Live, host):
    """A page whose name was made to resolve to this machine gets nothing, token or not."""
    for path in ("/stats", "/health", "/openapi.json", "/"):
        answer = live.client.get(path, headers={**live.headers("root"), "Host": host})
        assert answer.status_code == 400


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:80", "[::1]:8000"])
def test_loopback_names_are_answered(live: Live, host):
    """With and without port."""
    answer = live.client.get("/stats", headers={**live.headers("root"), "Host": host})
    assert answer.status_code == 200


def head(live: Live, *lines: str, method: str = "POST", path: str = "/search") -> bytes:
    """The head of a request with the reader's token."""
    fixed = (f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json",
             f"Authorization: Bearer {live.secrets['reader']}")  # fmt: skip
    return "\r\n".join((*fixed, *lines, "", "")).encode()


def status(answer: bytes) -> int:
    """The status of a raw answer; 0 when the connection was closed without one."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


RAW = [
    b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    b"GET /stats HTTP/1.1\r\n\r\n", b"GET /stats HTTP/1.0\r\n\r\n", b"\x00" * 1000,
    b"GET /stats HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"GET /" + b"a" * 100_000,
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000, b"PRI * HTTP/2.0\r\n\r\nSM\r\n",
    b"GET /stats HTTP/1.1\r\nHost: localhost\r\nBad Header: x\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", b"GET //search HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET http://evil.example/stats HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    .replace(b"GET / ", b"GET /stats "),
]  # fmt: skip


@pytest.mark.parametrize("data", RAW)
def test_what_is_not_http_gets_4xx_or_nothing(live: Live, data):
    """And the service goes on."""
    answer = live.raw(data, wait_seconds=0.5)
    assert status(answer) == 0 or 400 <= status(answer) < 500, answer[:200]
    assert live.get("/stats").status_code == 200


def test_a_body_both_chunked_and_counted_is_refused(live: Live):
    """Two readings of one request are how requests are smuggled."""
    request = head(live, "Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n"
    assert status(live.raw(request)) in (400, 0)
    request = head(live, "Content-Length: 5", "Content-Length: 6") + b"12345"
    assert status(live.raw(request)) == 400


def test_a_body_that_does_not_say_its_length_is_cut_off_at_the_limit(live: Live):
    """Chunk by chunk, 1 MiB and more: 413 once the limit is passed."""
    chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
    assert status(live.raw(head(live, "Transfer-Encoding: chunked") + chunk * 17)) == 413
    whole = b'd\r\n{"query":"x"}\r\n0\r\n\r\n'
    assert status(live.raw(head(live, "Transfer-Encoding: chunked") + whole)) == 200


def test_a_length_beyond_the_limit_is_refused_before_the_body(live: Live):
    """Nothing of it is read."""
    for length in ("65537", "1000000000000", "9" * 4000):
        assert status(live.raw(head(live, f"Content-Length: {length}"))) in (413, 400)


def test_no_token_is_answered_before_the_body(live: Live):
    """Who may not ask cannot make the service read."""
    request = b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n"
    assert status(live.raw(request)) == 401


def test_a_client_that_goes_away_leaves_nothing_behind(live: Live):
    """Half a body, then closed."""
    for _ in range(20):
        live.raw(head(live, "Content-Length: 100") + b'{"query":', wait_seconds=0.01)
    assert live.get("/stats").status_code == 200


def test_requests_one_after_the_other_on_one_connection_are_answered_in_order(live: Live):
    """Pipelined: the second answer is the second's."""
    body = b'{"query":"badge","k":1}'
    first = head(live, f"Content-Length: {len(body)}") + body
    second = head(live, "Connection: close", method="GET", path="/nothing")
    with socket.create_connection(("127.0.0.1", int(live.url.rpartition(":")[2])), 5) as connection:
        connection.sendall(first + second)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    assert answer.index(b"HTTP/1.1 200") < answer.index(b"HTTP/1.1 404")


@pytest.fixture
def hasty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    """A service with short time limits."""
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.5)
    service = make_live(tmp_path, timeout_seconds=0.5)
    yield service
    service.close()


def test_a_body_that_drips_is_given_up(hasty: Live):
    """A byte now and then keeps no place: 408 after service.timeout_seconds."""
    began = time.monotonic()
    with socket.create_connection(
        ("127.0.0.1", int(hasty.url.rpartition(":")[2])), 5
    ) as connection:
        connection.sendall(head(hasty, "Content-Length: 100"))
        answer = b""
        for _ in range(40):
            try:
                connection.sendall(b" ")
                connection.settimeout(0.1)
                answer += connection.recv(65536)
                break
            except TimeoutError:
                continue
    assert status(answer) == 408
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("sent", [b"", b"GET /stats HTTP/1.1\r\nHost: loc"])
def test_a_head_that_does_not_come_is_given_up(hasty: Live, sent):
    """The connection is closed, whether it drips or says nothing."""
    began = time.monotonic()
    assert hasty.raw(sent, wait_seconds=4) == b""
    assert 0.3 < time.monotonic() - began < 3
    assert hasty.get("/stats").status_code == 200


def test_a_connection_in_use_is_not_given_up(hasty: Live):
    """Request after request, longer than the deadline of one head."""
    for _ in range(6):
        assert hasty.get("/stats").status_code == 200
        time.sleep(0.15)

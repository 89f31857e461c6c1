"""What a git server may do wrong: one clear sentence, no secret in it, nothing lost or left."""

from __future__ import annotations

import os
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from rag_assets.errors import IncompleteEnumeration, SourceError, SourceUnavailable
from rag_assets.sources.git.tree import GitTree

from .git_http_server import GitServer, git_server
from .git_repositories import Repository, known_of

TOKEN = "glpat-CanaryCanary12345"
Fault = Callable[[BaseHTTPRequestHandler], bool]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    """A server that lets in who has the token."""
    with git_server(tmp_path / "served") as server:
        server.credentials = f"git:{TOKEN}"
        yield server


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A served repository."""
    repository = Repository(tmp_path / "served" / "docs.git")
    repository.allow_filter()
    repository.commit({"a.md": "# A\n", "b.md": os.urandom(20_000).hex()})
    return repository


def over_http(server: GitServer, work_dir: Path, **settings: Any) -> GitTree:
    """The source, with the token unless another one is given."""
    settings = {"token": TOKEN, "timeout_seconds": 20.0, **settings}
    return GitTree("docs", server.url("docs.git/.git"), work_dir=work_dir, **settings)


def status(code: int, headers: dict[str, str] | None = None, body: bytes = b"oops") -> Fault:
    """An answer with that status, that echoes what it was sent."""

    def answer(handler: BaseHTTPRequestHandler) -> bool:
        echo = body + (handler.headers.get("Authorization") or "").encode()
        handler.reply(code, echo, {"Content-Type": "text/plain", **(headers or {})})  # type: ignore[attr-defined]
        return True

    return answer


def page(handler: BaseHTTPRequestHandler) -> bool:
    """A login page with status 200."""
    html = b"<html><head><title>Sign in</title></head><body>Bonjour</body></html>"
    handler.reply(200, html, {"Content-Type": "text/html"})  # type: ignore[attr-defined]
    return True


def raw(data: bytes, seconds: float = 0.0) -> Fault:
    """Bytes, then silence, then the end of the connection."""

    def answer(handler: BaseHTTPRequestHandler) -> bool:
        handler.wfile.write(data)
        handler.wfile.flush()
        time.sleep(seconds)
        handler.close_connection = True
        return True

    return answer


def drip(handler: BaseHTTPRequestHandler) -> bool:
    """A byte now and then, for longer than anybody should wait."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/x-git-upload-pack-advertisement")
    handler.end_headers()
    try:
        for _ in range(100):
            handler.wfile.write(b"0")
            handler.wfile.flush()
            time.sleep(0.1)
    except OSError:
        pass
    handler.close_connection = True
    return True


def endless(handler: BaseHTTPRequestHandler) -> bool:
    """References without an end."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/x-git-upload-pack-advertisement")
    handler.end_headers()
    line = b"a" * 40 + b" refs/heads/" + b"x" * 900 + b"\n"
    block = (b"%04x" % (len(line) + 4) + line) * 100
    try:
        handler.wfile.write(b"001e# service=git-upload-pack\n0000")
        while True:
            handler.wfile.write(block)
    except OSError:
        pass
    handler.close_connection = True
    return True


FAULTS: dict[str, tuple[Fault, str]] = {
    "401": (status(401, {"WWW-Authenticate": 'Basic realm="x"'}), "refuses access; check"),
    "403": (status(403), "refuses access; check"),
    "404": (status(404), "is not there, or this account may not see it"),
    "410": (status(410), "source docs"),
    "429": (status(429, {"Retry-After": "86400"}), "too many requests"),
    "500": (status(500), "cannot answer now; run again later .*500"),
    "502": (status(502), "cannot answer now"),
    "503": (status(503, {"Retry-After": "1"}), "cannot answer now"),
    "html": (page, "as a git server does"),
    "empty": (status(200, body=b""), "source docs"),
    "wrong type": (status(200, {"Content-Type": "application/json"}, b"{}"), "as a git server"),
    "no answer": (raw(b""), "source docs"),
    "half a header": (raw(b"HTTP/1.1 200 OK\r\nContent-Le"), "source docs"),
    "not http": (raw(b"SSH-2.0-OpenSSH_9.2\r\n"), "source docs"),
    "huge header": (raw(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 2_000_000), "source docs"),
    "cut": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n001e#"), "source docs"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_server_that_fails_is_told_in_one_sentence(
    repository: Repository, server: GitServer, tmp_path: Path, kind: str
) -> None:
    """With source and URL, without the token; afterwards the source works as before."""
    fault, words = FAULTS[kind]
    source = over_http(server, tmp_path / "work")
    listing = source.list()
    repository.commit({"c.md": "# C\n"})
    server.fault = fault
    for act in (lambda: source.list(known_of(listing)), lambda: source.look(listing.look_state)):
        with pytest.raises(SourceError, match=words) as raised:
            act()
        message = str(raised.value)
        assert message.startswith(f"source docs: the repository {server.url('docs.git/.git')} ")
        assert TOKEN not in message
        assert server.seen_headers[-1].split()[-1] not in message
        assert "\n" not in message
    assert os.listdir(tmp_path / "work") == []
    server.fault = None
    assert len(source.list(known_of(listing)).files) == 3


@pytest.mark.parametrize("fault", [drip, raw(b"", 3.0)], ids=["drip", "silence"])
def test_a_server_that_is_too_slow_is_given_up(
    repository: Repository, server: GitServer, tmp_path: Path, fault: Fault
) -> None:
    """After timeout_seconds, even if something arrives now and then."""
    server.fault = fault
    started = time.monotonic()
    with pytest.raises(SourceUnavailable, match=r"did not answer within 0\.8 s"):
        over_http(server, tmp_path / "work", timeout_seconds=0.8).list()
    assert time.monotonic() - started < 2.5


def test_an_endless_answer_ends(repository: Repository, server: GitServer, tmp_path: Path) -> None:
    """At the latest with the deadline."""
    server.fault = endless
    with pytest.raises(SourceError, match="source docs"):
        over_http(server, tmp_path / "work", timeout_seconds=1.5).list()


@pytest.mark.parametrize("cut_at", [0, 30, 5000])
def test_an_answer_that_breaks_off_is_no_listing(
    repository: Repository, server: GitServer, tmp_path: Path, cut_at: int
) -> None:
    """Wherever it breaks off, in refs, folders or documents."""
    for fetches in (0, 1, 2):
        server.requests.clear()

        def cut_later(handler: BaseHTTPRequestHandler, after: int = fetches) -> bool:
            seen = server.fetches
            server.cut_at = cut_at if seen >= after and (seen or not after) else None
            return False

        server.fault = cut_later
        with pytest.raises((IncompleteEnumeration, SourceUnavailable)) as raised:
            over_http(server, tmp_path / "work").list()
        assert "source docs: the repository" in str(raised.value)
        assert os.listdir(tmp_path / "work") == []


def test_a_damaged_pack_is_no_listing(
    repository: Repository, server: GitServer, tmp_path: Path
) -> None:
    """Objects are verified by their names: wrong bytes are never a document."""

    def damage(handler: Any) -> bool:
        reply = handler.reply

        def damaged(code: int, content: bytes, headers: dict[str, str]) -> None:
            at = content.find(b"PACK")
            if at > 0:
                content = content[: at + 40] + bytes([content[at + 40] ^ 1]) + content[at + 41 :]
            reply(code, content, headers)

        handler.reply = damaged
        return False

    server.fault = damage
    with pytest.raises((IncompleteEnumeration, SourceUnavailable), match="source docs"):
        over_http(server, tmp_path / "work").list()


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_redirects_are_never_followed(
    repository: Repository, server: GitServer, tmp_path: Path, code: int
) -> None:
    """The other host gets no request, let alone the token."""
    with git_server(tmp_path / "served") as other:
        target = f"http://localhost:{other.port}/docs.git/.git/info/refs?service=git-upload-pack"
        server.fault = status(code, {"Location": target})
        with pytest.raises(SourceUnavailable, match="redirects to another address"):
            over_http(server, tmp_path / "work").list()
        assert (other.requests, other.seen_headers) == ([], [])


def test_wrong_and_missing_tokens_are_refused(
    repository: Repository, server: GitServer, tmp_path: Path
) -> None:
    """Without waiting for somebody to type one."""
    for token in ("", "wrong-Canary"):
        with pytest.raises(SourceUnavailable, match="refuses access") as raised:
            over_http(server, tmp_path / "work", token=token).list()
        assert "Canary" not in str(raised.value)


def test_a_host_that_is_not_there_is_said(tmp_path: Path) -> None:
    """Refused connections and unknown names."""
    for url in ("http://127.0.0.1:1/x.git", "http://absent.invalid/x.git", "git://127.0.0.1:1/x"):
        with pytest.raises(SourceUnavailable, match="cannot be reached") as raised:
            GitTree("docs", url, work_dir=tmp_path, timeout_seconds=20).list()
        assert url in str(raised.value)


def test_a_certificate_that_does_not_verify_is_never_accepted(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the user's own settings and environment say of verification."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
         "-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("GIT_SSL_CAINFO", raising=False)
    with git_server(tmp_path / "served", context) as server:
        url = f"https://localhost:{server.port}/docs.git/.git"
        (home / ".gitconfig").write_text(
            f'[http]\n\tsslVerify = false\n[http "https://localhost:{server.port}"]\n'
            "\tsslVerify = false\n"
        )
        monkeypatch.setenv("GIT_SSL_NO_VERIFY", "1")
        source = GitTree("docs", url, work_dir=tmp_path / "work", timeout_seconds=20)
        with pytest.raises(SourceUnavailable, match="certificate does not verify"):
            source.list()
        assert server.requests == []
        (home / ".gitconfig").write_text(f"[http]\n\tsslCAInfo = {tmp_path}/cert.pem\n")
        assert len(source.list().files) == 2


def test_a_program_named_by_the_url_never_runs(tmp_path: Path) -> None:
    """Even if the user's settings allow every transport, and rewrite the URL."""
    marker = tmp_path / "ran"
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        f'[protocol]\n\tallow = always\n[url "ext::touch {marker} "]\n\tinsteadOf = https://evil/\n'
    )
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from rag_assets.sources.git.tree import GitTree\n"
        "GitTree('docs', 'https://evil/x', work_dir=Path(sys.argv[1])).list()\n"
    )
    done = subprocess.run(
        [os.sys.executable, "-c", code, str(tmp_path / "work")],
        env={**os.environ, "HOME": str(home)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert not marker.exists()


def test_a_full_disk_is_said_and_left_clean(repository: Repository, tmp_path: Path) -> None:
    """The sentence says what to free; nothing of the half-made clone stays."""
    full = tmp_path / "full"
    full.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(full)],
        capture_output=True, check=False,
    )  # fmt: skip
    if mounted.returncode != 0:
        pytest.skip("a small disk cannot be made here")
    try:
        repository.commit({"big.md": os.urandom(300_000)})
        with pytest.raises(SourceUnavailable, match="free space"):
            GitTree("docs", repository.url, work_dir=full).list()
        assert os.listdir(full) == []
    finally:
        subprocess.run(["umount", str(full)], check=True)

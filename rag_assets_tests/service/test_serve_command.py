"""``rag-assets serve`` and ``rag-assets token``: as a person runs them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from rag_assets.cli.commands import cli
from rag_assets_tests.project import Project


def run(project: Project, *arguments: str) -> Result:
    """Run a command on a project."""
    return CliRunner().invoke(
        cli, ["--config", str(project.path), *arguments], prog_name="rag-assets"
    )


@contextlib.contextmanager
def serving(project: Project, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[str], list]]:
    """``rag-assets serve`` in a process of its own: address, process, lines said so far."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rag_assets.cli", "--config", str(project.path), "serve",
         "--port", "0", *arguments],
        stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stderr is not None
    said: list[str] = []
    try:
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"serves .* at (http://\S+)", line):
                yield found.group(1), process, said
                return
        pytest.fail(f"it did not start: {said}")
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_serve_answers_logs_without_the_question_and_stops_when_told(project: Project):
    """The address is said; a request is one line; SIGTERM ends it."""
    project.write("secret name.md", "# VPN\n\nInstall the VPN client.\n")
    project.run()
    secret = run(project, "token", "add", "wiki", "--acl", "public").stdout.strip()
    with serving(project) as (url, process, _):
        headers = {"Authorization": f"Bearer {secret}"}
        with httpx.Client(base_url=url, headers=headers, trust_env=False) as client:
            answer = client.post("/search", json={"query": "a private question VPN"})
            assert [hit["title"] for hit in answer.json()["hits"]] == ["VPN"]
            assert client.get("/documents/docs/secret%20name.md").status_code == 200
            assert client.get("/private?a=private").status_code == 404
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=20)
        assert process.returncode in (0, -signal.SIGTERM)
    assert re.search(r"POST /search 200 [\d.]+ ms wiki\n", log)
    assert re.search(r"GET /documents/\{source\}/\{path:path\} 200 [\d.]+ ms wiki\n", log)
    assert re.search(r"GET - 404 [\d.]+ ms -\n", log)
    assert "private" not in log
    assert "secret" not in log


def test_serve_without_tokens_says_that_every_request_is_refused(project: Project):
    """It starts on loopback; a token made meanwhile is taken."""
    with serving(project) as (url, process, said):
        assert process.stderr is not None
        said.append(process.stderr.readline())
        assert "every request is refused" in said[-1]
        assert httpx.get(f"{url}/stats", trust_env=False).status_code == 401
        secret = run(project, "token", "add", "a", "--acl", "public").stdout.strip()
        headers = {"Authorization": f"Bearer {secret}"}
        assert httpx.get(f"{url}/stats", headers=headers, trust_env=False).status_code == 503


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", "127.0.0.1.nip.io"])
def test_serve_beyond_loopback_needs_a_token(project: Project, host):
    """Exit 2 before anything listens, with the command to run."""
    result = run(project, "serve", "--host", host)
    assert result.exit_code == 2
    assert "rag-assets token add NAME --acl TAG" in result.stderr


def test_serve_beyond_loopback_with_a_token_says_to_whom_it_answers(project: Project):
    """Names to set, and that it speaks no TLS itself; Ctrl-C ends it without a complaint."""
    run(project, "token", "add", "a", "--acl", "public")
    with serving(project, "--host", "0.0.0.0") as (url, process, said):
        assert process.stderr is not None
        said.append(process.stderr.readline())
        assert "service.allowed_hosts" in said[-1]
        assert "TLS" in said[-1]
        port = url.rpartition(":")[2]
        assert httpx.get(f"http://127.0.0.1:{port}/stats", trust_env=False).status_code == 401
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=20)
        assert process.returncode == 0
        assert log.endswith("stopped\n")


def test_serve_says_when_it_cannot_listen(project: Project):
    """A port in use: one line, exit 1."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = subprocess.run(
            [sys.executable, "-m", "rag_assets.cli", "--config", str(project.path), "serve",
             "--port", str(port)],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    assert result.returncode == 1
    assert f"rag-assets: cannot listen on 127.0.0.1 port {port}" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_token_is_shown_once_and_listed_without_its_secret(project: Project):
    """Standard output is the token alone, for scripts."""
    added = run(project, "token", "add", "wiki", "--acl", "public", "--acl", "service:hr")
    assert re.fullmatch(r"rag_[\w-]{43}\n", added.stdout)
    assert "not shown again" in added.stderr
    run(project, "token", "add", "root", "--everything", "--admin")
    listed = run(project, "token", "list").stdout
    assert re.search(r"^wiki: sees public, service:hr; since \S+Z$", listed, re.MULTILINE)
    assert re.search(r"^root: sees everything, admin; since \S+Z$", listed, re.MULTILINE)
    assert added.stdout.strip() not in listed


def test_tokens_speak_json(project: Project):
    """One object each."""

    def value(*arguments: str) -> dict[str, Any]:
        result = run(project, "token", *arguments, "--json")
        assert result.exit_code == 0
        parsed: dict[str, Any] = json.loads(result.stdout)
        return parsed

    assert value("list") == {"tokens": []}
    added = value("add", "wiki", "--acl", "public")
    assert (added["status"], added["name"]) == ("ok", "wiki")
    [row] = value("list")["tokens"]
    assert list(row) == ["name", "acl", "everything", "admin", "created_at"]
    assert value("rotate", "wiki")["token"] != added["token"]
    assert value("remove", "wiki") == {"status": "ok", "removed": "wiki"}
    assert value("list") == {"tokens": []}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "wiki"], "add --acl TAG"),
        (["add", "wiki", "--acl", "a b"], "not an ACL tag"),
        (["add", "wiki", "--acl", "x", "--everything"], "one or the other"),
        (["add", "../x", "--acl", "x"], "token name '../x'"),
        (["remove", "nobody"], "no token is named 'nobody'"),
        (["rotate", "nobody"], "no token is named 'nobody'"),
    ],
)
def test_a_wrong_token_command_is_one_line_and_exit_2(project: Project, arguments, message):
    """As every wrong use."""
    result = run(project, "token", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"port": 70000}, "service.port"),
        ({"hosts": []}, "service.hosts: unknown key"),
        ({"allowed_hosts": ["https://x"]}, "not a host name"),
        ({"allowed_origins": ["*"]}, "not an origin"),
        ({"allowed_origins": ["https://x/"]}, "not an origin"),
        ({"rate_per_minute": 0}, "service.rate_per_minute"),
        ({"dagster_url": "javascript:alert(1)"}, "not an address"),
    ],
)
def test_a_wrong_setting_of_the_service_is_named(project: Project, settings, message):
    """With file and line, as all settings."""
    project.configure(service=settings)
    result = run(project, "serve")
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("rag_assets.service.server", "dagster,numpy,apsw"),
        ("rag_assets.cli.serve", "dagster,uvicorn,starlette,pydantic"),
        ("rag_assets.cli.token", "dagster,uvicorn,starlette,pydantic"),
    ],
)
def test_what_is_not_needed_is_not_imported(module, absent):
    """The service runs without Dagster; a command shows its help at once."""
    code = f"import {module}, sys; print([m for m in '{absent}'.split(',') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "[]\n", result.stderr

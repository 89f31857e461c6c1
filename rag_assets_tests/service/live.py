"""A running service for tests: a small index with secrets in it, tokens, a real loopback socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from rag_assets.service.server import Server, build_server
from rag_assets.service.tokens import TokenStore
from rag_assets_tests.project import Project

HIDDEN = "Zibeline-7Q4"
"""Stands in the text, title, headings, path and front matter of everything that is not public."""


def write_handbook(project: Project) -> None:
    """Public documents in two languages, others for hr and admins, one for nobody; index them."""
    project.configure(
        sources=[
            {
                "name": "docs",
                "root": project.root.name,
                "acl": {"default": ["public"]},
                "url": "https://docs.example.org/{path}",
            },
            {"name": f"vault-{HIDDEN}", "root": "vault", "acl": {"default": ["admin_only"]}},
            {"name": "untagged", "root": "untagged"},
        ]
    )
    project.write(
        "vpn.md",
        "---\ntitle: VPN\nowner: Équipe réseau\n---\nBefore you begin.\n\n"
        "## Install the client\n\nDownload it & run `setup <all>`.\n",
    )
    project.write("rh/congés.md", "# Congés payés\n\nDemander ses congés à l’équipe RH.\n")
    project.write("badge.md", "# Badge\n\nRenew a badge at the front desk.\n")
    secret = f"---\ntitle: {HIDDEN} pay\nacl: service:hr\nkey{HIDDEN}: {HIDDEN}\n---\n"
    secret += f"# {HIDDEN} pay scale\n\nThe badge of {HIDDEN} opens the VPN vault. Congés payés.\n"
    project.write(f"hr/{HIDDEN}.md", secret)
    for folder in ("vault", "untagged"):
        file = project.folder / folder / f"{HIDDEN}.md"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"# {HIDDEN}\n\nVPN badge {HIDDEN}.\n", encoding="utf-8")
    project.run()


class Live:
    """A service in a thread. ``token`` makes tokens, ``get`` and ``post`` use them."""

    def __init__(self, project: Project, *, retriever: Any = None, **settings: Any) -> None:
        self.project = project
        project.configure(service={"port": 0, "rate_per_minute": 1_000_000, **settings})
        self.tokens = TokenStore(project.config.data_dir)
        self.secrets: dict[str, str] = {}
        self.url = ""
        started = threading.Event()

        def listening(address: str) -> None:
            self.url = address
            started.set()

        self.server: Server = build_server(project.config, listening=listening, retriever=retriever)
        self._thread = threading.Thread(target=self.server.run, daemon=True)
        self._thread.start()
        assert started.wait(20), "the service did not start"
        self.client = httpx.Client(base_url=self.url, timeout=20, trust_env=False)

    def token(self, name: str, *tags: str, everything: bool = False, admin: bool = False) -> str:
        """Make a token; its secret is also remembered under its name."""
        secret = self.tokens.add(name, acl_tags=tags, everything=everything, admin=admin)
        self.secrets[name] = secret
        return secret

    def headers(self, name: str | None) -> dict[str, str]:
        """The headers of the token of that name."""
        return {"Authorization": f"Bearer {self.secrets[name]}"} if name else {}

    def get(self, path: str, name: str | None = "reader") -> httpx.Response:
        """GET as the token of that name."""
        return self.client.get(path, headers=self.headers(name))

    def post(
        self, path: str, value: Mapping[str, Any], name: str | None = "reader"
    ) -> httpx.Response:
        """POST JSON as the token of that name."""
        return self.client.post(path, json=value, headers=self.headers(name))

    def raw(self, data: bytes, *, wait_seconds: float = 5.0) -> bytes:
        """What the service says to these bytes until it closes or falls silent."""
        port = int(self.url.rpartition(":")[2])
        answer = b""
        with socket.create_connection(("127.0.0.1", port), timeout=wait_seconds) as connection:
            connection.sendall(data)
            try:
                while part := connection.recv(65536):
                    answer += part
                    if _is_whole(answer):
                        break
            except (TimeoutError, ConnectionResetError):
                pass
        return answer

    def close(self) -> None:
        """Stop the service and wait for it."""
        self.client.close()
        self.server.should_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive(), "the service did not stop"


def _is_whole(answer: bytes) -> bool:
    head, found, body = answer.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if found and line.startswith(b"content-length:"):
            return len(body) >= int(line.partition(b":")[2])
    return False


def make_live(folder: Path, **settings: Any) -> Live:
    """A service over ``write_handbook`` with the tokens reader, hr, root (admin) and nobody."""
    project = Project(folder)
    write_handbook(project)
    live = Live(project, **settings)
    live.token("reader", "public")
    live.token("hr", "public", "service:hr")
    live.token("root", everything=True, admin=True)
    live.token("nobody", "no_such_tag")
    return live

"""A plain WebDAV server to test against: wsgidav over a real folder, on a real socket."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

USER: Final = "indexeur"
PASSWORD: Final = "app-Canari-5fJ2-password"


class WsgidavPeer:
    """``folder`` as the files of ``USER``; it is changed on the disk, as other programs do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self.requests: Counter[str] = Counter()

    def write(self, path: str, content: str | bytes) -> Path:
        """Create or replace a file, with its folders."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    def counting(self, app: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
        """The application, with each request counted by method, PROPFIND with its depth."""

        def counted(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            method = environ["REQUEST_METHOD"]
            depth = environ.get("HTTP_DEPTH", "infinity")
            self.requests[f"PROPFIND {depth}" if method == "PROPFIND" else method] += 1
            return app(environ, start_response)

        return counted


@contextmanager
def wsgidav_peer(folder: Path) -> Iterator[WsgidavPeer]:
    """A running server for ``folder``."""
    from cheroot.wsgi import Server
    from wsgidav.wsgidav_app import WsgiDAVApp

    peer = WsgidavPeer(folder)
    mount = f"/remote.php/dav/files/{USER}"
    app = WsgiDAVApp(
        {
            "provider_mapping": {mount: str(folder)},
            "simple_dc": {"user_mapping": {mount: {USER: {"password": PASSWORD}}}},
            "http_authenticator": {"accept_digest": False, "default_to_digest": False},
            "logging": {"enable": False},
            "verbose": 0,
        }
    )
    server = Server(("127.0.0.1", 0), peer.counting(app), numthreads=4)
    server.prepare()
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        peer.url = f"http://127.0.0.1:{server.bind_addr[1]}"
        yield peer
    finally:
        server.stop()
        thread.join(10)

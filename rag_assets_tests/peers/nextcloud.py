"""A Nextcloud to test against: sabre/dav under PHP, on a real socket."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final
from urllib.parse import quote

import httpx
import pytest

ROUTER: Final = Path(__file__).parent / "sabre" / "router.php"
USER: Final = "indexeur"
PASSWORD: Final = "app-Canari-5fJ2-password"
OWNER: Final = "marie"
OWNER_PASSWORD: Final = "owner-password"
WORKERS: Final = 4
READ: Final = 1

_SCHEMA: Final = """
CREATE TABLE node (
    id INTEGER PRIMARY KEY AUTOINCREMENT, parent INTEGER NOT NULL, name TEXT NOT NULL,
    is_folder INTEGER NOT NULL, etag TEXT NOT NULL DEFAULT '', mtime INTEGER NOT NULL DEFAULT 0,
    content BLOB, acl TEXT, group_folder TEXT, forbidden INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX node_parent ON node (parent, name);
CREATE TABLE account (user TEXT PRIMARY KEY, password TEXT NOT NULL);
CREATE TABLE membership (user TEXT NOT NULL, name TEXT NOT NULL);
CREATE TABLE share (
    id INTEGER PRIMARY KEY, owner TEXT NOT NULL, node INTEGER NOT NULL, share_type INTEGER NOT NULL,
    share_with TEXT, permissions INTEGER NOT NULL, expiration TEXT, password TEXT
);
"""
_DOCUMENTS: Final = """
WITH RECURSIVE below (id, path, is_folder) AS (
    SELECT id, '', 1 FROM node WHERE parent = 0 AND name = ?
    UNION ALL
    SELECT node.id, iif(path = '', name, path || '/' || name), node.is_folder
    FROM node JOIN below ON node.parent = below.id
)
SELECT path FROM below WHERE NOT is_folder AND path LIKE '%.md' ORDER BY path
"""


def unavailable() -> str | None:
    """Why the peer cannot run here, or None when it can."""
    if shutil.which("php") is None:
        return "php is not installed (Debian: php-cli)"
    check = "require 'Sabre/autoload.php'; new PDO('sqlite::memory:'); new DOMDocument();"
    done = subprocess.run(["php", "-r", check], capture_output=True, text=True, check=False)
    if done.returncode or done.stdout.strip():
        return "php lacks sabre/dav, SQLite or XML (Debian: php-sabre-dav php-sqlite3 php-xml)"
    return None


class NextcloudPeer:
    """One server with the accounts ``USER`` (who indexes) and ``OWNER`` (who shares).

    Files are added and changed over WebDAV, as any client does; what clients do by other means
    (shares, access lists) is written to the database of the peer.
    """

    def __init__(self, folder: Path, prefix: str = "", workers: int = WORKERS) -> None:
        self._folder = folder
        self._prefix = prefix
        self._workers = workers
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder / "requests.log"
        self._client = httpx.Client(timeout=30, verify=False, trust_env=False)
        self.url = ""
        with self._database() as db:
            db.executescript(_SCHEMA)
            for user, password in ((USER, PASSWORD), (OWNER, OWNER_PASSWORD)):
                db.execute("INSERT INTO account VALUES (?, ?)", (user, password))
                db.execute(
                    "INSERT INTO node (parent, name, is_folder, etag) VALUES (0, ?, 1, ?)",
                    (user, _new_etag()),
                )

    def __enter__(self) -> NextcloudPeer:
        for _ in range(5):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            self._start(port)
            if self._wait(port):
                self.url = f"http://127.0.0.1:{port}{self._prefix}"
                return self
            self.stop()
        raise RuntimeError("php -S did not start")

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._client.close()
        self.stop()

    def stop(self) -> None:
        """Stop the server; nobody answers at ``url`` any more."""
        if self._process is not None:
            # The workers are children in a session of their own. Whoever ignores SIGTERM, as a
            # program in the background may, has children that ignore it too.
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)
            self._process = None

    def put(self, path: str, content: str | bytes, user: str = USER) -> None:
        """Create or replace a file, with its folders."""
        folder = ""
        for name in path.split("/")[:-1]:
            folder = f"{folder}/{name}" if folder else name
            self._send("MKCOL", folder, user, accepted=(201, 405))
        data = content if isinstance(content, bytes) else content.encode()
        self._send("PUT", path, user, content=data, accepted=(201, 204))

    def make_folder(self, path: str, user: str = USER) -> None:
        """Create an empty folder."""
        self._send("MKCOL", path, user, accepted=(201,))

    def move(self, path: str, target: str, user: str = USER) -> None:
        """Rename or move a file or folder."""
        destination = self._address(target, user)
        self._send("MOVE", path, user, headers={"Destination": destination}, accepted=(201, 204))

    def delete(self, path: str, user: str = USER) -> None:
        """Remove a file, or a folder with all below it."""
        self._send("DELETE", path, user, accepted=(204,))

    def share(
        self,
        path: str,
        *,
        user: str | None = None,
        group: str | None = None,
        by: str = OWNER,
        permissions: int = READ,
        expiration: str | None = None,
        password: str | None = None,
    ) -> int:
        """Share a file or folder of ``by`` with a user, a group or, without either, by a link."""
        kind = 0 if user else 1 if group else 3
        values = (by, self.fileid(path, by), kind, user or group, permissions, expiration, password)
        with self._database() as db:
            added = db.execute(
                "INSERT INTO share (owner, node, share_type, share_with, permissions, expiration,"
                " password) VALUES (?, ?, ?, ?, ?, ?, ?)",
                values,
            )
            assert added.lastrowid is not None
            return added.lastrowid

    def unshare(self, share: int) -> None:
        """Take a share back."""
        with self._database() as db:
            db.execute("DELETE FROM share WHERE id = ?", (share,))

    def join(self, user: str, group: str) -> None:
        """Make a user a member of a group."""
        with self._database() as db:
            db.execute("INSERT INTO membership VALUES (?, ?)", (user, group))

    def make_group_folder(
        self, path: str, *, enabled: bool = True, can_manage: bool = True, base: int = 31
    ) -> None:
        """Make a folder of ``USER`` the mount of a group folder with advanced permissions."""
        state = {"enabled": int(enabled), "can_manage": int(can_manage), "base": base}
        with self._database() as db:
            db.execute(
                "UPDATE node SET group_folder = ? WHERE id = ?",
                (json.dumps(state), self.fileid(path)),
            )

    def set_acl(self, path: str, rules: Sequence[tuple[str, str, int, int]]) -> None:
        """Set the rules (mapping type, id, mask, permissions) of an entry of a group folder."""
        with self._database() as db:
            acl = json.dumps([list(rule) for rule in rules]) if rules else None
            fileid = self.fileid(path)
            db.execute("UPDATE node SET acl = ? WHERE id = ?", (acl, fileid))
            # The propagator of Nextcloud gives new ETags to the folders above, not to itself.
            self._touch_above(db, fileid)

    def forbid(self, path: str) -> None:
        """Let reading a file answer 403 (a rule of files_accesscontrol)."""
        with self._database() as db:
            db.execute("UPDATE node SET forbidden = 1 WHERE id = ?", (self.fileid(path),))

    def fill(self, folder: str, folders: int, files: int) -> list[tuple[str, int, str]]:
        """Many files at once, below ``folder``: path, fileid and ETag of each."""
        self.make_folder(folder)
        top = self.fileid(folder)
        filled = []
        with self._database() as db:
            for number in range(folders):
                name = f"dossier-{number:03}"
                parent = _insert(db, top, name, 1, None)
                for at in range(files):
                    text = f"# Fiche {number}-{at}\n\nTexte de la fiche.\n".encode()
                    fileid = _insert(db, parent, f"fiche-{at:03}.md", 0, text)
                    path = f"{folder}/{name}/fiche-{at:03}.md"
                    filled.append((path, fileid, f"e{fileid}"))
        return filled

    def fileid(self, path: str, user: str = USER) -> int:
        """The oc:fileid of a file or folder."""
        return int(self._node(path, user)[0])

    def etag(self, path: str, user: str = USER) -> str:
        """The ETag of a file or folder, without quotes."""
        return str(self._node(path, user)[1])

    def documents(self) -> list[str]:
        """The paths of all Markdown files of ``USER``."""
        with self._database() as db:
            found = db.execute(_DOCUMENTS, (USER,)).fetchall()
        return [path for (path,) in found]

    def requests(self) -> Counter[str]:
        """Requests since the last ``forget_requests`` by method, PROPFIND with its depth."""
        counts: Counter[str] = Counter()
        for line in self.request_lines():
            method, depth, target = line.split(" ", 2)
            kind = f"PROPFIND {depth}" if method == "PROPFIND" else method
            counts["shares" if "/ocs/" in target else kind] += 1
        return counts

    def request_lines(self) -> list[str]:
        """``METHOD depth target`` of each request since the last ``forget_requests``."""
        return self._log.read_text("utf-8").splitlines() if self._log.exists() else []

    def forget_requests(self) -> None:
        """Begin to count anew."""
        self._log.write_text("")

    def _node(self, path: str, user: str) -> tuple[int, str]:
        with self._database() as db:
            found = db.execute(
                "SELECT id, etag FROM node WHERE parent = 0 AND name = ?", (user,)
            ).fetchone()
            for name in path.split("/") if path else ():
                found = db.execute(
                    "SELECT id, etag FROM node WHERE parent = ? AND name = ?", (found[0], name)
                ).fetchone()
            return found[0], found[1]

    def _touch_above(self, db: sqlite3.Connection, fileid: int) -> None:
        while True:
            (fileid,) = db.execute("SELECT parent FROM node WHERE id = ?", (fileid,)).fetchone()
            if not fileid:
                return
            db.execute("UPDATE node SET etag = ? WHERE id = ?", (_new_etag(), fileid))

    def _address(self, path: str, user: str) -> str:
        quoted = quote(f"{user}/{path}", safe="/")
        return f"{self.url}/remote.php/dav/files/{quoted}"

    def _send(
        self,
        method: str,
        path: str,
        user: str,
        *,
        accepted: Sequence[int],
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        password = PASSWORD if user == USER else OWNER_PASSWORD
        response = self._client.request(
            method,
            self._address(path, user),
            content=content,
            headers=headers,
            auth=(user, password),
        )
        assert response.status_code in accepted, (method, path, response.status_code, response.text)

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(self._folder / "peer.sqlite", timeout=20)
        try:
            db.execute("PRAGMA synchronous = OFF")
            with db:
                yield db
        finally:
            db.close()

    def _start(self, port: int) -> None:
        environment = {
            **os.environ,
            "PEER_FOLDER": str(self._folder),
            "PEER_PREFIX": self._prefix,
            "PHP_CLI_SERVER_WORKERS": str(self._workers),
        }
        self._process = subprocess.Popen(
            ["php", "-d", "opcache.enable_cli=1", "-S", f"127.0.0.1:{port}", str(ROUTER)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _wait(self, port: int) -> bool:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                return False
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=1):
                    return True
            except OSError:
                time.sleep(0.02)
        return False


@contextmanager
def nextcloud_peer(prefix: str = "") -> Iterator[NextcloudPeer]:
    """A running peer in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder, NextcloudPeer(Path(folder), prefix) as peer:
        yield peer


def require_nextcloud_peer() -> None:
    """Skip the test where the peer cannot run; where all peers must run, fail it."""
    if (reason := unavailable()) is not None:
        if os.environ.get("RAG_ASSETS_TEST_PEERS") == "required":
            pytest.fail(f"RAG_ASSETS_TEST_PEERS=required, but {reason}")
        pytest.skip(reason)


def _insert(
    db: sqlite3.Connection, parent: int, name: str, is_folder: int, content: bytes | None
) -> int:
    added = db.execute(
        "INSERT INTO node (parent, name, is_folder, content, mtime) VALUES (?, ?, ?, ?, ?)",
        (parent, name, is_folder, content, 1_770_000_000),
    )
    assert added.lastrowid is not None
    db.execute("UPDATE node SET etag = ? WHERE id = ?", (f"e{added.lastrowid}", added.lastrowid))
    return added.lastrowid


def _new_etag() -> str:
    return os.urandom(16).hex()

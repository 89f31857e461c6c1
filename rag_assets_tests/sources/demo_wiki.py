"""A small wiki on a real socket, and connectors to it: a right one, and wrong ones by kind."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final
from urllib.parse import parse_qs, quote, urlsplit

import httpx

from rag_assets.acl import AclRules
from rag_assets.errors import IncompleteEnumeration, SourceError, SourceUnavailable
from rag_assets.http_client import HttpLimits
from rag_assets.models import SourceFile, SourceListing
from rag_assets.sources.remote import Entry, Enumeration, Fetched, RemoteSource
from rag_assets.sources.server_api import ServerApi

TOKEN: Final = "identifiant:s3cr3t-du-wiki-4711"
PAGE_SIZE: Final = 3
TEXTS: Final = {
    f"guides/page-{number:02}.md": f"# Page {number}\n\nL'été, le cœur de réseau n° {number}.\n"
    for number in range(8)
}


class DemoWiki:
    """Serves ``TEXTS`` to those who send the token: a paged JSON listing, an XML one, raw pages.

    ``GET /api/pages?offset=&count=`` gives ``{"data": [{"id", "path", "sha"}], "total"}``,
    ``GET /api/pages.xml`` the same whole in XML, ``GET /api/pages/<id>`` one page in JSON,
    ``GET /raw/<path>`` its bytes.
    """

    def __init__(self, texts: Mapping[str, str] = TEXTS) -> None:
        self.texts = dict(texts)
        handler = type("Handler", (_Handler,), {"wiki": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> DemoWiki:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def pages(self) -> list[dict[str, Any]]:
        """All pages as they are listed."""
        return [
            {"id": number, "path": path, "sha": _sha(text)}
            for number, (path, text) in enumerate(sorted(self.texts.items()), start=1)
        ]

    def answer(self, target: str) -> tuple[int, str, bytes]:
        """Status, content type and body."""
        parts = urlsplit(target)
        if parts.path == "/api/pages":
            query = {key: int(values[0]) for key, values in parse_qs(parts.query).items()}
            start, count = query.get("offset", 0), query.get("count", PAGE_SIZE)
            pages = self.pages()
            return _json({"data": pages[start : start + count], "total": len(pages)})
        if parts.path == "/api/pages.xml":
            rows = "".join(f'<page path="{p["path"]}" sha="{p["sha"]}"/>' for p in self.pages())
            text = f'<?xml version="1.0" encoding="utf-8"?>\n<pages>{rows}</pages>'
            return 200, "application/xml; charset=utf-8", text.encode()
        if parts.path.startswith("/raw/"):
            text = self.texts.get(parts.path.removeprefix("/raw/"), "")
            return (200, "text/markdown; charset=utf-8", text.encode()) if text else _NOT_FOUND
        for page in self.pages():
            if parts.path == f"/api/pages/{page['id']}":
                return _json({**page, "text": self.texts[page["path"]]})
        return _NOT_FOUND


def _json(value: object, status: int = 200) -> tuple[int, str, bytes]:
    return status, "application/json", json.dumps(value).encode()


_NOT_FOUND: Final = _json({"error": {"code": 404, "message": "no such page"}}, 404)


class _Handler(BaseHTTPRequestHandler):
    wiki: ClassVar[DemoWiki]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        allowed = TOKEN in (self.headers.get("Authorization", "").removeprefix("Token "),
                            self.headers.get("X-Token"))  # fmt: skip
        refusal = _json({"error": {"code": 401, "message": "token?"}}, 401)
        status, kind, body = self.wiki.answer(self.path) if allowed else refusal
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def _sha(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


# ---------------------------------------------------------------- right connectors


class WikiSource(RemoteSource):
    """Pages by the JSON listing."""

    def __init__(self, url: str, limits: HttpLimits) -> None:
        headers = {"Authorization": f"Token {TOKEN}"}
        self.api = ServerApi(
            "wiki", url, headers=headers, secrets=(TOKEN,), limits=limits, requests_per_minute=6000
        )
        super().__init__("wiki", "demo", api=self.api, settings={}, acl=AclRules(("public",)))

    def _enumerate(self, state: Mapping[str, Any] | None) -> Enumeration:
        entries: dict[str, Entry] = {}
        total = None
        while total is None or len(entries) < total:
            query = {"offset": len(entries), "count": PAGE_SIZE}
            rows, total = self._page(query, total)
            if entries.keys() & {row.path for row in rows}:
                self.api.malformed("/api/pages", "listed a page twice")
            entries |= {row.path: row for row in rows}
        return Enumeration(list(entries.values()))

    def _page(self, query: Mapping[str, object], total: int | None) -> tuple[list[Entry], int]:
        value = self.api.json("/api/pages", query=query)
        if not isinstance(value, dict) or type(value.get("total")) is not int:
            self.api.malformed("/api/pages", "answered another structure")
        rows = value.get("data")
        if not isinstance(rows, list) or not (rows or value["total"] == 0):
            self.api.malformed("/api/pages", "answered a page without items")
        if total not in (None, value["total"]):
            self.api.malformed("/api/pages", "changed while it was listed")
        return [self._entry(row) for row in rows], value["total"]

    def _entry(self, row: Any) -> Entry:
        fields = [row.get(key) for key in ("path", "sha", "id")] if isinstance(row, dict) else []
        if [type(value) for value in fields] != [str, str, int]:
            self.api.malformed("/api/pages", "answered an item that is not a page")
        return Entry(fields[0], fields[1], handle=fields[2])

    def _fetch(self, entry: Entry) -> Fetched:
        value = self.api.json(f"/api/pages/{entry.handle}")
        text = value.get("text") if isinstance(value, dict) else None
        if not isinstance(text, str) or _sha(text) != entry.version:
            self.api.malformed(f"/api/pages/{entry.handle}", "answered another page")
        return Fetched(text.encode())


class XmlWikiSource(WikiSource):
    """Pages by the XML listing, contents raw."""

    def _enumerate(self, state: Mapping[str, Any] | None) -> Enumeration:
        import xml.etree.ElementTree as ElementTree

        from defusedxml import DefusedXmlException
        from defusedxml.ElementTree import fromstring

        body = self.api.send("GET", "/api/pages.xml").content
        try:
            root = fromstring(body, forbid_dtd=True)
            pages = [Entry(p.attrib["path"], p.attrib["sha"]) for p in root.iter("page")]
        except (DefusedXmlException, ElementTree.ParseError, ValueError, KeyError):
            self.api.malformed("/api/pages.xml", "answered what cannot be read")
        if root.tag != "pages":
            self.api.malformed("/api/pages.xml", "answered what is not a list of pages")
        return Enumeration(pages)

    def _fetch(self, entry: Entry) -> Fetched:
        content = self.api.send("GET", "/raw/" + quote(entry.path)).content
        if _sha(content) != entry.version:
            self.api.malformed("/raw/" + quote(entry.path), "answered another page")
        return Fetched(content)


# ---------------------------------------------------------------- wrong connectors


class GivesPartialListings(WikiSource):
    """What it has when a later page fails is passed off as all."""

    def _page(self, query: Mapping[str, object], total: int | None) -> tuple[list[Entry], int]:
        try:
            return super()._page(query, total)
        except SourceError:
            if total is None:
                raise
            return [], 0


class GivesNothingWhenDown(WikiSource):
    """A server that does not answer has no documents, it thinks."""

    def list(self, known: Mapping[str, SourceFile] | None = None) -> SourceListing:
        try:
            return super().list(known)
        except SourceError:
            return SourceListing(self.name, (), (), 0, {})


class SkipsUnreadablePages(WikiSource):
    """A page that cannot be had is not mentioned."""

    def list(self, known: Mapping[str, SourceFile] | None = None) -> SourceListing:
        found = super().list(known)
        return SourceListing(found.source, found.files, (), 0, found.look_state, found.read)


class BelievesEveryText(WikiSource):
    """Whatever comes with status 200 is the page."""

    def _fetch(self, entry: Entry) -> Fetched:
        return Fetched(self.api.send("GET", f"/api/pages/{entry.handle}").content)


class LogsTheToken(WikiSource):
    """Says in the log how it asks."""

    def _enumerate(self, state: Mapping[str, Any] | None) -> Enumeration:
        logging.getLogger("demo").debug("asking with %s", {"Authorization": f"Token {TOKEN}"})
        return super()._enumerate(state)


class PrintsTheToken(WikiSource):
    """Debugging that was left in."""

    def _enumerate(self, state: Mapping[str, Any] | None) -> Enumeration:
        print("token", TOKEN)
        return super()._enumerate(state)


class TellsTheTokenInErrors(WikiSource):
    """The error quotes the request."""

    def _enumerate(self, state: Mapping[str, Any] | None) -> Enumeration:
        try:
            return super()._enumerate(state)
        except SourceError as error:
            raise SourceUnavailable(f"{error} (sent: Token {TOKEN})") from error


class KeepsTheTokenInItsState(WikiSource):
    """The token is stored with what the next look needs."""

    def _enumerate(self, state: Mapping[str, Any] | None) -> Enumeration:
        found = super()._enumerate(state)
        return Enumeration(found.entries, state={"headers": [f"Token {TOKEN}"]})


class RaisesWhatComes(WikiSource):
    """Errors of libraries go through."""

    def _page(self, query: Mapping[str, object], total: int | None) -> tuple[list[Entry], int]:
        value = json.loads(self.api.send("GET", "/api/pages", query=query).content)
        return [Entry(r["path"], r["sha"], handle=r["id"]) for r in value["data"]], value["total"]


class SaysNothingOfItself(WikiSource):
    """An error without the source, the server and a remedy."""

    def list(self, known: Mapping[str, SourceFile] | None = None) -> SourceListing:
        try:
            return super().list(known)
        except SourceError:
            raise IncompleteEnumeration("something went wrong") from None


class GivesUpAtOnce(WikiSource):
    """One failure is enough."""

    def __init__(self, url: str, limits: HttpLimits) -> None:
        impatient = HttpLimits(**{**_fields(limits), "retries": 0})
        super().__init__(url, impatient)


class TakesDuplicates(WikiSource):
    """A page that was listed twice is a document twice."""

    def list(self, known: Mapping[str, SourceFile] | None = None) -> SourceListing:
        entries: list[Entry] = []
        total = None
        for offset in range(0, len(TEXTS), PAGE_SIZE):
            rows, total = self._page({"offset": offset, "count": PAGE_SIZE}, total)
            entries += rows
        files = tuple(self._file(entry) for entry in entries)
        return SourceListing(self.name, files, (), 0, {}, len(files))

    def _file(self, entry: Entry) -> SourceFile:
        content, sha = self._fetch(entry).content, entry.version
        return SourceFile(self.name, entry.path, "", content, sha, None, ("public",), sha)


class KeepsWhatWasWrong(WikiSource):
    """What was read is kept for the next time before it is looked at."""

    kept: ClassVar[dict[str, bytes]] = {}

    def _fetch(self, entry: Entry) -> Fetched:
        place = f"{self.api.address}/{entry.path}"
        if place not in self.kept:
            value = self.api.json(f"/api/pages/{entry.handle}")
            self.kept[place] = str(value["text"]).encode() if value else b"?"
            return super()._fetch(entry)
        return Fetched(self.kept[place])


class AsksWithoutLimits(WikiSource):
    """Its own client: follows redirects anywhere with its header, reads bodies of any size."""

    verify: ClassVar[bool] = True

    def list(self, known: Mapping[str, SourceFile] | None = None) -> SourceListing:
        self.client = httpx.Client(
            headers={"X-Token": TOKEN}, follow_redirects=True, timeout=1.0, verify=self.verify
        )
        with self.client:
            return super().list(known)

    def _get(self, path: str) -> Any:
        try:
            answer = self.client.get(self.api.address + path)
            answer.raise_for_status()
            return answer.json()
        except (httpx.HTTPError, ValueError, RecursionError) as error:
            raise SourceUnavailable(f"source wiki: {self.api.address}: {error}") from error

    def _page(self, query: Mapping[str, object], total: int | None) -> tuple[list[Entry], int]:
        value = self._get(f"/api/pages?offset={query['offset']}&count={query['count']}")
        return [self._entry(row) for row in value["data"]], value["total"]

    def _fetch(self, entry: Entry) -> Fetched:
        return Fetched(self._get(f"/api/pages/{entry.handle}")["text"].encode())


class TrustsAnyCertificate(AsksWithoutLimits):
    """Certificates are a nuisance, it thinks."""

    verify = False


class AsksForEver(WikiSource):
    """A next page is always asked for."""

    def _enumerate(self, state: Mapping[str, Any] | None) -> Enumeration:
        entries: dict[str, Entry] = {}
        offset, total = 0, 1
        while offset < total:
            value = self.api.json("/api/pages", query={"offset": offset, "count": PAGE_SIZE})
            entries |= {row["path"]: self._entry(row) for row in value["data"]}
            offset, total = offset + PAGE_SIZE, value["total"]
        return Enumeration(list(entries.values()))


def _fields(limits: HttpLimits) -> dict[str, Any]:
    return {name: getattr(limits, name) for name in HttpLimits.__dataclass_fields__}

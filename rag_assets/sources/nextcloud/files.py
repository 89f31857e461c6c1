"""The files of one Nextcloud account over WebDAV: folders listed, files read and verified."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn
from urllib.parse import unquote, urlsplit

from rag_assets.errors import IncompleteEnumeration
from rag_assets.http_client import Response
from rag_assets.models import HTML
from rag_assets.sources.nextcloud.acl import ACL_PROPERTIES, INHERITED_ACL_LIST, NodeAcl, acl_of
from rag_assets.sources.nextcloud.tree import (
    PROPERTIES,
    Folder,
    Item,
    folder_of,
    item_of,
    media_type_of,
)
from rag_assets.sources.nextcloud.webdav import (
    NotMultistatus,
    Row,
    plain_etag,
    propfind,
    quoted_path,
    read_multistatus,
    utc_time,
)
from rag_assets.sources.path_names import printable
from rag_assets.sources.server_api import Refused, ServerApi, TooLarge

MOST_LISTING_BYTES: Final = 64 * 1024 * 1024
"""One folder of 100,000 files is half of that."""
READ_ATTEMPTS: Final = 3
"""A file that is written while it is read is read again."""


@dataclass(frozen=True, slots=True)
class FileRead:
    """The content of a file, and the file as the server described it with this content."""

    content: bytes = field(repr=False)
    item: Item


class NextcloudFiles:
    """The files of ``user``; paths are relative to them, POSIX, ``""`` for all.

    ``office`` and ``acl_list`` are as in the settings. Safe to share between threads.
    """

    def __init__(self, api: ServerApi, user: str, *, office: bool, acl_list: bool) -> None:
        self._api = api
        self._office = office
        self._acl_list = acl_list
        self._base = ("remote.php", "dav", "files", user)
        # What stands before it in hrefs when the server lives below a path of its host.
        prefix = unquote(urlsplit(api.address).path)
        self._prefix = tuple(name for name in prefix.split("/") if name)
        acl = ACL_PROPERTIES if acl_list else ()
        self._listing = propfind((*PROPERTIES, *acl))
        self._root_listing = propfind((*PROPERTIES, *acl, *((INHERITED_ACL_LIST,) if acl else ())))
        self._single = propfind(PROPERTIES)

    @property
    def address(self) -> str:
        """Where the files are, for messages."""
        return self._api.address + self.target("")

    def target(self, path: str) -> str:
        """The path of a request for a file or folder."""
        return quoted_path((*self._base, *_names(path)))

    def list_root(self, path: str) -> tuple[Item, Folder]:
        """A folder at which a walk begins, and what it holds.

        Raises:
            NotThere, IncompleteEnumeration, SourceUnavailable: it is not listed, whole.
        """
        own, rows = self._list(path, self._root_listing)
        item = item_of(own, self._acl(own, inherited=True))
        return item, self._folder(path, item.etag, rows)

    def list_folder(self, path: str, item: Item) -> tuple[Folder, bool]:
        """What a folder holds, and whether it still is as ``item`` says.

        Raises:
            NotThere, IncompleteEnumeration, SourceUnavailable: it is not listed, whole.
        """
        own, rows = self._list(path, self._listing)
        now = item_of(own)
        same = (now.fileid, now.etag) == (item.fileid, item.etag)
        return self._folder(path, item.etag, rows), same

    def look_at(self, path: str) -> Item:
        """A file or folder as it is now; one request.

        Raises:
            NotThere, IncompleteEnumeration, SourceUnavailable: it cannot be told.
        """
        own, _ = self._propfind(path, self._single, depth=0)
        return item_of(own)

    def read(self, path: str, item: Item, max_bytes: int) -> FileRead:
        """The content of a file that was listed as ``item``.

        It counts when ETag and length of the answer are those of the file, as listed or, if it
        changed since, as the server describes it now: a login page is not taken for it.

        Raises:
            NotThere, Refused, TooLarge: this one cannot be read, others can.
            IncompleteEnumeration, SourceUnavailable: give up.
        """
        target = self.target(path)
        for _ in range(READ_ATTEMPTS):
            response = self._api.send("GET", target, max_response_bytes=max_bytes)
            if not self._is(item, response, path):
                item = self.look_at(path)
            if self._is(item, response, path):
                return FileRead(response.content, item)
        self._api.malformed(
            target, "answered contents whose ETag or length is not that of the file"
        )

    def _is(self, item: Item, response: Response, path: str) -> bool:
        """Whether an answer is the content of a file."""
        if item.size_bytes is not None and item.size_bytes != len(response.content):
            return False
        headers = response.headers
        if item.etag:
            etags = (headers.get("oc-etag"), headers.get("etag"))
            return item.etag in map(plain_etag, etags)
        modified = utc_time(headers.get("last-modified"))
        if modified is not None:
            return modified == item.modified_at
        html = headers.get("content-type", "").lower().startswith((HTML, "application/xhtml"))
        return item.size_bytes is not None and (not html or media_type_of(path, True) == HTML)

    def _list(self, path: str, body: bytes) -> tuple[Row, Sequence[Row]]:
        try:
            own, rows = self._propfind(path, body, depth=1)
        except Refused as exc:
            raise IncompleteEnumeration(
                f"{exc}; nothing was removed. Or leave {printable(path)!r} out with excluded_paths"
            ) from exc
        if not own.is_folder:
            self._malformed(path, "is a file, not a folder")
        return own, rows

    def _propfind(self, path: str, body: bytes, *, depth: int) -> tuple[Row, Sequence[Row]]:
        """The row of ``path`` itself, and those of its entries."""
        try:
            response = self._api.send(
                "PROPFIND",
                self.target(path),
                headers={"Depth": str(depth), "Content-Type": "application/xml; charset=utf-8"},
                content=body,
                expected=(200, 207),
                max_response_bytes=MOST_LISTING_BYTES,
            )
        except TooLarge as exc:
            raise IncompleteEnumeration(
                f"{exc}; nothing was removed. Split the folder, or exclude it with excluded_paths"
            ) from exc
        if response.status_code != 207:
            self._malformed(path, "answered 200 (a login page?) and not 207 to a PROPFIND")
        try:
            own, rows = self._sorted(path, read_multistatus(response.content))
        except NotMultistatus as exc:
            self._malformed(path, f"answered a multistatus that {exc}")
        if rows and not depth:
            self._malformed(path, "answered a multistatus of more than was asked for")
        return own, rows

    def _sorted(self, path: str, found: Iterable[Row]) -> tuple[Row, Sequence[Row]]:
        """The row of ``path`` itself, and those of its entries; there may be no others.

        Raises:
            NotMultistatus: there are others, or the row of ``path`` is missing.
        """
        expected = (*self._prefix, *self._base, *_names(path))
        own: Row | None = None
        rows: list[Row] = []
        for row in found:
            if row.segments == expected and own is None:
                own = row
            elif row.segments[:-1] == expected:
                rows.append(row)
            else:
                where = quoted_path(row.segments)[:200]
                raise NotMultistatus(f"lists {where}, which does not belong there")
        if own is None:
            raise NotMultistatus("lacks what was asked for itself")
        return own, rows

    def _folder(self, path: str, etag: str, rows: Sequence[Row]) -> Folder:
        try:
            return folder_of(etag, ((row, self._acl(row)) for row in rows), self._office)
        except NotMultistatus as exc:
            self._malformed(path, f"answered a multistatus that {exc}")

    def _acl(self, row: Row, *, inherited: bool = False) -> NodeAcl:
        return acl_of(row, inherited=inherited) if self._acl_list else ()

    def _malformed(self, path: str, why: str) -> NoReturn:
        self._api.malformed(self.target(path), why, method="PROPFIND")


def _names(path: str) -> Sequence[str]:
    return path.split("/") if path else ()

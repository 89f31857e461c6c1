"""Folders of a Nextcloud as they were listed, and as they are remembered from look to look."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rag_assets.fingerprints import fingerprint
from rag_assets.models import MARKDOWN_TYPES, OFFICE_TYPES
from rag_assets.sources.governance import IGNORE_FILE
from rag_assets.sources.nextcloud.acl import NodeAcl
from rag_assets.sources.nextcloud.webdav import DAV, NotMultistatus, Row

OWNCLOUD: Final = "{http://owncloud.org/ns}"
FILEID: Final = f"{OWNCLOUD}fileid"
PROPERTIES: Final = (
    f"{DAV}resourcetype",
    f"{DAV}getetag",
    f"{DAV}getcontentlength",
    f"{DAV}getlastmodified",
    FILEID,
)
"""What every listing asks for."""

# A number in Nextcloud; other servers of the family use UUIDs joined by '$' and '!'.
_FILEID: Final = re.compile(r"[\w$!.:-]{1,200}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Item:
    """A file or folder as the listing of its folder shows it."""

    name: str
    fileid: str
    """Stays the same when it is renamed or moved; empty when the server has no such thing."""
    etag: str
    """Without quotes; empty when the server gives none. A folder's changes with everything below,
    if there is a ``fileid``."""
    size_bytes: int | None = None
    modified_at: str | None = None
    acl: NodeAcl = ()
    """The access rules set on it itself."""

    def version(self, path: str) -> str:
        """The change marker of its content; empty when the server gives nothing to tell by."""
        if self.fileid and self.etag:
            return f"{self.fileid}:{self.etag}"
        if self.etag:
            return fingerprint(path, self.etag)
        if self.size_bytes is None or self.modified_at is None:
            return ""
        return fingerprint(path, self.size_bytes, self.modified_at)


@dataclass(frozen=True, slots=True)
class Folder:
    """What one folder holds."""

    etag: str
    """The ETag that it had, by the listing of the folder above, before it was listed."""
    documents: tuple[Item, ...]
    folders: tuple[Item, ...]
    ignore_file: Item | None
    other_files: int


def media_type_of(name: str, office: bool) -> str | None:
    """The media type of a document by its suffix; None when it is no document."""
    suffix = name[name.rfind(".") :].lower() if "." in name else ""
    return MARKDOWN_TYPES.get(suffix) or (OFFICE_TYPES.get(suffix) if office else None)


def item_of(row: Row, acl: NodeAcl = ()) -> Item:
    """The item that a row of a multistatus describes."""
    fileid = row.text(FILEID)
    return Item(
        name=row.segments[-1] if row.segments else "",
        fileid=fileid if _FILEID.fullmatch(fileid) else "",
        etag=row.etag,
        size_bytes=row.size_bytes,
        modified_at=row.modified_at,
        acl=acl,
    )


def folder_of(etag: str, rows: Iterable[tuple[Row, NodeAcl]], office: bool) -> Folder:
    """What the rows of a folder's entries, the folder itself left out, say it holds.

    Raises:
        NotMultistatus: an entry is listed twice, or cannot be told apart from its next version.
    """
    documents: list[Item] = []
    folders: list[Item] = []
    ignore_file: Item | None = None
    names: set[str] = set()
    for row, acl in rows:
        item = item_of(row, acl)
        if item.name in names:
            raise NotMultistatus(f"lists {item.name[:200]!r} twice")
        names.add(item.name)
        if row.is_folder:
            folders.append(replace(item, size_bytes=None, modified_at=None))
            continue
        if item.name == IGNORE_FILE:
            ignore_file = item
        elif media_type_of(item.name, office) is None:
            continue
        else:
            documents.append(item)
        if not item.version(""):
            raise NotMultistatus(f"gives neither an ETag nor a date for {item.name[:200]!r}")
    others = len(names) - len(folders) - len(documents)
    return Folder(etag, tuple(documents), tuple(folders), ignore_file, others)


def to_json(folders: Mapping[str, Folder]) -> dict[str, Any]:
    """Folders by fileid in the compact form that is kept between two looks."""
    return {
        fileid: [
            folder.etag,
            folder.other_files,
            _item_to_json(folder.ignore_file) if folder.ignore_file else None,
            [_item_to_json(item) for item in folder.documents],
            [_item_to_json(item) for item in folder.folders],
        ]
        for fileid, folder in folders.items()
    }


def from_json(kept: Mapping[str, Any]) -> dict[str, Folder]:
    """The folders of ``to_json``; none when they are not as it wrote them."""
    try:
        return {
            fileid: Folder(
                etag=etag,
                other_files=others,
                ignore_file=_item_from_json(ignore) if ignore else None,
                documents=tuple(map(_item_from_json, documents)),
                folders=tuple(map(_item_from_json, folders)),
            )
            for fileid, (etag, others, ignore, documents, folders) in kept.items()
        }
    except (AttributeError, TypeError, ValueError):
        return {}


def _item_to_json(item: Item) -> list[Any]:
    fields = [item.name, item.fileid, item.etag, item.size_bytes, item.modified_at]
    return [*fields, [list(rule) for rule in item.acl]] if item.acl else fields


def _item_from_json(kept: Sequence[Any]) -> Item:
    name, fileid, etag, size, modified, *rest = kept
    acl = tuple((principal, allowed) for principal, allowed in rest[0]) if rest else ()
    return Item(name, fileid, etag, size, modified, acl)

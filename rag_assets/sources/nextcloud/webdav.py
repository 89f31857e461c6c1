"""Multistatus answers of WebDAV servers (RFC 4918), read as the hostile XML they may be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timezone
from email.utils import parsedate_to_datetime
from io import BytesIO
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

DAV: Final = "{DAV:}"
MOST_DEPTH: Final = 32
"""Elements inside each other; a list of access rules, the deepest we ask for, has seven."""
MOST_ROWS: Final = 500_000
"""Entries of one folder."""
MOST_ELEMENTS: Final = 10_000
"""Elements of one row, or between two: a list of 1,000 access rules has 6,000."""

_RESPONSE: Final = f"{DAV}response"
_STATUS: Final = re.compile(r"\s*HTTP/\d(?:\.\d)?\s+(\d{3})\b")
_ORIGIN: Final = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
_SIZE: Final = re.compile(r"\d{1,18}")
# Apache's mod_deflate and mod_brotli add these to the ETag of a body that they compress.
_COMPRESSED: Final = re.compile(r"(?:-|;)(?:gzip|br|deflate)$")


class NotMultistatus(ValueError):
    """The answer is not what a WebDAV server says to a PROPFIND; the text tells why."""


@dataclass(frozen=True, slots=True)
class Row:
    """One resource as a multistatus describes it."""

    segments: tuple[str, ...]
    """The decoded names of its path, from the root of the server down. Bytes that are not UTF-8
    are kept as surrogates."""
    is_folder: bool
    etag: str
    """Without quotes; empty when the server gives none."""
    size_bytes: int | None
    modified_at: str | None
    """ISO 8601, UTC, whole seconds."""
    properties: Mapping[str, Element] = field(repr=False)
    """Every property that came with status 200, by its name in Clark notation."""
    refused: frozenset[str] = frozenset()
    """Properties that came with another status than 200 and 404: they are there, unseen."""

    def text(self, name: str) -> str:
        """The text of a property, stripped; empty when it did not come."""
        return _text(self.properties, name)


def propfind(names: Iterable[str]) -> bytes:
    """The body of a PROPFIND for properties in Clark notation."""
    asked = []
    for name in names:
        namespace, _, local = name[1:].partition("}")
        asked.append(f'<{local} xmlns="{namespace}"/>')
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<d:propfind xmlns:d="DAV:"><d:prop>{"".join(asked)}</d:prop></d:propfind>'
    ).encode()


def read_multistatus(content: bytes) -> Iterator[Row]:
    """The rows of a multistatus, one after the other.

    Raises:
        NotMultistatus: not well-formed to its end, no multistatus, with a document type or an
            entity, too deep or too long; or a row says that it could not be read.
    """
    from xml.etree.ElementTree import ParseError

    from defusedxml import DefusedXmlException

    count = 0
    try:
        for response in _responses(content):
            count += 1
            if count > MOST_ROWS:
                raise NotMultistatus(f"lists more than {MOST_ROWS:,} entries")
            yield _row(response)
    except ParseError as exc:
        raise NotMultistatus(f"is not well-formed XML ({exc})") from exc
    except DefusedXmlException as exc:
        raise NotMultistatus("has a document type or entities, which are refused") from exc
    except (LookupError, UnicodeError) as exc:  # an encoding that Python does not know
        raise NotMultistatus("is in an unknown encoding") from exc


def _responses(content: bytes) -> Iterator[Element]:
    """Each ``response`` element; what was read is dropped, so that a long answer stays small."""
    from defusedxml.ElementTree import iterparse

    root: Element | None = None
    depth = elements = 0
    for event, element in iterparse(BytesIO(content), events=("start", "end"), forbid_dtd=True):
        if event == "start":
            depth += 1
            if root is None:
                root = element
                if element.tag != f"{DAV}multistatus":
                    raise NotMultistatus("is XML, but no multistatus")
            elements += 1
            if depth > MOST_DEPTH:
                raise NotMultistatus(f"is more than {MOST_DEPTH} elements deep")
            if elements > MOST_ELEMENTS:
                raise NotMultistatus(f"has more than {MOST_ELEMENTS:,} elements in or between rows")
            continue
        depth -= 1
        if depth == 1 and root is not None:
            if element.tag == _RESPONSE:
                yield element
                elements = 0
            root.clear()


def segments_of(href: str) -> tuple[str, ...]:
    """The decoded names of the path of an ``href``, be it a path or a whole address.

    Raises:
        NotMultistatus: it is no path, or a name in it is none.
    """
    path = _ORIGIN.sub("", href.strip(), count=1)
    if not path.startswith("/"):
        raise NotMultistatus(f"names {href[:80]!r}, which is no path")
    names = tuple(unquote(name, errors="surrogateescape") for name in path.split("/") if name != "")
    if any("/" in name or "\0" in name or name in (".", "..") for name in names):
        raise NotMultistatus(f"names {href[:80]!r}, which is no path")
    return names


def quoted_path(segments: Iterable[str]) -> str:
    """The path of decoded names, percent-encoded: ``/a%20b/c``."""
    return "".join("/" + quote(name, safe="", errors="surrogateescape") for name in segments)


def plain_etag(value: str | None) -> str:
    """An ETag without quotes, weakness, and what a compressing proxy added; empty for None."""
    text = (value or "").strip().removeprefix("W/").strip('"')
    return _COMPRESSED.sub("", text)


def utc_time(http_date: str | None) -> str | None:
    """An HTTP date as ISO 8601, UTC, whole seconds; None when it is none."""
    try:
        moment = parsedate_to_datetime(http_date or "")
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=timezone.utc)
        return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _row(response: Element) -> Row:
    hrefs = response.findall(f"{DAV}href")
    if len(hrefs) != 1 or not hrefs[0].text:
        raise NotMultistatus("has a row that does not name one resource")
    segments = segments_of(hrefs[0].text)
    status = response.find(f"{DAV}status")
    if status is not None and (code := _status(status)) != 200:
        raise NotMultistatus(f"says {code} for {quoted_path(segments)[:200]}")
    properties: dict[str, Element] = {}
    refused: set[str] = set()
    for propstat in response.findall(f"{DAV}propstat"):
        code = _status(propstat.find(f"{DAV}status"))
        for element in propstat.find(f"{DAV}prop") or ():
            if code == 200:
                properties[element.tag] = element
            elif code != 404:
                refused.add(element.tag)
    kind = properties.get(f"{DAV}resourcetype")
    if kind is None:
        raise NotMultistatus(f"does not tell whether {quoted_path(segments)[:200]} is a folder")
    size = _text(properties, f"{DAV}getcontentlength")
    return Row(
        segments,
        is_folder=kind.find(f"{DAV}collection") is not None,
        etag=plain_etag(_text(properties, f"{DAV}getetag")),
        size_bytes=int(size) if _SIZE.fullmatch(size) else None,
        modified_at=utc_time(_text(properties, f"{DAV}getlastmodified")),
        properties=properties,
        refused=frozenset(refused - properties.keys()),
    )


def _text(properties: Mapping[str, Element], name: str) -> str:
    element = properties.get(name)
    return (element.text or "").strip() if element is not None else ""


def _status(element: Element | None) -> int:
    found = _STATUS.match(element.text or "") if element is not None else None
    if found is None:
        raise NotMultistatus("has a row without a status")
    return int(found[1])

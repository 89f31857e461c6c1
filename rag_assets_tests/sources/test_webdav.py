"""What is read from a multistatus, and what is refused."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_assets.sources.nextcloud.webdav import (
    DAV,
    NotMultistatus,
    Row,
    plain_etag,
    propfind,
    quoted_path,
    read_multistatus,
    segments_of,
    utc_time,
)

NAMES = st.text(
    st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=30
).filter(lambda name: name not in (".", ".."))


def multistatus(*responses: str) -> bytes:
    """A multistatus of these ``response`` elements."""
    body = "".join(f"<d:response>{response}</d:response>" for response in responses)
    return f'<?xml version="1.0"?><d:multistatus xmlns:d="DAV:">{body}</d:multistatus>'.encode()


def response(href: str, props: str = "<d:resourcetype/>", status: str = "HTTP/1.1 200 OK") -> str:
    """One ``response`` with one ``propstat``."""
    found = f"<d:propstat><d:prop>{props}</d:prop><d:status>{status}</d:status></d:propstat>"
    return f"<d:href>{href}</d:href>{found}"


def rows(content: bytes) -> list[Row]:
    return list(read_multistatus(content))


def test_a_row_has_what_came_with_status_200() -> None:
    """A property that is missing (404) is empty; one that is refused is told apart."""
    (row,) = rows(
        multistatus(
            "<d:href>/dav/%C3%A9t%c3%a9/a%20b.md</d:href>"
            "<d:propstat><d:prop><d:resourcetype/><d:getetag>&quot;e1&quot;</d:getetag>"
            "<d:getlastmodified>Sun, 01 Mar 2026 09:30:00 GMT</d:getlastmodified></d:prop>"
            "<d:status>HTTP/1.1 200 OK</d:status></d:propstat>"
            "<d:propstat><d:prop><d:getcontentlength/></d:prop>"
            "<d:status>HTTP/1.1 404 Not Found</d:status></d:propstat>"
            "<d:propstat><d:prop><d:owner/></d:prop>"
            "<d:status>HTTP/1.1 403 Forbidden</d:status></d:propstat>"
        )
    )
    assert row.segments == ("dav", "été", "a b.md")
    assert not row.is_folder
    assert row.etag == "e1"
    assert row.size_bytes is None
    assert row.modified_at == "2026-03-01T09:30:00Z"
    assert row.refused == {f"{DAV}owner"}


def test_a_folder_is_told_by_its_resourcetype() -> None:
    """With and without a slash at the end of its href."""
    folder = "<d:resourcetype><d:collection/></d:resourcetype>"
    found = rows(multistatus(response("/a/", folder), response("/a", folder)))
    assert [(row.segments, row.is_folder) for row in found] == [(("a",), True), (("a",), True)]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not well-formed"),
        (b"<!DOCTYPE html><html><body>Login</body></html>", "document type|no multistatus"),
        (b"<html/>", "no multistatus"),
        (multistatus(response("/a"))[:-1], "not well-formed"),
        (multistatus(response("/a")) + b"<more/>", "not well-formed"),
        (b'<!DOCTYPE a [<!ENTITY b "c">]>' + multistatus(), "document type"),
        (
            b'<!DOCTYPE a SYSTEM "file:///etc/passwd">' + multistatus(response("/a")),
            "document type",
        ),
        (b'<?xml version="1.0" encoding="klingon"?><a/>', "encoding|not well-formed"),
        (multistatus("<d:status>HTTP/1.1 200 OK</d:status>"), "name one resource"),
        (multistatus("<d:href>/a</d:href><d:href>/b</d:href>"), "name one resource"),
        (multistatus("<d:href>/a</d:href><d:status>HTTP/1.1 403 No</d:status>"), "403 for /a"),
        (multistatus("<d:href>/a</d:href><d:status>HTTP/1.1 507 Full</d:status>"), "507 for /a"),
        (multistatus("<d:href>/a</d:href>"), "whether /a is a folder"),
        (multistatus(response("/a", "<d:getetag>x</d:getetag>")), "whether /a is a folder"),
        (multistatus(response("/a", status="HTTP/1.1 500 Oops")), "whether /a is a folder"),
        (multistatus(response("/a", status="Well")), "without a status"),
        (multistatus(response("a/b")), "no path"),
        (multistatus(response("/a%2fb")), "no path"),
        (multistatus(response("/a/../b")), "no path"),
        (multistatus(response("/a/%2e%2e/b")), "no path"),
        (multistatus(response("/a%00b")), "no path"),
        (multistatus("<x>" * 40 + "</x>" * 40), "elements deep"),
    ],
)
def test_what_is_no_multistatus_is_refused(content: bytes, why: str) -> None:
    """A login page, a cut answer, an entity, a row without a status: never a shorter list."""
    with pytest.raises(NotMultistatus, match=why):
        rows(content)


def test_hostile_xml_takes_neither_time_nor_memory() -> None:
    """Entities that multiply, and elements inside each other without end."""
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 20))
    bombs = [
        f'<!DOCTYPE a [<!ENTITY l0 "ha">{laughs}]><a>&l19;</a>'.encode(),
        b"<d>" * 1_000_000,
        b'<d:multistatus xmlns:d="DAV:">' + b"<d:response>" * 1_000_000,
    ]
    tracemalloc.start()
    began = time.monotonic()
    for bomb in bombs:
        with pytest.raises(NotMultistatus):
            rows(bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert time.monotonic() - began < 2
    assert peak < 64_000_000


@given(st.lists(NAMES, min_size=1, max_size=4), st.booleans())
def test_every_name_survives_its_encoding(names: list[str], lower: bool) -> None:
    """Percent-encoding in either case, as a path and as a whole address."""
    path = quoted_path(names)
    assert path.isascii()
    if lower:
        path = "".join(
            part if at == 0 else part[:2].lower() + part[2:]
            for at, part in enumerate(path.replace("%", "\0%").split("\0"))
        ).replace("%%", "%")
    assert segments_of(path) == tuple(names)
    assert segments_of(f"https://example.org:8443{path}/") == tuple(names)


def test_names_that_are_not_utf_8_come_back_as_they_went() -> None:
    """So that they can be reported, though never indexed."""
    (name,) = segments_of("/caf%e9.md")
    assert name == "caf\udce9.md"
    assert quoted_path([name]) == "/caf%E9.md"


@pytest.mark.parametrize("etag", ['"abc"', 'W/"abc"', "abc", '"abc-gzip"', '"abc;br"', ' "abc" '])
def test_etags_are_compared_without_their_wrapping(etag: str) -> None:
    """Quotes, weakness, and what compressing proxies add."""
    assert plain_etag(etag) == "abc"


@pytest.mark.parametrize("date", [None, "", "hier", "Sun, 99 Mar 2026 09:30:00 GMT", "0" * 10_000])
def test_a_date_that_is_none_is_none(date: str | None) -> None:
    """The document is there all the same."""
    assert utc_time(date) is None


def test_a_date_is_given_in_utc() -> None:
    """Whatever zone it came in."""
    assert utc_time("Sun, 01 Mar 2026 10:30:00 +0100") == "2026-03-01T09:30:00Z"


def test_a_propfind_names_properties_in_their_namespaces() -> None:
    """As any XML reader sees it."""
    from xml.etree import ElementTree

    body = propfind([f"{DAV}getetag", "{http://owncloud.org/ns}fileid"])
    asked = ElementTree.fromstring(body).find(f"{DAV}prop")
    assert asked is not None
    assert [element.tag for element in asked] == [f"{DAV}getetag", "{http://owncloud.org/ns}fileid"]

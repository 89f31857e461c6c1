"""Bytes become text exactly, or the file is left out with the place that is wrong."""

from __future__ import annotations

import pytest

from rag_assets_tests.documents.files import left_out, parsed


def test_utf8_byte_order_mark_does_not_hide_front_matter() -> None:
    """The mark goes, and what is behind it is read as without it."""
    document = parsed(b"\xef\xbb\xbf---\ntitle: R\xc3\xa9seau\nacl: service:hr\n---\ntexte\n")
    assert (document.title, document.acl_tags) == ("Réseau", ("service:hr",))
    assert document.body == "texte\n"


def test_doubled_byte_order_mark_does_not_hide_front_matter() -> None:
    """Editors that add a second mark do not make a restricted page public."""
    document = parsed(b"\xef\xbb\xbf\xef\xbb\xbf---\nacl: service:hr\n---\ntexte\n")
    assert document.acl_tags == ("service:hr",)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_with_its_mark_is_read_with_a_warning(encoding: str) -> None:
    """UTF-16 is certain when its mark says so; the person is told all the same."""
    document = parsed(("\ufeff---\nacl: service:hr\n---\n# Été\n").encode(encoding))
    assert (document.title, document.acl_tags) == ("Été", ("service:hr",))
    assert any("UTF-16" in warning for warning in document.warnings)


def test_other_encodings_are_quarantined_with_the_place() -> None:
    """Windows-1252 is not guessed: offset, line and a way to convert are given."""
    result = left_out("# Titre\n\nl'été\n".encode("cp1252"))
    assert (result.status, result.reason) == ("quarantined", "not_text")
    assert "0xE9 at offset 11, line 3" in result.rule
    assert "iconv" in result.rule


@pytest.mark.parametrize(
    "content",
    [
        b"a\nb\x00c\n",
        "sans marque".encode("utf-16-le"),
        b"\xff\xfea",
        b"\xff\xfe\x00\x00a\x00\x00\x00",
        b"\xed\xa0\x80 lone surrogate",
        b"\xc3",
    ],
    ids=["nul", "utf-16-unmarked", "utf-16-cut", "utf-32", "surrogate", "cut-character"],
)
def test_what_is_not_text_is_quarantined(content: bytes) -> None:
    """No replacement character ever stands in for bytes that could not be read."""
    result = left_out(content)
    assert (result.status, result.reason) == ("quarantined", "not_text")
    assert result.rule


@pytest.mark.parametrize("content", [b"", b" \n\t\r\n", b"\xef\xbb\xbf\n", "\u00a0\u3000".encode()])
def test_blank_files_are_excluded(content: bytes) -> None:
    """White space alone is nothing to index, and nothing to worry about."""
    result = left_out(content)
    assert (result.status, result.reason) == ("excluded", "blank")

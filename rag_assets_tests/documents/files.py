"""Source files made of bytes or text, for the tests of the documents stage."""

from __future__ import annotations

from rag_assets.documents.parse import parse_document
from rag_assets.fingerprints import sha256_hex
from rag_assets.models import Document, LeftOut, SourceFile


def source_file(
    content: bytes | str, *, path: str = "guides/page.md", acl_tags: tuple[str, ...] = ("public",)
) -> SourceFile:
    """A file as a source would give it."""
    data = content.encode() if isinstance(content, str) else content
    return SourceFile("docs", path, "", data, sha256_hex(data), None, acl_tags, "v1")


def parsed(content: bytes | str, **settings: object) -> Document:
    """The document of a file that is expected to be one."""
    result = parse_document(source_file(content, **settings))  # type: ignore[arg-type]
    assert isinstance(result, Document), result
    return result


def left_out(content: bytes | str, **settings: object) -> LeftOut:
    """The reason of a file that is expected to be left out."""
    result = parse_document(source_file(content, **settings))  # type: ignore[arg-type]
    assert isinstance(result, LeftOut), result
    return result

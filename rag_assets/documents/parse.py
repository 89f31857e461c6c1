"""One file of a source in, a document out, or the reason why it is left out.

Order: bytes become Markdown text (decoded, or converted from HTML and office files), front matter
is taken off, the ACL of the source and of the front matter are put together, the body is cleaned of
what no reader sees, and title and language are found.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from rag_assets.acl import most_restrictive
from rag_assets.documents.acl_key import AclUnreadable
from rag_assets.documents.cleaning import Cleaned, clean_markdown
from rag_assets.documents.decoding import NotText, decode
from rag_assets.documents.front_matter import FrontMatter, read_front_matter
from rag_assets.documents.invisible import strip_invisible
from rag_assets.documents.languages import find_language
from rag_assets.documents.titles import find_title
from rag_assets.models import HTML, MARKDOWN, Document, LeftOut, LeftOutStatus, Reason, SourceFile

BLANK_RULE: Final = "holds nothing but white space"
UNSEEN_RULE: Final = "holds nothing that a reader sees"


@dataclass(frozen=True, slots=True)
class Opened:
    """The text of a file, as it was written and as a reader sees it."""

    raw: str = field(repr=False)
    """What was written: the whole decoded file, HTML as HTML; of an office file its Markdown."""
    front_matter: FrontMatter
    cleaned: Cleaned
    """The body below the front matter."""
    warnings: tuple[str, ...] = ()
    title: str = ""
    """The title that an HTML or office file gives itself."""


def parse_document(
    file: SourceFile,
    *,
    language: str | None = None,
    detect_language: bool = True,
    opened: Opened | LeftOut | None = None,
) -> Document | LeftOut:
    """Parse one file. Nothing in it can make this raise.

    Left out: ``blank`` (excluded); ``not_text``, ``acl_unreadable``, ``conversion_failed``
    (quarantined); ``needs_office`` (excluded: the extra for office files is not installed). A
    document's tags are those that both the source and its own front matter grant
    (``acl.most_restrictive``). ``language`` is what the source is configured to be written in: it
    counts where front matter does not say, and without it the text itself decides, unless
    ``detect_language`` is false. ``opened`` is what ``open_file`` gave for this file, if it was
    opened before.
    """
    opened = opened or open_file(file)
    if isinstance(opened, LeftOut):
        return opened
    front_matter = opened.front_matter
    acl_tags = file.acl_tags
    if front_matter.acl_tags is not None:
        acl_tags = most_restrictive(acl_tags, front_matter.acl_tags)
    cleaned = opened.cleaned
    metadata = {key: strip_invisible(value)[0] for key, value in front_matter.metadata.items()}
    named = {"title": file.title or opened.title} if file.title or opened.title else metadata
    title, title_warning = find_title(named, cleaned.text, file.path)
    before = front_matter.body_start_line - 1
    warnings = [w for w in (*opened.warnings, *front_matter.warnings, title_warning) if w]
    return Document(
        source=file.source,
        path=file.path,
        url=file.url,
        title=title,
        body=cleaned.text,
        body_start_line=front_matter.body_start_line,
        content_hash=file.content_hash,
        modified_at=file.modified_at,
        acl_tags=acl_tags,
        metadata=metadata,
        warnings=tuple(f"{file.path}: {warning}" for warning in warnings),
        language=find_language(metadata, language, cleaned.text if detect_language else ""),
        lines=tuple(before + line for line in cleaned.lines),
    )


def open_file(file: SourceFile) -> Opened | LeftOut:
    """The text of a file with its front matter taken off, or why the file is left out."""
    try:
        if file.media_type == MARKDOWN:
            raw, warning = decode(file.content)
        elif file.media_type == HTML:
            return _open_html(file)
        else:
            return _open_office(file)
    except NotText as error:
        return left_out(file, "quarantined", "not_text", str(error))
    if not raw.strip():
        return left_out(file, "excluded", "blank", BLANK_RULE)
    try:
        front_matter = read_front_matter(raw)
    except AclUnreadable as error:
        return left_out(
            file,
            "quarantined",
            "acl_unreadable",
            str(error),
            rule_file=file.path,
            rule_line=error.line,
        )
    cleaned = clean_markdown(front_matter.body)
    if not cleaned.text.strip() and front_matter.body.strip():
        return left_out(file, "excluded", "blank", UNSEEN_RULE)
    return Opened(raw, front_matter, cleaned, (warning,) if warning else ())


def _open_html(file: SourceFile) -> Opened | LeftOut:
    from rag_assets.documents.html import decode_html, html_to_markdown

    raw = decode_html(file.content)
    converted = html_to_markdown(raw)
    if not converted.text.strip():
        return left_out(file, "excluded", "blank", UNSEEN_RULE)
    return _converted(raw, converted.text, converted.title, converted.lines)


def _open_office(file: SourceFile) -> Opened | LeftOut:
    from rag_assets.documents.office import (
        ConversionFailed,
        OfficeUnavailable,
        office_to_markdown,
    )

    try:
        converted = office_to_markdown(file.content, file.media_type)
    except OfficeUnavailable as error:
        return left_out(file, "excluded", "needs_office", str(error))
    except ConversionFailed as error:
        return left_out(file, "quarantined", "conversion_failed", str(error))
    if not converted.text.strip():
        return left_out(file, "excluded", "blank", BLANK_RULE)
    return _converted(converted.text, converted.text, converted.title)


def _converted(raw: str, text: str, title: str, lines: tuple[int, ...] = ()) -> Opened:
    """A file that was made into Markdown; without ``lines``, its lines are those of the Markdown.

    ``lines`` are those of the file, by line of the Markdown.
    """
    cleaned = clean_markdown(text)
    if lines and cleaned.lines:
        lines = tuple(lines[line - 1] for line in cleaned.lines)
    front_matter = FrontMatter(text)
    return Opened(raw, front_matter, Cleaned(cleaned.text, lines or cleaned.lines), title=title)


def left_out(
    file: SourceFile,
    status: LeftOutStatus,
    reason: Reason,
    rule: str,
    *,
    rule_file: str | None = None,
    rule_line: int | None = None,
) -> LeftOut:
    """The row of a file that its content leaves out; it holds no part of the content."""
    return LeftOut(
        file.source,
        file.path,
        status,
        reason,
        rule,
        rule_file,
        rule_line,
        content_hash=file.content_hash,
        version=file.version,
    )

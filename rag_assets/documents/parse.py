"""One file of a source in, a document out, or the reason why it is left out.

Order: bytes are decoded, front matter is taken off, the ACL of the source and of the front matter
are put together, and title and language are found. Whatever is to change the text of the body
(cleaning, screening) belongs between the front matter and the title.
"""

from __future__ import annotations

from typing import Final

from rag_assets.acl import most_restrictive
from rag_assets.documents.acl_key import AclUnreadable
from rag_assets.documents.decoding import NotText, decode
from rag_assets.documents.front_matter import FrontMatter, read_front_matter
from rag_assets.documents.languages import find_language
from rag_assets.documents.titles import find_title
from rag_assets.models import Document, LeftOut, SourceFile

BLANK_RULE: Final = "holds nothing but white space"


def parse_document(file: SourceFile, *, language: str | None = None) -> Document | LeftOut:
    """Parse one file. Nothing in it can make this raise.

    Left out: ``blank`` (excluded); ``not_text`` and ``acl_unreadable`` (quarantined). A document's
    tags are those that both the source and its own front matter grant (``acl.most_restrictive``).
    ``language`` is what the source is configured to be written in: it counts where front matter
    does not say, and without it the text itself decides.
    """
    opened = _open(file)
    if isinstance(opened, LeftOut):
        return opened
    front_matter, warning = opened
    acl_tags = file.acl_tags
    if front_matter.acl_tags is not None:
        acl_tags = most_restrictive(acl_tags, front_matter.acl_tags)
    title, title_warning = find_title(front_matter.metadata, front_matter.body, file.path)
    warnings = [w for w in (warning, *front_matter.warnings, title_warning) if w]
    return Document(
        source=file.source,
        path=file.path,
        url=file.url,
        title=title,
        body=front_matter.body,
        body_start_line=front_matter.body_start_line,
        content_hash=file.content_hash,
        modified_at=file.modified_at,
        acl_tags=acl_tags,
        metadata=front_matter.metadata,
        warnings=tuple(f"{file.path}: {warning}" for warning in warnings),
        language=find_language(front_matter.metadata, language, front_matter.body),
    )


def quarantine(file: SourceFile) -> LeftOut | None:
    """The reason to quarantine a file, when there is one: no part of its text must be kept."""
    opened = _open(file)
    return opened if isinstance(opened, LeftOut) and opened.status == "quarantined" else None


def _open(file: SourceFile) -> tuple[FrontMatter, str | None] | LeftOut:
    """The front matter with the body, and a warning or None; or why the file is left out."""
    try:
        text, warning = decode(file.content)
    except NotText as error:
        return LeftOut(file.source, file.path, "quarantined", "not_text", str(error))
    if not text.strip():
        return LeftOut(file.source, file.path, "excluded", "blank", BLANK_RULE)
    try:
        return read_front_matter(text), warning
    except AclUnreadable as error:
        return LeftOut(
            file.source,
            file.path,
            "quarantined",
            "acl_unreadable",
            str(error),
            rule_file=file.path,
            rule_line=error.line,
        )

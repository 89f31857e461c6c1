"""The values that flow from stage to stage: SourceFile -> Document -> Chunk -> vector -> Hit.

The stages do not import one another; they all import this module. Everything here is immutable
and knows nothing of files, servers, SQL or Dagster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

LeftOutStatus = Literal["excluded", "quarantined", "flagged"]
"""``excluded``: a rule says so. ``quarantined``: it should be there, but cannot be trusted.
``flagged``: it is there, and something was found in it."""

Reason = Literal[
    # by rule (governance)
    "hard_exclusion",
    "excluded_paths",
    "not_included",
    "aiignore",
    "not_markdown",
    "blank",
    "too_large",
    "not_a_regular_file",
    "outside_root",
    "alias",
    # by nature of the file
    "unreadable",
    "unsafe_name",
    "path_too_long",
    "changed_while_read",
    "vanished",
    "not_text",
    # by content
    "acl_unreadable",
    "document_too_complex",
    "conversion_failed",
    "needs_office",
    "instructions",
    "secret",
    "personal_number",
    "embedding_rejected",
    # by the state it has in its system
    "draft",
]

PROBLEM_REASONS: Final[frozenset[str]] = frozenset(
    {
        "unreadable",
        "unsafe_name",
        "path_too_long",
        "changed_while_read",
        "not_text",
        "acl_unreadable",
        "document_too_complex",
        "conversion_failed",
        "embedding_rejected",
    }
)
"""Reasons that nobody chose: a run that left a file out for one of them is ``partial``."""

MARKDOWN: Final = "text/markdown"
"""The media type of Markdown (RFC 7763)."""
HTML: Final = "text/html"
DOCX: Final = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
ODT: Final = "application/vnd.oasis.opendocument.text"
PDF: Final = "application/pdf"

MARKDOWN_TYPES: Final[Mapping[str, str]] = {".md": MARKDOWN, ".markdown": MARKDOWN}
OFFICE_TYPES: Final[Mapping[str, str]] = {
    ".docx": DOCX,
    ".odt": ODT,
    ".pdf": PDF,
    ".html": HTML,
    ".htm": HTML,
}
"""Media types (IANA) by the suffix of a file's name in lower case."""

RETRIED_REASONS: Final[frozenset[str]] = frozenset(
    {"unreadable", "changed_while_read", "vanished", "document_too_complex"}
)
"""Reasons that may be gone at the next attempt though nothing changed at the source."""

PUBLIC: Final = "public"
"""The ACL tag of what everybody may read."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file as a source gave it. Identity is ``(source, path)``."""

    source: str
    path: str
    """Relative POSIX path, exactly as the source spells it (not normalised)."""
    url: str
    """Where a reader opens the document, without an anchor; empty when the source has none."""
    content: bytes = field(repr=False)
    content_hash: str
    """sha256 (hex) of ``content``."""
    modified_at: str | None
    """ISO 8601, UTC, whole seconds (``2026-03-01T09:30:00Z``): when this content last changed."""
    acl_tags: tuple[str, ...]
    """Sorted, without duplicates. Empty: visible to nobody."""
    version: str
    """The source's own change marker (stat signature, blob SHA, ETag ...); opaque to others."""
    media_type: str = MARKDOWN
    """What ``content`` is: Markdown, ``text/html``, or the type of an office file."""
    title: str = ""
    """The title its system gives it; empty: the text tells."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file that is not in the index, and why."""

    source: str
    path: str
    """Relative POSIX path; a trailing ``/`` means a whole folder that was not entered."""
    status: LeftOutStatus
    reason: Reason
    rule: str = ""
    """What decided, for a person: the pattern, the prefix, the offending byte or key."""
    rule_file: str | None = None
    """The file the rule stands in (``.aiignore``, ``rag_assets.yaml``), when there is one."""
    rule_line: int | None = None
    """1-based line of the rule in ``rule_file``."""
    content_hash: str = ""
    """sha256 (hex) of the content that was left out for what it holds; empty when not read."""
    version: str = ""
    """The change marker under which that content was read."""


@dataclass(frozen=True, slots=True)
class SourceListing:
    """A complete listing of one partition of a source; an incomplete one raises instead."""

    source: str
    files: tuple[SourceFile, ...]
    left_out: tuple[LeftOut, ...]
    other_files: int
    """How many files are not documents at all (images, code ...): counted, not listed."""
    look_state: Mapping[str, Any]
    """What ``Source.look`` needs to tell cheaply that nothing changed; JSON-able, opaque."""
    read: int = 0
    """How many files were opened and read (others were carried over by their ``version``)."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What a cheap look found: paths that appeared, changed or vanished. Falsy when nothing did."""

    added: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unknown: bool = False
    """True when the look could not compare (no state, other settings): list to know."""

    def __bool__(self) -> bool:
        return self.unknown or bool(self.added or self.modified or self.removed)


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed document: front matter taken off, text decoded."""

    source: str
    path: str
    url: str
    title: str
    body: str = field(repr=False)
    """The text after the front matter, decoded, line ends as in the file."""
    body_start_line: int
    """1-based line of the file at which ``body`` begins."""
    content_hash: str
    """sha256 (hex) of the raw bytes of the file, front matter included."""
    modified_at: str | None
    acl_tags: tuple[str, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Scalar front matter, keys and values as typed."""
    warnings: tuple[str, ...] = ()
    language: str = ""
    """Primary language subtag in lower case (``fr``); empty when it cannot be told."""
    lines: tuple[int, ...] = ()
    """1-based line of the file for each line of ``body``; empty: one after the other from
    ``body_start_line`` on."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage of one document, ready to embed and to cite."""

    source: str
    path: str
    position: int
    """0-based rank in the document."""
    title: str
    heading_path: tuple[str, ...]
    """Texts of the open headings, outermost first; empty before the first heading."""
    anchor: str
    """Slug of the innermost heading as the renderer makes it; empty before the first heading."""
    start_line: int
    end_line: int
    """1-based, inclusive, in the file as it lies on disk (front matter counted)."""
    tokens: int
    """``estimate_tokens(content)``."""
    content: str = field(repr=False)
    content_hash: str
    """sha256 (hex) of ``text``, the exact string handed to the embedder."""

    @property
    def section(self) -> str:
        """The innermost heading, or the document's title before the first heading."""
        return self.heading_path[-1] if self.heading_path else self.title

    @property
    def text(self) -> str:
        """The exact string handed to the embedder."""
        return embedding_text(self.title, self.heading_path, self.content)


def embedding_text(title: str, heading_path: tuple[str, ...], content: str) -> str:
    """Title and headings above the passage: what the embedder is given for one chunk.

    A title repeated as the first heading is written once. Model prefixes are not added here; the
    embedder owns them.
    """
    headings = heading_path[1:] if heading_path and heading_path[0] == title else heading_path
    return " > ".join((title, *headings)) + "\n\n" + content


@dataclass(frozen=True, slots=True)
class EmbedderHealth:
    """What an embedder says of itself."""

    status: str
    """``ok``, or anything else when it cannot serve."""
    model: str
    """The exact model name, as it names itself."""
    dim: int


ScoreKind = Literal["vector", "text", "hybrid", "rerank", "neighbour"]
"""``vector``: 1 - cosine distance; ``text``: BM25; ``hybrid``: both, fused; ``rerank``: what the
reranker said; ``neighbour``: no score (0), it stands beside a hit."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage found for a question, with all that is needed to cite it."""

    rank: int
    """1-based."""
    score: float
    """What the ranking used; ``score_kind`` says what it is."""
    vector_score: float | None
    """1 - cosine distance."""
    source: str
    path: str
    title: str
    section: str
    heading_path: tuple[str, ...]
    anchor: str
    url: str
    """The document's URL with the anchor as fragment; empty when the source has no URL."""
    start_line: int
    end_line: int
    position: int
    content: str = field(repr=False)
    content_hash: str = field(repr=False, default="")
    text_score: float | None = None
    """BM25 over what the caller may see; 0 when no word matches, None in vector mode."""
    score_kind: ScoreKind = "vector"
    """Which score ``score`` is; scores of different kinds must not be compared."""
    vector_rank: int | None = None
    """1-based rank in the vector leg, None when it did not propose the passage."""
    text_rank: int | None = None
    """1-based rank in the text leg, None when it did not propose the passage."""
    language: str = ""
    """Language of the document (``fr``); empty when unknown."""
    modified_at: str | None = None
    """When the document last changed: ISO 8601, UTC, whole seconds."""

    @property
    def citation(self) -> str:
        """``source/path#anchor:start-end``, what a person or a program can follow."""
        anchor = f"#{self.anchor}" if self.anchor else ""
        return f"{self.source}/{self.path}{anchor}:{self.start_line}-{self.end_line}"


@dataclass(frozen=True, slots=True)
class IndexFingerprint:
    """What must be equal for vectors to be comparable and chunks to be alike."""

    model: str
    """The embedder's ``fingerprint``: model, weights, prefix rule."""
    dim: int
    chunker: str
    """The chunker's ``fingerprint``."""


@dataclass(frozen=True, slots=True)
class IndexStats:
    """What the index holds."""

    documents: int
    chunks: int
    vectors: int
    last_indexed_at: str | None
    fingerprint: IndexFingerprint | None
    size_bytes: int
    sources: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Per source: ``documents``, ``chunks``."""
    without_tags: int = 0
    """Documents that no caller with tags can see; counted for ``EVERYTHING`` only."""


RunStatus = Literal["running", "ok", "partial", "failed"]


@dataclass(frozen=True, slots=True)
class IngestRun:
    """One attempt to bring one partition of the index up to date; a row of ``ingest_run``."""

    run_id: str
    """Dagster's run id, or a random id outside Dagster."""
    partition: str
    source: str
    started_at: str
    finished_at: str | None
    status: RunStatus
    """``partial``: indexed, but files were left out for one of ``PROBLEM_REASONS``."""
    error: str | None = None
    documents_seen: int = 0
    """Documents the source yielded: indexed + skipped + quarantined ones, not the excluded."""
    documents_indexed: int = 0
    """Documents written to the index."""
    documents_skipped: int = 0
    """Documents already in the index as they are."""
    documents_removed: int = 0
    documents_excluded: int = 0
    """Files and folders left out, with reasons."""
    chunks_upserted: int = 0
    chunks_unchanged: int = 0
    chunks_embedded: int = 0
    """Distinct chunk texts sent to the embedder by this run."""
    duration_seconds: float = 0.0


COUNTS: Final = (
    "documents_seen",
    "documents_indexed",
    "documents_skipped",
    "documents_removed",
    "documents_excluded",
    "chunks_upserted",
    "chunks_unchanged",
    "chunks_embedded",
)
"""The counts of an ``IngestRun``, in the order in which they are shown."""

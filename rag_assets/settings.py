"""The sections of ``rag_assets.yaml``, each with its keys, their defaults and what they may be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from rag_assets.acl import AclRule, AclRules
from rag_assets.analysis.languages import primary_subtag
from rag_assets.path_globs import compile_paths

CRON_RANGES: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
"""Minute, hour, day of the month, month, day of the week."""

IMPORT_PATH: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*\Z")
"""``package.module:Class``: how an integrator names a class of their own."""


class Strict(BaseModel):
    """A section that refuses unknown keys, and values of another type than it says."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _relative_path(value: str) -> str:
    """Reject what could leave the root, or never match anything."""
    if not value.strip():
        raise ValueError("must not be blank")
    if value.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", value):
        raise ValueError(f"{value!r} is absolute; write it relative to the root")
    if ".." in value.replace("\\", "/").split("/"):
        raise ValueError(f"{value!r} contains '..'; write it relative to the root")
    return value


def _tag(value: str) -> str:
    if not re.fullmatch(r"[\w.:@-]+", value):
        raise ValueError(f"{value!r} is not an ACL tag; use letters, digits and . : _ - @")
    return value


def _host_name(value: str) -> str:
    if not re.fullmatch(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?|\[[0-9A-Fa-f:.]+\]", value):
        raise ValueError(
            f"{value!r} is not a host name; write it without scheme and port, such as "
            "search.example.org"
        )
    return value.lower()


def _origin(value: str) -> str:
    if not re.fullmatch(r"https?://[^\s/*@?#]+", value):
        raise ValueError(f"{value!r} is not an origin; write it like https://chat.example.org")
    return value


def _path_pattern(value: str) -> str:
    compile_paths([_relative_path(value)])
    return value


def _language(value: str) -> str:
    if not (language := primary_subtag(value)):
        raise ValueError(f"{value!r} is not a language; write its code, such as fr or fr-FR")
    return language


def _whole_or_not(value: object) -> object:
    """Strict models take no int for a float, but people write 30 for 30.0."""
    return float(value) if type(value) is int else value


def _as_path(value: object) -> object:
    if isinstance(value, str) and "\0" in value:
        raise ValueError("must not contain a NUL character")
    return Path(value) if isinstance(value, str) and value.strip() else value


OptionalPath = Annotated[Path | None, BeforeValidator(_as_path)]
Number = Annotated[float, BeforeValidator(_whole_or_not)]
RelativePath = Annotated[str, AfterValidator(_relative_path)]
Language = Annotated[str, AfterValidator(_language)]
PathPattern = Annotated[str, AfterValidator(_path_pattern)]
AclTag = Annotated[str, AfterValidator(_tag)]
HostName = Annotated[str, AfterValidator(_host_name)]
Origin = Annotated[str, AfterValidator(_origin)]


class AclRuleSettings(Strict):
    """Tags for some of the documents of a source, in place of its default."""

    paths: tuple[PathPattern, ...] = Field(min_length=1)
    """One or several: prefixes (``hr``) or globs (``hr/**``), from the root of the source."""
    tags: tuple[AclTag, ...]
    """One or several; an empty list: visible to nobody."""

    @field_validator("paths", "tags", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value


class AclSettings(Strict):
    """Who may see the documents of a source; front matter can only narrow it."""

    default: tuple[AclTag, ...] = ()
    """Tags of the documents that no rule matches; empty: they are visible to nobody."""
    rules: tuple[AclRuleSettings, ...] = ()
    """Of several that match a document only what all of them grant remains."""

    def to_rules(self) -> AclRules:
        """What gives each path its tags; a source of your own calls ``tags_for(path)`` on it."""
        rules = tuple(AclRule(rule.paths, rule.tags) for rule in self.rules)
        return AclRules(self.default, rules)


class ParsingSettings(Strict):
    """What one document may take of the machine before it is given up and quarantined."""

    seconds: Number = Field(default=10.0, gt=0)
    """Time to open and screen it, and again to parse it."""
    megabytes: int = Field(default=512, ge=64)
    """Memory beyond what an empty process needs."""


class ChunkSettings(Strict):
    """How documents are cut into passages; sizes in estimated tokens (words x 1.33)."""

    size: int = Field(default=512, gt=0)
    overlap: int = Field(default=64, ge=0)
    anchor_style: Literal["github", "mkdocs", "gitlab", "bookstack"] = "github"
    chunker: str | None = Field(default=None, pattern=IMPORT_PATH.pattern.replace(r"\Z", "$"))
    """``package.module:Class`` of a ``Chunker`` of your own."""
    options: Mapping[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _overlap_fits(self) -> ChunkSettings:
        if self.overlap >= self.size:
            raise ValueError(f"overlap ({self.overlap}) must be smaller than size ({self.size})")
        return self


class EmbeddingSettings(Strict):
    """Which model turns texts into vectors, and how it is reached."""

    backend: str = "local"
    """``local``, ``fast``, ``http``, or ``package.module:Class`` for an ``Embedder`` of yours."""
    url: str | None = None
    model: str | None = None
    """``http``: the model the server must name; any other is refused."""
    ca_file: OptionalPath = None
    """``http``: certificates of a private authority (PEM), relative to the file."""
    batch_size: int = Field(default=64, ge=1, le=4096)
    threads: int = Field(default=0, ge=0)
    """``local``: threads of the model; 0 takes every core."""
    precision: Literal["int8", "q4"] | None = None
    """``local``: arithmetic of the model; unset takes the measured best."""
    max_tokens: int = Field(default=512, ge=16)
    """What the model reads at most; longer texts are embedded by windows and averaged."""
    timeout_seconds: Number = Field(default=30.0, gt=0)
    connect_timeout_seconds: Number = Field(default=5.0, gt=0)
    deadline_seconds: Number = Field(default=120.0, gt=0)
    """One request, first byte to last."""
    retries: int = Field(default=4, ge=0, le=20)
    retry_after_cap_seconds: Number = Field(default=30.0, ge=0)
    concurrency: int = Field(default=1, ge=1, le=64)
    """``http``: requests in flight at once."""
    keep_unused_days: Number = Field(default=30.0, ge=0)
    """How long the cache keeps vectors (never texts) of passages that are gone; 0: not at all."""
    options: Mapping[str, Any] = Field(default_factory=dict)

    @field_validator("backend")
    @classmethod
    def _backend(cls, value: str) -> str:
        if value not in ("local", "fast", "http") and not IMPORT_PATH.match(value):
            raise ValueError(
                f"{value!r} is unknown; use 'local', 'fast', 'http' or 'package.module:Class'"
            )
        return value

    @model_validator(mode="after")
    def _needs_url(self) -> EmbeddingSettings:
        if self.backend == "http" and not (self.url or "").startswith(("http://", "https://")):
            raise ValueError("url is missing: where the embedding service listens (http://...)")
        return self


class IndexSettings(Strict):
    """Where vectors are kept and how long a writer waits for another."""

    backend: str = "sqlite"
    """``sqlite``, or ``package.module:Class`` for a ``VectorStore`` of your own."""
    wait_seconds: Number = Field(default=300.0, ge=0)
    options: Mapping[str, Any] = Field(default_factory=dict)

    @field_validator("backend")
    @classmethod
    def _backend(cls, value: str) -> str:
        if value != "sqlite" and not IMPORT_PATH.match(value):
            raise ValueError(f"{value!r} is unknown; use 'sqlite' or 'package.module:Class'")
        return value


class RerankerSettings(Strict):
    """A model that reads question and passage together and puts the best candidates in order."""

    backend: str = "http"
    """``http``: a server with TEI's POST /rerank, or ``package.module:Class`` for a ``Reranker`` of
    your own."""
    url: str | None = None
    model: str | None = None
    """``http``: sent along, for servers that hold several models."""
    candidates: int = Field(default=50, ge=1, le=1000)
    """How many passages are found for the reranker to choose from; never fewer than k."""
    batch_size: int = Field(default=32, ge=1, le=1000)
    """``http``: passages in one request; 32 is what a TEI server takes unless told otherwise."""
    timeout_seconds: Number = Field(default=10.0, gt=0)
    connect_timeout_seconds: Number = Field(default=5.0, gt=0)
    deadline_seconds: Number = Field(default=30.0, gt=0)
    """One request, first byte to last."""
    retries: int = Field(default=2, ge=0, le=20)
    ca_file: OptionalPath = None
    """``http``: certificates of a private authority (PEM), relative to the file."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Keyword arguments for a ``Reranker`` class of your own."""

    @field_validator("backend")
    @classmethod
    def _backend(cls, value: str) -> str:
        if value != "http" and not IMPORT_PATH.match(value):
            raise ValueError(f"{value!r} is unknown; use 'http' or 'package.module:Class'")
        return value

    @model_validator(mode="after")
    def _needs_url(self) -> RerankerSettings:
        if self.backend == "http" and not (self.url or "").startswith(("http://", "https://")):
            raise ValueError("url is missing: where the reranking server listens (http://...)")
        return self


class RetrievalSettings(Strict):
    """Defaults of a search."""

    k: int = Field(default=10, ge=1, le=4096)
    mode: Literal["hybrid", "vector", "text"] = "hybrid"
    """By meaning and words, by meaning alone, or by words alone."""
    deduplicate: bool = False
    """Leave out near copies of a better passage."""
    merge: bool = False
    """Join adjacent passages of one section into one."""
    text_weight: Number = Field(default=0.35, ge=0.0, le=100.0)
    """``hybrid``: what a passage gains that holds all words of the question, in units of cosine.
    The default suits e5 models, whose cosines lie close together; others may need more."""
    max_query_characters: int = Field(default=8000, ge=1)
    """What is read of a question; the HTTP service refuses a longer one."""
    reranker: RerankerSettings | None = None


class AutomationSettings(Strict):
    """When Dagster looks for changes by itself."""

    look_every_seconds: int = Field(default=60, ge=5)
    reconcile_cron: str = "0 3 * * *"
    text_samples: bool = False
    """Show passages, headings and warnings of public documents in Dagster's metadata. They stay
    in Dagster's event history when the document is deleted or restricted later; without it only
    paths, lines and counts are shown."""

    @field_validator("reconcile_cron")
    @classmethod
    def _cron(cls, value: str) -> str:
        fields = value.split()
        if len(fields) != len(CRON_RANGES):
            raise ValueError(f"{value!r} is not a cron schedule of five fields")
        for field, (low, high) in zip(fields, CRON_RANGES, strict=True):
            numbers = [int(number) for number in re.findall(r"\d+", field.split("/")[0])]
            wrong = not re.fullmatch(r"[\d*/,\-]+|[A-Za-z,\-]+", field)
            if wrong or any(not low <= number <= high for number in numbers):
                raise ValueError(f"{value!r} is not a cron schedule: {field!r} is not understood")
        return value


class ServiceSettings(Strict):
    """The HTTP search service: where it listens, to whom it answers, how much it takes."""

    host: str = Field(default="127.0.0.1", min_length=1)
    """Beyond loopback it starts only when there is a token."""
    port: int = Field(default=8000, ge=0, le=65535)
    """0 takes any free one."""
    allowed_hosts: tuple[HostName, ...] = ()
    """Names it answers to beside loopback and ``host``, without port; ``*.example.org`` for all
    below. Others are refused, so that no web page can reach it through a name of its own."""
    allowed_origins: tuple[Origin, ...] = ()
    """Web pages of other origins (``https://chat.example.org``) that may call it from a browser."""
    rate_per_minute: int = Field(default=120, ge=1)
    """Requests of one token."""
    max_body_bytes: int = Field(default=65_536, ge=1_024)
    timeout_seconds: Number = Field(default=30.0, gt=0)
    """For a request's body to arrive, and then for the answer to be made."""
    concurrency: int = Field(default=4, ge=1, le=64)
    """Searches at once; more wait."""
    max_k: int = Field(default=100, ge=1, le=4096)
    """The most passages one request may ask for."""
    dagster_url: str | None = None
    """Where people open Dagster (``http://127.0.0.1:3000``), for links to runs."""

    @field_validator("dagster_url")
    @classmethod
    def _dagster_url(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"https?://[^\s\"'<>]+", value):
            raise ValueError(f"{value!r} is not an address such as http://127.0.0.1:3000")
        return value.rstrip("/") if value else value

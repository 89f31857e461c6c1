"""The sources of ``rag_assets.yaml``: one class of settings for each kind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from rag_assets.errors import ConfigurationError
from rag_assets.project import SOURCE_NAME
from rag_assets.secret import Secret
from rag_assets.settings import (
    IMPORT_PATH,
    AclSettings,
    AclTag,
    Language,
    Number,
    OptionalPath,
    RelativePath,
    Strict,
)
from rag_assets.sources.passbolt import refuse_passbolt_address

PLACEHOLDERS: Final = ("path", "source")
Policy = Literal["ignore", "flag", "quarantine"]
"""What becomes of a document in which something was found. ``flag``: indexed, and listed with what
was found. ``quarantine``: not indexed and not stored until somebody releases it."""


def _not_passbolt(value: str) -> str:
    try:
        refuse_passbolt_address("the address", value)
    except ConfigurationError as exc:
        raise ValueError(str(exc)) from exc
    return value


Address = Annotated[str, AfterValidator(_not_passbolt)]


class SecretSettings(Strict):
    """A secret, which stands in the environment and never in the configuration."""

    env: str
    """Name of the environment variable."""

    @model_validator(mode="before")
    @classmethod
    def _is_a_variable(cls, value: object) -> object:
        # Whatever stands here instead may be the secret itself: it is not repeated.
        if not isinstance(value, (Mapping, cls)):
            raise ValueError(  # noqa: TRY004 (pydantic collects no TypeError)
                "write {env: NAME}, the name of an environment variable; a secret never stands here"
            )
        return value

    @field_validator("env")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", value):
            raise ValueError(
                "write the name of an environment variable, in capitals such as WIKI_TOKEN, "
                "and not the secret itself"
            )
        return value

    def secret(self, what: str) -> Secret:
        """Where to read it; ``what`` is its place in the configuration, for messages."""
        return Secret(self.env, what)


class ScreeningSettings(Strict):
    """What is looked for in every document of a source, and what follows."""

    instructions: Policy = "flag"
    """Text addressed to a model, such as "ignore previous instructions"."""
    secrets: Policy = "quarantine"
    """Passwords, keys, tokens."""
    personal_numbers: Policy = "ignore"
    """Social security, bank account and card numbers."""

    def policies(self) -> dict[str, str]:
        """Policy by kind of finding; those to ignore are left out."""
        policies = {
            "instructions": self.instructions,
            "secret": self.secrets,
            "personal_number": self.personal_numbers,
        }
        return {kind: policy for kind, policy in policies.items() if policy != "ignore"}


class SourceSettings(Strict):
    """What every kind of source has."""

    name: str = Field(pattern=f"^{SOURCE_NAME}$")
    kind: str
    excluded_paths: tuple[RelativePath, ...] = ()
    included_paths: tuple[RelativePath, ...] = ()
    shards: int = Field(default=1, ge=1, le=1000)
    acl: AclSettings = AclSettings()
    language: Language | None = None
    """What its documents are written in (``fr``), unless their front matter says otherwise; by
    default found out for each document. Kept as the primary subtag."""
    anchor_style: Literal["github", "mkdocs", "gitlab", "bookstack"] | None = None
    """How headings become anchors there; by default what ``chunk.anchor_style`` says."""
    screening: ScreeningSettings = ScreeningSettings()
    max_file_bytes: int = Field(default=10_000_000, ge=1)
    max_removed_fraction: Number = Field(default=0.5, ge=0.0, le=1.0)

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder on a disk, where looking costs as little as remembering."""
        return False


class MarkdownSettings(SourceSettings):
    """Markdown files below a folder, or in a git repository at a ref."""

    kind: Literal["markdown"] = "markdown"
    root: OptionalPath = None
    """Folder of the tree, relative to the configuration file."""
    repository: Address | None = None
    """Instead of ``root``: URL of a git repository, or its path relative to the file."""
    ref: str = Field(default="HEAD", min_length=1)
    """``repository``: branch, tag or commit."""
    folder: RelativePath | None = None
    """``repository``: the folder in it to index; paths are relative to it."""
    username: str = ""
    token: SecretSettings | None = None
    """``repository``: for an https URL that asks who is there."""
    timeout_seconds: Number = Field(default=300.0, gt=0)
    """``repository``: the longest that one git command may take."""
    url: str | None = None
    """Template of citation URLs: ``https://docs.example.org/{path}``; {source} is known too, and
    for a repository {commit}."""

    @property
    def is_folder(self) -> bool:
        """See ``SourceSettings``."""
        return self.root is not None

    @field_validator("url")
    @classmethod
    def _url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if "{path}" not in value:
            raise ValueError("must contain {path}")
        if not re.match(r"(https?|file)://", value):
            raise ValueError("must begin with https://, http:// or file://")
        return value

    @model_validator(mode="after")
    def _one_place(self) -> MarkdownSettings:
        if self.root is None and self.repository is None:
            raise ValueError("root is missing: the folder to index")
        if self.root is not None and self.repository is not None:
            raise ValueError("root and repository are both set; keep the one that is meant")
        if self.repository is None:
            for key in ("ref", "folder", "username", "token", "timeout_seconds"):
                if key in self.model_fields_set:
                    raise ValueError(f"{key} needs repository")
        known = PLACEHOLDERS if self.repository is None else (*PLACEHOLDERS, "commit")
        if unknown := set(re.findall(r"\{([^{}]*)\}", self.url or "")) - set(known):
            usable = " or ".join(f"{{{name}}}" for name in known)
            hint = "; {commit} needs repository" if unknown == {"commit"} else ""
            raise ValueError(f"url: unknown placeholder {{{min(unknown)}}}; use {usable}{hint}")
        return self


class ServerSettings(SourceSettings):
    """What every source has that is read from a server over HTTP."""

    base_url: Address
    """Where the server is, such as ``https://wiki.example.org``."""
    ca_file: OptionalPath = None
    """Certificates of a private authority (PEM), relative to the file."""
    look_every_seconds: int = Field(default=300, ge=5)
    """How often the Dagster sensor looks for changes here; never more often than
    ``automation.look_every_seconds``."""
    requests_per_minute: int = Field(default=600, ge=1)
    concurrency: int = Field(default=4, ge=1, le=32)
    """Requests in flight at once."""
    timeout_seconds: Number = Field(default=30.0, gt=0)
    """The longest silence of the server."""
    connect_timeout_seconds: Number = Field(default=5.0, gt=0)
    deadline_seconds: Number = Field(default=120.0, gt=0)
    """One request, all its attempts together."""
    retries: int = Field(default=4, ge=0, le=20)
    retry_after_cap_seconds: Number = Field(default=120.0, ge=0)
    """The longest wait that a server may ask for."""

    @field_validator("base_url")
    @classmethod
    def _base_url(cls, value: str) -> str:
        if not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#@]*)?", value):
            raise ValueError("write it like https://wiki.example.org, without user, '?' and '#'")
        if re.search(r"/api(/v\d+)?/*$", value):
            raise ValueError("write the address of the server, without /api")
        return value.rstrip("/")


class BookStackAccount(Strict):
    """One API token and the ACL tags of what it can see."""

    token: SecretSettings
    """The variable holds ``<token id>:<token secret>``."""
    tags: tuple[AclTag, ...] = Field(min_length=1)


class BookStackSettings(ServerSettings):
    """The pages of a BookStack."""

    kind: Literal["bookstack"] = "bookstack"
    token: SecretSettings
    """The variable holds ``<token id>:<token secret>``. Its role decides what is indexed."""
    accounts: tuple[BookStackAccount, ...] = ()
    """Each lists what it can see; a page carries the tags of all that see it."""
    roles: Mapping[str, tuple[AclTag, ...]] = Field(default_factory=dict)
    """Tags by role name or number; a page carries those of all roles that see it. Of somebody with
    several roles BookStack takes away what one of them is explicitly denied and the others have by
    default only; tags cannot say that, ``accounts`` can."""
    permissions_max_age_hours: Number = Field(default=24.0, ge=0)
    """``roles``: the permissions of unchanged pages are read again after this long; those of books
    and chapters at each listing."""
    requests_per_minute: int = Field(default=170, ge=1)
    """BookStack itself allows 180 for each user unless it is told otherwise."""

    @model_validator(mode="after")
    def _one_way(self) -> BookStackSettings:
        if self.accounts and self.roles:
            raise ValueError("accounts and roles are both set; keep the one that is meant")
        return self


def _gitlab_path(value: str) -> str:
    names = value.split("/")
    if any(not name or name != name.strip() for name in names) or ":" in value:
        raise ValueError(f"write the full path, such as team/handbook, instead of {value!r}")
    if any(name.casefold() == "passbolt" for name in names):
        raise ValueError("Passbolt holds secrets and is never indexed")
    return value


GitLabPath = Annotated[str, AfterValidator(_gitlab_path)]


class GitLabSettings(ServerSettings):
    """Markdown in repositories of a GitLab, and wikis."""

    kind: Literal["gitlab"] = "gitlab"
    base_url: Address = "https://gitlab.com"
    token: SecretSettings | None = None
    """A token with ``read_api``; without one only what is public is seen."""
    projects: tuple[GitLabPath, ...] = ()
    """Full paths (``team/handbook``) or numbers."""
    groups: tuple[GitLabPath, ...] = ()
    """All projects of these groups and of the groups below them."""
    ref: str | None = Field(default=None, min_length=1)
    """Branch, tag or commit; by default each project's default branch."""
    repository: bool = True
    wiki: bool = False
    archived: bool = False
    """Whether archived projects of a group are indexed too."""
    visibility: Mapping[Literal["public", "internal", "private"], tuple[AclTag, ...]] = Field(
        default_factory=dict
    )
    """Tags by visibility of the project; with it, one that is not named is visible to nobody."""

    @model_validator(mode="after")
    def _somewhere(self) -> GitLabSettings:
        if not self.projects and not self.groups:
            raise ValueError("name projects or groups")
        if not self.repository and not self.wiki:
            raise ValueError("repository and wiki are both off: there is nothing to index")
        return self


class NextcloudSettings(ServerSettings):
    """Files in folders of a Nextcloud."""

    kind: Literal["nextcloud"] = "nextcloud"
    user: str = Field(pattern=r"^[^/:\x00-\x1f]+$")
    """The account's user name, as Settings shows it beside the app password."""
    password: SecretSettings
    """An app password (Settings, Security)."""
    folders: tuple[RelativePath, ...] = ()
    """Folders of the user to index; none: all files."""
    office: bool = False
    """Whether Word, OpenDocument, PDF and HTML files are documents too; needs the extra
    ``rag-assets[office]``."""
    shares: Mapping[str, tuple[AclTag, ...]] = Field(default_factory=dict)
    """Tags by whom a file or a folder above it is shared with: ``user:<id>``, ``group:<id>``,
    ``link`` (public links)."""
    acl_list: bool = False
    """Group folders: narrow by the folder's access list (``nc:acl-list``), by the same names."""
    full_walk_hours: Number = Field(default=24.0, ge=0)
    """Folders whose ETag is unchanged are skipped, but for one walk in this long."""

    @field_validator("shares")
    @classmethod
    def _principals(
        cls, value: Mapping[str, tuple[AclTag, ...]]
    ) -> Mapping[str, tuple[AclTag, ...]]:
        for who in value:
            if not re.fullmatch(r"link|(user|group|circle):.+", who):
                raise ValueError(f"{who!r}: write user:<id>, group:<id> or link")
        return value


class CustomSettings(SourceSettings):
    """A source of the integrator's own, or one that an installed package provides."""

    kind: str
    """``package.module:Class``, or the name of an entry point of ``rag_assets.sources``."""
    root: OptionalPath = None
    url: str | None = None
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Keyword arguments for the class."""

    @field_validator("kind")
    @classmethod
    def _kind(cls, value: str) -> str:
        if "passbolt" in value.casefold():
            raise ValueError("Passbolt holds secrets and is never indexed")
        if not IMPORT_PATH.match(value) and value not in _installed_kinds():
            if value == "git":
                raise ValueError("a git repository has no kind of its own: leave kind out")
            known = ", ".join(sorted({*BUILT_IN, *_installed_kinds()}))
            raise ValueError(f"{value!r} is unknown; use {known} or 'package.module:Class'")
        return value


BUILT_IN: Final = {
    "markdown": MarkdownSettings,
    "bookstack": BookStackSettings,
    "gitlab": GitLabSettings,
    "nextcloud": NextcloudSettings,
}
ENTRY_POINTS: Final = "rag_assets.sources"
CUSTOM: Final = "custom"


def _installed_kinds() -> set[str]:
    from importlib.metadata import entry_points

    return {point.name for point in entry_points(group=ENTRY_POINTS)}


def _kind_of(value: Any) -> str:
    kind = value.get("kind", "markdown") if isinstance(value, Mapping) else value.kind
    return kind if isinstance(kind, str) and kind in BUILT_IN else CUSTOM


AnySourceSettings = Annotated[
    Annotated[MarkdownSettings, Tag("markdown")]
    | Annotated[BookStackSettings, Tag("bookstack")]
    | Annotated[GitLabSettings, Tag("gitlab")]
    | Annotated[NextcloudSettings, Tag("nextcloud")]
    | Annotated[CustomSettings, Tag(CUSTOM)],
    Discriminator(_kind_of),
]

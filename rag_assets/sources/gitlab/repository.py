"""The Markdown files of one repository at a ref, from its commit, its tree and its ignore file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from rag_assets.errors import ConfigurationError
from rag_assets.models import LeftOut
from rag_assets.sources.gitlab.parts import BlobHandle, Part, Rules
from rag_assets.sources.governance import IGNORE_FILE
from rag_assets.sources.ignore_rules import IgnoreRules
from rag_assets.sources.remote import Entry
from rag_assets.sources.server_api import TooLarge
from rag_assets.sources.tree_look import is_markdown

if TYPE_CHECKING:
    from rag_assets.sources.gitlab.api import Commit, GitLabApi, TreeItem
    from rag_assets.sources.gitlab.projects import Project

MAX_IGNORE_FILE_BYTES: Final = 1_000_000
"""A larger ignore file is a mistake; 20,000 patterns fit."""
BLOB: Final = "blob:"
"""Begins the version of a file of a repository; git's id of the content follows."""
_REGULAR: Final = frozenset({"100644", "100755", "100664"})
"""Modes of regular files; the last is one that early versions of git wrote."""


def list_repository(
    rules: Rules,
    api: GitLabApi,
    project: Project,
    ref: str,
    commit: Commit,
    acl_tags: tuple[str, ...] | None,
    before: Mapping[str, Any] | None,
) -> Part:
    """The Markdown files of ``project`` at ``commit``, which ``ref`` names.

    ``before`` is the record of an earlier listing; when it is of the same commit, nothing more is
    asked of the server.

    Raises:
        ConfigurationError: the ignore file cannot be used.
        IncompleteEnumeration, SourceUnavailable: the tree cannot be read whole.
    """
    key = {"path": project.path, "ref": ref, "commit": commit.id}
    if before is None or any(before.get(name) != value for name, value in key.items()):
        old = (before or {}).get("ignore")
        before = {**key, "dated": commit.committed_at, **_read(rules, api, project, commit, old)}
    address = f"{project.web_url}/-/blob/{quote(ref, safe='/')}/"
    entries = [
        Entry(
            path=f"{project.path}/{path}",
            version=BLOB + blob_id,
            url=address + quote(path, safe="/", errors="replace"),
            acl_tags=acl_tags,
            modified_at=before["dated"],
            handle=BlobHandle(project.id, blob_id),
        )
        for path, blob_id in before["files"]
    ]
    return Part(
        entries,
        [_left_out(rules, project, *row) for row in before["left"]],
        before["other"],
        before,
    )


def _read(
    rules: Rules, api: GitLabApi, project: Project, commit: Commit, old: list[str] | None
) -> dict[str, Any]:
    """What a tree holds for this source: documents, what is left out, and how much else."""
    candidates: list[TreeItem] = []
    ignore_item: TreeItem | None = None
    other = 0
    for item in api.tree(project, commit.id):
        if item.path == IGNORE_FILE and item.kind != "tree":
            ignore_item = item
        if item.kind == "tree" or not rules.holds(f"{project.path}/{item.path}"):
            continue
        if is_markdown(item.path.rpartition("/")[2]):
            candidates.append(item)
        else:
            other += 1
    ignore = _ignore_text(rules, api, project, ignore_item, old)
    patterns = _compiled(rules, project, ignore[1]) if ignore else None
    files: list[list[str]] = []
    left: list[list[Any]] = []
    for item in candidates:
        row = _why_not(rules, project, item, patterns)
        if row is None:
            files.append([item.path, item.id])
        else:
            left.append(row)
    return {"files": files, "left": left, "other": other, "ignore": ignore}


def _why_not(
    rules: Rules, project: Project, item: TreeItem, patterns: IgnoreRules | None
) -> list[Any] | None:
    """Path, reason, rule and line when the repository itself says that it is no document."""
    if rules.governance.decide(f"{project.path}/{item.path}") is not None:
        return None  # the rules of the source come first, and are told with their place
    if item.kind == "commit":
        return [item.path, "not_a_regular_file", "a submodule", None]
    if item.mode not in _REGULAR:
        return [item.path, "not_a_regular_file", "a symbolic link", None]
    if patterns and (rule := patterns.decide(item.path, is_dir=False)) is not None:
        return [item.path, "aiignore", rule.pattern, rule.line]
    return None


def _left_out(
    rules: Rules, project: Project, path: str, reason: Any, rule: str, line: int | None
) -> LeftOut:
    file = f"{project.path}/{IGNORE_FILE}" if reason == "aiignore" else None
    full = f"{project.path}/{path}"
    return LeftOut(rules.source, full, "excluded", reason, rule, file, line)


def _ignore_text(
    rules: Rules, api: GitLabApi, project: Project, item: TreeItem | None, old: list[str] | None
) -> list[str] | None:
    """Id and text of the ignore file; None without one.

    Raises:
        ConfigurationError: it is no readable text, so what it excludes is not known.
    """
    if item is None:
        return None
    if old is not None and old[0] == item.id:
        return old
    where = f"source {rules.source}: {project.path}/{IGNORE_FILE}"
    if item.kind != "blob" or item.mode not in _REGULAR:
        raise ConfigurationError(
            f"{where}: is no regular file, so what it excludes is not known; make it one or "
            "remove it"
        )
    try:
        content = api.blob(project.id, item.id, MAX_IGNORE_FILE_BYTES)
        return [item.id, content.decode("utf-8")]
    except TooLarge as exc:
        raise ConfigurationError(
            f"{where}: is larger than {MAX_IGNORE_FILE_BYTES:,} bytes; shorten it"
        ) from exc
    except UnicodeDecodeError as exc:
        line = exc.object.count(b"\n", 0, exc.start) + 1
        raise ConfigurationError(
            f"{where}:{line} byte 0x{exc.object[exc.start]:02x} is not UTF-8, so what the file "
            "excludes is not known; save it as UTF-8"
        ) from exc


def _compiled(rules: Rules, project: Project, text: str) -> IgnoreRules:
    try:
        return IgnoreRules(text, f"{project.path}/{IGNORE_FILE}")
    except ConfigurationError as exc:
        raise ConfigurationError(f"source {rules.source}: {exc}") from exc

"""A GitLab project as its API describes it, checked: where it is and what of it may be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Repository = Literal["open", "none", "refused"]
"""``none``: switched off, or without a commit. ``refused``: this token may not read the code."""
Wiki = Literal["open", "none", "refused", "unknown"]
"""``unknown``: without a token GitLab does not say whether there is one."""


@dataclass(frozen=True, slots=True)
class Project:
    """One project."""

    id: int
    path: str
    """Full path, such as ``team/docs/handbook``."""
    web_url: str
    default_branch: str
    """Empty: none."""
    repository: Repository
    repository_visibility: str
    """``public``, ``internal`` or ``private``; empty: not said."""
    wiki: Wiki
    wiki_visibility: str
    archived: bool
    deleted: bool
    """Marked for deletion: still there for some days, for those who want it back."""
    says_empty: bool
    """Whether the description says if there is any commit (without a token it does not)."""


def project_of(value: Any, address: str, *, anonymous: bool) -> Project:
    """The project that an answer describes.

    Raises:
        ValueError: it describes none; the message says what is wrong.
    """
    number = value.get("id") if isinstance(value, Mapping) else None
    if type(number) is not int or number < 1:
        raise ValueError("what should be a project has no id")
    path = value.get("path_with_namespace")
    if not isinstance(path, str) or not path.strip("/"):
        raise ValueError(f"project {number} has no path_with_namespace")
    branch, web_url = value.get("default_branch"), value.get("web_url")
    if not isinstance(web_url, str) or not web_url.startswith(("https://", "http://")):
        web_url = f"{address}/{path}"
    visibility = value.get("visibility")
    if not isinstance(visibility, str):
        # Whoever shows no token is shown only what is public.
        visibility = "public" if anonymous else ""
    return Project(
        id=number,
        path=path,
        web_url=web_url.rstrip("/"),
        default_branch=branch if isinstance(branch, str) else "",
        repository=_repository(value),
        repository_visibility=_narrowed(visibility, value.get("repository_access_level")),
        wiki=_wiki(value),
        wiki_visibility=_narrowed(visibility, value.get("wiki_access_level")),
        archived=value.get("archived") is True,
        deleted=any(value.get(f"marked_for_deletion_{word}") for word in ("on", "at")),
        says_empty="empty_repo" in value,
    )


def _narrowed(visibility: str, access_level: object) -> str:
    """A part of a project that only its members see is private, however public the project is."""
    return "private" if access_level == "private" else visibility


def _repository(value: Mapping[str, Any]) -> Repository:
    if value.get("repository_access_level") == "disabled":
        return "none"
    if "default_branch" not in value:  # GitLab names it to those who may read the code
        return "refused"
    if not value["default_branch"] or value.get("empty_repo") is True:
        return "none"
    return "open"


def _wiki(value: Mapping[str, Any]) -> Wiki:
    level, enabled = value.get("wiki_access_level"), value.get("wiki_enabled")
    if level == "disabled" or (level is None and enabled is False):
        return "none"
    if enabled is False:  # it is on, and not for this token
        return "refused"
    return "unknown" if level is None and enabled is None else "open"

"""What the listing of a commit leaves behind for the next look, and a listing made from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from rag_assets.models import LeftOut, SourceFile
from rag_assets.sources.git.address import is_commit
from rag_assets.sources.git.listing import Listed, ListingRules

FORMAT: Final = "git-1"


def state_of(settings: str, commit: str, listed: Listed, *, whole: bool) -> dict[str, Any]:
    """JSON-able: the commit and, when ``whole``, all that was listed except contents."""
    state: dict[str, Any] = {"format": FORMAT, "settings": settings, "commit": commit}
    if whole:
        state["documents"] = {file.path: file.version for file in listed.files}
        state["left_out"] = [asdict(row) for row in listed.left_out]
        state["other_files"] = listed.other_files
    return state


def is_ours(state: Mapping[str, Any] | None, settings: str) -> bool:
    """Whether a listing under these settings left the state."""
    return (
        state is not None
        and state.get("format") == FORMAT
        and state.get("settings") == settings
        and is_commit(str(state.get("commit")))
    )


def listed_again(
    state: Mapping[str, Any], rules: ListingRules, known: Mapping[str, SourceFile]
) -> Listed | None:
    """The listing of the state's commit, when ``known`` still has every document of it."""
    documents, rows = state.get("documents"), state.get("left_out")
    if not isinstance(documents, Mapping) or not isinstance(rows, Sequence):
        return None
    files = [known.get(path) for path in documents]
    kept = tuple(file for file in files if file is not None and _is_current(file, rules))
    if [file.version for file in kept] != [*documents.values()]:
        return None
    try:
        left_out = tuple(LeftOut(**row) for row in rows)
        return Listed(kept, left_out, int(state["other_files"]), read=0)
    except (KeyError, TypeError, ValueError):
        return None


def _is_current(file: SourceFile, rules: ListingRules) -> bool:
    """Whether the file is what these rules make of it."""
    urls = rules.urls
    if urls.has_commit:
        url_fits = urls.commit_of(file.path, file.url) is not None
    else:
        url_fits = file.url == urls.url(file.path, "")
    return (
        url_fits and file.source == rules.source and file.acl_tags == rules.acl.tags_for(file.path)
    )

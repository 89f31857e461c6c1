"""Say of one path below a root why it is left out, without listing the tree."""

from __future__ import annotations

import os

from rag_assets.models import LeftOut
from rag_assets.sources import tree_look
from rag_assets.sources.file_reading import Disk, NotReadable, is_blank, not_readable, read_file
from rag_assets.sources.path_names import is_unsafe, printable
from rag_assets.sources.tree_walk import TreeWalk, left_out, printable_row


def explain(walk: TreeWalk, path: str, disk: Disk) -> LeftOut | None:
    """What keeps ``path`` out: a row for it or for a folder above it; None when nothing does.

    ``walk`` is one that has not run: it knows root and rules.

    Raises:
        IncompleteEnumeration, SourceUnavailable: as ``TreeWalk.run``, for symbolic links only.
    """
    relative = _relative(walk.root, path)
    if relative is None:
        return left_out(walk.source, path, "outside_root", f"not below {walk.root}")
    if not relative:
        return None
    relative = _as_on_disk(walk.root, relative)
    full = f"{walk.root}/{relative}"
    is_dir = path.endswith("/") or (os.path.isdir(full) and not os.path.islink(full))
    ruled = walk.governance.decide(relative, is_dir=is_dir)
    if ruled is not None:
        return printable_row(ruled)
    return _explain_folders(walk, relative) or _explain_entry(walk, relative, is_dir, disk)


def _relative(root: str, path: str) -> str | None:
    """``path`` from the root down, without ``.`` and ``..``; None when it leads out."""
    if path.startswith("/"):
        if path != root and not path.startswith(root + "/"):
            return None
        path = path[len(root) :]
    names: list[str] = []
    for name in path.split("/"):
        if name == "..":
            if not names:
                return None
            names.pop()
        elif name not in ("", "."):
            names.append(name)
    return "/".join(names)


def _as_on_disk(root: str, path: str) -> str:
    """The path with its last name as it is, when it was given as listings print it."""
    folder, _, name = path.rpartition("/")
    if "\\" not in name or os.path.lexists(f"{root}/{path}"):
        return path
    try:
        names = os.listdir(f"{root}/{folder}")
    except OSError:
        return path
    real = next((found for found in names if printable(found) == name), name)
    return f"{folder}/{real}" if folder else real


def _explain_folders(walk: TreeWalk, path: str) -> LeftOut | None:
    """The first folder above, or ``path`` itself as a folder, that a walk does not enter."""
    names = path.split("/")
    for depth in range(1, len(names) + 1):
        folder, name = "/".join(names[:depth]), names[depth - 1]
        full, is_last = f"{walk.root}/{folder}", depth == len(names)
        if os.path.islink(full):
            if not is_last:
                return _explain_link(walk, folder)
        elif name in tree_look.VERSION_CONTROL or folder in walk.skip:
            detail = "version control and data folders are never entered"
            return left_out(walk.source, folder, "hard_exclusion", detail, is_dir=True)
        if not is_last and is_unsafe(name):
            return left_out(walk.source, folder, "unsafe_name", printable(name), is_dir=True)
    return None


def _explain_entry(walk: TreeWalk, path: str, is_dir: bool, disk: Disk) -> LeftOut | None:
    name, full = path.rpartition("/")[2], f"{walk.root}/{path}"
    if os.path.islink(full):
        return _explain_link(walk, path)
    if is_unsafe(name):
        return left_out(walk.source, path, "unsafe_name", printable(name), is_dir=is_dir)
    if not tree_look.is_markdown(name):
        if is_dir:
            return None
        return left_out(walk.source, path, "not_markdown", "neither .md nor .markdown")
    try:
        status = os.stat(full, follow_symlinks=False)
        if (fault := walk.fault_of(status)) is not None:
            return left_out(walk.source, path, fault[0], fault[1])
        content, _ = read_file(full, status, walk.max_file_bytes, disk)
    except FileNotFoundError:
        return None
    except OSError as exc:
        fault_found = not_readable(full, exc)
        return left_out(walk.source, path, fault_found.reason, fault_found.detail)
    except NotReadable as exc:
        return left_out(walk.source, path, exc.reason, exc.detail)
    return left_out(walk.source, path, "blank", "") if is_blank(content) else None


def _explain_link(walk: TreeWalk, path: str) -> LeftOut | None:
    """Whether a link is an alias depends on all documents, so this one lists the tree."""
    rows = walk.run().left_out
    shown = "/".join(map(printable, path.split("/")))
    return next((row for row in rows if row.path in (shown, shown + "/")), None)

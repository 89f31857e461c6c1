"""Did anything change since the index was last brought up to date? Answered without heavy imports.

Two kinds of small JSON files under ``data_dir/state`` hold what is needed: one per partition with
what its last listing saw, and ``indexed.json`` with the partitions that the index holds exactly
as listed. They are hints: whoever does not trust them lists and compares contents.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from rag_assets import __version__
from rag_assets.errors import AssetError
from rag_assets.fingerprints import (
    ANALYSIS_VERSION,
    CHUNKING_VERSION,
    DOCUMENTS_VERSION,
    INDEX_VERSION,
    SCREENING_VERSION,
    SOURCES_VERSION,
)
from rag_assets.project import ASSETS, DataFolder

CODE: Final = [
    __version__,
    SOURCES_VERSION,
    DOCUMENTS_VERSION,
    SCREENING_VERSION,
    CHUNKING_VERSION,
    ANALYSIS_VERSION,
    INDEX_VERSION,
]
"""Another version of the package, or of a stage, makes every remembered answer worthless."""


def remember_look(
    data: DataFolder,
    partition: str,
    look_state: Mapping[str, Any],
    *,
    listing_version: str,
    stage: str,
    retry: bool = False,
) -> None:
    """Keep what a listing saw, and the fingerprint of the settings it was made with.

    ``retry``: something could not be read, or took too long: a listing tries again when somebody
    asks, though nothing changes.
    """
    state = {"version": listing_version, "stage": stage, "retry": retry, "look": dict(look_state)}
    _write(data.look_state(partition), state)


def remember_indexed(
    data: DataFolder,
    config: Path,
    stages: Mapping[str, str],
    recorded: Collection[str],
    current: Callable[[str, str], bool],
) -> bool:
    """Write down which partitions the index holds exactly as they were last listed.

    ``stages`` gives the fingerprint of each partition's source settings; ``recorded`` are the
    partitions in the index; ``current`` says of a partition and a listing version whether index
    and tables hold it. Returns whether everything is up to date.
    """
    listed: dict[str, str] = {}
    for key, stage in stages.items():
        state = _read(data.look_state(key))
        if state is not None and state.get("stage") == stage and current(key, state["version"]):
            listed[key] = state["version"]
    complete = len(listed) == len(stages) and not set(recorded) - set(stages)
    _write(
        data.indexed,
        {
            "code": CODE,
            "config": _file_hash(config),
            "releases": _file_hash(data.releases),
            "index": _index_signature(data),
            "tables": {key: _table_signatures(data, key) for key in listed},
            "partitions": listed,
            "complete": complete,
        },
    )
    return complete


def retries(data: DataFolder, partition: str) -> bool:
    """Whether the last listing of a partition left something to try again."""
    return bool((_read(data.look_state(partition)) or {}).get("retry"))


def remembered_look(
    data: DataFolder, partition: str, stage: str
) -> tuple[str, Mapping[str, Any]] | None:
    """Version and ``look_state`` of the last listing, if it was made with these settings."""
    state = _read(data.look_state(partition))
    if state is None or state.get("stage") != stage:
        return None
    version, look = state.get("version"), state.get("look")
    return (version, look) if isinstance(version, str) and isinstance(look, dict) else None


def nothing_changed(config: Path) -> bool:
    """True when configuration, code, index and every source are as they were after the last run.

    False means only "look closer". Contents are not read, except of files so fresh that their time
    stamps prove nothing.
    """
    data = DataFolder(_data_dir(config))
    remembered = _read(data.indexed)
    indexed = up_to_date(data, config)
    if not remembered or not remembered.get("complete"):
        return False
    if indexed.keys() != remembered["partitions"].keys():
        return False
    return all(
        not partition_changed(data, key, version) and not retries(data, key)
        for key, version in indexed.items()
    )


def partition_changed(data: DataFolder, partition: str, listing_version: str | None = None) -> bool:
    """Whether the tree of a partition differs from its last listing; True when that is not known.

    ``listing_version``: the listing that the caller believes in; another one counts as changed.
    """
    from rag_assets.sources.tree_look import look_tree

    state = _read(data.look_state(partition))
    if state is None or (listing_version is not None and state.get("version") != listing_version):
        return True
    try:
        found = look_tree(state["look"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return True  # not the state of a listing
    if not found and found.settled is not None:
        # Files too fresh to be told by their times were compared by content: not again next time.
        with suppress(AssetError):
            _write(data.look_state(partition), {**state, "look": found.settled})
    return bool(found)


def up_to_date(data: DataFolder, config: Path) -> Mapping[str, str]:
    """Listing version of every partition the index is up to date with, under this configuration."""
    indexed = _read(data.indexed)
    if (
        indexed is None
        or indexed.get("code") != CODE
        or indexed.get("config") != _file_hash(config)
        or indexed.get("releases") != _file_hash(data.releases)
        or indexed.get("index") != _index_signature(data)
    ):
        return {}
    partitions, signatures = indexed.get("partitions"), indexed.get("tables")
    if not isinstance(partitions, dict) or not isinstance(signatures, dict):
        return {}
    return {
        key: version
        for key, version in partitions.items()
        if signatures.get(key) == _table_signatures(data, key)
    }


def _data_dir(config: Path) -> Path:
    import yaml

    with config.open("rb") as file:
        settings = yaml.load(file, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    value = settings.get("data_dir", ".rag_assets") if isinstance(settings, dict) else ".rag_assets"
    return Path(os.path.normpath(config.parent / os.path.expanduser(str(value))))


def _file_hash(path: Path) -> str:
    """sha256 (hex) of a file; empty when there is none."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""


def _table_signatures(data: DataFolder, partition: str) -> list[list[int] | None]:
    """Size and time of the partition's tables, if they are files here; None for a missing one."""
    found: list[list[int] | None] = []
    for asset in ASSETS:
        try:
            stat = os.stat(data.assets / asset / f"{partition}.parquet")
            found.append([stat.st_size, stat.st_mtime_ns])
        except OSError:
            found.append(None)
    return found


def _index_signature(data: DataFolder) -> list[Any] | None:
    """Which index file is live and its size and times; None when the index is not a file here."""
    try:
        name = (data.index / "CURRENT").read_text(encoding="utf-8").strip()
        stat = os.stat(data.index / name)
    except OSError:
        return None
    try:
        wal = os.stat(data.index / f"{name}-wal").st_size
    except OSError:
        wal = 0
    return [name, stat.st_size, stat.st_mtime_ns, stat.st_ino, wal]


def _read(path: Path) -> dict[str, Any] | None:
    """The JSON object in a state file; None when it is missing or damaged (it is only a hint)."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _write(path: Path, value: Mapping[str, Any]) -> None:
    """Replace a state file at once.

    Raises:
        AssetError: the disk is full or not writable; the old file is untouched.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(value, separators=(",", ":")), encoding="utf-8")
        os.replace(temporary, path)
    except OSError as exc:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise AssetError(
            f"{path}: cannot be written: {exc.strerror}; free space or mend the folder's "
            "permissions, then run again"
        ) from exc

"""Parquet files of assets, one per partition, replaced whole and never seen half written."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from upath import UPath

from rag_assets.errors import AssetError
from rag_assets.pipeline.tables import stamp_of

COMPRESSION: Final = {"content": "lz4", "body": "lz4"}
"""Text is compressed fast; hashes and vectors do not compress."""

ABANDONED_AFTER_SECONDS: Final = 3600.0
"""A temporary file this old belongs to a process that was killed while it wrote."""


class AssetFiles:
    """``<base>/<asset>/<partition>.parquet``: the files of the IO manager, read directly."""

    def __init__(self, base: UPath | Path) -> None:
        self.base = base

    def path(self, asset: str, partition: str) -> UPath | Path:
        """Where the table of that asset and partition is kept."""
        return self.base / asset / f"{partition}.parquet"

    def read(self, asset: str, partition: str) -> pa.Table | None:
        """The table, None when the asset was never made. Raises AssetError on a damaged file."""
        return read_table(self.path(asset, partition))

    def read_or_none(self, asset: str, partition: str) -> pa.Table | None:
        """The table, None too when it cannot be read: then it is simply made again."""
        try:
            return self.read(asset, partition)
        except AssetError:
            return None

    def stamp(self, asset: str, partition: str) -> dict[str, Any]:
        """Provenance of the table (see ``tables.stamped``), without reading its rows.

        Empty when there is no table, or none that can be read.
        """
        path = self.path(asset, partition)
        try:
            with _opened(path) as file:
                return stamp_of(pq.read_schema(file))
        except (pa.ArrowException, OSError):
            return {}

    def write(self, asset: str, partition: str, table: pa.Table) -> None:
        """Replace the table. Raises AssetError, leaving the old one, when it cannot be written."""
        write_table(self.path(asset, partition), table)

    def column(self, asset: str, partition: str, name: str) -> set[str]:
        """Distinct values of one text column; empty when the asset was never made.

        Raises:
            AssetError: the table cannot be read.
        """
        table = read_table(self.path(asset, partition), columns=[name])
        return set() if table is None else set(table[name].to_pylist())

    def keep_only(self, partitions: Collection[str]) -> None:
        """Delete the files of every other partition."""
        if not self.base.exists():
            return
        for folder in self.base.iterdir():
            for file in folder.glob("*.parquet") if folder.is_dir() else ():
                if file.name.removesuffix(".parquet") not in partitions:
                    file.unlink(missing_ok=True)


def read_table(path: UPath | Path, columns: Sequence[str] | None = None) -> pa.Table | None:
    """The table, or None when the file does not exist.

    Raises:
        AssetError: the file is there and is not a Parquet file.
    """
    if not path.exists():
        return None
    try:
        with _opened(path) as file:
            return pq.read_table(file, columns=columns, use_threads=_is_local(path))
    except (pa.ArrowException, OSError) as exc:
        raise AssetError(
            f"{path}: not readable as Parquet ({str(exc).splitlines()[0]}); delete it, then run "
            "`rag-assets ingest` to make it again"
        ) from exc


def write_table(path: UPath | Path, table: pa.Table) -> None:
    """Replace the file by the table: written beside it, flushed, then moved over it.

    Object stores replace an object at once, so there it is written in place.

    Raises:
        AssetError: the disk is full or not writable; the old file is untouched.
    """
    local = _is_local(path)
    target = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex}.tmp") if local else path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if local:
            _remove_abandoned(Path(str(path)))
        with target.open("wb") as file:
            pq.write_table(table, file, compression=_compression(table.schema))
            if local:
                file.flush()
                os.fsync(file.fileno())
        if local:
            os.replace(str(target), str(path))
    except OSError as exc:
        if local:
            target.unlink(missing_ok=True)
        raise AssetError(
            f"{path}: cannot be written: {exc.strerror or exc}; free space or mend the folder's "
            "permissions, then run again"
        ) from exc


def _is_local(path: UPath | Path) -> bool:
    return getattr(path, "protocol", "") in ("", "file", "local")


def _opened(path: UPath | Path) -> Any:
    """A local file opened by Arrow itself, a remote one through fsspec.

    Arrow's threads may still hold buffers of a Python file when the interpreter ends, and abort the
    process; so they are given none.
    """
    return pa.OSFile(str(path), "rb") if _is_local(path) else path.open("rb")


def _remove_abandoned(path: Path) -> None:
    """Temporary files of killed writers hold texts that may be deleted since: take them away."""
    for other in path.parent.glob(f".{path.name}.*.tmp"):
        pid = other.name[len(path.name) + 2 :].split("-")[0]
        old = time.time() - other.stat().st_mtime > ABANDONED_AFTER_SECONDS
        if old or (pid.isdigit() and not _alive(int(pid))):
            other.unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _compression(schema: pa.Schema) -> dict[str, str]:
    """Codec per Parquet leaf column; lists name their leaf ``<column>.list.element``."""
    codecs = {}
    for field in schema:
        nested = pa.types.is_list(field.type) or pa.types.is_fixed_size_list(field.type)
        leaf = f"{field.name}.list.element" if nested else field.name
        codecs[leaf] = COMPRESSION.get(field.name, "none")
    return codecs

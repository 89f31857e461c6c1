"""What SQLite, sqlite-vec and the file system raise, as errors of this package: the one place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import apsw

from rag_assets.errors import (
    ExtensionUnavailable,
    IndexDamaged,
    IndexLocked,
    IndexMissing,
    RagError,
    VectorStoreError,
)

WAY_OUT: Final = "run `rag-assets ingest --full` to build it anew"
"""What a person does about an index that cannot be used; the index is derived, nothing is lost."""


@contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    """Raise what goes wrong with the index at ``path`` as one kind of ``VectorStoreError``.

    A write that fails was rolled back by its transaction before the error comes through here.
    """
    try:
        yield
    except RagError:
        raise
    except apsw.Error as exc:
        raise translate(exc, path) from exc
    except OSError as exc:
        reason = exc.strerror or str(exc)
        raise VectorStoreError(f"{path}: the index cannot be used: {reason}") from exc


def translate(exc: apsw.Error, path: Path) -> VectorStoreError:
    """The error of this package that says what ``exc`` means for the index at ``path``."""
    if isinstance(exc, apsw.FullError):
        return VectorStoreError(
            f"{path}: the disk is full; nothing of this batch was written: free some space and "
            "run again"
        )
    if isinstance(exc, (apsw.BusyError, apsw.LockedError)):
        return IndexLocked(
            f"{path}: another process is in the middle of writing the index; try again when it "
            "has finished"
        )
    if isinstance(exc, (apsw.ReadOnlyError, apsw.PermissionsError)):
        return VectorStoreError(
            f"{path}: the index or its folder is read-only for this user; nothing was written: "
            "allow writing, or set another data_dir"
        )
    if isinstance(exc, apsw.CantOpenError) and path.parent.is_dir() and not path.exists():
        return IndexMissing(f"{path}: there is no index any more; run `rag-assets ingest`")
    if isinstance(exc, apsw.CantOpenError):
        return VectorStoreError(_cannot_open(path))
    if isinstance(exc, apsw.NotADBError):
        return IndexDamaged(f"{path}: not a SQLite database, or no longer one; {WAY_OUT}")
    if isinstance(exc, apsw.CorruptError):
        return IndexDamaged(f"{path}: the file is damaged ({exc}); {WAY_OUT}")
    if isinstance(exc, apsw.ExtensionLoadingError):
        return ExtensionUnavailable(
            f"the SQLite extension sqlite-vec cannot be loaded ({exc}); install it for this "
            "platform with `pip install sqlite-vec==0.1.9`"
        )
    if isinstance(exc, apsw.IOError):
        return VectorStoreError(
            f"{path}: reading or writing the disk failed ({exc}); nothing of this batch was "
            "written: check the disk and its free space, then run again"
        )
    if isinstance(exc, (apsw.SQLError, apsw.MismatchError, apsw.SchemaChangeError)):
        # Our statements are fixed and tested, so an unknown table or a vec0 block that cannot be
        # read means that the file is not what we wrote.
        return IndexDamaged(f"{path}: the index contradicts itself ({exc}); {WAY_OUT}")
    return VectorStoreError(f"{path}: the index cannot be used ({type(exc).__name__}: {exc})")


def _cannot_open(path: Path) -> str:
    if not path.parent.is_dir():
        return f"{path}: the folder {path.parent} does not exist; create it or set another data_dir"
    if path.exists() and not os.access(path, os.R_OK):
        return f"{path}: this user may not read the index; change its permissions"
    return (
        f"{path}: SQLite cannot open the index; the folder must be writable for this user, and "
        "the disk not full"
    )

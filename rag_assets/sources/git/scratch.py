"""Folders for temporary clones, of which none outlives the process that made it for long."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from rag_assets.errors import SourceUnavailable

PREFIX: Final = "clone-"
_LOCK: Final = ".lock"


@contextmanager
def scratch_folder(work_dir: Path) -> Iterator[Path]:
    """A new empty folder in ``work_dir``, deleted at the end whatever happens.

    Raises:
        SourceUnavailable: it cannot be made.
    """
    remove_leftovers(work_dir)
    try:
        work_dir.mkdir(parents=True, exist_ok=True)
        folder, lock, held = _reserve(work_dir)
    except OSError as exc:
        raise _not_made(work_dir, exc) from exc
    try:
        try:
            folder.mkdir(mode=0o700)
        except OSError as exc:
            raise _not_made(work_dir, exc) from exc
        yield folder
    finally:
        _remove(folder)
        with suppress(OSError):
            lock.unlink()
        os.close(held)


def remove_leftovers(work_dir: Path) -> None:
    """Delete the folders whose process is gone: its lock went with it."""
    try:
        names = {name for name in os.listdir(work_dir) if name.startswith(PREFIX)}
    except OSError:
        return
    for name in {name.removesuffix(_LOCK) for name in names}:
        lock = work_dir / (name + _LOCK)
        held = _try_lock(lock)
        if held is None:
            continue
        _remove(work_dir / name)
        with suppress(OSError):
            lock.unlink()
        os.close(held)


def _reserve(work_dir: Path) -> tuple[Path, Path, int]:
    """A name that nobody else has: the folder to be made, its lock file and a descriptor of that.

    Raises:
        OSError: the lock file cannot be made.
    """
    while True:
        folder = work_dir / f"{PREFIX}{secrets.token_hex(8)}"
        lock = folder.with_name(folder.name + _LOCK)
        held = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with suppress(OSError):  # without locks, no left-over is ever taken for one
            fcntl.flock(held, fcntl.LOCK_EX)
        # Somebody may have taken it for a left-over before it was locked.
        with suppress(OSError):
            if os.path.samestat(os.stat(lock), os.fstat(held)):
                return folder, lock, held
        os.close(held)


def _try_lock(lock: Path) -> int | None:
    """Its descriptor when nobody holds it, or it does not exist; None when somebody does."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove(folder: Path) -> None:
    """Git makes its objects read-only, and a killed one may still be writing: try twice."""
    for _ in range(2):
        shutil.rmtree(folder, ignore_errors=True)


def _not_made(work_dir: Path, exc: OSError) -> SourceUnavailable:
    return SourceUnavailable(
        f"{work_dir}: no temporary clone can be made there ({exc.strerror}); free space or mend "
        "the folder's permissions, then run again"
    )

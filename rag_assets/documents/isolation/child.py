"""What runs in the process of a worker: requests on its standard input, answers on its output.

Each request is one call of the target. After a warm-up the process takes its limits: memory,
no byte written to a file, no core dump; and for each call an alarm that ends the process.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any, Final

from rag_assets.documents.isolation.frames import frame, read_bodies, write_frame
from rag_assets.errors import RagError

READY: Final = "ready"
NOT_STARTED: Final = "not_started"
RESULT: Final = "result"
RAISED: Final = "raised"
FAILED: Final = "failed"

FOLDER_PREFIX: Final = "rag-assets-worker-"
ADDRESS_SPACE_HEADROOM_BYTES: Final = 512 << 20
"""Address space beyond the limit of data: thread stacks and arenas reserved but never used."""
TIRED_FRACTION: Final = 0.25
"""A process that keeps more than this part of its memory limit after a call is to be replaced."""


def main(target: str, seconds: str, megabytes: str, calls: str) -> None:
    """Serve calls of ``target`` (``package.module:function``) until standard input ends."""
    requests, answers = _take_pipes()
    if hasattr(signal, "SIGINT"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when it ends
    bodies = read_bodies(requests)
    try:
        function = _resolve(target)
        for arguments in pickle.loads(next(bodies)):  # noqa: S301 - our parent's
            function(*arguments)
        _limit(int(megabytes))
    except BaseException as error:  # noqa: BLE001 - whatever it is, the parent has to know
        write_frame(answers, frame((0, NOT_STARTED, f"{type(error).__name__}: {error}", False)))
        return
    gc.collect()
    gc.freeze()
    write_frame(answers, frame((0, READY, None, False)))
    serving = _Serving(function, float(seconds), int(megabytes) << 20, int(calls))
    with contextlib.suppress(BrokenPipeError):
        for body in bodies:
            write_frame(answers, serving.answer(body))
    _remove_folder()
    _end_group()


class _Serving:
    """Calls the function, one request after another."""

    def __init__(
        self, function: Callable[..., object], seconds: float, memory_bytes: int, calls: int
    ) -> None:
        self._function = function
        self._seconds = seconds
        self._calls = calls
        self._count = 0
        self._resident = _Resident()
        self._tired_bytes = self._resident.bytes() + int(memory_bytes * TIRED_FRACTION)

    def answer(self, body: bytes) -> bytes:
        """The frame that answers one request; ends the process when it takes too long."""
        self._count += 1
        _set_alarm(self._seconds)
        try:
            kind, payload = RESULT, self._function(*pickle.loads(body))  # noqa: S301 - our parent's
            del body
            return frame((self._count, kind, payload, self._is_tired()))
        except RagError as error:
            kind, payload = RAISED, _described(error)
        except BaseException as error:  # noqa: BLE001 - one document must not end the others
            kind, payload = FAILED, _failure(error)
        finally:
            _set_alarm(0)
        return self._exception_frame(kind, payload)

    def _exception_frame(self, kind: str, payload: Any) -> bytes:
        # After MemoryError or RecursionError nothing is left that could be relied on.
        tired = payload[0] != "error" if kind == FAILED else self._is_tired()
        return frame((self._count, kind, payload, tired))

    def _is_tired(self) -> bool:
        return self._count >= self._calls or self._resident.bytes() > self._tired_bytes


class _Resident:
    """Resident memory of this process, from a file that stays open; 0 where there is none."""

    def __init__(self) -> None:
        try:
            self._descriptor = os.open("/proc/self/statm", os.O_RDONLY)
            self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        except (OSError, AttributeError, ValueError):
            self._descriptor = -1

    def bytes(self) -> int:
        if self._descriptor < 0:
            return 0
        return int(os.pread(self._descriptor, 128, 0).split()[1]) * self._page_bytes


def _take_pipes() -> tuple[int, int]:
    """Descriptors of requests and answers; what the target prints goes to standard error."""
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    if sys.platform == "win32":
        import msvcrt

        for descriptor in (requests, answers):
            msvcrt.setmode(descriptor, os.O_BINARY)
    return requests, answers


def _resolve(target: str) -> Callable[..., object]:
    module, _, name = target.partition(":")
    function: Callable[..., object] = getattr(importlib.import_module(module), name)
    if not callable(function):
        raise TypeError(f"{target} cannot be called")
    return function


def _limit(megabytes: int) -> None:
    """Limits of the process, above what it uses now; where the platform has them."""
    sys.dont_write_bytecode = True
    try:
        import resource
    except ImportError:
        return
    _set_limit(resource.RLIMIT_CORE, 0)
    # Not a byte of a document reaches a disk. Pipes are not files and stay open.
    if hasattr(signal, "SIGXFSZ"):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _set_limit(resource.RLIMIT_FSIZE, 0)
    used = _memory_in_use()
    if used is None:
        return
    address_space, data = used
    _set_limit(resource.RLIMIT_DATA, data + (megabytes << 20))
    _set_limit(resource.RLIMIT_AS, address_space + (megabytes << 20) + ADDRESS_SPACE_HEADROOM_BYTES)


def _set_limit(which: int, value: int) -> None:
    import resource

    hard = resource.getrlimit(which)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(which, (value, value))


def _memory_in_use() -> tuple[int, int] | None:
    """Bytes of address space and of private data; None where the system does not tell."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            sizes = dict(line.split(":", 1) for line in status if line.startswith("Vm"))
        return tuple(int(sizes[name].split()[0]) << 10 for name in ("VmSize", "VmData"))  # type: ignore[return-value]
    except (OSError, KeyError, ValueError):
        return None


def _set_alarm(seconds: float) -> None:
    """End this process after so many seconds, even inside native code; 0 calls it off.

    The signal's default action needs neither the interpreter nor a parent that is still alive.
    """
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _described(error: RagError) -> tuple[list[tuple[str, str]], tuple[Any, ...], dict[str, Any]]:
    """Names of its classes from the innermost on, its arguments, its attributes."""
    names = [(kind.__module__, kind.__qualname__) for kind in type(error).__mro__]
    attributes = {name: _plain(value) for name, value in vars(error).items()}
    return names, tuple(map(_plain, error.args)), attributes


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def _failure(error: BaseException) -> tuple[str, str]:
    """Kind and message; never the exception's own words, which may quote the document."""
    if isinstance(error, MemoryError):
        return "memory", ""
    if isinstance(error, RecursionError):
        return "crash", "it is nested more deeply than the parser can follow"
    if isinstance(error, pickle.PicklingError):
        return "error", "what it returned cannot be pickled"
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    return "error", f"it raised {type(error).__name__}{where}"


def _remove_folder() -> None:
    """The parent is gone, perhaps without having removed the temporary folder it made for us."""
    folder = os.environ.get("TMPDIR", "")
    if os.path.basename(folder).startswith(FOLDER_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)


def _end_group() -> None:
    """Take along whatever the target started, when this process leads its own group."""
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)

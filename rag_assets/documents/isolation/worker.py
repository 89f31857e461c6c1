"""Calls of one function in a child process that may be killed: no document stalls or ends a run.

A document that takes too long, needs too much memory or crashes native code costs only itself: the
child is killed with all it started, and the next document finds a new one. The child has a session
of its own, an environment without secrets, and may write no file. Its answers are hostile until
proven otherwise: only plain values and named dataclasses are accepted.

A child takes its alarm with it, so one whose parent was killed ends within ``seconds`` too.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import weakref
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import is_dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal

from rag_assets import models
from rag_assets.documents.isolation.child import FOLDER_PREFIX, NOT_STARTED, RAISED, READY, RESULT
from rag_assets.documents.isolation.frames import (
    UntrustedFrame,
    allowed_types,
    frame,
    load_untrusted,
)
from rag_assets.documents.isolation.process import ChildProcess
from rag_assets.errors import RagError

FailureKind = Literal["timeout", "memory", "crash", "error"]
"""``error``: the function raised something that is not of the ``RagError`` tree."""

START_SECONDS: Final = 60.0
"""How long a child may take to import its target, on the slowest disk."""
GRACE_SECONDS: Final = 0.5
"""The child's own alarm comes first; this long after it the parent loses patience."""
WINDOW_CALLS: Final = 64
"""Calls sent ahead of the answers: enough to keep the child busy, few enough to send again."""
WINDOW_BYTES: Final = 4 << 20
CALLS_PER_CHILD: Final = 20_000
"""A child is replaced after so many calls, whatever leaks."""

MODEL_TYPES: Final = frozenset(
    kind for kind in vars(models).values() if isinstance(kind, type) and is_dataclass(kind)
)


class WorkerFailed(RagError):
    """A call that gave no result. The message quotes nothing of what the call was given."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind


class WorkerNotStarted(RagError):
    """The child process could not be started, or could not import its target."""


class IsolatedWorker:
    """Calls ``target`` (``package.module:function``) in a child process, started when first needed.

    Each call may take ``seconds`` (wall clock) and, where the system has such limits (Linux),
    ``megabytes`` (MiB) of memory beyond what the child uses once its target is imported. Results
    are made of plain values, of the dataclasses of ``models`` and of the dataclasses
    ``result_types``. ``warm_up`` holds the arguments of harmless calls that each child makes before
    its limits hold: whatever the function loads when first used counts for no document, and only
    then it may write temporary files, in a folder that is removed on ``close``. Not for use by
    several threads at once.
    """

    def __init__(
        self,
        target: str,
        *,
        seconds: float = 10.0,
        megabytes: int = 1024,
        warm_up: Iterable[tuple[Any, ...]] = (),
        result_types: Collection[type] = (),
        calls_per_child: int = CALLS_PER_CHILD,
    ) -> None:
        self.target = target
        self.seconds = seconds
        self.megabytes = megabytes
        self.starts = 0
        """How many child processes were started so far."""
        self._calls_per_child = calls_per_child
        self._warm_up = frame(list(warm_up))
        self._allowed = allowed_types(MODEL_TYPES | frozenset(result_types))
        self._child: ChildProcess | None = None
        self._owner = os.getpid()
        self._folder: str | None = None
        """Where the child may write while it warms up; nobody else can put anything there."""
        self._finalizer: weakref.finalize[..., Any] | None = None
        self._folder_finalizer: weakref.finalize[..., Any] | None = None
        self._answered = 0
        self._sent: deque[bytes] = deque()
        """Frames the child has not answered yet, oldest first."""

    def call(self, *arguments: object) -> Any:
        """The result of one call.

        Raises:
            WorkerFailed: time-out, memory, crash, or an unexpected exception of the function.
            WorkerNotStarted: no child can be had.
            RagError: the function raised it.
        """
        self._send(frame(arguments))
        result = self._next_result()
        if isinstance(result, RagError):
            raise result
        return result

    def map(self, items: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """The results of the calls with these arguments, in order.

        A call that failed gives its ``WorkerFailed`` in its place and the rest goes on. Items are
        taken from ``items`` a little ahead of the results.

        Raises:
            WorkerNotStarted: no child can be had.
            RagError: the function raised it; the calls behind it are given up.
        """
        remaining = iter(items)
        exhausted = False
        try:
            while True:
                if not exhausted and self._runs_low():
                    exhausted = self._send_ahead(remaining)
                if not self._sent:
                    return
                result = self._next_result()
                if isinstance(result, RagError) and not isinstance(result, WorkerFailed):
                    raise result
                yield result
        finally:
            if self._sent:
                self.close()

    def close(self) -> None:
        """End the child process. The next call starts another one."""
        self._end_child()
        self._sent.clear()
        if self._folder_finalizer is not None:
            self._folder_finalizer()
        self._folder = self._folder_finalizer = None

    def __enter__(self) -> IsolatedWorker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _runs_low(self) -> bool:
        """Whether the child will soon have nothing to do; small documents are sent many at once."""
        half = len(self._sent) <= WINDOW_CALLS // 2
        return half and sum(map(len, self._sent)) <= WINDOW_BYTES // 2

    def _send_ahead(self, remaining: Iterator[tuple[Any, ...]]) -> bool:
        """Fill the window; True when nothing remains."""
        batch: list[bytes] = []
        size = sum(map(len, self._sent))
        item: tuple[Any, ...] | None = ()
        while len(self._sent) + len(batch) < WINDOW_CALLS and size < WINDOW_BYTES:
            item = next(remaining, None)
            if item is None:
                break
            batch.append(frame(item))
            size += len(batch[-1])
        if batch:
            self._send(*batch)
        return item is None

    def _send(self, *frames: bytes) -> None:
        if self._owner != os.getpid():
            # A forked process: the child belongs to the process that was forked.
            self._owner, self._child, self._folder = os.getpid(), None, None
            self._sent.clear()
        if self._child is not None and not self._sent and self._child.is_gone():
            self._end_child()  # killed by somebody while idle: no fault of what is sent now
        child = self._child or self._start()
        self._sent.extend(frames)
        child.send(b"".join(frames))

    def _start(self) -> ChildProcess:
        """A child that is ready and was sent again whatever had no answer yet."""
        if self._folder is None:
            _sweep()
            self._folder = tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-")
            self._folder_finalizer = weakref.finalize(
                self, _remove_folder, self._folder, os.getpid()
            )
        child = ChildProcess(
            self.target,
            str(self.seconds),
            str(self.megabytes),
            str(self._calls_per_child),
            folder=self._folder,
            max_answer_bytes=self.megabytes << 20,
        )
        self._child, self._answered = child, 0
        self._finalizer = weakref.finalize(self, child.kill)
        self.starts += 1
        child.send(self._warm_up)
        try:
            body = child.receive(START_SECONDS)
            _, kind, problem, _ = load_untrusted(body, {}) if body is not None else [None] * 4
        except (TimeoutError, UntrustedFrame, ValueError, TypeError) as error:
            kind, problem = None, type(error).__name__
        if kind != READY:
            self._give_up(child, str(problem) if kind == NOT_STARTED else "")
        for data in self._sent:
            child.send(data)
        return child

    def _give_up(self, child: ChildProcess, problem: str) -> None:
        cause = problem or " ".join(child.cause_of_death())
        self.close()
        raise WorkerNotStarted(
            f"the parsing process for {self.target} did not start ({cause}). Check that "
            f"{sys.executable} runs, that memory is left, and that the package is complete"
        )

    def _next_result(self) -> Any:
        """The result of the oldest call without answer, or the exception it ended with."""
        child = self._child or self._start()
        try:
            body = child.receive(self.seconds + GRACE_SECONDS)
        except TimeoutError:
            return self._failed("timeout", "")
        except BaseException:
            self.close()  # an interrupt: nothing of this child may answer a later call
            raise
        if body is None:
            return self._failed(*child.cause_of_death())
        try:
            kind, payload, tired = self._checked(load_untrusted(body, self._allowed))
            result = payload if kind == RESULT else self._exception(kind, payload)
        except (UntrustedFrame, MemoryError) as error:
            return self._failed("error", f"its answer was refused: {error}")
        self._sent.popleft()
        if tired:
            self._end_child()
        return result

    def _checked(self, answer: Any) -> tuple[str, Any, bool]:
        if not isinstance(answer, tuple) or len(answer) != 4:
            raise UntrustedFrame("an answer of another shape")
        self._answered += 1
        if answer[0] != self._answered:
            raise UntrustedFrame("an answer out of turn")
        return answer[1:]

    def _exception(self, kind: str, payload: Any) -> RagError:
        try:
            if kind == RAISED:
                return _rebuilt(*payload)
            failure, detail = payload
            return self._failure(failure, str(detail)[:200])
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise UntrustedFrame("an exception of another shape") from error

    def _failed(self, kind: str, detail: str) -> WorkerFailed:
        """The oldest call is lost, and the child with it."""
        self._sent.popleft()
        self._end_child()
        return self._failure(kind, detail)

    def _end_child(self) -> None:
        """Kill the child; another one is started when it is needed."""
        if self._finalizer is not None:
            self._finalizer()
        self._child = self._finalizer = None

    def _failure(self, kind: str, detail: str) -> WorkerFailed:
        match kind:
            case "timeout":
                return WorkerFailed(kind, f"parsing took longer than {self.seconds:g} s")
            case "memory":
                return WorkerFailed(kind, f"parsing needed more than {self.megabytes} MiB")
            case "crash":
                return WorkerFailed(kind, f"the parser crashed ({detail})")
            case _:
                return WorkerFailed("error", f"the parser failed: {detail}")


def _remove_folder(folder: str, owner: int) -> None:
    """Remove the folder of temporary files, unless this is a fork of the process it belongs to."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _rebuilt(names: Any, arguments: Any, attributes: Any) -> RagError:
    """The exception of the child, of the nearest of its classes that this process has loaded.

    Nothing is imported and no constructor runs: the names come from the child.
    """
    for module, name in names:
        found = getattr(sys.modules.get(module), name, None)
        if isinstance(found, type) and issubclass(found, RagError) and module.startswith("rag_"):
            error = found.__new__(found, *arguments)
            vars(error).update(attributes)
            return error
    raise UntrustedFrame("an exception of no known kind")


def _sweep() -> None:
    """Remove the folders of processes that were killed and could not do it themselves."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*-*"):
        owner = folder.name.removeprefix(FOLDER_PREFIX).partition("-")[0]
        if owner.isdigit() and not _is_alive(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True

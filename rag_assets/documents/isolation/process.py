"""One child process: started without fork, fed and read by threads, killed with all it started."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Final

from rag_assets.documents.isolation.frames import UntrustedFrame, read_bodies, write_frame

PASSED_VARIABLES: Final = (
    "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SYSTEMROOT",
    "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONHOME", "PYTHONUTF8",
    "PYTHONIOENCODING", "PYTHONHASHSEED", "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE",
)  # fmt: skip
"""The only environment variables a child is given: tokens and passwords stay with the parent."""
OWN_VARIABLES: Final[Mapping[str, str]] = {
    # One document at a time: more threads would only cost memory.
    "MALLOC_ARENA_MAX": "2",
    "OMP_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKIO_WORKER_THREADS": "1",
}
KEPT_ERROR_BYTES: Final = 4096
"""How much of the child's last words is looked at to tell why it died; shown to nobody."""

_BOOTSTRAP: Final = (
    "import sys; a = sys.argv[1:]; sys.path[:] = a[4:]; "
    "from rag_assets.documents.isolation.child import main; main(*a[:4])"
)
_OUT_OF_MEMORY: Final = (b"memory allocation of", b"MemoryError", b"bad_alloc", b"out of memory")
_WAIT_SECONDS: Final = 5.0


class ChildProcess:
    """A child that answers frames with frames; ``kill`` it when it is no longer wanted.

    ``folder`` is where it keeps temporary files.
    """

    def __init__(self, *arguments: str, folder: str, max_answer_bytes: int) -> None:
        path = [os.path.abspath(entry) for entry in sys.path]
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-c", _BOOTSTRAP, *arguments, *path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**_environment(), "TMPDIR": folder, "TEMP": folder, "TMP": folder},
            start_new_session=True,
        )
        self._max_answer_bytes = max_answer_bytes
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._last_words = b""
        self._killed = False
        self._owner = os.getpid()
        self._threads = [
            threading.Thread(target=work, name=f"worker-{work.__name__}", daemon=True)
            for work in (self._write, self._read, self._drain)
        ]
        self._reader = self._threads[1]
        for thread in self._threads:
            thread.start()

    def send(self, data: bytes) -> None:
        """Queue one frame for the child."""
        self._outgoing.put(data)

    def receive(self, seconds: float) -> bytes | None:
        """The body of the next answer; None when the child is gone.

        Raises:
            TimeoutError: neither within ``seconds``.
        """
        try:
            return self._answers.get(timeout=max(seconds, 0.001))
        except queue.Empty:
            raise TimeoutError from None

    def is_gone(self) -> bool:
        """Whether the child has closed its end, so that no more answers will come."""
        return not self._reader.is_alive()

    def kill(self) -> None:
        """End the child and everything in its process group. May be called again."""
        if self._killed or os.getpid() != self._owner:
            return  # in a forked process it is not ours to kill
        self._killed = True
        # Before the child is reaped: until then nobody else can have its group's number.
        with contextlib.suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_WAIT_SECONDS)
        self._outgoing.put(None)
        pipes = (self._process.stdin, self._process.stdout, self._process.stderr)
        for thread, pipe in zip(self._threads, pipes, strict=True):
            thread.join(_WAIT_SECONDS)
            if pipe is not None and not thread.is_alive():
                pipe.close()

    def cause_of_death(self) -> tuple[str, str]:
        """``timeout``, ``memory`` or ``crash``, and a name for it; for a child that is gone.

        Nothing that the child wrote is part of the answer.
        """
        died = self._killed or self._died_by_itself()
        self.kill()
        code = self._process.returncode
        if any(words in self._last_words for words in _OUT_OF_MEMORY):
            return "memory", ""
        if not died or code is None:
            return "crash", "it answered with something that is no answer"
        if code >= 0:
            return "crash", f"exit code {code}"
        name = _signal_name(-code)
        if name == "SIGALRM":
            return "timeout", ""
        if b"overflowed its stack" in self._last_words:
            return "crash", "stack overflow"
        return ("memory", "") if name == "SIGKILL" else ("crash", name)

    def _died_by_itself(self) -> bool:
        """Whether the child is dead already; it is not reaped, so its group keeps its number."""
        if not hasattr(os, "waitid"):
            return self._process.poll() is not None
        for _ in range(100):
            with contextlib.suppress(ChildProcessError):
                if os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
                    return True
            time.sleep(0.005)
        return False

    def _write(self) -> None:
        assert self._process.stdin is not None
        descriptor = self._process.stdin.fileno()
        with contextlib.suppress(OSError):
            while (data := self._outgoing.get()) is not None:
                write_frame(descriptor, data)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(OSError, UntrustedFrame):
            for body in read_bodies(self._process.stdout.fileno(), self._max_answer_bytes):
                self._answers.put(body)
        self._answers.put(None)

    def _drain(self) -> None:
        assert self._process.stderr is not None
        descriptor = self._process.stderr.fileno()
        with contextlib.suppress(OSError):
            while data := os.read(descriptor, 1 << 16):
                self._last_words = (self._last_words + data)[-KEPT_ERROR_BYTES:]


def _environment() -> dict[str, str]:
    passed = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
    return {**passed, **OWN_VARIABLES}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

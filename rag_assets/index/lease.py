"""The writer lease inside an index: one writer at a time, and a stale one writes nothing more."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import apsw

from rag_assets.errors import IndexLocked
from rag_assets.index.connections import BUSY_TIMEOUT_MS
from rag_assets.index.schema import immediate
from rag_assets.index.times import utc_now

DEFAULT_TTL_SECONDS: Final = 60.0
"""A lease that was not renewed for so long is taken over, for holders that cannot be asked after
(another host, a stopped process). Renewed four times in that time."""
_RENEWALS_PER_TTL: Final = 4
_POLL_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Which process this is, exactly enough to tell later whether it still runs."""

    host: str
    pid: int
    scope: str
    """Where ``pid`` means something: this boot of this machine, this PID namespace."""
    start: str
    """When the process started, as the kernel counts it; '' where that cannot be read."""


def this_process() -> ProcessIdentity:
    """The identity of the calling process."""
    pid = os.getpid()
    return ProcessIdentity(socket.gethostname(), pid, _process_scope(), _process_start(pid) or "")


def is_gone(process: ProcessIdentity) -> bool:
    """True only when it is certain that ``process`` no longer runs."""
    if sys.platform == "win32" or not process.scope or process.scope != _process_scope():
        return False
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    start = _process_start(process.pid)
    return start is not None and bool(process.start) and start != process.start


def _process_scope() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return "" if sys.platform == "win32" else f"host {socket.gethostname()}"


def _process_start(pid: int) -> str | None:
    """Clock ticks from boot to the start of ``pid``; 'ended' for a zombie; None when unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command name stands in parentheses and may hold anything; 20 fields on stands the start.
    fields = stat.rpartition(")")[2].split()
    return "ended" if fields[0] in "ZX" else fields[19]


class WriterLease:
    """The lease of one writer, from ``acquire`` to ``release``.

    Every write goes through ``transaction``, which first checks that the generation number in the
    index is still ours: a writer whose lease was taken over cannot write any more.
    """

    def __init__(
        self,
        path: Path,
        connect: Callable[[], apsw.Connection],
        *,
        run_id: str,
        partition: str,
        ttl_seconds: float = DEFAULT_TTL_SECONDS,
    ) -> None:
        self._path = path
        self._connect = connect
        self._run_id = run_id
        self._partition = partition
        self._ttl_seconds = ttl_seconds
        self._mutex = threading.RLock()
        self._stop = threading.Event()
        self._generation = 0
        self._pid = os.getpid()
        self._renewer: threading.Thread | None = None
        self.connection = connect()

    def acquire(self, wait_seconds: float) -> None:
        """Take the lease, waiting for its holder at most ``wait_seconds``.

        Raises:
            IndexLocked: it is still held; the message says by whom, since when.
        """
        deadline = time.monotonic() + max(0.0, wait_seconds)
        try:
            self.connection.set_busy_timeout(int(_POLL_SECONDS * 1000))
            while not self._try():
                self._wait(deadline, wait_seconds)
            self.connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        except BaseException:
            self.connection.close()
            raise
        self._renewer = threading.Thread(
            target=self._renew_until_stopped, name="index-lease", daemon=True
        )
        self._renewer.start()

    def release(self) -> None:
        """Give the lease back, if it is still ours, and close the connection."""
        self._stop.set()
        if os.getpid() != self._pid:
            return
        if self._renewer is not None:
            self._renewer.join(timeout=self._ttl_seconds)
        with self._mutex:
            with suppress(apsw.Error), immediate(self.connection):
                self.connection.execute(
                    "UPDATE lease SET run_id = NULL WHERE generation = ?", (self._generation,)
                )
            self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[apsw.Connection]:
        """A write transaction under the lease; rolled back on any exception.

        Raises:
            IndexLocked: the lease was taken over; nothing was written.
        """
        if os.getpid() != self._pid:
            raise IndexLocked(
                f"{self._path}: the writer lease belongs to the process that took it "
                f"({self._pid}); a forked process takes its own"
            )
        with self._mutex, immediate(self.connection):
            self._require_ours()
            yield self.connection
            self.connection.execute(
                "UPDATE lease SET renewed_at = ? WHERE generation = ?",
                (time.time(), self._generation),
            )

    def _require_ours(self) -> None:
        row = self.connection.execute("SELECT generation FROM lease").fetchone()
        if row is None or row[0] != self._generation:
            raise IndexLocked(
                f"{self._path}: this writer (run {self._run_id}) was silent for more than "
                f"{self._ttl_seconds:g} s and its lease was taken over: {self._holder()}; nothing "
                "more is written by this run"
            )

    def _wait(self, deadline: float, wait_seconds: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise IndexLocked(
                f"{self._path}: another writer is writing {self._holder()}; waited "
                f"{wait_seconds:g} s for it: try again when it has finished"
            )
        time.sleep(min(_POLL_SECONDS, left))

    def _try(self) -> bool:
        try:
            with immediate(self.connection):
                if live_holder(self.connection) is not None:
                    return False
                row = self.connection.execute("SELECT generation FROM lease").fetchone()
                assert row is not None
                me = this_process()
                self._generation = int(row[0]) + 1
                self.connection.execute(
                    "UPDATE lease SET generation = ?, run_id = ?, partition = ?, host = ?, "
                    "pid = ?, process_scope = ?, process_start = ?, acquired_at = ?, "
                    "renewed_at = ?, ttl_seconds = ?",
                    (self._generation, self._run_id, self._partition, me.host, me.pid, me.scope,
                     me.start, utc_now(), time.time(), self._ttl_seconds),
                )  # fmt: skip
        except apsw.BusyError:  # the holder is in the middle of a long transaction
            return False
        return True

    def _renew_until_stopped(self) -> None:
        connection: apsw.Connection | None = None
        try:
            while not self._stop.wait(self._ttl_seconds / _RENEWALS_PER_TTL):
                with suppress(apsw.Error):  # busy, full: every write transaction renews as well
                    connection = connection or self._connect()
                    with immediate(connection):
                        connection.execute(
                            "UPDATE lease SET renewed_at = ? WHERE generation = ? "
                            "AND run_id IS NOT NULL",
                            (time.time(), self._generation),
                        )
        finally:
            if connection is not None:
                connection.close()

    def _holder(self) -> str:
        row = self.connection.execute(
            "SELECT partition, acquired_at, run_id, pid, host FROM lease"
        ).fetchone()
        if row is None or row[2] is None:
            return "no partition any more"
        partition, since, run_id, pid, host = row
        return f"partition {partition} since {since} (run {run_id}, process {pid} on {host})"


def live_holder(connection: apsw.Connection) -> str | None:
    """The run that holds the lease and is not known to be gone or silent, or None."""
    row = connection.execute(
        "SELECT run_id, host, pid, process_scope, process_start, renewed_at, ttl_seconds FROM lease"
    ).fetchone()
    if row is None or row[0] is None:
        return None
    run_id, host, pid, scope, start, renewed_at, ttl = row
    if abs(time.time() - renewed_at) > ttl or is_gone(ProcessIdentity(host, pid, scope, start)):
        return None
    return str(run_id)

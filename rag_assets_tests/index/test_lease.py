"""The writer lease: taken over from the dead and the silent, who are then fenced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rag_assets.errors import IndexLocked, VectorStoreError
from rag_assets.index.lease import ProcessIdentity, is_gone, this_process
from rag_assets.index.sqlite import SqliteStore
from rag_assets.testing.documents import FINGERPRINT, indexed_document

REPOSITORY = Path(__file__).parents[2]
HOLD = """
import sys, time
from pathlib import Path
from rag_assets.index.sqlite import SqliteStore
store = SqliteStore(Path(sys.argv[1]), lease_ttl_seconds=float(sys.argv[2]))
with store.writing(run_id="held", partition="guides", wait_seconds=0):
    print("holding", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An initialised index."""
    path = tmp_path / "index.sqlite"
    SqliteStore(path).initialize(FINGERPRINT)
    return path


def hold(path: Path, ttl_seconds: float = 60) -> subprocess.Popen[str]:
    """A process that holds the lease."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), str(ttl_seconds)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "holding\n"
    return process


def test_dead_holder_is_replaced_at_once(path: Path) -> None:
    """A killed process keeps nobody waiting for its time to live, even while it is a zombie."""
    process = hold(path)
    with (
        pytest.raises(IndexLocked, match=rf"guides.*held.*process {process.pid} on "),
        SqliteStore(path).writing(run_id="r", partition="p", wait_seconds=0.2),
    ):
        pass
    process.send_signal(signal.SIGKILL)
    started = time.monotonic()
    with SqliteStore(path).writing(run_id="r", partition="p", wait_seconds=10):
        assert time.monotonic() - started < 5
    process.wait()


def test_renewal_keeps_a_lease_beyond_its_time_to_live(path: Path) -> None:
    """A writer that is busy elsewhere (embedding) keeps its lease without writing."""
    process = hold(path, ttl_seconds=0.8)
    try:
        with (
            pytest.raises(IndexLocked),
            SqliteStore(path).writing(run_id="r", partition="p", wait_seconds=2),
        ):
            pass
    finally:
        process.kill()
        process.wait()


def test_silent_holder_is_replaced_and_fenced(path: Path) -> None:
    """A stopped process loses the lease after its time to live, and writes nothing afterwards."""
    first, second = SqliteStore(path, lease_ttl_seconds=0.4), SqliteStore(path)
    writing = first.writing(run_id="slow", partition="guides", wait_seconds=0)
    writing.__enter__()
    assert first._lease is not None
    first._lease._stop.set()  # as if the process were stopped: nothing renews any more
    time.sleep(0.6)
    with second.writing(run_id="new", partition="wiki", wait_seconds=5):
        with pytest.raises(IndexLocked, match=r"slow.*taken over.*wiki.*new"):
            first.upsert_documents([indexed_document("a.md", ["x"])], run_id="slow")
        with pytest.raises(IndexLocked):
            first.record_partition("guides", "1")
        with pytest.raises(IndexLocked):
            first.finish()
        second.upsert_documents([indexed_document("b.md", ["y"])], run_id="new")
        writing.__exit__(None, None, None)  # giving back what it no longer has changes nothing
        second.upsert_documents([indexed_document("c.md", ["z"])], run_id="new")
    assert second.stats().documents == 2
    assert second.partitions() == {}


def test_fenced_even_after_the_other_has_finished(path: Path) -> None:
    """The number of the lease differs for ever."""
    first, second = SqliteStore(path, lease_ttl_seconds=0.3), SqliteStore(path)
    writing = first.writing(run_id="slow", partition="guides", wait_seconds=0)
    writing.__enter__()
    assert first._lease is not None
    first._lease._stop.set()
    time.sleep(0.5)
    with second.writing(run_id="new", partition="wiki", wait_seconds=5):
        pass
    with pytest.raises(IndexLocked):
        first.delete_documents("guides", ["a.md"])
    writing.__exit__(None, None, None)


def test_one_object_writes_once_at_a_time(path: Path) -> None:
    """Nested use is a fault of the program, not a wait for oneself."""
    store = SqliteStore(path)
    with (
        store.writing(run_id="r", partition="p", wait_seconds=0),
        pytest.raises(VectorStoreError, match="already writing"),
        store.writing(run_id="r", partition="p", wait_seconds=0),
    ):
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_forked_child_does_not_write_with_the_parents_lease(path: Path) -> None:
    """The lease belongs to the process that took it."""
    store = SqliteStore(path)
    with store.writing(run_id="r", partition="p", wait_seconds=0):
        pid = os.fork()
        if pid == 0:
            try:
                store.record_partition("p", "1")
            except IndexLocked:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        store.record_partition("p", "2")
    assert store.partitions() == {"p": "2"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_forked_child_reads_with_its_own_connections(path: Path) -> None:
    """Connections do not cross a fork; the parent's go on."""
    store = SqliteStore(path)
    assert store.stats().documents == 0
    pid = os.fork()
    if pid == 0:
        os._exit(0 if store.stats().documents == 0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert store.stats().documents == 0


def test_process_is_gone_only_when_that_is_certain() -> None:
    """Another host, another boot, an unreadable start: not known to be gone."""
    me = this_process()
    assert not is_gone(me)
    assert is_gone(ProcessIdentity(me.host, me.pid, me.scope, "1"))  # the number was used again
    assert not is_gone(ProcessIdentity("elsewhere", 2**22 - 1, "another boot", "1"))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert is_gone(ProcessIdentity(me.host, ended.pid, me.scope, "5"))

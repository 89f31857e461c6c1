"""A call in a worker gives its result, or costs only itself: never the run, never the parent."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_assets.documents.isolation.worker import IsolatedWorker, WorkerFailed, WorkerNotStarted
from rag_assets.errors import ConfigurationError, InvalidInput, RagError
from rag_assets.fingerprints import sha256_hex
from rag_assets.models import SourceFile
from rag_assets_tests.documents import worker_targets
from rag_assets_tests.documents.worker_targets import SECRET_TEXT, Result

TARGETS = worker_targets.__name__
ACT = f"{TARGETS}:act"
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs the limits of Linux")


@pytest.fixture(scope="module")
def worker() -> Iterator[IsolatedWorker]:
    """One worker for all tests of this module: whatever a test does, the next one must pass."""
    with IsolatedWorker(ACT, seconds=1, megabytes=128) as worker:
        yield worker


@pytest.fixture
def impatient() -> Iterator[IsolatedWorker]:
    """A worker that gives calls little time."""
    with IsolatedWorker(ACT, seconds=0.5, megabytes=128) as worker:
        yield worker


def failure(worker: IsolatedWorker, *arguments: object) -> WorkerFailed:
    """The failure of a call that is expected to fail; the next call must go well."""
    with pytest.raises(WorkerFailed) as caught:
        worker.call(*arguments)
    assert worker.call("echo", "still here") == "still here"
    assert SECRET_TEXT not in str(caught.value)
    return caught.value


def is_alive(pid: int) -> bool:
    """Whether a process is there and not just waiting to be reaped."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_until_dead(pid: int) -> bool:
    """Whether the process ends within two seconds."""
    for _ in range(100):
        if not is_alive(pid):
            return True
        time.sleep(0.02)
    return False


def pids_with(text: str) -> list[int]:
    """Processes that have ``text`` in their command line."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and text.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def source_file(content: bytes) -> SourceFile:
    """A file of these bytes."""
    return SourceFile("docs", "a.md", "", content, sha256_hex(content), None, ("public",), "v")


class TestResults:
    """What comes back."""

    def test_a_result_is_what_the_function_returned(self, worker: IsolatedWorker) -> None:
        """Plain values and the models of the package cross the border unchanged."""
        file = source_file("L'été au cœur".encode())
        value = [file, {"é": (1, 2.5, None, True)}, {"a"}, frozenset({1}), b"\0", 2**80]
        assert worker.call("echo", value) == value

    def test_the_child_is_not_this_process_and_stays(self, worker: IsolatedWorker) -> None:
        """Calls share one child process."""
        pid = worker.call("pid")
        assert pid != os.getpid()
        assert worker.call("pid") == pid

    def test_no_child_is_started_before_the_first_call(self) -> None:
        """A worker that is not used costs nothing."""
        with IsolatedWorker(ACT) as worker:
            assert worker.starts == 0

    def test_map_keeps_the_order(self, worker: IsolatedWorker) -> None:
        """The n-th result belongs to the n-th call, with small and large arguments."""
        values = ["x" * (n * 997 % 70_000) for n in range(300)]
        assert list(worker.map(("echo", value) for value in values)) == values

    def test_map_of_nothing_is_nothing(self) -> None:
        """No items: no results and no child."""
        with IsolatedWorker(ACT) as worker:
            assert list(worker.map([])) == []
            assert worker.starts == 0

    def test_map_is_lazy(self, worker: IsolatedWorker) -> None:
        """Items are read only a little ahead of the results."""
        taken = 0

        def items() -> Iterator[tuple[str, int]]:
            nonlocal taken
            for taken in range(10_000):
                yield "echo", taken

        results = worker.map(items())
        assert next(results) == 0
        assert taken < 200
        results.close()  # type: ignore[attr-defined]

    def test_an_abandoned_map_leaves_no_answers_behind(self, worker: IsolatedWorker) -> None:
        """After a break, the next call gets its own answer."""
        for value in worker.map(("echo", n) for n in range(100)):
            if value == 3:
                break
        assert worker.call("echo", "mine") == "mine"

    def test_large_documents_pass(self, worker: IsolatedWorker) -> None:
        """Twenty megabytes there and back, several times in a row."""
        data = os.urandom(1 << 20) * 20
        assert all(r == data for r in worker.map(("echo", data) for _ in range(3)))

    def test_types_outside_the_models_must_be_announced(self, worker: IsolatedWorker) -> None:
        """A dataclass of another module is refused unless the worker was told of it."""
        assert "allowed" in str(failure(worker, "result", "a"))
        with IsolatedWorker(ACT, result_types=[Result]) as told:
            assert told.call("result", "a") == Result("a")

    @settings(max_examples=20, deadline=None)
    @given(
        st.lists(
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.text() | st.binary()
                | st.floats(allow_nan=False),
                lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
                max_leaves=20,
            )
        )
    )  # fmt: skip
    def test_map_is_the_identity_for_echo(
        self, worker: IsolatedWorker, values: list[object]
    ) -> None:
        """Whatever goes in comes out, in order."""
        assert list(worker.map(("echo", value) for value in values)) == values


class TestFailures:
    """One bad call costs only itself."""

    def test_a_call_that_sleeps_ends_at_its_deadline(self, impatient: IsolatedWorker) -> None:
        """The time-out is reported soon after the limit."""
        impatient.call("echo", 1)
        start = time.monotonic()
        with pytest.raises(WorkerFailed) as caught:
            impatient.call("sleep", 60)
        assert 0.45 < time.monotonic() - start < 2
        assert caught.value.kind == "timeout"
        assert "0.5 s" in str(caught.value)

    def test_native_code_that_never_returns_is_ended(self, impatient: IsolatedWorker) -> None:
        """The deadline holds where the interpreter has no say."""
        assert failure(impatient, "spin_in_native_code").kind == "timeout"

    @on_linux
    def test_two_gigabytes_are_refused(self, worker: IsolatedWorker) -> None:
        """An allocation beyond the limit is a failure for want of memory."""
        assert failure(worker, "allocate", 2048).kind == "memory"

    @on_linux
    def test_native_code_out_of_memory_is_told_from_a_crash(self, worker: IsolatedWorker) -> None:
        """A parser that aborts for want of memory says so in its last words."""
        assert failure(worker, "allocate_in_c", 2048).kind == "memory"

    @on_linux
    def test_memory_within_the_limit_is_granted(self, worker: IsolatedWorker) -> None:
        """Half of the limit is there for every call."""
        assert [worker.call("allocate", 64) for _ in range(5)] == [64 << 20] * 5

    @pytest.mark.parametrize(
        ("what", "argument", "words"),
        [
            ("segfault", None, "SIGSEGV"),
            ("abort", None, "SIGABRT"),
            ("recurse_in_c", None, "crashed"),
            ("exit", 0, "exit code 0"),
            ("exit", 7, "exit code 7"),
            ("recurse", 0, "nested"),
        ],
    )
    def test_a_crash_is_reported(
        self, worker: IsolatedWorker, what: str, argument: object, words: str
    ) -> None:
        """Whatever kills the child, the parent goes on with another one."""
        found = failure(worker, what, argument)
        assert found.kind == "crash"
        assert words in str(found)

    def test_sys_exit_is_an_error_of_one_call(self, worker: IsolatedWorker) -> None:
        """The function cannot end the worker by asking for it."""
        assert failure(worker, "system_exit", 3).kind == "error"

    def test_an_unexpected_exception_is_reported_without_its_words(
        self, worker: IsolatedWorker
    ) -> None:
        """The type and the place are told; the message may quote the document and is not."""
        found = failure(worker, "raise")
        assert found.kind == "error"
        assert "ValueError" in str(found)
        assert "worker_targets.py" in str(found)

    def test_an_error_of_the_tree_is_raised_as_it_is(self, worker: IsolatedWorker) -> None:
        """Type, message and attributes survive."""
        with pytest.raises(InvalidInput, match="trop long") as caught:
            worker.call("raise_rag_error", "trop long")
        assert caught.value.texts_suspected is False

    def test_an_error_of_the_tree_ends_a_map(self, worker: IsolatedWorker) -> None:
        """Errors raised on purpose are not results."""
        items = [("echo", 1), ("raise_rag_error", "no"), ("echo", 2)]
        with pytest.raises(InvalidInput):
            list(worker.map(items))
        assert worker.call("echo", 1) == 1

    def test_an_error_this_process_does_not_know_becomes_its_nearest_kind(
        self, worker: IsolatedWorker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No module is imported because a child names it."""
        monkeypatch.delitem(sys.modules, TARGETS)
        with pytest.raises(ConfigurationError, match="seul l'enfant") as caught:
            worker.call("raise_unknown", "seul l'enfant le sait")
        assert type(caught.value) is ConfigurationError
        assert TARGETS not in sys.modules

    def test_an_error_with_arguments_of_any_type_arrives(self, worker: IsolatedWorker) -> None:
        """Arguments that are no plain values arrive as text."""
        with pytest.raises(RagError, match="odd"):
            worker.call("raise_rag_error_with_odd_arguments")

    def test_bad_calls_in_a_map_cost_only_themselves(self, impatient: IsolatedWorker) -> None:
        """Every neighbour of a bad call gets its own result, in its own place."""
        items: list[tuple[object, ...]] = [("echo", n) for n in range(120)]
        bad = {5: ("sleep", 9), 6: ("segfault",), 60: ("allocate", 2048), 119: ("exit", 1)}
        for place, arguments in bad.items():
            items[place] = arguments
        results = list(impatient.map(items))
        assert len(results) == 120
        kinds = {n: r.kind for n, r in enumerate(results) if isinstance(r, WorkerFailed)}
        assert kinds == {5: "timeout", 6: "crash", 60: "memory", 119: "crash"}
        assert all(r == n for n, r in enumerate(results) if n not in bad)

    def test_a_slow_consumer_does_not_make_a_call_late(self, impatient: IsolatedWorker) -> None:
        """The clock runs for the child's work, not for what is done with the results."""
        results = []
        for result in impatient.map(("echo", n) for n in range(3)):
            time.sleep(0.8)
            results.append(result)
        assert results == [0, 1, 2]

    @settings(max_examples=4, deadline=None)
    @given(st.lists(st.sampled_from(["echo", "segfault", "exit", "raise", "result", "lambda"])))
    def test_results_are_as_many_as_calls(self, worker: IsolatedWorker, whats: list[str]) -> None:
        """Good and bad calls in any order: one result each, failures where they belong."""
        results = list(worker.map((what, 1) for what in whats))
        assert [not isinstance(r, WorkerFailed) for r in results] == [w == "echo" for w in whats]


class TestHostileAnswers:
    """A child that was taken over by a document gains nothing."""

    def test_a_pickle_that_calls_functions_is_refused(
        self, worker: IsolatedWorker, tmp_path: Path
    ) -> None:
        """Nothing that the answer names is called, at any depth."""
        for what in ("evil", "evil_inside"):
            found = failure(worker, what, str(tmp_path / what))
            assert found.kind == "error"
            assert not (tmp_path / what).exists()

    def test_a_result_that_cannot_be_pickled_is_reported(self, worker: IsolatedWorker) -> None:
        """The child lives on."""
        pid = worker.call("pid")
        assert failure(worker, "lambda").kind == "error"
        assert worker.call("pid") == pid

    def test_garbage_on_the_pipe_is_a_failure(self, worker: IsolatedWorker) -> None:
        """Bytes that are no frame end the child, not the parent."""
        failure(worker, "garbage")

    @on_linux
    def test_a_second_answer_is_never_taken_for_the_next(self, worker: IsolatedWorker) -> None:
        """A forked child that answers too cannot shift the answers."""
        results = list(worker.map([("fork_that_answers_too",), *[("echo", n) for n in range(50)]]))
        assert len(results) == 51
        assert all(r == n or isinstance(r, WorkerFailed) for n, r in enumerate(results[1:]))
        assert sum(isinstance(r, WorkerFailed) for r in results) <= 1

    def test_what_the_function_prints_is_dropped(
        self, worker: IsolatedWorker, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """Neither output stream reaches the parent's, and no amount of it stalls the child."""
        assert worker.call("print") == "done"
        written = capfd.readouterr()
        assert SECRET_TEXT not in written.out + written.err

    def test_standard_input_is_empty(self, worker: IsolatedWorker) -> None:
        """A function that reads it cannot take the next request."""
        assert worker.call("read_input") == ""


class TestConfinement:
    """What the child has, and has not."""

    def test_secrets_stay_with_the_parent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Variables that are not needed to run Python are not passed on."""
        monkeypatch.setenv("BOOKSTACK_TOKEN", "id:hirondelle")
        monkeypatch.setenv("PYTHON_TOKEN", "hirondelle")
        with IsolatedWorker(ACT) as worker:
            seen = worker.call("environment")
        assert "hirondelle" not in str(seen)
        assert seen["PATH"] == os.environ["PATH"]

    @on_linux
    def test_no_byte_is_written_to_a_file(self, worker: IsolatedWorker, tmp_path: Path) -> None:
        """A parser that keeps a cache fails, and the text is not on the disk."""
        assert failure(worker, "write_file", str(tmp_path)).kind == "error"
        assert not (tmp_path / "left").exists() or not (tmp_path / "left").read_bytes()

    def test_temporary_files_of_the_warm_up_are_private_and_removed(self) -> None:
        """The folder is the worker's own, stays for all its children, and goes on close."""
        target = f"{TARGETS}:load_then_read"
        with IsolatedWorker(target, warm_up=[("à froid",)], calls_per_child=1) as worker:
            assert [worker.call("à chaud") for _ in range(3)] == ["à froid"] * 3
            assert worker.starts == 3
            folder = worker._folder
            assert folder is not None
            assert Path(folder).stat().st_mode & 0o077 == 0
        assert not Path(folder).exists()

    def test_the_working_folder_is_no_place_to_import_from(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A ``pickle.py`` among the documents is not taken for Python's."""
        (tmp_path / "pickle.py").write_text("raise SystemExit('planted')")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
        with IsolatedWorker(ACT) as worker:
            assert worker.call("echo", 1) == 1

    @on_linux
    def test_a_grandchild_dies_with_the_worker(self) -> None:
        """Whatever the function starts ends with the child."""
        with IsolatedWorker(ACT) as worker:
            grandchild = worker.call("grandchild", "x")
            assert is_alive(grandchild)
        assert wait_until_dead(grandchild)

    @on_linux
    def test_a_grandchild_dies_at_the_deadline(self, impatient: IsolatedWorker) -> None:
        """A time-out ends all that the call has started."""
        assert failure(impatient, "grandchild_then_hang").kind == "timeout"
        assert not [pid for pid in pids_with("time.sleep(301.25)") if not wait_until_dead(pid)]


class TestLifetime:
    """When children come and go."""

    def test_a_closed_worker_leaves_no_process(self) -> None:
        """Close ends the child; a call after it starts another; closing twice is nothing."""
        worker = IsolatedWorker(ACT)
        pid = worker.call("pid")
        worker.close()
        worker.close()
        assert not is_alive(pid)
        assert worker.call("pid") != pid
        worker.close()

    def test_a_forgotten_worker_ends_its_child(self) -> None:
        """Without a reference to the worker the child goes too."""
        worker = IsolatedWorker(ACT)
        pid = worker.call("pid")
        del worker
        assert wait_until_dead(pid)

    def test_a_child_is_replaced_after_so_many_calls(self) -> None:
        """What leaks is given back, and no call is lost on the way."""
        with IsolatedWorker(ACT, calls_per_child=10) as worker:
            counts = list(worker.map([("count",)] * 35))
        assert counts == [*range(1, 11)] * 3 + [1, 2, 3, 4, 5]
        assert worker.starts == 4

    @on_linux
    def test_a_child_that_keeps_memory_is_replaced(self) -> None:
        """A leak ends before it costs another document its share."""
        with IsolatedWorker(ACT, megabytes=128) as worker:
            sizes = list(worker.map([("grow", 20)] * 6))
        assert worker.starts > 1
        assert max(sizes) <= 2

    def test_a_child_killed_between_calls_costs_nothing(self) -> None:
        """The system may kill an idle child: the next document is not blamed for it."""
        with IsolatedWorker(ACT) as worker:
            os.kill(worker.call("pid"), signal.SIGKILL)
            time.sleep(0.1)
            assert list(worker.map(("echo", n) for n in range(10))) == [*range(10)]
            os.kill(worker.call("pid"), signal.SIGKILL)
            time.sleep(0.1)
            assert worker.call("echo", "é") == "é"

    def test_a_target_that_does_not_exist_is_no_fault_of_a_document(self) -> None:
        """The run stops with the reason; no document is blamed."""
        for target in ("rag_assets.nowhere:f", f"{TARGETS}:nothing", f"{TARGETS}:SECRET_TEXT"):
            with IsolatedWorker(target) as worker, pytest.raises(WorkerNotStarted, match=target):
                list(worker.map([(1,)]))

    def test_a_warm_up_that_fails_is_told(self) -> None:
        """It means that the function cannot work here at all."""
        target = f"{TARGETS}:fails_when_warmed"
        with IsolatedWorker(target, warm_up=[("a",)]) as worker, pytest.raises(WorkerNotStarted):
            worker.call("a")

    @on_linux
    @pytest.mark.parametrize("arguments", ['"echo", 1', '"sleep", 60'])
    def test_a_child_does_not_outlive_a_killed_parent(self, arguments: str) -> None:
        """Idle or busy, it ends by itself within the time of one call."""
        program = (
            "import sys, threading, time\n"
            "from rag_assets.documents.isolation.worker import IsolatedWorker\n"
            f"worker = IsolatedWorker({ACT!r}, seconds=1)\n"
            "print(worker.call('pid'), worker._folder, flush=True)\n"
            f"worker.call({arguments})\n"
            "time.sleep(60)\n"
        )
        parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().decode().split()
        time.sleep(0.2)
        parent.kill()
        parent.wait()
        parent.stdout.close()
        assert wait_until_dead(int(pid))
        if "echo" in arguments:
            assert not Path(folder).exists()
        else:
            shutil.rmtree(folder)  # ended by its alarm, a child has no time to tidy up

    def test_an_interrupt_ends_the_child_quietly(self) -> None:
        """Ctrl-C in the parent: no trace of the child, no words from it."""
        program = (
            "from rag_assets.documents.isolation.worker import IsolatedWorker\n"
            f"with IsolatedWorker({ACT!r}) as worker:\n"
            "    print(worker.call('pid'), flush=True)\n"
            "    try:\n"
            "        worker.call('sleep', 60)\n"
            "    except KeyboardInterrupt:\n"
            "        print('interrupted', flush=True)\n"
        )
        parent = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(0.2)
        os.killpg(parent.pid, signal.SIGINT)
        out, err = parent.communicate(timeout=10)
        assert (out, err) == (b"interrupted\n", b"")
        assert not is_alive(pid)

    def test_a_worker_used_by_one_thread_survives_the_thread(self) -> None:
        """The child does not hang on the thread that started it."""
        with IsolatedWorker(ACT) as worker:
            pids: list[int] = []
            thread = threading.Thread(target=lambda: pids.append(worker.call("pid")))
            thread.start()
            thread.join()
            assert [worker.call("pid")] == pids

    @on_linux
    def test_a_fork_leaves_the_child_to_its_owner(self) -> None:
        """A forked process neither ends the child when it exits, nor talks to it."""
        with IsolatedWorker(ACT) as worker:
            pid = worker.call("pid")
            forked = os.fork()
            if forked == 0:
                other = worker.call("pid")
                worker.close()
                os._exit(0 if other != pid else 1)
            assert os.waitpid(forked, 0)[1] == 0
            assert worker.call("pid") == pid


class TestOverhead:
    """What isolation costs."""

    def test_small_documents_cost_little(self) -> None:
        """A child starts soon, and 5 KB documents pass at a few dozen per ms."""
        with IsolatedWorker(f"{TARGETS}:size") as worker:
            start = time.perf_counter()
            worker.call(source_file(b""))
            assert time.perf_counter() - start < 5
            file = source_file(b"x" * 5_000)
            start = time.perf_counter()
            assert list(worker.map((file,) for _ in range(2_000))) == [5_000] * 2_000
            # Measured 0.04 ms each on two cores; the bound leaves room for a busy machine.
            assert (time.perf_counter() - start) / 2_000 < 0.001


def test_folders_of_killed_processes_are_removed_by_the_next_worker() -> None:
    """A process that is killed cannot do it; those of living ones stay."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left, mine = (
        Path(tempfile.mkdtemp(prefix=f"rag-assets-worker-{process}-"))
        for process in (dead.pid, os.getpid())
    )
    try:
        with IsolatedWorker("rag_assets_tests.documents.worker_targets:echo") as worker:
            worker.call("a")
        assert (left.exists(), mine.exists()) == (False, True)
    finally:
        mine.rmdir()

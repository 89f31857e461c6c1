"""Functions for a worker to call, most of them with bad manners; each runs in a child process."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rag_assets.errors import ConfigurationError, InvalidInput, RagError
from rag_assets.models import SourceFile

CALLS = 0
SECRET_TEXT = "le mot de passe est hirondelle"


@dataclass(frozen=True, slots=True)
class Result:
    """A result of a type that the worker must be told about."""

    text: str


class UnknownToTheParent(ConfigurationError):
    """An error of the tree, which the parent may not have loaded."""


class _Evil:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.path),)


def echo(value: Any) -> Any:
    """The value itself."""
    return value


def size(file: SourceFile) -> int:
    """How many bytes the file has."""
    return len(file.content)


def act(what: str, argument: Any = None) -> Any:
    """Do what is asked."""
    return globals()[f"_{what}"](argument)


def _echo(value: Any) -> Any:
    return value


def _count(_: Any) -> int:
    global CALLS
    CALLS += 1
    return CALLS


def _pid(_: Any) -> int:
    return os.getpid()


def _sleep(seconds: float) -> None:
    time.sleep(seconds)


def _spin_in_native_code(_: Any) -> None:
    # One call that holds the interpreter for longer than anybody would wait.
    sum(range(10**12))


def _allocate(megabytes: int) -> int:
    return len(bytearray(megabytes << 20))


def _allocate_in_c(megabytes: int) -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    if not libc.malloc(megabytes << 20):
        sys.stderr.write(f"memory allocation of {megabytes << 20} bytes failed\n")
        sys.stderr.flush()
        os.abort()


def _segfault(_: Any) -> None:
    ctypes.string_at(1)


def _abort(_: Any) -> None:
    os.abort()


def _exit(code: int) -> None:
    os._exit(code)


def _system_exit(code: int) -> None:
    sys.exit(code)


def _recurse_in_c(_: Any) -> None:
    # The comparison calls itself through C, without the interpreter's own limit being reached.
    callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    libc = ctypes.CDLL(None)
    sys.setrecursionlimit(10**8)
    array = (ctypes.c_int * 2)(2, 1)

    @callback
    def compare(_first: Any, _second: Any) -> int:
        libc.qsort(array, 2, 4, compare)
        return 0

    libc.qsort(array, 2, 4, compare)


def _recurse(depth: int) -> int:
    return _recurse(depth + 1) + 1


def _print(_: Any) -> str:
    print(SECRET_TEXT * 10_000)
    sys.stderr.write(SECRET_TEXT * 10_000)
    os.write(1, SECRET_TEXT.encode() * 100_000)
    os.system(f"echo {SECRET_TEXT}")
    return "done"


def _read_input(_: Any) -> str:
    return sys.stdin.read()


def _grandchild(file: str) -> int:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    Path(file)
    return process.pid


def _grandchild_then_hang(_: Any) -> None:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(301.25)"])
    time.sleep(300)


def _fork_that_answers_too(_: Any) -> str:
    os.fork()
    return "who is it?"


def _lambda(_: Any) -> Any:
    return lambda: 1


def _evil(path: str) -> Any:
    return _Evil(path)


def _evil_inside(path: str) -> Any:
    return [SourceFile("s", "p", "", b"", "", None, (), "", title=_Evil(path))]  # type: ignore[arg-type]


def _garbage(_: Any) -> None:
    for descriptor in range(3, 20):
        try:
            os.write(descriptor, b"\x10\0\0\0\0\0\0\0garbage of 16 by" * 10)
        except OSError:
            continue


def _result(text: str) -> Result:
    return Result(text)


def _raise_rag_error(message: str) -> None:
    error = InvalidInput(message)
    error.texts_suspected = False
    raise error


def _raise_unknown(message: str) -> None:
    raise UnknownToTheParent(message)


def _raise_rag_error_with_odd_arguments(_: Any) -> None:
    raise RagError("odd", object())


def _raise(_: Any) -> None:
    raise ValueError(SECRET_TEXT)


def _environment(_: Any) -> dict[str, str]:
    return dict(os.environ)


def _write_file(folder: str) -> str:
    with open(Path(folder) / "left", "w", encoding="utf-8") as file:
        file.write(SECRET_TEXT)
    return "written"


def _temporary(_: Any) -> str:
    return tempfile.gettempdir()


def _grow(megabytes: int) -> int:
    KEPT.append(bytearray(os.urandom(1024)) * (megabytes << 10))
    return len(KEPT)


KEPT: list[Any] = []


def load_then_read(text: str) -> str:
    """Write a temporary file at the first call, and read it at every one."""
    path = Path(tempfile.gettempdir()) / "loaded"
    if not path.exists():
        path.write_text(text, encoding="utf-8")
    return path.read_text(encoding="utf-8")


def fails_when_warmed(text: str) -> str:
    """Refuse the first call."""
    raise ValueError(text)

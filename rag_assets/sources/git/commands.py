"""Run git so that no repository, server or setting can make it do more than was asked.

Hooks, monitors, prompts, other transports and lazy fetches are off; a command has a deadline, and
its whole process group is killed with it. Secrets travel in environment variables only.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from types import TracebackType
from typing import IO, Final, Literal
from urllib.parse import quote

from rag_assets.errors import ConfigurationError

FailureKind = Literal["failed", "timeout", "too_much", "cut_short"]
"""``failed``: git says so. ``timeout``: it was killed. ``too_much``: it answered more than allowed.
``cut_short``: its answer ended too early, though it does not complain."""

MOST_OUTPUT_BYTES: Final = 256 * 1024 * 1024
MOST_WORDS_BYTES: Final = 65_536
"""How much of git's complaints is kept."""
NO_TRANSPORT: Final = "none"
"""No transport has this name, so nothing is fetched, not even missing objects."""
OLDEST_VERSION: Final = (2, 31)
"""The first that takes settings from ``GIT_CONFIG_COUNT`` and object names from standard input."""

# What of the user's own environment goes through: how to reach and trust servers, nothing else.
_KEPT_VARIABLES: Final = frozenset(
    {
        "GIT_SSH",
        "GIT_SSH_COMMAND",
        "GIT_SSH_VARIANT",
        "GIT_PROXY_COMMAND",
        "GIT_SSL_CAINFO",
        "GIT_SSL_CAPATH",
        "GIT_SSL_CERT",
        "GIT_SSL_KEY",
        "GIT_EXEC_PATH",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_SYSTEM",
        "GIT_CONFIG_NOSYSTEM",
    }
)
_SETTINGS: Final = (
    ("core.fsmonitor", "false"),
    ("core.hooksPath", os.devnull),
    ("core.askPass", ""),
    ("core.alternateRefsCommand", "true"),
    ("log.showSignature", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("protocol.version", "2"),
    ("http.followRedirects", "false"),
    ("http.sslVerify", "true"),
    ("http.lowSpeedLimit", "1"),
    ("http.lowSpeedTime", "60"),  # servers that are at work say so every 5 seconds
)


class GitFailure(Exception):
    """One git command did not do its work; ``words`` is what git wrote, secrets taken out."""

    def __init__(self, kind: FailureKind, command: str, words: str) -> None:
        super().__init__(f"git {command}: {kind}: {words}")
        self.kind: FailureKind = kind
        self.command = command
        self.words = words


class Git:
    """Git commands in the repository at ``directory``, or in none that may lie above it.

    ``is_bare_own``: the directory is a bare repository that this package made itself.
    ``transports`` are those it may use, ``:`` between them. ``settings`` are git's own, given by
    environment variables; ``secrets`` never stand in a ``GitFailure``.

    Raises:
        ConfigurationError: git is not installed.
    """

    def __init__(
        self,
        directory: str,
        *,
        timeout_seconds: float,
        is_bare_own: bool = False,
        transports: str = NO_TRANSPORT,
        settings: Sequence[tuple[str, str]] = (),
        secrets: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.timeout_seconds = timeout_seconds
        self._program = _find_git()
        self._environment = _environment(directory, transports, settings)
        if is_bare_own:
            self._environment["GIT_DIR"] = directory
        self._secrets = tuple(sorted((s for s in secrets if s), key=len, reverse=True))

    def run(
        self, *arguments: str, stdin: bytes = b"", most_bytes: int = MOST_OUTPUT_BYTES
    ) -> bytes:
        """What the command writes to its standard output.

        Raises:
            GitFailure: it failed, was too slow, or wrote more than ``most_bytes``.
        """
        with self.start(*arguments, stdin=(stdin,)) as process:
            output = process.stdout.read(most_bytes + 1)
            if len(output) > most_bytes:
                raise GitFailure("too_much", arguments[0], f"more than {most_bytes} bytes")
        return output

    def start(
        self,
        *arguments: str,
        stdin: Iterable[bytes] = (),
        timeout_seconds: float | None = None,
        most_file_bytes: int | None = None,
    ) -> GitProcess:
        """The running command; read its ``stdout`` inside of a ``with`` block.

        ``most_file_bytes``: the size at which a file that it writes makes it fail.
        """
        command = [self._program, *_options(), *arguments]
        if most_file_bytes is not None:
            # In units of 512 bytes (POSIX); some shells count kilobytes, which doubles the bound.
            blocks = str(most_file_bytes // 512 + 1)
            command = ["/bin/sh", "-c", 'ulimit -f "$0" && exec "$@"', blocks, *command]
        return GitProcess(
            command,
            name=arguments[0],
            environment=self._environment,
            directory=self.directory,
            stdin=stdin,
            timeout_seconds=timeout_seconds or self.timeout_seconds,
            secrets=self._secrets,
        )


class GitProcess:
    """One running git command, which ends with the ``with`` block it is used in."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        name: str,
        environment: Mapping[str, str],
        directory: str,
        stdin: Iterable[bytes],
        timeout_seconds: float,
        secrets: Sequence[str],
    ) -> None:
        self._name = name
        self._secrets = secrets
        self._words = bytearray()
        self._timed_out = False
        self._abandoned = False
        self._process = subprocess.Popen(  # noqa: S603 - git, with options of ours
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # no terminal to ask on, and one group to kill
        )
        assert self._process.stdout is not None  # piped above
        self.stdout: IO[bytes] = self._process.stdout
        self._threads = [
            threading.Thread(target=self._feed, args=(stdin,), daemon=True),
            threading.Thread(target=self._listen, daemon=True),
        ]
        self._deadline = threading.Timer(timeout_seconds, self._time_out)
        self._deadline.daemon = True
        for thread in (*self._threads, self._deadline):
            thread.start()

    def __enter__(self) -> GitProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for the command, or kill it when the block was left early.

        Raises:
            GitFailure: it failed; or the block met the end of its output too early (EOFError).
        """
        ended = kind is None or isinstance(raised, EOFError)
        if not ended or self._abandoned:
            self._kill()
        code = self._wait()
        if not ended or self._abandoned:
            return
        if self._timed_out:
            raise GitFailure("timeout", self._name, self._said()) from raised
        if code != 0:
            raise GitFailure("failed", self._name, self._said()) from raised
        if raised is not None:
            raise GitFailure("cut_short", self._name, self._said()) from raised

    def abandon(self) -> None:
        """Say that the rest of the output is not wanted: the end of the block kills the command."""
        self._abandoned = True

    @property
    def warnings(self) -> str:
        """What git wrote beside its output, so far."""
        return self._said()

    def _wait(self) -> int:
        with suppress(OSError):
            self.stdout.close()
        code = self._process.wait()
        self._deadline.cancel()
        for thread in self._threads:
            thread.join(timeout=5)
        return code

    def _feed(self, stdin: Iterable[bytes]) -> None:
        pipe = self._process.stdin
        assert pipe is not None  # piped when it was started
        # It may end before it has read all; its exit code tells why.
        with suppress(OSError, ValueError):
            for block in stdin:
                pipe.write(block)
        with suppress(OSError, ValueError):
            pipe.close()

    def _listen(self) -> None:
        pipe = self._process.stderr
        assert pipe is not None  # piped when it was started
        with suppress(OSError, ValueError), pipe:
            while block := pipe.read1(8192):  # type: ignore[attr-defined]  # a BufferedReader
                self._words += block[: MOST_WORDS_BYTES - len(self._words)]

    def _time_out(self) -> None:
        self._timed_out = True
        self._kill()

    def _kill(self) -> None:
        """With its children, as long as it was not waited for: its number may be another's then."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _said(self) -> str:
        return scrub(self._words.decode("utf-8", "replace"), self._secrets).strip()


def scrub(text: str, secrets: Iterable[str]) -> str:
    """``text`` with each secret replaced."""
    for secret in secrets:
        text = text.replace(secret, "[secret]")
    return text


def secret_forms(username: str, token: str) -> tuple[str, ...]:
    """The token in every form in which git or a server may write it; empty without a token."""
    if not token:
        return ()
    basic = basic_credentials(username, token)
    return tuple(dict.fromkeys((basic, basic.rstrip("="), token, quote(token, safe=""))))


def basic_credentials(username: str, token: str) -> str:
    """``user:token`` as HTTP's Basic authentication writes it (RFC 7617)."""
    return base64.b64encode(f"{username}:{token}".encode()).decode("ascii")


def require_version(git: Git) -> None:
    """Make sure that git is new enough to fetch for us.

    Raises:
        ConfigurationError: it is not.
    """
    version = _version(git._program)
    if version < OLDEST_VERSION:
        found, needed = (".".join(map(str, v)) for v in (version, OLDEST_VERSION))
        raise ConfigurationError(
            f"git {found} is too old to fetch from a URL; install git {needed} or newer"
        )


@lru_cache(maxsize=4)
def _version(program: str) -> tuple[int, int]:
    words = subprocess.run(  # noqa: S603 - git itself
        [program, "--version"], capture_output=True, text=True, timeout=30, check=False
    ).stdout
    numbers = [part for part in words.split() if part[:1].isdigit()]
    major, minor = (numbers[0] if numbers else "0.0").split(".")[:2]
    return int(major), int(minor)


def _find_git() -> str:
    program = shutil.which("git")
    if program is None:
        raise ConfigurationError(
            "git is not installed, or not on PATH, so no repository can be read; install git"
        )
    return program


def _options() -> list[str]:
    options = ["--no-pager", "--literal-pathspecs", "--no-replace-objects"]
    for key, value in _SETTINGS:
        options += ["-c", f"{key}={value}"]
    return options


def _environment(
    directory: str, transports: str, settings: Sequence[tuple[str, str]]
) -> dict[str, str]:
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("GIT_") or key in _KEPT_VARIABLES
    }
    environment.update(
        LC_ALL="C",
        LANGUAGE="C",
        GIT_TERMINAL_PROMPT="0",
        GIT_ASKPASS="",
        GCM_INTERACTIVE="never",
        SSH_ASKPASS_REQUIRE="never",
        GIT_OPTIONAL_LOCKS="0",
        GIT_ALLOW_PROTOCOL=transports,
        GIT_LFS_SKIP_SMUDGE="1",
        GIT_CONFIG_COUNT=str(len(settings)),
        # A folder that is no repository must not stand for one above it.
        GIT_CEILING_DIRECTORIES=os.path.dirname(os.path.realpath(directory)),
    )
    for index, (key, value) in enumerate(settings):
        environment[f"GIT_CONFIG_KEY_{index}"] = key
        environment[f"GIT_CONFIG_VALUE_{index}"] = value
    return environment

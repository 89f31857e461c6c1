"""Where a project's files are: its configuration and its data folder; standard library only.

The look for changes and the command line ask here before anything heavy is imported.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

from rag_assets.errors import ConfigurationError

ASSETS: Final = ("source_files", "parsed_documents", "chunks", "embeddings")
"""The assets that are kept as files, in the order in which they are made."""

SOURCE_NAME: Final = "[A-Za-z0-9][A-Za-z0-9_-]{0,62}"
"""What a source may be called, as a pattern: it becomes a partition key and a file name."""

CONFIG_NAME: Final = "rag_assets.yaml"
CONFIG_VARIABLE: Final = "RAG_ASSETS_CONFIG"
"""Names the file when no path is given; without it the file of that name in the current folder."""


def config_path(path: str | os.PathLike[str] | None = None) -> Path:
    """Absolute path of the configuration; see ``CONFIG_VARIABLE`` for where it is looked for.

    Raises:
        ConfigurationError: it does not exist; the message says where it was looked for.
    """
    if path is not None:
        wanted, origin = Path(path), "--config"
    elif os.environ.get(CONFIG_VARIABLE):
        wanted, origin = Path(os.environ[CONFIG_VARIABLE]), f"${CONFIG_VARIABLE}"
    else:
        wanted, origin = Path(CONFIG_NAME), "the current folder"
    wanted = Path(os.path.abspath(wanted.expanduser()))
    if wanted.is_dir():
        wanted = wanted / CONFIG_NAME
    if not wanted.is_file():
        raise ConfigurationError(
            f"{wanted}: no such file ({origin}); `rag-assets init` writes a commented one"
        )
    return wanted


class DataFolder:
    """Paths inside ``data_dir``; nothing is created by asking."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.assets = root / "assets"
        self.index = root / "index"
        self.models = root / "models"
        self.cache = root / "cache" / "embeddings.sqlite"
        self.state = root / "state"
        self.dagster = root / "dagster"
        self.git = root / "git"
        """Clones that live as long as one listing."""
        self.releases = root / "releases.json"

    def look_state(self, partition: str) -> Path:
        """What the last listing of a partition saw, for the next cheap look."""
        return self.state / f"{partition}.json"

    def journal(self, partition: str) -> Path:
        """What an interrupted listing of a server had fetched."""
        return self.state / f"{partition}.fetched"

    @property
    def indexed(self) -> Path:
        """What the index was last brought up to: the whole answer to "did anything change?"."""
        return self.state / "indexed.json"


def process_name() -> str:
    """``host:pid:start``: this process, distinct from a later one with the same number."""
    return f"{socket.gethostname()}:{os.getpid()}:{_start_of(os.getpid())}"


def build_is_abandoned(build_id: str) -> bool:
    """Whether the command that began a build of this name, on this host, is gone."""
    process = build_id.partition("@")[2]
    return process.startswith(socket.gethostname() + ":") and not process_runs(process)


def process_runs(name: str) -> bool:
    """Whether the process of that name still runs on this host."""
    _, pid, start = name.rsplit(":", 2)
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return start in ("", _start_of(int(pid)))


def _start_of(pid: int) -> str:
    """Start time of a process in clock ticks since boot; empty where /proc does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]

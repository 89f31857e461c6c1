"""A real git repository on disk, changed by whole commits and read as a server reads it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Final

FIRST_COMMIT_AT: Final = 1_767_225_600
"""2026-01-01T00:00:00Z; each commit is an hour later than the one before."""
_GIT: Final = {
    **{k: v for k, v in os.environ.items() if not k.startswith("GIT_")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


class Repository:
    """A bare git repository, changed by whole commits."""

    def __init__(self, folder: Path, object_format: str = "sha1") -> None:
        self.folder = folder
        self._object_format = object_format
        self._commits = 0
        self._reader: subprocess.Popen[bytes] | None = None

    def git(self, *arguments: str, data: bytes = b"") -> bytes:
        """What a git command prints."""
        command = ["git", "-C", str(self.folder), *arguments]
        return subprocess.run(command, input=data, env=_GIT, check=True, capture_output=True).stdout

    def commit(
        self,
        files: Mapping[str, str | bytes] | None = None,
        *,
        delete: Iterable[str] = (),
        rename: Mapping[str, str] | None = None,
        symlinks: Mapping[str, str] | None = None,
        submodules: Iterable[str] = (),
        branch: str = "main",
    ) -> str:
        """Write files, take some away, move others; the id of the new commit."""
        if not self.folder.exists():
            self.folder.mkdir(parents=True)
            form = f"--object-format={self._object_format}"
            self.git("init", "--quiet", "--bare", form, "--initial-branch=main")
        before = self.resolve(f"refs/heads/{branch}")
        moment = FIRST_COMMIT_AT + 3600 * self._commits
        self._commits += 1
        stream = [
            f"commit refs/heads/{branch}\ncommitter Ada <ada@example.org> {moment} +0200\n"
            f"data 6\nchange\n".encode()
        ]
        if before:
            stream.append(f"from {before}\n".encode())
        stream += [f"R {_quoted(old)} {_quoted(new)}\n".encode()
                   for old, new in (rename or {}).items()]  # fmt: skip
        stream += [f"D {_quoted(path)}\n".encode() for path in delete]
        for path, content in (files or {}).items():
            stream.append(_modify("100644", path, content))
        for path, target in (symlinks or {}).items():
            stream.append(_modify("120000", path, target))
        for path in submodules:
            stream.append(f"M 160000 {'1' * 40} {_quoted(path)}\n".encode())
        self.git("fast-import", "--quiet", "--force", data=b"".join(stream))
        found = self.resolve(f"refs/heads/{branch}")
        assert found is not None
        return found

    def resolve(self, ref: str) -> str | None:
        """The commit that a ref names."""
        found = self._object(ref + "^{commit}")
        return found[0] if found else None

    def committed_at(self, commit: str) -> str:
        """When a commit was made, as the API shows it."""
        found = self._object(commit)
        assert found is not None
        line = re.search(rb"^committer .* (\d+) ([+-]\d{4})$", found[2], re.MULTILINE)
        assert line is not None
        zone = datetime.strptime(line[2].decode(), "%z").tzinfo
        moment = datetime.fromtimestamp(int(line[1]), zone)
        return moment.isoformat(timespec="milliseconds")

    def tree(self, commit: str) -> Sequence[dict[str, str]]:
        """Everything in a commit, as the API shows it."""
        return _tree(str(self.folder), commit)

    def blob(self, blob_id: str) -> bytes | None:
        """The bytes of one object."""
        if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", blob_id):
            return None
        found = self._object(blob_id)
        return found[2] if found and found[1] == "blob" else None

    def _object(self, name: str) -> tuple[str, str, bytes] | None:
        """Id, kind and content of what a name of git stands for, from one process for all."""
        if not self.folder.exists() or "\n" in name:
            return None
        if self._reader is None:
            command = ["git", "-C", str(self.folder), "cat-file", "--batch"]
            self._reader = subprocess.Popen(
                command, env=_GIT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        assert self._reader.stdin
        assert self._reader.stdout
        self._reader.stdin.write(name.encode() + b"\n")
        self._reader.stdin.flush()
        line = self._reader.stdout.readline()
        if line.endswith((b" missing\n", b" ambiguous\n")):
            return None
        number, kind, size = line.decode().split()
        return number, kind, self._reader.stdout.read(int(size) + 1)[:-1]

    def close(self) -> None:
        """End the process that reads contents."""
        if self._reader is not None:
            self._reader.communicate()
            self._reader = None


@lru_cache(maxsize=256)
def _tree(folder: str, commit: str) -> Sequence[dict[str, str]]:
    command = ["git", "-C", folder, "ls-tree", "-r", "-t", "-z", "--full-tree", commit]
    listed = subprocess.run(command, env=_GIT, check=True, capture_output=True).stdout
    items = []
    for line in listed.split(b"\0")[:-1]:
        about, _, path = line.decode("utf-8", "replace").partition("\t")
        mode, kind, number = about.split(" ")
        name = path.rpartition("/")[2]
        items.append({"id": number, "name": name, "type": kind, "path": path, "mode": mode})
    return items


def _quoted(path: str) -> str:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _modify(mode: str, path: str, content: str | bytes) -> bytes:
    data = content if isinstance(content, bytes) else content.encode()
    return f"M {mode} inline {_quoted(path)}\ndata {len(data)}\n".encode() + data + b"\n"

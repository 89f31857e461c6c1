"""Documents that somebody let out of quarantine: which content, who, why and when.

A release holds for one content of one source: when the document changes, it is screened anew.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from rag_assets.errors import AssetError, ConfigurationError

LONGEST_REASON: Final = 1_000
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Release:
    """One decision."""

    source: str
    path: str
    """Where the content was when it was released; for people."""
    content_hash: str
    """sha256 (hex) of the released content."""
    found: str
    """What had quarantined it: reason, lines and rules."""
    by: str
    why: str
    at: str
    """ISO 8601, UTC, whole seconds."""


class Releases:
    """The releases of one data folder, in one JSON file that is replaced atomically."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def all(self) -> tuple[Release, ...]:
        """Every release, oldest first.

        Raises:
            ConfigurationError: the file is there and cannot be read; then nothing is released.
        """
        try:
            return _understood(json.loads(self.path.read_bytes()))
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, KeyError, TypeError) as exc:
            raise ConfigurationError(
                f"{self.path}: not readable ({exc}); put back a copy, or delete it: then all "
                "released documents are quarantined again"
            ) from exc

    def of_source(self, source: str) -> dict[str, Release]:
        """The releases of a source by content hash.

        Raises:
            ConfigurationError: as ``all``.
        """
        return {r.content_hash: r for r in self.all() if r.source == source}

    def add(
        self, *, source: str, path: str, content_hash: str, found: str, by: str, why: str
    ) -> Release:
        """Record a release; one of the same content takes the place of an older one.

        Raises:
            ConfigurationError: nobody or no reason is named, or the file cannot be read.
            AssetError: it cannot be written.
        """
        by, why = " ".join(by.split()), " ".join(why.split())
        if not by or not why:
            raise ConfigurationError("a release needs who releases (--by) and why (--reason)")
        moment = datetime.now(timezone.utc).replace(microsecond=0)
        release = Release(
            source, path, content_hash, found, by, why[:LONGEST_REASON],
            moment.isoformat().replace("+00:00", "Z"),
        )  # fmt: skip
        kept = [r for r in self.all() if (r.source, r.content_hash) != (source, content_hash)]
        self._write([*kept, release])
        return release

    def revoke(self, source: str, content_hash: str) -> bool:
        """Take a release back; False when there was none.

        Raises:
            ConfigurationError, AssetError: as ``add``.
        """
        before = self.all()
        kept = [r for r in before if (r.source, r.content_hash) != (source, content_hash)]
        if len(kept) == len(before):
            return False
        self._write(kept)
        return True

    def _write(self, releases: list[Release]) -> None:
        value: dict[str, Any] = {"format": _FORMAT, "releases": [asdict(r) for r in releases]}
        temporary = ""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=".releases.")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(value, file, ensure_ascii=False, indent=1)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
        except OSError as exc:
            with suppress(OSError):
                os.unlink(temporary)
            raise AssetError(
                f"{self.path}: cannot be written: {exc.strerror}; free space or mend the folder's "
                "permissions"
            ) from exc


def _understood(value: Any) -> tuple[Release, ...]:
    """The releases in the file's JSON value.

    Raises:
        ValueError, KeyError, TypeError: it is not of this format.
    """
    if value["format"] != _FORMAT:
        raise ValueError(f"its format is {value['format']!r}")
    return tuple(Release(**row) for row in value["releases"])

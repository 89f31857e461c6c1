"""The rules that keep files out of the index, in the order in which they decide.

1. Hard exclusions that no setting lifts: a file named ``SCRATCH.md``, a folder ``legacy``, a
   source kind or path segment ``passbolt``; whatever the case, width or invisible characters.
2. ``excluded_paths``: prefixes, name by name.
3. ``included_paths``: when not empty, only what lies below one of these prefixes.
4. The ignore file: gitignore patterns.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rag_assets.errors import ConfigurationError
from rag_assets.models import LeftOut, Reason
from rag_assets.sources.ignore_rules import IgnoreRules

IGNORE_FILE: Final = ".aiignore"

# Characters that show nothing and are not of category Cf (Unicode, Default_Ignorable_Code_Point).
_INVISIBLE: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0"
    + "".join(map(chr, range(0xFE00, 0xFE10)))
    + "".join(map(chr, range(0xE0100, 0xE01F0)))
)

_Level = tuple[str, str, bool]
"""A path from the root down, its last name, and whether it is a folder."""


class Governance:
    """What one source's rules say of a path; built once for a listing.

    ``config_locations`` gives, by rule as written, the file and 1-based line it stands in.

    Raises:
        ConfigurationError: a prefix that is absolute, leaves the root, or is a pattern; a pattern
            of the ignore file that could never match.
    """

    def __init__(
        self,
        source: str,
        source_kind: str,
        excluded_paths: Sequence[str] = (),
        included_paths: Sequence[str] = (),
        ignore_text: str | None = None,
        ignore_file: str = IGNORE_FILE,
        config_locations: Mapping[str, tuple[str, int]] | None = None,
    ) -> None:
        self.source = source
        self._locations = dict(config_locations or {})
        self._passbolt = _fold(source_kind) == "passbolt"
        self._excluded = self._prefixes("excluded_paths", excluded_paths)
        self._included = self._prefixes("included_paths", included_paths)
        self._ignore = IgnoreRules(ignore_text or "", ignore_file)

    def decide(self, path: str, *, is_dir: bool = False) -> LeftOut | None:
        """The first rule that keeps ``path``, or a folder above it, out of the index; or None."""
        path = path.strip("/")
        return self._decide(path, is_dir, tuple(_levels(path, is_dir)), whole=True)

    def decide_entry(self, path: str, name: str, *, is_dir: bool) -> LeftOut | None:
        """Like ``decide`` for the entry ``name`` of a folder that no rule keeps out."""
        return self._decide(path, is_dir, ((path, name, is_dir),), whole=False)

    def _decide(
        self, path: str, is_dir: bool, levels: tuple[_Level, ...], *, whole: bool
    ) -> LeftOut | None:
        if self._passbolt:
            return self._left_out(path, is_dir, "hard_exclusion", "passbolt")
        for _, name, folder in levels:
            if (rule := _hard_exclusion(name, folder)) is not None:
                return self._left_out(path, is_dir, "hard_exclusion", rule)
        if self._excluded:
            for level, _, folder in levels:
                excluded = self._excluded.get(_nfc(level))
                if excluded is not None and (folder or not excluded.endswith("/")):
                    return self._left_out(path, is_dir, "excluded_paths", excluded)
        if self._included and not self._is_included(_nfc(path), is_dir):
            return self._left_out(path, is_dir, "not_included", "included_paths")
        decide = self._ignore.decide if whole else self._ignore.decide_entry
        if (ignored := decide(path, is_dir=is_dir)) is not None:
            location = (self._ignore.file, ignored.line)
            return self._left_out(path, is_dir, "aiignore", ignored.pattern, location)
        return None

    def _is_included(self, path: str, is_dir: bool) -> bool:
        """Below an included prefix; or a folder on the way to one, which must be entered."""
        for prefix, written in self._included.items():
            if path == prefix and (is_dir or not written.endswith("/")):
                return True
            if path.startswith(prefix + "/") or (is_dir and prefix.startswith(path + "/")):
                return True
        return False

    def _left_out(
        self,
        path: str,
        is_dir: bool,
        reason: Reason,
        rule: str,
        location: tuple[str, int] | None = None,
    ) -> LeftOut:
        file, line = location or self._location(rule)
        shown = path + "/" if is_dir else path
        return LeftOut(self.source, shown, "excluded", reason, rule, file, line)

    def _location(self, rule: str) -> tuple[str | None, int | None]:
        return self._locations.get(rule) or (None, None)

    def _prefixes(self, key: str, written: Sequence[str]) -> dict[str, str]:
        """Prefix in NFC, without ``./`` and the ``/`` at its end, to the prefix as written."""
        prefixes: dict[str, str] = {}
        for prefix in written:
            if (fault := _prefix_fault(prefix)) is not None:
                file, line = self._location(prefix)
                where = f"{file}:{line} " if file else ""
                raise ConfigurationError(f"{where}{key}: {prefix!r} {fault}")
            names = [name for name in _nfc(prefix).split("/") if name not in ("", ".")]
            plain = "/".join(names)
            # `notes` excludes more than `notes/`: of two spellings the wider one counts.
            if plain not in prefixes or not prefix.endswith("/"):
                prefixes[plain] = prefix
        return prefixes


def _levels(path: str, is_dir: bool) -> Iterator[_Level]:
    names = path.split("/")
    for depth, name in enumerate(names, start=1):
        yield "/".join(names[:depth]), name, is_dir or depth < len(names)


def _hard_exclusion(name: str, is_dir: bool) -> str | None:
    folded = _fold(name)
    if folded.partition(".")[0] == "passbolt":
        return "passbolt"
    if is_dir:
        return "legacy/" if folded == "legacy" else None
    return "SCRATCH.md" if folded == "scratch.md" else None


def _fold(name: str) -> str:
    """The name as a person, or a file system that folds names, would read it."""
    if not name.isascii():
        name = unicodedata.normalize("NFKC", name)
        name = "".join(c for c in name if c not in _INVISIBLE and unicodedata.category(c) != "Cf")
        name = unicodedata.normalize("NFKC", name.casefold())
    return name.lower().rstrip(" .").lstrip(" ")


def _nfc(path: str) -> str:
    return path if path.isascii() else unicodedata.normalize("NFC", path)


def _prefix_fault(prefix: str) -> str | None:
    """What is wrong with a configured prefix and what to do, or None."""
    names = prefix.split("/")
    if prefix.startswith(("/", "~")) or prefix[1:2] == ":":
        return "is absolute; write it relative to the root of the source"
    if ".." in names:
        return "leaves the root of the source; write it without '..'"
    if not set(names) - {"", "."}:
        return "names nothing; remove it, or name a folder or file below the root of the source"
    if "\\" in prefix:
        return "has a backslash; write folders with '/'"
    if "*" in prefix or "?" in prefix:
        return f"is a pattern, but only prefixes work here; put patterns into {IGNORE_FILE}"
    if any(unicodedata.category(character) == "Cc" for character in prefix):
        return "has a control character, so it names nothing that is indexed; remove it"
    return None

"""Pattern files in, rule names with their RE2 patterns out; the files say how they are written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Final

_FRAGMENT: Final = re.compile(r"<([a-z_]+)>")
_GAP: Final = r"(?:[^a-z0-9.;!?]+)"
"""Between two words of one sentence."""
_WORD: Final = "[a-z0-9]+(?:[./?=&%_-][a-z0-9]+)*"
_TOKEN: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|_(?P<words>\d+)|(?P<gap> )")


def read_patterns(name: str) -> Iterator[tuple[str, str]]:
    """Names and patterns of ``patterns/<name>.txt``, in order; a name may come more than once."""
    fragments: dict[str, str] = {}
    for title, written in _read_blocks(name):
        pattern = _FRAGMENT.sub(lambda match: fragments.get(match[1], match[0]), written)
        if title.startswith("<"):
            fragments[title.strip("<>")] = pattern
        else:
            yield title, pattern


def read_phrases(name: str, *, squeezed: bool = False) -> list[tuple[str, str]]:
    """The same for a file of phrases; ``squeezed``: for words with nothing between them."""
    gap, word, edge = ("", "[a-z]{1,9}", "") if squeezed else (_GAP, _WORD, r"\b")

    def token(match: re.Match[str]) -> str:
        if match["words"]:
            return f"(?:{gap}{word}){{0,{match['words']}}}"
        if match["gap"]:
            return gap
        return edge if match[0] == r"\b" else match[0]

    return [(title, _TOKEN.sub(token, pattern)) for title, pattern in read_patterns(name)]


def _read_blocks(name: str) -> Iterator[tuple[str, str]]:
    title, pattern = "", ""
    text = (files("rag_assets.screening") / "patterns" / f"{name}.txt").read_text("utf-8")
    for line in [*text.splitlines(), "end"]:
        if line.startswith("    "):
            pattern += line[4:]
        elif line and not line.startswith("#"):
            if pattern:
                yield title, pattern
            title, pattern = line, ""

"""Front matter and body in, the title out: ``title``, else the first H1, else the file's name."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from rag_assets.markdown import first_heading, normalise_line_ends

MAX_TITLE_CHARACTERS: Final = 500
MAX_SEARCHED_CHARACTERS: Final = 65_536
"""How far into the body an H1 still counts as the document's title."""


def find_title(metadata: Mapping[str, str], body: str, path: str) -> tuple[str, str | None]:
    """The title on one line, and a warning or None. Never empty."""
    title = (
        _on_one_line(_front_matter_title(metadata))
        or _on_one_line(first_heading(normalise_line_ends(body[:MAX_SEARCHED_CHARACTERS]), 1))
        or _on_one_line(PurePosixPath(path).stem)
        or path
    )
    if len(title) > MAX_TITLE_CHARACTERS:
        cut = title[: MAX_TITLE_CHARACTERS - 1].rstrip() + "…"
        return cut, f"the title has {len(title)} characters; it was cut to {len(cut)}"
    return title, None


def _front_matter_title(metadata: Mapping[str, str]) -> str:
    if "title" in metadata:
        return metadata["title"]
    return next((value for key, value in metadata.items() if key.casefold() == "title"), "")


def _on_one_line(text: str) -> str:
    """White space collapsed, control characters gone."""
    if text.isprintable() and "  " not in text:
        return text.strip()
    spaced = (
        " " if unicodedata.category(character) in ("Cc", "Zl", "Zp") else character
        for character in text
    )
    return " ".join("".join(spaced).split())

"""What a server said when it refused, made fit for a log: short, one line, no texts, no secrets."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from typing import Final

LONGEST_EXCERPT: Final = 300
"""Characters of a server's words that a message carries."""

_LONGEST_READ: Final = 600
_LONGEST_MESSAGE: Final = 2_000
_SHORTEST_ECHO: Final = 16
"""A run of this many characters that also stands in a text was taken from it."""
_SHORTEST_WHOLE_TEXT: Final = 3
_TITLE: Final = re.compile(r"<title[^>]*>([^<]{1,200})", re.IGNORECASE)


def excerpt(body: bytes, texts: Sequence[str] = (), secrets: Sequence[str] = ()) -> str:
    """The server's own words out of an error body; empty when it has none.

    Understands FastAPI's ``detail`` (a string, or a list of which only place and message are
    taken: it also carries the input), other JSON as it is, and an HTML page by its title.
    """
    words = _one_line(_spoken(body.decode("utf-8", "replace")))[:_LONGEST_READ]
    for secret in secrets:
        words = words.replace(secret, "[secret]")
    words = _without_texts(words, [_one_line(text) for text in texts])
    return words if len(words) <= LONGEST_EXCERPT else words[: LONGEST_EXCERPT - 1] + "…"


def without_texts(message: str, texts: Sequence[str]) -> str:
    """One line of ``message`` without what it quotes of the texts, plainly or escaped.

    Runs of 16 characters and whole shorter texts are found; single words are not.
    """
    forms = [form for text in texts for form in (text, repr(text)[1:-1], json.dumps(text)[1:-1])]
    words = _without_texts(_one_line(message[:_LONGEST_MESSAGE]), [*map(_one_line, forms)])
    return words if len(message) <= _LONGEST_MESSAGE else words + "…"


def _spoken(body: str) -> str:
    if body.lstrip()[:1] == "<":
        title = _TITLE.search(body)
        return f"an HTML page, {title[1].strip()!r}" if title else "an HTML page"
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return body
    detail = value.get("detail") if isinstance(value, dict) else None
    if isinstance(detail, str):
        return detail
    if isinstance(detail, list):
        return "; ".join(_complaint(item) for item in detail[:5])
    return json.dumps(value, ensure_ascii=False)


def _complaint(item: object) -> str:
    """One entry of FastAPI's list, without the ``input`` it echoes."""
    if not isinstance(item, dict):
        return str(item)
    place = item.get("loc")
    where = ".".join(str(part) for part in place) if isinstance(place, list) else ""
    message = str(item.get("msg") or item.get("type") or "refused")
    return f"{where}: {message}" if where else message


def _one_line(text: str) -> str:
    """``text`` without control, invisible and line-breaking characters."""
    if not text.isprintable():
        text = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in text)
    return " ".join(text.split())


def _without_texts(words: str, texts: Sequence[str]) -> str:
    """``words`` with every part that was taken from the texts sent replaced by ``[text]``."""
    for text in sorted({t for t in texts if len(t) >= _SHORTEST_WHOLE_TEXT}, key=len, reverse=True):
        if len(text) <= _SHORTEST_ECHO:
            words = words.replace(text, "[text]")
    haystack = "\n".join(texts)
    echoed = [
        start
        for start in range(len(words) - _SHORTEST_ECHO + 1)
        if words[start : start + _SHORTEST_ECHO] in haystack
    ]
    kept: list[str] = []
    done = 0
    for start in echoed:
        if start > done or not kept:
            kept += [words[done:start], "[text]"]
        done = start + _SHORTEST_ECHO
    return "".join(kept) + words[done:]

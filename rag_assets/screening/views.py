"""Text in, the ways to read it out: as written, without markup, decoded; each knows its lines.

Whoever hides an order from people but not from a model writes it so that it must be read
otherwise: letters as entities, percent escapes or base64, with marks or tags between them, spaced
out, with digits for letters, backwards. Each of these readings is made only where the text shows
a sign of it, and all of them in time linear in the text.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final, cast
from urllib.parse import unquote_to_bytes

from rag_assets.screening.folding import fold, mixes_scripts
from rag_assets.screening.rules import compile_pattern

MAX_DECODED_CHARACTERS: Final = 1 << 20
"""Of all base64 blocks of one text together."""

_ENTITY: Final = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});?")
_ESCAPES: Final = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_CODE_POINTS: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2}))")
_INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]"
)
_INVISIBLE_GAP: Final = re.compile(rf"([^\W\d_]){_INVISIBLE.pattern}+(?=[^\W\d_])")
_BACKWARDS: Final = re.compile("[\u202e\u202b\u2067]")
_BASE64: Final = re.compile(
    rb"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{16,}(?:[ \t>*]*\n[ \t>*]*[A-Za-z0-9+/_-]{16,})*"
    rb"(?:[ \t>*]*\n[ \t>*]*[A-Za-z0-9+/_-]+(?==))?={0,2}"
)
_SHORTEST_BASE64: Final = 24
_BASE64_SIGN: Final = r"[A-Za-z0-9]{20}"
"""Text in base64 has no ``/`` or ``+`` for as long as that."""
_MARKUP: Final = re.compile(
    rb"<!--([^<>]*)-->"
    rb"|</?((?:a|abbr|b|big|br|center|cite|code|dd|del|details|div|dl|dt|em|font|h[1-6]|hr|i|ins|kbd|label|li|mark"
    rb"|ol|p|pre|q|s|samp|section|small|span|strong|sub|summary|sup|table|tbody|td|th|thead|tr|tt|u|ul|var|wbr)\b[^<>]{0,2000})>"
    rb"|(?<!!)\[([^\[\]]{1,300})\]\(([^()]{0,2000})\)",
    re.IGNORECASE,
)
_WORTH_READING: Final = (
    "(?i)ignor|disreg|forget|oubli|instruction|consigne|directive|prompt|mot de passe|password|mdp"
    "|reveal|revel|syste"
)
"""Without any of these, a link in the middle of a sentence hides nothing."""
_BREAKING_TAG: Final = re.compile(
    rb"(?:br|dd|div|dt|h[1-6]|hr|li|p|pre|section|summary|t[dhr])\b", re.IGNORECASE
)
_EMPHASIS: Final = b"*_~`\\"
_EMPHASIS_IN_WORD: Final = r"[A-Za-z](?:\*{1,3}|`|~~|\\)[A-Za-z]|(?:[A-Za-z]_){5}"
_SPACED: Final = re.compile(rb"(?:\b[A-Za-z][ .*_|\t-]{1,3}){7,}[A-Za-z]\b")
_SPACED_SIGN: Final = _SPACED.pattern.decode("ascii")
_SPACING: Final = b" .*_|\t-"
_LEET_SIGN: Final = (
    r"[A-Za-z][013457@$]\w*[^a-z0-9]+(?:\w+[^a-z0-9]+){0,3}\w*[A-Za-z][013457@$][A-Za-z]"
)
_LEET: Final = bytes.maketrans(b"013457@$|", b"oieastasi")


@dataclass(frozen=True, slots=True)
class View:
    """One reading of a text."""

    text: bytes = field(repr=False)
    """ASCII."""
    squeezed: bool = False
    """The spaces between words are gone."""


def plain_views(text: str) -> tuple[View, ...]:
    """As written, with escapes decoded, words whole that markup had cut; and that markup."""
    folded = fold(_decode_escapes(text))
    kept, aside = _markup_aside(folded)
    return (View(kept), View(aside)) if aside else (View(kept),)


def covert_views(text: str, plain: Sequence[View]) -> Iterator[View]:
    """The readings of text that is made not to be read by people."""
    emphasis_in_word, leet, spaced, base64_block = _signs()
    for view in plain:
        folded = view.text
        if emphasis_in_word.search(folded):
            yield View(folded.translate(None, _EMPHASIS))
        if leet.search(folded):
            yield View(folded.translate(_LEET))
        if spaced.search(folded):
            yield from _spaced_out(folded)
        if base64_block.search(folded):
            yield from _base64_blocks(folded)
    if not text.isascii():
        yield from _beyond_ascii(text, plain[0])


def _beyond_ascii(text: str, plain: View) -> Iterator[View]:
    """Look-alike letters read as Latin, invisible characters as spaces, lines backwards."""
    if mixes_scripts(text):
        yield View(fold(text, look_alikes=True))
    if not _INVISIBLE.search(text):
        return
    if _INVISIBLE_GAP.search(text):
        yield View(fold(_INVISIBLE_GAP.sub(r"\1 ", text)))
    if _BACKWARDS.search(text):
        yield View(b"\n".join(line[::-1] for line in plain.text.split(b"\n")))


@lru_cache(maxsize=1)
def _worth_reading() -> Any:
    return compile_pattern(_WORTH_READING, captures=False)


@lru_cache(maxsize=1)
def _signs() -> tuple[Any, ...]:
    """What emphasis inside of words, digits for letters, spaced letters and base64 look like."""
    signs = (_EMPHASIS_IN_WORD, _LEET_SIGN, _SPACED_SIGN, _BASE64_SIGN)
    return tuple(compile_pattern(sign, captures=False) for sign in signs)


def _decode_escapes(text: str) -> str:
    if "&" in text:
        text = _ENTITY.sub(_entity, text)
    if "%" in text:
        text = _ESCAPES.sub(_percent, text)
    if "\\u" in text or "\\x" in text:
        text = _CODE_POINTS.sub(_code_point, text)
    return text


def _entity(match: re.Match[str]) -> str:
    return _on_one_line(html.unescape(match[0]))


def _percent(match: re.Match[str]) -> str:
    decoded = unquote_to_bytes(match[0]).decode("utf-8", "replace")
    return _on_one_line(decoded)


def _code_point(match: re.Match[str]) -> str:
    return _on_one_line(chr(int(match[1] or match[2], 16)))


def _on_one_line(decoded: str) -> str:
    """Without line ends: decoding must not move the lines below."""
    return decoded.replace("\r", " ").replace("\n", " ")


def _markup_aside(folded: bytes) -> tuple[bytes, bytes]:
    """The text without comments, tags and link targets, and those, each on its own line.

    So the words around them are whole again, and what stands in them is still read.
    """
    links = b"](" in folded and _worth_reading().search(folded) is not None
    if b"<" not in folded and not links:
        return folded, b""
    kept: list[bytes] = []
    aside: list[bytes] = []
    for line in folded.split(b"\n"):
        moved: list[bytes] = []
        if b"<" in line or (links and b"](" in line):
            line = _MARKUP.sub(partial(_replacement, moved), line)
        kept.append(line)
        aside.append(b" . ".join(moved))
    return b"\n".join(kept), b"\n".join(aside) if any(aside) else b""


def _replacement(moved: list[bytes], match: re.Match[bytes]) -> bytes:
    comment, tag, label, target = match.groups()
    if comment or target or b" " in (tag or b""):  # a bare tag says nothing
        moved.append(comment or target or tag)
    if label is not None:
        return cast(bytes, label)
    return b" " if tag and _BREAKING_TAG.match(tag) else b""


def _spaced_out(folded: bytes) -> Iterator[View]:
    pieces = [(m.start(), m[0].translate(None, _SPACING)) for m in _SPACED.finditer(folded)]
    if pieces:
        yield View(_on_their_lines(folded, pieces), squeezed=True)


def _base64_blocks(folded: bytes) -> Iterator[View]:
    pieces = []
    budget = MAX_DECODED_CHARACTERS
    for match in _BASE64.finditer(folded):
        block = match[0]
        if len(block) < _SHORTEST_BASE64 or budget <= 0:
            continue
        decoded = _decode_base64(block)
        if decoded is not None:
            budget -= len(decoded)
            pieces.append((match.start(), fold(_on_one_line(decoded))))
    if pieces:
        yield View(_on_their_lines(folded, pieces))


def _on_their_lines(folded: bytes, pieces: list[tuple[int, bytes]]) -> bytes:
    """The pieces, each on the line on which its offset in ``folded`` stands."""
    parts = []
    done = 0
    for offset, piece in pieces:
        parts += [b"\n" * folded.count(b"\n", done, offset) or b". ", piece]
        done = offset
    return b"".join(parts)


def _decode_base64(block: bytes) -> str | None:
    """The readable text in a block of base64; None for anything else."""
    letters = bytes(block).translate(bytes.maketrans(b"-_", b"+/"), b" \t\n>*=")
    letters = letters[: len(letters) // 4 * 4 + (len(letters) % 4 if len(letters) % 4 != 1 else 0)]
    try:
        decoded = base64.b64decode(letters + b"=" * (-len(letters) % 4)).decode("utf-8")
    except ValueError:
        return None
    printable = sum(character.isprintable() or character.isspace() for character in decoded)
    return decoded if printable > 0.95 * len(decoded) and " " in decoded else None

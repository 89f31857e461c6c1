"""Text in, the same text without characters that nobody sees, and what such characters spelt.

A character is kept where it does work that a reader sees: joiners inside emoji and between letters
of scripts that join, variation selectors behind a base they are standardised for, the tag sequences
of the three subdivision flags, direction marks in right-to-left text, the word separator of scripts
without spaces. Everything else that is invisible goes, inside code too, where it is an attack.

Kept on purpose: no-break spaces (French typography), tab, form feed and line ends, and unassigned
code points, because text is often newer than the Unicode tables of the interpreter.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from types import MappingProxyType
from typing import Final

MAX_MESSAGES: Final = 20
MAX_MESSAGE_CHARACTERS: Final = 10_000
MIN_MESSAGE_CHARACTERS: Final = 8
"""Shorter readings of invisible runs are chance."""
_MIN_BITS: Final = 8 * MIN_MESSAGE_CHARACTERS
_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})

_PLAIN_ASCII: Final = bytes((9, 10, 12, 13, *range(32, 127)))

_JOINING: Final = (
    "\u0600-\u061b\u061d-\u06ff\u0710-\u08ff\u0900-\u0dff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"
    "\u1810-\u18af\u1900-\u1cff\ua800-\ua8ff\ua980-\ua9ff\uaa00-\uaaff\uabc0-\uabff"
    "\ufb50-\ufdcf\ufdf0-\ufdff\ufe70-\ufefc\U00010a00-\U00011fff"
)
"""Letters of scripts in which ZWJ and ZWNJ choose forms: Arabic, Syriac, Indic and their kin."""
_WITHOUT_SPACES: Final = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u1aaf"
"""Thai, Lao, Tibetan, Myanmar, Khmer, Tai: ZWSP is their word separator."""
_RIGHT_TO_LEFT: Final = (
    "\u0590-\u061b\u061d-\u08ff\ufb1d-\ufdcf\ufdf0-\ufdff\ufe70-\ufefc"
    "\U00010800-\U00010fff\U0001e800-\U0001efff"
)
_EMOJI: Final = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf"
    "\u2900-\u297f\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_IDEOGRAPHS: Final = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_STANDARDISED: Final = (
    _IDEOGRAPHS + "\u1000-\u109f\u2205-\u22ff\u2a00-\u2aff\u3001\u3002"
    "\ua840-\ua87f\uaa60-\uaa7f\uff01\uff0c\uff0e\uff1a\uff1b\uff1f"
)
"""Bases of ``StandardizedVariants.txt`` for VS1 to VS3."""
_HANGUL_JAMO: Final = "\u1100-\u115e\u1161-\u11ff\ua960-\ua97c\ud7b0-\ud7fb"
_MARKS: Final = "\u061c\u200e\u200f"

# Characters that never do work. None of these classes may hold a character of ``_WORKING``.
_NEVER: Final[tuple[tuple[str, str, str], ...]] = (
    ("zero_width", "[\u034f\u2060\ufeff\u17b4\u17b5]+", ""),
    ("bidi", "[\u202a-\u202e\u2066-\u206f]+", ""),
    ("operator", "[\u2061-\u2065\U0001bca0-\U0001bca3\U0001d173-\U0001d17a]+", ""),
    ("soft_hyphen", "\u00ad+", ""),
    # As wide as a letter or a space, so the words on either side must not be joined.
    ("filler", "[\u3164\uffa0]", " "),
    ("variation_selector", "[\ufe03-\ufe0d]+", ""),
    ("tag", "[\U000e0000-\U000e001f\U000e0080-\U000e00ff\U000e01f0-\U000e0fff]+", ""),
    ("annotation", "[\ufff0-\ufffc]+", ""),
    ("private_use", "[\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd]+", ""),
    ("control", "[\x0b\x1c-\x1f\x85\u2028\u2029]", " "),
    (
        "control",
        "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"
        "\U000ffffe\U000fffff\U0010fffe\U0010ffff]+",
        "",
    ),
)
_WORKING: Final = (
    "\u115f\u1160\u180b-\u180f\u200b-\u200f\u061c\u2800\ufe00-\ufe02\ufe0e\ufe0f"
    "\U000e0020-\U000e007f\U000e0100-\U000e01ef"
)
# Characters that work in one place only: each pattern finds them everywhere else. ``(?<=[..].)``
# looks at the character before the one just read. In this order: a rule may look at what the ones
# before it have left, never the other way round, so that a second pass finds nothing.
_FLAG_TAGS: Final = (
    "\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067"  # gbeng: England
    "|\U000e0073\U000e0063\U000e0074"  # gbsct: Scotland
    "|\U000e0077\U000e006c\U000e0073)\U000e007f"  # gbwls: Wales
)
_MISPLACED: Final[tuple[tuple[str, str, str], ...]] = (
    (
        "tag",
        f"(?!(?<=\U0001f3f4){_FLAG_TAGS}(?![\U000e0020-\U000e007f]))"
        "(?<![\U000e0020-\U000e007f])[\U000e0020-\U000e007f]+",
        "",
    ),
    (
        "variation_selector",
        f"[\ufe0e\ufe0f](?<![{_EMOJI}].)(?!(?<=[#*0-9].)\u20e3)"
        f"|[\ufe00-\ufe02](?<![{_STANDARDISED}].)"
        f"|[\U000e0100-\U000e01ef](?<![{_IDEOGRAPHS}].)"
        "|[\u180b-\u180f](?<![\u1807\u1820-\u18aa].)",
        "",
    ),
    (
        "zero_width",
        f"[\u200c\u200d](?!(?<=[{_JOINING}].)[{_JOINING}]|(?<=[{_EMOJI}\ufe0f]\u200d)[{_EMOJI}])"
        f"|\u200b(?!(?<=[{_WITHOUT_SPACES}].)[{_WITHOUT_SPACES}])",
        "",
    ),
    ("filler", f"[\u115f\u1160](?<![{_HANGUL_JAMO}].)(?![{_HANGUL_JAMO}])", " "),
    ("filler", "\u2800(?!(?<=[\u2801-\u28ff].)[\u2801-\u28ff])", " "),
)
_REMOVALS: Final = tuple(
    (kind, re.compile(pattern, re.DOTALL), replacement)
    for kind, pattern, replacement in (*_NEVER, *_MISPLACED)
)
_SUSPECT: Final = re.compile(
    "["
    + "".join(pattern[1:].rstrip("]+") for _, pattern, _ in _NEVER if "[" in pattern)
    + "\u00ad"
    + _WORKING
    + "]"
)
_MARK: Final = re.compile(f"[{_MARKS}]+")
_MARKED_LINE: Final = re.compile(f"[^\n{_MARKS}]*[{_MARKS}][^\n]*")
_HAS_RIGHT_TO_LEFT: Final = re.compile(f"[{_RIGHT_TO_LEFT}]")


def strip_invisible(text: str) -> tuple[str, Mapping[str, int]]:
    """``text`` without invisible characters, and how many of each kind were taken away.

    Kinds: ``zero_width``, ``bidi``, ``operator``, ``soft_hyphen``, ``filler``,
    ``variation_selector``, ``tag``, ``annotation``, ``private_use``, ``control``. What is as wide
    as a space becomes one. Line ends stay, so lines keep their numbers. Text without any is
    returned itself.
    """
    # Without the plain ASCII little is left of most texts, and bytes are searched fast.
    encoded = text.encode("utf-8", "surrogatepass").translate(None, delete=_PLAIN_ASCII)
    if not encoded:
        return text, _NOTHING
    present = frozenset(_SUSPECT.findall("".join(set(encoded.decode("utf-8", "surrogatepass")))))
    if not present:
        return text, _NOTHING
    removed: Counter[str] = Counter()
    for kind, pattern, replacement in _REMOVALS:
        if not any(pattern.match(character) for character in present):
            continue
        if replacement:
            text, count = pattern.subn(replacement, text)
        else:
            length = len(text)
            text = pattern.sub("", text)
            count = length - len(text)
        if count:
            removed[kind] += count
    if not present.isdisjoint(_MARKS):
        length = len(text)
        text = _strip_marks(text)
        if length > len(text):
            removed["bidi"] += length - len(text)
    return text, MappingProxyType(dict(removed)) if removed else _NOTHING


def _strip_marks(text: str) -> str:
    """Direction marks work, one at a place, on a line with right-to-left text."""
    if _HAS_RIGHT_TO_LEFT.search(text) is None:
        return _MARK.sub("", text)
    return _MARKED_LINE.sub(_strip_marks_of_line, text)


def _strip_marks_of_line(match: re.Match[str]) -> str:
    line = match.group()
    if _HAS_RIGHT_TO_LEFT.search(line) is None:
        return _MARK.sub("", line)
    return _MARK.sub(lambda run: run.group()[0], line)


_TAG_RUN: Final = re.compile(f"[\U000e0020-\U000e007e]{{{MIN_MESSAGE_CHARACTERS},}}")
_SELECTOR_RUN: Final = re.compile(
    "(?:[\ufe00-\ufe0f\U000e0100-\U000e01ef][^\ufe00-\ufe0f\U000e0100-\U000e01ef]?)"
    f"{{{MIN_MESSAGE_CHARACTERS},}}"
)
_SELECTOR: Final = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_BIT: Final = "[\u180e\u200b-\u200f\u202c\u202d\u2060-\u2064\ufeff]"
_BITS: Final = re.compile(_BIT)
_PRINTABLE: Final = re.compile(rf"[\t\n\r\x20-\x7e]{{{MIN_MESSAGE_CHARACTERS},}}")
_MAX_BITS: Final = 16 * MAX_MESSAGE_CHARACTERS


def hidden_messages(text: str) -> list[str]:
    """What invisible characters of ``text`` spell, for screening: at most ``MAX_MESSAGES`` texts.

    Read are tag characters (each an ASCII character), variation selectors (each a byte: VS1 to
    VS16 are 0 to 15, VS17 to VS256 are 16 to 255), also when one hides behind each visible
    character, and two zero-width characters as bits, eight or seven to a character, a third one as
    separator. Only what gives ``MIN_MESSAGE_CHARACTERS`` printable ASCII characters in a row.
    """
    if text.isascii():
        return []
    found = [
        "".join(chr(ord(c) - 0xE0000) for c in match.group()[:MAX_MESSAGE_CHARACTERS])
        for match in _TAG_RUN.finditer(text)
    ]
    for match in _SELECTOR_RUN.finditer(text):
        found.extend(_printable(_selector_bytes(match.group()[: 2 * MAX_MESSAGE_CHARACTERS])))
    found.extend(_zero_width_messages(text))
    return list(dict.fromkeys(found))[:MAX_MESSAGES]


def _selector_bytes(run: str) -> str:
    """The bytes that variation selectors stand for, as Latin-1."""
    points = (ord(selector) for selector in _SELECTOR.findall(run))
    return "".join(chr(p - 0xFE00 if p < 0xE0000 else p - 0xE0100 + 16) for p in points)


def _zero_width_messages(text: str) -> list[str]:
    """Bits of two zero-width characters, wherever they stand."""
    characters = [match.group() for match in islice(_BITS.finditer(text), _MAX_BITS)]
    symbols = Counter(characters).most_common(3)
    if len(characters) < _MIN_BITS * 7 // 8 or len(symbols) < 2:
        return []
    zero, one = symbols[0][0], symbols[1][0]
    found: list[str] = []
    for low, high in ((zero, one), (one, zero)):
        bits = "".join("0" if c == low else "1" if c == high else " " for c in characters)
        readings = [_characters(bits.replace(" ", ""), width) for width in (8, 7)]
        readings.append("".join(_characters(word, len(word)) for word in bits.split()))
        for reading in readings:
            messages = _printable(reading)
            # Random bits give printable runs now and then; a message is nearly all printable.
            if sum(map(len, messages)) * 10 >= len(reading) * 9:
                found.extend(messages)
    return found


def _characters(bits: str, width: int) -> str:
    if not 5 <= width <= 16:
        return ""
    starts = range(0, len(bits) - width + 1, width)
    return "".join(chr(int(bits[start : start + width], 2)) for start in starts)


def _printable(reading: str) -> list[str]:
    return [match.group()[:MAX_MESSAGE_CHARACTERS] for match in _PRINTABLE.finditer(reading)]

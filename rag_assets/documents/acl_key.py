"""What looks like an ``acl`` key, and which tags its value grants: when in doubt, nobody.

A document whose author tried to restrict it and made a mistake must not become public, so anything
that resembles the key counts as an attempt.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from rag_assets.acl import normalise_tags

WANTED: Final = "Write one line such as `acl: service:hr, admin_only`"
MAX_MENTIONS: Final = 20_000
"""After so many places that spell "acl" a text is not searched further but refused."""

_TAG: Final = re.compile(r"[A-Za-z0-9_.:-]{1,200}")
_INVISIBLE: Final = r"[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]*"
_MENTION: Final = re.compile(
    # Latin, full-width, Cyrillic and Greek look-alikes, and Turkish and capital forms.
    rf"[aAａＡаАαΑ]{_INVISIBLE}[cCｃＣсСϲ]{_INVISIBLE}[lLｌＬӏⅼ]"
)
_LOOK_ALIKES: Final = str.maketrans("аαсϲӏ", "aaccl")
_WORDS: Final = re.compile(r"[a-z]+")
_LEFT_OF_MENTION: Final = re.compile(r"(?:^|[{,(\[])[^\w:={},]*(\w*(?:[_.-]\w+)*[_.-]?)$")
_RIGHT_OF_MENTION: Final = re.compile(r"(\w*(?:[ _.-][\w.-]+)?)[\s\"'`*_]*[:=：]")
_STRICT_LINE: Final = re.compile(
    r"\s*acl\s*[:=]\s*[\"'\[]?[\w.:-]+(?:\s*,\s*[\w.:-]+)*[\"'\]]?\s*\Z", re.IGNORECASE
)
_FENCE_LIKE: Final = re.compile(r"[\s\ufeff\u200b-\u200f]*(?:[-–—−]{2,}|\+{3}|;{3}|\{|<!--)")
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_MAX_DISTANCE: Final = 100
"""How far from the line start, and how long, a key may be."""


class AclUnreadable(Exception):
    """Who may read the document cannot be told; ``str`` of it says why and what to do."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}. {WANTED}")
        self.line = line
        """1-based line of the file."""


def looks_like_acl(key: str) -> bool:
    """True for ``acl`` and what resembles it: ``ACL``, ``acl_tags``, ``pageAcl``, Cyrillic а."""
    if len(key) > 1_000:
        return _MENTION.search(key) is not None
    if key.isascii():
        visible = key.lower()
    else:
        folded = unicodedata.normalize("NFKC", key).casefold().translate(_LOOK_ALIKES)
        visible = "".join(c for c in folded if unicodedata.category(c) != "Cf")
    if "acl" not in visible:
        return False
    return any(word.startswith("acl") or word.endswith("acl") for word in _WORDS.findall(visible))


def parse_tags(value: str, line: int, *, is_null: bool) -> tuple[str, ...]:
    """The tags of a scalar: words of letters, digits and ``_ . : -``, separated by commas.

    Any word is a tag; one that no caller names is seen by nobody.

    Raises:
        AclUnreadable: no tags, or something else between the commas.
    """
    if is_null:
        raise AclUnreadable(line, "the value of `acl` is empty")
    tags = [tag.strip() for tag in value.split(",")]
    for tag in tags:
        if not _TAG.fullmatch(tag):
            raise AclUnreadable(line, "a value of `acl` is not a tag")
    return normalise_tags(tags)


def find_acl_line(text: str) -> int | None:
    """1-based line of ``text`` with something like ``acl: ...`` or ``"acl" = ...``, or None.

    It counts at the beginning of a line and behind ``{``, ``[``, ``(`` and ``,``.
    """
    for count, mention in enumerate(_MENTION.finditer(text)):
        at = mention.start()
        if count >= MAX_MENTIONS or _is_key(text, at, mention.end()):
            return 1 + len(_LINE_END.findall(text, 0, at))
    return None


def _is_key(text: str, start: int, end: int) -> bool:
    near = max(0, start - _MAX_DISTANCE)
    line_start = max(text.rfind("\n", near, start), text.rfind("\r", near, start), near - 1) + 1
    left = _LEFT_OF_MENTION.search(text[line_start:start])
    if left is None:
        return False
    if line_start == near > 0 and left[0][:1] not in tuple("{,(["):
        return False
    right = _RIGHT_OF_MENTION.match(text, end, end + _MAX_DISTANCE)
    return right is not None and looks_like_acl(left[1] + text[start:end] + right[1])


def misplaced_acl_line(text: str) -> int | None:
    """Line of an ``acl`` key in a document without front matter; None when there is none.

    Looked for wherever somebody may have meant front matter: in the whole text when it begins with
    something like a fence (a rule of other length, ``+++``, ``{``, a comment), else among the
    lines before the first blank one.
    """
    if _MENTION.search(text) is None:
        return None
    if _FENCE_LIKE.match(text):
        return find_acl_line(text)
    begun = False
    for number, line in enumerate(_LINE_END.split(text[:65_536]), start=1):
        if _STRICT_LINE.match(line):
            return number
        if begun and not line.strip():
            return None
        begun = begun or bool(line.strip())
    return None

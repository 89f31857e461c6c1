"""Headings in, the anchors out that a renderer gives them, unique within a document.

========= ====================================================== ============================
style     slug                                                   repeated
========= ====================================================== ============================
github    lower case; only letters, marks, digits, connectors    ``-1``, ``-2`` ... (the rule
          (``_``) and hyphens stay; each space a hyphen          of github-slugger)
mkdocs    Python-Markdown's ``toc`` with ``slugify_unicode``:    ``_1``, ``_2`` ...
          ``\\w``, space and hyphen stay, runs become one hyphen
gitlab    as github; trimmed, runs of hyphens become one, only   ``-1``, ``-2`` ...
          digits get ``anchor-`` before them
bookstack ``bkmrk-`` and 20 characters: A to Z in lower case,    ``-1``, ``-2`` ...
          white space as a hyphen, the rest percent-encoded
========= ====================================================== ============================

In every style accents are kept, an explicit ``{#id}`` is taken as it is (and no slug of the
document may take it), and no anchor is empty: where nothing visible is left (an emoji alone),
GitHub's and GitLab's style say ``section``, MkDocs says ``_1`` itself. All but BookStack's bring
the text to NFC first.
An emoji loses itself but not the space behind it (``🚀 Go`` is ``-go``); ``:rocket: Go`` is
``rocket-go``, as these renderers make the slug before the picture.

BookStack knows no ``{#id}`` in Markdown and shows it as text; only ids of its own (``bkmrk...``),
which its HTML carries, are taken. It numbers paragraphs and lists too: a heading whose first 20
characters already began one above it gets that one's anchor here, and so a link to just above it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal
from urllib.parse import quote_plus

from rag_assets.markdown import Heading

AnchorStyle = Literal["github", "mkdocs", "gitlab", "bookstack"]

MAX_ANCHOR_CHARACTERS: Final = 1_000
"""Longer ones are cut; no reader follows a link of that length."""
FALLBACK_SLUG: Final = "section"
"""Stands in where a heading leaves no visible character."""


class _SlugTable(dict[int, str | None]):
    """GitHub's character rule for ``str.translate``, filled as characters are met.

    Kept: ``\\p{L} \\p{M} \\p{Nd} \\p{Nl} \\p{Pc}``, the circled letters that Unicode calls
    alphabetic, and ``-``; on Unicode 13 exactly what github-slugger 2.0.0 keeps.
    """

    _CIRCLED_LETTERS: Final = (
        range(0x24B6, 0x24EA),
        range(0x1F130, 0x1F14A),
        range(0x1F150, 0x1F16A),
        range(0x1F170, 0x1F18A),
    )

    def __missing__(self, point: int) -> str | None:
        character = chr(point)
        category = unicodedata.category(character)
        kept = (
            character == "-"
            or category[0] in "LM"
            or category in ("Nd", "Nl", "Pc")
            or any(point in letters for letters in self._CIRCLED_LETTERS)
        )
        self[point] = character if kept else None
        return self[point]


_SLUG_TABLE: Final = _SlugTable({0x20: "-"})
_HYPHENS: Final = re.compile("-+")
_MKDOCS_REMOVED: Final = re.compile(r"[^\w\s-]")
_MKDOCS_SEPARATORS: Final = re.compile(r"[-\s]+")
_VISIBLE: Final = re.compile(r"\w")
_NUMBERED: Final = re.compile(r"^(.*)_([0-9]{1,9})$", re.DOTALL)
_BOOKSTACK_PREFIX: Final = "bkmrk"
_BOOKSTACK_CHARACTERS: Final = 20
_PHP_SPACES: Final = " \t\n\r\v\f"
_PHP_SPACE_RUNS: Final = re.compile(f"[{_PHP_SPACES}]+")
_ASCII_LOWER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def github_slug(text: str) -> str:
    """The slug GitHub gives a heading of this text; may be empty."""
    return unicodedata.normalize("NFC", text).lower().translate(_SLUG_TABLE)


def gitlab_slug(text: str) -> str:
    """The slug GitLab gives a heading of this text; may be empty."""
    slug = _HYPHENS.sub("-", github_slug(text.strip()))
    return f"anchor-{slug}" if slug.isdecimal() else slug


def mkdocs_slug(text: str) -> str:
    """The slug Python-Markdown's ``slugify_unicode`` gives a heading of this text; may be empty."""
    kept = _MKDOCS_REMOVED.sub("", unicodedata.normalize("NFC", text)).strip().lower()
    return _MKDOCS_SEPARATORS.sub("-", kept)


def bookstack_slug(text: str) -> str:
    """The id BookStack gives a heading of this text; never empty.

    The rule of its ``PageContent::setUniqueId``, whose PHP functions know ASCII letters and spaces
    only: ``É`` stays as it is, a no-break space is no space.
    """
    trimmed = text.strip(" \t\n\r\0\v")
    hyphened = _PHP_SPACE_RUNS.sub("-", trimmed).translate(_ASCII_LOWER)
    return _php_urlencode(f"{_BOOKSTACK_PREFIX}-{hyphened[:_BOOKSTACK_CHARACTERS]}")


def _php_urlencode(text: str) -> str:
    """As ``urlencode`` of PHP, which unlike Python encodes the tilde."""
    return quote_plus(text, errors="replace").replace("~", "%7E")


_SLUGS: Final[Mapping[AnchorStyle, Callable[[str], str]]] = {
    "github": github_slug,
    "mkdocs": mkdocs_slug,
    "gitlab": gitlab_slug,
    "bookstack": bookstack_slug,
}


def anchors(headings: Iterable[Heading], style: AnchorStyle) -> list[str]:
    """One anchor per heading, all different; empty only for a heading without text and id.

    All headings of a document go in, H4 to H6 and those in lists and quotations too: renderers
    number them together.
    """
    headings = list(map(_as_bookstack_reads_it, headings) if style == "bookstack" else headings)
    slug_of = _SLUGS[style]
    used = _UsedAnchors("_" if style == "mkdocs" else "-")
    used.reserve(heading.explicit_id[:MAX_ANCHOR_CHARACTERS] for heading in headings)
    found: list[str] = []
    for heading in headings:
        if heading.explicit_id:
            found.append(used.take_reserved(heading.explicit_id[:MAX_ANCHOR_CHARACTERS]))
        elif not heading.text:
            found.append("")
        else:
            slug = slug_of(heading.slug_text)[:MAX_ANCHOR_CHARACTERS]
            if style in ("github", "gitlab") and not _VISIBLE.search(slug):
                slug = FALLBACK_SLUG
            found.append(used.take(slug))
    return found


def _as_bookstack_reads_it(heading: Heading) -> Heading:
    """The heading with an id that is not BookStack's own as the text that it is there."""
    own = heading.explicit_id
    if not own or own.startswith(_BOOKSTACK_PREFIX):
        return heading
    return heading._replace(slug_text=f"{heading.slug_text} {{#{own}}}", explicit_id="")


class _UsedAnchors:
    """The anchors given so far in one document.

    ``_free`` remembers for a taken (base, number) which number to try next, with the paths
    shortened behind every search, so that 10,000 like headings do not cost their square.
    """

    def __init__(self, separator: str) -> None:
        self._separator = separator
        self._used: set[str] = set()
        self._reserved: set[str] = set()
        self._free: dict[tuple[str, int], int] = {}

    def reserve(self, ids: Iterable[str]) -> None:
        """No slug may take these."""
        self._reserved.update(filter(None, ids))
        self._used.update(self._reserved)

    def take_reserved(self, explicit_id: str) -> str:
        """The explicit id the first time it is met, numbered after that."""
        if explicit_id in self._reserved:
            self._reserved.discard(explicit_id)
            return explicit_id
        return self.take(explicit_id)

    def take(self, slug: str) -> str:
        """The slug, or the next free number behind it."""
        if slug and slug not in self._used:
            self._used.add(slug)
            return slug
        base, number = self._base(slug)
        passed: list[int] = []
        while True:
            further = self._free.get((base, number), 0)
            anchor = f"{base}{self._separator}{number}"
            if not further and anchor not in self._used:
                break
            passed.append(number)
            number = further or number + 1
        for taken in (*passed, number):
            self._free[base, taken] = number + 1
        self._used.add(anchor)
        return anchor

    def _base(self, slug: str) -> tuple[str, int]:
        """MkDocs counts on from a number already there (``a_1``, ``a_2``), GitHub appends."""
        match = _NUMBERED.match(slug) if self._separator == "_" else None
        return (match[1], int(match[2]) + 1) if match else (slug, 1)

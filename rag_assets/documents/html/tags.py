"""What each tag of HTML is written as, where it may stand, and which of its attributes are kept."""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Mapping
from typing import Final

from rag_assets.documents.html.elements import BLOCKS, HEADINGS, KNOWN, Element, names
from rag_assets.documents.html.tokens import NOT_MARKUP, Token
from rag_assets.documents.invisible import strip_invisible
from rag_assets.documents.urls import without_tracking

MAX_COLUMN_SPAN: Final = 20
MAX_EXPANSION_CHARACTERS: Final = 200

_MEANINGFUL: Final = HEADINGS | names(
    "blockquote caption dd dl dt li ol p pre summary table tbody td tfoot th thead tr ul"
)
AS_WRITTEN: Final[Mapping[str, str]] = {
    **{name: name for name in BLOCKS},
    **{name: name for name in ("a", "code", "q")},
    **dict.fromkeys(BLOCKS - _MEANINGFUL, "div"),
    "menu": "ul",
    "dir": "ul",
    "ul": "ul",
    "figcaption": "p",
    "b": "strong",
    "strong": "strong",
    "i": "em",
    "em": "em",
    "s": "del",
    "strike": "del",
    "del": "del",
    "kbd": "code",
    "samp": "code",
    "tt": "code",
}
MAY_HOLD: Final[Mapping[str, frozenset[str]]] = {
    "table": frozenset(("thead", "tbody", "tfoot", "tr", "caption")),
    "thead": frozenset(("tr",)),
    "tbody": frozenset(("tr",)),
    "tfoot": frozenset(("tr",)),
    "tr": frozenset(("td", "th")),
    "ul": frozenset(("li", "ul", "ol")),
    "ol": frozenset(("li", "ul", "ol")),
    "dl": frozenset(("dt", "dd", "div")),
}
"""What each of these may hold; text elsewhere in them would be lost and gets a cell or item."""
MISSING: Final[Mapping[str, tuple[str, str]]] = {
    "table": ("<tr><td>", "</td></tr>"),
    "thead": ("<tr><td>", "</td></tr>"),
    "tbody": ("<tr><td>", "</td></tr>"),
    "tfoot": ("<tr><td>", "</td></tr>"),
    "tr": ("<td>", "</td>"),
    "ul": ("<li>", "</li>"),
    "ol": ("<li>", "</li>"),
    "dl": ("<dd>", "</dd>"),
}
NEEDS: Final[Mapping[str, frozenset[str]]] = {
    "caption": frozenset(("table",)),
    "thead": frozenset(("table",)),
    "tbody": frozenset(("table",)),
    "tfoot": frozenset(("table",)),
    "tr": frozenset(("table", "thead", "tbody", "tfoot")),
    "td": frozenset(("tr",)),
    "th": frozenset(("tr",)),
    "dt": frozenset(("dl", "div")),
    "dd": frozenset(("dl", "div")),
}
"""What must be around these; elsewhere they are written as ``div``."""
INDENTING: Final = frozenset(("ul", "ol", "blockquote", "dl"))
BOXES: Final = frozenset(("button", "select", "textarea", "output", "meter", "rt"))
"""Inline elements that stand apart from the text around them."""

_LANGUAGE: Final = re.compile(r"(?:^|\s)(?:language|lang|highlight|brush:)[-_ ]?([\w+#.-]{1,30})")
_PIXELS: Final = re.compile(r"\s*0*[01](?:\.0*)?(?:px)?\s*$")


def is_text(token: Token, source: str, end_tags: Collection[str]) -> bool:
    """Whether what reads as a tag in Markdown is a word of its author.

    A name that is no element's, without attributes that have a value (``List<String>``, ``<T>``,
    ``<your name>``); or the name of one that is never closed and is written with a capital or
    would swallow the rest of the text (GitHub, too, shows these: "the <title> element").
    """
    if any(value or key in ("hidden", "markdown") for key, value in token.attributes.items()):
        return False
    if token.name not in KNOWN:
        return True
    if token.kind == "end" or token.attributes or token.closes_itself:
        return False
    if token.name in NOT_MARKUP:
        return token.name not in end_tags
    return not source.startswith(token.name, token.start + 1) and token.name not in end_tags


def expansion(attributes: Mapping[str, str], following: str) -> str:
    """What an abbreviation stands for, to be put behind it; nothing within a word (``ORMs``)."""
    title = " ".join(strip_invisible(attributes.get("title", ""))[0].split())
    return f" ({title[:MAX_EXPANSION_CHARACTERS]})" if title and not following.isalnum() else ""


def written_attributes(element: Element, written: str) -> str:
    attributes = element.attributes
    if written == "a":
        return f' href="{written_address(attributes["href"].strip())}"'
    if written == "ol" and attributes.get("start", "").isdecimal():
        return f' start="{attributes["start"][:9]}"'
    if written in ("td", "th") and attributes.get("colspan", "").isdecimal():
        return f' colspan="{min(int(attributes["colspan"][:6]), MAX_COLUMN_SPAN)}"'
    if written in ("pre", "code"):
        language = _LANGUAGE.search(attributes.get("class", ""))
        return f' class="language-{language[1]}"' if language else ""
    return ""


def written_address(url: str) -> str:
    """An address as an attribute value: without trackers, and with no character that ends it."""
    url = strip_invisible(without_tracking(url))[0]
    for character, encoded in ((" ", "%20"), ("\n", ""), ("\r", ""), ("\t", ""), ("<", "%3C")):
        url = url.replace(character, encoded)
    return html.escape(url.replace(">", "%3E").replace("\\", "%5C"))


def is_pixel(attributes: Mapping[str, str]) -> bool:
    """Whether an image is too small to be seen: a tracker's."""
    return any(_PIXELS.match(attributes.get(name, "")) for name in ("width", "height"))

"""Tags in, the elements that are open out, each with what it hides.

Elements close as in the HTML standard where it matters for what is seen: a paragraph ends where a
block begins, a list item where the next one begins, a table cell where the next one begins, and an
end tag closes what was left open inside. Every step takes constant time, however deep the nesting.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from rag_assets.documents.html.css import StyleRules
from rag_assets.documents.html.visibility import Look, hides_all, look_inside


def names(text: str) -> frozenset[str]:
    """The words of ``text``."""
    return frozenset(text.split())


VOID: Final = names(
    "area base basefont bgsound br col command embed frame hr img input keygen link meta param"
    " source track wbr"
)
FORMATTING: Final = names("a b big code em font i nobr s small strike strong tt u")
"""Left open, these go on in the next paragraph."""
HEADINGS: Final = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
BLOCKS: Final = HEADINGS | names(
    "address article aside blockquote body caption center dd details dialog dir div dl dt fieldset"
    " figcaption figure footer form frameset header hgroup hr html iframe legend li main menu nav"
    " noframes noscript ol optgroup option p pre search section summary table tbody td tfoot th"
    " thead tr ul"
)
INLINE: Final = FORMATTING | names(
    "abbr acronym applet area audio base basefont bdi bdo bgsound br button canvas cite col"
    " colgroup data datalist del dfn embed frame head img input ins kbd label link map mark marquee"
    " math meta meter noembed object output param picture plaintext progress q rb rp rt rtc ruby"
    " samp script select slot source span style sub sup svg template textarea time title track var"
    " video wbr xmp"
)
KNOWN: Final = BLOCKS | INLINE

DROPPED: Final[Mapping[str, str]] = {
    "annotation": "hidden",
    "annotation-xml": "hidden",
    "applet": "embed",
    "audio": "embed",
    "canvas": "embed",
    "datalist": "hidden",
    "frameset": "embed",
    "iframe": "embed",
    "noembed": "hidden",
    "noframes": "hidden",
    "noscript": "hidden",
    "object": "embed",
    "rp": "hidden",
    "script": "script",
    "style": "style",
    "svg": "svg",
    "template": "hidden",
    "title": "hidden",
    "video": "embed",
}
"""Elements whose content no reader sees as text, and the kind they are counted as."""

_ENDS_PARAGRAPH: Final = BLOCKS - names(
    "body caption html legend noscript optgroup option tbody td tfoot th thead tr iframe"
)
_ITEM_ENDS: Final[Mapping[str, tuple[frozenset[str], frozenset[str]]]] = {
    name: (names(closes), names(within))
    for name, closes, within in (
        ("li", "li", "ul ol menu dir"),
        ("dt", "dt dd", "dl"),
        ("dd", "dt dd", "dl"),
        ("option", "option", "select datalist"),
        ("optgroup", "option optgroup", "select"),
        ("td", "td th", "table"),
        ("th", "td th", "table"),
        ("tr", "tr td th", "table"),
        ("tbody", "tbody thead tfoot tr td th caption colgroup", "table"),
        ("thead", "tbody thead tfoot tr td th caption colgroup", "table"),
        ("tfoot", "tbody thead tfoot tr td th caption colgroup", "table"),
        ("caption", "caption", "table"),
        ("rt", "rt rp", "ruby"),
        ("rp", "rt rp", "ruby"),
        ("a", "a", "table"),
    )
}
"""Start tag -> the open elements it ends, unless one of the second set lies between."""
_SCOPES: Final = names("td th caption table template object applet html svg math")
"""An end tag does not reach an element outside of these, but for those of tables themselves."""
_TABLE_PARTS: Final = names("table tbody thead tfoot tr td th caption")
_FOREIGN: Final = frozenset(("svg", "math"))
_BREAKS_OUT: Final = (BLOCKS | FORMATTING | frozenset(("br", "img", "span", "sub", "sup"))) - {
    "a",
    "font",
    "option",
}
"""Start tags that end ``svg`` and ``math`` around them."""


MAX_OPEN: Final = 2_000
"""Elements open at a place; browsers stop at 512. What is deeper is counted, not kept."""


class Element:
    """An open element."""

    __slots__ = ("attributes", "classes", "hidden_as", "id", "look", "name", "written")

    def __init__(self, name: str, attributes: Mapping[str, str]) -> None:
        self.name = name
        self.attributes = attributes
        self.id = attributes.get("id", "")
        self.classes = frozenset(attributes["class"].split()) if "class" in attributes else _NONE
        self.hidden_as = ""
        """The kind it is counted as when it hides all inside it; empty when it does not."""
        self.look: Look
        self.written = ""
        """The tag that was written for it and must be closed."""


_NONE: Final[frozenset[str]] = frozenset()


class OpenElements:
    """The elements open at a place of a document, and what of them can be seen there."""

    def __init__(
        self,
        rules: StyleRules,
        page: Look,
        dropped: Mapping[str, str] = DROPPED,
        *,
        tabs: Collection[str] = (),
    ) -> None:
        """``tabs``: ids that something on the page opens (``aria-controls``)."""
        self._tabs = tabs
        self._rules = rules
        self._page = page
        self._dropped = dropped
        self.stack: list[Element] = []
        self._places: dict[str, list[int]] = {}
        """Name -> indices into ``stack``, ascending."""
        self._scopes: list[int] = []
        self._hiding: list[int] = []
        self._foreign = 0
        self._beyond: dict[str, int] = {}
        """Elements by name that are open beyond ``MAX_OPEN``."""

    @property
    def hidden_as(self) -> str:
        """The kind as which this place is hidden; empty when a reader sees it."""
        if self._hiding:
            return self.stack[self._hiding[0]].hidden_as
        return "" if self.look.readable else "hidden"

    @property
    def hidden_whole(self) -> bool:
        """Whether nothing inside can be seen, whatever it says."""
        return bool(self._hiding)

    @property
    def look(self) -> Look:
        """What holds at this place."""
        return self.stack[-1].look if self.stack else self._page

    @property
    def foreign(self) -> bool:
        """Whether this place is inside ``svg`` or ``math``."""
        return self._foreign > 0 and not self.is_open("foreignobject")

    def is_open(self, name: str) -> bool:
        """Whether an element of this name is open."""
        return bool(self._places.get(name))

    def start(
        self, name: str, attributes: Mapping[str, str], *, closes_itself: bool = False
    ) -> tuple[Element, list[Element]]:
        """Open an element. Returns it and what it closed; void elements do not stay open."""
        closed = self._make_room(name)
        element = self.look_at(name, attributes)
        if name in VOID or (closes_itself and (self.foreign or name in _FOREIGN)):
            return element, closed
        self._push(element)
        return element, closed

    def look_at(self, name: str, attributes: Mapping[str, str]) -> Element:
        """The element as it would be at this place, without opening it."""
        element = Element(name, attributes)
        element.hidden_as = self._dropped.get(name, "")
        element.look = self.look
        if not attributes and self._rules.empty and name != "dialog":
            return element
        style = self._rules.declarations(element, self.stack, attributes.get("style", ""))
        if element.hidden_as:
            return element
        if attributes.get("role") == "tabpanel" and element.id in self._tabs:
            pass  # a reader gets to it by its tab
        elif (name == "dialog" and "open" not in attributes) or (
            (attributes or style) and hides_all(attributes, style)
        ):
            element.hidden_as = "hidden"
        element.look = look_inside(element.look, attributes, style)
        return element

    def end(self, name: str) -> list[Element]:
        """Close the nearest element of this name with all inside it; returns them, inmost first."""
        if self._beyond and self._beyond.get(name):
            self._beyond[name] -= 1
            return []
        places = self._places.get(name)
        if not places and name in HEADINGS:
            places = next((p for h in HEADINGS if (p := self._places.get(h))), None)
        if not places:
            return []
        if name not in _TABLE_PARTS and self._scopes and places[-1] < self._scopes[-1]:
            return []
        return self._pop_to(places[-1])

    def _make_room(self, name: str) -> list[Element]:
        closed: list[Element] = []
        if self._foreign and name in _BREAKS_OUT and self.foreign:
            for foreign in _FOREIGN:
                places = self._places.get(foreign)
                if places:
                    closed += self._pop_to(places[0])
        if name in _ITEM_ENDS:
            ended, within = _ITEM_ENDS[name]
            limit = max((p[-1] for n in within if (p := self._places.get(n))), default=-1)
            first = [p[-1] for n in ended if (p := self._places.get(n)) and p[-1] > limit]
            if first:
                closed += self._pop_to(min(first))
        if name in _ENDS_PARAGRAPH:
            places = self._places.get("p")
            if places and not (self._scopes and places[-1] < self._scopes[-1]):
                closed += self._pop_to(places[-1])
        return closed

    def _push(self, element: Element) -> None:
        index = len(self.stack)
        if index >= MAX_OPEN and not element.hidden_as:
            self._beyond[element.name] = self._beyond.get(element.name, 0) + 1
            return
        self.stack.append(element)
        self._foreign += element.name in _FOREIGN
        self._places.setdefault(element.name, []).append(index)
        if element.name in _SCOPES:
            self._scopes.append(index)
        if element.hidden_as:
            self._hiding.append(index)

    def _pop_to(self, index: int) -> list[Element]:
        """Close everything from ``index`` on; a hidden formatting element goes on behind it."""
        target = self.stack[index]
        closed: list[Element] = []
        going_on: list[Element] = []
        while len(self.stack) > index:
            element = self.stack.pop()
            place = len(self.stack)
            self._places[element.name].pop()
            self._foreign -= element.name in _FOREIGN
            if self._scopes and self._scopes[-1] == place:
                self._scopes.pop()
            if self._hiding and self._hiding[-1] == place:
                self._hiding.pop()
            closed.append(element)
            if (
                element is not target
                and element.name in FORMATTING
                and (element.hidden_as or not element.look.readable)
            ):
                going_on.append(element)
        for element in going_on[:_MOST_GOING_ON]:
            again = Element(element.name, element.attributes)
            again.hidden_as, again.look = element.hidden_as, element.look
            self._push(again)
        return closed


_MOST_GOING_ON: Final = 3
"""The standard's own limit for like elements (the "Noah's Ark clause")."""

"""Style sheets and style attributes in, the declarations that decide what a reader sees out.

Only what can hide text is read: simple and compound selectors (``p``, ``.a``, ``#b``, ``p.a.b``)
and chains of them with spaces or ``>``, in the order of the cascade (important, specificity,
position). Selectors with pseudo-classes, attributes or sibling combinators are left out, as are
rules for printing. Work is bounded on hostile sheets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

RELEVANT: Final = frozenset(
    {
        "background",
        "background-clip",
        "background-color",
        "bottom",
        "clip",
        "clip-path",
        "color",
        "content-visibility",
        "display",
        "filter",
        "font",
        "font-size",
        "height",
        "left",
        "margin-left",
        "margin-top",
        "max-height",
        "max-width",
        "mso-hide",
        "opacity",
        "overflow",
        "overflow-x",
        "overflow-y",
        "position",
        "right",
        "scale",
        "text-indent",
        "top",
        "transform",
        "visibility",
        "width",
        "zoom",
        "-webkit-background-clip",
        "-webkit-text-fill-color",
    }
)
MAX_SHEET_CHARACTERS: Final = 500_000
MAX_RULES: Final = 2_000
MAX_STYLE_CHARACTERS: Final = 10_000
"""Of one style attribute; the rest is not read."""
MAX_VALUE_CHARACTERS: Final = 200
MAX_STEPS: Final = 1_000_000
"""Compounds compared with elements, in all of a document; then no rule applies any more."""
_ANCESTOR_REACH: Final = 64

_BRACE: Final = re.compile(r"[{}]")
_COMMENT: Final = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_SKIPPED_AT_RULES: Final = ("@media print", "@keyframes", "@-webkit-keyframes", "@font-face")
_COMPOUND: Final = re.compile(r"(\*|[a-zA-Z][\w-]*)?((?:[.#][\w-]+)*)")
_PART: Final = re.compile(r"[.#][\w-]+")

Declarations = Mapping[str, str]
NOTHING: Final[Declarations] = MappingProxyType({})


class Styled(Protocol):
    """What selectors look at."""

    @property
    def name(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def classes(self) -> frozenset[str]: ...


class _Compound(NamedTuple):
    name: str
    ids: frozenset[str]
    classes: frozenset[str]

    @property
    def key(self) -> str:
        """What an element must have, written so that it tells apart names, ids and classes."""
        for character, parts in (("#", self.ids), (".", self.classes)):
            if parts:
                return character + min(parts)
        return self.name

    def matches(self, element: Styled) -> bool:
        return (
            (not self.name or self.name == element.name)
            and (not self.ids or self.ids == {element.id})
            and self.classes <= element.classes
        )


class _Rule(NamedTuple):
    chain: tuple[_Compound, ...]
    """The element's own compound first, then its ancestors'."""
    order: tuple[int, int, int, int]
    """Specificity (ids, classes, names), then position."""
    declarations: Declarations
    important: Declarations


class StyleRules:
    """The rules of a document's style sheets that can hide or show text."""

    def __init__(self) -> None:
        self._rules_by_key: dict[str, list[_Rule]] = {}
        """By the most telling part of the last compound: ``#id``, ``.class``, name or nothing."""
        self._count = 0
        self._memory: dict[tuple[str, str, frozenset[str]], tuple[_Rule, ...]] = {}
        self._steps = 0

    @property
    def empty(self) -> bool:
        """Whether there is no rule."""
        return not self._count

    def add(self, sheet: str) -> None:
        """Read one style sheet."""
        text = _COMMENT.sub(" ", sheet[:MAX_SHEET_CHARACTERS])
        for selectors, body in _blocks(text):
            if self._count >= MAX_RULES:
                break
            normal, important = _read(body)
            if not normal and not important:
                continue
            for selector in selectors.split(",", 50)[:50]:
                chain = _chain(selector)
                if chain:
                    rule = _Rule(chain, (*_specificity(chain), self._count), normal, important)
                    self._rules_by_key.setdefault(chain[0].key, []).append(rule)
                    self._count += 1
        self._memory.clear()

    def declarations(
        self, element: Styled, ancestors: Sequence[Styled], style: str
    ) -> Declarations:
        """What applies to ``element``, its style attribute included; ancestors outermost first."""
        own, own_important = parse_declarations(style) if style else (NOTHING, NOTHING)
        if not self._count:
            return {**own, **own_important} if own or own_important else NOTHING
        normal, important = self._from_sheets(element, ancestors)
        if not (normal or important or own or own_important):
            return NOTHING
        return {**normal, **own, **important, **own_important}

    def _from_sheets(
        self, element: Styled, ancestors: Sequence[Styled]
    ) -> tuple[Declarations, Declarations]:
        normal: dict[str, str] = {}
        important: dict[str, str] = {}
        for rule in self._candidates(element):
            if len(rule.chain) == 1 or self._within(rule, ancestors):
                normal.update(rule.declarations)
                important.update(rule.important)
        return normal, important

    def _candidates(self, element: Styled) -> Sequence[_Rule]:
        """Rules whose last compound matches, weakest first; remembered by name, id and classes."""
        key = (element.name, element.id, element.classes)
        found = self._memory.get(key)
        if found is None:
            keys = ("", element.name, f"#{element.id}", *(f".{name}" for name in element.classes))
            possible = [rule for key in keys for rule in self._rules_by_key.get(key, ())]
            self._steps += len(possible)
            if self._steps > MAX_STEPS:
                return ()
            matching = (rule for rule in possible if rule.chain[0].matches(element))
            found = tuple(sorted(matching, key=lambda rule: rule.order))
            self._memory[key] = found
        return found

    def _within(self, rule: _Rule, ancestors: Sequence[Styled]) -> bool:
        wanted = 1
        for ancestor in reversed(ancestors[-_ANCESTOR_REACH:]):
            self._steps += 1
            if self._steps > MAX_STEPS:
                return False
            if rule.chain[wanted].matches(ancestor):
                wanted += 1
                if wanted == len(rule.chain):
                    return True
        return False


def parse_declarations(style: str) -> tuple[Declarations, Declarations]:
    """The relevant declarations of a style attribute: normal ones, and important ones."""
    return _read(_COMMENT.sub(" ", style[:MAX_STYLE_CHARACTERS]))


def _read(body: str) -> tuple[Declarations, Declarations]:
    normal: dict[str, str] = {}
    important: dict[str, str] = {}
    for declaration in body.split(";"):
        name, _, given = declaration.partition(":")
        name = name.strip().lower()
        if name not in RELEVANT:
            continue
        value = " ".join(given[:MAX_VALUE_CHARACTERS].lower().split())
        if value.replace(" ", "").endswith("!important"):
            important[name] = value.rpartition("!")[0].strip()
        else:
            normal[name] = value
    return normal, important


def _blocks(sheet: str) -> Iterator[tuple[str, str]]:
    """Selector lists with their declarations; what ``@media`` and the like hold counts too."""
    position = 0
    while True:
        opening = sheet.find("{", position)
        if opening < 0:
            return
        prelude = sheet[position:opening].rpartition("}")[2].rpartition(";")[2].strip()
        if prelude.lower().startswith(_SKIPPED_AT_RULES):
            position = _end_of_block(sheet, opening)
            continue
        if prelude.startswith("@"):
            position = opening + 1
            continue
        closing = sheet.find("}", opening)
        end = closing if closing >= 0 else len(sheet)
        yield prelude, sheet[opening + 1 : end]
        position = end + 1


def _end_of_block(sheet: str, opening: int) -> int:
    depth = 0
    for match in _BRACE.finditer(sheet, opening):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.end()
    return len(sheet)


def _chain(selector: str) -> tuple[_Compound, ...]:
    """The compounds of a selector, last first; empty for a selector that is not read."""
    words = selector.replace(">", " ").split()
    if not 0 < len(words) <= 8:
        return ()
    compounds = [_compound(word) for word in reversed(words)]
    return tuple(c for c in compounds if c is not None) if None not in compounds else ()


def _compound(word: str) -> _Compound | None:
    match = _COMPOUND.fullmatch(word)
    if match is None:
        return None
    name = "" if match[1] in (None, "*") else match[1].lower()
    parts = _PART.findall(match[2])
    return _Compound(
        name,
        frozenset(part[1:] for part in parts if part[0] == "#"),
        frozenset(part[1:] for part in parts if part[0] == "."),
    )


def _specificity(chain: tuple[_Compound, ...]) -> tuple[int, int, int]:
    return (
        sum(len(compound.ids) for compound in chain),
        sum(len(compound.classes) for compound in chain),
        sum(bool(compound.name) for compound in chain),
    )

"""Documents that hide an order to a model, in every place and disguise people were seen to use."""

from __future__ import annotations

import base64
import random
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from rag_assets_tests.screening.injection_phrases import (
    ENGLISH,
    FRENCH,
    MORE_ENGLISH,
    MORE_FRENCH,
    UNSEEN_ENGLISH,
    UNSEEN_FRENCH,
)

_BEFORE = {
    "en": "# Holiday policy\n\nEvery employee has twenty-five days of leave a year.\n\n",
    "fr": "# Congés annuels\n\nChaque salarié a droit à vingt-cinq jours de congés.\n\n",
}
_AFTER = {
    "en": "\n\n## Carry-over\n\nUp to five days may be taken in the next year.\n",
    "fr": "\n\n## Report\n\nCinq jours au plus peuvent être pris l'année suivante.\n",
}


Group = Literal["tuned", "held out", "unseen"]
"""See ``injection_phrases``."""


@dataclass(frozen=True, slots=True)
class Injected:
    """One document, where its order stands and how it is written."""

    text: str
    language: str
    carrier: str
    group: Group
    phrase: str


def _flat(phrase: str) -> str:
    return " ".join(phrase.split()).replace('"', "'")


PLACES: dict[str, Callable[[str], str]] = {
    "plain": lambda p: p,
    "html comment": lambda p: f"<!-- {p} -->",
    "alt text": lambda p: f"![{_flat(p)}](images/leave.png)",
    "link title": lambda p: f'See [the form](https://intranet.example/form "{_flat(p)}").',
    "table cell": lambda p: f"| Day | Note |\n|---|---|\n| Monday | {_flat(p).replace('|', ' ')} |",
    "fenced code": lambda p: f"```text\n{p}\n```",
    "block quote": lambda p: "\n".join("> " + line for line in p.split("\n")),
    "list item": lambda p: f"- first\n- {_flat(p)}\n- last",
    "attribute": lambda p: f'<div title="{_flat(p)}">Calendar</div>',
    "hidden element": lambda p: f'<span style="display:none">{p}</span>',
    "reference": lambda p: f'[x]: https://intranet.example/x "{_flat(p)}"',
    "json": lambda p: '```json\n{"note": "' + _flat(p) + '"}\n```',
}


def _insert(phrase: str, inserted: str) -> str:
    """``inserted`` between the letters of every word."""
    return " ".join(inserted.join(word) for word in phrase.split(" "))


_LOOK_ALIKES = str.maketrans("aeopcxi", "аеорсхі")
_FULL_WIDTH = {c: c + 0xFEE0 for c in range(0x21, 0x7F)}
_LEET = str.maketrans("oiea", "01e4")


def _bold_inside(phrase: str) -> str:
    return " ".join(
        w[:2] + "**" + w[2:4] + "**" + w[4:] if len(w) > 4 else w for w in phrase.split(" ")
    )


def _tags_inside(phrase: str) -> str:
    return " ".join(w[:2] + "<b>" + w[2:] + "</b>" if len(w) > 4 else w for w in phrase.split(" "))


DISGUISES: dict[str, Callable[[str], str]] = {
    "zero-width letters": lambda p: _insert(p, "\u200b"),
    "zero-width spaces": lambda p: p.replace(" ", "\u200b"),
    "soft hyphens": lambda p: _insert(p, "\u00ad"),
    "look-alikes": lambda p: p.translate(_LOOK_ALIKES),
    "full width": lambda p: p.translate(_FULL_WIDTH),
    "entities": lambda p: "".join(f"&#{ord(c)};" if c.isalpha() else c for c in p),
    "hexadecimal entities": lambda p: "".join(f"&#x{ord(c):x};" for c in p),
    "base64": lambda p: base64.b64encode(p.encode()).decode(),
    "wrapped base64": lambda p: base64.encodebytes((p + " " + p).encode()).decode(),
    "percent escapes": lambda p: quote(p),
    "spaced out": lambda p: "  ".join(" ".join(word) for word in p.split(" ")),
    "dotted": lambda p: " ".join(".".join(word) for word in p.split(" ")),
    "one word a line": lambda p: "\n".join(p.split(" ")),
    "emphasis": lambda p: "*" + "* *".join(p.split(" ")) + "*",
    "bold inside words": _bold_inside,
    "tags inside words": _tags_inside,
    "upper case": str.upper,
    "without accents": lambda p: _without_accents(p),
    "digits for letters": lambda p: p.translate(_LEET),
    "non-breaking spaces": lambda p: p.replace(" ", "\u00a0"),
    "comment between words": lambda p: p.replace(" ", " <!-- --> ", 3),
    "backwards": lambda p: "\u202e" + p[::-1] + "\u202c",
    "decomposed": lambda p: _decomposed(p),
}
_ONLY_SIMPLE = {"spaced out", "dotted", "digits for letters"}
"""Disguises that only orders to forget the rules are looked for in."""


def _without_accents(phrase: str) -> str:
    return unicodedata.normalize("NFD", phrase).encode("ascii", "ignore").decode()


def _decomposed(phrase: str) -> str:
    return unicodedata.normalize("NFD", phrase)


def _front_matter(phrase: str, language: str) -> str:
    return (
        f'---\ntitle: Leave\nsummary: "{_flat(phrase)}"\n---\n'
        + _BEFORE[language]
        + _AFTER[language]
    )


def _document(phrase: str, language: str, carrier: str, where: int) -> str:
    if carrier == "front matter":
        return _front_matter(phrase, language)
    carried = PLACES[carrier](phrase) if carrier in PLACES else DISGUISES[carrier](phrase)
    return _BEFORE[language] + carried + (_AFTER[language] if where % 2 else "")


def injected_documents() -> Iterator[Injected]:
    """Each phrase as plain text, in two other places and in one disguise."""
    choose = random.Random(20)
    simple = [disguise for disguise in DISGUISES if disguise not in _ONLY_SIMPLE]
    for language, group, place, phrase in _phrases():
        carriers = ["plain", *choose.sample([*list(PLACES)[1:], "front matter"], 2)]
        if "\n" not in phrase and not phrase.startswith(("!", "<", "{", "[")):
            carriers.append(choose.choice(simple))
        for carrier in carriers:
            text = _document(phrase, language, carrier, place)
            yield Injected(text, language, carrier, group, phrase)
    for language, phrases in (("en", ENGLISH[:6]), ("fr", FRENCH[:6])):
        for place, phrase in enumerate(phrases):
            for disguise in DISGUISES:
                text = _document(phrase, language, disguise, place)
                yield Injected(text, language, disguise, _half(place), phrase)


def _phrases() -> Iterator[tuple[str, Group, int, str]]:
    """Language, group, place in its list, phrase."""
    for language, first, more, unseen in (
        ("en", ENGLISH, MORE_ENGLISH, UNSEEN_ENGLISH),
        ("fr", FRENCH, MORE_FRENCH, UNSEEN_FRENCH),
    ):
        for place, phrase in enumerate(first):
            yield language, _half(place), place, phrase
        for place, phrase in enumerate(more):
            yield language, "tuned", place, phrase
        for place, phrase in enumerate(unseen):
            yield language, "unseen", place, phrase


def _half(place: int) -> Group:
    return "held out" if place % 2 else "tuned"

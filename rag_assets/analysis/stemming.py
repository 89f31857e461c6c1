"""A folded word in, its stem out: Snowball's algorithms, which expect the accents we took off."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Final

from rag_assets.analysis.folding import fold

SNOWBALL: Final = {
    "ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german",
    "el": "greek", "en": "english", "eo": "esperanto", "es": "spanish", "et": "estonian",
    "eu": "basque", "fa": "persian", "fi": "finnish", "fr": "french", "ga": "irish",
    "hi": "hindi", "hu": "hungarian", "hy": "armenian", "id": "indonesian", "it": "italian",
    "lt": "lithuanian", "nb": "norwegian", "ne": "nepali", "nl": "dutch", "nn": "norwegian",
    "no": "norwegian", "pl": "polish", "pt": "portuguese", "ro": "romanian", "ru": "russian",
    "sr": "serbian", "sv": "swedish", "ta": "tamil", "tr": "turkish", "yi": "yiddish",
}  # fmt: skip
"""Primary language subtag -> Snowball algorithm."""

_ACCENTED_ENDINGS: Final[dict[str, tuple[tuple[re.Pattern[str], str], ...]]] = {
    "fr": (
        (re.compile(r"(?<=..i)te(s?)$"), r"té\1"),
        (re.compile(r"(?<=..)ee(s?)$"), r"ée\1"),
        (re.compile(r"(?<=..i)ere(s?)$"), r"ère\1"),
        (re.compile(r"(?<=..)erent$"), "èrent"),
    ),
    "es": ((re.compile(r"(?<=.[cs])ion$"), "ión"),),
    "pt": ((re.compile(r"(?<=..)cao$"), "ção"), (re.compile(r"(?<=..)coes$"), "ções")),
}
"""Endings that an algorithm knows only with their accent, given back before it runs.

So the stem depends on the folded word alone: ``securite`` and ``sécurité`` have one stem, and it is
the one that the algorithm gives the accented word.
"""

_local = threading.local()


def stem(word: str, language: str) -> str:
    """The stem of a folded word, folded; the word itself in a language without an algorithm.

    Stemmer objects must not be shared between threads, so each thread makes its own.
    """
    stem_word = _stemmer(language)
    if stem_word is None:
        return word
    spelled = word
    for ending, accented in _ACCENTED_ENDINGS.get(language, ()):
        spelled, changed = ending.subn(accented, spelled, count=1)
        if changed:
            break
    return fold(stem_word(spelled)) or word


def _stemmer(language: str) -> Callable[[str], str] | None:
    algorithm = SNOWBALL.get(language)
    if algorithm is None:
        return None
    stemmers: dict[str, Callable[[str], str]] = _local.__dict__
    if algorithm not in stemmers:
        import Stemmer

        stemmers[algorithm] = Stemmer.Stemmer(algorithm, 0).stemWord
    return stemmers[algorithm]

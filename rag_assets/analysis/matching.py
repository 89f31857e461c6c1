"""A passage and a question in, the spans of the passage that the question's terms match out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from rag_assets.analysis.analyser import RUN, query_terms, run_terms
from rag_assets.analysis.folding import dropped_class, fold, mark_class
from rag_assets.analysis.words import SPACES_IN_NUMBERS, UNSPACED

_JOINING: Final = re.compile(r"_+|[-./@&,' \u2019\u00a0\u2009\u202f]")
"""What may stand between two matched words of one run that are shown as one."""
_AFFIXES: Final = re.compile(rf"\+\+|#|[{SPACES_IN_NUMBERS}]?%")


def matching_spans(text: str, query: str, language: str) -> list[tuple[int, int]]:
    """Half-open character ranges of ``text`` whose terms are among those of ``query``.

    Sorted, apart from one another, none empty. Both texts are analysed in ``language``. Words are
    marked whole; in scripts without spaces, the matched pairs of characters.
    """
    wanted = frozenset(query_terms(query, language))
    spans: list[tuple[int, int]] = []
    if not wanted:
        return spans
    for run in RUN.finditer(text):
        found = wanted.intersection(run_terms(run[0], language))
        if found:
            spans += _run_spans(run[0], run.start(), found, language)
    return spans


def _run_spans(
    run: str, offset: int, found: frozenset[str], language: str
) -> Iterator[tuple[int, int]]:
    """The matched words of a run, joined over connectors; the run itself when no word tells."""
    merged: list[tuple[int, int]] = []
    for start, end in _word_spans(run, found, language):
        affix = _AFFIXES.match(run, end)
        if affix and not found.isdisjoint(run_terms(run[start : affix.end()], language)):
            end = affix.end()
        if merged and (
            start <= merged[-1][1] or _JOINING.fullmatch(run, merged[-1][1], start) is not None
        ):
            merged[-1] = merged[-1][0], end
        else:
            merged.append((start, end))
    for start, end in merged or [(0, len(run))]:
        yield offset + start, offset + end


def _word_spans(run: str, found: frozenset[str], language: str) -> Iterator[tuple[int, int]]:
    for word in _words().finditer(run):
        if word["unspaced"]:
            for at in range(word.start(), max(word.end() - 1, word.start() + 1)):
                pair = run[at : min(at + 2, word.end())]
                if fold(pair) in found:
                    yield at, at + len(pair)
        elif not found.isdisjoint(run_terms(word[0], language)):
            yield word.span()


@cache
def _words() -> re.Pattern[str]:
    """Words of the text as it stands: accents and invisible characters belong to them."""
    inside = mark_class() + dropped_class() + "\u0306"
    return re.compile(
        f"(?P<unspaced>[{UNSPACED}][{UNSPACED}{inside}]*)"
        f"|[0-9]+(?:[.,{SPACES_IN_NUMBERS}][0-9]+)+(?![^\\W_]|[{inside}])"
        f"|(?:[^\\W_{UNSPACED}]|[{inside}])+"
    )

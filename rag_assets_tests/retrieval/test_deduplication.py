"""Near copies of a better-ranked passage go; passages that say something else stay."""

from __future__ import annotations

import random
import subprocess
import sys
import time
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_assets.errors import ConfigurationError
from rag_assets.models import Hit
from rag_assets.retrieval.deduplication import (
    NEAR_DUPLICATE,
    renumbered,
    without_near_duplicates,
)
from rag_assets_tests.retrieval.hits import hit, ranked

LEAVE = (
    "## Report\n\nVous pouvez reporter jusqu'à dix jours de congés payés d'une année sur l'autre, "
    "à condition d'en faire la demande avant le 31 décembre. La demande se fait dans l'outil de "
    "gestion du temps, et votre responsable a deux semaines pour répondre. Sans réponse, "
    "le report est accepté. Au-delà de dix jours, l'accord de la direction est nécessaire."
)
LICENCE = (
    "Permission is hereby granted, free of charge, to any person obtaining a copy of this software "
    "and associated documentation files, to deal in the software without restriction, including "
    "without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, "
    "and/or sell copies of the software, and to permit persons to whom the software is furnished "
    "to do so, subject to the following conditions."
)


def contents(hits: list[Hit]) -> list[str]:
    """The texts, in order."""
    return [h.content for h in hits]


def test_the_same_page_in_two_places_is_given_once() -> None:
    """A copy with another case, typography and one changed word goes; order and ranks stay."""
    copy = LEAVE.replace("dix jours de", "douze jours de").replace("'", "’").replace("##", "###")
    other = "Le télétravail est possible deux jours par semaine."
    hits = ranked(LEAVE, other, copy, LEAVE.upper())
    assert without_near_duplicates(hits) == hits[:2]
    assert [h.rank for h in without_near_duplicates([hits[2], hits[0], hits[1]])] == [3, 2]


def test_copied_licences_are_given_once() -> None:
    """Boilerplate with another project's name above it is the same passage."""
    hits = ranked(*(f"Copyright {name}\n\n{LICENCE}" for name in ("Alpha", "Bêta", "Gamma")))
    assert without_near_duplicates(hits) == hits[:1]


def test_passages_that_share_a_heading_and_a_notice_stay() -> None:
    """What they say below is not the same, though half of the words are."""
    head = "## Accès\n\nCette page est tenue à jour par le service informatique. "
    hits = ranked(
        head + "Le VPN demande un jeton matériel, à retirer à l'accueil le matin.",
        head + "Le wiki s'ouvre avec le mot de passe de la messagerie.",
        head,
    )
    assert without_near_duplicates(hits) == hits


def test_a_passage_inside_a_longer_one_is_no_copy() -> None:
    """Neither the short one nor the long one is lost, whichever comes first."""
    hits = ranked(f"{LEAVE}\n\n{LICENCE}", LEAVE)
    assert without_near_duplicates(hits) == hits
    assert without_near_duplicates(hits[::-1]) == hits[::-1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Oui.", "Non."),
        ("1.2", "1.3"),
        ("---", "***"),
        ("🚀", "🔥"),
        ("पानी", "पीना"),
        ("猫が好きです", "犬が好きです"),
        ("a b", "a b c"),
    ],
)
def test_short_texts_that_differ_stay(one: str, other: str) -> None:
    """Too few words to compare runs of three: only equal ones are copies."""
    hits = ranked(one, other)
    assert without_near_duplicates(hits) == hits
    assert contents(without_near_duplicates(ranked(one, one))) == [one]


def test_decomposed_accents_are_the_same_letters() -> None:
    """NFC and NFD of a text are copies."""
    text = "Le congé d'été de l'équipe"
    hits = ranked(text, unicodedata.normalize("NFD", text))
    assert len(without_near_duplicates(hits)) == 1


def test_hyb_15_the_threshold_is_on_the_text_whatever_the_scores() -> None:
    """Scores of any kind and scale, near or far, change nothing (HYB-15)."""
    hits = ranked(LEAVE, LICENCE, LEAVE + " Fin.")
    for kind, scale in (("vector", 1.0), ("hybrid", 0.016), ("text", 25.0), ("rerank", -8.0)):
        scored = [replace(h, score=h.score * scale, score_kind=kind) for h in hits]  # type: ignore[arg-type]
        assert without_near_duplicates(scored) == scored[:2]


@pytest.mark.parametrize("threshold", [0.0, -1.0, 1.01, float("nan")])
def test_an_impossible_threshold_is_refused(threshold: float) -> None:
    """The message says what is possible."""
    with pytest.raises(ConfigurationError, match="more than 0, at most 1"):
        without_near_duplicates([], threshold=threshold)


def test_no_hits() -> None:
    """Nothing in, nothing out."""
    assert without_near_duplicates([]) == []


def test_renumbered_ranks_from_one() -> None:
    """Ranks follow the order; a hit whose rank is right is the same object."""
    hits = ranked("un", "deux", "trois")
    again = renumbered([hits[0], hits[2]])
    assert [h.rank for h in again] == [1, 2]
    assert again[0] is hits[0]


def brute_force(hits: list[Hit], threshold: float) -> list[Hit]:
    """The same by comparing every pair of sets of runs of three words."""
    kept: list[tuple[Hit, set[tuple[str, ...]]]] = []
    for one in hits:
        words = one.content.split()
        runs = set(zip(words, words[1:], words[2:], strict=False)) or {tuple(words)}
        if all(len(runs & o) < threshold * len(runs | o) for _, o in kept):
            kept.append((one, runs))
    return [one for one, _ in kept]


@given(
    st.lists(
        st.lists(st.sampled_from([*"abc"]), min_size=1, max_size=30).map(" ".join), max_size=25
    ),
    st.sampled_from([0.05, 0.3, 0.5, 2 / 3, 0.8, NEAR_DUPLICATE, 1.0]),
)
def test_equals_the_comparison_of_all_pairs(texts: list[str], threshold: float) -> None:
    """The shortcuts lose no copy and find no false one."""
    hits = ranked(*texts)
    assert without_near_duplicates(hits, threshold=threshold) == brute_force(hits, threshold)


@given(st.lists(st.text(max_size=80), max_size=12))
def test_any_text_can_be_compared(texts: list[str]) -> None:
    """Whatever the characters: a sub-list with the first hit, stable when repeated."""
    hits = ranked(*texts)
    kept = without_near_duplicates(hits)
    assert kept[:1] == hits[:1]
    assert without_near_duplicates(kept) == kept
    assert {h.content for h in hits if h.content not in contents(kept)}.isdisjoint(contents(kept))


def test_the_answer_does_not_depend_on_the_process() -> None:
    """String hashes differ from process to process; what is kept does not."""
    program = (
        "import random\n"
        "from rag_assets.retrieval.deduplication import without_near_duplicates\n"
        "from rag_assets_tests.retrieval.hits import ranked\n"
        "r = random.Random(5)\n"
        "texts = [' '.join(r.choices('abcd', k=r.randint(3, 40))) for _ in range(300)]\n"
        "print([h.rank for h in without_near_duplicates(ranked(*texts), threshold=0.6)])"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(answers) == 1


def test_a_flood_of_near_copies_is_cheap() -> None:
    """4,096 long passages, each with one word of its own, in seconds of one core."""
    source = random.Random(3)
    words = [f"mot{source.randint(0, 5000)}" for _ in range(385)]
    texts = [" ".join([*words[: n % 385], f"propre{n}", *words[n % 385 :]]) for n in range(4096)]
    hits = ranked(*texts)
    began = time.process_time()
    assert len(without_near_duplicates(hits)) == 1
    assert time.process_time() - began < 15


def test_passages_that_share_much_are_cheap() -> None:
    """1,000 long passages that share most of their text but too little to be copies."""
    source = random.Random(4)
    shared = " ".join(f"commun{source.randint(0, 5000)}" for _ in range(335))
    own = (" ".join(f"propre{n}x{i}" for i in range(50)) for n in range(1000))
    hits = ranked(*(f"{shared} {text}" for text in own))
    began = time.process_time()
    assert without_near_duplicates(hits) == hits
    assert time.process_time() - began < 15


def test_neighbouring_passages_stay() -> None:
    """The overlap alone makes no copy of the next passage."""
    words = [f"mot{n}" for n in range(400)]
    cuts = [" ".join(words[start : start + 100]) for start in range(0, 300, 85)]
    hits = [hit(text, position=n, rank=n + 1) for n, text in enumerate(cuts)]
    assert without_near_duplicates(hits) == hits

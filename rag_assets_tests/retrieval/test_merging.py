"""Passages of one section that follow one another become one, its text written once."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from rag_assets.fingerprints import sha256_hex
from rag_assets.models import Hit, embedding_text
from rag_assets.retrieval.deduplication import renumbered
from rag_assets.retrieval.merging import merge_adjacent
from rag_assets_tests.retrieval.hits import hit, hits_of

SENTENCES = "".join(
    f"La phrase numéro {n} de cette section parle d'autre chose. " for n in range(40)
)


def assert_is_text_of(merged: Hit, body: str) -> None:
    """The merged passage is the text of the lines it names, once, white space at cuts aside."""
    lines = body.split("\n")[merged.start_line - 1 : merged.end_line]
    assert merged.content.split() == "\n".join(lines).split()


def test_a_section_cut_in_passages_is_whole_again() -> None:
    """All passages of one section give back its text, the overlap written once."""
    body = f"# Titre\n\n{SENTENCES.strip()}\n"
    hits = hits_of(body, 60, 15)
    assert len(hits) > 5
    [merged] = merge_adjacent(hits)
    assert merged.content == body.rstrip("\n")
    assert (merged.start_line, merged.end_line, merged.position) == (1, 3, 0)
    assert merged.content_hash == sha256_hex(
        embedding_text(merged.title, merged.heading_path, merged.content)
    )


def test_the_merged_passage_stands_where_its_best_part_stood() -> None:
    """Rank and scores are the best part's; the others of the list keep their order."""
    first, second, third = hits_of(f"# A\n\n{SENTENCES}", 90, 10)[:3]
    other = hit("autre", path="b.md")
    ranking = [
        replace(other, rank=1, score=0.9),
        replace(second, rank=2, score=0.8, vector_rank=7),
        replace(other, rank=3, path="c.md", score=0.7),
        replace(first, rank=4, score=0.6),
    ]
    merged = merge_adjacent(ranking)
    assert [h.rank for h in merged] == [1, 2, 3]
    assert (merged[1].score, merged[1].vector_rank) == (0.8, 7)
    assert merged[1].position == first.position
    assert merged[1].end_line == second.end_line
    assert third not in merged


def test_what_is_not_adjacent_stays_apart() -> None:
    """A gap, another section, page or source: nothing is joined, the hits are the same objects."""
    parts = hits_of(f"# A\n\n{SENTENCES}", 60, 10)
    apart = [parts[0], parts[2], replace(parts[3], anchor="b"), replace(parts[1], path="b.md")]
    apart.append(replace(parts[1], source="autre"))
    assert all(one is other for one, other in zip(merge_adjacent(apart), apart, strict=True))
    assert merge_adjacent([]) == []


def test_a_hit_given_twice_counts_once() -> None:
    """The better-ranked one of two equal hits stays."""
    one = hit("texte")
    assert merge_adjacent([one, replace(one, rank=2)]) == [one]


def test_a_table_cut_in_passages_has_its_header_once() -> None:
    """The rows above each further piece are the header again, and go."""
    rows = "\n".join(f"| clé {n} | valeur {n} de la table |" for n in range(200))
    body = f"# T\n\nVoici :\n\n| Clé | Valeur |\n|---|---|\n{rows}\n\nAprès la table."
    hits = hits_of(body, 120, 20)
    assert sum("| Clé | Valeur |" in h.content for h in hits) > 3
    [merged] = merge_adjacent(hits)
    assert merged.content == body
    [tail] = merge_adjacent(hits[2:])
    assert tail.content.startswith("| Clé | Valeur |\n|---|---|\n| clé")
    assert tail.content.count("| Clé | Valeur |") == 1


def test_equal_lines_around_a_cut_are_not_an_overlap() -> None:
    """Brackets that close one piece of code and open the next one all stay."""
    first = hit("f()\n}\n}", start_line=1, end_line=3)
    second = hit("}\n}\ng()", start_line=4, end_line=6, position=1, rank=2)
    [merged] = merge_adjacent([first, second])
    assert merged.content == "f()\n}\n}\n}\n}\ng()"


def test_lines_that_repeat_themselves_are_told_apart_by_number() -> None:
    """Of equal list items, as many are taken for an overlap as the line numbers say."""
    body = "# L\n\n" + "\n".join(["- toujours le même point"] * 60)
    hits = hits_of(body, 50, 12)
    assert len(hits) > 3
    assert [h.content for h in merge_adjacent(hits)] == [body]


_WORDS = st.integers(0, 10**6)


@st.composite
def bodies(draw: st.DrawFn) -> str:
    """Markdown of sections, prose, lists, code and tables; no two lines are equal."""
    source = random.Random(draw(_WORDS))
    number = iter(range(10**6))

    def words(least: int, most: int) -> str:
        return " ".join(f"mot{next(number)}" for _ in range(source.randint(least, most)))

    def sentences() -> str:
        return " ".join(
            f"{words(2, 14)}{source.choice('.!?')}" for _ in range(source.randint(1, 9))
        )

    def block() -> str:
        kind = source.choice(("prose", "lines", "list", "code", "table", "heading"))
        lines = [words(1, 8) for _ in range(source.randint(1, 14))]
        if kind == "prose":
            return sentences()
        if kind == "lines":
            return "\n".join(lines)
        if kind == "list":
            return "\n".join(f"- {sentences()}" for _ in lines)
        if kind == "code":
            return "\n".join(["```", *lines, "```"])
        if kind == "table":
            rows = [f"| {words(1, 2)} | {words(1, 4)} |" for _ in lines]
            return "\n".join([f"| {words(1, 1)} | b |", "|---|---|", *rows])
        return f"{'#' * source.randint(1, 4)} {words(1, 3)}"

    return "\n\n".join(block() for _ in range(draw(st.integers(1, 12))))


@given(bodies(), st.integers(8, 120), st.floats(0, 0.9), st.randoms(use_true_random=False))
def test_merging_all_passages_gives_every_section_once(
    body: str, size: int, share: float, source: random.Random
) -> None:
    """Whatever the cuts, overlap and ranking: a section's merged text is its text, in order."""
    hits = hits_of(body, size, int(size * share))
    source.shuffle(hits)
    merged = sorted(merge_adjacent(hits), key=lambda h: h.position)
    assert len(merged) == len({(h.heading_path, h.anchor) for h in hits})
    for section in merged:
        assert_is_text_of(section, body)
    assert [word for h in merged for word in h.content.split()] == body.split()


@given(bodies(), st.integers(8, 120), st.floats(0, 0.9), st.randoms(use_true_random=False))
def test_some_passages_merge_to_runs_of_their_lines(
    body: str, size: int, share: float, source: random.Random
) -> None:
    """Of any choice of hits, none is lost: each stands inside exactly one merged passage."""
    hits = [h for h in hits_of(body, size, int(size * share)) if source.random() < 0.6]
    source.shuffle(hits)
    hits = renumbered(hits)
    merged = merge_adjacent(hits)
    groups = _grouped(hits, merged)
    assert [h.rank for h in merged] == [min(h.rank for h in group) for group in groups]
    for whole, group in zip(merged, groups, strict=True):
        positions = range(whole.position, whole.position + len(group))
        assert [h.position for h in group] == list(positions)
        for part in group:
            words = [word for word in part.content.split() if word.startswith("mot")]
            assert set(words) <= set(whole.content.split())


def _grouped(hits: list[Hit], merged: list[Hit]) -> list[list[Hit]]:
    """The hits that each merged passage is made of."""
    starts = sorted(h.position for h in merged)
    groups: dict[int, list[Hit]] = {start: [] for start in starts}
    for one in hits:
        groups[max(start for start in starts if start <= one.position)].append(one)
    return [sorted(groups[h.position], key=lambda h: h.position) for h in merged]

"""Passages: whole sections, bounded size, exact source text, true places, nothing lost."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_assets.chunking.base import Chunker
from rag_assets.chunking.markdown import RESERVED_TOKENS, MarkdownChunker
from rag_assets.errors import ChunkingError
from rag_assets.fingerprints import sha256_hex
from rag_assets.tokens import estimate_tokens, upper_bound_tokens
from rag_assets_tests.chunking.documents import assert_nothing_is_lost, chunks_of, document

SENTENCE = "Le pare-feu filtre les paquets qui entrent et qui sortent du réseau. "


def test_it_is_a_chunker() -> None:
    """The contract is met structurally."""
    assert isinstance(MarkdownChunker(), Chunker)


@pytest.mark.parametrize(
    "arguments",
    [
        {"size": 0},
        {"size": -1},
        {"size": 10, "overlap": 10},
        {"size": 10, "overlap": 11},
        {"overlap": -1},
        {"size": True},
        {"size": 512.0},
        {"size": "512"},
        {"size": None},
        {"overlap": False},
        {"overlap": 1.5},
        {"limit_tokens": 0},
        {"limit_tokens": True},
        {"anchor_style": "bitbucket"},
    ],
)
def test_impossible_settings_are_refused(arguments: dict[str, Any]) -> None:
    """When it is built, and not when the first document arrives."""
    with pytest.raises(ChunkingError, match=r"chunk\."):
        MarkdownChunker(**arguments)


def test_fingerprint_changes_with_every_setting() -> None:
    """And with nothing else."""
    settings_list: list[dict[str, Any]] = [
        {},
        {"size": 511},
        {"overlap": 63},
        {"anchor_style": "mkdocs"},
        {"limit_tokens": 500},
    ]
    fingerprints = [MarkdownChunker(**settings).fingerprint for settings in settings_list]
    assert len(set(fingerprints)) == len(fingerprints)
    assert MarkdownChunker().fingerprint == fingerprints[0]


def test_document_without_text_gives_nothing() -> None:
    """Blank bodies have no passages."""
    assert chunks_of("") == chunks_of(" \n\t\n") == []


def test_text_before_the_first_heading_carries_the_title() -> None:
    """It has no anchor, and the document's title as its section."""
    first, second = chunks_of("avant\n\n# Un\n\naprès\n", title="Titre")
    assert (first.heading_path, first.anchor, first.section) == ((), "", "Titre")
    assert (second.heading_path, second.anchor, second.content) == (("Un",), "un", "# Un\n\naprès")
    assert first.text == "Titre\n\navant"
    assert second.content_hash == sha256_hex(second.text)


def test_heading_path_holds_the_open_headings() -> None:
    """H1 to H3 open and close sections; H4 to H6 are text of theirs."""
    chunks = chunks_of("# A\n## B\n### C\n#### D\ntexte\n## E\n### F\n# G\n")
    assert [" > ".join(c.heading_path) for c in chunks] == [
        "A",
        "A > B",
        "A > B > C",
        "A > E",
        "A > E > F",
        "G",
    ]
    assert "#### D" in chunks[2].content


def test_places_are_lines_of_the_file() -> None:
    """Front matter is counted, both ends are included."""
    (chunk,) = MarkdownChunker().chunk(document("\n# A\n\nx\ny\n\n", body_start_line=4))
    assert (chunk.start_line, chunk.end_line) == (5, 8)


@pytest.mark.parametrize("line_end", ["\r\n", "\r"])
def test_line_ends_alone_change_no_passage(line_end: str) -> None:
    """FM-11: a pure change of line ends embeds nothing, whatever the kind of block."""
    body = "# A\n\n- x\n\n  y\n\n```sh\n# z\n```\n\n| a |\n|---|\n| 1 |\n\nB\n---\n\ntexte\n"
    assert chunks_of(body.replace("\n", line_end)) == chunks_of(body)


def test_code_stays_in_its_section() -> None:
    """CH-01: a comment in a fence neither opens a section nor drops the code."""
    (chunk,) = chunks_of('# A\n```py\n# note\nx = "MOT_TEMOIN_801"\n```\n')
    assert "MOT_TEMOIN_801" in chunk.content
    assert chunk.anchor == "a"


@pytest.mark.parametrize(
    "block",
    [
        "```yaml\na:\n  b:\n    c: 1\n\n\n\td:\u00a02\n```",
        "    code\n\n        plus",
        "- a\n\n      code\n- b",
        "texte\u00a0! \u202fx  \nsuite\t",
        "> a\n>\n>     b",
        "<pre>\n  a\n\n  b\n</pre>",
    ],
)
def test_text_is_kept_byte_for_byte(block: str) -> None:
    """CH-03: indentation, tabs, NBSP and blank lines are those of the source."""
    (chunk,) = chunks_of(f"# A\n\n{block}\n\nfin\n")
    assert block in chunk.content


def test_prose_before_code_is_kept() -> None:
    """CH-05: what stands before a `#` line is not thrown away."""
    (chunk,) = chunks_of("# A\nMOT_TEMOIN_802 avant\n```sh\n# commentaire\n```\naprès\n")
    assert "MOT_TEMOIN_802" in chunk.content
    assert "après" in chunk.content


def _table(rows: int) -> tuple[str, list[str]]:
    lines = [f"| code-{n} | signification numéro {n} du code |" for n in range(rows)]
    return "| code | sens |\n|---|---|\n" + "\n".join(lines) + "\n", lines


@pytest.mark.parametrize("before", ["", "# Codes\n\n", "# Codes\n\nUne phrase.\n\n"])
def test_large_tables_are_cut_between_rows_with_their_header(before: str) -> None:
    """CH-07: header and delimiter are repeated, and each row is in exactly one piece."""
    table, rows = _table(200)
    chunks = assert_nothing_is_lost(before + table + "\nAprès le tableau.\n")
    assert len(chunks) > 3
    for chunk in chunks:
        assert chunk.content.count("| code | sens |\n|---|---|\n") == 1
        assert upper_bound_tokens(chunk.text) <= 512
    for row in rows:
        assert sum(row in chunk.content.split("\n") for chunk in chunks) == 1
    assert [row for c in chunks for row in c.content.split("\n") if row in rows] == rows
    for before_, after in pairwise(chunks):
        assert after.start_line == before_.end_line + 1


def test_table_over_the_target_but_within_the_limit_is_not_cut() -> None:
    """Only the embedder's limit cuts a block."""
    table, _ = _table(30)
    (chunk,) = chunks_of(table, 50, 10, limit_tokens=4_000)
    assert chunk.content == table.rstrip()
    assert chunk.tokens > 50


def test_each_table_carries_its_own_section() -> None:
    """CH-09: headings and tables are not parted."""
    one, two = chunks_of("## un\n| a |\n|---|\n| 1 |\n## deux\n| b |\n|---|\n| 2 |\n")
    assert (one.anchor, two.anchor) == ("un", "deux")
    assert "| 1 |" in one.content
    assert "| 2 |" in two.content


@pytest.mark.parametrize(("size", "overlap"), [(100, 80), (100, 99), (2, 1), (1, 0), (7, 6)])
def test_large_overlaps_end(size: int, overlap: int) -> None:
    """CH-11: every passage begins after the one before it."""
    body = "- x\n" * 400
    chunks = assert_nothing_is_lost(body, size, overlap)
    starts = [chunk.start_line for chunk in chunks]
    assert starts == sorted(set(starts))


def test_last_passage_comes_once() -> None:
    """CH-13: the end of the text does not repeat."""
    body = " ".join(f"mot{n}" for n in range(1001))
    chunks = assert_nothing_is_lost(body, 100, 10)
    assert not chunks[-2].content.endswith(chunks[-1].content)


@pytest.mark.parametrize(
    "text",
    [
        "mot " * 1_999 + "MOT_TEMOIN_803",
        SENTENCE * 300 + "MOT_TEMOIN_803",
        "anticonstitutionnellement-" * 400 + "MOT_TEMOIN_803",
        "日本語の文章です。" * 600 + "MOT_TEMOIN_803",
        "```\n" + "x = f(1)\n" * 900 + "MOT_TEMOIN_803\n```",
        "> " + SENTENCE * 100 + "\n> MOT_TEMOIN_803",
        "- " + SENTENCE * 100 + "\n- MOT_TEMOIN_803",
        "<div>\n" + (SENTENCE + "\n") * 100 + "MOT_TEMOIN_803\n</div>",
        "1234567890 " * 900 + "MOT_TEMOIN_803",
    ],
    ids=["words", "sentences", "one-word", "japanese", "code", "quote", "list", "html", "digits"],
)
def test_nothing_is_longer_than_the_embedder_reads(text: str) -> None:
    """CH-15, CH-19: a block beyond the limit is split, and its end is in a passage."""
    chunks = assert_nothing_is_lost(f"# Section\n\n{text}\n")
    assert "MOT_TEMOIN_803" in chunks[-1].content.replace("\n", "")
    assert max(upper_bound_tokens(c.text) for c in chunks) <= 512 - RESERVED_TOKENS


def test_passages_never_span_two_sections() -> None:
    """CH-17: short sections stay alone, long ones keep their tail."""
    chunks = chunks_of("## A\ncourt\n## B\n" + "long " * 2_000)
    assert [c.content for c in chunks if c.anchor == "a"] == ["## A\ncourt"]
    assert all("court" not in c.content for c in chunks if c.anchor == "b")
    assert all(len(re.findall(r"^## ", c.content, re.MULTILINE)) <= 1 for c in chunks)


def test_blocks_are_packed_up_to_the_target() -> None:
    """Whole paragraphs, as many as fit, in estimated tokens."""
    paragraphs = [f"mot{n} " * 9 + "fin." for n in range(20)]
    chunks = chunks_of("\n\n".join(paragraphs), 60, 0)
    assert [c.tokens for c in chunks] == [54] * 5
    assert [c.content for c in chunks] == [
        "\n\n".join(paragraphs[n : n + 4]) for n in range(0, 20, 4)
    ]


def test_overlap_is_the_end_of_the_passage_before() -> None:
    """It begins at a sentence, is about as long as asked, and stays in the section."""
    body = "".join(f"Phrase numéro {n} du texte qui continue encore. " for n in range(200))
    chunks = chunks_of(f"# A\n\n{body}\n\n# B\n\n{body}\n", 128, 32)
    for before, after in pairwise(chunks):
        if before.anchor != after.anchor:
            assert after.content.startswith("# B")
            continue
        shared = next(
            n
            for n in range(len(after.content), 0, -1)
            if before.content.endswith(after.content[:n])
        )
        assert after.content.startswith("Phrase")
        assert 16 <= estimate_tokens(after.content[:shared]) <= 32
    assert all(c.tokens <= 128 for c in chunks)


def test_code_and_tables_are_not_repeated_as_overlap() -> None:
    """Half a fence above a passage would turn its text into code."""
    body = (
        "```\n" + "a = 1\n" * 20 + "```\n\n" + SENTENCE * 3 + "\n\n```\n" + "b = 2\n" * 20 + "```\n"
    )
    for chunk in chunks_of(body, 60, 30):
        assert chunk.content.count("```") % 2 == 0


def test_split_fence_is_the_source_and_nothing_else() -> None:
    """Lines stay whole, and no fence line is made up."""
    lines = [f"    valeur_{n} = calcule({n})  # commentaire" for n in range(300)]
    body = "```py\n" + "\n".join(lines) + "\n```"
    chunks = chunks_of(body)
    assert len(chunks) > 2
    assert "\n".join(c.content for c in chunks) == body


def test_heading_stays_with_the_block_below_it() -> None:
    """A block that stands alone keeps its heading as long as the embedder can read both."""
    body = "# A\n\n" + "mot " * 100 + "\n\n#### Sous\n\n" + "mot " * 100
    first, second = chunks_of(body, 50, 0)
    assert first.content.startswith("# A\n\nmot")
    assert second.content.startswith("#### Sous\n\nmot")


def test_long_headings_do_not_swell_every_passage() -> None:
    """A heading of a megabyte is cut in the path, and whole in the text."""
    body = "# " + "mot " * 250_000 + "\n\n" + SENTENCE * 100 + "\n"
    chunks = assert_nothing_is_lost(body)
    assert all(len(c.heading_path[0]) <= 250 for c in chunks)
    assert all(len(c.anchor) <= 1_000 for c in chunks)


def test_link_definitions_are_not_lost() -> None:
    """What renders as nothing is still text of the document."""
    body = "[a]: http://x\n\n# T\n\n[b]: http://y\n[c]: http://z\n\ntexte\n\n[d]: http://w\n"
    assert_nothing_is_lost(body)


LINES = st.one_of(
    st.sampled_from(
        [
            *("# A", "## B {#b}", "### C", "#### D", "Titre", "=====", "---", "", "", "", "```"),
            *("~~~", "- a", "  - b", "1. c", "> q", "    code", "| a | b |", "|---|---|", "| 1 |"),
            *("<div>", "</div>", "<!--", "-->", "[a]: x", "\t\tt", "\u00a0", "***", "* * *"),
            *("日本語。" * 30, "mot. " * 40, "x" * 700, "a! b? c… « d. » e", "\u2028", "&amp;"),
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30),
)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(LINES, max_size=40),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.integers(1, 80),
    st.integers(0, 79),
    st.sampled_from([1, 16, 40, 128, 512]),
)
def test_passages_hold_all_the_text_in_order(
    lines: list[str], line_end: str, size: int, overlap: int, limit: int
) -> None:
    """The law of the chunker, for any text and any settings."""
    body = line_end.join(lines)
    chunks = assert_nothing_is_lost(body, size, min(overlap, size - 1), limit_tokens=limit)
    assert [chunk.position for chunk in chunks] == list(range(len(chunks)))
    for chunk in chunks:
        assert chunk.content.strip()
        assert chunk.tokens == estimate_tokens(chunk.content)
        assert chunk.content_hash == sha256_hex(chunk.text)
        assert bool(chunk.anchor) == bool(chunk.heading_path)
    anchors = [(chunk.anchor, chunk.heading_path) for chunk in chunks]
    for anchor, path in anchors:
        assert all(other == path for own, other in anchors if own == anchor)


@settings(max_examples=100, deadline=None)
@given(st.lists(LINES, max_size=60), st.integers(20, 300))
def test_passages_respect_the_limit(lines: list[str], limit: int) -> None:
    """No text is longer than the embedder reads, as long as the headings leave room."""
    for chunk in chunks_of("\n".join(lines), title="T", limit_tokens=limit):
        prefix = upper_bound_tokens(chunk.text) - upper_bound_tokens(chunk.content)
        assert upper_bound_tokens(chunk.text) <= max(limit, limit // 2 + prefix + 8)

"""The parts of the diagnostic page: words, numbers, safe text, sessions, ranks put together."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Mapping
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_assets.acl import EVERYTHING
from rag_assets.models import Hit, Reason, RunStatus
from rag_assets.service.display import excerpt, marked, plain, visible, web_address
from rag_assets.service.localisation import Localisation, negotiate
from rag_assets.service.page import document_address
from rag_assets.service.page_rendering import local_address
from rag_assets.service.rank_comparison import SearchForm, chart, compare, telling_words
from rag_assets.service.sessions import (
    IDLE_SECONDS,
    KEPT_SEARCHES,
    LIFETIME_SECONDS,
    MOST_SESSIONS,
    Sessions,
)
from rag_assets.service.texts import LANGUAGES, TEXTS
from rag_assets_tests.service.browsing import Html

FR, EN = Localisation("fr"), Localisation("en")


def _fields(text: str) -> list[str]:
    return sorted(name for _, name, _, _ in string.Formatter().parse(text) if name)


def test_every_language_has_the_same_texts() -> None:
    """The same keys, with the same values to fill in, and nothing empty."""
    english = TEXTS["en"]
    assert set(TEXTS) == set(LANGUAGES)
    for language in LANGUAGES:
        assert list(TEXTS[language]) == list(english)
        for key, text in TEXTS[language].items():
            assert text.strip()
            if not key.endswith("_one"):
                assert _fields(text) == _fields(english[key]), key


def test_every_reason_and_status_has_words() -> None:
    """No code of the ledger or of a run is left untranslated."""
    for reason in get_args(Reason):
        assert f"reason_{reason}" in TEXTS["en"]
        assert f"reason_{reason}_long" in TEXTS["en"]
    for status in get_args(RunStatus):
        assert f"status_{status}" in TEXTS["en"]


def test_french_is_set_as_french_is() -> None:
    """No-break spaces before double punctuation and inside guillemets, typographic apostrophes."""
    for key, text in TEXTS["fr"].items():
        assert not re.search(r" [;:!?%»]|« ", text), key
        assert not re.search(r"\w[;!?]", text), key
        assert "'" not in text, key
    assert "'" not in "".join(TEXTS["en"].values())


@pytest.mark.parametrize(
    ("header", "chosen", "language"),
    [
        ("", None, "en"),
        ("fr", None, "fr"),
        ("fr-CA, en;q=0.9", None, "fr"),
        ("de, en;q=0.7, fr;q=0.8", None, "fr"),
        ("fr;q=0, en;q=0.1", None, "en"),
        ("en, fr", None, "en"),
        ("fr;q=x, en;q=0.2", None, "en"),
        ("*", None, "en"),
        ("en", "fr", "fr"),
        ("fr", "tlh", "fr"),
        ("fr," * 10_000, None, "fr"),
        (";;,,q=1", None, "en"),
    ],
)
def test_language_is_negotiated(header: str, chosen: str | None, language: str) -> None:
    """A choice wins, then the quality, then the order; anything else is English."""
    assert negotiate(header, chosen) == language


def test_numbers_and_times_are_written_per_language() -> None:
    """Thousands, decimals, percentages, bytes, durations, dates, plurals."""
    assert FR.number(1234567) == "1\u202f234\u202f567"
    assert EN.number(1234567) == "1,234,567"
    assert (FR.number(0.8751, 3), EN.number(-0.5, 1)) == ("0,875", "−0.5")
    assert (FR.percent(0.5), EN.percent(0.5)) == ("50\u202f%", "50%")
    assert (FR.percent(0.001), EN.percent(0.001)) == ("<\u202f1\u202f%", "<1%")
    assert (FR.size(1_250_000), EN.size(999)) == ("1,2\u00a0Mo", "999\u00a0B")
    assert FR.duration(3725) == "1\u00a0h 02\u00a0min"
    assert EN.duration(0.44) == "0.4\u00a0s"
    assert FR.time("2026-11-30T14:05:09Z") == "30/11/2026 14:05"
    assert EN.time("2026-11-30T15:05:09+01:00") == "30 Nov 2026, 14:05"
    assert EN.time("<yesterday>") == "<yesterday>"
    assert "0 passage" in FR.count("results_count", 0)
    assert "0 passages" in EN.count("results_count", 0)
    assert EN.text("results_as", tags="<b>") == "Seen as a caller with the ACL tags &lt;b&gt;."


def test_unseen_characters_are_written_out() -> None:
    """Bidi controls, zero-width and tag characters, controls, surrogates; not those of a script."""
    for code in (0x202E, 0x200B, 0xE0041, 0xAD, 0x7, 0xFEFF, 0x2028, 0xD800, 0x3164, 0x1B):
        assert plain(f"a{chr(code)}b") == f"a⟨U+{code:04X}⟩b"
        assert f"⟨U+{code:04X}⟩" in visible(f"a{chr(code)}b")
    persian, family = "می\u200cخواهم", "👩\u200d👧"
    assert plain(persian) == persian
    assert plain(family) == family
    assert plain("a\u200db") == "a⟨U+200D⟩b"
    assert plain("one\r\ntwo\rthree\tfour") == "one\ntwo\nthree\tfour"


@given(st.text(st.characters(), max_size=60))
def test_shown_text_is_inert_and_whole(text: str) -> None:
    """Any text gives one isolated element without markup of its own or anything unseen."""
    html = Html(str(visible(text)))
    assert {tag for tag, _ in html.tags} <= {"bdi", "span"}
    assert "".join(html.text) == plain(text)
    shown = plain(text).replace("\u200c", "").replace("\u200d", "")
    assert not [c for c in shown if unicodedata.category(c) in ("Cf", "Cs")]


@given(st.text("ab <>&é\r\n", max_size=900), st.lists(st.integers(0, 900), max_size=12))
def test_marks_stand_where_the_spans_are(text: str, edges: list[int]) -> None:
    """Marked text is the text; an excerpt keeps marks on the same words."""
    cuts = sorted({edge for edge in edges if edge <= len(text)})
    spans = list(zip(cuts[::2], cuts[1::2], strict=False))
    whole = Html(str(marked(text, spans)))
    flat = "".join(whole.text).replace("\n", "")
    assert flat == text.replace("\r", "").replace("\n", "")
    short, kept = excerpt(text, spans)
    assert len(short) <= max(364, 4)
    words = [text[a:b] for a, b in spans]
    assert all(short[a:b] in words for a, b in kept)


def test_excerpt_is_taken_where_most_words_match() -> None:
    """The words found are in it, with some before them; cuts fall between words."""
    text = "lorem " * 300 + "the badge and the badge again " + "ipsum " * 300
    at = text.index("badge")
    spans = [(0, 5), (at, at + 5), (at + 14, at + 19)]
    short, kept = excerpt(text, spans)
    assert [short[a:b] for a, b in kept][-2:] == ["badge", "badge"]
    assert short.startswith("… lorem")
    assert short.endswith(" …")


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("https://a.example/b?c#d", True),
        ("http://127.0.0.1:8000/é", True),
        ("HTTPS://A.EXAMPLE/", True),
        ("javascript:alert(1)", False),
        ("JaVaScRiPt:alert(1)", False),
        ("java\tscript:alert(1)", False),
        (" javascript:alert(1)", False),
        ("data:text/html,x", False),
        ("file:///etc/passwd", False),
        ("//evil.example", False),
        ("https:evil", False),
        ("https://", False),
        ("http://[::1", False),
        ("https://a.example/\u202eb", False),
        ("", False),
    ],
)
def test_only_web_addresses_become_links(url: str, safe: bool) -> None:
    """http and https with a host; everything else stays text."""
    assert web_address(url) == (url if safe else None)


@given(st.text(max_size=30))
def test_way_back_after_login_stays_on_this_site(wanted: str) -> None:
    """No text leads to another host."""
    address = local_address(wanted)
    assert address.startswith("/")
    assert not re.match(r"/[/\\]", address)
    assert not re.search(r"[\s\\]", address)


@given(st.text(max_size=20), st.text(max_size=40), st.integers(0, 10_000))
def test_address_of_a_document_holds_any_path(source: str, path: str, position: int) -> None:
    """Source and path come back as they were, dots, slashes and signs included."""
    from urllib.parse import parse_qs, urlsplit

    parts = urlsplit(document_address(source, path, position))
    query = parse_qs(parts.query, keep_blank_values=True, strict_parsing=True)
    assert (query["source"], query["path"]) == ([source], [path])
    assert parts.fragment == f"chunk-{position + 1}"
    assert query.get("page", ["1"]) == [str(position // 100 + 1)]


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The time it was set to."""
        return self.now


def test_session_ends_when_idle_or_old() -> None:
    """An hour without a request, or a working day in all."""
    clock = Clock()
    sessions = Sessions(clock=clock)
    idle, _ = sessions.start("boss", "hash")
    clock.now = IDLE_SECONDS + 1
    assert sessions.find(idle) is None
    used, session = sessions.start("boss", "hash")
    began = clock.now
    while clock.now - began < LIFETIME_SECONDS - IDLE_SECONDS:
        clock.now += IDLE_SECONDS / 2
        assert sessions.find(used) is session
    clock.now = began + LIFETIME_SECONDS + 1
    assert sessions.find(used) is None


def test_session_ids_are_told_apart_and_bounded() -> None:
    """Unknown, blank and odd ids find nothing; the oldest sessions make room."""
    sessions = Sessions()
    first, _ = sessions.start("boss", "hash")
    for other in (None, "", "x", "\udc80", first + "x", first.swapcase()):
        assert sessions.find(other) is None
    for _ in range(MOST_SESSIONS):
        last, _ = sessions.start("boss", "hash")
    assert sessions.find(first) is None
    assert sessions.find(last) is not None
    sessions.end(last)
    sessions.end(None)
    assert sessions.find(last) is None


def test_session_keeps_the_last_searches() -> None:
    """Under names that differ each time; older ones are forgotten."""
    _, session = Sessions().start("boss", "hash")
    search = SearchForm("q", 10)
    names = [session.keep_search(search) for _ in range(KEPT_SEARCHES + 5)]
    assert len(set(names)) == len(names)
    assert [name in session.searches for name in names] == [False] * 5 + [True] * KEPT_SEARCHES


def hit(path: str, rank: int, **scores: Any) -> Hit:
    """A passage of ``path`` at ``rank``."""
    return Hit(
        rank=rank, score=scores.pop("score", 0.5), vector_score=0.5, source="docs", path=path,
        title=path, section=path, heading_path=(), anchor="", url="", start_line=1, end_line=1,
        position=0, content=f"text of {path}", **scores,
    )  # fmt: skip


class Scripted:
    """A retriever that says what it was told to, by mode."""

    def __init__(self, hits: Mapping[str, list[Hit]]) -> None:
        self._hits = hits

    def retrieve(self, query: str, k: int, *, mode: str, **others: object) -> list[Hit]:
        """The hits of a mode."""
        return self._hits[mode]


def test_ranks_of_one_passage_are_put_side_by_side() -> None:
    """Found in some rankings only; in a leg beyond the first k; a text hit without any word."""
    found = {
        "vector": [hit("a", 1), hit("b", 2)],
        "text": [hit("b", 1, text_score=4.0, score=4.0), hit("z", 2, text_score=0.0)],
        "hybrid": [
            hit("b", 1, vector_rank=2, text_rank=1),
            hit("c", 2, vector_rank=17, text_rank=None),
        ],
    }
    rows = compare(Scripted(found), SearchForm("b", 2), EVERYTHING).rows  # type: ignore[arg-type]
    ranks = [
        (row.hit.path, *(at.rank if at else None for at in row.places.values())) for row in rows
    ]
    assert ranks == [("b", 2, 1, 1), ("c", 17, 2, None), ("a", 1, None, None)]
    by_vector = compare(Scripted(found), SearchForm("b", 2, order="vector"), EVERYTHING)  # type: ignore[arg-type]
    assert [row.hit.path for row in by_vector.rows] == ["a", "b", "c"]
    drawn = chart(rows)
    assert [len(line.points) for line in drawn.lines] == [3, 2, 1]
    assert chart([]).height == 0


def test_words_that_most_passages_hold_are_not_marked() -> None:
    """They would hide the others; with few passages, or nothing else to mark, all words count."""
    hits = [hit(name, rank) for rank, name in enumerate(("a", "b", "c", "d", "e"), start=1)]
    assert telling_words("The text of b", hits) == "The b"
    assert telling_words("text of", hits) == "text of"
    assert telling_words("text of b", hits[:2]) == "text of b"

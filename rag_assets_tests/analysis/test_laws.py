"""What holds for the terms of any text whatsoever."""

from __future__ import annotations

import threading
import time
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rag_assets.analysis import (
    MAXIMUM_QUERY_TERMS,
    MAXIMUM_TERM_LENGTH,
    TERM_CHARACTERS,
    analyse,
    detect_language,
    matching_spans,
    query_terms,
)
from rag_assets.analysis.stemming import SNOWBALL

ASCII_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyz0123456789" + TERM_CHARACTERS)
ANYTHING = st.text(st.characters(exclude_categories=()), max_size=80)
FRAGMENTS = (
    "l' qu’ été HÔTEL cœur Straße ﬁn 日本語 ภาษา 한국어 हिन्दी й 1 000 1,5 50 % ++ # @ . / - _ & "
    "&eacute; &#8203; \u00ad \u200b \u202e \u0301 \u0306 \ud800 \x00 ⑴ ½ İ ŉ Ω K ff _x_ aB 's"
)
PIECES = st.lists(
    st.sampled_from([*FRAGMENTS.split(" "), " ", "\u00a0", "\n"]),
    max_size=20,
).map("".join)
TEXTS = ANYTHING | PIECES
LANGUAGES = st.sampled_from(["", "fr", "en", "de", "tr", "ru", "el", "hi", "xx"])
INVISIBLE = "\u00ad\u200b\u200d\u2060\u202e\ufeff\ufe0f\u034f\U000e0041\U000e0101"


@settings(max_examples=500, deadline=None)
@given(TEXTS, LANGUAGES)
@example("\ud800\udfff" * 3, "fr")
def test_every_term_can_be_stored(text: str, language: str) -> None:
    """Terms are short, not empty, lower case, valid Unicode, without blanks and stray ASCII."""
    for term in analyse(text, language):
        assert 0 < len(term) <= MAXIMUM_TERM_LENGTH
        assert not any(c.isspace() for c in term)
        assert ASCII_ALLOWED.issuperset(c for c in term if c.isascii())
        term.encode("utf-8")
        assert term == unicodedata.normalize("NFC", term)


@settings(max_examples=500, deadline=None)
@given(TEXTS, LANGUAGES)
def test_composed_and_decomposed_text_are_the_same(text: str, language: str) -> None:
    """NFC, NFD and the text as typed give the same terms."""
    expected = analyse(text, language)
    assert analyse(unicodedata.normalize("NFC", text), language) == expected
    assert analyse(unicodedata.normalize("NFD", text), language) == expected


@settings(max_examples=500, deadline=None)
@given(TEXTS, LANGUAGES, st.data())
def test_invisible_characters_change_nothing(text: str, language: str, data: st.DataObject) -> None:
    """Zero-width characters, soft hyphens, bidi marks and variation selectors are not there."""
    at = data.draw(st.integers(0, len(text)))
    hidden = data.draw(st.sampled_from(INVISIBLE))
    assert analyse(text[:at] + hidden + text[at:], language) == analyse(text, language)


@settings(max_examples=500, deadline=None)
@given(st.text("aeiouéèêàùçïôûœæ bcdlnrst'-", max_size=60), st.sampled_from(["", "fr", "en"]))
def test_accents_and_ligatures_make_no_difference(text: str, language: str) -> None:
    """The text typed without accents and ligatures has the same terms."""
    plain = unicodedata.normalize("NFD", text.replace("œ", "oe").replace("æ", "ae"))
    plain = "".join(c for c in plain if not unicodedata.combining(c))
    assert analyse(plain, language) == analyse(text, language)


@settings(max_examples=300, deadline=None)
@given(st.text("abcdefghijklmnopqrstuvwxyzéèç", min_size=1, max_size=12), LANGUAGES)
def test_a_word_is_found_in_any_case(word: str, language: str) -> None:
    """Lower case, capitalised and all capitals share the term of the lower-case word."""
    (term,) = analyse(word, language)
    assert analyse(word.capitalize(), language) == [term]
    assert term in analyse(word.upper(), language)


@settings(max_examples=400, deadline=None)
@given(TEXTS, TEXTS, LANGUAGES)
def test_text_analysed_piecewise_is_the_same(left: str, right: str, language: str) -> None:
    """Terms do not reach over a line end, and their order is the text's."""
    joined = analyse(left + "\n" + right, language)
    assert joined == analyse(left, language) + analyse(right, language)


@settings(max_examples=400, deadline=None)
@given(TEXTS, TEXTS, LANGUAGES)
def test_spans_are_sorted_apart_and_inside(text: str, query: str, language: str) -> None:
    """Spans can be marked from left to right, and exist only where terms are shared."""
    spans = matching_spans(text, query, language)
    ends = [0]
    for start, end in spans:
        assert ends[-1] <= start < end <= len(text)
        assert text[start:end].strip()
        ends.append(end)
    if spans:
        assert set(analyse(text, language)) & set(query_terms(query, language))


@settings(max_examples=400, deadline=None)
@given(TEXTS, LANGUAGES)
def test_a_query_has_few_distinct_terms_of_the_text(text: str, language: str) -> None:
    """Questions are analysed as documents are, each term once."""
    terms = query_terms(text, language)
    assert len(terms) == len(set(terms)) <= MAXIMUM_QUERY_TERMS
    assert terms == list(dict.fromkeys(analyse(text, language)))[:MAXIMUM_QUERY_TERMS]


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_language_detection_takes_anything(text: str) -> None:
    """The answer is empty or a subtag, the same every time."""
    found = detect_language(text)
    assert found == "" or (found.isalpha() and found.islower() and len(found) == 2)
    assert detect_language(text) == found


@pytest.mark.parametrize(
    "unit",
    [
        "a", "aB", "a/", "a_-", "1 000 ", "1,", "é'", "&amp;", "日本", "\u202e\u200b", "e\u0301",
        "\u0301", "\ud800", "\x00", "`", "<", "l'", "x@", "a#", "a b ",
    ],
    ids=ascii,
)  # fmt: skip
def test_time_stays_linear_in_one_run_of_characters(unit: str) -> None:
    """A long text without a blank, whatever it is made of, takes microseconds per character."""
    text = unit * (40_000 // len(unit))
    began = time.process_time()
    assert all(len(term) <= MAXIMUM_TERM_LENGTH for term in analyse(text, "fr"))
    detect_language(text)
    matching_spans(text, text[:1_000], "fr")
    assert time.process_time() - began < 20


def test_threads_agree() -> None:
    """Many threads that stem at once get what one thread gets."""
    words = [f"générations{i} utilisatrices nationale{'s' * (i % 2)} mot{i}" for i in range(2_000)]
    found: list[list[list[str]]] = [[] for _ in range(8)]

    def work(number: int) -> None:
        found[number] = [analyse(text + f" x{number}"[:0], "fr") for text in words]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize("language", sorted(SNOWBALL))
def test_every_listed_language_has_its_stemmer(language: str) -> None:
    """Each Snowball algorithm named is there, and its stems are folded."""
    terms = analyse("Nationale générations organización straße kitabı красные", language)
    assert terms
    assert terms == analyse("nationale generations organizacion strasse kitabi красные", language)

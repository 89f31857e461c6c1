"""Front matter: what is metadata, what is body, and that nothing is lost on the way."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rag_assets.documents.cleaning import clean_markdown
from rag_assets.documents.decoding import decode
from rag_assets.documents.front_matter import read_front_matter
from rag_assets.documents.parse import parse_document
from rag_assets.models import Document
from rag_assets_tests.documents.files import parsed, source_file


def test_colon_in_a_value_is_kept_and_warned_of() -> None:
    """FM-01: the whole kind of unquoted `a : b` values stays readable."""
    document = parsed("---\ntitle: Guide : installer le pare-feu\nauteur: A\n---\n# Corps\n")
    assert document.title == "Guide : installer le pare-feu"
    assert document.metadata["auteur"] == "A"
    assert document.warnings[0].startswith("guides/page.md: line 2: ")


def test_only_the_first_pair_of_fences_is_front_matter() -> None:
    """FM-03: rules in the body stay in the body."""
    document = parsed("---\ntitle: A\n---\nPartie 1\n\n---\n\nPartie 2\n\n---\n")
    assert document.body == "Partie 1\n\n---\n\nPartie 2\n\n---\n"
    assert document.body_start_line == 4


@pytest.mark.parametrize("closer", ["---suite de texte", "----", "--- x", " ---", "...", "—"])
def test_only_a_line_of_three_dashes_closes(closer: str) -> None:
    """FM-05: anything else that resembles the fence does not end the block."""
    document = parsed(f"---\ntitle: T\n{closer}\nvrai: 1\n---\nCorps")
    assert document.body.endswith("Corps")
    assert "vrai: 1" in document.body or document.metadata.get("vrai") == "1"


def test_block_that_cannot_be_read_stays_as_text_with_a_warning() -> None:
    """FM-05: no line of it is lost."""
    text = "---\ntitle: T\nresume: |\n  ligne\n---suite de texte\nvrai: 1\n---\nCorps"
    document = parsed(text)
    assert document.body == text
    assert document.body_start_line == 1
    assert any("read as text" in warning for warning in document.warnings)


def test_at_sign_and_backticks_are_kept_as_typed() -> None:
    """FM-07: characters that YAML reserves do not make the page vanish."""
    document = parsed("---\ntitle: @equipe-reseau\nstatut: `brouillon`\npct: %5\n---\nCorps")
    assert document.title == "@equipe-reseau"
    assert document.metadata["statut"] == "`brouillon`"
    assert document.warnings


@pytest.mark.parametrize(
    "block",
    [
        "\nBonjour MOT_TEMOIN_715, ceci est de la prose\n\n",
        "- MOT_TEMOIN_715\n",
        "# MOT_TEMOIN_715\n",
        "[MOT_TEMOIN_715]\n",
        "http://MOT_TEMOIN_715\n",
        '"MOT_TEMOIN_715"\n',
        "a: 1\n--- \nb: MOT_TEMOIN_715\n",
    ],
)
def test_what_is_not_a_mapping_stays_in_the_body(block: str) -> None:
    """FM-09: prose, lists and headings between two rules are text."""
    document = parsed(f"---\n{block}---\nSuite\n")
    assert "MOT_TEMOIN_715" in document.body
    assert document.body.endswith("Suite\n")


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_line_ends_make_no_difference(line_end: str) -> None:
    """FM-11: LF, CRLF and lone CR copies have the same title, metadata and first line."""
    text = "---\ntitle: Réseau\nn: 1\n--- \n\n# Réseau\n".replace("\n", line_end)
    document = parsed(text)
    assert (document.title, dict(document.metadata)) == ("Réseau", {"title": "Réseau", "n": "1"})
    assert document.body_start_line == 5
    assert document.body == f"{line_end}# Réseau{line_end}"


@pytest.mark.parametrize(
    "typed",
    ["no", "yes", "1:1", "1.10", "0o17", "2024-02-31", "1e5", "null ", "9" * 400, "=", "été"],
)
def test_scalars_stay_the_strings_that_were_typed(typed: str) -> None:
    """No boolean, number or date is made of a value, possible or not."""
    assert parsed(f"---\nx: {typed}\n---\ntexte").metadata["x"] == typed.strip()


def test_what_is_not_a_scalar_is_left_out_with_one_warning() -> None:
    """Lists, mappings, blocks, aliases and tagged values are named, not interpreted."""
    document = parsed(
        "---\ntitle: T\ntags: [a, b]\nliste:\n  - a\nm: {a: 1}\nbloc: |\n  x\nancre: &a v\n"
        "alias: *a\nobjet: !!python/object/apply:os.system [ls]\ns: !!str x\n---\ntexte"
    )
    assert dict(document.metadata) == {"title": "T", "ancre": "v"}
    (warning,) = document.warnings
    for key in ("tags", "liste", "m", "bloc", "alias", "objet", "s"):
        assert repr(key) in warning


def test_repeated_key_is_warned_of_and_the_last_counts() -> None:
    """A key given twice is never decided silently."""
    document = parsed("---\ntitle: un\ntitle: deux\n---\ntexte")
    assert document.title == "deux"
    assert any("'title'" in warning and "line 3" in warning for warning in document.warnings)


@pytest.mark.parametrize("text", ["---\n# T\ntexte\n", "---\ntitre: x\ntexte\n", "---", "---\n"])
def test_unclosed_front_matter_is_text(text: str) -> None:
    """Without a closing line there is no front matter, and nothing is swallowed."""
    document = parsed(text)
    assert (document.body, document.body_start_line) == (text, 1)


def test_empty_front_matter_is_taken_off() -> None:
    """Two fences with nothing between them hold no text."""
    assert parsed("---\n---\n# T\n").body == "# T\n"


@pytest.mark.parametrize(
    "block",
    [
        "a: " + "[" * 20_000,
        "a: " + "{a: " * 20_000,
        "- " * 20_000,
        "? " * 20_000,
        "a: &a [x,x,x,x]\n"
        + "\n".join(f"b{i}: &b{i} [{','.join(['*a'] * 9)}]" for i in range(2_000)),
        "title: " + "mot " * 250_000,
        "n: " + "9" * 60_000,
        "\n".join(f"k{i}: v" for i in range(50_000)),
        "a: " + ": " * 30_000,
        "#" * 60_000,
        "k" * 1_000_000 + ": v",
        "k" + " " * 1_000_000 + "x",
    ],
    ids=lambda block: f"{block[:12]!r}x{len(block)}",
)
def test_hostile_blocks_are_bounded(block: str) -> None:
    """Nesting, alias bombs and huge values cost no time and no text of the body."""
    started = time.monotonic()
    document = parsed(f"---\n{block}\n---\n# Titre\n\ncorps TEMOIN\n")
    assert "corps TEMOIN" in document.body
    assert len(document.title) <= 500
    assert sum(map(len, document.metadata.values())) <= 100_000
    assert sum(map(len, document.warnings)) <= 5_000
    assert time.monotonic() - started < 10


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                [
                    "---",
                    "--- ",
                    "title: a",
                    "a: b: c",
                    "- x",
                    "  y: 1",
                    "{",
                    "acl: x",
                    "\ufeff",
                    "&a",
                ]
            ),
            st.text(max_size=12),
        ),
        max_size=12,
    ),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
@example(["---", "a: \x07", "---", "x"], "\n")
def test_any_text_is_parsed_or_left_out_with_a_reason(lines: list[str], line_end: str) -> None:
    """Nothing raises, and what becomes the body is the end of the text, cleaned."""
    text = line_end.join(lines)
    result = parse_document(source_file(text.encode("utf-8", "replace")))
    if isinstance(result, Document):
        text, _ = decode(text.encode("utf-8", "replace"))
        body = read_front_matter(text).body
        assert text.endswith(body)
        assert result.body == clean_markdown(body).text
        assert result.title.strip()
    else:
        assert result.reason in ("blank", "not_text", "acl_unreadable")
        assert result.rule

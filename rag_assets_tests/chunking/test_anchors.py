"""Anchors are those the renderer makes, unique in a document, never empty."""

from __future__ import annotations

import hashlib
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_assets.chunking.anchors import anchors, github_slug, gitlab_slug, mkdocs_slug
from rag_assets.markdown import Heading
from rag_assets_tests.chunking.documents import anchors_of, chunks_of

WORDS = st.lists(
    st.sampled_from(["a", "a-1", "a-2", "a_1", "a_2", "b", "", "🚀", "1"]), max_size=20
)


def test_repeated_headings_are_numbered() -> None:
    """AN-01: the second `Installer` has its own anchor."""
    body = "# Guide\n## Linux\n### Installer\n### Configurer\n## Windows\n### Installer\n"
    names = ["guide", "linux", "installer", "configurer", "windows"]
    assert anchors_of(body) == [*names, "installer-1"]
    assert anchors_of(body, "mkdocs") == [*names, "installer_1"]
    assert anchors_of(body, "gitlab") == [*names, "installer-1"]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("style", ["github", "mkdocs", "gitlab"])
def test_accents_are_kept_in_one_form(style: str, form: str) -> None:
    """AN-03: composed and decomposed spellings give the same link."""
    heading = unicodedata.normalize(form, "# Été à Nîmes\n")  # type: ignore[arg-type]
    assert anchors_of(heading, style) == ["été-à-nîmes"]


@pytest.mark.parametrize(
    ("heading", "github", "mkdocs", "gitlab"),
    [
        ("🚀 Démarrage rapide", "-démarrage-rapide", "démarrage-rapide", "-démarrage-rapide"),
        (":rocket: Démarrage", "rocket-démarrage", "rocket-démarrage", "rocket-démarrage"),
        ("🚀", "section", "_1", "section"),
        ("⚙️", "section", "_1", "section"),
        ("Outil : WAVE (v2) — 5 %", "outil--wave-v2--5-", "outil-wave-v2-5", "outil-wave-v2-5-"),
        ("L'été & l’hiver", "lété--lhiver", "lété-lhiver", "lété-lhiver"),
        ("C++ et `foo_bar()`", "c-et-foo_bar", "c-et-foo_bar", "c-et-foo_bar"),
        ("1.2.3", "123", "123", "anchor-123"),
        ("日本語 の 見出し", "日本語-の-見出し", "日本語-の-見出し", "日本語-の-見出し"),
        ("a -- b", "a----b", "a-b", "a-b"),
        ("Œuvre ﬁn", "œuvre-ﬁn", "œuvre-ﬁn", "œuvre-ﬁn"),
    ],
)
def test_slug_rule_of_each_renderer(heading: str, github: str, mkdocs: str, gitlab: str) -> None:
    """AN-05, AN-15: the documented rules, from a table."""
    body = f"## {heading}\n"
    assert anchors_of(body) == [github]
    assert anchors_of(body, "mkdocs") == [mkdocs]
    assert anchors_of(body, "gitlab") == [gitlab]


@pytest.mark.parametrize(
    ("heading", "text", "anchor"),
    [
        ("Lancer `make all` et [voir](x.md)", "Lancer make all et voir", "lancer-make-all-et-voir"),
        ("**Gras** _et_ ~~barré~~", "Gras et barré", "gras-et-barré"),
        ("<span id='x'>Balise</span>", "Balise", "balise"),
        ("![logo](x.png) Projet", "logo Projet", "-projet"),
        ("A &amp; B", "A & B", "a--b"),
        (r"a\_b \# c", "a_b # c", "a_b--c"),
        ("[![img](a)](b)", "img", "section"),
    ],
)
def test_markup_of_a_heading_is_no_part_of_title_or_anchor(
    heading: str, text: str, anchor: str
) -> None:
    """AN-07: code, links, emphasis, tags and images leave their text."""
    for _ in range(2):  # a second document starts with a fresh counter
        (chunk,) = chunks_of(f"## {heading}\n")
        assert (chunk.heading_path, chunk.anchor) == ((text,), anchor)


@pytest.mark.parametrize(
    ("heading", "text", "anchor"),
    [
        ("Premiers pas {#first-steps}", "Premiers pas", "first-steps"),
        ("Premiers pas { #first-steps }", "Premiers pas", "first-steps"),
        ("Premiers pas {: #first-steps .c k=v }", "Premiers pas", "first-steps"),
        ("Premiers pas {#first-steps} ##", "Premiers pas", "first-steps"),
        ("Premiers pas {.note}", "Premiers pas", "premiers-pas"),
        ("Premiers pas {#_a_b_}", "Premiers pas", "_a_b_"),
        ("Premiers pas {note}", "Premiers pas {note}", "premiers-pas-note"),
        ("Code `{#x}`", "Code {#x}", "code-x"),
        ("Vide {#}", "Vide {#}", "vide-"),
        ("__init__ {#__init__}", "init", "__init__"),
        ("GET /users/{id}", "GET /users/{id}", "get-usersid"),
        (r"Protégé \{#x}", "Protégé {#x}", "protégé-x"),
    ],
)
def test_explicit_id_wins_and_leaves_the_title(heading: str, text: str, anchor: str) -> None:
    """AN-09: an attribute list is an instruction, not text."""
    (chunk,) = chunks_of(f"## {heading}\n")
    assert (chunk.heading_path, chunk.anchor) == ((text,), anchor)


def test_no_slug_takes_an_explicit_id() -> None:
    """The author's own id keeps its name wherever it stands; a second use of it is numbered."""
    assert anchors_of("## X\n## Y {#x}\n## Z {#x}\n") == ["x-1", "x", "x-2"]


def test_headings_that_open_no_section_count_in_the_numbering() -> None:
    """Renderers number H4 and quoted headings too."""
    assert anchors_of("## A\n#### B\n> ## B\n\n## B\n") == ["a", "b-2"]


def test_setext_headings_open_sections() -> None:
    """AN-11: underlined headings are headings."""
    chunks = chunks_of("Titre\n=====\n\nSous-titre\n----------\n\ntexte\n")
    assert [c.heading_path for c in chunks] == [("Titre",), ("Titre", "Sous-titre")]
    assert [c.anchor for c in chunks] == ["titre", "sous-titre"]


@pytest.mark.parametrize(
    "between",
    [
        "```sh\n# pas un titre\nls\n```",
        "~~~\n# non\n```\n# non\n~~~",
        "````\n```\n# non\n```\n# non\n````",
        "    # non",
        "<!--\n# non\n\n# non\n-->",
        "<pre>\n# non\n</pre>",
        "- x\n\n  # non",
        "> # non",
        "#non",
        "texte\n\\# non",
    ],
)
def test_only_real_headings_open_sections(between: str) -> None:
    """AN-13: not those in fences, comments, HTML, lists or quotations."""
    assert anchors_of(f"# A\n\n{between}\n\n## B\n") == ["a", "b"]


def test_heading_without_text_opens_nothing() -> None:
    """There is nothing to cite it by."""
    assert anchors_of("# A\n\n##\n\ntexte\n") == ["a"]


@given(WORDS)
def test_github_numbering_is_that_of_github_slugger(words: list[str]) -> None:
    """The rule written again, from its description: count per wanted slug until one is free."""
    occurrences: dict[str, int] = {}

    def slug(word: str) -> str:
        wanted = result = github_slug(word) if word not in ("", "🚀") else "section"
        while result in occurrences:
            occurrences[wanted] += 1
            result = f"{wanted}-{occurrences[wanted]}"
        occurrences[result] = 0
        return result

    headings = [Heading(1, word or "!", word, "") for word in words]
    assert anchors(headings, "github") == [slug(word) for word in words]


@given(WORDS)
def test_mkdocs_numbering_is_that_of_python_markdown(words: list[str]) -> None:
    """The rule written again: count on from a number that is there, until one is free."""
    used: set[str] = set()

    def unique(slug: str) -> str:
        while slug in used or not slug:
            base, _, number = slug.rpartition("_")
            slug = f"{base}_{int(number) + 1}" if number.isdecimal() and _ else f"{slug}_1"
        used.add(slug)
        return slug

    headings = [Heading(1, word or "!", word, "") for word in words]
    assert anchors(headings, "mkdocs") == [unique(mkdocs_slug(word)) for word in words]


@given(
    st.lists(st.tuples(st.text(max_size=5), st.sampled_from(["", "", "x", "a-1"])), max_size=30),
    st.sampled_from(["github", "mkdocs", "gitlab", "bookstack"]),
)
def test_anchors_are_unique_and_never_empty(pairs: list[tuple[str, str]], style: str) -> None:
    """Whatever the headings say."""
    found = anchors([Heading(2, text or "x", text, own) for text, own in pairs], style)  # type: ignore[arg-type]
    assert len(set(found)) == len(found)
    assert all(found)


def test_github_rule_keeps_the_characters_that_github_slugger_keeps() -> None:
    """Over every character of Unicode 3.2, against a hash of what github-slugger 2.0.0 keeps."""
    kept = [
        point
        for point in range(0x110000)
        if not 0xD800 <= point < 0xE000
        and unicodedata.ucd_3_2_0.category(chr(point)) != "Cn"
        and unicodedata.is_normalized("NFC", chr(point))
        and github_slug(chr(point)) not in ("", "-")
    ]
    digest = hashlib.sha256(",".join(map(str, kept)).encode()).hexdigest()
    assert (len(kept), digest[:16]) == (KEPT_COUNT, KEPT_DIGEST)


KEPT_COUNT, KEPT_DIGEST = 89_991, "4ad7247c39967b16"


def test_a_flood_of_like_headings_is_numbered_in_linear_time() -> None:
    """10,000 equal ones, and 10,000 that already look numbered."""
    started = time.monotonic()
    words = ["a"] * 10_000 + [f"a_{n}" for n in range(10_000)] + [f"a-{n}" for n in range(10_000)]
    for style in ("github", "mkdocs", "gitlab", "bookstack"):
        found = anchors([Heading(1, word, word, "") for word in words], style)  # type: ignore[arg-type]
        assert len(set(found)) == len(words)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("slug_of", [github_slug, mkdocs_slug, gitlab_slug])
def test_slugs_hold_only_letters_digits_hyphens_and_marks(slug_of: object) -> None:
    """AN-15: nothing that has to be escaped in a link."""
    slug = slug_of("a:b/c?d#e&f=g%h\t\u00a0i\u200bj\"'<k>|l")  # type: ignore[operator]
    assert set(slug) <= set("abcdefghijkl-")

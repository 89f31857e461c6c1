"""Markdown cleaned: hidden things go, visible words and true lines stay."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_assets.documents.cleaning import Cleaned, clean_markdown

FIXED = [
    # comments
    ("mot<!-- c -->mot\n", "mot mot\n"),
    ("mot <!-- c -->, mot\n", "mot , mot\n"),
    ("avant\n<!-- c\nd -->\naprès\n", "avant\n\n\naprès\n"),
    ("| a <!-- c --> | b |\n|--|--|\n", "| a  | b |\n|--|--|\n"),
    ("<!DOCTYPE html>\n<?php x ?>\ntexte\n", "\n\ntexte\n"),
    # hidden elements
    ("a <span hidden>x *y* `z`</span> b\n", "a  b\n"),
    ("<div style='display:none'>\n\nx\n\n```\ny\n```\n\n</div>\n\nb\n", "\n" * 10 + "b\n"),
    ("a <b style='opacity:0'>x</b>, b\n", "a , b\n"),
    ("- a <u-x hidden>x\n- b</u-x>\n", "- a \n- b</u-x>\n"),
    ("- a <span hidden>x\n- b</span>\n", "- a \n- b\n"),
    ("- a <b hidden>x\n- x</b> b\n", "- a \n b\n"),
    ("<div hidden>\n\nsans fin\n", "\n\n\n"),
    ("<style>.x{display:none}</style>\n\n<p class=x>y</p>\n\n<b class=x>y</b> z\n", "\n\n\n\n z\n"),
    ("a <script>x</script>b\n", "a b\n"),
    # tags within a line
    ("un <b>mot</b> <code>a_b</code> <kbd>C</kbd>\n", "un mot `a_b` `C`\n"),
    ("un <code>a`b</code>\n", "un a`b\n"),
    ("x<sup>2</sup> 1<sup>er</sup> H<sub>2</sub>O\n", "x^2 1er H2O\n"),
    ("a<br>b<br/>\nc\n", "a b\nc\n"),
    ("| a<br>b | c |\n|--|--|\n", "| a b | c |\n|--|--|\n"),
    ("<a href='u v'>lien</a> <a href=u>sans fin\n", "[lien](u%20v) sans fin\n"),
    ("<a href=u><img src=i alt='a]b'></a> x\n", "[![a\\]b](i)](u) x\n"),
    ("<a href=u>[lien](v)</a> x\n", "[lien](v) x\n"),
    ("# <a name=x></a>Titre\n", "# Titre\n"),
    ("# Titre {#x}\n", "# Titre {#x}\n"),
    ("<abbr title='Région'>R</abbr>, <abbr title=x>O</abbr>s\n", "R (Région), Os\n"),
    ("x <img src=t.gif width=1 height=1 alt=t> y\n", "x  y\n"),
    # blocks of HTML
    ("<h2 id=a>Titre</h2>\n\ntexte\n", "## Titre {#a}\n\ntexte\n"),
    ("<p align=center>\n  <b>mot</b>\n</p>\n\ntexte\n", "\n**mot**\n\n\ntexte\n"),
    ("<details>\n<summary>S</summary>\n\n**a**\n\n</details>\n", "\n**S**\n\n**a**\n\n\n"),
    ("<ul>\n<li>a</li>\n<li>b</li>\n</ul>\n", "\n- a\n- b\n\n"),
    ("<table>\n<tr><td>a\n\n<tr><td>b\n</table>\n", "\n| a |\n| --- |\n| b |\n\n"),
    ("> <div>\n> a\n> </div>\n> b\n", "> \n> a\n>\n> b\n"),
    ("<div markdown>\n- a\n- <b>b</b>\n</div>\n", "\n- a\n- b\n\n"),
    ("texte\n<div>a</div>\n", "texte\n\na\n"),
    ("!!! note\n\n    a <!-- c --> b\n\n    <div hidden>x</div>\n", None),
    ('=== "Onglet"\n\n    ```\n    <b>\n    ```\n', None),
    # addresses
    ("[a](javascript:b) [a](<JaVaScRiPt:b> 't') [a][r] <javascript:b>\n\n[r]: data:x\n", None),
    ("[a](java&#115;cript:b) [a](javascript\\:b)\n", "a a\n"),
    ("![a](data:image/png;base64,x) ![b](https://t/?q={c})\n", "a b\n"),
    ("[](u) [ ](u) [![](i)](u)\n", "  [![](i)](u)\n"),
    ("[a](/u?utm_source=x&b=1 't')\n\n[r]: /u?fbclid=x\n", "[a](/u?b=1 't')\n\n[r]: /u\n"),
    # references and invisible characters
    ("caf&eacute; &amp; &lt;b&gt; &#60;&#x62;>\n", "café &amp; &lt;b&gt; &#60;b>\n"),
    ("ig&#8203;no&shy;re\n", "ignore\n"),
    ("<sp\u200ban hidden>x</span> a\n", " a\n"),
    ("[a](java\u200bscript:b)\n", "a\n"),
    ("<<b>script>x</<b></b>script> a\n", " a\n"),
]


@pytest.mark.parametrize(("text", "clean"), FIXED)
def test_html_in_markdown_is_cleaned(text: str, clean: str | None) -> None:
    """Blocks and tags within lines, with the Markdown around them left as it was."""
    cleaned = clean_markdown(text)
    if clean is not None:
        assert cleaned.text == clean
    assert clean_markdown(cleaned.text) == Cleaned(cleaned.text, (), {})


def test_addresses_leave_nothing_behind() -> None:
    """In links, definitions and autolinks; the words of links stay."""
    text = "[a](javascript:b) [a](<JaVaScRiPt:b> 't') [a][r] <javascript:b>\n\n[r]: data:x\n"
    assert clean_markdown(text).text.split() == ["a", "a", "a"]


def test_admonitions_and_tabs_are_cleaned_inside() -> None:
    """MkDocs shows what CommonMark takes for code; the code in it is code."""
    text = (
        "!!! n\n\n    a <!-- c --> b\n\n    <p hidden>x</p>\n\n    ```\n    <!-- c -->\n    ```\n"
    )
    assert clean_markdown(text).text == (
        "!!! n\n\n    a  b\n\n    \n\n    ```\n    <!-- c -->\n    ```\n"
    )


UNTOUCHED = [
    "",
    "texte sans rien\n",
    "a < b, a <b, 1<2 et 3>2, x <- y, <- , <3, <=, <>\n",
    "List<String>, Map<String, List<T>> et <T> ou <votre nom> et <your-token>\n",
    "Optional<Object> et List<Template>\n",
    "l'élément <title> et la balise <script>\n",
    "<https://exemple.fr/?a=b> <moi@exemple.fr>\n",
    "```html\n<!-- c --><div hidden>x</div>\n[a](javascript:b)\n```\n",
    "    <!-- code -->\n\n`<b hidden>`\n",
    '{{< figure src="a" >}} {{<highlight go>}} {{% b %}} {% if a < b %}\n',
    "??? note\n    texte\n\n:::tip\na\n:::\n",
    "# Titre {#id}\n\n[a](u) ![b](i \"t\")\n\n[r]: u 't'\n",
    "[^1]: note & co\n\nA&B R&D ?a=1&b=2 &amp; &lt;b&gt; &nope\n",
    "l’été\u00a0! «\u202foui\u202f» 👨\u200d👩\u200d👧\r\nfin\r\n",
    "a\\\nb  \nc\n\n---\n\n| a | b |\n|---|---|\n",
    "data: des données, file: un fichier, javascript: un langage\n",
    "$a < b$ et $$x<y$$\n",
    "\\<b> et \\<!-- a -->\n",
]


@pytest.mark.parametrize("text", UNTOUCHED)
def test_what_is_not_html_is_not_touched(text: str) -> None:
    """Byte for byte."""
    assert clean_markdown(text) == Cleaned(text, (), {})


def test_a_plain_text_is_returned_itself_at_once() -> None:
    """10 KB of Markdown without HTML take much less than 0.2 ms."""
    text = "# Titre\n\nUn [lien](https://exemple.fr) et *du* texte, l’été.\n\n" * 160
    clean_markdown(text)
    started = time.perf_counter()
    for _ in range(20):
        assert clean_markdown(text).text is text
    assert (time.perf_counter() - started) / 20 < 0.002


def test_removals_are_counted_by_kind() -> None:
    """For the ledger and the metadata of a run."""
    text = (
        "a\u200b <!-- c --> <b hidden>x</b> [l](javascript:x) ![i](data:x) [t](u?gclid=1)\n\n"
        "<script>x</script>\n\n<img src=p width=1>\n\n<iframe src=x></iframe>\n"
    )
    assert clean_markdown(text).removed == {
        "zero_width": 1,
        "comment": 1,
        "hidden": 1,
        "link": 1,
        "image": 1,
        "tracker": 2,
        "script": 1,
        "embed": 1,
    }


def test_lines_stay_true_where_their_number_changes() -> None:
    """Each line of the result names the line it came from, and words are found on theirs."""
    text = (
        "un\n<!-- x\ny\nz --> deux <!-- a\nb\nc --> trois\n\n<table><tr><td>quatre</td></tr>\n"
        "<tr><td>cinq</td></tr>\n</table>\n\nsix\n<h2>sept</h2><p>huit</p>\n\nneuf\n"
    )
    cleaned = clean_markdown(text)
    assert cleaned.lines
    originals = text.split("\n")
    for line, number in zip(cleaned.text.split("\n"), cleaned.lines, strict=True):
        for word in re.findall(r"\w+", line):
            assert word in originals[number - 1]
    assert list(cleaned.lines) == sorted(cleaned.lines)


def test_line_ends_become_one_kind_only_when_something_changed() -> None:
    """The lines themselves stay."""
    assert clean_markdown("a\r\n<!-- c -->\r\nb\r").text == "a\n\nb\n"
    assert clean_markdown("a\r\n<T>\r\nb\r").text == "a\r\n<T>\r\nb\r"


PARTS = st.sampled_from(
    [
        "mot ", "été", "a", "\n", "\n\n", "  ", "    ", "- ", "> ", "1. ", "# ", "`", "```\n", "*",
        "_", "|", "|--|\n", "[", "](u)", "](javascript:x)", "][r]", "[r]: data:x\n", "<b>", "</b>",
        "<b hidden>", "<div>", "</div>", "<div hidden>\n", "<p>", "</p>", "<br>", "<a href=u>",
        "</a>", "<a name=x>", "<img src=i alt=a>", "<table><tr><td>", "</table>\n", "<ul><li>",
        "<pre>", "</pre>", "<script>", "</script>", "<!--", "-->", "<![CDATA[", "]]>", "<?", "?>",
        "<T>", "<", ">", "&lt;", "&eacute;", "&#8203;", "\u200b", "\\", "<https://x.y>", "{#id}",
        "{{<x>}}", "<sup>", "<code>", "</code>", "!!! n\n\n", "<span\n", "style='color:#fff'>",
        "<h2 id=a>", "</h2>", "<style>b{display:none}</style>", "<title>", "<svg>", "</svg>", "=",
    ]
)  # fmt: skip
MARKDOWN = st.lists(PARTS, max_size=25).map("".join)


@given(MARKDOWN)
@settings(deadline=None, max_examples=200)
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    """It cannot hold only where tags are made of tags deeper than ``MAX_PASSES``."""
    cleaned = clean_markdown(text)
    lines = cleaned.lines or range(1, text.count("\n") + 2)
    assert len(lines) == cleaned.text.count("\n") + 1
    assert list(lines) == sorted(lines)
    assert lines[-1] <= text.count("\n") + 1
    assert clean_markdown(cleaned.text).text == cleaned.text


WORDS = st.sampled_from(
    ["alpha ", "bêta ", "gamma\n", "delta\n\n", "- ", "> ", "# ", "`e` ", "*f* "]
)
HARMLESS = st.sampled_from(
    ["<b>", "</b>", "<br>", "<div>\n", "</div>\n\n", "<p>", "</p>", "<i>x</i>", "<ul><li>",
     "</ul>\n", "<details>", "</details>\n\n", "<!-- z -->", "<T>", "<x y=z>", "</x>", "<span>",
     "</span>", "<a href=u>", "</a>", "<hr>", "<blockquote>", "</blockquote>\n\n", "<code>"]
)  # fmt: skip
ON_ONE_LINE = st.sampled_from(["<table><tr><td>", "</table>\n\n", "<h3>", "</h3>", "<dl><dt>"])
"""What they hold is one line of Markdown, however many lines it had."""
WANTED = re.compile("alpha|bêta|gamma|delta")


@given(st.lists(WORDS | HARMLESS | ON_ONE_LINE, max_size=30).map("".join))
@settings(deadline=None, max_examples=200)
def test_no_visible_word_is_lost(text: str) -> None:
    """Of a text in which nothing is hidden all words are there."""
    assert sorted(WANTED.findall(clean_markdown(text).text)) == sorted(WANTED.findall(text))


@given(st.lists(WORDS | HARMLESS, max_size=30).map("".join))
@settings(deadline=None, max_examples=200)
def test_words_are_on_the_lines_that_are_told(text: str) -> None:
    """A citation of a cleaned document opens the file where the words stand."""
    cleaned = clean_markdown(text)
    lines = cleaned.lines or range(1, text.count("\n") + 2)
    before = [
        (word, number)
        for number, line in enumerate(text.split("\n"), start=1)
        for word in WANTED.findall(line)
    ]
    after = [
        (word, number)
        for number, line in zip(lines, cleaned.text.split("\n"), strict=True)
        for word in WANTED.findall(line)
    ]
    assert sorted(after) == sorted(before)


HOSTILE = {
    "nested div": "<div>" * 50_000,
    "div on lines": "<div>\n" * 50_000,
    "div apart": "<div>\n\n" * 20_000,
    "inline": "x <b>" * 30_000,
    "brackets": "[" * 50_000,
    "nested pictures": "![" * 20_000 + "](x)" * 20_000,
    "one line": "mot " * 2_500_000,
    "one line with a tag": "mot " * 2_500_000 + "<b>x",
    "comments left open": "a <!-- " * 30_000,
    "sections left open": "a <![CDATA[ " * 20_000,
    "quotes left open": '<a b="' * 30_000,
    "references": "&eacute;" * 30_000,
    "reference of digits": "&#" + "9" * 50_000 + ";",
    "links": "[a](javascript:x) " * 10_000,
    "definitions": "[a]: javascript:x\n" * 10_000,
    "quoted": "> <div>\n" * 20_000,
    "admonitions": "!!! n\n\n    <b>x</b>\n\n" * 6_000,
    "tags of tags": "<" * 30_000 + "b>" * 30_000,
    "preformatted": "<pre>\n" * 30_000,
    "sheets": "<style>.a{display:none}</style>\n\n" * 5_000,
    "table": "<table>\n" + "<tr><td>a</td></tr>\n" * 6_000,
    "zero width": "a\u200b" * 200_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_takes_bounded_time(text: str) -> None:
    """Each takes less than 2 s on an idle core."""
    started = time.process_time()
    cleaned = clean_markdown(text)
    assert time.process_time() - started < 6
    assert not cleaned.lines or len(cleaned.lines) == cleaned.text.count("\n") + 1


MEASURE = """
import pathlib
from rag_assets.documents.cleaning import clean_markdown
from rag_assets.documents.html import html_to_markdown
text = {part!r} * (250_000 // len({part!r}))
clean_markdown(text), html_to_markdown(text)
status = pathlib.Path("/proc/self/status").read_text()
print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("part", ["<p>a", "<pre>\n"])
def test_hostile_text_takes_bounded_memory(part: str) -> None:
    """Kilobytes; the converter alone would take 120 MB for some of these."""
    found = subprocess.run(
        [sys.executable, "-c", MEASURE.format(part=part)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert int(found.stdout) < 100 * 1024

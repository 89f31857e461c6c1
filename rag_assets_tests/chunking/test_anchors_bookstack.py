"""BookStack's own ids: what its PHP makes of a heading, and which ids are taken as they are."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_assets.chunking.anchors import anchors, bookstack_slug
from rag_assets.markdown import Heading
from rag_assets_tests.chunking.documents import anchors_of, chunks_of

PHP = r"""
$out = [];
foreach (json_decode(stream_get_contents(STDIN)) as $text) {
    $plain = strtolower(preg_replace('/\s+/', '-', trim($text)));
    $out[] = urlencode('bkmrk-' . mb_substr($plain, 0, 20));
}
echo json_encode($out);
"""
"""The string functions by which BookStack makes an id of the text of an element."""


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("Installer à Nîmes", "bkmrk-installer-%C3%A0-n%C3%AEmes"),
        ("ÉTÉ & l'hiver", "bkmrk-%C3%89t%C3%89-%26-l%27hiver"),
        ("  Two   spaces\tand\nline  ", "bkmrk-two-spaces-and-line"),
        (
            "日本語 の 見出しです。とても長い見出しの例",
            "bkmrk-%E6%97%A5%E6%9C%AC%E8%AA%9E-%E3%81%AE-%E8%A6%8B%E5%87%BA%E3%81%97%E3%81%A7"
            "%E3%81%99%E3%80%82%E3%81%A8%E3%81%A6%E3%82%82%E9%95%B7%E3%81%84%E8%A6%8B%E5%87%BA"
            "%E3%81%97",
        ),
        ("a\u00a0b", "bkmrk-a%C2%A0b"),
        ("C++ / C# (v2) ~x_-.", "bkmrk-c%2B%2B-%2F-c%23-%28v2%29-%7Ex_-."),
        ("🚀 Go", "bkmrk-%F0%9F%9A%80-go"),
        ("İstanbul", "bkmrk-%C4%B0stanbul"),
        ("\u00a0", "bkmrk-%C2%A0"),
        ("ABCDEFGHIJKLMNOPQRS Tuvwx", "bkmrk-abcdefghijklmnopqrs-"),
        ("", "bkmrk-"),
        ("This is my cool page", "bkmrk-this-is-my-cool-page"),
    ],
)
def test_ids_are_those_that_php_makes(text: str, slug: str) -> None:
    """A table of what the same functions gave under PHP 8.2."""
    assert bookstack_slug(text) == slug


@pytest.mark.skipif(shutil.which("php") is None, reason="needs php-cli with mbstring")
def test_any_text_gets_the_id_that_php_gives_it() -> None:
    """The same functions run by PHP itself, over every character below U+3100 and some others."""
    points = [*range(0x3100), *range(0xFE00, 0xFF00), *range(0x1F600, 0x1F650)]
    texts = [f" a{chr(point)}\u00c9 {chr(point)}b" for point in points]
    texts += ["é" * n + " " * (n % 3) + "Z" * n for n in range(30)]
    loaded = subprocess.run(
        ["php", "-r", "exit(function_exists('mb_substr') ? 0 : 1);"], check=False
    )
    if loaded.returncode:
        pytest.skip("php has no mbstring")
    answer = subprocess.run(
        ["php", "-r", PHP], input=json.dumps(texts).encode(), capture_output=True, check=True
    )
    assert list(map(bookstack_slug, texts)) == json.loads(answer.stdout)


def test_repeated_headings_are_numbered() -> None:
    """Also such as differ after the twentieth character only."""
    body = (
        "# Guide\n## Installer\n## Installer\n## Installation du serveur principal\n"
        "## Installation du serveur de secours\n## Installer\n"
    )
    assert anchors_of(body, "bookstack") == [
        "bkmrk-guide",
        "bkmrk-installer",
        "bkmrk-installer-1",
        "bkmrk-installation-du-serv",
        "bkmrk-installation-du-serv-1",
        "bkmrk-installer-2",
    ]


def test_only_ids_of_bookstack_are_taken() -> None:
    """Its HTML carries them; ``{#id}`` in its Markdown is text that it shows."""
    assert anchors_of("## Été {#bkmrk-%C3%89t%C3%A9}\n", "bookstack") == ["bkmrk-%C3%89t%C3%A9"]
    assert anchors_of("## Start {#x}\n", "bookstack") == ["bkmrk-start-%7B%23x%7D"]
    assert anchors_of("## A\n## B {#bkmrk-a}\n", "bookstack") == ["bkmrk-a-1", "bkmrk-a"]


def test_markup_is_no_part_of_an_id() -> None:
    """The id is made of the text that is shown."""
    (chunk,) = chunks_of("## Lancer `make all` **vite** ![x](y)\n", anchor_style="bookstack")
    assert chunk.anchor == "bkmrk-lancer-make-all-vite"


@given(st.lists(st.sampled_from(["a", "a-1", "a 1", "A", "b", "a" * 20, "a" * 21]), max_size=20))
def test_numbering_is_the_first_that_is_free(words: list[str]) -> None:
    """The rule written again, from its description."""
    used: set[str] = set()
    expected = []
    for word in words:
        slug = wanted = bookstack_slug(word)
        number = 0
        while slug in used:
            number += 1
            slug = f"{wanted}-{number}"
        used.add(slug)
        expected.append(slug)
    headings = [Heading(1, word, word, "") for word in words]
    assert anchors(headings, "bookstack") == expected

"""The language of a document: stated, configured, or read from its text."""

from __future__ import annotations

import pytest

from rag_assets.documents.parse import parse_document
from rag_assets.models import Document
from rag_assets_tests.documents.files import source_file

FRENCH = "Avant de commencer, vérifiez que le service est bien démarré et que vous y avez accès.\n"
ENGLISH = "Before you begin, make sure that the service is running and that you have access.\n"


def language(text: str, configured: str | None = None) -> str:
    """The language of a file with that text."""
    document = parse_document(source_file(text.encode()), language=configured)
    assert isinstance(document, Document)
    return document.language


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("lang: en", "en"),
        ("language: en-GB", "en"),
        ("Locale: en_US.UTF-8", "en"),
        ("LANG: EN", "en"),
        ("lang: nonsense", "fr"),
        ("language: php", "fr"),
        ("lang: [en]", "fr"),
        ("lang:", "fr"),
        ("lang: ''\nlocale: en", "en"),
        ("lang: de\nlanguage: en", "de"),
        ("title: en", "fr"),
    ],
)
def test_front_matter_says_the_language(line: str, expected: str) -> None:
    """A tag under lang, language or locale wins over the text; what is no tag does not count."""
    assert language(f"---\n{line}\n---\n{FRENCH}") == expected


def test_the_configured_language_comes_before_the_text() -> None:
    """Front matter, then the source's setting, then the text."""
    assert language(ENGLISH) == "en"
    assert language(ENGLISH, "fr-CA") == "fr"
    assert language(f"---\nlang: de\n---\n{ENGLISH}", "fr") == "de"


def test_front_matter_has_no_say_in_detection() -> None:
    """Only the body is looked at."""
    assert language(f"---\ndescription: the quick brown fox and the dog\n---\n{FRENCH}") == "fr"


@pytest.mark.parametrize("text", ["# API\n", "```\nlet the_value = of_that;\n```\n", "42\n"])
def test_no_prose_no_language(text: str) -> None:
    """In doubt the language is empty."""
    assert language(text) == ""

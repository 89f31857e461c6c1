"""The title of a document: front matter, first H1, or the file's name."""

from __future__ import annotations

import pytest

from rag_assets_tests.documents.files import parsed


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("---\ntitle: Été\n---\n# Autre\n", "Été"),
        ("---\nTitle: Été\n---\n# Autre\n", "Été"),
        ("---\ntitle:\n---\n# Autre\n", "Autre"),
        ("---\ntitle: [a]\n---\n# Autre\n", "Autre"),
        ("## Deux\n\n# Un `code` [lien](x) {#id}\n", "Un code lien"),
        ("Titre\n=====\n", "Titre"),
        ("```\n# commentaire\n```\n\n> # cité\n\ntexte\n", "page"),
        ("<!--\n# caché\n-->\n\n# Vu\n", "Vu"),
        ("# \n\ntexte\n", "page"),
        ("#sans espace\n", "page"),
        ('---\ntitle: "a\\tb\\u0007  c\\nd"\n---\nx', "a b c d"),
    ],
)
def test_title_is_found(text: str, title: str) -> None:
    """The first source that has text wins; the title is one line without control characters."""
    assert parsed(text).title == title


def test_a_title_of_a_megabyte_is_cut_with_a_warning() -> None:
    """Titles are repeated above every passage, so they stay short."""
    document = parsed("# " + "mot " * 250_000 + "\n\ntexte\n")
    assert len(document.title) <= 500
    assert any("cut to" in warning for warning in document.warnings)

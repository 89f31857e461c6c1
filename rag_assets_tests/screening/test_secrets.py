"""Secrets are found in every format and phrasing; samples, variables and prose are left alone."""

from __future__ import annotations

import pytest

from rag_assets.screening import screen
from rag_assets_tests.screening.near_misses import NOT_SECRETS
from rag_assets_tests.screening.secret_samples import (
    FORMATS,
    PHRASINGS,
    Draw,
    WithSecret,
    secret_documents,
)

LEAST_FOUND = 0.95


def _secrets(text: str) -> list[int]:
    return sorted({finding.line for finding in screen(text, kinds=["secret"])})


@pytest.fixture(scope="module")
def documents() -> list[WithSecret]:
    return list(secret_documents())


@pytest.mark.parametrize("held_out", [False, True])
def test_secrets_are_found(documents: list[WithSecret], held_out: bool) -> None:
    """At least 95 % of the documents used for tuning, and of those that were not."""
    chosen = [d for d in documents if d.held_out == held_out]
    found = sum(bool(_secrets(document.text)) for document in chosen)
    assert len(chosen) > 200
    assert found >= LEAST_FOUND * len(chosen), f"{found} of {len(chosen)}"


@pytest.mark.parametrize("kind", FORMATS)
def test_format_is_found(kind: str) -> None:
    """Each format that a service hands out, with other values than the documents above."""
    draw = Draw(99)
    values = [FORMATS[kind](draw) for _ in range(5)]
    assert sum(bool(_secrets(f"Texte.\n\n{value}\n")) for value in values) >= 4


@pytest.mark.parametrize("phrasing", PHRASINGS)
def test_phrasing_is_found(phrasing: str) -> None:
    """Each way people write a password down, for four of five passwords."""
    draw = Draw(5)
    found = 0
    for _ in range(5):
        password = draw.password()
        text = phrasing.format(p=password, k=draw.key(), p_quoted=f"« {password} »")
        found += bool(_secrets(f"# Accès\n\n{text}\n"))
    assert found >= 4


@pytest.mark.parametrize("text", NOT_SECRETS)
def test_near_miss_is_no_secret(text: str) -> None:
    """Documentation names passwords and keys all the time without holding any."""
    assert _secrets(f"# Guide\n\n{text}\n\nSuite.\n") == []


def test_row_of_a_table_is_named_by_its_line() -> None:
    """In Markdown and in CSV, each row with a password, and none below the table."""
    rows = "| a | Xk92plop |\n| b | `<voir>` |\n| c | aB7!xyzzy |"
    rows = f"| Compte | Mot de passe |\n|---|---|\n{rows}"
    assert _secrets(f"Texte.\n\n{rows}\n\nXk92plop | d\n") == [5, 7]
    assert _secrets("user;password\nann;Xk92plop\nbob;aB7xyzzy\n") == [2, 3]


def test_secret_in_a_comment_or_an_attribute_is_found() -> None:
    """What a renderer does not show is in the file all the same."""
    token = FORMATS["github classic"](Draw(3))
    assert _secrets(f"a\n\n<!--{token}-->\n") == [3]
    assert _secrets(f'a\n<div data-token="{token}">b</div>') == [2]
    assert _secrets(f"a\n[ignore](https://example.com/?x={token})") == [2]


def test_secret_of_invisible_characters_is_found() -> None:
    """A hidden message is screened for secrets like the text."""
    token = FORMATS["github classic"](Draw(4))
    assert screen("a\nb", kinds=["secret"], hidden=[token])[0].line == 1


@pytest.mark.parametrize(
    "password", ["Where2026!kX", "Coherence2026!", "Kx7token92Qz", "tbdXk93!vvQ", "Winter2026!"]
)
def test_a_password_that_holds_a_word_by_chance_is_found(password: str) -> None:
    """Words that stand for a secret count only where they are most of it."""
    assert screen(f"Mot de passe : {password}\n", kinds=["secret"])


@pytest.mark.parametrize("sample", ["token", "random-string", "demo", "secret", "sample_token"])
def test_a_word_in_the_place_of_a_password_is_none(sample: str) -> None:
    """Documentation writes them."""
    assert not screen(f"password: {sample}\n", kinds=["secret"])

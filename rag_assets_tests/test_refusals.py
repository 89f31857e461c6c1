"""A server's words, made fit for a log."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_assets.refusals import LONGEST_EXCERPT, excerpt


@given(st.binary(max_size=2000), st.lists(st.text(max_size=60), max_size=4))
def test_excerpt_is_short_and_printable(body: bytes, texts: list[str]) -> None:
    """Any bytes give one printable line of bounded length."""
    words = excerpt(body, texts)
    assert len(words) <= LONGEST_EXCERPT
    assert words.isprintable()


@given(
    st.text("abcdefghij éàü'.", min_size=20, max_size=80).filter(lambda t: len(t.split()) > 1),
    st.sampled_from(["{}", '{{"detail": {!r}}}', "bad value: {} (in field 3)", "<{}>"]),
)
def test_no_long_part_of_a_text_comes_back(text: str, frame: str) -> None:
    """However the server quotes it, no run of 16 characters of a text remains."""
    words = excerpt(frame.format(text).encode(), [text])
    flat = " ".join(text.split())
    assert not any(
        flat[i : i + 16] in words for i in range(max(1, len(flat) - 15)) if len(flat) > 15
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"detail": "too long"}', "too long"),
        ('{"detail": [{"loc": ["body", "texts", 0], "msg": "empty"}]}', "body.texts.0: empty"),
        ('{"detail": ["plain", {"type": "missing"}]}', "plain; missing"),
        ('{"error": {"code": 7, "message": "été"}}', '{"error": {"code": 7, "message": "été"}}'),
        ("<html><head><title> 502 Bad\nGateway </title>", "an HTML page, '502 Bad Gateway'"),
        ("<p>no title", "an HTML page"),
        ("plain\r\n\x1b[31mwords\x00", "plain [31mwords"),
        ("", ""),
    ],
)
def test_known_forms_are_read(body: str, words: str) -> None:
    """FastAPI's two forms, other JSON, HTML, plain text."""
    assert excerpt(body.encode()).replace("\\n", " ") == words


def test_fastapi_does_not_echo_its_input() -> None:
    """The ``input`` and ``ctx`` of a validation error are left out."""
    item = {"loc": ["body"], "msg": "Field required", "input": {"password": "x"}, "ctx": {"a": "b"}}
    assert excerpt(json.dumps({"detail": [item]}).encode()) == "body: Field required"


def test_short_texts_are_replaced_whole() -> None:
    """A question of one word is not shown either."""
    assert excerpt(b"cannot embed 'licenciement'", ["licenciement"]) == "cannot embed '[text]'"


def test_secrets_are_replaced() -> None:
    """A server that quotes the key it was given."""
    assert excerpt(b"key sk-12345 is unknown", (), ["sk-12345"]) == "key [secret] is unknown"

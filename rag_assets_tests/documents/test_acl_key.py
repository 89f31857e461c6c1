"""Who may read a document: read beyond doubt, or the document is not published."""

from __future__ import annotations

import pytest

from rag_assets_tests.documents.files import left_out, parsed


@pytest.mark.parametrize(
    ("value", "tags"),
    [
        ("service:hr", ("service:hr",)),
        ("service:hr, admin_only", ("admin_only", "service:hr")),
        ('"service:hr"', ("service:hr",)),
        ("'a,b'  # note", ("a", "b")),
        ("mot-inconnu", ("mot-inconnu",)),
        ("no", ("no",)),
        ("1.10", ("1.10",)),
    ],
)
def test_tags_are_a_scalar_of_words(value: str, tags: tuple[str, ...]) -> None:
    """One word or several behind commas; an unknown word is a tag that few callers name."""
    assert parsed(f"---\nacl: {value}\n---\ntexte").acl_tags == tags


def test_without_an_acl_key_the_source_decides() -> None:
    """ACL-05: a missing key is its own case."""
    assert parsed("---\ntitle: T\n---\ntexte", acl_tags=("x",)).acl_tags == ("x",)


@pytest.mark.parametrize(
    ("source", "own", "tags"),
    [
        (("public",), "service:hr", ("service:hr",)),
        (("service:hr",), "public", ("service:hr",)),
        (("service:hr",), "service:it", ()),
        ((), "public", ()),
    ],
)
def test_front_matter_never_opens_what_the_source_closes(
    source: tuple[str, ...], own: str, tags: tuple[str, ...]
) -> None:
    """The stricter of the two readings wins."""
    assert parsed(f"---\nacl: {own}\n---\ntexte", acl_tags=source).acl_tags == tags


UNREADABLE = {
    "empty": "acl:",
    "null": "acl: null",
    "tilde": "acl: ~",
    "empty-string": "acl: ''",
    "empty-list": "acl: []",
    "flow-list": "acl: [service:hr]",
    "block-list": "acl:\n  - service:hr",
    "flush-list": "acl:\n- service:hr",
    "mapping": "acl: {tags: service:hr}",
    "block-scalar": "acl: |\n  service:hr",
    "two-lines": "acl: service:hr\n  public",
    "twice": "acl: service:hr\nacl: public",
    "twice-in-two-cases": "acl: service:hr\nACL: public",
    "merge-key": "base: &b\n  acl: service:hr\n<<: *b",
    "merge-key-flow": "<<: {acl: service:hr}",
    "alias": "x: &a service:hr\nacl: *a",
    "tagged": "acl: !!str service:hr",
    "quote": "acl: service'hr",
    "percent": "acl: service%",
    "wildcard": "acl: service:*",
    "space": "acl: service hr",
    "trailing-comma": "acl: service:hr,",
    "accent": "acl: santé",
    "misspelt-plural": "acls: service:hr",
    "misspelt-underscore": "acl_tags: service:hr",
    "misspelt-camel": "aclTags: service:hr",
    "misspelt-prefix": "page-acl: service:hr",
    "full-width": "ａｃｌ: service:hr",
    "cyrillic": "асl: service:hr",
    "zero-width": "a\u200bcl: service:hr",
    "nested": "droits:\n  acl: service:hr",
    "nested-flow": "droits: {acl: service:hr}",
    "in-a-list": "droits:\n  - acl: service:hr",
    "escaped": '"\\x61cl": [x]',
    "complex-key": "? [acl]\n: service:hr",
    "no-space": "acl:service:hr",
    "equals": "acl = service:hr",
    "broken-yaml-list": "title: @x\nacl: [service:hr]",
    "broken-yaml-nested": "title: @x\ny:\n  acl: service:hr",
    "broken-yaml-twice": "title: @x\nacl: a\nacl: b",
    "in-prose": "Bonjour,\nacl: service:hr",
    "one-line-json": '{"title": "x", "acl": "service:hr',
}


@pytest.mark.parametrize("block", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_an_acl_that_cannot_be_read_is_quarantined(block: str) -> None:
    """Whatever the mistake, the page is not published, and the line is named."""
    result = left_out(f"---\ntitre: x\n{block}\n---\ntexte\n")
    assert (result.status, result.reason) == ("quarantined", "acl_unreadable")
    assert result.rule_file == "guides/page.md"
    assert result.rule_line
    assert result.rule.startswith(f"line {result.rule_line}: ")


LOST = {
    "unclosed": "---\ntitle: x\nacl: service:hr\n\n# Titre\n",
    "unclosed-crlf": "---\r\ntitle: x\r\nacl: service:hr\r\ntexte\r\n",
    "closed-by-four": "---\nacl: service:hr\n----\ntexte\n",
    "closed-with-suffix": "---\nacl: service:hr\n---suite\ntexte\n",
    "closed-by-dots": "---\nacl: service:hr\n...\ntexte\n",
    "opened-by-four": "----\nacl: service:hr\n----\ntexte\n",
    "opened-by-em-dash": "—-\nacl: service:hr\n—-\ntexte\n",
    "blank-line-before": "\n---\nacl: service:hr\n---\ntexte\n",
    "space-before": " ---\nacl: service:hr\n---\ntexte\n",
    "zero-width-before": "\u200b---\nacl: service:hr\n---\ntexte\n",
    "toml": '+++\nacl = "service:hr"\n+++\ntexte\n',
    "json": '{\n  "title": "x",\n  "acl": "service:hr"\n}\n\ntexte\n',
    "json-one-line": '{"title": "x", "acl": "service:hr"}\n\ntexte\n',
    "comment": "<!--\nacl: service:hr\n-->\ntexte\n",
    "no-fences": "title: x\nacl: service:hr\n\ntexte\n",
    "too-long": "---\n" + "x: " + "a" * 70_000 + "\ny:\n  acl: service:hr\n---\ntexte\n",
}


@pytest.mark.parametrize("text", LOST.values(), ids=LOST.keys())
def test_front_matter_that_was_meant_but_is_none_does_not_publish(text: str) -> None:
    """An attempt to restrict a page that went wrong keeps the page out of the index."""
    assert left_out(text).reason == "acl_unreadable"


@pytest.mark.parametrize(
    "text",
    [
        "# ACL\n\nacl: service:hr in front matter restricts a page.\n",
        "---\ntitle: ACL\ntags: acl\n---\nacl: service:hr\n",
        "---\ntitle: x\nexemple: 'acl: service:hr'\n---\ntexte\n",
        "---\noracle: x\nmiracle: y\n---\ntexte\n",
        "The ACL: a list of who may read.\n",
        "---\n\nLes ACL de Windows\n\n---\n\n```yaml\n  tags: acl\n```\n",
        "---\ntitle: x\n# acl: service:hr\n---\ntexte\n",
    ],
)
def test_pages_that_merely_speak_of_acl_are_published(text: str) -> None:
    """Body text, values and other words are no attempt to restrict anything."""
    assert parsed(text).acl_tags == ("public",)


def test_acl_is_read_from_a_block_that_yaml_refuses() -> None:
    """A stray colon in the title does not lose the tags beside it."""
    assert parsed("---\ntitle: a : b\nacl: service:hr\n---\nx").acl_tags == ("service:hr",)

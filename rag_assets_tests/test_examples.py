"""The example handbook is what its documentation and `make demo` say it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rag_assets.chunking.markdown import MarkdownChunker
from rag_assets.config import Config, load_config
from rag_assets.documents.parse import parse_document
from rag_assets.models import Chunk, Document, SourceListing
from rag_assets.source_settings import BUILT_IN
from rag_assets.sources.markdown_tree import MarkdownTree

PROJECT = Path(__file__).parents[1]
HANDBOOK = PROJECT / "examples" / "handbook"
QUESTIONS = yaml.safe_load((PROJECT / "examples" / "golden.yaml").read_text("utf-8"))["questions"]


@pytest.fixture(scope="module")
def listing() -> SourceListing:
    """The handbook as the project's own configuration lists it."""
    return MarkdownTree("handbook", HANDBOOK).list(None)


@pytest.fixture(scope="module")
def chunks(listing: SourceListing) -> list[Chunk]:
    """Every passage of the handbook."""
    chunker = MarkdownChunker()
    found = []
    for file in listing.files:
        document = parse_document(file)
        assert isinstance(document, Document), document
        found += chunker.chunk(document)
    return found


def test_handbook_has_the_promised_number_of_pages(listing: SourceListing) -> None:
    """Fifteen to twenty-five pages are indexed."""
    assert 15 <= len(listing.files) <= 25


def test_every_way_of_being_left_out_is_shown(listing: SourceListing) -> None:
    """The handbook has a page for each reason a newcomer will meet."""
    assert {item.reason for item in listing.left_out} == {"hard_exclusion", "aiignore", "blank"}


def test_no_canary_is_indexed(chunks: list[Chunk]) -> None:
    """Words that stand only in pages that must stay out are in no passage."""
    canaries = [
        word
        for path in HANDBOOK.rglob("*.md")
        for word in re.findall(r"CANAR[YI]-[A-Z]+(?:-[A-Z]+)*", path.read_text("utf-8"))
    ]
    assert len(canaries) >= 5
    assert not [chunk for chunk in chunks for word in canaries if word in chunk.text]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: q["question"][:40])
def test_golden_answers_exist(question: dict[str, Any], chunks: list[Chunk]) -> None:
    """Every golden question names a page and a section that the index holds."""
    assert (question["path"], question["anchor"]) in {(c.path, c.anchor) for c in chunks}


def test_golden_questions_cross_languages_both_ways() -> None:
    """Some French questions are answered in English only, and the other way round."""
    pairs = [(q["language"], q["page_language"]) for q in QUESTIONS]
    assert len(pairs) >= 20
    assert pairs.count(("fr", "en")) >= 3
    assert pairs.count(("en", "fr")) >= 3


def test_root_configuration_is_valid() -> None:
    """The configuration that `make demo` and `make ui` use can be loaded."""
    config = load_config(PROJECT / "rag_assets.yaml")
    assert config.source("handbook").root == HANDBOOK


def test_readme_names_every_setting() -> None:
    """A setting that exists is explained in README.md."""
    readme = (PROJECT / "README.md").read_text("utf-8")
    keys = [key for key in _keys(Config.model_json_schema()) if key != "sources"]
    assert len(keys) > 20
    assert not [key for key in keys if f"`{key}`" not in readme]


@pytest.mark.parametrize("kind", sorted(BUILT_IN))
def test_documentation_names_every_setting_of_every_kind_of_source(kind: str) -> None:
    """A key that a source takes is explained in the README or in docs/sources.md."""
    readme = (PROJECT / "README.md").read_text("utf-8")
    sources = (PROJECT / "docs" / "sources.md").read_text("utf-8")
    table = "\n".join(line for line in sources.splitlines() if line.startswith("|"))
    documented = set(re.findall(r"`(?:sources\[\])?\.?(\w+)[^`]*`", readme + table))
    documented |= set(re.findall(r"sources\[\]\.(\w+)", readme))
    assert set(BUILT_IN[kind].model_fields) - documented == set()


def _keys(
    schema: dict[str, Any], prefix: str = "", part: dict[str, Any] | None = None
) -> list[str]:
    keys = []
    for name, value in (part or schema).get("properties", {}).items():
        reference = next(iter(re.findall(r"#/\$defs/(\w+)", str(value))), None)
        many = "[]" if value.get("type") == "array" and reference else ""
        full = f"{prefix}{name}{many}"
        nested = schema["$defs"].get(reference, {}) if reference else {}
        keys += _keys(schema, f"{full}.", nested) if nested.get("properties") else [full]
    return keys


def test_constraints_are_plain_pins() -> None:
    """constraints.txt holds name==version lines with markers, and no addresses."""
    lines = (PROJECT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    marker = r'python_version (?:<|>=) "3\.1\d"'
    pattern = re.compile(rf"[\w.-]+==[\w.]+(?: ; {marker}(?: and {marker})?)?")
    assert pins
    assert not [line for line in pins if not pattern.fullmatch(line)]

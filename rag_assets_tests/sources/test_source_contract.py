"""Sources keep the contract, and sources that break it are caught."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_assets.components import build_source
from rag_assets.config import load_config
from rag_assets.sources.markdown_tree import MarkdownTree
from rag_assets.testing import SourceContract
from rag_assets_tests.sources.memory_source import WRONG, MemoryPeer, MemorySource

EXAMPLE = Path(__file__).parents[2] / "examples" / "notes_source"


class FolderPeer:
    """Markdown files in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()

    def add(self, path: str, text: str) -> str:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
        return path

    change = add

    def rename(self, path: str, new_path: str) -> str:
        target = self.root / new_path
        target.parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).rename(target)
        return new_path

    def delete(self, path: str) -> str:
        (self.root / path).unlink()
        return path

    def stop(self) -> None:
        self.root.rename(self.root.with_name("unmounted"))


class TestMarkdownTree(SourceContract):
    """A folder of Markdown files."""

    @pytest.fixture
    def peer(self, tmp_path: Path) -> FolderPeer:
        return FolderPeer(tmp_path / "docs")

    @pytest.fixture
    def make_source(self, peer: FolderPeer) -> Callable[..., MarkdownTree]:
        # Files younger than two seconds are read again: these are listed ten seconds later.
        def clock() -> int:
            return time.time_ns() + 10_000_000_000

        return lambda **settings: MarkdownTree("docs", peer.root, clock=clock, **settings)


class TestMemorySource(SourceContract):
    """The source that the wrong ones are made from."""

    renames_without_reading = True

    @pytest.fixture
    def peer(self) -> MemoryPeer:
        return MemoryPeer()

    @pytest.fixture
    def make_source(self, peer: MemoryPeer) -> Callable[..., MemorySource]:
        return lambda **settings: MemorySource(peer, **settings)


def _tests_of(contract: type[SourceContract]) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Every test of the contract with its parameters, as pytest would run it."""
    for name, test in inspect.getmembers(contract, inspect.isfunction):
        if not name.startswith("test_"):
            continue
        marks = [m for m in getattr(test, "pytestmark", []) if m.name == "parametrize"]
        argument, values = marks[0].args if marks else (None, [None])
        for value in values:
            yield name, test, {argument: value} if argument else {}


def _wanted(test: Any, peer: Any, make_source: Any) -> dict[str, Any]:
    """The fixtures that a test asks for."""
    fixtures = {"peer": peer, "make_source": make_source}
    return {name: fixtures[name] for name in inspect.signature(test).parameters if name in fixtures}


def failures(make: Callable[..., MemorySource]) -> dict[str, str]:
    """The tests of the contract that a source fails, each on a peer of its own."""
    failed = {}
    for name, test, parameters in _tests_of(TestMemorySource):
        peer = MemoryPeer()
        given = _wanted(test, peer, lambda peer=peer, **settings: make(peer, **settings))
        try:
            test(TestMemorySource(), **given, **parameters)
        except pytest.skip.Exception:
            continue
        except Exception as error:  # noqa: BLE001 - any kind of failure counts
            failed[name] = f"{type(error).__name__}: {error}"
    return failed


@pytest.mark.parametrize("name", WRONG)
def test_wrong_source_is_caught(name: str) -> None:
    """Each broken promise fails at least one test of the contract, with a reason in words."""
    failed = failures(WRONG[name])
    assert failed, f"{name}: {WRONG[name].__doc__} Nothing failed"
    assert all(len(said) > 20 for said in failed.values()), failed


def test_right_source_passes_the_same_way() -> None:
    """What catches the wrong sources lets the right one through."""
    assert failures(MemorySource) == {}
    assert len(WRONG) >= 25


def test_contract_reads_no_text_of_excluded_pages() -> None:
    """The right source never asks for the text of a page that a rule keeps out."""
    peer = MemoryPeer()
    contract = TestMemorySource()
    contract.test_hard_exclusions_hold(peer, lambda **settings: MemorySource(peer, **settings))
    assert not [path for path in peer.read if "legacy" in path.lower() or "passbolt" in path]


def test_example_of_a_third_party_keeps_the_contract(tmp_path: Path) -> None:
    """The notes source of the examples passes its own tests, run as its README says."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        module = importlib.import_module("test_notes_source")
    finally:
        sys.path.remove(str(EXAMPLE))
    skipped, ran = set(), 0
    for number, (name, test, parameters) in enumerate(_tests_of(module.TestNotesSource)):
        folder = tmp_path / str(number)
        folder.mkdir()
        contract = module.TestNotesSource()
        peer = module.Notes(folder / "notes.sqlite")
        make = inspect.unwrap(module.TestNotesSource.make_source)(contract, peer)
        try:
            test(contract, **_wanted(test, peer, make), **parameters)
            ran += 1
        except pytest.skip.Exception:
            skipped.add(name)
    assert ran >= 25
    assert skipped == {
        "test_shards_divide_the_listing_exactly",
        "test_restricted_document_loses_its_readers",
    }


def test_installed_source_is_built_by_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``kind: notes`` finds the class of a package's entry point, as the example's README says."""
    metadata = tmp_path / "site" / "rag_assets_notes_source-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Name: rag-assets-notes-source\nVersion: 1.0\n", "utf-8")
    project = entry_points_of(EXAMPLE / "pyproject.toml")
    (metadata / "entry_points.txt").write_text(project, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.syspath_prepend(str(EXAMPLE))
    notes = importlib.import_module("test_notes_source").Notes(tmp_path / "notes.sqlite")
    notes.add("guides/vpn.md", "# VPN\n\nL'été.\n")
    notes.add("drafts/idée.md", "# Idée\n")
    file = tmp_path / "rag_assets.yaml"
    file.write_text(readme_configuration(notes.file), "utf-8")
    config = load_config(file)
    listing = build_source(config, config.partitions()[0]).list()
    assert [(f.source, f.path, f.acl_tags) for f in listing.files] == [
        ("notes", "guides/vpn.md", ("public",))
    ]
    assert [(row.path, row.reason) for row in listing.left_out] == [
        ("drafts/idée.md", "excluded_paths")
    ]


def entry_points_of(pyproject: Path) -> str:
    """The entry points of a pyproject.toml, as an installed package lists them."""
    text = pyproject.read_text("utf-8")
    section = re.search(r'^\[project\.entry-points\."([^"]+)"\]\n(.*?)\n\n', text, re.M | re.S)
    assert section is not None
    return f"[{section[1]}]\n{section[2]}\n".replace('"', "")


def readme_configuration(notes: Path) -> str:
    """The configuration in the README of the example, over another file."""
    text = (EXAMPLE / "README.md").read_text("utf-8")
    block = re.search(r"```yaml\n(.*?)```", text, re.S)
    assert block is not None
    return block[1].replace("/srv/notes.sqlite", str(notes))

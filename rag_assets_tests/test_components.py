"""Parts that an integrator replaces: by a class named in the configuration, by an object."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rag_assets.components import build_chunker, build_embedder, build_source, replacing
from rag_assets.errors import ConfigurationError
from rag_assets.fingerprints import sha256_hex
from rag_assets.index.generations import IndexDirectory
from rag_assets.models import (
    Changes,
    Chunk,
    Document,
    LeftOut,
    SourceFile,
    SourceListing,
    embedding_text,
)
from rag_assets.testing import StubEmbedder
from rag_assets_tests.project import Project

HERE = "rag_assets_tests.test_components"


class OnePage:
    """A source of a single page, given by its options."""

    def __init__(self, name: str, text: str = "# Seul\n\nMOT_TEMOIN\n", **_: Any) -> None:
        self.name = name
        self.text = text

    def list(self, known: Mapping[str, SourceFile] | None = None) -> SourceListing:
        """The page."""
        content = self.text.encode()
        file = SourceFile(
            self.name, "page.md", "", content, sha256_hex(content), None, ("public",), "1"
        )
        return SourceListing(self.name, (file,), (), 0, {"made": "here"}, 1)

    def look(self, state: Mapping[str, Any] | None) -> Changes:
        """Never sure."""
        return Changes(unknown=True)

    def explain(self, path: str) -> LeftOut | None:
        """No rule."""
        return None


class WholeDocument:
    """A chunker that makes one passage of a document."""

    def __init__(self, mark: str = "") -> None:
        self.mark = mark

    @property
    def fingerprint(self) -> str:
        """Its name and option."""
        return f"whole {self.mark}"

    def chunk(self, document: Document) -> list[Chunk]:
        """One passage."""
        content = self.mark + document.body
        text = embedding_text(document.title, (), content)
        return [
            Chunk(
                document.source, document.path, 0, document.title, (), "", 1, 1, 1, content,
                sha256_hex(text),
            )
        ]  # fmt: skip


class DirectoryStore:
    """Makes the SQLite store of a folder of its own."""

    def __new__(cls, folder: str, build_id: str | None = None) -> Any:
        """The store, not an instance of this class."""
        return IndexDirectory(Path(folder)).writable_store(build_id)


def test_classes_named_in_the_configuration_run_the_pipeline(project):
    """Source, chunker and store of one's own, with their options."""
    project.configure(
        source={"kind": f"{HERE}:OnePage", "options": {"text": "# Autre\n\nMOT\n"}},
        chunk={"chunker": f"{HERE}:WholeDocument", "options": {"mark": ">> "}},
        index={
            "backend": f"{HERE}:DirectoryStore",
            "options": {"folder": str(project.folder / "elsewhere")},
        },
    )
    project.run()
    [hit] = project.search("MOT")
    assert (hit.path, hit.title) == ("page.md", "Autre")
    assert hit.content.startswith(">> # Autre")
    assert (project.folder / "elsewhere" / "CURRENT").exists()
    assert not (project.folder / ".rag_assets" / "index").exists()


def test_ingest_follows_a_source_that_cannot_be_looked_at_cheaply(project):
    """An unknown look state means: list and compare, and run nothing when all is the same."""
    from rag_assets.ingest import ingest

    project.configure(source={"kind": f"{HERE}:OnePage", "options": {"text": "# A\n\nun\n"}})
    assert ingest(project.path).documents_indexed == 1
    assert ingest(project.path).status == "unchanged"
    project.configure(source={"options": {"text": "# A\n\ndeux\n"}})
    assert ingest(project.path).documents_indexed == 1


def test_objects_replace_what_the_configuration_names(project):
    """Within the block only."""
    project.write("a.md", "# A\n\ntexte\n")
    mine = StubEmbedder(8, model="mine")
    with replacing(embedder=mine, chunker=WholeDocument(), source=OnePage("docs")):
        project.run()
        [hit] = project.search("texte")
    assert mine.texts_embedded == 2
    assert hit.path == "page.md"
    assert build_embedder(project.config) is not mine


def test_store_object_is_opened_whenever_the_index_is(project):
    """A function gives the store; the configured folder stays empty."""
    folder = IndexDirectory(project.folder / "mine")
    project.write("a.md", "# A\n\ntexte\n")
    with replacing(open_store=folder.writable_store):
        project.run()
        assert len(project.search("texte")) == 1
    assert not (project.folder / ".rag_assets" / "index").exists()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"chunker": "nowhere.at_all:X"}, "'nowhere.at_all:X' cannot be imported"),
        ({"chunker": f"{HERE}:Missing"}, "cannot be imported"),
        ({"chunker": f"{HERE}:WholeDocument", "options": {"x": 1}}, "does not take its options"),
    ],
)
def test_class_that_cannot_be_built_is_a_configuration_error(project, settings, expected):
    """The file, the key, the class and what is wrong with it."""
    project.configure(chunk=settings)
    with pytest.raises(ConfigurationError, match=r"chunk\.chunker") as caught:
        build_chunker(project.config)
    assert expected in str(caught.value)


class NoSource:
    """Takes the options of a source, and is none."""

    def __init__(self, **options: object) -> None:
        self.name = str(options["name"])

    def explain(self, path: str) -> None:
        """One of the three methods."""


def test_a_class_that_is_no_source_is_told_what_it_lacks(project: Project) -> None:
    """Before anything runs."""
    project.configure(source={"kind": f"{__name__}:NoSource"})
    with pytest.raises(ConfigurationError, match="lacks list, look"):
        build_source(project.config, project.config.partition("docs"))

"""A document's language on its way through the pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from rag_assets.config import load_config
from rag_assets.errors import ConfigurationError
from rag_assets.pipeline import tables
from rag_assets.pipeline.pipeline import Pipeline
from rag_assets_tests.project import Project

ENGLISH = "# Guide\n\nBefore you begin, make sure that the service is running as it should.\n"
FRENCH = "# Guide\n\nAvant de commencer, vérifiez que le service est bien démarré partout.\n"


def languages(project: Project) -> dict[str, str]:
    """What the kept table says of each document."""
    table = Pipeline(project.config).files.read("parsed_documents", "docs")
    return {d.path: d.language for d in tables.documents(table, with_body=False)}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Two documents, one in each language."""
    made = Project(tmp_path)
    made.write("en.md", ENGLISH)
    made.write("fr.md", FRENCH)
    made.run()
    return made


def test_each_document_has_its_language(project: Project) -> None:
    """Without a setting the text decides, document by document."""
    assert languages(project) == {"en.md": "en", "fr.md": "fr"}


def test_configured_language_reparses_and_embeds_nothing(project: Project) -> None:
    """A changed setting rewrites the documents it changes, and no text is embedded again."""
    embedded = project.embedded()
    project.configure(source={"language": "fr-FR"})
    row = project.run()
    assert languages(project) == {"en.md": "fr", "fr.md": "fr"}
    assert (row.documents_indexed, row.documents_skipped, row.chunks_embedded) == (1, 1, 0)
    assert project.embedded() == embedded
    assert project.run().documents_indexed == 0


def test_front_matter_language_embeds_nothing(project: Project) -> None:
    """A language that an author adds changes the document, not its passages."""
    embedded = project.embedded()
    project.write("en.md", f"---\nlang: de\n---\n{ENGLISH}")
    assert project.run().documents_indexed == 1
    assert languages(project)["en.md"] == "de"
    assert project.embedded() == embedded


def test_changed_setting_makes_the_index_not_up_to_date(project: Project) -> None:
    """What the index must record depends on the configured language of that source."""
    partition = project.config.partition("docs")
    before = Pipeline(project.config).target_version(partition, "listing")
    project.configure(source={"language": "fr"})
    after = Pipeline(project.config).target_version(partition, "listing")
    assert before != after
    project.configure(source={"language": "fr-CA"})
    assert Pipeline(project.config).target_version(partition, "listing") == after


@pytest.mark.parametrize("value", ["french", "php", "", "fr,en"])
def test_what_is_no_language_is_refused(project: Project, value: str) -> None:
    """The message names file, position and key, and says what to write."""
    project.configure(source={"language": value})
    with pytest.raises(
        ConfigurationError, match=r"rag_assets\.yaml:1:\d+ sources\.0\.language: .*fr-FR"
    ):
        load_config(project.path)

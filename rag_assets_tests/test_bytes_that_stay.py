"""What was deleted, edited away, restricted or renamed is in no file of the data folder any more.

Each text that must vanish holds a word that stands nowhere else. French words are looked for by a
part that accents, case and stemming leave alone.
"""

from __future__ import annotations

import pytest

from rag_assets.ingest import ingest
from rag_assets_tests import canaries
from rag_assets_tests.project import Project

DELETED = "bqvornakel"
EDITED = "dwuxtomiral"
QUARANTINED = "fkyzardunep"
IGNORED = "gjovqelimat"
RENAMED = "hxuprofenid"
UNCONFIGURED = "jzyvtolarec"
STAYS = "lqwintarog"
GONE = (DELETED, EDITED, QUARANTINED, IGNORED, UNCONFIGURED)


def page(word: str) -> str:
    """A document that says the word everywhere: metadata, warnings, title, heading, body, code."""
    return (
        f"---\ntitle: Page {word}1titre\nauthor: {word}2auteur\n{word}3cle: [liste]\n---\n"
        f"# Chapitre {word}4haut\n\nTexte {word}5x et {word.upper()}6X, « {word}issements ».\n\n"
        f"## Partie des É{word}és\n\n```python\n{word}_7 = 'été'\n```\n"
        f"| a | b |\n|---|---|\n| {word}8 | l'É{word}9 |\n" + "remplissage ordinaire " * 300
    )


def places(project: Project, word: str) -> set[str]:
    """The files of the data folder that hold the word, from the data folder down."""
    return canaries.places(project.config.data_dir, word)


@pytest.fixture
def two_sources(project: Project) -> Project:
    """Six documents in one source, one in another, ingested by Dagster."""
    for path, word in (
        ("supprime.md", DELETED),
        ("retouche.md", EDITED),
        ("quarantaine.md", QUARANTINED),
        ("brouillons/exclu.md", IGNORED),
        (f"{RENAMED}.md", STAYS),
    ):
        project.write(path, page(word))
    project.write("autre.md", "# Autre\n\nun texte qui reste\n")
    wiki = project.folder / "wiki"
    wiki.mkdir()
    (wiki / "page.md").write_text(page(UNCONFIGURED), encoding="utf-8")
    docs = project.settings["sources"][0]
    project.configure(sources=[docs, {"name": "wiki", "root": "wiki", "acl": docs["acl"]}])
    report = ingest(project.path)
    assert report.status == "ok", [p.error for p in report.partitions]
    return project


def test_no_file_keeps_text_that_was_taken_away(two_sources: Project) -> None:
    """Index, journal, tables, cache, states, Dagster's databases and logs, after one more run."""
    project = two_sources
    for word in GONE:
        found = {place.split("/")[0] for place in places(project, word)}
        assert {"assets", "index"} <= found, "the search must be able to find it"
        assert found <= {"assets", "index"}, "while it is public, too, only where it is searched"
    (project.root / "supprime.md").unlink()
    project.write("retouche.md", "# Autre chose\n\nplus rien de cela\n")
    project.write("quarantaine.md", page(QUARANTINED).replace("---\n", "---\nacl: null\n", 1))
    project.write(".aiignore", "brouillons/\n")
    (project.root / f"{RENAMED}.md").rename(project.root / "nouveau.md")
    project.configure(sources=project.settings["sources"][:1])
    assert ingest(project.path).status == "partial"
    assert places(project, STAYS), "what was only renamed is still there"
    leaks = {word: found for word in GONE if (found := places(project, word))}
    assert leaks == {}
    names = places(project, RENAMED)
    assert {name.split("/")[0] for name in names} <= {"dagster"}, "an old name stays in its history"


@pytest.mark.parametrize("word", ["INDIGESTE", "PANNE"])
def test_an_embedder_that_quotes_texts_leaves_none_in_messages(project: Project, word: str) -> None:
    """Refusals and failures go to the index, to Dagster's history and to logs, without the text."""
    backend = "rag_assets_tests.pipeline.failing:QuotingEmbedder"
    options = project.settings["embedding"]["options"]
    project.configure(embedding={"backend": backend, "options": options})
    project.write("a.md", "# Autre\n\nun texte qui reste\n")
    project.write("b.md", f"# Titre de {STAYS}\n\n{word} « {STAYS}é »\n\n{DELETED} en 'un' mot\n")
    report = ingest(project.path)
    assert report.status == ("partial" if word == "INDIGESTE" else "failed")
    said = [str(part.error) for part in report.partitions]
    for canary in (STAYS, DELETED):
        assert not any(canary in line for line in said)
        found = {place.split("/")[0] for place in places(project, canary)}
        assert found == {"assets"}, "the file is still there, so its tables are"

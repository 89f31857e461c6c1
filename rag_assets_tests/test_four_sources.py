"""One configuration, four systems, one `ingest`: citations, access, changes, and no secret told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rag_assets.acl import EVERYTHING
from rag_assets.components import live_index
from rag_assets.ingest import ingest, plan
from rag_assets.models import Hit
from rag_assets.pipeline.pipeline import Pipeline, RunOptions
from rag_assets.retrieval import open_retriever
from rag_assets_tests import canaries
from rag_assets_tests.four_sources import FourSources, four_sources
from rag_assets_tests.project import Project


@contextmanager
def ingested(folder: Path) -> Iterator[tuple[Project, FourSources]]:
    """A project over all four, ingested once, with their secrets in the environment."""
    with four_sources(folder / "systems") as systems, pytest.MonkeyPatch.context() as environment:
        for name, value in systems.environment().items():
            environment.setenv(name, value)
        project = Project(folder / "project", sources=systems.sources())
        report = ingest(project.path)
        assert report.status == "ok", [part.error for part in report.partitions]
        yield project, systems


@pytest.fixture(scope="module")
def read_only(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, FourSources]]:
    """For the tests that change nothing."""
    with ingested(tmp_path_factory.mktemp("four")) as running:
        yield running


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Project, FourSources]]:
    """For a test that changes something."""
    with ingested(tmp_path) as running:
        yield running


def documents(project: Project) -> dict[str, set[str]]:
    """The paths in the index, by source."""
    with live_index(project.config) as store:
        assert store is not None
        return {s.name: set(store.document_digests(s.name)) for s in project.config.sources}


def ask(project: Project, question: str, acl_tags: Any) -> list[Hit]:
    """The passages whose words answer."""
    with open_retriever(project.path) as retriever:
        return retriever.retrieve(question, 5, acl_tags=acl_tags, mode="text")


def test_one_ingest_indexes_all_four_and_every_passage_is_cited_in_its_system(
    read_only: tuple[Project, FourSources],
) -> None:
    """Path, section, lines and a URL that opens the right place, for each kind of source."""
    indexed, systems = read_only
    assert documents(indexed) == {
        "handbook": {"badges.md", "vpn.md"},
        "wiki": {
            "exploitation/sauvegardes/restaurer-la-base.md",
            "ressources-humaines/salaires.md",
        },
        "code": {
            "platform/api/README.md",
            "platform/api/docs/deploy.md",
            "platform/api.wiki/home.md",
            "platform/keys/rotation.md",
        },
        "files": {"Notes/reunion.md", "Notes/Direction/budget.md"},
    }
    hit, *_ = ask(indexed, "rejouez journal", ["public"])
    assert hit.title == "Exploitation > Sauvegardes > Restaurer la base"
    assert hit.section == "Restaurer à une heure donnée"
    assert hit.url.startswith(
        f"{systems.wiki.address}/books/exploitation/page/restaurer-la-base#bkmrk"
    )
    assert (hit.start_line, hit.end_line) == (5, 7)
    hit, *_ = ask(indexed, "deploy rollback", ["public"])
    assert hit.citation == "code/platform/api/docs/deploy.md#roll-back-a-release:3-5"
    assert hit.url.endswith("/platform/api/-/blob/main/docs/deploy.md#roll-back-a-release")
    hit, *_ = ask(indexed, "migration messagerie", ["public"])
    assert (hit.path, hit.section) == ("Notes/reunion.md", "Décisions")
    assert hit.url.startswith(systems.files.url)
    hit, *_ = ask(indexed, "badge accueil identité", ["public"])
    assert hit.citation == "handbook/badges.md#renouveler-un-badge:3-5"


@pytest.mark.parametrize(
    ("question", "path", "tag"),
    [
        ("coefficient échelon", "ressources-humaines/salaires.md", "service:hr"),
        ("signing keys rotated quarter", "platform/keys/rotation.md", "service:staff"),
        ("budget octobre", "Notes/Direction/budget.md", "service:board"),
    ],
)
def test_permissions_of_each_system_decide_who_finds_what(
    read_only: tuple[Project, FourSources], question: str, path: str, tag: str
) -> None:
    """Read out of BookStack and GitLab, configured for the Nextcloud folder."""
    indexed, _ = read_only
    assert ask(indexed, question, [tag])[0].path == path
    assert path not in [hit.path for hit in ask(indexed, question, ["public"])]


def test_nothing_changed_asks_each_system_little_and_runs_nothing(
    read_only: tuple[Project, FourSources],
) -> None:
    """A look costs listings only; no content is fetched."""
    indexed, systems = read_only
    systems.gitlab.count()
    with systems.wiki.counting() as asked:
        assert ingest(indexed.path).status == "unchanged"
    assert asked["page"] == 0
    assert systems.gitlab.count()["blob"] == 0


def test_a_change_in_each_system_is_found_and_nothing_else_is_embedded(
    running: tuple[Project, FourSources],
) -> None:
    """One changed text in each of the four: four texts embedded."""
    indexed, systems = running
    before = indexed.embedded()
    (systems.folder / "badges.md").write_text("# Badges\n\nUn texte neuf.\n", encoding="utf-8")
    page = next(p for p in systems.wiki.pages.values() if p.name == "Restaurer la base")
    systems.wiki.edit(page, markdown="Un seul paragraphe nouveau.\n")
    systems.project.commit({"README.md": "# API\n\nPort 9443.\n"})
    systems.put("Notes/reunion.md", "# Réunion\n\nReportée.\n")
    report = ingest(indexed.path)
    assert report.status == "ok", [part.error for part in report.partitions]
    assert report.documents_indexed == 4
    assert indexed.embedded() - before == 4


def test_what_changes_around_a_page_reaches_its_passages_without_reading_it_again(
    running: tuple[Project, FourSources],
) -> None:
    """A renamed book, another rule of access: no page is fetched, passages tell the new title."""
    indexed, systems = running
    with systems.wiki.counting() as asked:
        systems.wiki.rename(systems.book, "Production")
        assert ingest(indexed.path).status == "ok"
        systems.wiki.edit(
            next(p for p in systems.wiki.pages.values() if p.name == "Salaires"),
            html="<h2>Grille</h2><p>Échelon B2 : coefficient 430.</p>",
        )
        assert ingest(indexed.path).documents_indexed == 1
        sources = systems.sources()
        sources[1]["acl"] = {"rules": [{"paths": "production", "tags": ["service:ops"]}]}
        indexed.configure(sources=sources)
        assert ingest(indexed.path).status == "ok"
    assert asked["page"] == 1, "the one that was edited, once"
    assert ask(indexed, "rejouez journal", ["public"]) == []
    hit, *_ = ask(indexed, "rejouez journal", EVERYTHING)
    assert hit.title == "Production > Sauvegardes > Restaurer la base"


def test_a_page_that_was_refused_once_is_read_when_it_is_allowed_again(
    running: tuple[Project, FourSources],
) -> None:
    """Nothing marks the change on the page itself; the next `ingest` asks again."""
    indexed, systems = running
    page = systems.wiki.add_page(systems.book, "Astreinte", markdown="# Astreinte\n\nAppelez.\n")

    def refuse(kind: str, request: Request) -> Response | None:
        refused = kind == "page" and request.url.path.endswith(f"/{page.id}")
        error = {"error": {"code": 403, "message": "You do not have permission"}}
        return JSONResponse(error, 403) if refused else None

    systems.wiki.before_answer = refuse
    assert ingest(indexed.path).status == "partial"
    systems.wiki.before_answer = None
    assert ingest(indexed.path).documents_indexed == 1
    assert ask(indexed, "astreinte appelez", EVERYTHING)[0].path == "exploitation/astreinte.md"


def test_reading_from_a_server_shows_how_far_it_is(
    read_only: tuple[Project, FourSources],
) -> None:
    """Done and total, by the same means as every other step."""
    indexed, _ = read_only
    told: list[tuple[str, int, int]] = []
    pipeline = Pipeline(indexed.config, lambda *step: told.append(step))
    options = RunOptions("progress", reprocess=True, stores=False)
    pipeline.list_files(indexed.config.partition("code"), None, options)
    assert told[-1][0] == "documents read"
    assert told[-1][1] == told[-1][2] > 0


def test_a_plan_stores_nothing_of_what_it_fetched(
    running: tuple[Project, FourSources],
) -> None:
    """Neither table nor journal; the run that follows fetches for itself."""
    indexed, systems = running
    systems.wiki.add_page(systems.book, "Neuve", markdown="# Neuve\n\nzkplanword.\n")
    planned = plan(indexed.path)
    assert [p.documents_added for p in planned.partitions if p.partition == "wiki"] == [1]
    assert canaries.places(indexed.folder, "zkplanword") == set()


def test_a_revoked_permission_is_gone_from_the_next_answer(
    running: tuple[Project, FourSources],
) -> None:
    """No content changes, nothing is embedded, and nobody finds the page any more."""
    indexed, systems = running
    page = next(p for p in systems.wiki.pages.values() if p.name == "Salaires")
    systems.wiki.restrict(page, {}, fallback=False)
    systems.project.visibility = "private"
    before = indexed.embedded()
    assert ingest(indexed.path).status == "ok"
    assert ask(indexed, "coefficient échelon", ["service:hr", "public"]) == []
    assert ask(indexed, "deploy rollback", ["public", "service:staff"]) == []
    assert ask(indexed, "deploy rollback", EVERYTHING)
    assert indexed.embedded() == before


def test_a_system_that_is_down_fails_alone_and_loses_nothing(
    running: tuple[Project, FourSources], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are brought up to date; the run says which source and what to do."""
    indexed, systems = running
    before = documents(indexed)
    monkeypatch.setenv("GITLAB_TOKEN", "glpat-revoked-token-0002")
    (systems.folder / "neuf.md").write_text("# Neuf\n", encoding="utf-8")
    report = ingest(indexed.path)
    status = {part.partition: part.status for part in report.partitions}
    assert (report.status, status) == ("failed", {"handbook": "ok", "code": "failed"})
    error = next(part.error for part in report.partitions if part.partition == "code")
    assert error is not None
    assert "source code" in error
    assert "401" in error
    assert "glpat-revoked" not in error
    assert documents(indexed) == {**before, "handbook": before["handbook"] | {"neuf.md"}}


def test_no_secret_is_in_any_byte_of_the_data_folder(
    read_only: tuple[Project, FourSources], capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither tokens nor passwords: index, tables, states, Dagster's storage and logs."""
    indexed, systems = read_only
    said = "".join(capfd.readouterr())
    parts = {part for value in systems.environment().values() for part in value.split(":")}
    for part in (part for part in parts if len(part) > 8):
        assert part not in said
        assert canaries.places(indexed.folder, part) == set()

"""``rag-assets quarantine``: what is kept out, its release with who and why, and taking it back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rag_assets.cli.commands import cli
from rag_assets.components import live_index
from rag_assets_tests.project import Project

LETTER = "# Accès\n\nMot de passe : Vx8kQ2mZ7rTb4!\n"


def run(project: Project, *arguments: str) -> Result:
    """Run a command on a project."""
    return CliRunner().invoke(
        cli, ["--config", str(project.path), *arguments], prog_name="rag-assets"
    )


def run_json(project: Project, *arguments: str) -> dict[str, Any]:
    """Run a command that succeeds with --json; its one object."""
    result = run(project, *arguments, "--json")
    assert result.exit_code == 0, result.output
    value: dict[str, Any] = json.loads(result.stdout)
    return value


@pytest.fixture
def quarantined(project: Project) -> Project:
    """One document with a password, one that is no text, one that is well."""
    project.write("it/acces.md", LETTER)
    project.write("latin.md", b"caf\xe9\n")
    project.write("b.md", "# B\n")
    assert run(project, "ingest").exit_code == 0
    return project


def indexed(project: Project) -> set[str]:
    """The documents in the index."""
    with live_index(project.config) as store:
        assert store is not None
        return set(store.document_digests("docs"))


def test_list_shows_documents_with_rule_and_line_and_no_word_of_them(quarantined: Project) -> None:
    """For people and as JSON; only what was found by screening can be released."""
    value = run_json(quarantined, "quarantine", "list")
    rows = {row["path"]: row for row in value["quarantined"]}
    assert {path: row["releasable"] for path, row in rows.items()} == {
        "it/acces.md": True,
        "latin.md": False,
    }
    assert rows["it/acces.md"]["reason"] == "secret"
    assert "(line 3)" in rows["it/acces.md"]["rule"]
    shown = run(quarantined, "quarantine", "list").output
    assert "docs/it/acces.md  secret: " in shown
    assert "Vx8kQ2mZ7rTb4" not in shown + json.dumps(value)
    assert "Nothing is in quarantine" not in shown


def test_ingest_says_how_many_documents_are_quarantined(project: Project) -> None:
    """And where to look."""
    project.write("a.md", LETTER)
    project.write("b.md", "# B\n")
    assert (
        "1 quarantined for what they hold: `rag-assets quarantine list`"
        in run(project, "ingest").output
    )


def test_release_indexes_the_content_and_revoke_takes_it_out(quarantined: Project) -> None:
    """Each by the next ingest; who and why are kept and shown."""
    done = run(
        quarantined, "quarantine", "release", "docs/it/acces.md", "--by", "Alix Martin",
        "--reason", "exemple du manuel",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "run `rag-assets ingest --source docs`" in done.output
    assert indexed(quarantined) == {"b.md"}
    assert run(quarantined, "ingest").exit_code == 0
    assert indexed(quarantined) == {"b.md", "it/acces.md"}
    value = run_json(quarantined, "quarantine", "list")
    assert [row["path"] for row in value["quarantined"]] == ["latin.md"]
    (kept,) = value["released"]
    assert (kept["by"], kept["why"]) == ("Alix Martin", "exemple du manuel")
    assert kept["found"].startswith("secret: ")
    explained = run_json(quarantined, "explain", "it/acces.md")
    assert (explained["status"], explained["flagged"]["reason"]) == ("indexed", "secret")
    assert explained["flagged"]["rule"].endswith("; released by Alix Martin")
    quarantined.write("copie.md", LETTER)
    assert run(quarantined, "ingest").exit_code == 0
    assert "copie.md" in indexed(quarantined), "the same content"
    assert run_json(quarantined, "quarantine", "revoke", "docs/copie.md")["status"] == "ok"
    assert run(quarantined, "ingest").exit_code == 0
    assert indexed(quarantined) == {"b.md"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["release", "docs/b.md"], "not in quarantine"),
        (["release", "docs/latin.md"], "only a change of the document can mend"),
        (["release", "b.md"], "write it as SOURCE/PATH"),
        (["release", "wiki/b.md"], "no source is named 'wiki'"),
        (["revoke", "docs/b.md"], "there is no release of it"),
        (["list", "--source", "wiki"], "no source is named 'wiki'"),
    ],
)
def test_wrong_use_is_one_clear_line(quarantined: Project, arguments: list[str], said: str) -> None:
    """Exit code 2, what is wrong, and nothing done."""
    given = ["--by", "A", "--reason", "b"] if arguments[0] == "release" else []
    result = run(quarantined, "quarantine", *arguments, *given)
    assert result.exit_code == 2
    assert said in result.stderr
    assert run_json(quarantined, "quarantine", "list")["released"] == []


@pytest.mark.parametrize("missing", ["--by", "--reason"])
def test_release_asks_for_who_and_why(quarantined: Project, missing: str) -> None:
    """Neither can be left out."""
    given = {"--by": "A", "--reason": "b"}
    del given[missing]
    words = [word for pair in given.items() for word in pair]
    result = run(quarantined, "quarantine", "release", "docs/it/acces.md", *words)
    assert result.exit_code == 2
    assert missing in result.stderr


def test_nothing_in_quarantine_is_said(project: Project) -> None:
    """Also before the first ingest."""
    assert run(project, "quarantine", "list").output == "Nothing is in quarantine.\n"

"""The ``rag-assets`` command: JSON on stdout, one clear line on stderr, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rag_assets.cli.commands import COMMANDS, cli
from rag_assets_tests.project import Project


def run(project: Project, *arguments: str) -> Result:
    """Run a command on a project."""
    return CliRunner().invoke(
        cli, ["--config", str(project.path), *arguments], prog_name="rag-assets"
    )


def run_json(project: Project, *arguments: str, code: int = 0) -> dict[str, Any]:
    """Run a command with --json; its one object."""
    result = run(project, *arguments, "--json")
    assert result.exit_code == code, result.output
    value: dict[str, Any] = json.loads(result.stdout)
    return value


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A small bilingual project, ingested once for all tests that only read."""
    project = Project(tmp_path_factory.mktemp("cli"))
    project.configure(source={"url": "https://docs.example.org/{path}", "excluded_paths": ["old"]})
    project.write("congés.md", "# Congés\n\nDemander ses congés payés à l'équipe RH.\n")
    project.write(
        "vpn.md", "---\ntitle: VPN\n---\nIntro.\n\n## Install the client\n\nDownload it.\n"
    )
    project.write("legacy/a.md", "# Old\n")
    project.write("old/b.md", "# Older\n")
    project.write(".aiignore", "# comment\ndrafts/\n")
    project.write("drafts/c.md", "# Draft\n")
    project.write("bad.md", b"caf\xe9\n")
    project.write("blank.md", "\n")
    assert run(project, "ingest").exit_code == 0
    return project


def test_ingest_json_has_the_documented_shape(project):
    """Status, partitions with all counts, totals with the same counts."""
    project.write("a.md", "# A\n\ntexte\n")
    value = run_json(project, "ingest")
    assert list(value) == ["status", "partitions", "totals"]
    assert list(value["partitions"][0]) == [
        "partition", "run_id", "status", "error", "documents_seen", "documents_indexed",
        "documents_skipped", "documents_removed", "documents_excluded", "chunks_upserted",
        "chunks_unchanged", "chunks_embedded", "duration_seconds",
    ]  # fmt: skip
    assert value["totals"]["documents_indexed"] == 1
    again = run_json(project, "reindex")
    assert (again["status"], again["partitions"]) == ("unchanged", [])
    assert again["totals"]["documents_indexed"] == 0


def test_ingest_says_when_there_is_nothing_to_do(indexed):
    """A person reads one line."""
    assert run(indexed, "ingest").output == "Nothing changed: the index is up to date.\n"
    assert run(indexed, "ingest", "--plan").output.startswith("Nothing to do")


def test_search_json_has_the_documented_shape(indexed):
    """Every hit carries what a citation needs."""
    value = run_json(indexed, "search", "Install the client", "-k", "1")
    assert (value["query"], value["mode"]) == ("Install the client", "hybrid")
    [hit] = value["hits"]
    assert list(hit) == [
        "rank", "score", "score_kind", "vector_score", "text_score", "source", "path", "title",
        "section", "heading_path", "anchor", "url", "citation", "start_line", "end_line",
        "position", "language", "modified_at", "content",
    ]  # fmt: skip
    assert hit["path"] == "vpn.md"
    assert hit["title"] == "VPN"
    assert hit["section"] == "Install the client"
    assert hit["url"] == "https://docs.example.org/vpn.md#install-the-client"
    assert (hit["start_line"], hit["end_line"]) == (6, 8)
    assert hit["content"].startswith("## Install the client")


def test_search_on_a_terminal_shows_citations(indexed):
    """Rank, heading, path with lines, URL with the accents percent-encoded."""
    output = run(indexed, "search", "congés payés", "-k", "1").output
    assert "docs/congés.md#congés:1-3" in output
    assert "https://docs.example.org/cong%C3%A9s.md#cong%C3%A9s" in output


@pytest.mark.parametrize(
    ("arguments", "hits"),
    [(["x", "-k", "0"], 0), (["x", "-k", "-1"], 0), (["   "], 0), (["x", "-k", "100000"], 3),
     (["x", "--acl", "nobody"], 0), (["x", "--acl", "public"], 3), (["--", "-rf"], 3),
     (["x" * 50_000], 3), (["\"' OR 1=1 --"], 3)],
)  # fmt: skip
def test_any_question_is_answered(indexed, arguments, hits):
    """Blank, huge, hostile questions and odd numbers give hits or none, never a failure."""
    result = run(indexed, "search", "--json", *arguments)
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["hits"]) == hits


def test_stats_counts_and_says_how_the_embedder_is(indexed):
    """Documents, chunks, vectors, fingerprint, size, embedder."""
    value = run_json(indexed, "stats")
    assert (value["documents"], value["chunks"], value["vectors"]) == (2, 3, 3)
    assert value["sources"] == {"docs": {"documents": 2, "chunks": 3}}
    assert value["fingerprint"]["dim"] == value["embedder"]["dim"] == 32
    assert value["size_bytes"] > 0
    assert value["last_indexed_at"].endswith("Z")
    assert value["warnings"] == []


def test_stats_without_index_or_embedder_warns_and_exits_0(project):
    """Asking how things are must work when they are bad."""
    project.configure(embedding={"backend": "http", "url": "http://127.0.0.1:9", "retries": 0})
    value = run_json(project, "stats")
    assert value["documents"] == 0
    assert value["embedder"]["status"] == "unavailable"
    assert len(value["warnings"]) == 2


@pytest.mark.parametrize(
    ("path", "status", "reason", "rule_file", "rule_line"),
    [
        ("congés.md", "indexed", None, None, None),
        ("conge\u0301s.md", "indexed", None, None, None),
        ("legacy/a.md", "excluded", "hard_exclusion", None, None),
        ("LEGACY/never/seen.md", "excluded", "hard_exclusion", None, None),
        ("old/b.md", "excluded", "excluded_paths", "rag_assets.yaml", 1),
        ("drafts/c.md", "excluded", "aiignore", ".aiignore", 2),
        ("bad.md", "quarantined", "not_text", None, None),
        ("blank.md", "excluded", "blank", None, None),
        ("image.png", "excluded", "not_markdown", None, None),
    ],
)
def test_explain_names_the_rule_and_its_line(indexed, path, status, reason, rule_file, rule_line):
    """Why a document is, or is not, in the index: rule, file, line."""
    value = run_json(indexed, "explain", path)
    assert value["status"] == status
    assert value.get("reason") == reason
    assert value.get("rule_file") == rule_file
    assert value.get("rule_line") == rule_line


def test_explain_indexed_lists_chunks_with_lines_and_anchors(indexed):
    """Hash, run, and every passage's place."""
    value = run_json(indexed, "explain", str(indexed.root / "vpn.md"))
    assert len(value["content_hash"]) == 64
    assert value["run_id"]
    assert [(c["anchor"], c["start_line"], c["end_line"]) for c in value["chunks"]] == [
        ("", 4, 4), ("install-the-client", 6, 8),
    ]  # fmt: skip


def test_explain_of_an_unknown_path_exits_1(indexed):
    """Absent is an answer, and not a success."""
    assert run_json(indexed, "explain", "nowhere.md", code=1)["status"] == "absent"


def test_verify_exits_1_on_problems(project):
    """Clean: exit 0. A document indexed and then lost from the tables: exit 1, one sentence."""
    project.write("a.md", "# A\n\ntexte\n")
    run(project, "ingest")
    assert run_json(project, "verify")["problems"] == []
    store = project.writer()
    with store.writing(run_id="x", partition="docs", wait_seconds=1):
        store.delete_documents("docs", ["a.md"])
    store.close()
    [problem] = run_json(project, "verify", code=1)["problems"]
    assert "docs/a.md: parsed but not indexed" in problem


def test_wrong_configuration_exits_2_with_one_line(project):
    """File, line, column, key; no traceback; JSON too when asked for."""
    project.path.write_text("sources:\n- name: a\n  rot: b\n")
    result = run(project, "ingest", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["type"] == "ConfigurationError"
    assert result.stderr.count("\n") == 1
    assert "rag_assets.yaml:3:3 sources.0.rot: unknown key" in result.stderr


def test_missing_root_exits_1_with_one_line(project):
    """The path that is missing is named; nothing is written."""
    project.configure(source={"root": "nowhere"})
    result = run(project, "ingest")
    assert result.exit_code == 1
    assert "nowhere" in result.stderr
    assert "Traceback" not in result.output


def test_search_without_index_exits_1_and_says_how_to_get_one(project):
    """No empty answer from an index that is not there."""
    result = run(project, "search", "x")
    assert result.exit_code == 1
    assert "rag-assets ingest" in result.stderr


def test_unknown_source_exits_2(indexed):
    """The known names are listed."""
    result = run(indexed, "search", "x", "--source", "dosc")
    assert result.exit_code == 2
    assert "there are: docs" in result.stderr


def test_debug_shows_the_traceback(project):
    """Only then."""
    result = CliRunner().invoke(cli, ["--debug", "--config", str(project.path), "search", "x"])
    assert type(result.exception).__name__ == "IndexMissing"


def test_explain_understands_a_path_as_a_citation_shows_it(indexed):
    """``source/path``, before anything of that name in another source."""
    found = run_json(indexed, "explain", "docs/vpn.md")
    assert (found["status"], found["source"], found["path"]) == ("indexed", "docs", "vpn.md")


def test_every_command_has_help_and_json():
    """The list in the help is the list of commands."""
    listed = CliRunner().invoke(cli, ["--help"]).output
    for name in COMMANDS:
        assert name in listed
        result = CliRunner().invoke(cli, [name, "--help"])
        assert result.exit_code == 0
        assert "--json" in result.output or name in ("serve", "token", "quarantine")


def test_init_writes_a_configuration_that_loads_and_refuses_to_overwrite(tmp_path: Path):
    """The commented file is valid as it is."""
    (tmp_path / "notes").mkdir()
    done = CliRunner().invoke(cli, ["init", str(tmp_path), "--root", "notes", "--json"])
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["written"]) == 3
    from rag_assets.config import load_config

    config = load_config(tmp_path)
    assert (config.sources[0].name, config.sources[0].acl.default) == ("notes", ("public",))
    again = CliRunner().invoke(cli, ["init", str(tmp_path)])
    assert again.exit_code == 2
    assert "--force" in again.stderr


def test_project_files_are_those_that_init_writes():
    """The repository's own Dagster files and the templates are the same."""
    root = Path(__file__).parent.parent
    for name in ("dagster.yaml", "workspace.yaml"):
        assert (root / name).read_text() == (root / "rag_assets/templates" / name).read_text()


def test_control_characters_of_documents_do_not_reach_the_terminal(project):
    """A document cannot repaint a terminal or set its title."""
    project.write("a.md", "# A\x1b[31m\n\ntexte \x1b]0;title\x07 \u202e fin\n")
    run(project, "ingest")
    output = run(project, "search", "texte").output
    assert "\x1b]" not in output
    assert "\x07" not in output
    assert "\u202e" not in output


def test_search_imports_neither_dagster_nor_pyarrow(indexed):
    """Three seconds that a search does not need."""
    code = (
        "import sys; from rag_assets.cli.commands import cli; "
        f"cli(['--config', {str(indexed.path)!r}, 'search', 'vpn', '--json'], "
        "standalone_mode=False); "
        "sys.stderr.write(str(sorted({'dagster', 'pyarrow'} & sys.modules.keys())))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]"
    assert json.loads(done.stdout)["hits"]

"""The example code location finds passages for its readers, in process and as a command."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from rag_assets.resources import RetrieverResource
from rag_assets_tests.project import Project

EXAMPLE = Path(__file__).parents[1] / "examples" / "answering_assets"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A public page and one of human resources, indexed, and two questions."""
    rh = tmp_path / "rh"
    rh.mkdir()
    (rh / "salaires.md").write_text("# Salaires\n\nGrille confidentielle des échelons.\n", "utf-8")
    sources = [
        {"name": "docs", "root": "docs", "acl": {"default": ["public"]}},
        {"name": "rh", "root": "rh", "acl": {"default": ["service:rh"]}},
    ]
    made = Project(tmp_path, sources=sources)
    made.write("badge.md", "# Badge *perdu*\n\nAppelez l'accueil.\n\n```\n## faux titre\n```\n")
    made.run()
    questions = [{"question": "Badge perdu ?"}, {"question": "Quels échelons ?"}]
    (tmp_path / "questions.yaml").write_text(json.dumps({"questions": questions}), "utf-8")
    return made


def run_config(folder: Path, **answers: Any) -> dict[str, Any]:
    """Questions and report in the folder of the test."""
    return {
        "ops": {
            "questions": {"config": {"file": str(folder / "questions.yaml")}},
            "cited_passages": {"config": {"report": str(folder / "report.md"), **answers}},
        }
    }


def materialize(project: Project, **answers: Any) -> tuple[str, dict[str, Any]]:
    """Both assets in this process: the report, and the metadata of the last one."""
    spec = importlib.util.spec_from_file_location("answering", EXAMPLE / "definitions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    result = dg.materialize(
        [module.questions, module.cited_passages],
        resources={"retriever": RetrieverResource(config_path=str(project.path))},
        run_config=run_config(project.folder, **answers),
    )
    [event] = result.asset_materializations_for_node("cited_passages")
    values = {name: value.value for name, value in event.metadata.items()}
    return (project.folder / "report.md").read_text("utf-8"), values


def test_public_readers_get_public_passages_only(project: Project) -> None:
    """The report cites the public page; of the other one there is no trace anywhere."""
    report, metadata = materialize(project)
    assert report.count("\n## ") == 4  # two questions, and the one inside the fence of each
    assert "- \\[1\\] Badge" in report
    assert "docs/badge.md\\#badge-perdu:1-7" in report
    assert "confidentielle" not in report + str(metadata)
    assert (metadata["questions"], metadata["acl_tags"]) == (2, ["public"])


def test_other_readers_get_what_they_may_see(project: Project) -> None:
    """The tags of the run configuration decide."""
    report, metadata = materialize(project, acl_tags=["service:rh"])
    assert "Grille confidentielle" in report
    assert "accueil" not in report
    assert metadata["passages"] == 2


def test_readers_without_tags_get_nothing(project: Project) -> None:
    """No tag, no passage, and the report says so."""
    report, metadata = materialize(project, acl_tags=[])
    assert report.count("Nothing that these readers may see.") == 2
    assert (metadata["passages"], metadata["questions_without_passage"]) == (0, 2)


def test_the_command_materializes_the_example(project: Project) -> None:
    """``dagster asset materialize -f`` as its README says, for a configuration elsewhere."""
    in_process = {"execution": {"config": {"in_process": {}}}}
    config = json.dumps({**run_config(project.folder), **in_process})
    done = subprocess.run(
        [
            Path(sys.executable).with_name("dagster"), "asset", "materialize",
            "-f", EXAMPLE / "definitions.py", "--select", "*", "--config-json", config,
        ],
        cwd=project.folder,
        env={**os.environ, "RAG_ASSETS_CONFIG": str(project.path)},
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Appelez l'accueil." in (project.folder / "report.md").read_text("utf-8")


def test_the_workspace_names_both_code_locations() -> None:
    """The pipeline's module, and the file beside the workspace."""
    workspace = yaml.safe_load((EXAMPLE / "workspace.yaml").read_text("utf-8"))
    pipeline, example = workspace["load_from"]
    assert pipeline["python_module"]["module_name"] == "rag_assets.definitions"
    assert (EXAMPLE / example["python_file"]["relative_path"]).is_file()

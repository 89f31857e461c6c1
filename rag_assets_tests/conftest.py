"""Fixtures shared by all tests, and the versions that matter in the header."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from rag_assets_tests.project import Project


def pytest_report_header() -> str:
    """Versions of what decides results."""
    names = ("dagster", "apsw", "sqlite-vec", "onnxruntime", "pyarrow", "numpy", "pathspec")
    return "libraries: " + ", ".join(f"{name} {version(name)}" for name in names)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty project."""
    return Project(tmp_path / "project")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test depends on the developer's own Dagster or configuration."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.delenv("RAG_ASSETS_CONFIG", raising=False)

"""Index a folder, a BookStack, a GitLab and a Nextcloud with one configuration, then search them.

The three systems are stand-ins on local sockets, the same that the tests talk to: written from the
APIs' shapes, with a real git repository behind GitLab, and with sabre/dav, Nextcloud's own WebDAV
library, where PHP is installed. Everything is written under ``.rag_assets/four_sources``. Any step
that does not do what it says ends the demo with a non-zero exit code.

    .venv/bin/python examples/four_sources/demo.py
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

PROJECT = Path(__file__).resolve().parents[2]
SCRATCH = PROJECT / ".rag_assets" / "four_sources"
COMMAND = Path(sys.executable).with_name("rag-assets")
sys.path.insert(0, str(PROJECT))  # the stand-ins live with the tests

from rag_assets_tests.four_sources import FourSources, four_sources  # noqa: E402

SEARCHES = (
    # question, tags of the caller, where the answer is
    ("Comment restaurer la base à une heure donnée ?", ["public"], "wiki/exploitation/"),
    ("How do I roll back a release?", ["public"], "code/platform/api/docs/deploy.md"),
    ("Quand commence la nouvelle messagerie ?", ["public"], "files/Notes/reunion.md"),
    ("Où renouveler mon badge ?", ["public"], "handbook/badges.md"),
)
RESTRICTED = ("Quel coefficient pour l'échelon B1 ?", "service:hr", "ressources-humaines/salaires")


class DemoError(Exception):
    """A step did not do what it says."""


def main() -> int:
    """Start, index, search, change, stop."""
    shutil.rmtree(SCRATCH, ignore_errors=True)
    try:
        with four_sources(SCRATCH / "systems") as systems:
            config = write_configuration(systems)
            environment = {**os.environ, **systems.environment()}
            environment.pop("DAGSTER_HOME", None)
            demonstrate(systems, config, environment)
    except DemoError as exc:
        print(f"\ndemo: {exc}", file=sys.stderr)
        return 1
    return 0


def write_configuration(systems: FourSources) -> Path:
    """One file with all four; it names variables, not secrets."""
    config = SCRATCH / "rag_assets.yaml"
    models = PROJECT / ".rag_assets" / "models"
    if models.is_dir():  # what `make demo` made need not be made again
        shutil.copytree(models, SCRATCH / "data" / "models")
    value = {"data_dir": "data", "sources": systems.sources()}
    config.write_text(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), encoding="utf-8")
    print(config.read_text(encoding="utf-8"))
    return config


def demonstrate(systems: FourSources, config: Path, environment: Mapping[str, str]) -> None:
    """One ingest, searches in all four, access, a change in each, and a quiet second look."""

    def run(*words: str) -> str:
        return call(config, environment, *words)

    print(run("ingest"))
    for question, tags, place in SEARCHES:
        hit = first(run, question, tags)
        print(f"  {question}\n    {hit['citation']}\n    {hit['url']}")
        if not hit["citation"].startswith(place):
            raise DemoError(f"the answer to {question!r} should be in {place}")
    question, tag, place = RESTRICTED
    hit = first(run, question, [tag])
    print(f"  {question}  (as {tag})\n    {hit['citation']}")
    if place not in hit["citation"]:
        raise DemoError(f"{tag} should find {place}")
    if place in first(run, question, ["public"]).get("citation", ""):
        raise DemoError(f"{place} was shown to a caller who may not see it")
    print("\nA text changes in each of the four:")
    change_everything(systems)
    print(run("ingest"))
    print(run("ingest"))
    print(run("explain", "platform/api/notes/todo.md", "--source", "code"))
    print(f"The configuration is {config}; docs/sources.md explains it.")


def change_everything(systems: FourSources) -> None:
    """One edit in each system."""
    badges = systems.folder / "badges.md"
    badges.write_text(badges.read_text(encoding="utf-8").replace("trois", "cinq"), "utf-8")
    page = next(p for p in systems.wiki.pages.values() if p.name == "Restaurer la base")
    systems.wiki.edit(page, markdown="## Restaurer\n\nAppelez d'abord l'astreinte.\n")
    systems.project.commit({"README.md": "# API\n\nThe service answers on port 9443.\n"})
    systems.put("Notes/reunion.md", "# Réunion\n\nLa migration est reportée à juin.\n")


def first(run: Any, question: str, tags: list[str]) -> dict[str, Any]:
    """The best passage for a caller with these tags; empty without one."""
    acl = [word for tag in tags for word in ("--acl", tag)]
    hits = json.loads(run("search", question, "-k", "1", *acl, "--json"))["hits"]
    return hits[0] if hits else {}


def call(config: Path, environment: Mapping[str, str], *words: str) -> str:
    """What a command of `rag-assets` prints."""
    done = subprocess.run(
        [str(COMMAND), "--config", str(config), *words],
        env=dict(environment),
        cwd=SCRATCH,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        raise DemoError(f"`rag-assets {' '.join(words)}` ended with code {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())

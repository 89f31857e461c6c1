"""Replay the history of a git tree: after every commit the index must equal a fresh build.

    python benchmarks/replay.py PATH/TO/REPOSITORY --docs docs/en --docs docs/fr --commits 200

Checks out commits sampled evenly through the history, oldest first, runs `ingest` after each, and
compares the index with one built from nothing out of the same files: documents, passages, anchors,
lines, vectors (to the byte) and the ledger of files left out. The number of texts embedded must be
the number of passage texts never seen before. A deterministic stub embedder stands in for a model.
Exits 1 on the first difference kinds found, after the whole replay.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from rag_assets.components import open_reader
from rag_assets.config import Config, load_config
from rag_assets.ingest import ingest
from rag_assets.pipeline.pipeline import Pipeline, RunOptions


def git(repository: Path, *arguments: str) -> str:
    """Output of a git command in the repository."""
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def sampled_commits(repository: Path, docs: list[str], count: int) -> list[str]:
    """Commits that touch the folders, oldest first, evenly spread, all folders present."""
    commits = git(repository, "log", "--reverse", "--format=%H", "--", *docs).split()
    usable = []
    step = max(1, len(commits) // (count * 2))
    for commit in commits[::step]:
        present = git(repository, "ls-tree", "-d", "--name-only", commit, *docs).split("\n")
        if all(folder in present or folder == "." for folder in docs):
            usable.append(commit)
    if len(usable) <= count:
        return usable
    return [usable[i * (len(usable) - 1) // (count - 1)] for i in range(count)]


def write_config(folder: Path, repository: Path, docs: list[str], log: Path) -> Config:
    """A configuration with one source per folder."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = [
        {
            "name": "tree" if folder == "." else folder.replace("/", "-"),
            "root": str(repository / folder),
            "acl": {"default": ["public"]},
            "max_removed_fraction": 1.0,
        }
        for folder in docs
    ]
    embedding = {
        "backend": "rag_assets.testing.embedders:StubEmbedder",
        "options": {"log_path": str(log)},
    }
    path = folder / "rag_assets.yaml"
    path.write_text(json.dumps({"sources": sources, "embedding": embedding}), encoding="utf-8")
    return load_config(path)


def contents(config: Config) -> dict[str, Any]:
    """Everything the index of a configuration says, comparable."""
    store = open_reader(config)
    try:
        found: dict[str, Any] = {"left out": sorted(map(repr, store.left_out()))}
        for source in config.sources:
            for item in store.documents(source.name):
                document = item.document
                found[f"{source.name}/{document.path}"] = (
                    document.content_hash,
                    document.title,
                    document.acl_tags,
                    sorted(document.metadata.items()),
                    [repr(chunk) + chunk.content for chunk in item.chunks],
                    item.vectors.tobytes(),
                )
        return found
    finally:
        store.close()


def texts(config: Config) -> set[str]:
    """Content hashes of all passages in the index."""
    store = open_reader(config)
    try:
        return {c.content_hash for s in config.sources for d in store.documents(s.name)
                for c in d.chunks}  # fmt: skip
    finally:
        store.close()


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Keys in which two indexes differ."""
    return sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))


def fresh_build(folder: Path, repository: Path, docs: list[str]) -> Config:
    """Build an index from nothing, without Dagster."""
    shutil.rmtree(folder, ignore_errors=True)
    config = write_config(folder, repository, docs, folder / "embedded.log")
    pipeline = Pipeline(config)
    for partition in config.partitions():
        pipeline.run(partition, RunOptions("fresh"))
    return config


def embedded_lines(log: Path) -> int:
    """How many texts the embedder was given so far."""
    return log.read_bytes().count(b"\n") if log.exists() else 0


def replay(origin: Path, docs: list[str], count: int, work: Path) -> dict[str, Any]:
    """Replay and compare; the totals."""
    repository = work / "tree"
    subprocess.run(["git", "clone", "-q", str(origin), str(repository)], check=True)
    commits = sampled_commits(repository, docs, count)
    log = work / "embedded.log"
    seen: set[str] = set()
    totals = {"commits": len(commits), "differences": 0, "embedded": 0, "never_seen": 0}
    totals |= {"unchanged_runs": 0, "chunks": 0}
    began = time.monotonic()
    for number, commit in enumerate(commits, 1):
        git(repository, "checkout", "-q", "-f", commit)
        config = write_config(work / "incremental", repository, docs, log)
        before = embedded_lines(log)
        report = ingest(config.path)
        if report.status == "failed":
            sys.exit(f"{commit}: {[p.error for p in report.partitions]}")
        totals["unchanged_runs"] += report.status == "unchanged"
        embedded = embedded_lines(log) - before
        fresh = fresh_build(work / "fresh", repository, docs)
        now = texts(fresh)
        different = differences(contents(config), contents(fresh))
        never_seen = len(now - seen)
        if different or embedded != never_seen:
            totals["differences"] += len(different) + (embedded != never_seen)
            print(f"{commit}: {different[:5]}, embedded {embedded}, never seen {never_seen}")
        seen |= now
        totals["embedded"] += embedded
        totals["never_seen"] += never_seen
        totals["chunks"] = len(now)
        if sys.stderr.isatty() or number % 20 == 0:
            rate = number / (time.monotonic() - began)
            print(f"{number}/{len(commits)} commits, {rate:.2f}/s", file=sys.stderr)
    totals["seconds"] = round(time.monotonic() - began, 1)
    return totals


def main() -> None:
    """Read the arguments, replay, print the totals."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", type=Path, help="a git repository or bundle")
    parser.add_argument("--docs", action="append", help="folder to index (repeatable), default .")
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ.pop("DAGSTER_HOME", None)
    with tempfile.TemporaryDirectory() as folder:
        totals = replay(
            arguments.tree.absolute(), arguments.docs or ["."], arguments.commits, Path(folder)
        )
    print(json.dumps(totals) if arguments.json else
          ", ".join(f"{name}: {value}" for name, value in totals.items()))  # fmt: skip
    sys.exit(1 if totals["differences"] else 0)


if __name__ == "__main__":
    main()

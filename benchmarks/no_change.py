"""What it costs to find out that nothing changed, against a bare walk over the same tree.

Every command is a whole process with a fresh interpreter, and they take turns, so a slow moment of
the machine hits all of them:

* ``bare walk``: ``os.scandir`` and one ``lstat`` per file, the least any look must do;
* ``look``: load the state of the last listing from a JSON file, compare, exit;
* ``ingest``: ``rag-assets ingest`` on an index that is up to date (it makes no run).

Then one file is changed: the texts that ingest embeds are counted.

Run from a checkout: ``python benchmarks/no_change.py [--files 10000] [--rounds 15] [--json]``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rag_assets.ingest import ingest
from rag_assets.sources.markdown_tree import MarkdownTree

STUB = "rag_assets.testing.embedders:StubEmbedder"

FILES_PER_FOLDER = 50
PAUSE_SECONDS = 2.2
"""Files must be older than two seconds to be taken at their times; see ``tree_look.RACY_NS``."""

BARE_WALK = """\
import os, sys
stack, files = [sys.argv[1]], 0
while stack:
    with os.scandir(stack.pop()) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                stack.append(entry.path)
            else:
                entry.stat(follow_symlinks=False)
                files += 1
"""
LOOK = """\
import json, sys
from rag_assets.sources.tree_look import look_tree
with open(sys.argv[1]) as file:
    state = json.load(file)
if look_tree(state):
    sys.exit(1)
"""


def build_tree(root: Path, files: int) -> None:
    """``files`` Markdown files, one image per folder, folders nested three deep."""
    for number in range(files):
        part = number // FILES_PER_FOLDER
        folder = root / f"area-{part // 25}" / f"topic-{part % 25 // 5}" / f"part-{part % 5}"
        if number % FILES_PER_FOLDER == 0:
            folder.mkdir(parents=True)
            (folder / "figure.png").write_bytes(b"\x89PNG")
        (folder / f"page-{number}.md").write_text(f"# Page {number}\n\nText of page {number}.\n")


def prepare(folder: Path, files: int) -> dict[str, Sequence[str]]:
    """The commands to compare, by name; the first is the yardstick."""
    root, state = folder / "tree", folder / "state.json"
    build_tree(root, files)
    time.sleep(PAUSE_SECONDS)
    listing = MarkdownTree("docs", root).list()
    if len(listing.files) != files:
        raise SystemExit(f"the listing holds {len(listing.files)} documents, not {files}")
    state.write_text(json.dumps(listing.look_state))
    return {
        "bare walk": (sys.executable, "-c", BARE_WALK, str(root)),
        "look": (sys.executable, "-c", LOOK, str(state)),
        "ingest": (
            sys.executable,
            "-m",
            "rag_assets.cli",
            "--config",
            str(index(folder)),
            "ingest",
        ),
    }


def index(folder: Path) -> Path:
    """Ingest the tree once with a stub embedder; the configuration."""
    source = {"name": "docs", "root": "tree", "acl": {"default": ["public"]}}
    settings = {"sources": [source], "embedding": {"backend": STUB}}
    config = folder / "rag_assets.yaml"
    config.write_text(json.dumps(settings))
    first, again = ingest(config), ingest(config)
    if (first.status, again.status) != ("ok", "unchanged"):
        raise SystemExit(f"the ingests ended {first.status} and {again.status}")
    return config


def change_one(folder: Path) -> int:
    """Add a section to one page; how many texts the next ingest embeds."""
    page = next((folder / "tree").rglob("page-7.md"))
    page.write_text(page.read_text() + "\n## Added\n\nOne more section.\n")
    return ingest(folder / "rag_assets.yaml").chunks_embedded


def environment(cache: Path) -> dict[str, str]:
    """Byte code is compiled once, as in an installation, and outside the checkout."""
    checkout = str(Path(__file__).resolve().parents[1])
    values = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**values, "PYTHONPYCACHEPREFIX": str(cache), "PYTHONPATH": checkout}


def seconds_of(command: Sequence[str], env: dict[str, str]) -> float:
    """Wall time of one process, which must succeed."""
    start = time.perf_counter()
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def compare(
    commands: dict[str, Sequence[str]], rounds: int, run: Callable[[Sequence[str]], float]
) -> dict[str, Any]:
    """Median seconds of each command, and how many times the first one that is."""
    for command in commands.values():
        run(command)  # compiles, and fills the page cache
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            times[name].append(run(command))
    medians = {name: statistics.median(values) for name, values in times.items()}
    yardstick = next(iter(medians.values()))
    return {
        name: {
            "median_seconds": round(median, 4),
            "fastest_seconds": round(min(times[name]), 4),
            "ratio": round(median / yardstick, 2),
        }
        for name, median in medians.items()
    }


def main() -> None:
    """Build the tree, time the commands, print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="no-change-") as name:
        folder = Path(name)
        commands = prepare(folder, options.files)
        env = environment(folder / "byte-code")
        results = compare(commands, options.rounds, lambda command: seconds_of(command, env))
        embedded = change_one(folder)
    if options.json:
        print(json.dumps({"files": options.files, "rounds": options.rounds, "commands": results,
                          "embedded_after_one_change": embedded}))  # fmt: skip
        return
    print(f"{options.files} files, medians of {options.rounds} alternating whole processes")
    for command, result in results.items():
        print(f"{command:12} {result['median_seconds'] * 1000:8.1f} ms  {result['ratio']:5.2f}x")
    print(f"one of {options.files} files changed: {embedded} text embedded")


if __name__ == "__main__":
    main()

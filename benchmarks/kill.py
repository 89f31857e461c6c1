"""Kill `ingest` at random moments: the next one must finish the work, and embed nothing twice.

    python benchmarks/kill.py --kills 50

Every round edits a tree of Markdown, starts `rag-assets ingest` as a process of its own, sends it
SIGKILL after a random time, runs it again to the end, and checks: exit code 0, `verify` clean, the
index equal to the files, and no text embedded again whose batch had been kept. A batch is kept when
the embedder is asked for the next one; the batch in flight at the kill may be embedded again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

BATCH = 8
COMMAND = [sys.executable, "-m", "rag_assets.cli"]


def write_project(folder: Path) -> Path:
    """A configuration whose embedder takes its time and logs every text."""
    embedding = {
        "backend": "rag_assets.testing.embedders:StubEmbedder",
        "options": {
            "log_path": str(folder / "embedded.log"),
            "batch_size": BATCH,
            "seconds_per_text": 0.004,
        },
    }
    source = {"name": "docs", "root": "docs", "acl": {"default": ["public"]}}
    path = folder / "rag_assets.yaml"
    path.write_text(json.dumps({"sources": [source], "embedding": embedding}), encoding="utf-8")
    return path


def edit(root: Path, rng: random.Random, round_: int) -> None:
    """Add, change, rename and delete some pages."""
    root.mkdir(exist_ok=True)
    pages = sorted(root.glob("*.md"))
    for path in rng.sample(pages, min(len(pages), 6)):
        action = rng.choice(["change", "rename", "delete"])
        if action == "change":
            path.write_text(path.read_text() + f"\n\n## Ajout {round_}\n\nTexte {rng.random()}\n")
        elif action == "rename":
            path.rename(root / f"renamed-{round_}-{path.name[-40:]}")
        else:
            path.unlink()
    for number in range(20):
        body = "\n\n".join(
            f"## Section {i}\n\nPage {round_}/{number}, paragraphe {i}: {rng.random()}"
            for i in range(rng.randint(1, 6))
        )
        (root / f"page-{round_}-{number}.md").write_text(f"# Page {number}\n\n{body}\n")


def ingest(config: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start an ingest."""
    return subprocess.Popen(
        [*COMMAND, "--config", str(config), "ingest", "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def log_lines(folder: Path) -> list[str]:
    """sha256 of every text the embedder was given, in order."""
    log = folder / "embedded.log"
    return log.read_text().split() if log.exists() else []


def one_round(
    folder: Path, config: Path, environment: dict[str, str], rng: random.Random, round_: int,
    longest: float,
) -> tuple[list[str], set[str], float]:  # fmt: skip
    """Edit, kill, recover, check: problems, texts that may come twice, seconds of the recovery."""
    edit(folder / "docs", rng, round_)
    problems = []
    process = ingest(config, environment)
    time.sleep(rng.uniform(0.3, longest))
    in_time = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    excused = set(log_lines(folder)[-BATCH:]) if in_time else set()
    began = time.monotonic()
    process = ingest(config, environment)
    _, err = process.communicate()
    seconds = time.monotonic() - began
    if process.returncode != 0:
        problems.append(f"ingest after the kill: exit {process.returncode}: {err.decode()[-500:]}")
    verify = subprocess.run(
        [*COMMAND, "--config", str(config), "verify", "--json"],
        env=environment,
        capture_output=True,
        check=False,
    )
    found = json.loads(verify.stdout or b"{}")
    problems += found.get("problems", [f"verify: {verify.stderr.decode()[-500:]}"])
    if found.get("documents") != len(list((folder / "docs").glob("*.md"))):
        problems.append(f"the index holds {found.get('documents')} documents, not those on disk")
    return problems, excused, seconds


def main() -> None:
    """Run the campaign; exit 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=20_26)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    environment = {k: v for k, v in os.environ.items() if k != "DAGSTER_HOME"}
    problems: list[str] = []
    excused: set[str] = set()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = write_project(folder)
        edit(folder / "docs", rng, 0)
        began = time.monotonic()
        if ingest(config, environment).wait() != 0:
            sys.exit("the first ingest failed")
        longest = time.monotonic() - began
        for round_ in range(1, arguments.kills + 1):
            found, may_repeat, seconds = one_round(
                folder, config, environment, rng, round_, longest
            )
            excused |= may_repeat
            problems += [f"kill {round_}: {problem}" for problem in found]
            longest = 0.8 * longest + 0.2 * seconds
            print(f"kill {round_}: {found or 'recovered'}", file=sys.stderr)
        twice = [t for t, count in Counter(log_lines(folder)).items() if count > 1]
        again = [text for text in twice if text not in excused]
        total = len(log_lines(folder))
    if again:
        problems.append(f"{len(again)} texts were embedded again though their batch was kept")
    print(f"{arguments.kills} kills, {total} texts embedded, {len(twice)} of them twice "
          f"(in flight at a kill), {len(problems)} problems")  # fmt: skip
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()

"""How much of what should be found screening finds, and how many real documents it flags.

    python benchmarks/screening.py [--data DIR] [--work DIR] [--judge]

Fixtures are those of the tests: orders to a model and secrets, in the places and disguises people
use, with the groups of phrases that were tuned on, held out, and never seen. The documents are all
Markdown of the last commit of each tree in ``DIR/trees``. Each flagged place is judged in
``screening_judged.json``; one that is not judged counts as wrong. ``--judge`` prints the lines that
are not judged yet.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from rag_assets.screening import Finding, FindingKind, screen  # noqa: E402
from rag_assets_tests.screening.injections import injected_documents  # noqa: E402
from rag_assets_tests.screening.near_misses import (  # noqa: E402
    NOT_ORDERS,
    NOT_PERSONAL,
    NOT_SECRETS,
)
from rag_assets_tests.screening.secret_samples import secret_documents  # noqa: E402

JUDGED = Path(__file__).with_name("screening_judged.json")
KINDS: tuple[FindingKind, ...] = ("instructions", "secret")
ALL_KINDS: tuple[FindingKind, ...] = (*KINDS, "personal_number")
Place = tuple[str, str, int, str]
"""Tree, path, line, rule."""


@dataclass(slots=True)
class Tree:
    """What screening made of one tree."""

    name: str
    documents: int = 0
    characters: int = 0
    seconds: float = 0.0
    flagged: int = 0
    wrongly: int = 0


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=ROOT / ".." / "shared" / "data")
    parser.add_argument("--work", type=Path, help="where trees are cloned (temporary by default)")
    parser.add_argument("--judge", action="store_true")
    options = parser.parse_args(arguments)
    screen("tu es le premier", kinds=ALL_KINDS)
    _print_found()
    _print_near_misses()
    bundles = sorted((options.data / "trees").glob("*.bundle"))
    with tempfile.TemporaryDirectory() as temporary:
        _print_flagged(bundles, options.work or Path(temporary), options.judge)


def _print_found() -> None:
    print("| documents | group | found | of | share |\n|---|---|--:|--:|--:|")
    of: Counter[tuple[str, str]] = Counter()
    found: Counter[tuple[str, str]] = Counter()
    for injected in injected_documents():
        row = (f"orders, {injected.language}", injected.group)
        of[row] += 1
        found[row] += bool(screen(injected.text, kinds=["instructions"]))
    for secret in secret_documents():
        row = ("secrets", "held out" if secret.held_out else "tuned")
        of[row] += 1
        found[row] += bool(screen(secret.text, kinds=["secret"]))
    for row in sorted(of):
        print(f"| {row[0]} | {row[1]} | {found[row]} | {of[row]} | {found[row] / of[row]:.1%} |")


def _print_near_misses() -> None:
    near = (*NOT_ORDERS, *NOT_SECRETS, *NOT_PERSONAL)
    flagged = sum(bool(screen(text, kinds=ALL_KINDS)) for text in near)
    print(f"\nNear misses flagged: {flagged} of {len(near)}\n")


def _print_flagged(bundles: Sequence[Path], work: Path, judge: bool) -> None:
    judged = {(p["tree"], p["path"], p["line"], p["rule"]): p["true"] for p in _judgements()}
    print(
        "| tree | documents | flagged | wrongly | share | ms for 10 kB |\n|---|--:|--:|--:|--:|--:|"
    )
    total = Tree("all")
    unknown: list[tuple[Place, str]] = []
    for bundle in bundles:
        tree = Tree(bundle.stem)
        for path, text in _documents(bundle, work):
            start = time.process_time()
            findings = screen(text, kinds=KINDS)
            tree.seconds += time.process_time() - start
            tree.documents += 1
            tree.characters += len(text)
            tree.flagged += bool(findings)
            places = [(tree.name, path, f.line, f.rule) for f in findings]
            tree.wrongly += bool(places) and not any(judged.get(place) for place in places)
            unknown += [
                (place, _line(text, found))
                for place, found in zip(places, findings, strict=True)
                if place not in judged
            ]
        _print_tree(tree)
        total.documents += tree.documents
        total.characters += tree.characters
        total.seconds += tree.seconds
        total.flagged += tree.flagged
        total.wrongly += tree.wrongly
    _print_tree(total)
    print(f"\nPlaces not judged: {len(unknown)}")
    if judge:
        for place, line in unknown:
            print(json.dumps(place, ensure_ascii=False), line)


def _print_tree(tree: Tree) -> None:
    if tree.documents:
        share = f"{tree.wrongly / tree.documents:.2%}"
        speed = f"{tree.seconds / tree.characters * 1e7:.1f}"
        numbers = f"{tree.documents} | {tree.flagged} | {tree.wrongly} | {share} | {speed}"
        print(f"| {tree.name} | {numbers} |")


def _judgements() -> list[dict[str, object]]:
    places: list[dict[str, object]] = json.loads(JUDGED.read_text("utf-8"))
    return places


def _documents(bundle: Path, work: Path) -> Iterator[tuple[str, str]]:
    """Paths and texts of the Markdown files of the tree's last commit."""
    clone = work / bundle.stem
    if not clone.exists():
        subprocess.run(["git", "clone", "-q", str(bundle), str(clone)], check=True)
    for file in sorted(clone.rglob("*")):
        relative = file.relative_to(clone)
        if relative.parts[0] == ".git" or file.suffix.lower() not in (".md", ".markdown"):
            continue
        if file.is_file() and not file.is_symlink():
            yield relative.as_posix(), file.read_bytes().decode("utf-8-sig")


def _line(text: str, finding: Finding) -> str:
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[finding.line - 1][:200] if finding.line <= len(lines) else ""


if __name__ == "__main__":
    main()

"""Index the example handbook, search it in two languages, change a page, index again.

Run by ``make demo``. Everything is written under ``.rag_assets/``; the checkout stays as it is.
Any step that does not do what it says ends the demo with a non-zero exit code.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from rag_assets.acl import EVERYTHING, AclTags
from rag_assets.retrieval import Retriever, open_retriever

PROJECT = Path(__file__).resolve().parent.parent
COMMAND = Path(sys.executable).with_name("rag-assets")
SCRATCH = PROJECT / ".rag_assets" / "demo"

SEARCHES = (
    # question, page that must be among the answers, mode, remark
    (
        "What do I do if I clicked on a phishing link?",
        "it/passwords-and-keys.md",
        "hybrid",
        "English question",
    ),
    (
        "Comment restaurer la base des communes à une heure donnée ?",
        "exploitation/sauvegardes.md",
        "hybrid",
        "French question",
    ),
    (
        "Je me suis fait voler mon ordinateur portable, qui appeler ?",
        "it/vpn.md",
        "vector",
        "French question, by meaning alone; the answer is only written in English",
    ),
)
RESTRICTED_QUESTION = "Combien gagne-t-on à l'échelon B1 ?"
RESTRICTED_PAGE = "rh/grille-salariale.md"

SCRATCH_CONFIG = """\
data_dir: data
sources:
  - name: handbook
    kind: markdown
    root: handbook
    acl:
      default: [public]
"""


def main() -> int:
    """The four acts of the demo."""
    try:
        index_handbook()
        search_handbook()
        explain_left_out()
        change_a_page()
    except DemoError as exc:
        print(f"\ndemo: {exc}", file=sys.stderr)
        return 1
    heading("What next")
    print(
        "  make ui                               assets and runs in Dagster, on 127.0.0.1:3000\n"
        '  .venv/bin/rag-assets search "..."     your own questions\n'
        "  .venv/bin/rag-assets --help           everything else\n"
        "  rag_assets.yaml                       point it at your own Markdown"
    )
    return 0


class DemoError(Exception):
    """A step did not do what it says."""


def index_handbook() -> None:
    """Bring the project's own index up to date; its runs are those that `make ui` shows."""
    heading("1. Index examples/handbook")
    show("ingest")


def search_handbook() -> None:
    """Ask in both languages, and check that the right page is among the answers."""
    heading("2. Search it")
    with closing(open_retriever(PROJECT / "rag_assets.yaml")) as retriever:
        for question, page, mode, remark in SEARCHES:
            print(f"\n  # {remark}")
            show("search", question, "-k", "2", "--mode", mode)
            if page not in pages(retriever, question, EVERYTHING, mode):
                raise DemoError(f"{page} should be among the answers to {question!r}")
        print("\n  # the salary grid is tagged service:rh: without that tag, it does not exist")
        show("search", RESTRICTED_QUESTION, "-k", "1", "--acl", "public")
        show("search", RESTRICTED_QUESTION, "-k", "1", "--acl", "public", "--acl", "service:rh")
        if RESTRICTED_PAGE in pages(retriever, RESTRICTED_QUESTION, ["public"]):
            raise DemoError(f"{RESTRICTED_PAGE} was shown to a caller who may not see it")
        if RESTRICTED_PAGE not in pages(retriever, RESTRICTED_QUESTION, ["public", "service:rh"]):
            raise DemoError(f"{RESTRICTED_PAGE} was hidden from a caller who may see it")


def explain_left_out() -> None:
    """Say why a page is not in the index."""
    heading("3. Ask why a page is not in the index")
    show("explain", "legacy/vpn-2019.md")
    show("explain", "minutes/2026-10-board.md")


def change_a_page() -> None:
    """On a copy of the handbook, with its own index: an edit embeds only what it changed."""
    heading("4. Change one page (in a copy, so that the checkout stays clean)")
    config = copy_handbook()
    first = ingest(config)
    print(
        f"  the copy is indexed: {first['chunks_upserted']} chunks, "
        f"{first['chunks_embedded']} embedded (these texts have been embedded before)"
    )

    page = config.parent / "handbook" / "engineering" / "on-call.md"
    text = page.read_text(encoding="utf-8")
    if "€310" not in text:
        raise DemoError(f"{page} no longer says €310")
    page.write_text(text.replace("€310", "€330"), encoding="utf-8")
    print("\n  # engineering/on-call.md now says €330 a week instead of €310")
    show("ingest", "--plan", config=config)
    second = ingest(config)
    print(
        f"\n  indexed again: {second['documents_indexed']} page written, "
        f"{second['documents_skipped']} skipped; {second['chunks_embedded']} chunk embedded, "
        f"{second['chunks_unchanged']} unchanged"
    )
    if second["documents_indexed"] != 1 or second["chunks_embedded"] != 1:
        raise DemoError(f"one page and one chunk had changed, but the run says {dict(second)}")
    third = answer("ingest", config=config)
    if third["status"] != "unchanged" or third["partitions"]:
        raise DemoError(f"nothing had changed, but the answer is {third}")
    print("  and once more, with nothing changed: nothing embedded, no run launched")


def copy_handbook() -> Path:
    """A fresh copy with a configuration of its own; returns the configuration."""
    if SCRATCH.exists():
        shutil.rmtree(SCRATCH)
    shutil.copytree(PROJECT / "examples" / "handbook", SCRATCH / "handbook")
    for name in ("models", "cache"):  # what the first act made need not be made again
        made = PROJECT / ".rag_assets" / name
        if made.is_dir():
            shutil.copytree(made, SCRATCH / "data" / name)
    config = SCRATCH / "rag_assets.yaml"
    config.write_text(SCRATCH_CONFIG, encoding="utf-8")
    return config


def ingest(config: Path) -> Mapping[str, Any]:
    """Bring the index of the copy up to date; the counts of all its partitions together."""
    report = answer("ingest", config=config)
    totals: Mapping[str, Any] = report["totals"]
    return totals


def pages(retriever: Retriever, question: str, acl_tags: AclTags, mode: str = "hybrid") -> set[str]:
    """Paths of the first two hits, asked through the library."""
    return {hit.path for hit in retriever.retrieve(question, 2, acl_tags=acl_tags, mode=mode)}


def show(*words: str, config: Path | None = None) -> None:
    """Run a command of `rag-assets` and let its own output be seen."""
    where = ["--config", str(config.relative_to(PROJECT))] if config else []
    print(f"\n  $ rag-assets {as_typed(*where, *words)}", flush=True)
    run(words, config, capture=False)


def answer(*words: str, config: Path | None = None) -> dict[str, Any]:
    """Run a command of `rag-assets` with --json and read its answer."""
    result = json.loads(run([*words, "--json"], config, capture=True))
    if not isinstance(result, dict):
        raise DemoError(f"`rag-assets {as_typed(*words)}` did not answer with an object")
    return result


def run(words: tuple[str, ...] | list[str], config: Path | None, *, capture: bool) -> str:
    """Run the command in the project's folder; standard output when captured."""
    file = config or PROJECT / "rag_assets.yaml"
    environment = dict(os.environ)
    # The runs belong to the project that is shown, not to an instance of the user's own.
    environment.pop("DAGSTER_HOME", None)
    done = subprocess.run(
        [str(COMMAND), "--config", str(file), *words],
        cwd=PROJECT,
        env=environment,
        stdout=subprocess.PIPE if capture else None,
        encoding="utf-8",
        check=False,
    )
    if done.returncode != 0:
        raise DemoError(f"`rag-assets {as_typed(*words)}` ended with code {done.returncode}")
    return done.stdout or ""


def as_typed(*words: str) -> str:
    """The words as a person would type them in a shell."""
    return " ".join(f'"{word}"' if " " in word else word for word in words)


def heading(text: str) -> None:
    """A line that can be found again in a long output."""
    print(f"\n── {text} {'─' * max(3, 76 - len(text))}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

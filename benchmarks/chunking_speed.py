"""How fast documents are parsed and cut into passages, alone, in one process.

    python benchmarks/chunking_speed.py FOLDER [FOLDER ...]

For each folder of Markdown files: documents and megabytes a second for the documents stage, the
parser, the chunker, and both stages together (best of five rounds, so that a busy machine counts
less), and how full the passages are.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from rag_assets.chunking.markdown import MarkdownChunker
from rag_assets.documents.parse import parse_document
from rag_assets.fingerprints import sha256_hex
from rag_assets.markdown import normalise_line_ends, outline
from rag_assets.models import Document, SourceFile
from rag_assets.tokens import upper_bound_tokens

ROUNDS = 5
Item = TypeVar("Item")


def source_files(folder: Path) -> list[SourceFile]:
    """Every Markdown file below ``folder``, read."""
    files = []
    for path in sorted(folder.rglob("*.md")):
        content = path.read_bytes()
        name = path.relative_to(folder).as_posix()
        files.append(
            SourceFile("bench", name, "", content, sha256_hex(content), None, ("public",), "")
        )
    return files


def fastest(work: Callable[[Item], object], items: Sequence[Item]) -> float:
    """Seconds of processor time of the fastest round over all items."""
    rounds = []
    for _ in range(ROUNDS):
        started = time.process_time()
        for item in items:
            work(item)
        rounds.append(time.process_time() - started)
    return min(rounds)


def measure(folder: Path) -> None:
    """Print the rates for one folder."""
    files = source_files(folder)
    size = sum(len(file.content) for file in files) / 1e6
    documents = [d for d in map(parse_document, files) if isinstance(d, Document)]
    bodies = [normalise_line_ends(document.body) for document in documents]
    chunker = MarkdownChunker()

    def both(file: SourceFile) -> None:
        document = parse_document(file)
        if isinstance(document, Document):
            chunker.chunk(document)

    print(f"{folder}: {len(files)} files, {size:.1f} MB")
    for name, seconds in (
        ("documents stage", fastest(parse_document, files)),
        ("parser alone", fastest(outline, bodies)),
        ("chunking stage", fastest(chunker.chunk, documents)),
        ("both stages", fastest(both, files)),
    ):
        print(f"  {name:16} {len(files) / seconds:8.0f} documents/s {size / seconds:7.1f} MB/s")
    chunks = [chunk for document in documents for chunk in chunker.chunk(document)]
    estimated = sum(chunk.tokens for chunk in chunks) / max(1, len(chunks))
    bound = [upper_bound_tokens(chunk.text) for chunk in chunks]
    print(
        f"  {len(chunks)} passages, {estimated:.0f} estimated tokens on average, "
        f"at most {max(bound, default=0)} by the upper bound"
    )


def main() -> None:
    """Measure each folder named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    for folder in parser.parse_args().folders:
        measure(folder)


if __name__ == "__main__":
    main()

"""How well a chunker keeps answers whole and findable: ours beside two splitters people use.

    python benchmarks/retrieval.py --chunking [--data DIR] [--work DIR]

Five long texts, 472 questions, and for each question the exact characters that answer it. Ours
runs with its defaults. Each peer gets an overlap like ours and, text by text, the target size at
which its mean passage has as many tokens as ours. All passages of a chunker are embedded with the
same line above them and ranked together by cosine; a question takes the best that fit into a
number of tokens. Tokens are ``estimate_tokens`` everywhere.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from reporting import PerQuestion, difference, markdown_table
from retrieval_sets import CachedEmbedder

from rag_assets.chunking.markdown import MarkdownChunker
from rag_assets.embeddings.base import Vectors
from rag_assets.fingerprints import sha256_hex
from rag_assets.markdown import outline
from rag_assets.models import embedding_text
from rag_assets.tokens import estimate_tokens

BUDGETS = (1_000, 2_000, 4_000)
"""Tokens of passages that a question may take: 3 to 15 passages."""
OVERLAP_SHARE = 0.2
"""Of a peer's target size: 64 tokens where its passages have the mean size of ours. A fixed number
would leave semchunk, which packs pieces of the size of its overlap, with a few sizes only."""
OURS = "rag_assets"


@dataclass(frozen=True, slots=True)
class Piece:
    """A passage, and the characters of the text that it is."""

    corpus: str
    start: int
    end: int
    content: str

    @property
    def tokens(self) -> int:
        return estimate_tokens(self.content)


@dataclass(frozen=True, slots=True)
class Question:
    """A question about one text, and the spans of characters that answer it."""

    text: str
    corpus: str
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """What one chunker did."""

    pieces: list[Piece]
    whole: PerQuestion
    """Of each answer span: 1 when some piece holds all of it."""
    recall: dict[int, PerQuestion]
    """Tokens -> share of the characters of the answer that were found."""
    overlap: dict[int, PerQuestion]
    """Tokens -> characters found / characters found, missed or taken in vain."""
    used: dict[int, PerQuestion]
    """Tokens -> tokens of the passages taken: passages are taken whole, so never quite all."""


Cut = Callable[[str, int], "list[tuple[int, int]]"]
"""Text and target size -> spans of the passages."""


def cut_by_ours(corpus: str, text: str) -> list[tuple[int, int]]:
    """The packer with its defaults; without tables, a passage is an exact slice of the text."""
    passages = MarkdownChunker().passages(corpus, outline(text))
    return [(passage.start, passage.end) for _, passage in passages]


def cut_by_langchain(text: str, size: int) -> list[tuple[int, int]]:
    """RecursiveCharacterTextSplitter; its own start_index counts the overlap in characters."""
    from langchain_text_splitters import RecursiveCharacterTextSplitter

    splitter = RecursiveCharacterTextSplitter(
        chunk_size=size,
        chunk_overlap=int(size * OVERLAP_SHARE),
        length_function=estimate_tokens,
    )
    spans: list[tuple[int, int]] = []
    for content in splitter.split_text(text):
        start = text.index(content, spans[-1][0] + 1 if spans else 0)
        spans.append((start, start + len(content)))
    return spans


def cut_by_semchunk(text: str, size: int) -> list[tuple[int, int]]:
    """semchunk with the same counter of tokens."""
    import semchunk

    _, spans = semchunk.chunk(text, size, estimate_tokens, offsets=True, overlap=OVERLAP_SHARE)
    return spans


PEERS: dict[str, Cut] = {
    "RecursiveCharacterTextSplitter": cut_by_langchain,
    "semchunk": cut_by_semchunk,
}


def report(folder: Path, embedder: CachedEmbedder) -> int:
    """Measure all chunkers, print the tables; 0."""
    texts = {path.stem: path.read_bytes().decode() for path in sorted(folder.glob("*.md"))}
    questions = read_questions(folder / "questions.csv")
    ours = [
        piece
        for name, text in texts.items()
        for piece in _pieces(name, text, cut_by_ours(name, text))
    ]
    chunkers = {OURS: ours}
    for name, cut in PEERS.items():
        chunkers[name] = [
            piece for corpus in texts for piece in _equal_size(corpus, texts[corpus], cut, ours)
        ]
    measured = {}
    for name, pieces in chunkers.items():
        print(f"{name}: {len(pieces)} passages", file=sys.stderr)
        measured[name] = measure(texts, questions, pieces, embedder)
    print(_overall(texts, measured), end="\n\n")
    print(_by_corpus(questions, measured), end="\n\n")
    print(_differences(measured))
    return 0


def read_questions(path: Path) -> list[Question]:
    """``questions.csv``: question, references (JSON), corpus_id."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Question(
                row["question"],
                row["corpus_id"],
                tuple((r["start_index"], r["end_index"]) for r in json.loads(row["references"])),
            )
            for row in csv.DictReader(file)
        ]


def measure(
    texts: dict[str, str],
    questions: Sequence[Question],
    pieces: list[Piece],
    embedder: CachedEmbedder,
) -> Measured:
    """Embed pieces and questions, rank, take what fits, compare with the answers."""
    order = _ranked(questions, pieces, embedder)
    recall: dict[int, list[float]] = {budget: [] for budget in BUDGETS}
    overlap: dict[int, list[float]] = {budget: [] for budget in BUDGETS}
    used: dict[int, list[int]] = {budget: [] for budget in BUDGETS}
    for question, best in zip(questions, order, strict=True):
        for budget in BUDGETS:
            taken = _fitting([pieces[n] for n in best[:200]], budget)
            found, answer, read = _characters(question, taken, len(texts[question.corpus]))
            recall[budget].append(found / answer)
            overlap[budget].append(found / (answer + read - found))
            used[budget].append(sum(piece.tokens for piece in taken))
    return Measured(
        pieces,
        np.array([_is_whole(q.corpus, span, pieces) for q in questions for span in q.spans], float),
        {budget: np.array(values) for budget, values in recall.items()},
        {budget: np.array(values) for budget, values in overlap.items()},
        {budget: np.array(values, float) for budget, values in used.items()},
    )


def _pieces(corpus: str, text: str, spans: Sequence[tuple[int, int]]) -> list[Piece]:
    return [Piece(corpus, start, end, text[start:end]) for start, end in spans]


def _mean_tokens(pieces: Sequence[Piece]) -> float:
    return float(np.mean([piece.tokens for piece in pieces]))


def _equal_size(corpus: str, text: str, cut: Cut, ours: Sequence[Piece]) -> list[Piece]:
    """The peer's pieces at the target size whose mean is nearest to ours (by bisection)."""
    aim = _mean_tokens([piece for piece in ours if piece.corpus == corpus])
    low, high = int(aim), int(aim * 2)
    tried: dict[float, list[Piece]] = {}
    while low <= high:
        size = (low + high) // 2
        pieces = _pieces(corpus, text, cut(text, size))
        tried[abs(_mean_tokens(pieces) - aim)] = pieces
        if _mean_tokens(pieces) < aim:
            low = size + 1
        else:
            high = size - 1
    return tried[min(tried)]


def _ranked(
    questions: Sequence[Question], pieces: Sequence[Piece], embedder: CachedEmbedder
) -> list[list[int]]:
    """For each question the indices of all pieces, nearest first."""
    passages = [embedding_text(piece.corpus, (), piece.content) for piece in pieces]
    vectors: Vectors = embedder.vectors("passage", [(sha256_hex(t), t) for t in passages])
    asked = embedder.embed("query", [question.text for question in questions])
    order: list[list[int]] = np.argsort(-(asked @ vectors.T), axis=1, kind="stable").tolist()
    return order


def _fitting(best: Sequence[Piece], budget: int) -> list[Piece]:
    """As ``build_context`` packs: whole passages in order, a shorter one may still fit."""
    taken, used = [], 0
    for piece in best:
        if used + piece.tokens <= budget:
            taken.append(piece)
            used += piece.tokens
    return taken


def _characters(question: Question, taken: Sequence[Piece], length: int) -> tuple[int, int, int]:
    """Characters of the answer that were found, of the answer, and read in all; each once."""
    answer, read = np.zeros(length, bool), np.zeros(length, bool)
    for start, end in question.spans:
        answer[start:end] = True
    elsewhere = 0
    for piece in taken:
        if piece.corpus == question.corpus:
            read[piece.start : piece.end] = True
        else:
            elsewhere += piece.end - piece.start
    return int((answer & read).sum()), int(answer.sum()), int(read.sum()) + elsewhere


def _is_whole(corpus: str, span: tuple[int, int], pieces: Sequence[Piece]) -> bool:
    return any(
        piece.corpus == corpus and piece.start <= span[0] and span[1] <= piece.end
        for piece in pieces
    )


def _overall(texts: dict[str, str], measured: dict[str, Measured]) -> str:
    source = sum(estimate_tokens(text) for text in texts.values())
    head = ["chunker", "passages", "mean tokens", "tokens / source", "answers whole"]
    head += [f"recall at {budget:,}" for budget in BUDGETS]
    head += [f"IoU at {BUDGETS[0]:,}", f"tokens taken of {BUDGETS[0]:,}"]
    rows = []
    for name, own in measured.items():
        tokens = _mean_tokens(own.pieces)
        row = [name, str(len(own.pieces)), f"{tokens:.0f}"]
        row += [f"{tokens * len(own.pieces) / source:.2f}", f"{own.whole.mean():.3f}"]
        row += [f"{own.recall[budget].mean():.3f}" for budget in BUDGETS]
        row += [f"{own.overlap[BUDGETS[0]].mean():.3f}", f"{own.used[BUDGETS[0]].mean():.0f}"]
        rows.append(row)
    return markdown_table(head, rows)


def _by_corpus(questions: Sequence[Question], measured: dict[str, Measured]) -> str:
    corpora = sorted({question.corpus for question in questions})
    rows = []
    for corpus in corpora:
        asked = np.array([question.corpus == corpus for question in questions])
        recalls = [own.recall[BUDGETS[0]][asked].mean() for own in measured.values()]
        rows.append([corpus, str(asked.sum()), *(f"{recall:.3f}" for recall in recalls)])
    return markdown_table([f"recall at {BUDGETS[0]:,}", "questions", *measured], rows)


def _differences(measured: dict[str, Measured]) -> str:
    ours = measured[OURS]
    rows = []
    for name, own in measured.items():
        if name != OURS:
            pairs = [(ours.whole, own.whole)]
            pairs += [(ours.recall[budget], own.recall[budget]) for budget in BUDGETS]
            rows.append([name, *(difference(mine, theirs) for mine, theirs in pairs)])
    head = ["ours minus ...", "answers whole", *(f"recall at {budget:,}" for budget in BUDGETS)]
    return markdown_table(head, rows)

"""Markdown made to exhaust parsers is indexed in bounded time and memory, whole."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from rag_assets.markdown import MAX_CHARACTERS, outline
from rag_assets.tokens import upper_bound_tokens
from rag_assets_tests.chunking.documents import assert_nothing_is_lost, chunks_of

SECONDS = 10
"""Generous: each takes less than 2 s on an idle core."""


def _row(number: int) -> str:
    return "| " + " | ".join(f"c{number}x{column}" for column in range(50)) + " |\n"


HOSTILE = {
    "table-3000x50": _row(0) + "|---" * 50 + "|\n" + "".join(_row(n) for n in range(3_000)),
    "ragged-table": "a|b\n-|-\n" + "x\n" * 50_000,
    "brackets": "[" * 50_000,
    "link-openings": "[a](" * 30_000,
    "images": "![a" * 30_000,
    "reference-links": "".join(f"[a{n}][r{n}]\n" for n in range(20_000))
    + "\n"
    + "".join(f"[r{n}]: http://x/{n}\n" for n in range(20_000)),
    "list-600-deep": "".join(" " * 2 * n + "- a\n" for n in range(600)),
    "list-600-deep-on-a-line": "- " * 600 + "a",
    "quote-20000-deep": ">" * 20_000 + "a\n",
    "quote-ladder": "".join(">" * n + " a\n" for n in range(800)),
    "backtick-ladder": "".join("`" * n + "a " for n in range(800)),
    "setext-flood": "a\n===\n" * 30_000,
    "underline-flood": "===\n" * 60_000,
    "heading-flood": "# a\n" * 100_000,
    "deep-heading-flood": "###### a\n" * 30_000,
    "div-on-a-line": "<div>" * 50_000,
    "div-nested": "<div>\n" * 50_000,
    "div-apart": "<div>\n\n" * 30_000,
    "comments": "a <!-- " * 30_000,
    "cdata": "a <![CDATA[ " * 20_000,
    "tags": '<a b="' * 30_000,
    "emphasis": "*a_ " * 30_000,
    "asterisks": "*" * 100_000,
    "entities": "&" * 100_000,
    "fences": "```\n" * 50_001,
    "fences-in-quotes": "> ```\n" * 30_001,
    "lists-apart": "- a\n\n" * 30_000,
    "code-blocks": "    x\n\n" * 30_000,
    "definitions": "[a]: b\n" * 50_000,
    "emoji-heading": "# 🚀\n" * 100,
    "no-break-spaces": "\u00a0" * 500_000 + "x",
    "full-stops": "." * 300_000,
    "exclamations": "! " * 300_000,
    "zero-width": "\u200b" * 300_000,
    "line-separators": "a\u2028b\x85c\x0b\x0c" * 50_000,
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_markdown_is_bounded_and_whole(body: str) -> None:
    """Each kind of attack on a parser, with nothing lost and nothing beyond the limit."""
    started = time.monotonic()
    chunks = assert_nothing_is_lost(body)
    elapsed = time.monotonic() - started
    assert chunks
    assert all(upper_bound_tokens(chunk.text) <= 512 for chunk in chunks)
    assert elapsed < 3 * SECONDS  # the check itself counts lines over and over


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        "mot " * 2_500_000,
        "x" * 10_000_000,
        "a b c\n" * 1_600_000,
        "# a\n" * 2_500_000,
        "```\n" + "x = 1\n" * 1_600_000 + "```\n",
    ],
    ids=["words", "one-word", "lines", "headings", "fence"],
)
def test_ten_megabytes_are_cut_in_bounded_time(body: str) -> None:
    """The largest file a source takes, as one line, one word, one fence or a flood of headings."""
    started = time.monotonic()
    chunks = chunks_of(body)
    assert time.monotonic() - started < 3 * SECONDS
    assert sum(len(chunk.content) for chunk in chunks) > 0.4 * len(body)


_MEASURE = """
import resource
from rag_assets_tests.chunking.documents import chunks_of
body = "mot " * 2_500_000
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
chunks_of(body)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has other units elsewhere")
def test_memory_is_bounded_for_a_long_line() -> None:
    """One line of 10 MB needs a few copies of it, not one object a word."""
    root = Path(__file__).parents[2]
    measured = subprocess.run(
        [sys.executable, "-c", _MEASURE], cwd=root, capture_output=True, text=True, check=True
    )
    assert int(measured.stdout) < 150


@pytest.mark.parametrize(
    "text",
    ["x" * (MAX_CHARACTERS + 1), "# a\n" * 30_000, "- a\n" * 300_000],
    ids=["size", "headings", "events"],
)
def test_too_much_structure_is_read_as_plain_lines(text: str) -> None:
    """Such a text is still indexed, as one block."""
    found = outline(text)
    assert found.plain
    assert len(found.blocks) == 1
    assert found.headings == []

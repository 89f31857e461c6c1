"""What is done to one file before it may be stored and before it is cut: judged, then parsed.

These functions run in a child process (``documents/isolation/``), so that no file can stall or end
a run; they take and return values of ``models.py``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Final

from rag_assets.chunking.base import Chunker
from rag_assets.documents.invisible import hidden_messages
from rag_assets.documents.parse import Opened, left_out, open_file, parse_document
from rag_assets.models import Document, LeftOut, LeftOutStatus, SourceFile
from rag_assets.screening import FINDING_KINDS, Finding, screen
from rag_assets.sources.passbolt import passbolt_export

CUT_FROM_CHARACTERS: Final = 200_000
"""Shorter documents are cut in well under a second, whatever they hold."""
KEPT_CHARACTERS: Final = 8_000_000
"""Of files opened last, in this process."""
MOST_NAMED: Final = 5
"""How many findings a row names."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What becomes of a file for what it holds."""

    left_out: LeftOut | None = None
    """Set: no part of its bytes may be stored."""
    flag: LeftOut | None = None
    """Set: it is indexed, and listed with what was found (status ``flagged``)."""

    @property
    def may_be_kept(self) -> bool:
        """Whether its bytes may be written to disk."""
        return self.left_out is None


class _Recent:
    """The files opened last: what is judged is mostly parsed soon after."""

    def __init__(self) -> None:
        self._opened: OrderedDict[tuple[str, str, str], Opened | LeftOut] = OrderedDict()
        self._characters = 0

    def get(self, file: SourceFile) -> Opened | LeftOut:
        """What ``open_file`` gives for the file."""
        key = (file.path, file.content_hash, file.media_type)
        found = self._opened.get(key)
        if found is not None:
            return found
        opened = open_file(file)
        if isinstance(opened, Opened) and len(opened.raw) <= KEPT_CHARACTERS // 8:
            self._opened[key] = opened
            self._characters += len(opened.raw)
            while self._characters > KEPT_CHARACTERS:
                _, oldest = self._opened.popitem(last=False)
                self._characters -= len(oldest.raw) if isinstance(oldest, Opened) else 0
        return opened


_opened: Final = _Recent()


def judge(file: SourceFile, policies: Mapping[str, str], released: str = "") -> Judgement:
    """Open and screen one file. Nothing in it can make this raise.

    ``policies`` give ``flag`` or ``quarantine`` by kind of finding; others are not looked for.
    ``released`` says who released this content; then what would quarantine it only flags it.
    """
    if (shape := passbolt_export(file.path, file.content)) is not None:
        return Judgement(left_out(file, "excluded", "hard_exclusion", f"passbolt ({shape})"))
    opened = _opened.get(file)
    if isinstance(opened, LeftOut):
        return Judgement(opened)
    findings = _findings(file, opened, policies) if policies else ()
    if not findings:
        return Judgement()
    quarantining = [f for f in findings if policies[f.kind] == "quarantine"]
    row = _row(file, quarantining or findings, "quarantined" if quarantining else "flagged")
    if quarantining and not released:
        return Judgement(row)
    note = f"; released by {released}" if quarantining else ""
    return Judgement(flag=_row(file, findings, "flagged", note))


def parse(file: SourceFile, language: str | None, chunker: Chunker | None) -> Document | LeftOut:
    """Parse one file that may be kept; see ``parse_document``.

    The language of the text itself is not looked for: that needs a large model, and can do no harm
    elsewhere. A large document is also cut once with ``chunker``, so that one which takes too
    long to cut is found out here.
    """
    document = parse_document(
        file, language=language, detect_language=False, opened=_opened.get(file)
    )
    if chunker is None or isinstance(document, LeftOut):
        return document
    if len(document.body) > CUT_FROM_CHARACTERS:
        chunker.chunk(document)
    return document


def _findings(file: SourceFile, opened: Opened, policies: Mapping[str, str]) -> Sequence[Finding]:
    """What the text as written holds, and what it says once what nobody sees is gone."""
    kinds = [kind for kind in FINDING_KINDS if kind in policies]
    found = dict.fromkeys(screen(opened.raw, kinds=kinds, hidden=hidden_messages(opened.raw)))
    # What its system calls it stands on no line of the document.
    named = screen(f"{file.title}\n{PurePosixPath(file.path).stem}", kinds=kinds)
    found.update(dict.fromkeys(replace(f, rule=f"{f.rule} in its name", line=1) for f in named))
    cleaned = opened.cleaned
    if cleaned.text not in opened.raw:
        seen = {(finding.kind, finding.rule) for finding in found}
        before = opened.front_matter.body_start_line - 1
        for finding in screen(cleaned.text, kinds=kinds):
            line = cleaned.lines[finding.line - 1] if cleaned.lines else finding.line
            if (finding.kind, finding.rule) not in seen:
                found[replace(finding, line=before + line)] = None
    return tuple(found)


def _row(
    file: SourceFile, findings: Sequence[Finding], status: LeftOutStatus, note: str = ""
) -> LeftOut:
    """Names rules and lines, never a word of the text."""
    named = dict.fromkeys(f"{f.rule} (line {f.line})" for f in findings)
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    rule = ", ".join([*named][:MOST_NAMED]) + more + note
    return left_out(
        file, status, findings[0].kind, rule, rule_file=file.path, rule_line=findings[0].line
    )


def work(task: str, *arguments: Any) -> Judgement | Document | LeftOut:
    """``judge`` or ``parse``: one child process does both, so that it opens a file once."""
    return judge(*arguments) if task == "judge" else parse(*arguments)

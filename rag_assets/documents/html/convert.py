"""HTML in, Markdown of what a reader of the page sees out, each line with its place in the input.

``html_writer`` first writes plain HTML without anything hidden; html-to-markdown, which knows how
tables, lists, quotations and code are written, makes Markdown of that.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from rag_assets.documents.decoding import NotText, decode
from rag_assets.documents.html.css import StyleRules
from rag_assets.documents.html.elements import DROPPED, OpenElements
from rag_assets.documents.html.marks import ESCAPE_MARK, ID_MARK, LINE_MARK, MARK, marked_line
from rag_assets.documents.html.tokens import Token, Tokens
from rag_assets.documents.html.visibility import UNKNOWN_PAGE, WHITE_PAGE, Look
from rag_assets.documents.html.writer import HtmlWriter
from rag_assets.documents.titles import MAX_SEARCHED_CHARACTERS
from rag_assets.markdown import first_heading

if TYPE_CHECKING:
    from html_to_markdown import ConversionOptions

_PRESCAN_BYTES: Final = 4_096
"""How far a character set may be declared; the standard asks for 1,024, authors are later."""
_DECLARED: Final = re.compile(
    rb"<meta[^>]{0,300}?charset\s*=\s*[\"']?\s*([\w:.-]{1,40})"
    rb"|<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([\w:.-]{1,40})",
    re.IGNORECASE,
)
_READ_AS: Final[Mapping[str, str]] = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "utf-16": "utf-8",
    "utf-16-le": "utf-8",
    "utf-16-be": "utf-8",
    "iso8859-9": "cp1254",
    "gb2312": "gb18030",
    "gbk": "gb18030",
}
"""What the standard reads another character set as."""
_ALLOWED: Final = re.compile(
    r"utf-8|cp125[0-8]|cp866|iso8859-\d+|mac-\w+|koi8-[ru]|gb18030|big5\w*|euc_(?:jp|kr)"
    r"|shift_jis|iso2022_jp"
)
_SCOPES: Final = re.compile(
    r"<(?:(main|article)(?=[\s/>])|\w+\s[^<>]{0,300}role\s*=\s*[\"']?(main)\b)", re.IGNORECASE
)
_PAGE: Final = re.compile(r"<(?:!doctype|html|body)(?=[\s>])", re.IGNORECASE)
_STYLED: Final = re.compile(r"<(?:style|link)(?=[\s>/])", re.IGNORECASE)
_WITH_NAVIGATION: Final = {**DROPPED, "nav": "navigation"}
_SAME_LINK: Final = re.compile(r"(?<!!)\[((?:https?|ftp)://[^\[\]()<>\s]+)\]\(\1\)")
_CONTROLS: Final = re.compile(r"aria-controls\s{0,9}=\s{0,9}[\"']?([\w:.-]{1,200})")
_PREFIX: Final = re.compile(r"(?:>|[-*+] |[0-9]{1,9}[.)] | )*")
_NOT_QUOTE: Final = re.compile(r"[^>\s]")
_LINE_BEGINS: Final = re.compile(rf" +(?=[*_~`\[\"(]{{0,6}}{LINE_MARK})")
_FENCE: Final = re.compile(r"[\s>*+-]*(?:```|~~~)")
_LONGEST_CHECKED_LINK_LINE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Converted:
    """Markdown made of an HTML document."""

    text: str = field(repr=False)
    title: str = ""
    """Of ``<title>``, else the first H1; empty without either."""
    removed: Mapping[str, int] = field(default_factory=dict)
    """How much was left out, by kind: ``script``, ``style``, ``hidden``, ``comment``, ``tracker``,
    ``link``, ``image``, ``embed``, ``svg``, ``navigation``, and the kinds of ``strip_invisible``.
    """
    lines: tuple[int, ...] = ()
    """1-based line of the input for each line of ``text``."""


def decode_html(content: bytes) -> str:
    """The text of an HTML file, by byte order mark, declared character set, or as UTF-8.

    Raises:
        NotText: bytes that are not text in that character set, or the set is not known.
    """
    marks = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    declared = None if content.startswith(marks) else _DECLARED.search(content[:_PRESCAN_BYTES])
    if declared is None:
        return decode(content)[0]
    label = (declared[1] or declared[2]).decode("ascii")
    name = _character_set(label)
    if name == "utf-8":
        return decode(content)[0]
    try:
        text = content.decode(name)
    except UnicodeDecodeError as error:
        raise NotText(
            f"declares the character set {label} but byte 0x{content[error.start]:02X} at offset "
            f"{error.start} is not of it. Correct the declaration or save the file as UTF-8"
        ) from error
    if "\0" in text:
        raise NotText("holds a NUL (byte 0): this is not a text file. Convert it to UTF-8")
    return text


def _character_set(label: str) -> str:
    try:
        name = codecs.lookup(label).name
    except LookupError:
        name = ""
    name = _READ_AS.get(name, name)
    if not _ALLOWED.fullmatch(name):
        raise NotText(f"declares the unknown character set {label}. Save the file as UTF-8")
    return name


def html_to_markdown(html: str) -> Converted:
    """Convert a page or a fragment of HTML. Nothing in it can make this raise.

    Of a whole page (one with ``<html>``, ``<body>`` or a doctype) that has ``<main>`` or else
    ``<article>`` only these are taken, without the navigation in them. An element's id becomes
    the anchor of the heading it is in (``## Title {#id}``). Images keep their alternative text and
    address; one of a single pixel is a tracker's. The address of a link or image is dropped, and
    its text kept, when it is dangerous (``urls``).
    """
    scope = _scope(html)
    converted = _convert(html, scope)
    if scope and not converted.text.strip():
        return _convert(html, "")
    return converted


def _scope(html: str) -> str:
    if not _PAGE.search(html):
        return ""
    found = {(match[1] or match[2]).lower() for match in _SCOPES.finditer(html)}
    return "main" if "main" in found else "article" if found else ""


def _convert(html: str, scope: str) -> Converted:
    rules = StyleRules()
    page = read_styles(rules, [html])
    dropped = _WITH_NAVIGATION if scope else DROPPED
    writer = HtmlWriter(OpenElements(rules, page, dropped, tabs=controlled_ids(html)), scope=scope)
    lines, sources = to_markdown_lines(writer.write(html))
    text = "\n".join(lines) + "\n" if lines else ""
    title = writer.title or first_heading(text[:MAX_SEARCHED_CHARACTERS], 1)
    numbers = tuple(source + 1 for source in (*sources, *sources[-1:]))
    return Converted(text, title, dict(writer.removed), numbers)


def read_styles(rules: StyleRules, pieces: Iterable[str]) -> Look:
    """Read the style sheets of a document into ``rules``; returns what its page looks like.

    The page is white unless a style sheet from elsewhere may say otherwise.
    """
    page = WHITE_PAGE
    for piece in pieces:
        if not _STYLED.search(piece):
            continue
        for token in Tokens(piece):
            if token.kind == "raw" and token.name == "style":
                rules.add(token.text)
            elif _is_stylesheet(token):
                page = UNKNOWN_PAGE
    return page


def controlled_ids(html: str) -> frozenset[str]:
    """The ids of what buttons and tabs of the document open."""
    return frozenset(_CONTROLS.findall(html)) if "aria-controls" in html else frozenset()


def _is_stylesheet(token: Token) -> bool:
    return token.name == "link" and "stylesheet" in token.attributes.get("rel", "").lower()


def to_markdown_lines(parts: Sequence[str]) -> tuple[list[str], list[int]]:
    """Markdown lines of what ``HtmlWriter`` wrote, and the 0-based line of the input of each."""
    lines: list[str] = []
    sources: list[int] = []
    for part in parts:
        more, more_sources = _part_to_markdown(part) if part.strip() else ([], [])
        if lines and more:
            lines.append("")
            sources.append(sources[-1])
        lines += more
        sources += more_sources
    return lines, sources


def _part_to_markdown(plain: str) -> tuple[list[str], list[int]]:
    from html_to_markdown import convert

    content = convert(plain, _options()).content or ""
    lines = _wrapped(content.strip("\n").split("\n")) if content.strip() else []
    sources: list[int | None] = []
    for number, line in enumerate(lines):
        mark = MARK.search(line)
        sources.append(marked_line(mark) if mark else None)
        lines[number] = _finished(line)
    return lines, _without_gaps(lines, sources)


@lru_cache(maxsize=1)
def _options() -> ConversionOptions:
    from html_to_markdown import ConversionOptions, PreprocessingOptions

    return ConversionOptions(
        extract_metadata=False,
        compact_tables=True,
        autolinks=False,
        highlight_style="none",
        include_blockquote_citations=False,
        preprocessing=PreprocessingOptions(enabled=False),
        max_depth=1_000,
    )


def _wrapped(lines: Iterable[str]) -> list[str]:
    """Lines that hold words of several lines of the input, cut where those began.

    Rows of tables and headings are one line in Markdown. In code marks stand at the beginning.
    """
    wrapped: list[str] = []
    for line in lines:
        prefix = _PREFIX.match(line)
        assert prefix is not None
        if LINE_MARK not in line or line.startswith(("|", "#"), prefix.end()):
            wrapped.append(line)
            continue
        first, *more = _LINE_BEGINS.split(line[prefix.end() :])
        before = _NOT_QUOTE.sub(" ", prefix.group())
        wrapped += (prefix.group() + first, *(before + part for part in more))
    return wrapped


def _finished(line: str) -> str:
    line = MARK.sub("", line)
    if ESCAPE_MARK in line:
        line = line.replace(ESCAPE_MARK, "\\")
    if ID_MARK in line:
        line, anchor, rest = (*line.split(ID_MARK, 2), "", "")[:3]
        line = f"{(line + rest).rstrip()} {{#{anchor}}}"
    if "](" in line and len(line) < _LONGEST_CHECKED_LINK_LINE:
        line = _SAME_LINK.sub(r"<\1>", line)
    return line.rstrip() if not line.endswith("  ") or not line.strip() else line


def _without_gaps(lines: list[str], sources: list[int | None]) -> list[int]:
    """A line for every line: a fence is where its code begins, all else where the text before is.

    Lines never go back, so that ranges of lines stay ranges.
    """
    found: list[int] = []
    last = next((source for source in sources if source is not None), 0)
    for number, source in enumerate(sources):
        if source is None and _FENCE.match(lines[number]):
            source = next(iter(sources[number + 1 : number + 2]), None)
        last = max(last, source) if source is not None else last
        found.append(last)
    return found

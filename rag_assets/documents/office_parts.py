"""A zipped office document in; the same document without hidden text, with all its signs, out.

Kreuzberg 4.10 gives text formatted as hidden like any other, joins the words on both sides of a
tab, and loses every reference such as ``&amp;`` and ``&#233;`` of a DOCX file ("R&D" becomes "RD").
All of this is mended in the XML parts that hold text, before conversion; what cannot be written in
XML without a reference is sent through as a noncharacter and put back by ``restored``.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from xml.parsers import expat

DOCX_MAIN: Final = "word/document.xml"
DOCX_STYLES: Final = "word/styles.xml"
ODT_MAIN: Final = "content.xml"
ODT_STYLES: Final = "styles.xml"

_TEXT_PARTS: Final = (".xml", ".rels")
_DOCX_PARTS: Final = re.compile(
    r"word/(?:document|footnotes|endnotes|comments|header\d*|footer\d*)\.xml|docProps/core\.xml"
)
_OFF: Final = frozenset({"0", "false", "off", "none"})
# Elements without attributes: a ``w:tab`` that defines a tab stop has some.
_DOCX_BLANK: Final = re.compile(rb"<w:(tab|ptab|cr|noBreakHyphen)\s*/>")
_DOCX_TEXT: Final = {
    b"tab": b'<w:t xml:space="preserve"> </w:t>',
    b"ptab": b'<w:t xml:space="preserve"> </w:t>',
    b"cr": b"<w:br/>",
    b"noBreakHyphen": b"<w:t>-</w:t>",
}
_REFERENCE: Final = re.compile(rb"&(#x[0-9A-Fa-f]{1,6}|#[0-9]{1,7}|amp|lt|gt|quot|apos);")
_CDATA: Final = re.compile(rb"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_SIGNS: Final = {"&": "\ufdd0", "<": "\ufdd1", ">": "\ufdd2", '"': "\ufdd3", "'": "\ufdd4"}
"""Characters that may need a reference, by the noncharacters (Unicode 23.7) that stand for them."""
_NAMED: Final = {b"amp": "&", b"lt": "<", b"gt": ">", b"quot": '"', b"apos": "'"}
_LIKE_REFERENCE: Final = re.compile(r"#?\w{1,40};")
_STAND_IN: Final = re.compile("[" + "".join(_SIGNS.values()) + "]")
_STAND_IN_BYTES: Final = re.compile(b"|".join(sign.encode() for sign in _SIGNS.values()))
_ODT_BLANK: Final = re.compile(rb"<text:(?:tab|s)(?:\s[^<>]*)?/>")


_BY_STAND_IN: Final = {stand_in: sign for sign, stand_in in _SIGNS.items()}


class ForbiddenXml(Exception):
    """XML with a document type: office formats have none, attacks do."""


Attributes = Mapping[str, str]


def mended_docx(package: zipfile.ZipFile) -> bytes | None:
    """A DOCX file without its hidden runs and paragraphs, with blanks for tabs; None: as it is.

    Hidden is what its own properties or its style say is ``vanish``. White or tiny text stays. The
    text that kreuzberg finds in it has to go through ``restored``.

    Raises:
        ForbiddenXml, expat.ExpatError, and what ``zipfile`` raises for a damaged package.
    """
    names = package.namelist()
    styles = package.read(DOCX_STYLES) if DOCX_STYLES in names else b""
    hidden = _hidden_docx_styles(styles) if b"vanish" in styles else frozenset()
    mended = {}
    for name in filter(_DOCX_PARTS.fullmatch, names):
        xml = package.read(name)
        better = _without(xml, _DocxScan(hidden)) if hidden or b"vanish" in xml else xml
        better = _with_signs(_DOCX_BLANK.sub(lambda match: _DOCX_TEXT[match[1]], better))
        if better != xml:
            mended[name] = better
    return _repacked(package, mended) if mended else None


def restored(text: str) -> str:
    """Markdown with the signs that ``mended_docx`` hid, written so that they stay text."""

    def sign(match: re.Match[str]) -> str:
        found = _BY_STAND_IN[match[0]]
        at, after = match.start(), match.end()
        starts_something = (
            (found == "<" and not text[after : after + 1].isspace())
            or (found == "&" and _LIKE_REFERENCE.match(text, after))
            or (found == ">" and (at == 0 or text[at - 1] == "\n"))
        )
        return "\\" + found if starts_something else found

    return _STAND_IN.sub(sign, text)


def _with_signs(xml: bytes) -> bytes:
    """The XML without a reference or a CDATA section; unknown entities stay and are lost."""
    if b"&" not in xml and b"<![CDATA[" not in xml:
        return xml
    xml = _STAND_IN_BYTES.sub(b"", xml)
    xml = _CDATA.sub(lambda match: _hidden_signs(match[1].decode("utf-8", "replace")), xml)
    return _REFERENCE.sub(lambda match: _hidden_signs(_referred(match[1])), xml)


def _hidden_signs(text: str) -> bytes:
    return "".join(_SIGNS.get(character, character) for character in text).encode()


def _referred(name: bytes) -> str:
    """The character of a reference; nothing for one that text cannot hold."""
    if name in _NAMED:
        return _NAMED[name]
    code = int(name[2:], 16) if name[1:2] == b"x" else int(name[1:])
    valid = 0x20 <= code < 0xD800 or 0xE000 <= code < 0xFDD0 or 0xFDF0 <= code < 0xFFFE
    return chr(code) if valid or 0x10000 <= code < 0x110000 or code in (9, 10, 13) else ""


def mended_odt(package: zipfile.ZipFile) -> bytes | None:
    """An ODT file without text of hidden styles, with blanks for tabs; None: as it is.

    Raises:
        ForbiddenXml, expat.ExpatError, and what ``zipfile`` raises for a damaged package.
    """
    xml = package.read(ODT_MAIN)
    styles = package.read(ODT_STYLES) if ODT_STYLES in package.namelist() else b""
    mended = xml
    if b"text:display" in xml or b"text:display" in styles:
        scan = _OdtScan()
        if styles:
            _scan(styles, scan)
            scan.spans.clear()
        mended = _without(xml, scan)
    mended = _ODT_BLANK.sub(b" ", mended)
    return None if mended == xml else _repacked(package, {ODT_MAIN: mended})


class _Element:
    """An open element."""

    __slots__ = ("hidden", "name", "start", "value")

    def __init__(self, name: str, start: int, value: str) -> None:
        self.name = name
        self.start = start
        self.value = value
        self.hidden = False


class _Scan:
    """Follows open elements and collects where hidden ones begin and end."""

    def __init__(self) -> None:
        self.open: list[_Element] = []
        self.spans: list[tuple[int, int]] = []
        """Byte ranges, the end tag's own bytes not counted."""

    def start(self, name: str, attributes: Attributes, at: int) -> None:
        """An element begins at byte ``at``."""
        raise NotImplementedError

    def end(self, at: int) -> None:
        """The innermost element ends; its end tag begins at byte ``at``."""
        element = self.open.pop()
        if element.hidden and at > element.start:
            self.spans.append((element.start, at))


class _DocxScan(_Scan):
    """``w:r`` with ``w:rPr/w:vanish``, and runs and paragraphs of ``hidden_styles``."""

    def __init__(self, hidden_styles: frozenset[str]) -> None:
        super().__init__()
        self._hidden_styles = hidden_styles

    def start(self, name: str, attributes: Attributes, at: int) -> None:
        local = name.rpartition(":")[2]
        value = next((v for k, v in attributes.items() if k.rpartition(":")[2] == "val"), "")
        self.open.append(_Element(local, at, value))
        if len(self.open) < 3:
            return
        owner, properties = self.open[-3], self.open[-2].name
        if (properties, owner.name) not in {("rPr", "r"), ("pPr", "p")}:
            return
        if local == "vanish" and owner.name == "r":
            owner.hidden = value not in _OFF
        elif local in ("rStyle", "pStyle") and value in self._hidden_styles:
            owner.hidden = True


class _StylesScan(_Scan):
    """Identifiers of the styles of a DOCX file that say ``w:rPr/w:vanish``."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden: set[str] = set()

    def start(self, name: str, attributes: Attributes, at: int) -> None:
        local = name.rpartition(":")[2]
        wanted = "styleId" if local == "style" else "val"
        value = next((v for k, v in attributes.items() if k.rpartition(":")[2] == wanted), "")
        self.open.append(_Element(local, at, value))
        names = [element.name for element in self.open[-3:]]
        if names == ["style", "rPr", "vanish"] and value not in _OFF:
            self.hidden.add(self.open[-3].value)


class _OdtScan(_Scan):
    """Elements whose style has ``text:display="none"``."""

    def __init__(self) -> None:
        super().__init__()
        self._hidden_styles: set[str] = set()

    def start(self, name: str, attributes: Attributes, at: int) -> None:
        element = _Element(name, at, attributes.get("style:name", ""))
        element.hidden = attributes.get("text:style-name", "") in self._hidden_styles
        self.open.append(element)
        if attributes.get("text:display") == "none" and len(self.open) > 1:
            self._hidden_styles.add(self.open[-2].value or "\0")


def _hidden_docx_styles(styles: bytes) -> frozenset[str]:
    scan = _StylesScan()
    _scan(styles, scan)
    return frozenset(scan.hidden)


def _scan(xml: bytes, scan: _Scan) -> None:
    parser = expat.ParserCreate()

    def refuse(*_: Any) -> None:
        raise ForbiddenXml

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = lambda name, attributes: scan.start(
        name, attributes, parser.CurrentByteIndex
    )
    parser.EndElementHandler = lambda _name: scan.end(parser.CurrentByteIndex)
    parser.Parse(xml, True)


def _without(xml: bytes, scan: _Scan) -> bytes:
    """The XML without the elements that ``scan`` finds hidden."""
    _scan(xml, scan)
    kept, position = [], 0
    for start, end in sorted(scan.spans):
        if start < position:
            continue  # inside one that is gone already
        kept.append(xml[position:start])
        position = xml.index(b">", end) + 1
    return b"".join((*kept, xml[position:]))


def _repacked(package: zipfile.ZipFile, replaced: Mapping[str, bytes]) -> bytes:
    """The package with other parts, and without what holds no text (pictures)."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_STORED) as out:
        for name in _text_parts(package.namelist()):
            out.writestr(name, replaced[name] if name in replaced else package.read(name))
    return written.getvalue()


def _text_parts(names: Iterable[str]) -> Iterable[str]:
    return (n for n in dict.fromkeys(names) if n.endswith(_TEXT_PARTS) or n == "mimetype")


MENDED: Final[Mapping[str, Callable[[zipfile.ZipFile], bytes | None]]] = {
    DOCX_MAIN: mended_docx,
    ODT_MAIN: mended_odt,
}
"""How a package is mended, by the part that holds its text."""

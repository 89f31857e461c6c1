"""DOCX, ODT and PDF files, written from their formats for the tests."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
OFFICE_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
OASIS = "urn:oasis:names:tc:opendocument:xmlns"
DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>'


def package(parts: Mapping[str, str | bytes]) -> bytes:
    """A zip file of these parts, in this order."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as out:
        for name, content in parts.items():
            out.writestr(name, content)
    return written.getvalue()


def paragraph(text: str, style: str = "", run_properties: str = "") -> str:
    """A DOCX paragraph of one run."""
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{properties}{run(text, run_properties)}</w:p>"


def run(text: str, properties: str = "") -> str:
    """A DOCX run."""
    properties = f"<w:rPr>{properties}</w:rPr>" if properties else ""
    return f'<w:r>{properties}<w:t xml:space="preserve">{text}</w:t></w:r>'


def docx_parts(body: str, *, title: str = "", styles: str = "") -> dict[str, str | bytes]:
    """The parts of a DOCX file with two heading styles."""
    types = "application/vnd.openxmlformats-officedocument.wordprocessingml"
    relation = '<Relationship Id="{}" Type="{}/{}" Target="{}"{}/>'
    headings = "".join(
        f'<w:style w:type="paragraph" w:styleId="Titre{n}"><w:name w:val="heading {n}"/>'
        f'<w:pPr><w:outlineLvl w:val="{n - 1}"/></w:pPr></w:style>'
        for n in (1, 2)
    )
    return {
        "[Content_Types].xml": (
            f'{DECLARATION}<Types xmlns="{PACKAGE}/content-types">'
            '<Default Extension="xml" ContentType="application/xml"/><Default Extension="rels" '
            'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/word/document.xml" ContentType="{types}.document.main+xml"/>'
            f'<Override PartName="/word/styles.xml" ContentType="{types}.styles+xml"/></Types>'
        ),
        "_rels/.rels": (
            f'{DECLARATION}<Relationships xmlns="{PACKAGE}/relationships">'
            + relation.format("a", OFFICE_RELATIONS, "officeDocument", "word/document.xml", "")
            + relation.format(
                "b", f"{PACKAGE}/relationships/metadata", "core-properties", "docProps/core.xml", ""
            )
            + "</Relationships>"
        ),
        "word/_rels/document.xml.rels": (
            f'{DECLARATION}<Relationships xmlns="{PACKAGE}/relationships">'
            + relation.format("a", OFFICE_RELATIONS, "styles", "styles.xml", "")
            + relation.format(
                "link",
                OFFICE_RELATIONS,
                "hyperlink",
                "https://exemple.fr/",
                ' TargetMode="External"',
            )
            + "</Relationships>"
        ),
        "word/styles.xml": f'{DECLARATION}<w:styles xmlns:w="{WORD}">{headings}{styles}</w:styles>',
        "docProps/core.xml": (
            f'{DECLARATION}<cp:coreProperties xmlns:cp="{PACKAGE}/metadata/core-properties" '
            f'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{title}</dc:title>'
            "</cp:coreProperties>"
        ),
        "word/media/image1.png": b"\x89PNG\r\n\x1a\n" + bytes(1_000),
        "word/document.xml": (
            f'{DECLARATION}<w:document xmlns:w="{WORD}" xmlns:r="{OFFICE_RELATIONS}"><w:body>'
            f"{body}</w:body></w:document>"
        ),
    }


def docx(body: str, *, title: str = "", styles: str = "") -> bytes:
    """A DOCX file."""
    return package(docx_parts(body, title=title, styles=styles))


def odt_parts(body: str, *, title: str = "", styles: str = "") -> dict[str, str | bytes]:
    """The parts of an ODT file."""
    names = " ".join(
        f'xmlns:{name}="{OASIS}:{name}:1.0"'
        for name in ("office", "text", "table", "style", "meta")
    )
    names += (
        ' xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:xlink="http://www.w3.org/1999/xlink"'
    )
    manifest = f'xmlns:manifest="{OASIS}:manifest:1.0"'
    return {
        "mimetype": "application/vnd.oasis.opendocument.text",
        "content.xml": (
            f'{DECLARATION}<office:document-content {names} office:version="1.3">'
            f"<office:automatic-styles>{styles}</office:automatic-styles>"
            f"<office:body><office:text>{body}</office:text></office:body>"
            "</office:document-content>"
        ),
        "meta.xml": (
            f"{DECLARATION}<office:document-meta {names}><office:meta><dc:title>{title}</dc:title>"
            "</office:meta></office:document-meta>"
        ),
        "META-INF/manifest.xml": (
            f"{DECLARATION}<manifest:manifest {manifest}><manifest:file-entry "
            'manifest:full-path="content.xml" manifest:media-type="text/xml"/></manifest:manifest>'
        ),
    }


def odt(body: str, *, title: str = "", styles: str = "") -> bytes:
    """An ODT file."""
    return package(odt_parts(body, title=title, styles=styles))


def pdf(pages: list[list[tuple[int, str]]], *, title: str = "", trailer: bytes = b"") -> bytes:
    """A PDF file; each page is a list of lines, each with the size of its letters in points."""
    bodies = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
        b"<< /Title (" + title.encode("cp1252") + b") >>",
    ]
    kids = []
    for lines in pages:
        drawing, height = b"BT\n", 780.0
        for size, text in lines:
            escaped = text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
            height -= size * 1.6
            drawing += f"/F1 {size} Tf 1 0 0 1 60 {height:.1f} Tm (".encode()
            drawing += escaped.encode("cp1252") + b") Tj\n"
        drawing += b"ET"
        bodies.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(drawing), drawing))
        bodies.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> >>" % len(bodies)
        )
        kids.append(b"%d 0 R" % len(bodies))
    bodies[1] = b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(kids), b" ".join(kids))
    written, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(bodies, start=1):
        offsets.append(len(written))
        written += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    return (
        written
        + b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(bodies) + 1, table)
        + b"trailer\n<< /Size %d /Root 1 0 R /Info 4 0 R %s>>\n" % (len(bodies) + 1, trailer)
        + b"startxref\n%d\n%%%%EOF\n" % len(written)
    )


def encrypted_pdf() -> bytes:
    """A PDF file that asks for a password nobody knows."""
    return pdf(
        [[(11, "hirondelle")]],
        trailer=(
            b"/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O (%s) /U (%s) >> /ID [(%s) (%s)] "
            % (b"o" * 32, b"u" * 32, b"i" * 16, b"i" * 16)
        ),
    )


def zip_bomb(parts: Mapping[str, str | bytes], name: str, megabytes: int) -> bytes:
    """A package whose part ``name`` unpacks to so many megabytes of paragraphs."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as out:
        for other, content in parts.items():
            if other != name:
                out.writestr(other, content)
        whole = str(parts[name])
        head, tail = whole.split("BOMB")
        with out.open(name, "w") as part:
            part.write(head.encode())
            for _ in range(megabytes):
                part.write(b"a" * (1 << 20))
            part.write(tail.encode())
    return written.getvalue()

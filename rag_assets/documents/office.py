"""Office and PDF files in, Markdown out, through kreuzberg (the extra ``rag-assets[office]``).

Without network, OCR, models or cache. The one file that kreuzberg writes is the PDF library it
carries, unpacked into the temporary folder at the first PDF: ``WARM_UP`` makes it do so before a
process gives up the right to write. These formats are parsed by native code that hostile input can
crash or exhaust: call ``office_to_markdown`` inside an ``IsolatedWorker``.
"""

from __future__ import annotations

import importlib
import io
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from xml.parsers import expat

from rag_assets.documents.office_parts import (
    DOCX_MAIN,
    MENDED,
    ODT_MAIN,
    ForbiddenXml,
    restored,
)
from rag_assets.errors import RagError
from rag_assets.models import DOCX, ODT, PDF

MAX_UNPACKED_BYTES: Final = 64 << 20
"""How much XML a file may hold: about 30,000 pages. Pictures are not unpacked and not counted."""
MAX_PARTS: Final = 10_000

_NAMES: Final = {DOCX: "DOCX", ODT: "ODT", PDF: "PDF"}
_MAGIC: Final = {DOCX: b"PK\x03\x04", ODT: b"PK\x03\x04", PDF: b"%PDF-"}
_MAIN_PART: Final = {DOCX: DOCX_MAIN, ODT: ODT_MAIN}
_DAMAGED: Final = (
    zipfile.BadZipFile,
    zlib.error,
    expat.ExpatError,
    ForbiddenXml,
    OSError,
    EOFError,
    ValueError,
    RuntimeError,  # a part that asks for a password, or is packed in an unknown way
)
_OLE_MAGIC: Final = bytes.fromhex("d0cf11e0a1b11ae1")
_PDF_HEADER_WITHIN: Final = 1024
"""Readers accept a PDF whose header stands anywhere in its first 1,024 bytes."""
_PDF_LIBRARY_FOLDER: Final = "kreuzberg-pdfium"
_WORD_PREFIX: Final = re.compile(r"^Microsoft (?:Office )?Word - ", re.IGNORECASE)


class OfficeUnavailable(RagError):
    """The extra for office and PDF files is not installed, or may not be used here."""


class ConversionFailed(RagError):
    """This file cannot be converted; the message quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class ConvertedOffice:
    """What became of an office file."""

    text: str = field(repr=False)
    """Markdown. Empty when the file holds no text, such as a PDF of scanned pages."""
    title: str
    """The title among the file's properties, on one line; empty when there is none."""


def office_to_markdown(content: bytes, media_type: str) -> ConvertedOffice:
    """Convert a DOCX, ODT or PDF file.

    Headings, lists, tables and links become Markdown; text formatted as hidden is left out of DOCX
    and ODT files. Links are as in the file, whatever their scheme: clean and screen the result like
    any Markdown.

    Raises:
        OfficeUnavailable: kreuzberg is not installed, or its PDF library lies in a folder that
            somebody else can write.
        ConversionFailed: damaged, protected by a password, too large when unpacked, not of that
            type.
    """
    if media_type not in _NAMES:
        raise ConversionFailed(f"files of type {media_type[:100]!r} are not converted")
    kreuzberg = _kreuzberg()
    if media_type == PDF:
        _check_pdf(content)
        _check_library_folder()
    else:
        content = _mended_package(content, media_type)
    configuration = _configuration()
    try:
        result = kreuzberg.extract_bytes_sync(content, media_type, configuration)
    except (MemoryError, KeyboardInterrupt):
        raise
    except BaseException as error:
        # Panics of native code derive from BaseException. Messages may quote the file.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        if media_type == PDF:
            _check_library()
        raise ConversionFailed(_reason(str(error), media_type)) from None
    text, title = result.content, _title(result.metadata)
    if media_type == DOCX:
        text, title = restored(text), restored(title).replace("\\", "")
    return ConvertedOffice(text, title)


def _kreuzberg() -> ModuleType:
    try:
        return importlib.import_module("kreuzberg")  # optional: type checkers may not see it
    except ImportError as error:
        raise OfficeUnavailable(
            "DOCX, ODT and PDF files need the extra for office files. Install it with "
            "`pip install 'rag-assets[office]'`, or leave these files out"
        ) from error


@cache
def _configuration() -> Any:
    """No cache (it would keep text on disk), no OCR, one thread; text as it stands in the file."""
    kreuzberg = _kreuzberg()
    return kreuzberg.ExtractionConfig(
        use_cache=False,
        enable_quality_processing=False,
        output_format="markdown",
        disable_ocr=True,
        concurrency=kreuzberg.ConcurrencyConfig(max_threads=1),
    )


def _check_pdf(content: bytes) -> None:
    if _MAGIC[PDF] not in content[: _PDF_HEADER_WITHIN + len(_MAGIC[PDF])]:
        raise ConversionFailed("this is no PDF file, whatever its name says")


def _mended_package(content: bytes, media_type: str) -> bytes:
    """A zipped document that may be unpacked, without hidden text; see ``office_parts``.

    Raises:
        ConversionFailed: not such a package, protected, or too large.
    """
    name = _NAMES[media_type]
    if content.startswith(_OLE_MAGIC):
        raise ConversionFailed(
            f"it is protected by a password, or of a format older than {name}. Save it anew "
            "without a password"
        )
    if not content.startswith(_MAGIC[media_type]):
        raise ConversionFailed(f"this is no {name} file, whatever its name says")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as package:
            parts = package.infolist()
            names = {part.filename for part in parts}
            _check_parts(parts, name)
            if _MAIN_PART[media_type] not in names:
                raise ConversionFailed(f"it lacks the part that holds the text of {name} files")
            if media_type == ODT and _is_encrypted_odt(package, names):
                raise ConversionFailed("it is protected by a password. Save it anew without one")
            return MENDED[_MAIN_PART[media_type]](package) or content
    except _DAMAGED:
        raise ConversionFailed(f"it is damaged: no reader can unpack this {name} file") from None


def _check_parts(parts: list[zipfile.ZipInfo], name: str) -> None:
    if len({part.filename for part in parts}) < len(parts):
        raise ConversionFailed("it has two parts of the same name, which readers tell apart badly")
    if len(parts) > MAX_PARTS:
        raise ConversionFailed(f"it has {len(parts):,} parts, more than {MAX_PARTS:,}")
    unpacked = sum(p.file_size for p in parts if p.filename.endswith((".xml", ".rels")))
    if unpacked > MAX_UNPACKED_BYTES:
        raise ConversionFailed(
            f"the text of this {name} file unpacks to {unpacked / (1 << 20):,.0f} MiB, more than "
            f"{MAX_UNPACKED_BYTES >> 20} MiB. Split it"
        )


def _is_encrypted_odt(package: zipfile.ZipFile, names: set[str]) -> bool:
    manifest = "META-INF/manifest.xml"
    if manifest not in names:
        return False
    with package.open(manifest) as part:
        return b"encryption-data" in part.read(MAX_UNPACKED_BYTES)


def _library_folder() -> Path:
    return Path(os.environ.get("TMPDIR") or "/tmp") / _PDF_LIBRARY_FOLDER  # noqa: S108


def _check_library() -> None:
    """Tell a PDF library that could not be unpacked from a file that is damaged.

    Raises:
        OfficeUnavailable: it is not there.
    """
    if not hasattr(os, "getuid"):
        return
    folder = _library_folder()
    if not any(p.suffix != ".tmp" and p.stat().st_size for p in folder.glob("*pdfium.*[a-z]")):
        raise OfficeUnavailable(
            f"the PDF library could not be unpacked into {folder}. Make room there or set TMPDIR; "
            "a process that may not write files must convert `WARM_UP` before"
        )


def _check_library_folder() -> None:
    """Refuse a PDF library that another user may have put there: it would run as this user.

    Raises:
        OfficeUnavailable: the folder or the library belongs to somebody else or may be changed.
    """
    if not hasattr(os, "getuid"):
        return
    folder = _library_folder()
    try:
        entries = [folder, *folder.iterdir()]
    except FileNotFoundError:
        return  # it will be made by us
    except OSError as error:
        raise OfficeUnavailable(
            f"the PDF library's folder {folder} cannot be read ({error.strerror}). Remove it, or "
            "set TMPDIR to a folder of your own"
        ) from error
    for entry in entries:
        status = entry.lstat()
        writable = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if stat.S_ISLNK(status.st_mode) or writable or status.st_uid not in (0, os.getuid()):
            raise OfficeUnavailable(
                f"{entry} holds the PDF library that would be run, and another user can change "
                "it. Remove it, or set TMPDIR to a folder of your own"
            )


def _reason(message: str, media_type: str) -> str:
    name = _NAMES[media_type]
    lowered = message.casefold()
    if "password" in lowered or "encrypt" in lowered:
        return f"this {name} file is protected by a password. Save it without one"
    if "limit exceeded" in lowered:
        return f"this {name} file unpacks to more than is allowed. Split it"
    return f"it is damaged, or no {name} file. Open it in its own program and save it anew"


def _title(metadata: Any) -> str:
    title = metadata.get("title") if isinstance(metadata, Mapping) else None
    return _WORD_PREFIX.sub("", " ".join(title.split())) if isinstance(title, str) else ""


def _smallest_pdf(text: str) -> bytes:
    """A PDF file of one page that says ``text`` (ASCII, without parentheses)."""
    drawing = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
    objects = (
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Count 1 /Kids [3 0 R] >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R "
        "/Resources << /Font << /F1 5 0 R >> >> >>",
        f"<< /Length {len(drawing)} >>\nstream\n{drawing}\nendstream",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    )
    written, offsets = "%PDF-1.4\n", []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(written))
        written += f"{number} 0 obj\n{body}\nendobj\n"
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    return (
        f"{written}xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n"
        f"<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(written)}\n%%EOF\n"
    ).encode("ascii")


WARM_UP: Final = _smallest_pdf("This page says nothing of interest to anybody at all.")
"""A PDF to convert first: it loads kreuzberg and unpacks its PDF library (8 MB)."""

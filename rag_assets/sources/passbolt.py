"""Recognises what Passbolt writes and where it is served, so that nothing of it is ever indexed.

Shapes are those of Passbolt's export dialog (KDBX, and CSV as ten password managers read it), its
recovery and account kits, its API and database, and its configuration file. Prose that merely
mentions Passbolt has none of them.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote, urlsplit

from rag_assets.errors import ConfigurationError

_KDBX: Final = tuple(
    b"\x03\xd9\xa2\x9a" + second
    for second in (b"\x67\xfb\x4b\xb5", b"\x66\xfb\x4b\xb5", b"\x65\xfb\x4b\xb5")
)
"""Signatures of KeePass databases: 2.x, 2.x before release, 1.x."""
_KDBX_IN_BASE64: Final = re.compile(r"(?<![A-Za-z0-9+/])A9mimm[fZWe][7rsu]?[A-Za-z0-9+/]{40}")

_COLUMNS: Final = {
    "kdbx-csv": {"title", "username", "url", "password", "notes", "group", "totp"},
    "lastpass-csv": {"url", "username", "password", "totp", "extra", "name", "grouping", "fav"},
    "1password-csv": {"title", "username", "url", "password", "notes", "type"},
    "dashlane-csv": {
        *("username", "username2", "username3", "title", "password", "note", "url", "category"),
        *("otpsecret", "otpurl"),
    },
    "nordpass-csv": {
        *("name", "url", "username", "password", "note", "folder", "cardholdername", "type"),
        *("cardnumber", "cvc", "expirydate", "zipcode", "full_name", "phone_number", "email"),
        *("address1", "address2", "city", "country", "state", "additional_urls", "custom_fields"),
    },
    "logmeonce-csv": {"name", "url", "note", "group", "username", "password", "extra"},
    "bitwarden-csv": {
        *("folder", "favorite", "type", "name", "notes", "fields", "reprompt", "login_uri"),
        *("login_username", "login_password", "login_totp", "collections"),
    },
    "chromium-csv": {"name", "url", "username", "password", "note"},
    "firefox-csv": {
        *("url", "username", "password", "httprealm", "formactionorigin", "guid", "timecreated"),
        *("timelastused", "timepasswordchanged"),
    },
    "safari-csv": {"title", "url", "username", "password", "notes", "otpauth"},
    "passbolt-csv": {
        *("name", "username", "uri", "secret_clear", "description", "folder_parent_path"),
        *("folder_parent_id", "resource_type_id", "totp", "id", "expired"),
    },
}
"""The columns of each kind of export, in lower case; not all need be there, but no other may."""
_PASSWORD_COLUMNS: Final = frozenset({"password", "login_password", "secret_clear"})
_PLACE_COLUMNS: Final = frozenset({"url", "uri", "login_uri"})
_NAME_COLUMNS: Final = frozenset({"username", "login_username", "title", "name"})
_FEWEST_COLUMNS: Final = 3
_LONGEST_HEADING: Final = 600
"""Characters of a line that can be the heading of an export."""
_HEADING: Final = re.compile(r"(?i)password|secret_clear")

_OWN_KEYS: Final = re.compile(
    r'"(resource_type_id|folder_parent_id|metadata_key_id|metadata_key_type|metadata_private_keys|secret_clear'
    r"|folder_parent_path|armored_key|server_public_armored_key|user_private_armored_key|security_token"
    r'|metadata_public_key|resource_id|gpgkey|permission_id|secrets)"\s*:'
)
"""Names that the API, its exports and the account kit use."""
_FEWEST_OWN_KEYS: Final = 2
_SECRET_DATA: Final = re.compile(r'-----BEGIN PGP|"(?:secret_clear|servertime|security_token)"\s*:')
_ARMOR_OF_PASSBOLT: Final = re.compile(
    r"-----BEGIN PGP [A-Z ]{1,30}-----(?:\r?\n[A-Za-z]{1,20}: [^\r\n]{0,200}){0,4}"
    r"\r?\n[A-Za-z]{1,20}: [^\r\n]{0,200}passbolt",
    re.IGNORECASE,
)
_SQL: Final = re.compile(r"INSERT INTO [`\"]?secrets[`\"]?[\s(]", re.IGNORECASE)
_PHP: Final = re.compile(
    r"""['"]passbolt['"]\s{0,20}=>\s{0,20}(?:\[|array\s{0,5}\()""", re.IGNORECASE
)
_PHP_DETAILS: Final = re.compile(
    r"""['"](?:serverKey|fingerprint|Datasources|EmailTransport|registration|fullBaseUrl)['"]\s{0,20}=>"""
)
_KEY_BLOCK: Final = "-----BEGIN PGP PRIVATE KEY BLOCK-----"
_KIT_NAME: Final = re.compile(
    r"passbolt[-_ ]?(?:recovery|account|backup|export|kit|secret|private|dump)"
    r"|recovery[-_ ]?kit|account-kit"
)
_KIT_EXTENSION: Final = ".passbolt"


def passbolt_export(name: str, content: bytes) -> str | None:
    """The short name of the shape in which Passbolt wrote ``content``, or None.

    ``name`` is the file's name or path. Linear in the content.
    """
    folded = _fold(name.rpartition("/")[2])
    if content.startswith(_KDBX):
        return "kdbx"
    if folded.endswith(_KIT_EXTENSION):
        return "account-kit"
    text = _decode(content)
    if _KIT_NAME.search(folded) and ("-----BEGIN PGP" in text or _is_table(text)):
        return "recovery-kit"
    return _shape_of_text(text)


def refuse_passbolt_address(what: str, value: str) -> None:
    """Refuse an address (URL, host, path) of which a host label or a path segment is Passbolt.

    Raises:
        ConfigurationError: with ``what`` it is the address of; the address itself is not repeated.
    """
    if any(_is_passbolt(part) for part in _parts(value)):
        raise ConfigurationError(
            f"{what} leads to Passbolt, which holds secrets and is never indexed. Remove it, or "
            "name another address"
        )


def _shape_of_text(text: str) -> str | None:
    if len({match[1] for match in _OWN_KEYS.finditer(text)}) >= _FEWEST_OWN_KEYS and (
        _SECRET_DATA.search(text)
    ):
        return "api-json"
    if "-----BEGIN PGP" in text and (_ARMOR_OF_PASSBOLT.search(text) or _SQL.search(text)):
        return "database-dump" if _SQL.search(text) else "passbolt-pgp"
    if _PHP.search(text) and _PHP_DETAILS.search(text):
        return "passbolt-php"
    if _KDBX_IN_BASE64.search(text):
        return "kdbx"
    return _table_shape(text)


def _is_table(text: str) -> bool:
    return _table_shape(text) is not None


def _table_shape(text: str) -> str | None:
    """The kind of export whose heading stands in some line, above a row that fits it."""
    if not _HEADING.search(text):
        return None
    lines = text.splitlines()
    for place, line in enumerate(lines):
        if len(line) > _LONGEST_HEADING or not _HEADING.search(line):
            continue
        for separator in (",", "|", ";", "\t"):
            cells = _cells(line, separator)
            shape = _shape_of_columns(cells)
            if shape and any(_rows_below(lines, place + 1, separator, len(cells))):
                return shape
    return None


def _cells(line: str, separator: str) -> list[str]:
    line = line.strip().removeprefix("\ufeff").strip(">` ")
    if separator == "|":
        line = line.removeprefix("|").removesuffix("|")
    return [cell.strip(" \t\"'*_`").lower() for cell in line.split(separator)]


def _shape_of_columns(cells: list[str]) -> str | None:
    columns = set(cells)
    if len(columns) < _FEWEST_COLUMNS or len(columns) != len(cells):
        return None
    if not (columns & _PASSWORD_COLUMNS and columns & _PLACE_COLUMNS and columns & _NAME_COLUMNS):
        return None
    return next((shape for shape, known in _COLUMNS.items() if columns <= known), None)


def _rows_below(lines: list[str], start: int, separator: str, width: int) -> Iterator[bool]:
    """For the next lines: whether one is a row with something in it."""
    for line in lines[start : start + 3]:
        if separator not in line[:10_000]:
            return
        cells = [cell for cell in _cells(line[:10_000], separator) if cell.strip("-: ")]
        yield width - 4 <= len(_cells(line[:10_000], separator)) and len(cells) >= 2


def _decode(content: bytes) -> str:
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", "replace")
    return content.decode("utf-8", "replace")


def _parts(value: str) -> Iterator[str]:
    """Labels of the host, segments of the path and of what follows it, decoded."""
    try:
        address = urlsplit(value if "://" in value else "//" + value)
        host, path = address.hostname or "", f"{address.path}?{address.query}#{address.fragment}"
    except ValueError:  # not a URL; its pieces are looked at all the same
        host, path = "", value
    yield from unquote(host).split(".")
    yield from re.split(r"[/\\?#&=:@]", unquote(unquote(path)))


def _is_passbolt(part: str) -> bool:
    return "passbolt" in re.split(r"[^a-z0-9]+", _fold(part))


def _fold(name: str) -> str:
    """The name as a person, or a server that folds names, would read it."""
    if not name.isascii():
        name = unicodedata.normalize("NFKC", name)
        name = "".join(c for c in name if unicodedata.category(c) not in ("Cf", "Mn"))
        name = unicodedata.normalize("NFKC", name.casefold())
    return name.lower().strip(" .")

"""The address of a link or image in, the address that may be kept out, or none."""

from __future__ import annotations

import re
from typing import Final

DANGEROUS_SCHEMES: Final = frozenset(
    {
        "about",
        "blob",
        "data",
        "file",
        "filesystem",
        "jar",
        "javascript",
        "jscript",
        "livescript",
        "mhtml",
        "mocha",
        "vbscript",
        "view-source",
    }
)
"""Addresses that run code, carry content in themselves, or point into a reader's own machine."""
TRACKING_PARAMETERS: Final = frozenset(
    {
        "_ga",
        "_gl",
        "_hsenc",
        "_hsmi",
        "dclid",
        "epik",
        "fbclid",
        "gbraid",
        "gclid",
        "gclsrc",
        "igsh",
        "igshid",
        "li_fat_id",
        "mc_cid",
        "mc_eid",
        "mkt_tok",
        "msclkid",
        "oly_anon_id",
        "oly_enc_id",
        "srsltid",
        "ttclid",
        "twclid",
        "vero_id",
        "wbraid",
        "yclid",
    }
)
"""Query parameters that tell who came from where and change nothing about what is shown."""
TRACKING_PREFIXES: Final = ("utm_", "mtm_", "pk_campaign", "pk_kwd", "hsa_")
MAX_IMAGE_QUERY_CHARACTERS: Final = 300

# Browsers take white space and control characters out before they look for the scheme.
_IGNORED: Final = re.compile(r"[\x00-\x20\x7f-\xa0\u200b-\u200f\u2028-\u202e\u2060\ufeff]+")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_REMOTE: Final = re.compile(r"(?:https?:)?[\\/]{2}", re.IGNORECASE)
_PLACEHOLDER: Final = re.compile(r"=(?:$|&)|[{}\[\]<>$]|%7[bd]|%5[bd]|%3[ce]", re.IGNORECASE)


def scheme_of(url: str) -> str:
    """The scheme in lower case, as a browser would see it; empty for a relative address."""
    match = _SCHEME.match(_IGNORED.sub("", url[:2_000]))
    return match[1].lower() if match else ""


def is_dangerous(url: str) -> bool:
    """Whether the address must not be kept."""
    return scheme_of(url) in DANGEROUS_SCHEMES


def carries_data_away(url: str) -> bool:
    """Whether an image's address is made to take something along to another host.

    A remote image whose query waits to be filled in (``?q=``, ``?q={text}``) or is longer than
    ``MAX_IMAGE_QUERY_CHARACTERS``. Badges and thumbnails have short, complete queries.
    """
    if "?" not in url or not _REMOTE.match(_IGNORED.sub("", url[:2_000])):
        return False
    query = url.partition("?")[2].partition("#")[0]
    return len(query) > MAX_IMAGE_QUERY_CHARACTERS or _PLACEHOLDER.search(query) is not None


def without_tracking(url: str) -> str:
    """The address without the query parameters of trackers; the same object without any."""
    before, mark, rest = url.partition("?")
    if not mark:
        return url
    query, hash_mark, fragment = rest.partition("#")
    parameters = query.split("&")
    kept = [parameter for parameter in parameters if not _tracks(parameter)]
    if len(kept) == len(parameters):
        return url
    return before + (f"?{'&'.join(kept)}" if kept else "") + hash_mark + fragment


def _tracks(parameter: str) -> bool:
    name = parameter.partition("=")[0].removeprefix("amp;").lower()
    return name in TRACKING_PARAMETERS or name.startswith(TRACKING_PREFIXES)

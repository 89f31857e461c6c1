"""Templates, headers, cookies and languages of the diagnostic page: a request in, HTML out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse, Response

from rag_assets.service.display import language_tag, plain, visible, web_address
from rag_assets.service.localisation import Localisation, negotiate
from rag_assets.service.texts import LANGUAGES, TEXTS

if TYPE_CHECKING:
    from starlette.requests import Request

LANGUAGE_COOKIE: Final = "rag_assets_language"
LANGUAGE_SECONDS: Final = 365 * 24 * 3600
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "X-Robots-Tag": "noindex",
    "Vary": "Accept-Language, Cookie",
}
"""On every page. There is no script, so none is allowed."""
SEARCH_LANGUAGES: Final[Mapping[str, str]] = {
    "da": "dansk",
    "de": "Deutsch",
    "en": "English",
    "es": "español",
    "fi": "suomi",
    "fr": "français",
    "it": "italiano",
    "nl": "Nederlands",
    "no": "norsk",
    "pt": "português",
    "ro": "română",
    "sv": "svenska",
}
"""Languages of documents that the search form offers, each in its own words."""

_LOCAL: Final = re.compile(r"/(?![/\\])[^\s\\]*\Z")


@dataclass(frozen=True, slots=True)
class StyleSheet:
    """The one style sheet, under a name that changes with its content."""

    name: str
    content: bytes


@cache
def style_sheet() -> StyleSheet:
    """``static/page.css`` as it is served."""
    content = files("rag_assets.service").joinpath("static/page.css").read_bytes()
    return StyleSheet(f"page-{hashlib.sha256(content).hexdigest()[:16]}.css", content)


def render(
    request: Request, template: str, values: Mapping[str, Any], *, status: int = 200
) -> HTMLResponse:
    """A page in the reader's language.

    ``?lang=`` chooses one and is remembered in a cookie; without either, Accept-Language decides.
    """
    asked = request.query_params.get("lang")
    chosen = asked if asked in LANGUAGES else request.cookies.get(LANGUAGE_COOKIE)
    language = negotiate(request.headers.get("accept-language", ""), chosen)
    words = Localisation(language)
    context = {
        "t": words.text,
        "count": words.count,
        "fmt": words,
        "style": style_sheet().name,
        "languages": _language_links(request),
        **values,
    }
    html = _environment().get_template(template).render(context)
    response = HTMLResponse(html, status_code=status, headers=dict(HEADERS))
    response.headers["Content-Language"] = language
    if asked in LANGUAGES:
        response.set_cookie(
            LANGUAGE_COOKIE,
            language,
            max_age=LANGUAGE_SECONDS,
            httponly=True,
            samesite="lax",
            secure=_is_https(request),
        )
    return response


def redirect(address: str) -> Response:
    """To another page, by GET; ``address`` is a local one."""
    response = RedirectResponse(address, status_code=303)
    response.headers.update(HEADERS)
    return response


def local_address(wanted: str) -> str:
    """``wanted`` when it is a page of this site, else the first page.

    >>> local_address("//evil.example")
    '/'
    """
    return wanted if _LOCAL.match(wanted) else "/"


def read_cookie(request: Request, name: str) -> str | None:
    """A cookie that ``write_cookie`` set."""
    return request.cookies.get(_cookie_name(request, name))


def write_cookie(request: Request, response: Response, name: str, value: str | None) -> None:
    """A cookie for this browser session, sent to this site only; None deletes it."""
    full, secure = _cookie_name(request, name), _is_https(request)
    if value is None:
        response.delete_cookie(full, httponly=True, samesite="strict", secure=secure)
    else:
        response.set_cookie(full, value, httponly=True, samesite="strict", secure=secure)


def _cookie_name(request: Request, name: str) -> str:
    # A browser takes a __Host- cookie from this very host over https only.
    return f"__Host-{name}" if _is_https(request) else name


def _is_https(request: Request) -> bool:
    # A proxy's word is enough here: whoever makes it up only keeps its own cookie from itself.
    forwarded = request.headers.get("x-forwarded-proto", "")
    return request.url.scheme == "https" or forwarded.strip().lower() == "https"


def _language_links(request: Request) -> list[tuple[str, str]]:
    """Language -> the address of this page in it."""
    query = [(k, v) for k, v in request.query_params.multi_items() if k != "lang"]
    path = request.url.path if request.method == "GET" or request.url.path == "/login" else "/"
    return [(code, f"{path}?{urlencode([*query, ('lang', code)])}") for code in LANGUAGES]


def _reason_key(reason: str) -> str:
    """The text of a reason; a source of the integrator's own may give others."""
    key = f"reason_{reason}"
    return key if key in TEXTS[LANGUAGES[0]] else "reason_other"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("rag_assets.service"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        visible=visible,
        plain=plain,
        web_address=web_address,
        language_tag=language_tag,
        reason_key=_reason_key,
        query=urlencode,
    )
    environment.globals["search_languages"] = SEARCH_LANGUAGES
    environment.globals["language_names"] = {code: SEARCH_LANGUAGES[code] for code in LANGUAGES}
    return environment

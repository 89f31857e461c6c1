"""The diagnostic page: what the index holds, what it leaves out and why, how a question ranks.

Plain HTML without any script. A question is sent by POST and kept in the session under a random
name, and the answer is the page of that name: it can be reloaded and come back to, and no address,
history, log or Referer ever holds what was asked.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from rag_assets.acl import Everything
from rag_assets.errors import (
    ConfigurationError,
    VectorStoreError,
)
from rag_assets.service import index_overview
from rag_assets.service.answers import translated
from rag_assets.service.core import Caller, SearchService
from rag_assets.service.display import web_address
from rag_assets.service.errors import (
    Forbidden,
    NotFound,
    ServiceError,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from rag_assets.service.forms import read_form, sent_from_here
from rag_assets.service.page_rendering import (
    local_address,
    read_cookie,
    redirect,
    render,
    style_sheet,
    write_cookie,
)
from rag_assets.service.rank_comparison import MODES, SearchForm, chart, compare
from rag_assets.service.sessions import Session, Sessions

if TYPE_CHECKING:
    from rag_assets.acl import AclTags

RUNS_ON_OVERVIEW: Final = 10
RUNS_ON_PAGE: Final = 200
SESSION_COOKIE: Final = "rag_assets_session"
LOGIN_COOKIE: Final = "rag_assets_login"
logger = logging.getLogger("rag_assets.service")


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of an administrator."""

    request: Request
    caller: Caller
    session: Session | None
    """None when the token came in the Authorization header."""


Handler = Callable[[Visit], Awaitable[Response]]


def page_routes(service: SearchService) -> list[Route]:
    """The routes of the page; every one but login and style sheet needs an administrator."""
    page = DiagnosticPage(service)
    return [
        Route("/", page.guarded(page.show_overview), methods=["GET"]),
        Route("/", page.guarded(page.ask), methods=["POST"]),
        Route("/searches/{name}", page.guarded(page.show_search), methods=["GET"]),
        Route("/runs", page.guarded(page.show_runs), methods=["GET"]),
        Route("/left-out", page.guarded(page.show_left_out), methods=["GET"]),
        Route("/documents-view", page.guarded(page.show_document), methods=["GET"]),
        Route("/login", page.show_login, methods=["GET"]),
        Route("/login", page.log_in, methods=["POST"]),
        Route("/logout", page.guarded(page.log_out), methods=["POST"]),
        Route("/static/{name}", page.show_style, methods=["GET"]),
    ]


def document_address(source: str, path: str, position: int | None = None) -> str:
    """Where the page shows a document, at the passage of that 0-based position.

    Source and path stand in the query: any character may be in them, dots and slashes too.
    """
    query = {"source": source, "path": path}
    if position is None:
        return f"/documents-view?{urlencode(query)}"
    page = position // index_overview.ROWS_PER_PAGE + 1
    if page > 1:
        query["page"] = str(page)
    return f"/documents-view?{urlencode(query)}#chunk-{position + 1}"


class DiagnosticPage:
    """Its handlers; one per service."""

    def __init__(self, service: SearchService) -> None:
        self._service = service
        self._sessions = Sessions()

    # who asks

    def guarded(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """``handler`` for administrators; others get the login form or an error page."""

        async def answer(request: Request) -> Response:
            try:
                visit = self._visit(request)
                if visit is None:
                    return self._to_login(request)
                return await handler(visit)
            except Exception as exc:  # noqa: BLE001  (the answer must be a page, whatever it is)
                return self._error(request, translated(exc))

        return answer

    def _visit(self, request: Request) -> Visit | None:
        """Who asks, None without a token; not an administrator: Forbidden."""
        authorization = request.headers.get("authorization")
        if authorization is not None:
            caller = self._service.authenticate(authorization, client=_client(request))
            self._service.require_admin(caller)
            request.state.caller = caller.name
            return Visit(request, caller, None)
        session = self._sessions.find(read_cookie(request, SESSION_COOKIE))
        if session is None:
            return None
        token = self._token_of(session)
        if token is None:  # removed, or given another secret, since
            self._sessions.end(read_cookie(request, SESSION_COOKIE))
            return None
        self._service.require_admin(token)
        request.state.caller = token.name
        return Visit(request, token, session)

    def _token_of(self, session: Session) -> Caller | None:
        try:
            tokens = self._service.tokens.all()
        except ConfigurationError:
            raise ServiceUnavailable("tokens cannot be checked now") from None
        for token in tokens:
            if token.name == session.token_name and token.hash == session.token_hash:
                return Caller(token.name, token.visible, token.admin)
        return None

    # login

    async def show_login(self, request: Request) -> Response:
        """The form for the token."""
        return self._login_page(request, wanted=request.query_params.get("next", ""))

    async def log_in(self, request: Request) -> Response:
        """Take the token of the form; a session when it is an administrator's."""
        try:
            fields = await self._form(request)
        except ServiceError as exc:
            return self._error(request, exc)
        again = partial(self._login_page, request, wanted=fields.get("next", ""))
        nonce = read_cookie(request, LOGIN_COOKIE)
        ours = self._sessions.login_form_is_ours(nonce, fields.get("form_token", ""))
        if not ours or not sent_from_here(request):
            return again(status=403, problem="login_stale")
        secret = fields.get("token", "").strip()
        try:
            caller = self._service.authenticate(f"Bearer {secret}", client=_client(request))
            self._service.require_admin(caller)
            token = self._service.tokens.find(secret)
        except TooManyRequests as exc:
            return again(status=429, problem="login_later", error=exc)
        except Forbidden:
            return again(status=403, problem="login_not_admin")
        except Unauthorized:
            token = None
        except (ServiceError, ConfigurationError):
            return self._error(request, ServiceUnavailable("tokens cannot be checked now"))
        if token is None:
            return again(status=401, problem="login_wrong")
        self._sessions.end(read_cookie(request, SESSION_COOKIE))
        identifier, _ = self._sessions.start(token.name, token.hash)
        logger.info("%s signed in to the diagnostic page", token.name)
        response = redirect(local_address(fields.get("next", "")))
        write_cookie(request, response, SESSION_COOKIE, identifier)
        write_cookie(request, response, LOGIN_COOKIE, None)
        return response

    async def log_out(self, visit: Visit) -> Response:
        """End the session."""
        if visit.session is not None:
            await self._checked_form(visit)
            self._sessions.end(read_cookie(visit.request, SESSION_COOKIE))
        response = redirect("/login?out=1")
        write_cookie(visit.request, response, SESSION_COOKIE, None)
        return response

    def _to_login(self, request: Request) -> Response:
        if request.method != "GET":
            return redirect("/login")
        address = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return redirect("/login" if address == "/" else f"/login?{urlencode({'next': address})}")

    def _login_page(
        self,
        request: Request,
        *,
        wanted: str,
        status: int = 200,
        problem: str = "",
        error: ServiceError | None = None,
    ) -> Response:
        nonce = read_cookie(request, LOGIN_COOKIE) or secrets.token_urlsafe(16)
        wait = int(error.headers.get("Retry-After", "1")) if error is not None else 0
        response = self._render(
            request,
            "login.html",
            status=status,
            problem=problem,
            wait=wait,
            signed_out="out" in request.query_params,
            next=wanted,
            form_token=self._sessions.login_form_token(nonce),
        )
        response.headers.update(error.headers if error is not None else {})
        write_cookie(request, response, LOGIN_COOKIE, nonce)
        return response

    # pages

    async def show_overview(self, visit: Visit) -> Response:
        """Statistics, last runs, reasons, the search box."""
        found = await self._service.run(
            index_overview.overview, self._service, runs=RUNS_ON_OVERVIEW
        )
        return self._render(
            visit.request,
            "overview.html",
            visit=visit,
            overview=found,
            notice="results_gone" if "gone" in visit.request.query_params else "",
        )

    async def show_runs(self, visit: Visit) -> Response:
        """Every recorded run, as far as one page holds them."""
        found = await self._service.run(index_overview.overview, self._service, runs=RUNS_ON_PAGE)
        return self._render(visit.request, "runs.html", visit=visit, overview=found)

    async def ask(self, visit: Visit) -> Response:
        """Take a question; the answer is at an address that does not hold it."""
        search = self._search_form(await self._checked_form(visit))
        if visit.session is None:
            return await self._results(visit, search)
        return redirect(f"/searches/{visit.session.keep_search(search)}")

    async def show_search(self, visit: Visit) -> Response:
        """The rankings for a question that the session keeps."""
        name = visit.request.path_params["name"]
        search = visit.session.searches.get(name) if visit.session is not None else None
        return redirect("/?gone=1") if search is None else await self._results(visit, search)

    async def _results(self, visit: Visit, search: SearchForm) -> Response:
        found, acl_tags = None, _acl_tags(visit.caller, search)
        if search.question:
            found = await self._service.run(compare, self._service.retriever, search, acl_tags)
        return self._render(
            visit.request,
            "results.html",
            visit=visit,
            form=search,
            found=found,
            acl_tags=None if isinstance(acl_tags, Everything) else acl_tags,
            modes=MODES,
            chart=chart(found.rows if found is not None else ()),
            failures=found.failures if found is not None else (),
        )

    async def show_left_out(self, visit: Visit) -> Response:
        """The ledger, a page of it, with counts by reason."""
        query = visit.request.query_params
        names = ("source", "reason", "status", "path")
        wanted = index_overview.LeftOutFilter(**{key: query.get(key, "") for key in names})
        found = await self._service.run(self._left_out, wanted, query.get("page", ""))
        return self._render(visit.request, "left_out.html", visit=visit, wanted=wanted, **found)

    def _left_out(self, wanted: index_overview.LeftOutFilter, page: str) -> dict[str, Any]:
        try:
            ledger = self._service.reader().left_out()
        except VectorStoreError:
            ledger = []
        chosen = [item for item in ledger if wanted.lets(item)]
        shown = index_overview.Page.of(page, len(chosen))
        all_but_reason = replace(wanted, reason="", status="")
        return {
            "rows": chosen[shown.rows],
            "page": shown,
            "ledger_size": len(ledger),
            "reasons": index_overview.reasons(filter(all_but_reason.lets, ledger)),
            "every_reason": index_overview.reasons(ledger),
        }

    async def show_document(self, visit: Visit) -> Response:
        """One document with its passages, or why it is not there."""
        query = visit.request.query_params
        source, path = query.get("source", ""), query.get("path", "").strip()
        try:
            found = await self._service.run(
                index_overview.explain,
                self._service,
                source,
                path,
                acl_tags=visit.caller.acl_tags,
            )
        except VectorStoreError as exc:
            logger.warning("the index cannot be read: %s", exc)
            return self._error(visit.request, ServiceUnavailable("the index cannot be read"))
        page = index_overview.Page.of(query.get("page", ""), len(found.chunks))
        return self._render(
            visit.request,
            "document.html",
            status=200 if found.status != "no_source" else 404,
            visit=visit,
            found=found,
            page=page,
            chunks=found.chunks[page.rows],
        )

    async def show_style(self, request: Request) -> Response:
        """The style sheet; its name holds its hash, so it may be kept for ever."""
        if request.path_params["name"] != style_sheet().name:
            return self._error(request, NotFound("there is no such file"))
        response = Response(style_sheet().content, media_type="text/css")
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        return response

    # what they share

    async def _form(self, request: Request) -> Mapping[str, str]:
        settings = self._service.config.service
        return await read_form(
            request,
            max_body_bytes=settings.max_body_bytes,
            timeout_seconds=settings.timeout_seconds,
        )

    async def _checked_form(self, visit: Visit) -> Mapping[str, str]:
        """The fields of a form of this session. A bearer token no browser adds by itself, so it
        needs no such proof.

        Raises:
            Forbidden: another site sent it, or it is of an earlier session.
        """
        fields = await self._form(visit.request)
        session = visit.session
        if session is not None and not (
            sent_from_here(visit.request) and session.sent_by(fields.get("form_token", ""))
        ):
            raise _StaleForm("this form was not made by this session")
        return fields

    def _search_form(self, fields: Mapping[str, str]) -> SearchForm:
        config = self._service.config
        max_k = config.service.max_k
        return SearchForm.of(fields, default_k=min(config.retrieval.k, max_k), max_k=max_k)

    def _error(self, request: Request, error: ServiceError) -> Response:
        texts = {
            401: "login_wrong",
            403: "error_forbidden",
            404: "error_not_found",
            413: "error_too_large",
        }
        key = "error_form" if isinstance(error, _StaleForm) else texts.get(error.status, "")
        response = self._render(
            request, "error.html", status=error.status, key=key, detail=error.message
        )
        response.headers.update(error.headers)
        return response

    def _render(
        self,
        request: Request,
        template: str,
        *,
        status: int = 200,
        visit: Visit | None = None,
        **values: Any,
    ) -> HTMLResponse:
        config = self._service.config
        context = {
            "visit": visit,
            "form": self._search_form({}),
            "source_options": [(source.name, source.name) for source in config.sources],
            "max_k": config.service.max_k,
            "max_question": config.retrieval.max_query_characters,
            "dagster_url": web_address(config.service.dagster_url or ""),
            "document_address": document_address,
            **values,
        }
        return render(request, template, context, status=status)


class _StaleForm(Forbidden):
    """A form of another site, of an earlier session, or of an earlier process."""


def _acl_tags(caller: Caller, search: SearchForm) -> AclTags:
    """Those typed, as far as the administrator has them; none typed: all the administrator has."""
    own, typed = caller.acl_tags, search.acl_tags
    if not typed:
        return own
    return typed if isinstance(own, Everything) else tuple(tag for tag in typed if tag in own)


def _client(request: Request) -> str:
    return request.client.host if request.client else ""

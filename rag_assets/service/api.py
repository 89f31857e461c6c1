"""The JSON routes: search, context, documents, stats, health and the OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rag_assets.errors import IndexMissing, RagError
from rag_assets.filters import Filters
from rag_assets.retrieval import build_context
from rag_assets.retrieval.hits import hit_json
from rag_assets.service.answers import json_answer, json_bytes, logger
from rag_assets.service.errors import NotFound, Unprocessable
from rag_assets.service.models import ContextBody, FiltersBody, SearchBody
from rag_assets.service.openapi import default_k, openapi_document
from rag_assets.service.requests import caller_of, read_body

if TYPE_CHECKING:
    from rag_assets.index.base import ExplainedDocument, VectorStore
    from rag_assets.models import Hit, IndexStats
    from rag_assets.service.core import Caller, SearchService

Handler = Callable[[Request], Awaitable[Response]]


def api_routes(service: SearchService) -> list[Route]:
    """The routes of the API over one service."""
    return [
        Route("/search", _search(service), methods=["POST"]),
        Route("/context", _context(service), methods=["POST"]),
        Route("/documents/{source}/{path:path}", _document(service), methods=["GET"]),
        Route("/stats", _stats(service), methods=["GET"]),
        Route("/health", _health(service), methods=["GET"]),
        Route("/openapi.json", _openapi(service), methods=["GET"]),
    ]


def _search(service: SearchService) -> Handler:
    async def search(request: Request) -> Response:
        caller = caller_of(service, request)
        body = await read_body(service, request, SearchBody)
        filters = _checked(service, body)

        def work() -> bytes:
            mode = body.mode or service.config.retrieval.mode
            hits = service.retriever.retrieve(
                body.query,
                body.k or default_k(service.config),
                acl_tags=caller.acl_tags,
                mode=mode,
                filters=filters,
                deduplicate=body.deduplicate,
                merge=body.merge,
            )
            return json_bytes({"query": body.query, "mode": mode, "hits": _hits(hits)})

        return json_answer(await service.run(work))

    return search


def _context(service: SearchService) -> Handler:
    async def context(request: Request) -> Response:
        caller = caller_of(service, request)
        body = await read_body(service, request, ContextBody)
        filters = _checked(service, body)

        def work() -> bytes:
            hits = service.retriever.retrieve(
                body.query,
                body.k or default_k(service.config),
                acl_tags=caller.acl_tags,
                mode=body.mode,
                filters=filters,
            )
            packed = build_context(hits, body.max_tokens, style=body.style)
            citations = [_citation(n, hit) for n, hit in enumerate(packed.hits, start=1)]
            return json_bytes(
                {"text": packed.text, "citations": citations, "hits": _hits(packed.hits)}
            )

        return json_answer(await service.run(work))

    return context


def _document(service: SearchService) -> Handler:
    async def document(request: Request) -> Response:
        caller = caller_of(service, request)
        source, path = request.path_params["source"], request.path_params["path"]

        def work() -> bytes:
            found = service.retriever.document(source, path, acl_tags=caller.acl_tags)
            if found is None or found.document is None:
                raise NotFound("there is no such document, or this token may not see it")
            return json_bytes(_document_json(found, admin=caller.admin))

        return json_answer(await service.run(work))

    return document


def _stats(service: SearchService) -> Handler:
    async def stats(request: Request) -> Response:
        caller = caller_of(service, request)

        def work() -> bytes:
            visible = service.retriever.stats(acl_tags=caller.acl_tags)
            return json_bytes(_stats_json(service, caller, visible))

        return json_answer(await service.run(work))

    return stats


def _health(service: SearchService) -> Handler:
    async def health(request: Request) -> Response:  # noqa: ARG001
        status = await service.run(_status, service)
        return json_answer({"status": status}, 200 if status == "ok" else 503)

    return health


def _openapi(service: SearchService) -> Handler:
    document = json_bytes(openapi_document(service.config))

    async def openapi(request: Request) -> Response:  # noqa: ARG001
        return json_answer(document)

    return openapi


def _status(service: SearchService) -> str:
    try:
        held = service.reader().fingerprint()
    except IndexMissing:
        return "no index"
    except RagError:
        logger.exception("the index cannot be read")
        return "index unreadable"
    return "no index" if held is None else "ok"


def _checked(service: SearchService, body: SearchBody | ContextBody) -> Filters:
    """The filters of a request whose numbers and lengths are within the limits.

    Raises:
        Unprocessable, InvalidQuery: they are not.
    """
    most = service.config.service.max_k
    if body.k is not None and body.k > most:
        raise Unprocessable(f"k: must be at most {most}")
    longest = service.config.retrieval.max_query_characters
    if len(body.query) > longest:
        raise Unprocessable(f"query: must be at most {longest} characters long")
    return _filters(body.filters)


def _filters(body: FiltersBody | None) -> Filters:
    return Filters.of(None if body is None else body.model_dump(exclude_none=True))


def _hits(hits: list[Hit] | tuple[Hit, ...]) -> list[dict[str, Any]]:
    return [hit_json(hit) for hit in hits]


def _citation(number: int, hit: Hit) -> dict[str, Any]:
    keys = ("source", "path", "title", "section", "url", "citation")
    return {"number": number, **{key: getattr(hit, key) for key in keys}}


def _document_json(found: ExplainedDocument, *, admin: bool) -> dict[str, Any]:
    document = found.document
    assert document is not None  # the caller checked
    keys = ("source", "path", "title", "url", "language", "modified_at", "content_hash")
    return {
        **{key: getattr(document, key) for key in keys},
        "indexed_at": found.indexed_at,
        "metadata": dict(document.metadata),
        # Other groups' tags are nobody's business but an admin's.
        "acl_tags": list(document.acl_tags) if admin else None,
        "chunks": [
            {
                "position": chunk.position,
                "section": chunk.section,
                "heading_path": list(chunk.heading_path),
                "anchor": chunk.anchor,
                "start_line": chunk.start_line,
                "end_line": chunk.end_line,
                "tokens": chunk.tokens,
                "content": chunk.content,
            }
            for chunk in found.chunks
        ],
    }


def _stats_json(service: SearchService, caller: Caller, visible: IndexStats) -> dict[str, Any]:
    return {
        "documents": visible.documents,
        "chunks": visible.chunks,
        "last_indexed_at": visible.last_indexed_at,
        "sources": {name: _counts(counts) for name, counts in visible.sources.items()},
        "index": _index_json(service.reader()) if caller.admin else None,
    }


def _counts(counts: Mapping[str, int]) -> dict[str, int]:
    return {"documents": counts["documents"], "chunks": counts["chunks"]}


def _index_json(store: VectorStore) -> dict[str, Any]:
    """What an admin may know of the whole index; no text, no path of the server."""
    held, statuses = store.stats(), [row.status for row in store.left_out()]
    print_ = held.fingerprint
    return {
        "documents": held.documents,
        "chunks": held.chunks,
        "vectors": held.vectors,
        "size_bytes": held.size_bytes,
        "model": print_.model if print_ else None,
        "dimension": print_.dim if print_ else None,
        "chunker": print_.chunker if print_ else None,
        "excluded": statuses.count("excluded"),
        "quarantined": statuses.count("quarantined"),
    }

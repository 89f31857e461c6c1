"""A BookStack as its API shows itself (v24 and v25), on a real socket, with people who change it.

Written from the shapes and rules of BookStack's API: listings with count, offset, sort and filter,
visibility by role, content permissions, drafts, templates, recycle bin, rate limit, errors.
"""

from __future__ import annotations

import json
import operator
import re
import socket
import threading
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from types import TracebackType
from typing import Any, Literal, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

EntityKind = Literal["book", "chapter", "page"]
T = TypeVar("T")

PAGE_FIELDS = (
    "id", "book_id", "chapter_id", "name", "slug", "priority", "draft", "template",
    "created_at", "updated_at", "created_by", "updated_by", "owned_by",
)  # fmt: skip
CHAPTER_FIELDS = (
    "id", "book_id", "name", "slug", "description", "priority",
    "created_at", "updated_at", "created_by", "updated_by", "owned_by",
)  # fmt: skip
BOOK_FIELDS = (
    "id", "name", "slug", "description",
    "created_at", "updated_at", "created_by", "updated_by", "owned_by",
)  # fmt: skip
ROLE_FIELDS = (
    "display_name", "description", "mfa_enforced", "external_auth_id",
    "created_at", "updated_at", "permissions_count", "users_count",
)  # fmt: skip

IMPLICIT_DENY, IMPLICIT_ALLOW, EXPLICIT_DENY, EXPLICIT_ALLOW = range(4)


@dataclass
class Entity:
    """A book, chapter or page."""

    kind: EntityKind
    id: int
    name: str
    slug: str
    owned_by: int
    created_at: str
    updated_at: str
    book_id: int = 0
    chapter_id: int = 0
    priority: int = 0
    draft: bool = False
    template: bool = False
    html: str = ""
    markdown: str = ""
    revision_count: int = 0
    editor: str = "wysiwyg"
    deleted: bool = False
    roles: dict[int, bool] = field(default_factory=dict)
    """View permissions of its own by role id."""
    fallback: bool | None = None
    """What all other roles may; None: inheriting."""


@dataclass
class Role:
    """A role and its permissions, such as ``page-view-all``."""

    id: int
    display_name: str
    permissions: set[str]
    system_name: str = ""


@dataclass
class User:
    """Somebody with an API token."""

    id: int
    name: str
    token_id: str
    secret: str
    roles: set[int]
    expired: bool = False
    window: float = 0.0
    used: int = 0

    @property
    def token(self) -> str:
        """``id:secret``, what goes into the environment."""
        return f"{self.token_id}:{self.secret}"


class ApiError(Exception):
    """What the API answers in place of a value."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers or {}


class BookStack:
    """The server: ``with BookStack() as wiki``. ``counts`` has the requests by kind.

    Kinds: ``pages``, ``page``, ``chapters``, ``books``, ``roles``, ``role``, ``permissions``,
    ``other``; ``refused`` counts those that were answered with an error.
    """

    def __init__(self, *, requests_per_minute: int = 1_000_000, max_item_count: int = 500) -> None:
        self.requests_per_minute = requests_per_minute
        self.max_item_count = max_item_count
        self.window_seconds = 60.0
        self.counts: Counter[str] = Counter()
        self.targets: list[str] = []
        self.books: dict[int, Entity] = {}
        self.chapters: dict[int, Entity] = {}
        self.pages: dict[int, Entity] = {}
        self.roles: dict[int, Role] = {}
        self.users: dict[str, User] = {}
        self._slugs: dict[tuple[str, int], dict[str, int]] = {}
        """By kind and book, the slugs ever given and the id of what got each."""
        self.before_answer: Callable[[str, Request], Response | None] | None = None
        """Called with the kind of each request first; what it returns is the answer."""
        self.delay_seconds = 0.0
        self._lock = threading.RLock()
        self._clock = datetime(2026, 3, 1, 9, 0, 0, tzinfo=timezone.utc)
        everything = {f"{kind}-view-all" for kind in ("page", "chapter", "book")}
        managing = {"restrictions-manage-all", "user-roles-manage", "access-api"}
        self.admin_role = self.add_role("Admin", everything | managing, system_name="admin")
        self.viewer_role = self.add_role("Viewer", everything | {"access-api"})
        self.public_role = self.add_role("Public", set(), system_name="public")
        self.admin = self.add_user("Admin", self.admin_role)
        self._server: uvicorn.Server | None = None
        self.address = ""

    def __enter__(self) -> BookStack:
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = uvicorn.Config(self._app(), log_level="error", access_log=False, lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listener]}, daemon=True
        )
        self._thread.start()
        deadline = time.monotonic() + 20
        while not self._server.started:
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.005)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(10)

    # What people do.

    def add_role(self, name: str, permissions: set[str], *, system_name: str = "") -> Role:
        """A new role."""
        role = Role(len(self.roles) + 1, name, set(permissions), system_name)
        self.roles[role.id] = role
        return role

    def add_user(self, name: str, *roles: Role, secret: str = "") -> User:
        """A new user with a token."""
        number = len(self.users) + 1
        secret = secret or f"secret-of-{name.lower()}-{number:04d}"
        user = User(number, name, f"id{number:04d}", secret, {role.id for role in roles})
        self.users[user.token_id] = user
        return user

    def add_book(self, name: str) -> Entity:
        """A new book."""
        return self._add(self.books, "book", name)

    def add_chapter(self, book: Entity, name: str) -> Entity:
        """A new chapter at the end of a book."""
        return self._add(self.chapters, "chapter", name, book_id=book.id)

    def add_page(
        self,
        parent: Entity,
        name: str,
        *,
        markdown: str = "",
        html: str = "",
        draft: bool = False,
        template: bool = False,
        owner: User | None = None,
    ) -> Entity:
        """A new page in a book or chapter, in Markdown or HTML."""
        chapter_id = parent.id if parent.kind == "chapter" else 0
        book_id = parent.book_id if parent.kind == "chapter" else parent.id
        return self._add(
            self.pages,
            "page",
            name,
            book_id=book_id,
            chapter_id=chapter_id,
            draft=draft,
            template=template,
            markdown=markdown,
            html=html or _rendered(markdown),
            editor="markdown" if markdown else "wysiwyg",
            revision_count=0 if draft else 1,
            owned_by=(owner or self.admin).id,
        )

    def edit(self, page: Entity, *, markdown: str = "", html: str = "") -> None:
        """Save new content."""
        with self._lock:
            page.markdown, page.html = markdown, html or _rendered(markdown)
            page.revision_count += 1
            self._touch(page)

    def rename(self, entity: Entity, name: str) -> None:
        """A new name, and a new slug with it; a page counts it as a revision."""
        with self._lock:
            entity.name = name
            entity.slug = self._free_slug(entity)
            entity.revision_count += entity.kind == "page"
            self._touch(entity)

    def move(self, entity: Entity, parent: Entity) -> None:
        """Move a page into a book or chapter, or a chapter into a book."""
        with self._lock:
            book_id = parent.book_id if parent.kind == "chapter" else parent.id
            pages = [p for p in self.pages.values() if p.chapter_id == entity.id]
            if entity.kind == "page":
                entity.chapter_id = parent.id if parent.kind == "chapter" else 0
                pages = []
            for moved in (entity, *pages):
                moved.book_id = book_id
                moved.slug = self._free_slug(moved)
                self._touch(moved)

    def sort(self, page: Entity, priority: int) -> None:
        """Give a page another rank in its book."""
        with self._lock:
            page.priority = priority
            self._touch(page)

    def delete(self, entity: Entity) -> None:
        """Put something into the recycle bin, with all that it holds."""
        with self._lock:
            for held in self._held_by(entity):
                held.deleted = True

    def restore(self, entity: Entity) -> None:
        """Take something out of the recycle bin again."""
        with self._lock:
            for held in self._held_by(entity):
                held.deleted = False
                self._touch(held)

    def publish(self, page: Entity) -> None:
        """Make a page of a draft."""
        with self._lock:
            page.draft = False
            page.revision_count = 1
            self._touch(page)

    def restrict(
        self, entity: Entity, roles: dict[int, bool] | None = None, fallback: bool | None = None
    ) -> None:
        """Set the view permissions of its own; leaves no mark on the entity."""
        with self._lock:
            entity.roles, entity.fallback = dict(roles or {}), fallback

    @contextmanager
    def counting(self) -> Iterator[Counter[str]]:
        """The requests made within the block."""
        before = Counter(self.counts)
        found: Counter[str] = Counter()
        yield found
        found.update(self.counts - before)

    def sees(self, user: User, entity: Entity) -> bool:
        """Whether a user may view something: the strongest word of all their roles."""
        if entity.kind == "page" and entity.draft and entity.owned_by != user.id:
            return False
        words = [self.status(self.roles[role], entity) for role in user.roles]
        return bool(words) and max(words) in (IMPLICIT_ALLOW, EXPLICIT_ALLOW)

    def status(self, role: Role, entity: Entity) -> int:
        """What one role is told about something."""
        if role.system_name == "admin":
            return EXPLICIT_ALLOW
        said: bool | None = None
        for level in self._chain(entity):
            if said is None:
                said = level.roles.get(role.id)
            if level.fallback is not None:
                if said is None:
                    return IMPLICIT_ALLOW if level.fallback else IMPLICIT_DENY
                break
        if said is not None:
            return EXPLICIT_ALLOW if said else EXPLICIT_DENY
        default = f"{entity.kind}-view-all" in role.permissions
        return IMPLICIT_ALLOW if default else IMPLICIT_DENY

    def _chain(self, entity: Entity) -> Iterator[Entity]:
        yield entity
        if entity.kind == "page" and entity.chapter_id:
            yield self.chapters[entity.chapter_id]
        if entity.kind != "book":
            yield self.books[entity.book_id]

    def _held_by(self, entity: Entity) -> list[Entity]:
        key = {"page": "id", "chapter": "chapter_id", "book": "book_id"}[entity.kind]
        held = [p for p in self.pages.values() if getattr(p, key) == entity.id]
        if entity.kind == "book":
            held += [c for c in self.chapters.values() if c.book_id == entity.id]
        return held if entity.kind == "page" else [*held, entity]

    def _add(self, among: dict[int, Entity], kind: EntityKind, name: str, **fields: Any) -> Entity:
        with self._lock:
            now = self._now()
            at = len(among) + 1
            fields.setdefault("owned_by", self.admin.id)
            entity = Entity(kind, at, name, "", created_at=now, updated_at=now, **fields)
            entity.priority = len(among)
            entity.slug = "" if entity.draft else self._free_slug(entity)
            among[at] = entity
            return entity

    def _free_slug(self, entity: Entity) -> str:
        """A slug that nothing beside it has or had; what is in the recycle bin keeps its own."""
        ascii_name = unicodedata.normalize("NFKD", entity.name).encode("ascii", "ignore").decode()
        slug = re.sub(r"[^a-z0-9]+", "-", ascii_name.lower()).strip("-") or "3f2a9"
        used = self._slugs.setdefault((entity.kind, entity.book_id), {})
        while used.setdefault(slug, entity.id) != entity.id:
            slug += f"-x{len(used):02d}"
        return slug

    def _touch(self, entity: Entity) -> None:
        entity.updated_at = self._now()

    def _now(self) -> str:
        self._clock += timedelta(seconds=1)
        return self._clock.strftime("%Y-%m-%dT%H:%M:%S.000000Z")

    # What the API answers.

    def _app(self) -> Starlette:
        get = {
            "/api/pages": ("pages", self.list_pages),
            "/api/pages/{id}": ("page", self.read_page),
            "/api/chapters": ("chapters", self.list_chapters),
            "/api/books": ("books", self._list_books),
            "/api/roles": ("roles", self._list_roles),
            "/api/roles/{id}": ("role", self._read_role),
            "/api/content-permissions/{kind}/{id}": ("permissions", self._read_permissions),
        }
        routes = [Route(path, self._endpoint(*way), methods=["GET"]) for path, way in get.items()]
        return Starlette(routes=[*routes, Route("/{rest:path}", self._endpoint("other", _login))])

    def _endpoint(
        self, kind: str, answer: Callable[[Request, User], Any]
    ) -> Callable[[Request], Any]:
        def handle(request: Request) -> Response:
            with self._lock:
                self.counts[kind] += 1
                self.targets.append(f"{request.url.path}?{request.url.query}")
                headers: dict[str, str] = {}
                try:
                    if self.before_answer is not None:
                        said = self.before_answer(kind, request)
                        if said is not None:
                            return said
                    user = self._user(request)
                    headers = self._throttle(user)
                    value = answer(request, user)
                except ApiError as exc:
                    self.counts["refused"] += 1
                    error = {"message": exc.message, "code": exc.status}
                    return as_json({"error": error}, exc.status, {**headers, **exc.headers})
                if isinstance(value, Response):
                    return value
                return as_json(value, headers=headers)

        async def endpoint(request: Request) -> Response:
            if self.delay_seconds:
                import anyio

                await anyio.sleep(self.delay_seconds)
            return handle(request)

        return endpoint

    def _user(self, request: Request) -> User:
        given = request.headers.get("authorization", "").strip()
        if not given:
            raise ApiError(401, "No authorization token found on the request")
        if ":" not in given or not given.startswith("Token "):
            raise ApiError(
                401,
                "An authorization token was found on the request but the format appeared incorrect",
            )
        token_id, secret = given.removeprefix("Token ").split(":")[:2]
        user = self.users.get(token_id)
        if user is None:
            raise ApiError(
                401, "No matching API token was found for the provided authorization token"
            )
        if user.secret != secret:
            raise ApiError(401, "The secret provided for the given used API token is incorrect")
        if user.expired:
            raise ApiError(403, "The authorization token used has expired")
        if not self._may(user, "access-api"):
            raise ApiError(
                403, "The owner of the used API token does not have permission to make API calls"
            )
        return user

    def _throttle(self, user: User) -> dict[str, str]:
        now = time.monotonic()
        if now - user.window >= self.window_seconds:
            user.window, user.used = now, 0
        user.used += 1
        left = self.requests_per_minute - user.used
        headers = {
            "X-RateLimit-Limit": str(self.requests_per_minute),
            "X-RateLimit-Remaining": str(max(left, 0)),
        }
        if left < 0:
            seconds = max(1, round(user.window + self.window_seconds - now))
            headers |= {
                "Retry-After": str(seconds),
                "X-RateLimit-Reset": str(int(time.time()) + seconds),
            }
            raise ApiError(429, "Too Many Attempts.", headers)
        return headers

    def _may(self, user: User, permission: str) -> bool:
        return any(permission in self.roles[role].permissions for role in user.roles)

    def _need(self, user: User, permission: str) -> None:
        if not self._may(user, permission):
            raise ApiError(403, "You do not have permission to perform the requested action.")

    def _find(self, among: dict[int, Entity], request: Request, user: User, what: str) -> Entity:
        raw = request.path_params["id"]
        entity = among.get(int(raw)) if raw.isdecimal() else None
        if entity is None or entity.deleted or not self.sees(user, entity):
            raise ApiError(404, f"{what} not found")
        return entity

    def list_pages(self, request: Request, user: User) -> Any:
        """``GET /api/pages``."""

        def shown(page: Entity) -> dict[str, Any]:
            return {
                **_fields(page, PAGE_FIELDS),
                "revision_count": page.revision_count,
                "editor": page.editor,
                "book_slug": self.books[page.book_id].slug,
            }

        return self._entities(request, self.pages, user, PAGE_FIELDS, shown)

    def list_chapters(self, request: Request, user: User) -> Any:
        """``GET /api/chapters``."""

        def shown(chapter: Entity) -> dict[str, Any]:
            book_slug = self.books[chapter.book_id].slug
            return {**_fields(chapter, CHAPTER_FIELDS), "book_slug": book_slug}

        return self._entities(request, self.chapters, user, CHAPTER_FIELDS, shown)

    def _list_books(self, request: Request, user: User) -> Any:
        def shown(book: Entity) -> dict[str, Any]:
            return _fields(book, BOOK_FIELDS)

        return self._entities(request, self.books, user, BOOK_FIELDS, shown)

    def _entities(
        self,
        request: Request,
        among: dict[int, Entity],
        user: User,
        fields: tuple[str, ...],
        shown: Callable[[Entity], dict[str, Any]],
    ) -> Any:
        """What the user sees of it, filtered first, as that is cheap."""

        def value(entity: Entity, name: str) -> Any:
            return entity.id if name == "id" else _fields(entity, (name,))[name]

        found = _filtered(request, list(among.values()), fields, value)
        visible = [entity for entity in found if not entity.deleted and self.sees(user, entity)]
        return self._listing(request, visible, fields, value, shown)

    def _list_roles(self, request: Request, user: User) -> Any:
        self._need(user, "user-roles-manage")
        rows: list[dict[str, Any]] = [
            {
                "id": role.id,
                "display_name": role.display_name,
                "description": "",
                "created_at": "2026-01-01T00:00:00.000000Z",
                "updated_at": "2026-01-01T00:00:00.000000Z",
                "system_name": role.system_name,
                "external_auth_id": "",
                "mfa_enforced": False,
                "users_count": sum(role.id in u.roles for u in self.users.values()),
                "permissions_count": len(role.permissions),
            }
            for role in self.roles.values()
        ]
        rows = _filtered(request, rows, ROLE_FIELDS, dict.__getitem__)
        return self._listing(request, rows, ROLE_FIELDS, dict.__getitem__, dict)

    def _read_role(self, request: Request, user: User) -> Any:
        self._need(user, "user-roles-manage")
        role = self.roles.get(int(request.path_params["id"]))
        if role is None:
            raise ApiError(404, "No query results for model [BookStack\\Users\\Models\\Role]")
        return {
            "id": role.id,
            "display_name": role.display_name,
            "system_name": role.system_name,
            "permissions": sorted(role.permissions),
            "users": [],
        }

    def read_page(self, request: Request, user: User) -> Any:
        """``GET /api/pages/{id}``."""
        page = self._find(self.pages, request, user, "Page")
        owner = {"id": page.owned_by, "name": "Somebody", "slug": "somebody"}
        return {
            **_fields(page, PAGE_FIELDS),
            "html": self._with_includes(page.html, user),
            "raw_html": page.html,
            "markdown": page.markdown,
            "revision_count": page.revision_count,
            "editor": page.editor,
            "created_by": owner,
            "updated_by": owner,
            "owned_by": owner,
            "tags": [],
        }

    def _with_includes(self, html: str, user: User) -> str:
        """The HTML with the pages that the user sees in the place of their include tags."""

        def included(match: re.Match[str]) -> str:
            page = self.pages.get(int(match[1]))
            seen = page is not None and not page.deleted and self.sees(user, page)
            return page.html if page is not None and seen else ""

        return re.sub(r"\{\{@\s?([0-9]+).*?\}\}", included, html)

    def _read_permissions(self, request: Request, user: User) -> Any:
        kinds = {"book": self.books, "chapter": self.chapters, "page": self.pages}
        among = kinds.get(request.path_params["kind"])
        if among is None:
            raise ApiError(500, "Undefined array key")
        entity = self._find(among, request, user, "No query results for model: entity")
        self._need(user, "restrictions-manage-all")
        inheriting = entity.fallback is None
        rest = {"create": None, "update": None, "delete": None}
        if not inheriting:
            rest = dict.fromkeys(rest, False)
        return {
            "owner": {"id": entity.owned_by, "name": "Somebody", "slug": "somebody"},
            "role_permissions": [
                {
                    "role_id": role_id,
                    "view": view,
                    "create": False,
                    "update": False,
                    "delete": False,
                    "role": {"id": role_id, "display_name": self.roles[role_id].display_name},
                }
                for role_id, view in entity.roles.items()
            ],
            "fallback_permissions": {"inheriting": inheriting, "view": entity.fallback, **rest},
        }

    def _listing(
        self,
        request: Request,
        found: list[T],
        fields: tuple[str, ...],
        value: Callable[[T, str], Any],
        shown: Callable[[T], dict[str, Any]],
    ) -> Any:
        """Count, sort and cut, as the API's listings do."""
        query = request.query_params
        sort = query.get("sort", "")
        name = sort.lstrip("+- ")
        name = name if name in fields else fields[0]
        found = sorted(found, key=lambda item: value(item, name), reverse=sort.startswith("-"))
        offset = max(0, int(query.get("offset", 0)))
        count = max(min(self.max_item_count, int(query.get("count", 100))), 1)
        data = [shown(item) for item in found[offset : offset + count]]
        return {"data": data, "total": len(found)}


def _filtered(
    request: Request,
    items: list[T],
    fields: tuple[str, ...],
    value: Callable[[T, str], Any],
) -> list[T]:
    """What passes all filters; a filter on a field that the listing does not have is ignored."""
    for key, wanted in request.query_params.multi_items():
        match = re.fullmatch(r"filter\[([a-z_]+)(?::([a-z]+))?\]", key)
        if match and match[1] in fields:
            name, how = match[1], match[2] or "eq"
            items = [item for item in items if _passes(value(item, name), how, wanted)]
    return items


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "lt": operator.lt,
    "gte": operator.ge,
    "lte": operator.le,
    "like": lambda have, wanted: str(wanted).strip("%") in str(have),
}


def _passes(have: Any, name: str, wanted: str) -> bool:
    compare = _OPERATORS.get(name, operator.eq)
    return compare(have, int(wanted) if isinstance(have, int) else wanted)


def _fields(entity: Entity, names: tuple[str, ...]) -> dict[str, Any]:
    other = {"description": "", "created_by": entity.owned_by, "updated_by": entity.owned_by}
    return {name: other[name] if name in other else getattr(entity, name) for name in names}


def _rendered(markdown: str) -> str:
    """Some HTML for Markdown: enough for what reads ``html`` of a Markdown page by mistake."""
    return f'<p id="bkmrk-rendered">RENDERED {len(markdown)}</p>' if markdown.strip() else ""


def as_json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON in ASCII with slashes escaped, as PHP writes it."""
    body = json.dumps(value).replace("/", "\\/")
    return Response(body, status, headers, "application/json")


def _login(request: Request, user: User) -> Response:
    return HTMLResponse("<html><head><title>Log In | BookStack</title></head></html>")

"""A GitLab as its REST API shows it: real git repositories on disk, served on a real socket.

Written from GitLab's API documentation and the shapes of its answers. It checks the token of every
request, hides what the token's user may not see, pages as GitLab pages, and counts what is asked.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, quote, unquote, urlencode

import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rag_assets_tests.peers.git_repository import Repository

DEFAULT_PER_PAGE: Final = 20
MOST_PER_PAGE: Final = 100


@dataclass(slots=True)
class Project:
    """One project of the server; its fields may be changed between requests."""

    id: int
    path: str
    repository: Repository
    wiki: Repository
    visibility: str = "private"
    members: set[str] = field(default_factory=set)
    """Tokens whose user has the role Reporter here."""
    guests: set[str] = field(default_factory=set)
    """Tokens whose user sees the project, and not its code."""
    archived: bool = False
    marked_for_deletion_on: str | None = None
    repository_access_level: str = "enabled"
    wiki_access_level: str = "enabled"
    default_branch: str = "main"
    old_paths: set[str] = field(default_factory=set)

    def commit(self, files: Mapping[str, str | bytes] | None = None, **changes: Any) -> str:
        """See ``Repository.commit``."""
        return self.repository.commit(files, **changes)

    def write_wiki(self, pages: Mapping[str, str | bytes] | None = None, **changes: Any) -> str:
        """Change wiki files, such as ``home.md``."""
        return self.wiki.commit(pages, **changes)

    def rename(self, path: str) -> None:
        """Give it another full path; the old one redirects, as GitLab does."""
        self.old_paths.add(self.path)
        self.path = path

    @property
    def empty(self) -> bool:
        return self.repository.resolve(f"refs/heads/{self.default_branch}") is None


class _Refusal(Exception):
    def __init__(self, status: int, message: str, location: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.location = status, message, location


class GitLabPeer:
    """The server; a context manager. ``url`` is its address, with the path prefix it runs under."""

    def __init__(self, folder: Path, *, prefix: str = "") -> None:
        self._folder = folder
        self._prefix = prefix
        self.projects: dict[int, Project] = {}
        self._removed: list[Project] = []
        self.groups: dict[str, int] = {}
        self.tokens: set[str] = set()
        self.requests: Counter[str] = Counter()
        """By kind: ``project``, ``group``, ``group_projects``, ``commit``, ``tree``, ``blob``,
        ``wikis``, ``wiki_page``; and ``not_modified``."""
        self.targets: list[str] = []
        self.before_answer: Callable[[str, str], None] = lambda kind, target: None
        """Called with each request before it is answered; may change the server."""
        self.alter: Callable[[str, Request, Response], Response] = lambda kind, request, real: real
        """Called with each answer; may give another one."""
        self.throttled = 0
        """So many requests are answered with 429 before the next one is served."""
        self.names_totals = True
        """Whether group listings carry ``X-Total``, which GitLab leaves out beyond 10,000."""
        self.web_url = "https://gitlab.example.org"
        self.url = ""
        self._served = 0
        self._lock = threading.Lock()

    # ------------------------------------------------------------ content

    def add_token(self, token: str) -> str:
        """A user's token."""
        self.tokens.add(token)
        return token

    def add_group(self, path: str) -> None:
        """A group, with those above it."""
        for end in range(1, path.count("/") + 2):
            self.groups.setdefault("/".join(path.split("/")[:end]), 1000 + len(self.groups))

    def add_project(
        self,
        path: str,
        files: Mapping[str, str | bytes] | None = None,
        *,
        object_format: str = "sha1",
        **fields: Any,
    ) -> Project:
        """A project, with a first commit when there are files, open to all tokens of now."""
        self.add_group(path.rpartition("/")[0])
        number = 100 + len(self.projects)
        while number in self.projects:
            number += 1
        folder = self._folder / f"{number}"
        fields.setdefault("members", set(self.tokens))
        project = Project(
            number,
            path,
            Repository(folder / "code.git", object_format),
            Repository(folder / "wiki.git"),
            **fields,
        )
        if files:
            project.commit(files)
        self.projects[number] = project
        return project

    def remove(self, project: Project) -> None:
        """Delete a project for good."""
        self._removed.append(self.projects.pop(project.id))

    def count(self) -> Counter[str]:
        """What was asked since the last time."""
        asked, self.requests = self.requests, Counter()
        self.targets.clear()
        return asked

    # ------------------------------------------------------------ server

    def __enter__(self) -> GitLabPeer:
        config = uvicorn.Config(
            self._answer, host="127.0.0.1", port=0, log_level="error", access_log=False,
            lifespan="off",
            interface="asgi3",
            ws="none",
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 10
        while not self._server.started:
            assert time.monotonic() < deadline, "the server does not start"
            time.sleep(0.005)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}{self._prefix}"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        for project in (*self.projects.values(), *self._removed):
            project.repository.close()
            project.wiki.close()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        with self._lock:
            self._served += 1
            response = self._respond(request)
        response.headers["RateLimit-Limit"] = "2000"
        response.headers["RateLimit-Observed"] = str(self._served)
        response.headers["RateLimit-Remaining"] = str(max(0, 2000 - self._served))
        response.headers["RateLimit-Reset"] = str(int(time.time()) + 60)
        await response(scope, receive, send)

    def _respond(self, request: Request) -> Response:
        raw = request.scope["raw_path"].decode("ascii")
        if self.throttled:
            self.throttled -= 1
            return Response("Retry later\n", 429, {"Retry-After": "0"}, "text/plain")
        try:
            return self._route(request, raw)
        except _Refusal as refusal:
            body = json.dumps({"message": refusal.message})
            headers = {"Location": refusal.location} if refusal.location else None
            return Response(body, refusal.status, headers, "application/json")

    def _route(self, request: Request, raw: str) -> Response:
        root = f"{self._prefix}/api/v4/"
        if not raw.startswith(root):
            return Response("<html><title>Sign in</title></html>", 404, None, "text/html")
        token = request.headers.get("private-token", "")
        if token and token not in self.tokens:
            raise _Refusal(401, "401 Unauthorized")
        parts = [unquote(part) for part in raw.removeprefix(root).split("/")]
        kind, answer = self._handler(parts)
        self.requests[kind] += 1
        self.targets.append(f"{raw}?{request.url.query}")
        self.before_answer(kind, self.targets[-1])
        response = self.alter(kind, request, answer(request, token, parts))
        etag = f'W/"{hashlib.md5(response.body, usedforsecurity=False).hexdigest()}"'
        if kind == "blob" or response.status_code != 200:
            return response
        response.headers["ETag"] = etag
        if request.headers.get("if-none-match") == etag:
            self.requests["not_modified"] += 1
            return Response(None, 304, {"ETag": etag})
        return response

    def _handler(
        self, parts: Sequence[str]
    ) -> tuple[str, Callable[[Request, str, Sequence[str]], Response]]:
        match [parts[0], *parts[2:]]:
            case ["projects"]:
                return "project", self._get_project
            case ["groups"]:
                return "group", self._get_group
            case ["groups", "projects"]:
                return "group_projects", self._get_group_projects
            case ["projects", "repository", "commits", _]:
                return "commit", self._get_commit
            case ["projects", "repository", "tree"]:
                return "tree", self._get_tree
            case ["projects", "repository", "blobs", _, "raw"]:
                return "blob", self._get_blob
            case ["projects", "wikis"]:
                return "wikis", self._get_wikis
            case ["projects", "wikis", _]:
                return "wiki_page", self._get_wiki_page
        raise _Refusal(404, "404 Not Found")

    # ------------------------------------------------------------ permissions

    def _sees(self, project: Project, token: str) -> bool:
        if token and token in project.members | project.guests:
            return True
        return project.visibility == "public" or (project.visibility == "internal" and bool(token))

    def _may(self, project: Project, token: str, level: str) -> bool:
        """Whether a feature with that access level is open to the token."""
        if level == "disabled" or not self._sees(project, token):
            return False
        if token in project.members:
            return True
        return level == "enabled" and project.visibility != "private"

    def _reads_code(self, project: Project, token: str) -> bool:
        return self._may(project, token, project.repository_access_level)

    def _reads_wiki(self, project: Project, token: str) -> bool:
        return self._may(project, token, project.wiki_access_level)

    def _project(self, name: str, token: str) -> Project:
        for project in self.projects.values():
            if name in (str(project.id), project.path) and self._sees(project, token):
                return project
        for project in self.projects.values():
            if name in project.old_paths and self._sees(project, token):
                raise _Refusal(302, "", f"{self.url}/api/v4/projects/{project.id}")
        raise _Refusal(404, "404 Project Not Found")

    def _code(self, name: str, token: str) -> Project:
        project = self._project(name, token)
        if not self._reads_code(project, token):
            raise _Refusal(403, "403 Forbidden")
        return project

    def _wiki(self, name: str, token: str) -> Project:
        project = self._project(name, token)
        if not self._reads_wiki(project, token):
            raise _Refusal(403, "403 Forbidden")
        return project

    # ------------------------------------------------------------ answers

    def _described(self, project: Project, token: str, *, basic: bool = False) -> dict[str, Any]:
        web = f"{self.web_url}/{project.path}"
        value: dict[str, Any] = {
            "id": project.id,
            "description": None,
            "name": project.path.rpartition("/")[2],
            "path": project.path.rpartition("/")[2],
            "path_with_namespace": project.path,
            "created_at": "2026-01-01T00:00:00.000Z",
            "tag_list": [],
            "topics": [],
            "ssh_url_to_repo": f"git@gitlab.example.org:{project.path}.git",
            "http_url_to_repo": f"{web}.git",
            "web_url": web,
            "star_count": 0,
            "last_activity_at": "2026-01-01T00:00:00.000Z",
            "namespace": {"full_path": project.path.rpartition("/")[0], "kind": "group"},
        }
        if self._reads_code(project, token):
            value["default_branch"] = project.default_branch
        if basic:
            return value
        return value | {
            "empty_repo": project.empty,
            "archived": project.archived,
            "visibility": project.visibility,
            "marked_for_deletion_on": project.marked_for_deletion_on,
            "repository_access_level": project.repository_access_level,
            "wiki_access_level": project.wiki_access_level,
            "wiki_enabled": self._reads_wiki(project, token),
        }

    def _get_project(self, request: Request, token: str, parts: Sequence[str]) -> Response:
        project = self._project(parts[1], token)
        return _json(self._described(project, token, basic=not token))

    def _get_group(self, request: Request, token: str, parts: Sequence[str]) -> Response:
        for path, number in self.groups.items():
            if parts[1] in (path, str(number)):
                return _json({"id": number, "full_path": path, "path": path, "name": path})
        raise _Refusal(404, "404 Group Not Found")

    def _get_group_projects(self, request: Request, token: str, parts: Sequence[str]) -> Response:
        group = json.loads(self._get_group(request, token, parts).body)["full_path"]
        query = _query(request)
        deep = query.get("include_subgroups") == "true"
        found = [
            project
            for project in self.projects.values()
            if self._sees(project, token)
            and (project.path.startswith(group + "/") if deep
                 else project.path.rpartition("/")[0] == group)
            and (query.get("archived") != "false" or not project.archived)
        ]  # fmt: skip
        found.sort(key=lambda p: p.id, reverse=query.get("sort", "desc") == "desc")
        described = [self._described(project, token) for project in found]
        return self._numbered(request, described, totals=self.names_totals)

    def _get_commit(self, request: Request, token: str, parts: Sequence[str]) -> Response:
        project = self._code(parts[1], token)
        commit = project.repository.resolve(parts[4])
        if commit is None:
            raise _Refusal(404, "404 Commit Not Found")
        return _json(
            {
                "id": commit,
                "short_id": commit[:8],
                "title": "change",
                "committed_date": project.repository.committed_at(commit),
            }
        )

    def _get_tree(self, request: Request, token: str, parts: Sequence[str]) -> Response:
        project = self._code(parts[1], token)
        query = _query(request)
        commit = project.repository.resolve(query.get("ref", project.default_branch))
        if commit is None:
            raise _Refusal(404, "404 Tree Not Found")
        items = list(project.repository.tree(commit))
        if query.get("recursive") != "true":
            items = [item for item in items if "/" not in item["path"]]
        if query.get("pagination") != "keyset":
            return self._numbered(request, items)
        size = _per_page(query)
        start = 0
        if token_ := query.get("page_token"):
            after = json.loads(base64.urlsafe_b64decode(token_))["file_name"]
            start = next(n for n, item in enumerate(items) if item["path"] == after) + 1
        page = items[start : start + size]
        response = _json(page)
        if len(page) == size and start + size < len(items):
            place = json.dumps({"file_name": page[-1]["path"]}).encode()
            coded = base64.urlsafe_b64encode(place).decode()
            response.headers["Link"] = self._link(request, {"page_token": coded}, "next")
        return response

    def _get_blob(self, request: Request, token: str, parts: Sequence[str]) -> Response:
        content = self._code(parts[1], token).repository.blob(parts[4])
        if content is None:
            raise _Refusal(404, "404 Blob Not Found")
        return Response(content, 200, None, "text/plain")

    def _get_wikis(self, request: Request, token: str, parts: Sequence[str]) -> Response:
        project = self._wiki(parts[1], token)
        with_content = _query(request).get("with_content") in ("1", "true")
        return _json(_wiki_pages(project.wiki, with_content=with_content))

    def _get_wiki_page(self, request: Request, token: str, parts: Sequence[str]) -> Response:
        project = self._wiki(parts[1], token)
        for page in _wiki_pages(project.wiki, with_content=True):
            if page["slug"] == parts[3]:
                return _json(page)
        raise _Refusal(404, "404 Wiki Page Not Found")

    # ------------------------------------------------------------ pages

    def _numbered(self, request: Request, items: Sequence[Any], *, totals: bool = True) -> Response:
        query = _query(request)
        size, number = _per_page(query), max(1, int(query.get("page", "1")))
        last = max(1, -(-len(items) // size))
        response = _json(items[(number - 1) * size : number * size])
        following = number + 1 if number < last else None
        links = [("first", 1), ("prev", number - 1 or None), ("next", following)]
        if totals:
            links.append(("last", last))
            response.headers["X-Total"] = str(len(items))
            response.headers["X-Total-Pages"] = str(last)
        response.headers["X-Page"] = str(number)
        response.headers["X-Per-Page"] = str(size)
        response.headers["X-Next-Page"] = str(following or "")
        response.headers["X-Prev-Page"] = str(number - 1 or "")
        response.headers["Link"] = ", ".join(
            self._link(request, {"page": str(place)}, name) for name, place in links if place
        )
        return response

    def _link(self, request: Request, place: Mapping[str, str], name: str) -> str:
        path = request.scope["raw_path"].decode("ascii").removeprefix(self._prefix)
        query = {**_query(request), "per_page": str(_per_page(_query(request))), **place}
        return f'<{self.url}{path}?{urlencode(query)}>; rel="{name}"'


def _json(value: Any) -> Response:
    return Response(json.dumps(value), 200, None, "application/json")


def _query(request: Request) -> dict[str, str]:
    query = {key: values[-1] for key, values in parse_qs(request.url.query).items()}
    # Clients write booleans as their language does.
    return {k: v.lower() if v in ("True", "False") else v for k, v in query.items()}


def _per_page(query: Mapping[str, str]) -> int:
    return min(MOST_PER_PAGE, max(1, int(query.get("per_page", DEFAULT_PER_PAGE))))


_FORMATS: Final = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".asciidoc": "asciidoc",
    ".org": "org",
    ".rdoc": "rdoc",
}


def _wiki_pages(wiki: Repository, *, with_content: bool) -> list[dict[str, str]]:
    """The pages of the wiki's last commit; what has no known ending is no page."""
    commit = wiki.resolve("refs/heads/main")
    pages = []
    for item in wiki.tree(commit) if commit else ():
        stem, ending = os.path.splitext(item["path"])
        if item["type"] != "blob" or ending not in _FORMATS:
            continue
        title = stem.rpartition("/")[2].replace("-", " ")
        page = {"format": _FORMATS[ending], "slug": stem, "title": title}
        if with_content:
            content = wiki.blob(item["id"]) or b""
            page |= {"content": content.decode("utf-8", "replace"), "encoding": "UTF-8"}
        pages.append(page)
    return pages


def blob_url(project: Project, ref: str, path: str) -> str:
    """Where a reader finds a file on the server of the tests."""
    return f"https://gitlab.example.org/{project.path}/-/blob/{ref}/{quote(path)}"

"""Who may see a page of BookStack: overrides of pages, chapters and books in, ACL tags out.

BookStack decides for one role like this: of page, chapter and book the first that names the role
says yes or no; but where one before it has fallback permissions ("inherit defaults" is off), those
decide, unless the same one names the role. When nothing decides, the role's own right to view all
pages does. The role of administrators sees everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rag_assets.errors import SourceUnavailable
from rag_assets.sources.bookstack.listing import Row, ask, flag, page_of, text, whole
from rag_assets.sources.server_api import NotThere, Refused, ServerApi

VIEW_ALL_PAGES: Final = "page-view-all"
"""The permission of a role by which it sees pages that nothing else decides about. The one to see
pages of one's own (``page-view-own``) belongs to persons, which tags do not know."""
ADMINISTRATORS: Final = "admin"
"""System name of the role that sees everything."""
_ROLES_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Overrides:
    """The view permissions that one page, chapter or book has of its own."""

    roles: tuple[tuple[int, str, bool], ...] = ()
    """Id and name of a role, and whether it may see this."""
    fallback: bool | None = None
    """Whether all other roles may see this; None: as the parent says."""

    def as_list(self) -> list[Any]:
        """JSON-able; see ``from_list``."""
        return [[list(role) for role in self.roles], self.fallback]

    @classmethod
    def from_list(cls, value: Any) -> Overrides:
        """What ``as_list`` gave."""
        roles, fallback = value
        return cls(tuple((id_, name, view) for id_, name, view in roles), fallback)


@dataclass(frozen=True, slots=True)
class Role:
    """One role that the configuration gives tags to."""

    id: int
    """-1: not known, because the account may not list roles; then ``name`` tells."""
    name: str
    tags: tuple[str, ...]
    sees_all: bool = False
    """A role of administrators."""
    by_default: bool = False
    """Whether it sees a page that nothing else decides about."""

    def may_see(self, chain: Iterable[Overrides | None]) -> bool:
        """Whether it sees a page; ``chain`` is page, chapter (if any), book.

        None in the chain is what could not be read: nothing is granted on it.
        """
        if self.sees_all:
            return True
        for overrides in chain:
            if overrides is None:
                return False
            for role_id, name, view in overrides.roles:
                if role_id == self.id or (self.id < 0 and name == self.name):
                    return view
            if overrides.fallback is not None:
                return overrides.fallback
        return self.by_default


def granted(roles: Sequence[Role], chain: Sequence[Overrides | None]) -> tuple[str, ...]:
    """The tags of all roles that see a page; empty: nobody does."""
    return tuple(sorted({tag for role in roles if role.may_see(chain) for tag in role.tags}))


def read_overrides(api: ServerApi, kind: str, entity_id: int) -> Overrides | None:
    """The overrides of one ``page``, ``chapter`` or ``book``; None when it refuses to tell.

    Raises:
        IncompleteEnumeration: the answer is not what the API documents.
        SourceUnavailable: no answer.
    """
    path = f"/api/content-permissions/{kind}/{entity_id}"
    try:
        value = api.json(path)
    except (NotThere, Refused):
        return None
    fallback = value.get("fallback_permissions") if isinstance(value, dict) else None
    rows = value.get("role_permissions") if isinstance(value, dict) else None
    if not isinstance(fallback, dict) or not isinstance(rows, list):
        api.malformed(path, "answered JSON that holds no permissions")
    inherits = flag(api, path, fallback, "inheriting")
    return Overrides(
        roles=tuple(_role_override(api, path, row) for row in rows),
        fallback=None if inherits else flag(api, path, fallback, "view"),
    )


def _role_override(api: ServerApi, path: str, row: Any) -> tuple[int, str, bool]:
    if not isinstance(row, dict):
        api.malformed(path, "lists a permission that is not an object")
    role = row.get("role")
    name = text(api, path, role, "display_name") if isinstance(role, dict) else ""
    return whole(api, path, row, "role_id"), name, flag(api, path, row, "view")


def read_roles(api: ServerApi, configured: Mapping[str, tuple[str, ...]]) -> list[Role]:
    """The configured roles, by name or number, with what they see by default.

    An account that may not list roles still tells by overrides; then nothing is granted on pages
    without any.

    Raises:
        IncompleteEnumeration, SourceUnavailable: the roles cannot be read, or there is none or
            more than one of a configured name.
    """
    try:
        rows = _role_rows(api)
    except (NotThere, Refused):
        return [
            Role(id=int(key) if key.isdecimal() else -1, name=key, tags=tags)
            for key, tags in configured.items()
        ]
    roles = []
    for key, tags in configured.items():
        row = _row_of(api, rows, key)
        administrators = row.get("system_name") == ADMINISTRATORS
        default = not administrators and _sees_by_default(api, row["id"])
        roles.append(Role(row["id"], row["display_name"], tags, administrators, default))
    return roles


def _role_rows(api: ServerApi) -> list[Row]:
    """Every role. This listing knows no id to go on from, so it is read in one piece."""
    path = "/api/roles"
    value = api.json(path, query={"count": _ROLES_AT_ONCE})
    rows, total = page_of(api, path, value)
    while len(rows) < total:
        query = {"count": _ROLES_AT_ONCE, "offset": len(rows)}
        more, _ = page_of(api, path, ask(api, path, query))
        if not more:
            api.malformed(path, f"lists {len(rows)} roles and says that there are {total}")
        rows += more
    ids = {whole(api, path, row, "id") for row in rows}
    if len(ids) != len(rows) or len(rows) != total:
        api.malformed(path, "changed while it was read")
    for row in rows:
        text(api, path, row, "display_name")
    return rows


def _row_of(api: ServerApi, rows: Sequence[Row], key: str) -> Row:
    by_name = [row for row in rows if row["display_name"] == key]
    by_number = [row for row in rows if key.isdecimal() and row["id"] == int(key)]
    found = by_name or by_number
    if len(found) == 1:
        return found[0]
    where = f"source {api.source}: roles: {api.address} has"
    if found:
        numbers = " or ".join(str(row["id"]) for row in found)
        raise SourceUnavailable(f"{where} {len(found)} roles named {key!r}; write {numbers}")
    names = ", ".join(repr(row["display_name"]) for row in rows[:20])
    raise SourceUnavailable(f"{where} no role {key!r}, only {names}; mend the configuration")


def _sees_by_default(api: ServerApi, role_id: int) -> bool:
    path = f"/api/roles/{role_id}"
    value = ask(api, path)
    permissions = value.get("permissions") if isinstance(value, dict) else None
    if not isinstance(permissions, list) or value.get("id") != role_id:
        api.malformed(path, "answered JSON that is not the role asked for")
    return VIEW_ALL_PAGES in permissions

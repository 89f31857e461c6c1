"""Who may read a file of a Nextcloud, from its shares and access lists, as ACL tags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from rag_assets.errors import SourceUnavailable
from rag_assets.models import PUBLIC
from rag_assets.sources.nextcloud.webdav import Row
from rag_assets.sources.server_api import NotThere, Refused

if TYPE_CHECKING:
    from rag_assets.sources.server_api import ServerApi

SHARES_PATH: Final = "/ocs/v2.php/apps/files_sharing/api/v1/shares"
SHARE_QUERIES: Final = ({"reshares": "true"}, {"shared_with_me": "true"})
"""What the account shared or owns and others shared on; and what was shared with it."""

_NEXTCLOUD: Final = "{http://nextcloud.org/ns}"
ACL_LIST: Final = f"{_NEXTCLOUD}acl-list"
INHERITED_ACL_LIST: Final = f"{_NEXTCLOUD}inherited-acl-list"
ACL_ENABLED: Final = f"{_NEXTCLOUD}acl-enabled"
ACL_CAN_MANAGE: Final = f"{_NEXTCLOUD}acl-can-manage"
ACL_BASE: Final = f"{_NEXTCLOUD}acl-base-permission"
ACL_PROPERTIES: Final = (ACL_LIST, ACL_ENABLED, ACL_CAN_MANAGE, ACL_BASE)
"""What a listing asks for beside, to know the access rules of group folders."""

NodeAcl = tuple[tuple[str, bool], ...]
"""For whom reading is allowed or denied: ``user:<id>``, ``group:<id>``, ``circle:<id>``."""
EVERYONE: Final = "*"
"""Whom the base permission of a group folder speaks of."""
UNREADABLE: Final = "?"
"""Stands in a ``NodeAcl`` whose rules could not be read."""

_NOT_READ: Final[NodeAcl] = ((UNREADABLE, False),)
_READ: Final = 1
"""The bit of reading in Nextcloud's permissions (``OCP\\Constants::PERMISSION_READ``)."""
_USER, _GROUP, _LINK = 0, 1, 3
"""``share_type`` of the shares that can be mapped."""


@dataclass(frozen=True, slots=True)
class Shares:
    """The tags that shares grant, by what is shared."""

    by_fileid: Mapping[str, frozenset[str]]
    by_path: Mapping[str, frozenset[str]]
    """Path from the files of the account, without ``/`` at its ends."""

    def on(self, path: str, fileid: str) -> frozenset[str]:
        """The tags of the shares of exactly this file or folder."""
        if fileid:
            return self.by_fileid.get(fileid, frozenset())
        return self.by_path.get(path, frozenset())

    def above(self, path: str) -> frozenset[str]:
        """The tags of the shares of the folders above, which were not listed."""
        found: set[str] = set()
        while path:
            path = path.rpartition("/")[0]
            found |= self.by_path.get(path, frozenset())
        return frozenset(found)


NO_SHARES: Final = Shares({}, {})


def read_shares(api: ServerApi, tags_of: Mapping[str, Iterable[str]], now: datetime) -> Shares:
    """All shares that the account knows of, as the tags of those they are with.

    Two requests. Shares with those that ``tags_of`` does not name, that do not allow reading, that
    have expired, and links with a password grant nothing.

    Raises:
        IncompleteEnumeration: the answer is not what the OCS Share API documents.
        SourceUnavailable: there is no answer, or the account may not have one.
    """
    by_fileid: dict[str, set[str]] = {}
    by_path: dict[str, set[str]] = {}
    for query in SHARE_QUERIES:
        for share in _shares(api, {**query, "format": "json"}):
            if (principal := _reader(share, now)) is None:
                continue
            tags = set(tags_of.get(principal, ()))
            fileid, path = share.get("file_source"), share.get("path")
            if not isinstance(path, str) or not isinstance(fileid, (int, str)):
                api.malformed(SHARES_PATH, "lists a share without path and file_source")
            by_fileid.setdefault(str(fileid), set()).update(tags)
            by_path.setdefault(path.strip("/"), set()).update(tags)
    return Shares(
        {fileid: frozenset(tags) for fileid, tags in by_fileid.items()},
        {path: frozenset(tags) for path, tags in by_path.items()},
    )


def acl_of(row: Row, *, inherited: bool = False) -> NodeAcl:
    """The access rules that a row shows: its own and, when ``inherited``, of the folders above."""
    asked = {*ACL_PROPERTIES, INHERITED_ACL_LIST} if inherited else {*ACL_PROPERTIES}
    if asked & row.refused:
        return _NOT_READ
    if ACL_ENABLED in row.properties:
        if not _is_true(row.text(ACL_ENABLED)):
            return ()
        # Who may not manage the rules is only shown those that concern himself.
        if ACL_CAN_MANAGE in row.properties and not _is_true(row.text(ACL_CAN_MANAGE)):
            return _NOT_READ
    rules: dict[str, bool] = {}
    try:
        if base := row.text(ACL_BASE):
            rules[EVERYONE] = bool(int(base) & _READ)
        for name in (INHERITED_ACL_LIST, ACL_LIST) if inherited else (ACL_LIST,):
            rules.update(_rules(row, name))
    except ValueError:
        return _NOT_READ
    if rules.get(EVERYONE):  # the usual case, and then it says nothing
        del rules[EVERYONE]
    return tuple(sorted(rules.items()))


def combined(above: NodeAcl, own: NodeAcl) -> NodeAcl:
    """The rules that hold for an entry: its own come before those of the folders above."""
    return tuple(sorted({**dict(above), **dict(own)}.items())) if own else above


def narrowed(
    tags: Iterable[str], acl: NodeAcl, tags_of: Mapping[str, Sequence[str]]
) -> tuple[str, ...]:
    """What remains of ``tags`` under access rules; they only ever take away.

    Nobody when the rules could not be read, or deny somebody whose tags are not known. Where
    somebody may not read, what is left is not ``public``.
    """
    rules = dict(acl)
    if UNREADABLE in rules:
        return ()
    kept = set(tags)
    if EVERYONE in rules:
        allowed = [tags_of.get(principal, ()) for principal, may in acl if may]
        kept &= {tag for granted in allowed for tag in granted}
    denied = [principal for principal, may in acl if not may and principal != EVERYONE]
    if any(principal not in tags_of for principal in denied):
        return ()
    for principal in denied:
        kept -= {*tags_of[principal], PUBLIC}
    return tuple(sorted(kept))


def _shares(api: ServerApi, query: Mapping[str, str]) -> list[Mapping[str, Any]]:
    try:
        answer = api.json(SHARES_PATH, query=query)
    except (NotThere, Refused) as exc:
        raise SourceUnavailable(
            f"{exc}; without its shares nobody knows who may read what, and nothing was removed. "
            "Let this account use sharing, or take shares out of the settings"
        ) from exc
    ocs = answer.get("ocs") if isinstance(answer, dict) else None
    meta = ocs.get("meta") if isinstance(ocs, dict) else None
    data = ocs.get("data") if isinstance(ocs, dict) else None
    if not isinstance(meta, dict) or meta.get("status") != "ok" or not isinstance(data, list):
        api.malformed(SHARES_PATH, "answered no list of shares in the envelope of OCS")
    if not all(isinstance(share, dict) for share in data):
        api.malformed(SHARES_PATH, "lists what is no share")
    return data


def _reader(share: Mapping[str, Any], now: datetime) -> str | None:
    """Whom a share lets read: ``user:<id>``, ``group:<id>``, ``link``; None for nobody here."""
    try:
        kind, permissions = int(share["share_type"]), int(share["permissions"])
    except (KeyError, TypeError, ValueError):
        return None
    if not permissions & _READ or _has_expired(share.get("expiration"), now):
        return None
    if kind == _LINK:
        # Older servers give the password's hash as share_with.
        return None if share.get("password") or share.get("share_with") else "link"
    reader = share.get("share_with")
    if kind not in (_USER, _GROUP) or not isinstance(reader, str) or not reader:
        return None
    return f"user:{reader}" if kind == _USER else f"group:{reader}"


def _has_expired(expiration: object, now: datetime) -> bool:
    """Whether the day (``2026-03-01 00:00:00``) has come; what cannot be read has expired."""
    if expiration is None:
        return False
    try:
        day = datetime.strptime(str(expiration)[:10], "%Y-%m-%d")
    except ValueError:
        return True
    return day.replace(tzinfo=timezone.utc) <= now


def _rules(row: Row, name: str) -> Iterable[tuple[str, bool]]:
    """Each principal of an access list whom it allows or denies reading.

    Raises:
        ValueError: a rule cannot be read.
    """
    for rule in row.properties.get(name, ()):
        parts = {part.tag.removeprefix(_NEXTCLOUD): (part.text or "").strip() for part in rule}
        kind, who = parts.get("acl-mapping-type"), parts.get("acl-mapping-id")
        if not kind or not who:
            raise ValueError("a rule without a principal")
        if int(parts.get("acl-mask", "")) & _READ:
            yield f"{kind}:{who}", bool(int(parts.get("acl-permissions", "")) & _READ)


def _is_true(text: str) -> bool:
    return text.lower() in ("1", "true")

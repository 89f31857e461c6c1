"""Browser sessions of administrators: an opaque cookie, and what the server keeps under it."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rag_assets.service.rank_comparison import SearchForm

LIFETIME_SECONDS: Final = 8 * 3600.0
"""A working day; then the token must be typed again."""
IDLE_SECONDS: Final = 3600.0
MOST_SESSIONS: Final = 1000
"""Kept at once; the oldest is forgotten first."""
KEPT_SEARCHES: Final = 20
"""Of one session; they let a result page be reloaded without a question in its address."""


@dataclass(slots=True)
class Session:
    """One signed-in browser. The token itself is not kept, only its name and hash."""

    token_name: str
    token_hash: str
    started_at: float
    used_at: float
    form_token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    """Stands in every form of this session, so that no other site can send one."""
    searches: OrderedDict[str, SearchForm] = field(default_factory=OrderedDict)

    def keep_search(self, search: SearchForm) -> str:
        """Remember a search; the name it is kept under, which says nothing of it."""
        name = secrets.token_urlsafe(12)
        self.searches[name] = search
        while len(self.searches) > KEPT_SEARCHES:
            self.searches.popitem(last=False)
        return name

    def sent_by(self, form_token: str) -> bool:
        """Whether a form carries this session's token."""
        return hmac.compare_digest(self.form_token.encode(), form_token.encode("utf-8", "replace"))


class Sessions:
    """All sessions of one process, in memory: a restart signs everybody out. Thread-safe."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._lock = threading.Lock()
        self._key = secrets.token_bytes(32)

    def start(self, token_name: str, token_hash: str) -> tuple[str, Session]:
        """A new session and the id for its cookie; the id is kept only as a hash."""
        identifier = secrets.token_urlsafe(32)
        now = self._clock()
        session = Session(token_name, token_hash, now, now)
        with self._lock:
            self._sessions[_hash(identifier)] = session
            while len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
        return identifier, session

    def find(self, identifier: str | None) -> Session | None:
        """The session of a cookie, None when there is none or it is over."""
        if not identifier:
            return None
        name = _hash(identifier)
        with self._lock:
            session = self._sessions.get(name)
            if session is None:
                return None
            now = self._clock()
            if now - session.started_at > LIFETIME_SECONDS or now - session.used_at > IDLE_SECONDS:
                del self._sessions[name]
                return None
            session.used_at = now
            return session

    def end(self, identifier: str | None) -> None:
        """Forget a session and its searches."""
        with self._lock:
            self._sessions.pop(_hash(identifier or ""), None)

    def login_form_token(self, nonce: str) -> str:
        """What the login form carries for the browser whose cookie is ``nonce``."""
        return hmac.new(self._key, nonce.encode("utf-8", "replace"), "sha256").hexdigest()

    def login_form_is_ours(self, nonce: str | None, form_token: str) -> bool:
        """Whether a login form was made by this process for that browser."""
        expected = self.login_form_token(nonce or "").encode()
        return bool(nonce) and hmac.compare_digest(expected, form_token.encode("utf-8", "replace"))


def _hash(identifier: str) -> str:
    return hashlib.sha256(identifier.encode("utf-8", "replace")).hexdigest()

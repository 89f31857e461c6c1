"""Bearer tokens: a file of names, hashes and ACL tags; the service reads it, the command writes."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from rag_assets.acl import EVERYTHING, AclTags
from rag_assets.errors import ConfigurationError

FILE_NAME: Final = "tokens.json"
PREFIX: Final = "rag_"
"""Begins every token, so that scanners for leaked secrets can tell what they found."""
SECRET_BYTES: Final = 32
LONGEST_TOKEN: Final = 256
"""Characters of an Authorization value worth hashing; ours are 47 long."""
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}\Z")
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Token:
    """One token as it is kept: everything but the secret."""

    name: str
    hash: str
    """sha256 (hex) of the whole token, prefix included."""
    acl_tags: tuple[str, ...]
    """Sorted, without duplicates."""
    everything: bool
    """Sees every document, tagged or not; ``acl_tags`` is empty then."""
    admin: bool
    created_at: str
    """ISO 8601, UTC, whole seconds."""

    @property
    def visible(self) -> AclTags:
        """What a search by this token is given as ``acl_tags``."""
        return EVERYTHING if self.everything else self.acl_tags


def hash_of(token: str) -> str:
    """The hash under which a token is kept.

    A token is 256 random bits: it cannot be guessed or found in a list, so the slow hashes made
    for passwords would add nothing but a cost for every request.
    """
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class TokenStore:
    """The tokens of one data folder, in ``tokens.json`` (mode 0600, replaced atomically).

    ``find`` reads the file again whenever it changed, so a removed token is refused at once by a
    running service. Thread-safe; several processes may write.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        self._lock = threading.Lock()
        self._read_as: tuple[int, ...] | None = None
        self._tokens: tuple[Token, ...] = ()

    def find(self, secret: str) -> Token | None:
        """The token with this secret, None when there is none.

        Raises:
            ConfigurationError: the file is there and cannot be read: nobody is let in.
        """
        if len(secret) > LONGEST_TOKEN:
            return None
        digest = hash_of(secret)
        found = None
        for token in self.all():  # all of them, so that the time tells nothing of the place
            if hmac.compare_digest(token.hash, digest):
                found = token
        return found

    def all(self) -> tuple[Token, ...]:
        """Every token, by name.

        Raises:
            ConfigurationError: the file is there and cannot be read.
        """
        try:
            stat = os.stat(self.path)
        except FileNotFoundError:
            return ()
        except OSError as exc:
            raise ConfigurationError(f"{self.path}: cannot be read: {exc.strerror}") from exc
        signature = (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
        with self._lock:
            if signature != self._read_as:
                self._tokens = self._read()
                self._read_as = signature
            return self._tokens

    def add(self, name: str, *, acl_tags: Iterable[str], everything: bool, admin: bool) -> str:
        """Make a token; its secret, which is kept nowhere.

        Raises:
            ConfigurationError: the name is taken or not a name, a tag is not a tag, there are no
                tags without ``everything`` or tags beside it, or the file cannot be written.
        """
        tags = _checked_tags(acl_tags)
        if not NAME.match(name):
            raise ConfigurationError(
                f"token name {name!r}: use letters, digits and . _ @ -, 63 characters at most"
            )
        if everything and tags:
            raise ConfigurationError(
                f"token {name}: --everything needs no --acl; give one or the other"
            )
        if not everything and not tags:
            raise ConfigurationError(
                f"token {name}: it would see nothing; add --acl TAG (such as --acl public), or "
                "--everything"
            )
        secret = _new_secret()
        made = Token(name, hash_of(secret), tags, everything, admin, _now())

        def added(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
            if any(token.name == name for token in tokens):
                raise ConfigurationError(
                    f"token {name!r} exists already; `rag-assets token rotate {name}` gives it a "
                    f"new secret, `rag-assets token remove {name}` takes it away"
                )
            return (*tokens, made)

        self._change(added)
        return secret

    def rotate(self, name: str) -> str:
        """Give a token a new secret with the same rights; the old one is refused at once.

        Raises:
            ConfigurationError: there is no such token, or the file cannot be written.
        """
        secret = _new_secret()

        def rotated(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
            self._named(name, tokens)
            return tuple(
                replace(token, hash=hash_of(secret), created_at=_now())
                if token.name == name
                else token
                for token in tokens
            )

        self._change(rotated)
        return secret

    def remove(self, name: str) -> None:
        """Take a token away.

        Raises:
            ConfigurationError: there is no such token, or the file cannot be written.
        """

        def removed(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
            self._named(name, tokens)
            return tuple(token for token in tokens if token.name != name)

        self._change(removed)

    @staticmethod
    def _named(name: str, tokens: tuple[Token, ...]) -> Token:
        for token in tokens:
            if token.name == name:
                return token
        there = ", ".join(token.name for token in tokens) or "none"
        raise ConfigurationError(f"no token is named {name!r}; there are: {there}")

    def _change(self, change: Callable[[tuple[Token, ...]], tuple[Token, ...]]) -> None:
        from filelock import FileLock, Timeout

        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{self.path}.lock", timeout=10):
                self._write(change(self._read()))
        except Timeout:
            raise ConfigurationError(
                f"{self.path}: another command has been writing it for 10 s; try again"
            ) from None
        except OSError as exc:
            raise ConfigurationError(f"{self.path}: cannot be written: {exc.strerror}") from exc

    def _read(self) -> tuple[Token, ...]:
        try:
            value = json.loads(self.path.read_bytes())
            if value["version"] != _FORMAT:
                raise ConfigurationError(
                    f"{self.path}: format {value['version']!r} is not known; it was written by "
                    "another version of rag-assets"
                )
            tokens = [_token_of(row) for row in value["tokens"]]
        except FileNotFoundError:
            return ()
        except OSError as exc:
            raise ConfigurationError(f"{self.path}: cannot be read: {exc.strerror}") from exc
        except (ValueError, KeyError, TypeError, RecursionError) as exc:
            raise ConfigurationError(
                f"{self.path}: not a token file ({type(exc).__name__}); restore it, or delete it "
                "and add the tokens anew"
            ) from exc
        return tuple(sorted(tokens, key=lambda token: token.name))

    def _write(self, tokens: tuple[Token, ...]) -> None:
        rows = [asdict(token) for token in sorted(tokens, key=lambda token: token.name)]
        text = json.dumps({"version": _FORMAT, "tokens": rows}, ensure_ascii=False, indent=2)
        # mkstemp creates the file with mode 0600: it is never readable by others, not even briefly.
        handle, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=f".{FILE_NAME}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise


def _checked_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Sorted tags, by the rule of the configuration's ``acl``."""
    from pydantic import TypeAdapter, ValidationError

    from rag_assets.settings import AclTag

    try:
        checked = TypeAdapter(list[AclTag]).validate_python(list(tags))
    except ValidationError as exc:
        what = exc.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigurationError(f"--acl: {what}") from None
    return tuple(sorted(set(checked)))


def _token_of(row: dict[str, Any]) -> Token:
    tags, flags = row["acl_tags"], (row["everything"], row["admin"])
    texts = (row["name"], row["hash"], row["created_at"], *tags)
    # Exact types: "false" must not let anybody see everything.
    if not isinstance(tags, list) or any(type(text) is not str for text in texts):
        raise TypeError
    if any(type(flag) is not bool for flag in flags) or not row["hash"].isascii():
        raise TypeError
    return Token(row["name"], row["hash"], tuple(tags), *flags, row["created_at"])


def _new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

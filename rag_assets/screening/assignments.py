"""Rules for secrets that are named rather than formatted: "mot de passe : X", ``--password X``.

The label decides how much a value must look like a secret. A password is what a person types, a
key is random; prose, code, variables and samples are neither (``placeholders``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from rag_assets.screening.pattern_files import read_patterns
from rag_assets.screening.placeholders import (
    is_monotonous,
    is_placeholder,
    is_token_placeholder,
    looks_like_password,
    looks_random,
)
from rag_assets.screening.rules import Rule

_UNIT: Final = re.compile(
    rb"^[\s*_]{0,3}(?:caracteres?|characters?|chars?|digits?|chiffres?|jours?|days?|minutes?|mois"
    rb"|months?|secondes?|seconds?|heures?|hours?|times?|fois|lettres?|letters?|bits?|octets?"
    rb"|bytes?|%|euros?|users?|ans)\b",
    re.IGNORECASE,
)


def _password(match: Any) -> bool:
    value = _clean(match)
    if is_placeholder(value):
        return False
    return looks_like_password(value)


def _strong_password(match: Any) -> bool:
    """Without a separator the label may belong to an example (``the password `love123```)."""
    return len(_clean(match)) >= 8 and _password(match)


def _key(match: Any) -> bool:
    value = _clean(match)
    if is_placeholder(value) and not (len(value) >= 24 and _random_token(value)):
        return False
    return _random_token(value)


def _random_token(value: str) -> bool:
    if is_token_placeholder(value) or not looks_random(value):
        return False
    return re.fullmatch(r"[A-Za-z0-9+/=_.~:-]+", value) is not None or len(value) >= 20


def _pin(match: Any) -> bool:
    value: bytes = match[2]
    if _UNIT.match(match.string[match.end() : match.end() + 40]):
        return False
    return not is_monotonous(value.decode("ascii")) and value not in (b"1234", b"12345", b"123456")


def _phrase(match: Any) -> bool:
    """Four words or more, quoted: what passphrase generators make."""
    value: bytes = match[1]
    words = re.split(rb"[ _.-]+", value.strip())
    return (
        len(words) >= 4
        and all(word.isalnum() and len(word) >= 3 for word in words)
        and not is_token_placeholder(value.decode("ascii"))
    )


def _quoted_word(match: Any) -> bool:
    """A single word in quotes after "the password is": a word, but said to be the password."""
    value = match[1].decode("ascii")
    return value.isalnum() and not is_placeholder(value)


def _url_password(match: Any) -> bool:
    value = match[1].decode("ascii")
    return not (
        is_placeholder(value)
        or value.lower()
        in ("pass", "pw", "pwd", "mdp", "port", "key", "secret", "hunter", "p", "b")
        or (len(value) < 6 and value.isalpha())
        or re.fullmatch(r"\d{2,5}(?:/.*)?", value) is not None
    )


def _option(match: Any) -> bool:
    value = match[1].decode("ascii").strip("\"'")
    return not is_placeholder(value) and (
        looks_like_password(value) or looks_random(value, shortest=8)
    )


def _basic_header(match: Any) -> bool:
    value = match[1].decode("ascii")
    return not is_token_placeholder(value) and looks_random(value, shortest=8)


def _clean(match: Any) -> str:
    """The value without what belongs to the sentence or the markup around it."""
    value: bytes = match[2]
    return value.decode("ascii").strip("*_()[]{},;\\").rstrip(".:")


_ACCEPTS: Final[dict[str, Callable[[Any], bool]]] = {
    "authorization-header": _basic_header,
    "command-line-password": _option,
    "credentials-pair": _password,
    "key-assignment": _key,
    "netrc": _option,
    "passphrase": _phrase,
    "password-after-label": _strong_password,
    "password-argument": _password,
    "password-assignment": _password,
    "password-element": _password,
    "password-in-url": _url_password,
    "pin-code": _pin,
    "quoted-password": _quoted_word,
}


def assignment_rules() -> list[Rule]:
    """The rules of ``patterns/assignments.txt``."""
    return [Rule(name, pattern, _ACCEPTS[name]) for name, pattern in read_patterns("assignments")]

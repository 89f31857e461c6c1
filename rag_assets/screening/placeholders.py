"""Tells values that stand for a secret (samples, variables, code, prose) from secrets."""

from __future__ import annotations

import math
import re
from collections import Counter
from itertools import pairwise
from typing import Final

_PLACEHOLDER_PARTS: Final = re.compile(
    r"example|exemple|placeholder|change[-_ ]?(?:me|it|this)|changez|replace|remplac|your|votre"
    r"|dummy|redacted|lorem|not[-_]?(?:a[-_])?real|undefined|xxxx|\bxxx\b"
    r"|\*\*\*|\.\.\.|<|>|\{\{|\$\{|\{%|passwor[dt]|passwd|passphrase|mot[-_]?de[-_]?passe"
    r"|p[a@4][s5$]{2}w[o0]rd|1234567|abcdef|azerty(?:uiop)?$|qwerty"
    r"|^abc123$|^foo|^bar\b|^baz|deadbeef|cafebabe|01234567|98765432|a1b2c3"
)
"""Looked for in the value in lower case."""
_PLACEHOLDER_WORDS: Final = re.compile(
    r"insert|sample|masqu|hidden|foobar|todo|tbd|fake|mock|s[3e]cret|secure|generated|generer"
    r"|random|aleatoire|here|default|string|token|api[-_]?key|credential|testing|test|demo"
    r"|something|whatever"
)
"""Words that stand for a secret where they are most of it; real ones hold them by chance."""
_MOST_OF_IT: Final = 0.6
_STRONG_PARTS: Final = re.compile(
    r"example|exemple|placeholder|change[-_]?me|your|votre|insert|dummy|redacted|xxxx|\*\*\*|\.\.\.|<|>"
    r"|\{\{|\$\{|fake|deadbeef|1234567890|abcdefgh|0123456789|abc123|98765432|not[-_]?(?:a[-_])?real"
    r"|secret[-_]?key"
    r"|eyjzdwiioiixmjm0nty3odkwiiwibmftzsi6ikpvag4grg9l"  # the payload of jwt.io's specimen
)
"""The same for tokens of a known format, whose random letters may spell a short word."""
_WORDS: Final = frozenset(
    """
    admin administrator root guest user username utilisateur login none null nil true
    false yes no oui non required optional obligatoire requis facultatif vide empty str
    int bool bytes text number object any value valeur unknown same idem voir see sha256
    sha512 sha1 md5 hs256 rs256 es256 rs512 hs512 hs384 bcrypt argon2 argon2id pbkdf2
    oauth2 oauth base64 utf-8 utf8 x509 ed25519 rsa2048 aes256 aes-256 aes128 v1 v2 v3
    http2 s3 ec2 k8s ipv4 ipv6 ldap saml jwt basic bearer digest env vault keyring
    prompt stdin file n/a na
    """.split()  # noqa: SIM905 - one quoted string a word would take pages
)
_CODE: Final = re.compile(
    r"""^(?:
      [A-Za-z_][\w.]*\(.*            # a call
    | [A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+[,;)\]]*  # an attribute
    | [A-Za-z_][\w.]*\[.*            # an item or a generic type
    | [$%@&][({]?[A-Za-z_].*         # a variable
    | :[a-z_]+ | --?[a-z].* | \#.* | //.* | \\\w+\b.* | !.* | \| .* | [({\[]+.*
    )$""",
    re.VERBOSE,
)
_SYMBOLS: Final = re.compile(r"[@#$%^&*+~!?=|/\\,;:.§_-]")
# The pairs of letters that make up most of English and French prose; random letters rarely do.
_COMMON_PAIRS: Final = frozenset(
    """
    th he in er an re nd at on nt ha es st en ed to it ou ea hi is or ti as te et ng of
    al de se le sa si ar ve ra ld ur me ne ma ce co la il ll ee us ss ai ui qu li ec ie
    no pa ch tr ro pe ge po io lo so id be ta ri ic el ct om un ir em pr ac ut su ho di
    ns tt da do mi mo na ni pl oo ow sh ke ck ki ls mp nc ot ul up wo wi we wa ca ci cl
    cr dr fi fo fr ga gi gr gu im iv iz ks ly mb mm nn ob og op os pi pp rd rm rn rr rs
    rt ry sc sp ts tu ty ue uc ub va vi ag ab ad am ap av ay ba bi bl bo br bu eb ef eg
    ei ep ev ew ex ey fa fe ff fl fu
    """.split()  # noqa: SIM905 - one quoted string a word would take pages
)


def is_placeholder(value: str) -> bool:
    """True for what documentation writes in the place of a password or key."""
    lower = value.lower()
    spelled = sum(len(match[0]) for match in _PLACEHOLDER_WORDS.finditer(lower))
    return (
        _PLACEHOLDER_PARTS.search(lower) is not None
        or spelled >= _MOST_OF_IT * sum(c.isalnum() for c in value) > 0
        or lower in _WORDS
        or _CODE.match(value) is not None
        or is_monotonous(value)
    )


def is_token_placeholder(value: str) -> bool:
    """The same for a token of a known format, which is too long to be a word by chance."""
    return _STRONG_PARTS.search(value.lower()) is not None or is_monotonous(value)


def is_monotonous(value: str) -> bool:
    """Few different characters for its length: ``xxxxxxxx``, ``0000-0000``."""
    return len(set(value)) <= min(3, len(value) // 2) or (len(value) >= 20 and len(set(value)) <= 6)


def entropy(value: str) -> float:
    """Shannon entropy in bits per character."""
    size = len(value)
    return -sum(n / size * math.log2(n / size) for n in Counter(value).values())


def looks_random(value: str, *, shortest: int = 12) -> bool:
    """Letters and digits mixed as no word or identifier is."""
    if len(value) < shortest or not any(c.isalpha() for c in value):
        return False
    digits = sum(c.isdigit() for c in value)
    if digits == 0:
        return looks_mixed(value) and entropy(value) >= 3.2
    return entropy(value) >= (2.9 if len(value) < 20 else 3.1) and not _is_name(value)


def looks_mixed(value: str) -> bool:
    """Letters only, and not those of words: ``xKjLmPqRt``, ``fjwkqhgzx``."""
    if not value.isalpha() or len(value) < 8:
        return False
    lower = value.lower()
    pairs = [lower[place : place + 2] in _COMMON_PAIRS for place in range(len(lower) - 1)]
    share = sum(pairs) / len(pairs)
    turns = sum(a.islower() and b.isupper() for a, b in pairwise(value))
    return share < 0.5 if turns >= 2 else share < 0.25 and len(value) >= 9


def looks_like_password(value: str) -> bool:
    """What a person or a generator would type as a password, and no prose or code."""
    letters = sum(c.isalpha() for c in value)
    digits = sum(c.isdigit() for c in value)
    inner = value.rstrip("!?.,;:")
    symbols = len(_SYMBOLS.findall(inner))
    if len(value) < 5 or letters == 0:
        return False
    if "@" in value[1:-1] and re.search(r"@[\w-]+\.[a-z]{2,}$", value):
        return False  # an e-mail address
    if digits:
        return not _is_name(value) or re.fullmatch(r"[A-Za-z]{4,}[_-]\d{3,}", value) is not None
    if re.search(r"[@#$%^&*+~=§]|[!?]\w", inner):
        return letters >= 4 and symbols <= letters
    return looks_mixed(value) and len(value) >= 8


def _is_name(value: str) -> bool:
    """Words joined by dots, dashes or underscores, the digits being a version or a count."""
    parts = re.split(r"[-_./:]", value)
    if len(parts) >= 2:
        return all(
            re.fullmatch(r"[a-z]*|[A-Z]*|[A-Z][a-z]+|v?\d{1,4}|[a-z]+\d{1,2}", p) for p in parts
        )
    return (
        re.fullmatch(r"[a-z]{1,3}\d{1,3}|v\d[\d.]*|\d+[a-z]{1,3}|\d{1,4}(?:px|em|ms|kb|mb)", value)
        is not None
    )

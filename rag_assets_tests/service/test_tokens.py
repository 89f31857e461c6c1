"""Bearer tokens: kept hashed, taken at once, changed by several at a time."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from pathlib import Path

import pytest

from rag_assets.acl import EVERYTHING
from rag_assets.errors import ConfigurationError
from rag_assets.service.tokens import TokenStore


def add(store: TokenStore, name: str = "wiki", *tags: str, **flags: bool) -> str:
    """A token with the usual rights."""
    rights = {"everything": False, "admin": False, **flags}
    return store.add(name, acl_tags=tags or ("public",), **rights)


def test_a_token_is_found_by_its_secret_and_kept_as_a_hash(tmp_path: Path):
    """The file could be read and no token known."""
    store = TokenStore(tmp_path)
    secret = add(store, "wiki", "service:hr", "public", "public", admin=True)
    assert re.fullmatch(r"rag_[A-Za-z0-9_-]{43}", secret)
    found = store.find(secret)
    assert found is not None
    assert (found.name, found.acl_tags, found.admin) == ("wiki", ("public", "service:hr"), True)
    assert found.visible == ("public", "service:hr")
    assert secret not in store.path.read_text()
    assert secret[4:] not in store.path.read_text()


def test_everything_is_a_right_of_its_own(tmp_path: Path):
    """Not a tag, and not what no tags mean."""
    store = TokenStore(tmp_path)
    secret = store.add("all", acl_tags=(), everything=True, admin=False)
    found = store.find(secret)
    assert found is not None
    assert found.visible is EVERYTHING


def test_only_the_owner_can_read_the_file(tmp_path: Path):
    """Mode 0600, also after a change, and nothing is left beside it."""
    os.umask(os.umask(0))
    store = TokenStore(tmp_path / "data")
    for name in ("a", "b"):
        add(store, name)
        assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert {file.name for file in store.path.parent.iterdir()} <= {
        "tokens.json",
        "tokens.json.lock",
    }


@pytest.mark.parametrize(
    "wrong",
    ["", " ", "rag_", "rag_x", "wiki", "\x00", "é", "\ud800", "a" * 100_000, "Bearer", "*", "null"],
)
def test_no_other_secret_is_taken(tmp_path: Path, wrong):
    """Prefixes, cases, hashes, huge and odd texts."""
    store = TokenStore(tmp_path)
    secret = add(store)
    digest = json.loads(store.path.read_text())["tokens"][0]["hash"]
    for other in (wrong, digest, secret[:-1], secret + "a", secret.swapcase(), secret + wrong):
        assert other == secret or store.find(other) is None


def test_removal_and_rotation_take_effect_in_another_store(tmp_path: Path):
    """A running service is another process with its own store."""
    service, command = TokenStore(tmp_path), TokenStore(tmp_path)
    first = add(command)
    assert service.find(first)
    second = command.rotate("wiki")
    assert service.find(first) is None
    rotated = service.find(second)
    assert rotated is not None
    assert rotated.acl_tags == ("public",)
    command.remove("wiki")
    assert service.find(second) is None
    assert service.all() == ()


@pytest.mark.parametrize(
    ("name", "rights", "message"),
    [
        ("wiki", {"acl_tags": ["public"]}, "exists already"),
        ("", {"acl_tags": ["public"]}, "token name ''"),
        ("a/b", {"acl_tags": ["public"]}, "token name 'a/b'"),
        ("x" * 64, {"acl_tags": ["public"]}, "63 characters"),
        ("new", {}, "it would see nothing; add --acl TAG"),
        ("new", {"acl_tags": [""]}, "--acl: '' is not an ACL tag"),
        ("new", {"acl_tags": ["a b"]}, "--acl: 'a b' is not an ACL tag"),
        ("new", {"acl_tags": ["pub%"]}, "not an ACL tag"),
        ("new", {"acl_tags": ["public"], "everything": True}, "one or the other"),
    ],
)
def test_a_wrong_token_is_refused_with_the_reason(tmp_path: Path, name, rights, message):
    """And nothing is written."""
    store = TokenStore(tmp_path)
    add(store)
    before = store.path.read_bytes()
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        store.add(name, **{"acl_tags": [], "everything": False, "admin": False, **rights})
    assert store.path.read_bytes() == before


def test_an_unknown_name_is_said_with_those_there_are(tmp_path: Path):
    """For remove and rotate."""
    store = TokenStore(tmp_path)
    for change in (store.remove, store.rotate):
        with pytest.raises(ConfigurationError, match="'x'; there are: none"):
            change("x")
    add(store)
    with pytest.raises(ConfigurationError, match="there are: wiki"):
        store.remove("Wiki")


TAMPERED = {
    "everything": "false", "admin": 1, "acl_tags": "public", "hash": None, "name": 3,
}  # fmt: skip


@pytest.mark.parametrize(("key", "value"), TAMPERED.items())
def test_a_file_with_a_wrong_type_lets_nobody_in(tmp_path: Path, key, value):
    """The text "false" is not a no."""
    store = TokenStore(tmp_path)
    secret = add(store)
    held = json.loads(store.path.read_text())
    held["tokens"][0][key] = value
    store.path.write_text(json.dumps(held))
    with pytest.raises(ConfigurationError, match="not a token file"):
        store.find(secret)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", '{"version": 1}', '{"version": 2, "tokens": []}', "[" * 9999]
)
def test_a_broken_file_lets_nobody_in_and_is_not_overwritten(tmp_path: Path, text):
    """Reading and adding say so."""
    store = TokenStore(tmp_path)
    store.path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"tokens\.json"):
        store.find("rag_x")
    with pytest.raises(ConfigurationError, match=r"tokens\.json"):
        add(store)
    assert store.path.read_text() == text


def test_tokens_added_at_once_are_all_kept(tmp_path: Path):
    """Two commands must not overwrite each other's."""
    names = [f"t{i}" for i in range(16)]
    threads = [threading.Thread(target=add, args=(TokenStore(tmp_path), name)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {token.name for token in TokenStore(tmp_path).all()} == set(names)

"""Faults inside sound HTTP: what a server may answer in JSON, over pages and in XML."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from rag_assets_tests.fault_proxy import Answer, Exchange, NotApplicable

Behaviour = Callable[[Exchange], None]

MANY_ELEMENTS: Final = 1_000_000
DEEP: Final = 100_000
DETOUR: Final = "encore/"
"""The folder that an endless tree has in each of its folders."""


# ---------------------------------------------------------------- JSON


def rewritten(change: Callable[[Any], Any]) -> Behaviour:
    """The real answer with its JSON value changed."""

    def behave(exchange: Exchange) -> None:
        real = exchange.forward()
        _respond_json(exchange, real, change(_json_of(real)))

    return behave


def _respond_json(exchange: Exchange, real: Answer, value: Any) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    exchange.respond(Answer(real.status, real.headers, text.encode("utf-8", "surrogatepass")))


def _json_of(real: Answer) -> Any:
    """Raises NotApplicable: the answer is not JSON."""
    if real.status != 200 or "json" not in real.header("content-type"):
        raise NotApplicable
    try:
        return json.loads(real.body)
    except ValueError:
        raise NotApplicable from None


def items_of(value: Any) -> list[Any]:
    """The list in an answer: the whole of it, or its first list of objects."""
    found = [value, *value.values()] if isinstance(value, Mapping) else [value]
    for part in found:
        if isinstance(part, list) and part and isinstance(part[0], Mapping):
            return part
    raise NotApplicable


def with_items(value: Any, items: list[Any]) -> Any:
    old = items_of(value)
    if value is old:
        return items
    return {key: items if part is old else part for key, part in value.items()}


def written(text: str) -> Behaviour:
    """This text in place of a JSON value."""
    return rewritten(lambda value: text)


def other_shape(value: Any) -> Any:
    return "[]" if isinstance(value, Mapping) else "{}"


def leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: leaves(part, change) for key, part in value.items()}
    if isinstance(value, list):
        return [leaves(part, change) for part in value]
    return change(value)


def numbers_as(literal: str) -> Behaviour:
    def change(value: Any) -> str:
        text, found = re.subn(r"(?<=[:\[,] )-?\d+(?=[,}\]])", literal, json.dumps(value))
        if not found:
            raise NotApplicable
        return text

    return rewritten(change)


def bytes_not_utf8(exchange: Exchange) -> None:
    real = exchange.forward()
    if "json" not in real.header("content-type") and not _is_xml(real):
        raise NotApplicable
    cut = real.body.find(b'"') + 1 or real.body.find(b">") + 1
    exchange.respond(Answer(real.status, real.headers, real.body[:cut] + b"\xe9\xff"
                            + real.body[cut:]))  # fmt: skip


def claims_utf16(exchange: Exchange) -> None:
    real = exchange.forward()
    kind = real.header("content-type").partition(";")[0]
    exchange.respond(real.with_header("Content-Type", f"{kind}; charset=utf-16"))


# ---------------------------------------------------------------- pages of a listing


def _page_key(exchange: Exchange) -> str:
    return urlsplit(exchange.request.target).path


def _earlier_items(exchange: Exchange, items: Iterable[Any]) -> list[Any]:
    """The items of the page before this one, for which this one's are kept."""
    key = "items " + _page_key(exchange)
    before = exchange.rule.memory.get(key)
    exchange.rule.memory[key] = list(items)
    return before if isinstance(before, list) else []


def repeat_last_item(exchange: Exchange) -> None:
    """As if something had been inserted before: a page begins with the end of the last one."""
    real = exchange.forward()
    value = _json_of(real)
    items = items_of(value)
    before = _earlier_items(exchange, items)
    if not before:
        raise NotApplicable
    _respond_json(exchange, real, with_items(value, [before[-1], *items]))


def skip_first_item(exchange: Exchange) -> None:
    """As if something had been deleted before: a page begins one item too late."""
    real = exchange.forward()
    value = _json_of(real)
    items = items_of(value)
    if not _earlier_items(exchange, items):
        raise NotApplicable
    changed = with_items(value, items[1:])
    total = real.header("x-total")
    if isinstance(changed, dict) and isinstance(changed.get("total"), int):
        changed["total"] -= 1
    elif total.isdigit():
        real = real.with_header("X-Total", str(int(total) - 1))
    else:
        raise NotApplicable  # keyset pages do not shift
    _respond_json(exchange, real, changed)


def same_page_for_ever(exchange: Exchange) -> None:
    """Whatever page is asked for, the first one comes, with a next one behind it."""
    first = exchange.rule.memory.get(_page_key(exchange))
    if not isinstance(first, Answer):
        first = exchange.forward()
        value = _json_of(first)
        items_of(value)
        if isinstance(value, dict) and isinstance(value.get("total"), int):
            value["total"] += 10**6
        first = Answer(first.status, first.headers, json.dumps(value).encode())
        exchange.rule.memory[_page_key(exchange)] = first
    query = urlsplit(exchange.request.target).query
    page = int((re.search(r"(?:^|&)page=(\d+)", query) or [0, 1])[1])
    again = f'<{exchange.proxy.origin}{exchange.request.target}>; rel="next"'
    exchange.respond(first.with_header("Link", again).with_header("X-Next-Page", str(page + 1)))


def total_that_grows(exchange: Exchange) -> None:
    real = exchange.forward()
    value = _json_of(real)
    if not isinstance(value, dict) or not isinstance(value.get("total"), int):
        raise NotApplicable
    asked = exchange.rule.fired
    _respond_json(exchange, real, {**value, "total": value["total"] + 500 * asked})


def endless_tree(exchange: Exchange) -> None:
    """Each folder holds another one like itself (WebDAV)."""
    if exchange.request.method != "PROPFIND":
        raise NotApplicable
    asked = exchange.request.target
    real = exchange.forward(asked.replace(DETOUR, ""))
    if real.status != 207:
        raise NotApplicable
    text = real.body.decode("utf-8", "replace")
    base = asked if asked.endswith("/") else asked + "/"
    text = _moved(text, base.replace(DETOUR, ""), base)
    folder = (
        f'<i:response xmlns:i="DAV:"><i:href>{base}{DETOUR}</i:href><i:propstat><i:prop>'
        f"<i:resourcetype><i:collection/></i:resourcetype><i:getetag>&quot;{len(base)}&quot;"
        "</i:getetag></i:prop><i:status>HTTP/1.1 200 OK</i:status></i:propstat></i:response>"
    )
    exchange.respond(Answer(207, real.headers, _before_end(text.encode(), folder.encode())))


def _moved(text: str, old: str, new: str) -> str:
    """Addresses below one folder, as if they were below another; either spelling of percents."""

    def move(found: re.Match[str]) -> str:
        path = urlsplit(found[2]).path
        if not unquote(path).startswith(unquote(old)):
            return found[0]
        return found[1] + new + "/".join(path.split("/")[old.count("/") :]) + found[3]

    return re.sub(r"(<(?:\w+:)?href>)([^<]+)(</)", move, text)


# ---------------------------------------------------------------- XML


def _is_xml(real: Answer) -> bool:
    return "xml" in real.header("content-type") and real.body.lstrip().startswith(b"<")


def xml(change: Callable[[bytes, Exchange], bytes]) -> Behaviour:
    """The real answer with its XML changed."""

    def behave(exchange: Exchange) -> None:
        real = exchange.forward()
        if not _is_xml(real):
            raise NotApplicable
        exchange.respond(Answer(real.status, real.headers, change(real.body, exchange)))

    return behave


def _with_declarations(body: bytes, declarations: bytes) -> bytes:
    """The document under a DTD of its own."""
    prologue = re.match(rb"\s*(<\?xml[^>]*\?>)?\s*", body)
    at = prologue.end() if prologue else 0
    root = re.match(rb"<([\w:.-]+)", body[at:])
    name = root[1] if root else b"x"
    return body[:at] + b"<!DOCTYPE " + name + b" [" + declarations + b"]>" + body[at:]


def _before_end(body: bytes, inserted: bytes) -> bytes:
    """Something more as the last child of the root."""
    end = body.rindex(b"</")
    return body[:end] + inserted + body[end:]


def laughs(body: bytes, exchange: Exchange) -> bytes:
    levels = [b'<!ENTITY l0 "ha ha ha ">']
    for level in range(1, 11):
        levels.append(b'<!ENTITY l%d "%s">' % (level, b"&l%d;" % (level - 1) * 10))
    return _before_end(_with_declarations(body, b"".join(levels)), b"<x>&l10;</x>")


def quadratic(body: bytes, exchange: Exchange) -> bytes:
    declared = b'<!ENTITY big "' + b"a" * 100_000 + b'">'
    return _before_end(_with_declarations(body, declared), b"<x>" + b"&big;" * 50_000 + b"</x>")


def external(address: str | None) -> Behaviour:
    """An entity from elsewhere; None: from the canary."""

    def change(body: bytes, exchange: Exchange) -> bytes:
        where = address or (exchange.proxy.canary.origin if exchange.proxy.canary else "http://x/")
        declared = f'<!ENTITY taken SYSTEM "{where}">'.encode()
        return _before_end(_with_declarations(body, declared), b"<x>&taken;</x>")

    return xml(change)


def parameter_entity(body: bytes, exchange: Exchange) -> bytes:
    where = exchange.proxy.canary.origin if exchange.proxy.canary else "http://x/"
    return _with_declarations(body, f'<!ENTITY % p SYSTEM "{where}/x.dtd"> %p;'.encode())


def harmless_dtd(body: bytes, exchange: Exchange) -> bytes:
    return _with_declarations(body, b"<!ELEMENT x ANY>")


def many_elements(body: bytes, exchange: Exchange) -> bytes:
    return _before_end(body, b"<x/>" * MANY_ELEMENTS)


def many_attributes(body: bytes, exchange: Exchange) -> bytes:
    return _before_end(body, b"<x " + b" ".join(b'a%d="1"' % n for n in range(100_000)) + b"/>")


def deep_elements(body: bytes, exchange: Exchange) -> bytes:
    return _before_end(body, b"<x>" * DEEP + b"</x>" * DEEP)

"""Every kind of fault that the fault proxy knows, with what a source must make of it."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from functools import cache
from typing import Final, Literal

from rag_assets_tests.fault_answers import (
    DEEP,
    Behaviour,
    bytes_not_utf8,
    claims_utf16,
    deep_elements,
    endless_tree,
    external,
    harmless_dtd,
    items_of,
    laughs,
    leaves,
    many_attributes,
    many_elements,
    numbers_as,
    other_shape,
    parameter_entity,
    quadratic,
    repeat_last_item,
    rewritten,
    same_page_for_ever,
    skip_first_item,
    total_that_grows,
    with_items,
    written,
    xml,
)
from rag_assets_tests.fault_proxy import Answer, Exchange, Fault, NotApplicable

LOGIN_PAGE: Final = (
    b"<!DOCTYPE html>\n<html><head><title>Connexion</title></head><body><h1>Identifiez-vous</h1>"
    b'<form method="post" action="/login"><input name="user"><input type="password"></form>'
    b"</body></html>\n"
)
DRIP_PAUSE_SECONDS: Final = 0.2
"""Below every read time-out of the campaign (0.7 s), so that only a deadline ends a drip."""
BOMB_MEGABYTES: Final = 320
ENDLESS_BLOCK: Final = b" " * 65_536
HUGE_HEADER_BYTES: Final = 1_000_000

_TRANSFER_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


# ---------------------------------------------------------------- connections


def _refuse_from_now_on(exchange: Exchange) -> None:
    exchange.proxy.stop_listening()
    exchange.proxy.drop_connections()


def _reset_after(*first: bytes) -> Behaviour:
    def behave(exchange: Exchange) -> None:
        for piece in first:
            exchange.send(piece, pause_seconds=0.02)
        exchange.reset()

    return behave


def _reset_in_body(exchange: Exchange) -> None:
    answer = exchange.forward()
    half = len(answer.body) // 2
    exchange.send(answer.head(len(answer.body)), answer.body[:half], pause_seconds=0.02)
    exchange.reset()


def _close(exchange: Exchange) -> None:
    exchange.close()


def _silent(exchange: Exchange) -> None:
    exchange.stay_silent()


def _silent_in_body(exchange: Exchange) -> None:
    answer = exchange.forward()
    exchange.send(answer.head(len(answer.body) + 10), answer.body)
    exchange.stay_silent()


def _drip(exchange: Exchange) -> None:
    answer = exchange.forward()
    exchange.send(answer.head(10_000), answer.body)
    _send_for_ever(exchange, b" ", DRIP_PAUSE_SECONDS)


def _drip_headers(exchange: Exchange) -> None:
    exchange.send(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    _send_for_ever(exchange, b"a", DRIP_PAUSE_SECONDS)


def _send_for_ever(exchange: Exchange, block: bytes, pause_seconds: float = 0.0) -> None:
    """Until the client closes the connection."""
    while True:
        exchange.send(block)
        if pause_seconds:
            time.sleep(pause_seconds)


# ---------------------------------------------------------------- HTTP


def _status(status: int, body: bytes = b"", **headers: str) -> Behaviour:
    """An error as servers write it; ``Retry_After="2"`` is written ``Retry-After: 2``."""
    written = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    body = body or json.dumps({"error": {"code": status, "message": f"status {status}"}}).encode()
    answer = Answer(status, (("Content-Type", "application/json"), *written), body)

    def behave(exchange: Exchange) -> None:
        exchange.respond(answer)

    return behave


def _retry_after_date(exchange: Exchange) -> None:
    soon = datetime.now(timezone.utc) + timedelta(seconds=1)
    _status(429, Retry_After=format_datetime(soon, usegmt=True))(exchange)


def _redirect_elsewhere(status: int) -> Behaviour:
    def behave(exchange: Exchange) -> None:
        if exchange.proxy.canary is None:
            raise NotApplicable
        target = exchange.proxy.canary.origin + exchange.request.target
        exchange.respond(Answer(status, (("Location", target),)))

    return behave


def _redirect_to_itself(exchange: Exchange) -> None:
    exchange.respond(Answer(302, (("Location", exchange.request.target),)))


def _redirect_to_login(exchange: Exchange) -> None:
    if exchange.request.target.startswith("/login-page"):
        exchange.respond(Answer(200, (("Content-Type", "text/html"),), LOGIN_PAGE))
    else:
        exchange.respond(Answer(302, (("Location", "/login-page"),)))


def _login_page(content_type: str | None) -> Behaviour:
    """A login page with status 200; None: under the type of the real answer."""

    def behave(exchange: Exchange) -> None:
        real = exchange.forward()
        kind = content_type or real.header("content-type") or "application/json"
        # A server of XML answers 207 to PROPFIND; a portal in front of it knows only 200.
        status = real.status if content_type is None else 200
        exchange.respond(Answer(status, (("Content-Type", kind),), LOGIN_PAGE))

    return behave


def _no_body(status: int | None) -> Behaviour:
    def behave(exchange: Exchange) -> None:
        real = exchange.forward()
        exchange.respond(Answer(status or real.status, real.headers))

    return behave


def _half_with_own_length(status: int | None = None) -> Behaviour:
    """Sound HTTP around half of the body."""

    def behave(exchange: Exchange) -> None:
        real = exchange.forward()
        half = real.body[: len(real.body) // 2]
        exchange.respond(Answer(status or real.status, real.headers, half))

    return behave


def _shorter_than_promised(exchange: Exchange) -> None:
    real = exchange.forward()
    exchange.send(real.head(len(real.body) + 1000), real.body)
    exchange.close()


def _promises_too_little(exchange: Exchange) -> None:
    real = exchange.forward()
    exchange.send(real.head(len(real.body) // 2), real.body)
    exchange.close()


def _cut_chunks(exchange: Exchange) -> None:
    real = exchange.forward()
    half = real.body[: len(real.body) // 2 or 1]
    head = real.with_header("Content-Type", real.header("content-type") or "text/plain").head(None)
    exchange.send(head[:-2] + b"Transfer-Encoding: chunked\r\n\r\n")
    exchange.send(f"{len(half):x}\r\n".encode() + half + b"\r\n")
    exchange.close()


@cache
def _bomb() -> bytes:
    """The same compressed megabyte again and again (a full flush makes it stand alone); no end."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    begin = packer.compress(b'{"data": [') + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(b" " * 1_048_576) + packer.flush(zlib.Z_FULL_FLUSH)
    return begin + block * BOMB_MEGABYTES


def _gzip_bomb(exchange: Exchange) -> None:
    _encoded(exchange, "gzip", _bomb())


def _encoded(exchange: Exchange, encoding: str, body: bytes) -> None:
    real = exchange.forward()
    exchange.respond(Answer(real.status, real.with_header("Content-Encoding", encoding).headers,
                            body))  # fmt: skip


def _unasked_encoding(exchange: Exchange) -> None:
    _encoded(exchange, "br", b"\x8b\x02\x80" + b"data" * 50)


def _broken_gzip(exchange: Exchange) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = packer.compress(exchange.forward().body) + packer.flush()
    _encoded(exchange, "gzip", packed[:-12])


def _endless_body(exchange: Exchange) -> None:
    exchange.send(exchange.forward().head(None))
    _send_for_ever(exchange, ENDLESS_BLOCK)


def _endless_chunks(exchange: Exchange) -> None:
    head = exchange.forward().head(None)
    exchange.send(head[:-2] + b"Transfer-Encoding: chunked\r\n\r\n")
    _send_for_ever(exchange, f"{len(ENDLESS_BLOCK):x}\r\n".encode() + ENDLESS_BLOCK + b"\r\n")


def _huge_header(exchange: Exchange) -> None:
    real = exchange.forward()
    exchange.respond(real.with_header("X-Trace", "a" * HUGE_HEADER_BYTES))


def _flood_of_headers(exchange: Exchange) -> None:
    exchange.send(b"HTTP/1.1 200 OK\r\n")
    _send_for_ever(exchange, b"X-Flood: again and again\r\n" * 100)


def _endless_continue(exchange: Exchange) -> None:
    _send_for_ever(exchange, b"HTTP/1.1 100 Continue\r\n\r\n", 0.001)


def _garbage(exchange: Exchange) -> None:
    exchange.send(b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n" + bytes(range(256)))
    exchange.close()


# ---------------------------------------------------------------- the table


def _only(media: Literal["json", "xml"], *faults: Fault) -> tuple[Fault, ...]:
    """Faults that only answers of that type can have."""
    return tuple(replace(fault, media=media) for fault in faults)


def _table(*faults: Fault) -> dict[str, Fault]:
    return {fault.name: fault for fault in faults}


FAULTS: Final[Mapping[str, Fault]] = _table(
    # -- connections
    Fault("connection_refused", "nobody listens there", "must_fail", server="refusing"),
    Fault("refused_from_now_on", "the server dies in the middle", "must_fail",
          _refuse_from_now_on),
    Fault("connect_timeout", "the backlog is full and nobody accepts", "must_fail",
          server="deaf", slow=True),
    Fault("closed_at_accept", "every connection is closed unread", "must_fail",
          server="hanging_up"),
    Fault("reset_at_accept", "every connection is reset unread", "must_fail",
          server="resetting"),
    Fault("reset_before_headers", "reset instead of an answer", "must_fail", _reset_after()),
    Fault("reset_in_headers", "reset in the middle of the headers", "must_fail",
          _reset_after(b"HTTP/1.1 200 OK\r\nConte")),
    Fault("reset_after_headers", "reset when the headers are sent", "must_fail",
          _reset_after(_TRANSFER_HEAD + b"Content-Length: 100000\r\n\r\n")),
    Fault("reset_in_body", "reset in the middle of the right body", "must_fail", _reset_in_body),
    Fault("reset_once", "one reset, then well", "must_heal", _reset_after(), count=1),
    Fault("closed_without_answer", "an orderly end instead of an answer", "must_fail", _close),
    Fault("silent_before_first_byte", "the request is read and never answered", "must_fail",
          _silent, slow=True),
    Fault("silent_once", "one request is never answered, the next one is", "must_heal", _silent,
          count=1, slow=True),
    Fault("silent_in_body", "the body never ends, without a byte", "must_fail", _silent_in_body,
          slow=True),
    Fault("drip_body", "a byte now and then, never silent for as long as the time-out",
          "must_fail", _drip, slow=True),
    Fault("drip_headers", "a header that goes on for ever, byte by byte", "must_fail",
          _drip_headers, slow=True),
    # -- statuses
    Fault("status_401", "the token is not accepted", "must_fail", _status(401)),
    Fault("status_403", "not allowed", "must_fail", _status(403), on_content="may_leave_out"),
    Fault("status_404", "not there", "must_fail", _status(404), on_content="may_leave_out"),
    Fault("status_408", "the server tired of waiting for the request", "must_fail", _status(408)),
    Fault("status_410", "gone", "must_fail", _status(410), on_content="may_leave_out"),
    Fault("status_413", "the request is too large, it says", "must_fail", _status(413),
          on_content="may_leave_out"),
    Fault("status_418", "a status that nobody expects", "must_fail", _status(418)),
    Fault("status_429_seconds", "too many requests, Retry-After in seconds, then well",
          "must_heal", _status(429, Retry_After="1"), count=1),
    Fault("status_429_date", "too many requests, Retry-After as a date, then well", "must_heal",
          _retry_after_date, count=1),
    Fault("status_429_absurd", "Retry-After of centuries, then well", "must_heal",
          _status(429, Retry_After="99999999999"), count=1),
    Fault("status_429_nonsense", "Retry-After that is no number and no date, then well",
          "must_heal", _status(429, Retry_After="soon; -1"), count=1),
    Fault("status_429_bare", "too many requests without Retry-After, then well", "must_heal",
          _status(429), count=1),
    Fault("status_429_for_ever", "too many requests, whatever one waits", "must_fail",
          _status(429, Retry_After="1")),
    Fault("status_500", "the server fails, and again", "must_fail", _status(500)),
    Fault("status_500_once", "the server fails once", "must_heal", _status(500), count=1),
    Fault("status_502", "the gateway fails, and again", "must_fail", _status(502, LOGIN_PAGE)),
    Fault("status_502_once", "the gateway fails once", "must_heal", _status(502, LOGIN_PAGE),
          count=1),
    Fault("status_503_then_well", "maintenance ends while one waits", "must_heal",
          _status(503, Retry_After="0"), count=1),
    Fault("status_503", "maintenance that does not end", "must_fail", _status(503)),
    Fault("status_504", "the gateway waits in vain", "must_fail", _status(504)),
    Fault("status_204", "well, but no content", "must_fail", _no_body(204)),
    Fault("status_206", "half of the body as partial content that nobody asked for", "must_fail",
          _half_with_own_length(206)),
    Fault("status_304", "unchanged, to a question without condition", "must_fail", _no_body(304)),
    # -- redirects
    *(
        Fault(f"redirect_{status}_elsewhere", "leads to another host", "must_fail",
              _redirect_elsewhere(status))
        for status in (301, 302, 307, 308)
    ),
    Fault("redirect_loop", "leads to itself", "must_fail", _redirect_to_itself),
    Fault("redirect_to_login", "leads to a login page on the same host", "must_fail",
          _redirect_to_login, reach="server"),
    # -- bodies
    Fault("login_page", "a login page in HTML with status 200", "must_fail",
          _login_page("text/html; charset=utf-8")),
    Fault("login_page_in_disguise", "a login page under the type and status of the real answer",
          "must_fail", _login_page(None)),
    Fault("empty_body", "the real status and headers, no body", "must_fail", _no_body(None)),
    Fault("cut_body", "sound HTTP around half of the body", "must_fail", _half_with_own_length()),
    Fault("shorter_than_promised", "the body ends before its Content-Length", "must_fail",
          _shorter_than_promised),
    Fault("promises_too_little", "a Content-Length of half of the body", "must_fail",
          _promises_too_little),
    Fault("cut_chunks", "a chunked body without its last chunk", "must_fail", _cut_chunks),
    Fault("gzip_bomb", f"{BOMB_MEGABYTES} MB in a small gzip body", "must_fail", _gzip_bomb,
          on_content="may_leave_out"),
    Fault("broken_gzip", "a gzip body without its end", "must_fail", _broken_gzip),
    Fault("unasked_encoding", "a body in an encoding that was not asked for", "must_fail",
          _unasked_encoding),
    Fault("endless_body", "a body that never ends, as fast as it is read", "must_fail",
          _endless_body, on_content="may_leave_out"),
    Fault("endless_chunks", "chunks that never end", "must_fail", _endless_chunks,
          on_content="may_leave_out"),
    Fault("huge_header", "one header of 1 MB", "must_fail", _huge_header),
    Fault("flood_of_headers", "headers that never end", "must_fail", _flood_of_headers),
    Fault("endless_continue", "100 Continue, for ever", "must_fail", _endless_continue,
          slow=True),
    Fault("not_http", "an SSH banner and binary bytes", "must_fail", _garbage),
    Fault("bytes_not_utf8", "JSON or XML with bytes that are not UTF-8", "must_fail",
          bytes_not_utf8),
    Fault("claims_utf16", "a Content-Type that names the wrong charset", "may_either",
          claims_utf16),
    # -- JSON
    *_only("json",
    Fault("other_shape", "an object for a list, a list for an object", "must_fail",
          rewritten(other_shape)),
    Fault("json_null", "null", "must_fail", written("null")),
    Fault("json_string", "a string for a structure", "must_fail", written('"ok"')),
    Fault("json_number", "a number for a structure", "must_fail", written("1e999")),
    Fault("json_error_object", "an error object with status 200", "must_fail",
          written('{"error": {"code": 500, "message": "Whoops"}}')),
    Fault("json_deep", "arrays nested 100,000 deep", "must_fail",
          written("[" * DEEP + "]" * DEEP)),
    Fault("json_huge_integer", "an integer of 10,000 digits", "must_fail",
          numbers_as("9" * 10_000)),
    Fault("json_nan", "NaN for every number", "must_fail", numbers_as("NaN")),
    Fault("json_infinity", "Infinity for every number", "must_fail", numbers_as("Infinity")),
    Fault("json_nulls", "null for every value", "must_fail",
          rewritten(lambda value: leaves(value, lambda leaf: None))),
    Fault("json_empty_items", "items without a single field", "must_fail",
          rewritten(lambda value: with_items(value, [{} for _ in items_of(value)]))),
    Fault("json_items_as_strings", "a string for every item", "must_fail",
          rewritten(lambda value: with_items(value, ["item" for _ in items_of(value)]))),
    Fault("json_items_nested", "every item inside a list of its own", "must_fail",
          rewritten(lambda value: with_items(value, [[item] for item in items_of(value)]))),
    Fault("json_numbers_as_strings", "every number as a string", "may_either",
          rewritten(lambda value: leaves(
              value, lambda leaf: str(leaf) if type(leaf) is int else leaf))),
    # -- pages
    Fault("same_page_for_ever", "the same page again and again, always with a next one",
          "must_fail", same_page_for_ever, reach="path"),
    Fault("total_that_grows", "a total that grows with each page", "may_either",
          total_that_grows, reach="path"),
    Fault("repeated_item", "an item stands on two pages", "may_either", repeat_last_item,
          reach="path"),
    Fault("shifted_page", "an item is skipped, because one before it was deleted meanwhile",
          "must_fail", skip_first_item, reach="path"),
    ),
    # -- XML
    *_only("xml",
    Fault("endless_tree", "each WebDAV folder holds another one", "must_fail", endless_tree,
          reach="server"),
    Fault("xml_laughs", "a billion laughs", "must_fail", xml(laughs)),
    Fault("xml_quadratic", "one large entity used 50,000 times", "must_fail", xml(quadratic)),
    Fault("xml_external_entity", "an entity from another host", "must_fail", external(None)),
    Fault("xml_file_entity", "an entity from a local file", "must_fail",
          external("file:///etc/hostname")),
    Fault("xml_parameter_entity", "a DTD from another host", "must_fail",
          xml(parameter_entity)),
    Fault("xml_dtd", "a DTD that declares nothing bad", "may_either", xml(harmless_dtd)),
    Fault("xml_many_elements", "a million elements more", "may_either", xml(many_elements)),
    Fault("xml_many_attributes", "an element of 100,000 attributes", "may_either",
          xml(many_attributes)),
    Fault("xml_deep", "elements nested 100,000 deep", "may_either", xml(deep_elements)),
    ),
    # -- TLS
    Fault("tls_self_signed", "a certificate signed by itself", "must_fail",
          server="tls_self_signed"),
    Fault("tls_expired", "a certificate that has expired", "must_fail", server="tls_expired"),
    Fault("tls_wrong_host", "a certificate for another host", "must_fail",
          server="tls_wrong_host"),
    Fault("tls_spoken_to_plain", "an https address where no TLS is spoken", "must_fail",
          server="tls_spoken_to_plain"),
    Fault("tls_trusted", "a sound certificate of an authority that is trusted", "must_heal",
          server="tls_trusted"),
)  # fmt: skip
"""By name. Each is met at every moment that makes sense: the first request, one in the middle of
the listing, the content of one document."""

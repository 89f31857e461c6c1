"""``serve``: the HTTP search service on a port of this machine."""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from rag_assets.cli.output import Output
from rag_assets.errors import ConfigurationError, RagError

if TYPE_CHECKING:
    from rag_assets.config import Config


@click.command()
@click.option("--host", default=None, help="Address to listen on; default service.host.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=None,
    help="Default service.port; 0 takes any free one.",
)
@click.pass_context
def serve(ctx: click.Context, host: str | None, port: int | None) -> None:
    """Answer searches over HTTP: /search, /context, /documents, /stats, /health, /openapi.json.

    Every request needs a token that `rag-assets token add` made; its ACL tags decide what it sees.
    """
    from rag_assets.config import load_config
    from rag_assets.service.tokens import TokenStore

    output: Output = ctx.obj
    config = load_config(output.config)
    given = {key: value for key, value in (("host", host), ("port", port)) if value is not None}
    settings = config.service.model_copy(update=given)
    has_tokens = bool(TokenStore(config.data_dir).all())
    if not has_tokens and not _is_loopback(settings.host):
        raise ConfigurationError(
            f"host {settings.host!r}: other machines can reach it and there is no token yet; run "
            "`rag-assets token add NAME --acl TAG` first, or listen on 127.0.0.1"
        )
    _run(config.model_copy(update={"service": settings}), has_tokens=has_tokens)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _run(config: Config, *, has_tokens: bool) -> None:
    from rag_assets.service.server import build_server

    settings = config.service
    server = build_server(config, listening=lambda at: _announce(config, at, has_tokens=has_tokens))
    try:
        # uvicorn raises an interrupt again, unless whoever started us ignores interrupts.
        with suppress(KeyboardInterrupt):
            server.run()
    except SystemExit:  # uvicorn's way to say that it cannot listen
        raise RagError(
            f"cannot listen on {settings.host} port {settings.port}; another program may be "
            "there, or the address is not this machine's (--host, --port)"
        ) from None
    click.echo("stopped", err=True)


def _announce(config: Config, address: str, *, has_tokens: bool) -> None:
    from rag_assets.service.app import host_names

    click.echo(f"rag-assets serves {config.path} at {address}", err=True)
    if not has_tokens:
        click.echo(
            "no token exists yet, so every request is refused; "
            "`rag-assets token add NAME --acl TAG` makes one (no restart needed)",
            err=True,
        )
    if not _is_loopback(config.service.host):
        click.echo(
            f"it answers to these host names only: {', '.join(host_names(config.service))} "
            "(service.allowed_hosts adds others); tokens travel as they are: let only a proxy "
            "that speaks TLS be reached from outside",
            err=True,
        )

"""``token``: the bearer tokens of the HTTP service, and what each may see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rag_assets.cli.output import Output, json_option

if TYPE_CHECKING:
    from rag_assets.service.tokens import Token, TokenStore


@click.group()
def token() -> None:
    """Make, list and remove the tokens of the HTTP service.

    A change takes effect at once in a service that runs.
    """


@token.command()
@click.argument("name")
@click.option(
    "--acl", "tags", multiple=True, metavar="TAG", help="Sees documents with this ACL tag."
)
@click.option("--everything", is_flag=True, help="Sees every document, tagged or not.")
@click.option("--admin", is_flag=True, help="May use the diagnostic page.")
@json_option
@click.pass_context
def add(
    ctx: click.Context, name: str, tags: tuple[str, ...], everything: bool, admin: bool
) -> None:
    """Make a token. It is shown this once; only a hash of it is kept."""
    secret = _store(ctx).add(name, acl_tags=tags, everything=everything, admin=admin)
    _show_secret(ctx.obj, name, secret)


@token.command()
@click.argument("name")
@json_option
@click.pass_context
def rotate(ctx: click.Context, name: str) -> None:
    """Give a token a new secret with the same rights; the old one is refused at once."""
    _show_secret(ctx.obj, name, _store(ctx).rotate(name))


@token.command()
@click.argument("name")
@json_option
@click.pass_context
def remove(ctx: click.Context, name: str) -> None:
    """Take a token away; it is refused at once."""
    _store(ctx).remove(name)
    output: Output = ctx.obj
    output.show({"status": "ok", "removed": name}, lambda: click.echo(f"removed: {name}"))


@token.command("list")
@json_option
@click.pass_context
def list_(ctx: click.Context) -> None:
    """Names and rights; the tokens themselves are not kept."""
    tokens = _store(ctx).all()
    output: Output = ctx.obj
    output.show({"tokens": [_row(one) for one in tokens]}, lambda: _show(tokens))


def _store(ctx: click.Context) -> TokenStore:
    from rag_assets.config import load_config
    from rag_assets.service.tokens import TokenStore

    output: Output = ctx.obj
    return TokenStore(load_config(output.config).data_dir)


def _show_secret(output: Output, name: str, secret: str) -> None:
    def show() -> None:
        click.echo(secret)
        click.echo(
            f"This is the token of {name}. Keep it now: it is not shown again. Send it as\n"
            "  Authorization: Bearer <token>",
            err=True,
        )

    output.show({"status": "ok", "name": name, "token": secret}, show)


def _row(one: Token) -> dict[str, Any]:
    return {
        "name": one.name,
        "acl": list(one.acl_tags),
        "everything": one.everything,
        "admin": one.admin,
        "created_at": one.created_at,
    }


def _show(tokens: tuple[Token, ...]) -> None:
    if not tokens:
        click.echo("No token. `rag-assets token add NAME --acl TAG` makes one.")
    for one in tokens:
        sees = "everything" if one.everything else ", ".join(one.acl_tags)
        admin = ", admin" if one.admin else ""
        click.echo(f"{one.name}: sees {sees}{admin}; since {one.created_at}")

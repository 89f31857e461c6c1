"""``search``: passages for a question, with citations."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from rag_assets.acl import EVERYTHING, AclTags
from rag_assets.cli.output import Output, json_option, printable

if TYPE_CHECKING:
    from rag_assets.models import Hit

MODE: Final = "vector"
FIELDS: Final = (
    "rank", "score", "vector_score", "source", "path", "title", "section", "heading_path",
    "anchor", "url", "start_line", "end_line", "position", "content",
)  # fmt: skip
SHOWN_LINES: Final = 8


@click.command()
@click.argument("query")
@click.option("-k", type=int, default=None, help="How many passages; default retrieval.k.")
@click.option("--source", "sources", multiple=True, metavar="NAME", help="Only this source.")
@click.option(
    "--acl", "tags", multiple=True, metavar="TAG", help="Only what a caller with these tags sees."
)
@json_option
@click.pass_context
def search(
    ctx: click.Context,
    query: str,
    k: int | None,
    sources: tuple[str, ...],
    tags: tuple[str, ...],
) -> None:
    """Find passages for a question.

    Without --acl everything is searched: whoever runs this can read the index file anyway.
    """
    from rag_assets.components import build_retriever
    from rag_assets.config import load_config

    output: Output = ctx.obj
    config = load_config(output.config)
    config.partitions(sources)
    acl_tags: AclTags = tags or EVERYTHING
    with build_retriever(config) as retriever:
        hits = retriever.retrieve(query, k, acl_tags=acl_tags, mode=MODE, sources=sources or None)
    value = {"query": query, "mode": MODE, "hits": [hit_json(hit) for hit in hits]}
    output.show(value, lambda: _show(hits))


def hit_json(hit: Hit) -> dict[str, Any]:
    """A hit in the shape of ``search --json``."""
    row = {**asdict(hit), "section": hit.section}
    return {name: row[name] for name in FIELDS}


def _show(hits: list[Hit]) -> None:
    if not hits:
        click.echo("No passage found.")
        return
    for hit in hits:
        path = " > ".join(hit.heading_path) or hit.title
        click.secho(f"{hit.rank}. {printable(path)}", bold=True, nl=False)
        click.echo(f"  ({hit.score:.3f})")
        click.secho(f"   {printable(hit.citation)}", fg="cyan")
        if hit.url:
            click.secho(f"   {printable(hit.url)}", fg="blue")
        lines = printable(hit.content).strip().splitlines()
        for line in lines[:SHOWN_LINES]:
            click.echo(f"   | {line[:160]}")
        if len(lines) > SHOWN_LINES:
            click.echo(f"   | ... {len(lines) - SHOWN_LINES} more lines")
        click.echo()

"""``search``: passages for a question, with citations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from rag_assets.acl import EVERYTHING, AclTags
from rag_assets.cli.output import Output, json_option, printable
from rag_assets.errors import InvalidQuery
from rag_assets.retrieval.hits import hit_json

if TYPE_CHECKING:
    from rag_assets.models import Hit

SHOWN_LINES: Final = 8


@click.command()
@click.argument("query")
@click.option("-k", type=int, default=None, help="How many passages; default retrieval.k.")
@click.option(
    "--mode",
    type=click.Choice(["hybrid", "vector", "text"]),
    default=None,
    help="By meaning and words, by meaning, or by words; default retrieval.mode.",
)
@click.option(
    "--source", "sources", multiple=True, metavar="NAME", help="Only this source (repeatable)."
)
@click.option(
    "--path",
    "paths",
    multiple=True,
    help="Only below this prefix, or like this glob, from the source's root (repeatable).",
)
@click.option(
    "--language", "languages", multiple=True, metavar="TAG", help="Only this language (repeatable)."
)
@click.option(
    "--meta",
    "metadata",
    multiple=True,
    metavar="KEY=VALUE",
    help="Only with this front matter, as typed there; several: all of them.",
)
@click.option("--after", metavar="DATE", default=None, help="Only what changed then or later.")
@click.option("--before", metavar="DATE", default=None, help="Only what changed before.")
@click.option("--deduplicate/--no-deduplicate", default=None, help="Leave out near copies.")
@click.option("--merge/--no-merge", default=None, help="Join adjacent passages of a section.")
@click.option(
    "--acl",
    "tags",
    multiple=True,
    metavar="TAG",
    help="Only what a caller with this tag sees (repeatable: any of them).",
)
@json_option
@click.pass_context
def search(
    ctx: click.Context,
    query: str,
    k: int | None,
    mode: str | None,
    sources: tuple[str, ...],
    paths: tuple[str, ...],
    languages: tuple[str, ...],
    metadata: tuple[str, ...],
    after: str | None,
    before: str | None,
    deduplicate: bool | None,
    merge: bool | None,
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
    filters = {
        "source": sources or None,
        "path": paths or None,
        "language": languages or None,
        "metadata": _pairs(metadata),
        "modified_after": after,
        "modified_before": before,
    }
    with build_retriever(config) as retriever:
        hits = retriever.retrieve(
            query,
            k,
            acl_tags=acl_tags,
            mode=mode,
            filters=filters,
            deduplicate=deduplicate,
            merge=merge,
        )
    value = {
        "query": query,
        "mode": mode or config.retrieval.mode,
        "hits": [hit_json(hit) for hit in hits],
    }
    output.show(value, lambda: _show(hits))


def _pairs(metadata: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for pair in metadata:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InvalidQuery(f"--meta {pair!r} is not KEY=VALUE")
        pairs[key] = value
    return pairs


def _show(hits: list[Hit]) -> None:
    if not hits:
        click.echo("No passage found.")
        return
    for hit in hits:
        path = " > ".join(hit.heading_path) or hit.title
        click.secho(f"{hit.rank}. {printable(path)}", bold=True, nl=False)
        click.echo(f"  ({_scores(hit)})")
        click.secho(f"   {printable(hit.citation)}", fg="cyan")
        if hit.url:
            click.secho(f"   {printable(hit.url)}", fg="blue")
        lines = printable(hit.content).strip().splitlines()
        for line in lines[:SHOWN_LINES]:
            click.echo(f"   | {line[:160]}")
        if len(lines) > SHOWN_LINES:
            click.echo(f"   | ... {len(lines) - SHOWN_LINES} more lines")
        click.echo()


def _scores(hit: Hit) -> str:
    """The score that ranked, and those of the legs it was made of."""
    legs = {"vector": hit.vector_score, "text": hit.text_score}
    shown = [f"{name} {score:.3f}" for name, score in legs.items() if score is not None]
    if hit.score_kind in legs:
        return ", ".join(shown)
    return ", ".join([f"{hit.score_kind} {hit.score:.3f}", *shown])

"""The command group: global options, and one lazily imported module per command."""

from __future__ import annotations

import importlib
from typing import Any, Final

import click

from rag_assets import __version__
from rag_assets.cli.output import JSON_WANTED, Output, guarded

COMMANDS: Final = {
    "init": ("rag_assets.cli.init", "init", "Write a commented rag_assets.yaml and Dagster files."),
    "ingest": ("rag_assets.cli.ingest", "ingest", "Bring the index up to date with its sources."),
    "reindex": ("rag_assets.cli.ingest", "reindex", "Another name for an incremental ingest."),
    "search": ("rag_assets.cli.search", "search", "Find passages for a question."),
    "stats": ("rag_assets.cli.inspect", "stats", "Say what the index holds and how it is."),
    "explain": ("rag_assets.cli.inspect", "explain", "Say why a document is or is not indexed."),
    "verify": (
        "rag_assets.cli.inspect",
        "verify",
        "Check the index and its assets.",
    ),
    "quarantine": (
        "rag_assets.cli.quarantine",
        "quarantine",
        "List and release documents kept out for what they hold.",
    ),
    "serve": ("rag_assets.cli.serve", "serve", "Answer searches over HTTP."),
    "token": ("rag_assets.cli.token", "token", "Make and remove the tokens of the HTTP service."),
}
"""Name -> module, attribute, help line. Nothing is imported to show the list."""


class LazyGroup(click.Group):
    """Imports a command's module when the command is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Names in the order of ``COMMANDS``."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command, imported now; None when there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note early whether JSON is wanted, for when the rest cannot be understood."""
        ctx.meta[JSON_WANTED] = "--json" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; errors become one clear line and an exit code."""
        return guarded(ctx, lambda: super(LazyGroup, self).invoke(ctx))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rag-assets")
@click.option(
    "--config",
    type=click.Path(dir_okay=True),
    default=None,
    metavar="FILE",
    help="rag_assets.yaml; default: $RAG_ASSETS_CONFIG, then the current folder.",
)
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.pass_context
def cli(ctx: click.Context, config: str | None, debug: bool) -> None:
    """Keep a searchable, cited vector index true to its sources."""
    ctx.obj = Output(config=config, debug=debug)

"""``init``: a commented configuration, and what Dagster needs beside it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from unicodedata import normalize

import click

from rag_assets.cli.output import Output, json_option
from rag_assets.errors import ConfigurationError
from rag_assets.project import CONFIG_NAME, SOURCE_NAME

TEMPLATES: Final = Path(__file__).parent.parent / "templates"
FILES: Final = (CONFIG_NAME, "dagster.yaml", "workspace.yaml")


@click.command()
@click.argument("folder", type=click.Path(file_okay=False), default=".")
@click.option("--root", default="docs", help="Folder of Markdown to index, from FOLDER.")
@click.option("--name", default=None, help="Name of the source; default: the root's name.")
@click.option("--force", is_flag=True, help="Overwrite files that are there.")
@json_option
@click.pass_context
def init(ctx: click.Context, folder: str, root: str, name: str | None, force: bool) -> None:
    """Write rag_assets.yaml, dagster.yaml and workspace.yaml into FOLDER."""
    output: Output = ctx.obj
    target = Path(folder).absolute()
    there = [file for file in FILES if (target / file).exists()]
    if there and not force:
        raise ConfigurationError(
            f"{target}: {', '.join(there)} there already; add --force to overwrite"
        )
    source = name or _name_of(root)
    if not re.fullmatch(SOURCE_NAME, source):
        raise ConfigurationError(f"--name {source!r}: use letters, digits, _ and -, such as docs")
    target.mkdir(parents=True, exist_ok=True)
    for file in FILES:
        text = (TEMPLATES / file).read_text(encoding="utf-8")
        text = text.replace("@SOURCE@", source).replace("@ROOT@", root)
        (target / file).write_text(text, encoding="utf-8")
    written = [str(target / file) for file in FILES]
    output.show({"status": "ok", "written": written}, lambda: _show(written))


def _name_of(root: str) -> str:
    """A source name out of a folder's: without accents, spaces or signs."""
    plain = normalize("NFKD", Path(root).name).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9_-]+", "-", plain).strip("-_") or "docs"


def _show(written: list[str]) -> None:
    for file in written:
        click.echo(f"written: {file}")
    click.echo("Next: edit sources in rag_assets.yaml, then run `rag-assets ingest`.")

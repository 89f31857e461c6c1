"""``quarantine``: the documents kept out of the index for what they hold, and their release."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from rag_assets.cli.output import Output, json_option, printable
from rag_assets.errors import ConfigurationError

if TYPE_CHECKING:
    from rag_assets.config import Config
    from rag_assets.models import LeftOut
    from rag_assets.releases import Releases

RELEASABLE = ("instructions", "secret", "personal_number")


@click.group()
def quarantine() -> None:
    """List, release and take back documents that are kept out of the index for what they hold.

    Nothing of a quarantined document is stored. A release holds for the content it has now.
    """


@quarantine.command("list")
@click.option("--source", default=None, metavar="NAME", help="Only this source.")
@json_option
@click.pass_context
def list_quarantined(ctx: click.Context, source: str | None) -> None:
    """The quarantined documents, with what was found where, and the releases so far."""
    config = _config(ctx)
    rows = _quarantined(config, source)
    released = [r for r in _releases(config).all() if source in (None, r.source)]
    value = {
        "quarantined": [{**asdict(row), "releasable": row.reason in RELEASABLE} for row in rows],
        "released": [asdict(release) for release in released],
    }
    output: Output = ctx.obj
    output.show(value, lambda: _show(value))


@quarantine.command()
@click.argument("document", metavar="SOURCE/PATH")
@click.option("--by", required=True, metavar="WHO", help="Who decides; kept with the release.")
@click.option("--reason", required=True, metavar="WHY", help="Why it may be indexed; kept too.")
@json_option
@click.pass_context
def release(ctx: click.Context, document: str, by: str, reason: str) -> None:
    """Let a document be indexed as it is now; the next ingest does it."""
    config = _config(ctx)
    row = _find(config, document)
    if row.reason not in RELEASABLE:
        raise ConfigurationError(
            f"{document}: it is quarantined because of {row.reason} ({row.rule}), which only a "
            "change of the document can mend"
        )
    made = _releases(config).add(
        source=row.source,
        path=row.path,
        content_hash=row.content_hash,
        found=f"{row.reason}: {row.rule}",
        by=by,
        why=reason,
    )
    output: Output = ctx.obj
    output.show(
        {"status": "ok", "released": asdict(made)},
        lambda: click.echo(
            f"released: {printable(document)} as it is now; run `rag-assets ingest --source "
            f"{row.source}` to index it"
        ),
    )


@quarantine.command()
@click.argument("document", metavar="SOURCE/PATH")
@json_option
@click.pass_context
def revoke(ctx: click.Context, document: str) -> None:
    """Take a release back; the next ingest takes the document out of the index."""
    config = _config(ctx)
    source, path = _split(config, document)
    releases = _releases(config)
    now = _content_hash(config, source, path)
    found = [
        r
        for r in releases.all()
        if r.source == source and (r.path == path or r.content_hash == now)
    ]
    if not found:
        raise ConfigurationError(f"{document}: there is no release of it")
    for one in found:
        releases.revoke(source, one.content_hash)
    output: Output = ctx.obj
    output.show(
        {"status": "ok", "revoked": [asdict(one) for one in found]},
        lambda: click.echo(
            f"revoked: {printable(document)}; run `rag-assets ingest --source {source}`"
        ),
    )


def _config(ctx: click.Context) -> Config:
    from rag_assets.config import load_config

    return load_config(ctx.obj.config)


def _releases(config: Config) -> Releases:
    from rag_assets.project import DataFolder
    from rag_assets.releases import Releases

    return Releases(DataFolder(config.data_dir).releases)


def _quarantined(config: Config, source: str | None) -> list[LeftOut]:
    """Of the last listings, by source and path.

    Raises:
        AssetError: a table cannot be read.
    """
    from rag_assets.pipeline import tables
    from rag_assets.pipeline.storage import AssetFiles
    from rag_assets.project import DataFolder

    files = AssetFiles(DataFolder(config.data_dir).assets)
    rows: list[LeftOut] = []
    for partition in config.partitions([source] if source else None):
        table = files.read("source_files", partition.key)
        if table is not None and table.schema.equals(tables.SOURCE_FILES):
            rows += [row for row in tables.left_out(table) if row.status == "quarantined"]
    return sorted(rows, key=lambda row: (row.source, row.path))


def _content_hash(config: Config, source: str, path: str) -> str | None:
    """Of what the last listing found at that path; None when it found nothing."""
    from rag_assets.pipeline.storage import AssetFiles, read_table
    from rag_assets.project import DataFolder

    files = AssetFiles(DataFolder(config.data_dir).assets)
    for partition in config.partitions([source]):
        table = read_table(files.path("source_files", partition.key), ["path", "content_hash"])
        for row in table.to_pylist() if table is not None else ():
            if row["path"] == path:
                return str(row["content_hash"])
    return None


def _split(config: Config, document: str) -> tuple[str, str]:
    """Source and path of ``SOURCE/PATH``.

    Raises:
        ConfigurationError: there is no such source.
    """
    source, slash, path = document.partition("/")
    if not slash or not path:
        raise ConfigurationError(f"{document}: write it as SOURCE/PATH, as `quarantine list` does")
    config.source(source)
    return source, path


def _find(config: Config, document: str) -> LeftOut:
    source, path = _split(config, document)
    for row in _quarantined(config, source):
        if row.path == path:
            return row
    raise ConfigurationError(
        f"{document}: not in quarantine as of the last ingest; `rag-assets quarantine list` shows "
        "what is"
    )


def _show(value: dict[str, Any]) -> None:
    if not value["quarantined"]:
        click.echo("Nothing is in quarantine.")
    for row in value["quarantined"]:
        click.echo(printable(f"{row['source']}/{row['path']}  {row['reason']}: {row['rule']}"))
    if value["released"]:
        click.echo("\nReleased:")
    for one in value["released"]:
        click.echo(
            printable(
                f"{one['source']}/{one['path']}  {one['content_hash'][:12]}  by {one['by']} at "
                f"{one['at']}: {one['why']} ({one['found']})"
            )
        )

"""``ingest`` and ``reindex``: bring the index up to date, or say what that would do."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from rag_assets.cli.output import FAILED, OK, Output, json_option
from rag_assets.ingest import IngestPlan, IngestReport
from rag_assets.ingest import ingest as run_ingest
from rag_assets.ingest import plan as make_plan

if TYPE_CHECKING:
    from rag_assets.pipeline.progress import Progress

source_option = click.option(
    "--source", "sources", multiple=True, metavar="NAME", help="Only this source (repeatable)."
)
confirm_option = click.option(
    "--confirm-removals",
    is_flag=True,
    help="Let a source lose more documents than max_removed_fraction.",
)


@click.command()
@source_option
@click.option("--full", is_flag=True, help="Reprocess everything into a new index generation.")
@click.option("--plan", "only_plan", is_flag=True, help="Say what would be done, and do nothing.")
@confirm_option
@json_option
@click.pass_context
def ingest(
    ctx: click.Context,
    sources: tuple[str, ...],
    full: bool,
    only_plan: bool,
    confirm_removals: bool,
) -> None:
    """Bring the index up to date with its sources.

    Looks for changes first; when there are none, says so and stops. Otherwise runs the stale
    partitions on the Dagster instance, in this process.
    """
    output: Output = ctx.obj
    if only_plan:
        planned = make_plan(output.config, sources, incremental=not full)
        output.show(planned.to_json(), lambda: _show_plan(planned))
        ctx.exit(OK)
    _run(ctx, sources, full=full, confirm_removals=confirm_removals)


@click.command()
@source_option
@confirm_option
@json_option
@click.pass_context
def reindex(ctx: click.Context, sources: tuple[str, ...], confirm_removals: bool) -> None:
    """Another name for an incremental ingest."""
    _run(ctx, sources, full=False, confirm_removals=confirm_removals)


def _run(
    ctx: click.Context, sources: tuple[str, ...], *, full: bool, confirm_removals: bool
) -> None:
    output: Output = ctx.obj
    with _progress(output) as progress:
        report = run_ingest(
            output.config,
            sources,
            incremental=not full,
            confirm_removals=confirm_removals,
            progress=progress,
        )
    output.show(report.to_json(), lambda: _show_report(report))
    if report.partitions and not output.json:
        _show_left_out(output, report)
    for partition in report.partitions:
        if partition.status == "failed":
            sys.stderr.write(f"rag-assets: partition {partition.partition}: {partition.error}\n")
    ctx.exit(FAILED if report.status == "failed" else OK)


@contextmanager
def _progress(output: Output) -> Iterator[Progress | None]:
    """A bar on a terminal, a line now and then elsewhere, nothing under ``--json``."""
    if output.json:
        yield None
    elif sys.stderr.isatty():
        with _Bar() as bar:
            yield bar
    else:
        yield _Lines()


class _Lines:
    """Writes to stderr every ten seconds; what it needs is imported with the first news."""

    def __init__(self) -> None:
        self._inner: Callable[[str, int, int], None] | None = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        if self._inner is None:
            from rag_assets.pipeline.progress import LoggedProgress

            self._inner = LoggedProgress(lambda line: click.echo(line, err=True))
        self._inner(stage, done, total)


class _Bar:
    """A progress bar per stage, shown from the first news on."""

    def __init__(self) -> None:
        self._bars: Any = None
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if self._bars is None:
            self._bars = _new_bars()
            self._bars.start()
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(stage, total=total)
        self._bars.update(self._tasks[stage], completed=done, total=total)


def _new_bars() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


def _show_left_out(output: Output, report: IngestReport, most: int = 10) -> None:
    """What of the sources that ran should be in the index and is not, and what was found."""
    from rag_assets.cli.inspect import show_left_out
    from rag_assets.components import live_index
    from rag_assets.config import load_config
    from rag_assets.models import PROBLEM_REASONS

    sources = {part.source for part in report.partitions}
    with live_index(load_config(output.config)) as store:
        items = [i for i in store.left_out() if i.source in sources] if store else []
    problems = [item for item in items if item.reason in PROBLEM_REASONS]
    if report.status == "partial":
        click.echo("Left out though no rule says so:")
        show_left_out(problems[:most])
        if len(problems) > most:
            click.echo(f"... and {len(problems) - most} more: `rag-assets explain` lists them all")
    quarantined = sum(i.status == "quarantined" and i not in problems for i in items)
    flagged = sum(item.status == "flagged" for item in items)
    if quarantined:
        click.echo(
            f"{quarantined} quarantined for what they hold: `rag-assets quarantine list` says where"
        )
    if flagged:
        click.echo(f"{flagged} indexed and flagged: `rag-assets explain` says where and why")


def _show_report(report: IngestReport) -> None:
    if report.status == "unchanged":
        click.echo("Nothing changed: the index is up to date.")
        return
    for part in report.partitions:
        if part.partition == "*":
            click.echo(f"no longer configured: {part.documents_removed} documents removed")
            continue
        if part.status == "failed":
            click.echo(f"{part.partition}: failed, nothing was changed (run {part.run_id[:8]})")
            continue
        click.echo(
            f"{part.partition}: {part.status}, {part.documents_indexed} indexed, "
            f"{part.documents_skipped} unchanged, {part.documents_removed} removed, "
            f"{part.documents_excluded} left out; {part.chunks_embedded} texts embedded, "
            f"{part.chunks_upserted} chunks written, {part.chunks_unchanged} unchanged "
            f"({part.duration_seconds:.1f} s, run {part.run_id[:8]})"
        )
    click.echo(f"{report.status} in {report.duration_seconds:.1f} s")


def _show_plan(planned: IngestPlan) -> None:
    if not any(part.stale for part in planned.partitions):
        click.echo("Nothing to do: the index is up to date.")
        return
    for part in planned.partitions:
        if not part.stale:
            click.echo(f"{part.partition}: up to date")
            continue
        if part.unconfigured:
            click.echo(f"{part.partition}: no longer configured, all of it is removed")
            continue
        if part.blocked:
            click.echo(f"{part.partition}: refused: {part.blocked}")
        click.echo(
            f"{part.partition}: {part.documents_added} added, {part.documents_changed} changed, "
            f"{part.documents_removed} removed, {part.documents_left_out} left out; "
            f"{part.chunks_to_embed} of {part.chunks} chunks to embed, "
            f"about {part.estimated_tokens:,} tokens"
        )

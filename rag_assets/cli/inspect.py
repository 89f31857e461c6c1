"""``stats``, ``explain`` and ``verify``: what the index holds, why, and whether it is sound."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unicodedata import normalize

import click

from rag_assets.cli.output import FAILED, OK, Output, json_option, printable
from rag_assets.errors import (
    ConfigurationError,
    EmbeddingError,
    RagError,
    SourceError,
    VectorStoreError,
)

if TYPE_CHECKING:
    from rag_assets.config import Config
    from rag_assets.index.base import ExplainedDocument
    from rag_assets.models import LeftOut
    from rag_assets.source_settings import SourceSettings


REMEDY: Final = (
    "run `rag-assets ingest`; what it does not mend, `rag-assets ingest --full` builds anew "
    "(vectors come from the cache)"
)


@click.command()
@json_option
@click.pass_context
def stats(ctx: click.Context) -> None:
    """Say what the index holds. A missing index or a dead embedder is a warning, not a failure."""
    from rag_assets.config import load_config

    output: Output = ctx.obj
    value = _stats(load_config(output.config))
    output.show(value, lambda: _show_stats(value))


def _stats(config: Config) -> dict[str, Any]:
    from rag_assets.components import open_reader

    warnings: list[str] = []
    value: dict[str, Any] = {
        "documents": 0,
        "chunks": 0,
        "vectors": 0,
        "last_indexed_at": None,
        "fingerprint": None,
        "size_bytes": 0,
        "sources": {},
    }
    try:
        store = open_reader(config)
        try:
            value.update(asdict(store.stats()))
        finally:
            store.close()
    except VectorStoreError as exc:
        warnings.append(str(exc))
    value["embedder"] = _embedder_health(config, warnings)
    held, now = value["fingerprint"], value["embedder"]["fingerprint"]
    if held and now and held["model"] != now:
        warnings.append(
            f"the index was built by {held['model']}, the configuration now has {now}: searches "
            "by meaning are refused; run `rag-assets ingest --full`, or put the setting back"
        )
    if value.get("without_tags"):
        warnings.append(
            f"{value['without_tags']} indexed documents have no access tags: callers with tags see "
            "none of them; `rag-assets explain PATH` says which rule took them"
        )
    from rag_assets.source_settings import BUILT_IN

    for source in config.sources:
        named = source.acl.default or source.acl.rules or _reads_permissions(source)
        if source.kind in BUILT_IN and not named:
            warnings.append(
                f"source {source.name!r} has no acl.default: callers with tags see none of it"
            )
    return {**value, "warnings": warnings}


def _embedder_health(config: Config, warnings: list[str]) -> dict[str, Any]:
    from rag_assets.components import build_embedder

    once = config.embedding.model_copy(update={"retries": 0})
    try:
        embedder = build_embedder(config.model_copy(update={"embedding": once}))
        try:
            return {**asdict(embedder.health()), "fingerprint": embedder.fingerprint}
        finally:
            embedder.close()
    except (EmbeddingError, ConfigurationError) as exc:
        warnings.append(str(exc))
        return {"status": "unavailable", "model": None, "dim": None, "fingerprint": None}


def _show_stats(value: Mapping[str, Any]) -> None:
    click.echo(
        f"{value['documents']:,} documents, {value['chunks']:,} chunks, "
        f"{value['vectors']:,} vectors"
    )
    for name, counts in value["sources"].items():
        click.echo(f"  {name}: {counts['documents']:,} documents, {counts['chunks']:,} chunks")
    click.echo(f"last indexed: {value['last_indexed_at'] or 'never'}")
    if value["fingerprint"]:
        fingerprint = value["fingerprint"]
        click.echo(
            f"fingerprint: {fingerprint['model']}, {fingerprint['dim']} dimensions, "
            f"chunker {fingerprint['chunker']}"
        )
    click.echo(f"size: {value['size_bytes'] / 1e6:,.1f} MB")
    embedder = value["embedder"]
    who = f" ({embedder['model']}, {embedder['dim']} dimensions)" if embedder["model"] else ""
    click.echo(f"embedder: {embedder['status']}{who}")
    for warning in value["warnings"]:
        click.secho(f"warning: {warning}", fg="yellow", err=True)


@click.command()
@click.argument("path", required=False)
@click.option("--source", default=None, metavar="NAME", help="Only this source.")
@json_option
@click.pass_context
def explain(ctx: click.Context, path: str | None, source: str | None) -> None:
    """Say why a document is, or is not, in the index; without PATH, list all that is left out.

    PATH is relative to the source's root, or a file on disk inside it.
    """
    from rag_assets.config import load_config

    output: Output = ctx.obj
    config = load_config(output.config)
    if path is None:
        items = _left_out(config, source)
        value = {"left_out": [asdict(item) for item in items]}
        output.show(
            value, lambda: show_left_out(items) if items else click.echo("Nothing is left out.")
        )
        ctx.exit(OK)
    found = _explain_all(config, path, source)
    output.show(found, lambda: _show_explanation(found))
    ctx.exit(OK if found["status"] != "absent" else FAILED)


def _left_out(config: Config, source: str | None) -> list[LeftOut]:
    """The ledger of files left out, of one source or of all."""
    from rag_assets.components import open_reader

    config.partitions([source] if source else None)
    store = open_reader(config)
    try:
        return store.left_out(source)
    finally:
        store.close()


def show_left_out(items: Sequence[LeftOut]) -> None:
    """A line per file: where, status, reason, rule."""
    for item in items:
        where = f" ({item.rule_file}:{item.rule_line})" if item.rule_file else ""
        click.echo(
            f"{item.source}/{printable(item.path)}: {item.status}, {item.reason}"
            f"{': ' if item.rule else ''}{printable(item.rule)}{where}"
        )


def _explain_all(config: Config, path: str, source: str | None) -> dict[str, Any]:
    """The best answer over the sources: indexed before left out before absent."""
    order = ("indexed", "quarantined", "excluded", "absent")
    names = [p.source for p in config.partitions([source] if source else None)]
    first, _, rest = path.partition("/")
    if source is None and rest and first in names:
        # Typed as a citation says it: the source, then the path in it.
        cited = _explain(config, first, rest)
        if cited["status"] != "absent":
            return cited
    answers = [
        _explain(config, name, relative)
        for name in dict.fromkeys(names)
        if (relative := _inside(config, name, path)) is not None
    ]
    if not answers:
        raise ConfigurationError(f"{path}: not inside the root of any source of {config.path}")
    return min(answers, key=lambda answer: order.index(answer["status"]))


def _inside(config: Config, source: str, path: str) -> str | None:
    """PATH relative to the root of the source; None when it lies outside."""
    root = _root(config, source)
    if root is None or not os.path.isabs(path):
        on_disk = Path(path).absolute()
        if root is None or not on_disk.exists() or not on_disk.is_relative_to(root):
            return Path(path).as_posix()
        return on_disk.relative_to(root).as_posix()
    on_disk = Path(os.path.normpath(path))
    return on_disk.relative_to(root).as_posix() if on_disk.is_relative_to(root) else None


def _explain(config: Config, source: str, path: str) -> dict[str, Any]:
    from rag_assets.cli.acl_origin import acl_origin
    from rag_assets.components import build_source

    partition = config.partitions([source])[0]
    value: dict[str, Any] = {"status": "absent", "source": source, "path": path, "warnings": []}
    rule = None
    try:
        rule = build_source(config, partition).explain(path)
    except (SourceError, ConfigurationError) as exc:
        value["warnings"].append(f"as of the last ingest, for the source cannot be asked: {exc}")
    known = _indexed(config, source, path)
    if known is not None and known.document is not None:
        value.update(_indexed_json(known))
        if known.left_out is not None:
            value["flagged"] = _left_out_json(known.left_out)
        origin = acl_origin(config, known.document)
        value["acl_decided_by"] = list(origin.decided_by)
        value["warnings"] += known.document.warnings
        if origin.pending is not None:
            value["warnings"].append(origin.pending)
        if rule is not None:
            value["warnings"].append(f"the next ingest removes it: {rule.reason} {rule.rule}")
        elif not _exists(config, source, path):
            value["warnings"].append("the next ingest removes it: it is gone from the source")
        return value
    left_out = (known.left_out if known is not None else None) or rule
    if left_out is not None:
        value.update(_left_out_json(left_out))
    else:
        value["warnings"].append(
            "no rule keeps it out, and it is not indexed yet: run `rag-assets ingest`"
            if _exists(config, source, path)
            else "there is no such file in the source"
        )
    return value


def _reads_permissions(source: SourceSettings) -> bool:
    """Whether the source's system says who may read what."""
    read_out = ("accounts", "roles", "visibility", "shares")
    return any(getattr(source, key, None) for key in read_out)


def _root(config: Config, source: str) -> Path | None:
    """The folder of a source; None when it is none."""
    settings = config.source(source)
    return getattr(settings, "root", None)


def _exists(config: Config, source: str, path: str) -> bool:
    """Whether a source with a root has that file; True for sources that are not folders."""
    root = _root(config, source)
    return root is None or any(
        (root / form).is_file() for form in {path, *(normalize(f, path) for f in ("NFC", "NFD"))}
    )


def _indexed(config: Config, source: str, path: str) -> ExplainedDocument | None:
    from rag_assets.components import live_index

    with live_index(config) as store:
        return store.explain(source, path) if store is not None else None


def _indexed_json(known: ExplainedDocument) -> dict[str, Any]:
    document = known.document
    assert document is not None
    return {
        "status": "indexed",
        "path": document.path,
        "title": document.title,
        "url": document.url,
        "content_hash": document.content_hash,
        "acl_tags": list(document.acl_tags),
        "run_id": known.run_id,
        "indexed_at": known.indexed_at,
        "chunks": [
            {
                "position": c.position,
                "heading_path": list(c.heading_path),
                "anchor": c.anchor,
                "start_line": c.start_line,
                "end_line": c.end_line,
                "tokens": c.tokens,
                "content_hash": c.content_hash,
            }
            for c in known.chunks
        ],
    }


def _left_out_json(item: LeftOut) -> dict[str, Any]:
    return {
        "status": item.status,
        "reason": item.reason,
        "rule": item.rule,
        "rule_file": item.rule_file,
        "rule_line": item.rule_line,
    }


def _show_explanation(value: Mapping[str, Any]) -> None:
    click.secho(f"{value['source']}/{printable(value['path'])}: {value['status']}", bold=True)
    if value["status"] == "indexed":
        click.echo(f"  title: {printable(value['title'])}")
        click.echo(f"  content hash: {value['content_hash']}")
        tags = ", ".join(value["acl_tags"]) or "none (visible to nobody)"
        click.echo(f"  ACL tags: {tags}; by {printable(', then '.join(value['acl_decided_by']))}")
        click.echo(f"  run {value['run_id']} at {value['indexed_at']}")
        if (flag := value.get("flagged")) is not None:
            click.echo(f"  flagged: {flag['reason']}: {flag['rule']}")
        for chunk in value["chunks"]:
            where = f"lines {chunk['start_line']}-{chunk['end_line']}"
            path = printable(" > ".join(chunk["heading_path"]))
            click.echo(
                f"  {chunk['position']:3} {where:16} #{chunk['anchor']}  {path} "
                f"({chunk['tokens']} tokens)"
            )
    elif "reason" in value:
        where = f" ({value['rule_file']}:{value['rule_line']})" if value["rule_file"] else ""
        rule = f": {printable(value['rule'])}" if value["rule"] else ""
        click.echo(f"  {value['reason']}{rule}{where}")
    for warning in value["warnings"]:
        click.secho(f"  {warning}", fg="yellow")


@click.command()
@json_option
@click.pass_context
def verify(ctx: click.Context) -> None:
    """Check the index against itself, the configuration and the assets. Exit 1 on any problem."""
    from rag_assets.config import load_config

    output: Output = ctx.obj
    problems, checked = _verify(load_config(output.config))
    value = {
        "status": "problems" if problems else "ok",
        "problems": problems,
        "remedy": REMEDY if problems else None,
        **checked,
    }
    output.show(value, lambda: _show_problems(problems, checked))
    ctx.exit(FAILED if problems else OK)


def _verify(config: Config) -> tuple[list[str], dict[str, Any]]:
    from rag_assets.components import open_reader
    from rag_assets.pipeline.verification import compare_with_assets

    store = open_reader(config)
    try:
        problems = store.verify()
        try:
            problems += compare_with_assets(store, config)
            held = store.stats()
        except RagError as exc:
            return [*problems, str(exc)], {}
        return problems, {
            "documents": held.documents,
            "chunks": held.chunks,
            "vectors": held.vectors,
        }
    finally:
        store.close()


def _show_problems(problems: Sequence[str], checked: Mapping[str, Any]) -> None:
    for problem in problems:
        click.echo(f"problem: {problem}")
    counts = ", ".join(f"{count:,} {name}" for name, count in checked.items())
    click.echo(f"{len(problems)} problems; {REMEDY}" if problems else f"no problem ({counts})")

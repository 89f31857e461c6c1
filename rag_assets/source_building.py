"""The source that the configuration names, by its kind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rag_assets.errors import ConfigurationError
from rag_assets.pipeline.progress import Progress, silent
from rag_assets.project import DataFolder
from rag_assets.source_settings import (
    ENTRY_POINTS,
    BookStackSettings,
    CustomSettings,
    GitLabSettings,
    MarkdownSettings,
    NextcloudSettings,
    ServerSettings,
)
from rag_assets.sources.base import SourceContext
from rag_assets.sources.shards import Shard

if TYPE_CHECKING:
    from rag_assets.config import Config, Partition
    from rag_assets.models import SourceFile
    from rag_assets.sources.base import Source
    from rag_assets.sources.journal import Journal


def configured_source(
    config: Config,
    partition: Partition,
    *,
    full: bool,
    stores: bool,
    progress: Progress | None,
) -> Source:
    """Build the source of one partition; see ``components.build_source``."""
    settings = config.source(partition.source)
    shard = None
    if partition.shard_count > 1:
        shard = Shard(partition.shard_index, partition.shard_count)
    if isinstance(settings, CustomSettings):
        return _custom(config, settings, shard)
    locations = _rule_locations(config, [s.name for s in config.sources].index(settings.name))
    if isinstance(settings, MarkdownSettings) and settings.repository is None:
        return _markdown_tree(config, settings, shard, locations)
    last_look = None if full else _last_look(DataFolder(config.data_dir), partition)
    if isinstance(settings, MarkdownSettings):
        return _git_tree(config, settings, shard, locations, last_look)
    journal = _journal(config, settings, partition) if stores else None
    context = SourceContext(
        shard, locations, journal=journal, last_look=last_look, progress=progress or silent
    )
    if isinstance(settings, BookStackSettings):
        from rag_assets.sources.bookstack import BookStackSource

        return BookStackSource(settings, context)
    if isinstance(settings, GitLabSettings):
        from rag_assets.sources.gitlab import GitLabSource

        return GitLabSource(settings, context)
    assert isinstance(settings, NextcloudSettings)  # the last of the kinds
    from rag_assets.sources.nextcloud import NextcloudSource

    return NextcloudSource(settings, context)


def _markdown_tree(
    config: Config,
    settings: MarkdownSettings,
    shard: Shard | None,
    locations: Mapping[str, tuple[str, int]],
) -> Source:
    from rag_assets.sources.markdown_tree import MarkdownTree

    assert settings.root is not None  # the model requires it, or a repository
    return MarkdownTree(
        settings.name,
        settings.root,
        excluded_paths=settings.excluded_paths,
        included_paths=settings.included_paths,
        acl=settings.acl.to_rules(),
        url_template=settings.url,
        max_file_bytes=settings.max_file_bytes,
        skip_directories=(config.data_dir,),
        shard=shard,
        config_locations=locations,
    )


def _git_tree(
    config: Config,
    settings: MarkdownSettings,
    shard: Shard | None,
    locations: Mapping[str, tuple[str, int]],
    last_look: Mapping[str, Any] | None,
) -> Source:
    from rag_assets.sources.git.tree import GitTree

    assert settings.repository is not None  # asked by the caller
    token = settings.token.secret(f"sources.{settings.name}.token").read() if settings.token else ""
    work_dir = DataFolder(config.data_dir).git
    work_dir.mkdir(parents=True, exist_ok=True)
    return GitTree(
        settings.name,
        settings.repository,
        ref=settings.ref,
        folder=settings.folder or "",
        excluded_paths=settings.excluded_paths,
        included_paths=settings.included_paths,
        acl=settings.acl.to_rules(),
        url_template=settings.url,
        max_file_bytes=settings.max_file_bytes,
        shard=shard,
        config_locations=locations,
        username=settings.username,
        token=token,
        work_dir=work_dir,
        timeout_seconds=settings.timeout_seconds,
        last_look=last_look,
    )


def _custom(config: Config, settings: CustomSettings, shard: Shard | None) -> Source:
    from importlib.metadata import entry_points

    from rag_assets.components import construct

    options = dict(settings.options, name=settings.name, settings=settings)
    if shard is not None:
        options["shard"] = (shard.index, shard.count)
    found = [p for p in entry_points(group=ENTRY_POINTS) if p.name == settings.kind]
    import_path = found[0].value if found else settings.kind
    built: Source = construct(config, import_path, options, "Source", f"source {settings.name}")
    missing = [name for name in ("list", "look", "explain") if not hasattr(built, name)]
    if missing:
        raise ConfigurationError(
            f"{config.path} source {settings.name}: {import_path!r} lacks {', '.join(missing)}; it "
            "must name a class that implements Source"
        )
    return built


def _journal(config: Config, settings: ServerSettings, partition: Partition) -> Journal:
    """Keeps what a listing fetched, but not the bytes of what will be quarantined."""
    from rag_assets.pipeline.worker import shared_worker
    from rag_assets.sources.journal import Journal

    policies = settings.screening.policies()
    limits = config.parsing

    def may_keep(file: SourceFile) -> bool:
        worker = shared_worker(limits.seconds, limits.megabytes)
        return all(judged.may_be_kept for judged in worker.judge([file], policies, {}))

    return Journal(DataFolder(config.data_dir).journal(partition.key), may_keep)


def _last_look(data: DataFolder, partition: Partition) -> Mapping[str, Any] | None:
    with suppress(OSError, ValueError, KeyError, TypeError):
        look = json.loads(data.look_state(partition.key).read_bytes())["look"]
        return look if isinstance(look, Mapping) else None
    return None


def _rule_locations(config: Config, index: int) -> Mapping[str, tuple[str, int]]:
    """Where each excluded or included path stands in the file, for `explain`."""
    locations = {}
    settings = config.sources[index]
    for key in ("excluded_paths", "included_paths"):
        for number, rule in enumerate(getattr(settings, key)):
            line = config.line_of("sources", index, key, number)
            if line is not None:
                locations[rule] = (config.path.name, line)
    return locations

"""Where the ACL tags of an indexed document come from: configuration, rule, front matter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rag_assets.errors import AssetError
from rag_assets.project import DataFolder
from rag_assets.source_settings import MarkdownSettings

if TYPE_CHECKING:
    from rag_assets.config import Config
    from rag_assets.models import Document


@dataclass(frozen=True, slots=True)
class AclOrigin:
    """What decided, in the order in which it did, and what the next ingest would change."""

    decided_by: tuple[str, ...]
    """``acl.default (rag_assets.yaml:5)``, ``acl.rules[0] hr/** (...:7)``, ``front matter``."""
    pending: str | None = None
    """Set when the configuration now says something else than at the last ingest."""


def acl_origin(config: Config, document: Document) -> AclOrigin:
    """Explain ``document.acl_tags``; they are those of the last ingest."""
    given = _given_by_source(config, document)
    narrowed = ("front matter",) if given is not None and given != document.acl_tags else ()
    if not isinstance(config.source(document.source), MarkdownSettings):
        return AclOrigin((f"source {document.source}", *narrowed))
    rules = config.source(document.source).acl.to_rules()
    now = rules.tags_for(document.path)
    if given is not None and given != now:
        shown = ", ".join(now) or "none (visible to nobody)"
        pending = f"the ACL of the configuration changed; the next ingest grants: {shown}"
        return AclOrigin(("the configuration of the last ingest", *narrowed), pending)
    at = next(i for i, s in enumerate(config.sources) if s.name == document.source)
    found = [
        f"acl.rules[{number}] {', '.join(rules.rules[number].paths)}"
        + _line(config, "sources", at, "acl", "rules", number)
        for number in rules.matching(document.path)
    ]
    default = "acl.default" + _line(config, "sources", at, "acl", "default")
    return AclOrigin((*(found or [default]), *narrowed))


def _given_by_source(config: Config, document: Document) -> tuple[str, ...] | None:
    """Tags before front matter narrowed them, as of the last ingest; None when not known."""
    from rag_assets.pipeline.storage import AssetFiles, read_table
    from rag_assets.sources.shards import Shard

    files = AssetFiles(DataFolder(config.data_dir).assets)
    for partition in config.partitions([document.source]):
        if not Shard(partition.shard_index, partition.shard_count).holds(document.path):
            continue
        try:
            path = files.path("source_files", partition.key)
            table = read_table(path, columns=["path", "acl_tags"])
        except AssetError:
            return None
        paths = table["path"].to_pylist() if table is not None else []
        if table is not None and document.path in paths:
            return tuple(table["acl_tags"][paths.index(document.path)].as_py() or ())
    return None


def _line(config: Config, *key: str | int) -> str:
    line = config.line_of(*key)
    return f" ({config.path.name}:{line})" if line is not None else " (not set)"

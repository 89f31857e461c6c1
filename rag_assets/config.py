"""``rag_assets.yaml``: read with positions, checked, turned into one immutable ``Config``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from pydantic import Field, PrivateAttr, ValidationError, field_validator, model_validator

from rag_assets.errors import ConfigurationError
from rag_assets.project import CONFIG_NAME, config_path
from rag_assets.settings import (
    AutomationSettings,
    ChunkSettings,
    EmbeddingSettings,
    IndexSettings,
    ParsingSettings,
    RerankerSettings,
    RetrievalSettings,
    ServiceSettings,
    Strict,
)
from rag_assets.source_settings import (
    BUILT_IN,
    CUSTOM,
    AnySourceSettings,
    MarkdownSettings,
    SourceSettings,
)

__all__ = ["Config", "Partition", "SourceSettings", "find_config", "load_config"]

Position = tuple[int, int]
"""1-based line and column."""

DEEPEST_KEY: Final = 20


def find_config(path: str | os.PathLike[str] | None = None) -> Path:
    """The configuration file: ``path``, else ``$RAG_ASSETS_CONFIG``, else ./rag_assets.yaml.

    Raises:
        ConfigurationError: it does not exist; the message says where it was looked for.
    """
    return config_path(path)


class Partition(Strict):
    """The unit of work: one source, or one of its shards."""

    key: str
    source: str
    shard_index: int = 0
    shard_count: int = 1


class Config(Strict):
    """Everything ``rag_assets.yaml`` says, checked; paths are absolute."""

    data_dir: Path = Path(".rag_assets")
    sources: tuple[AnySourceSettings, ...] = Field(min_length=1)
    parsing: ParsingSettings = ParsingSettings()
    chunk: ChunkSettings = ChunkSettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    index: IndexSettings = IndexSettings()
    retrieval: RetrievalSettings = RetrievalSettings()
    automation: AutomationSettings = AutomationSettings()
    service: ServiceSettings = ServiceSettings()

    _path: Path = PrivateAttr(default=Path(CONFIG_NAME))
    _positions: dict[tuple[str | int, ...], Position] = PrivateAttr(default_factory=dict)

    @field_validator("data_dir", mode="before")
    @classmethod
    def _data_dir(cls, value: object) -> object:
        if isinstance(value, str) and "\0" in value:
            raise ValueError("must not contain a NUL character")
        return Path(value) if isinstance(value, str) and value.strip() else value

    @model_validator(mode="after")
    def _distinct(self) -> Config:
        seen: set[str] = set()
        for key in (p.key for p in self.partitions()):
            if key.casefold() in seen:
                raise ValueError(f"two sources give the partition {key!r}; rename one of them")
            seen.add(key.casefold())
        return self

    @property
    def path(self) -> Path:
        """The file this was read from."""
        return self._path

    def partitions(self, sources: Sequence[str] | None = None) -> list[Partition]:
        """Partitions of all sources, or of the named ones, in the file's order.

        Raises:
            ConfigurationError: a name is not configured.
        """
        known = {source.name for source in self.sources}
        for name in sources or ():
            if name not in known:
                raise ConfigurationError(
                    f"{self._path}: no source is named {name!r}; "
                    f"there are: {', '.join(sorted(known))}"
                )
        return [
            partition
            for source in self.sources
            if not sources or source.name in sources
            for partition in _shards(source)
        ]

    def partition(self, key: str) -> Partition:
        """The partition of that key.

        Raises:
            ConfigurationError: there is none.
        """
        for partition in self.partitions():
            if partition.key == key:
                return partition
        keys = ", ".join(p.key for p in self.partitions())
        raise ConfigurationError(f"{self._path}: no partition {key!r}; there are: {keys}")

    def source(self, name: str) -> AnySourceSettings:
        """The settings of one source.

        Raises:
            ConfigurationError: there is none of that name.
        """
        self.partitions([name])
        return next(source for source in self.sources if source.name == name)

    def line_of(self, *key: str | int) -> int | None:
        """1-based line of a key in the file, for messages."""
        position = self._positions.get(key)
        return position[0] if position else None


def _shards(source: SourceSettings) -> Iterator[Partition]:
    if source.shards == 1:
        yield Partition(key=source.name, source=source.name)
        return
    for index in range(source.shards):
        yield Partition(
            key=f"{source.name}-{index + 1}of{source.shards}",
            source=source.name,
            shard_index=index,
            shard_count=source.shards,
        )


def load_config(path: str | os.PathLike[str] | Config | None = None) -> Config:
    """Read and check the configuration file.

    Raises:
        ConfigurationError: ``file:line:column key: what is wrong`` for every fault, a line each.
    """
    if isinstance(path, Config):
        return path
    file = find_config(path)
    data, positions = _read(file)
    try:
        config = Config.model_validate(data)
    except ValidationError as exc:
        raise ConfigurationError(_explain(file, exc, positions)) from None
    base = file.parent
    resolved = config.model_copy(
        update={
            "data_dir": _absolute(base, config.data_dir),
            "embedding": _with_absolute_ca_file(base, config.embedding),
            "retrieval": _with_absolute_reranker(base, config.retrieval),
            "sources": tuple(_with_absolute_paths(base, s) for s in config.sources),
        }
    )
    resolved._path = file
    resolved._positions = positions
    return resolved


def _with_absolute_paths(base: Path, source: AnySourceSettings) -> AnySourceSettings:
    update: dict[str, object] = {}
    for key in ("root", "ca_file"):
        if (path := getattr(source, key, None)) is not None:
            update[key] = _absolute(base, path)
    repository = source.repository if isinstance(source, MarkdownSettings) else None
    if repository and not re.match(r"[\w+.-]+://|[^/]+@[^/]+:|[^/]{2,}:", repository):
        update["repository"] = str(_absolute(base, Path(repository)))
    return source.model_copy(update=update) if update else source


_WithCaFile = TypeVar("_WithCaFile", EmbeddingSettings, RerankerSettings)


def _with_absolute_ca_file(base: Path, settings: _WithCaFile) -> _WithCaFile:
    if settings.ca_file is None:
        return settings
    return settings.model_copy(update={"ca_file": _absolute(base, settings.ca_file)})


def _with_absolute_reranker(base: Path, settings: RetrievalSettings) -> RetrievalSettings:
    if settings.reranker is None:
        return settings
    reranker = _with_absolute_ca_file(base, settings.reranker)
    return settings.model_copy(update={"reranker": reranker})


def _absolute(base: Path, path: Path) -> Path:
    return Path(os.path.normpath(base / path.expanduser()))


def _read(file: Path) -> tuple[Any, dict[tuple[str | int, ...], Position]]:
    """The file as plain data, with the position of every key and item."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as exc:
        raise ConfigurationError(f"{file}: not UTF-8 (byte {exc.start}); save it as UTF-8") from exc
    except OSError as exc:
        raise ConfigurationError(f"{file}: cannot be read: {exc.strerror}") from exc
    try:
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        problem = getattr(exc, "problem", None) or str(exc)
        raise ConfigurationError(f"{file}{where} not valid YAML: {problem}") from exc
    if root is None:
        raise ConfigurationError(f"{file}: empty; `rag-assets init` writes a commented one")
    positions: dict[tuple[str | int, ...], Position] = {}
    return _plain(file, root, (), positions, set()), positions


def _plain(
    file: Path,
    node: yaml.Node,
    key: tuple[str | int, ...],
    positions: dict[tuple[str | int, ...], Position],
    seen: set[int],
) -> Any:
    if id(node) in seen:
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        raise ConfigurationError(f"{file}:{line}:{column} aliases are not supported; write it out")
    seen.add(id(node))
    positions.setdefault(key, (node.start_mark.line + 1, node.start_mark.column + 1))
    if len(key) > DEEPEST_KEY:
        raise ConfigurationError(f"{file}:{node.start_mark.line + 1} nested too deeply")
    if isinstance(node, yaml.MappingNode):
        mapping: dict[str, Any] = {}
        for name_node, value_node in node.value:
            name = str(name_node.value)
            child = (*key, name)
            line, column = name_node.start_mark.line + 1, name_node.start_mark.column + 1
            if name in mapping:
                raise ConfigurationError(f"{file}:{line}:{column} {_dotted(child)}: set twice")
            positions[child] = (line, column)
            mapping[name] = _plain(file, value_node, child, positions, seen)
        return mapping
    if isinstance(node, yaml.SequenceNode):
        return tuple(_plain(file, n, (*key, i), positions, seen) for i, n in enumerate(node.value))
    constructor = yaml.constructor.SafeConstructor()
    try:
        return constructor.construct_document(node)
    except (yaml.YAMLError, ValueError) as exc:
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        problem = getattr(exc, "problem", None) or str(exc).splitlines()[0]
        raise ConfigurationError(
            f"{file}:{line}:{column} {_dotted(key)}: not readable: {problem}"
        ) from exc


def _dotted(key: Sequence[str | int]) -> str:
    return ".".join(str(part) for part in key) or "(file)"


def _key(location: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """The key in the file: pydantic puts the kind of a source behind its number."""
    if location[:1] == ("sources",) and location[2:3] and location[2] in (*BUILT_IN, CUSTOM):
        return (*location[:2], *location[3:])
    return tuple(location)


def _suggestion(key: str) -> str:
    """A setting that is spelled nearly so, if there is one."""
    sections = Config.model_json_schema()["$defs"].values()
    names = {name for section in sections for name in section.get("properties", {})}
    close = get_close_matches(key, sorted({*names, *Config.model_fields}), n=1, cutoff=0.75)
    return f"; did you mean {close[0]}?" if close else ""


def _explain(
    file: Path, exc: ValidationError, positions: Mapping[tuple[str | int, ...], Position]
) -> str:
    lines = []
    keys = [_key(error["loc"]) for error in exc.errors()]
    for error, key in zip(exc.errors(), keys, strict=True):
        if error["type"] == "too_short" and any(k[: len(key)] == key != k for k in keys):
            continue  # items that are wrong are not counted: their own faults say it all
        at = key
        while at and at not in positions:
            at = at[:-1]
        line, column = positions.get(at, (1, 1))
        message = error["msg"].removeprefix("Value error, ")
        if error["type"] == "extra_forbidden":
            if (*key[:2], "kind") in keys:
                continue  # which keys there are depends on the kind
            message = "unknown key" + _suggestion(str(key[-1]))
        elif error["type"] == "missing":
            message = "missing"
        elif error["type"] == "tuple_type":
            message = "must be a list, such as [drafts]"
        elif error["type"] == "string_pattern_mismatch":
            message = f"{error['input']!r} does not fit; it must match {error['ctx']['pattern']}"
        lines.append(f"{file}:{line}:{column} {_dotted(key)}: {message}")
    return "\n".join(lines)

"""A throw-away project for tests: a tree, a configuration with a stub embedder, the pipeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rag_assets.acl import EVERYTHING
from rag_assets.components import open_index, open_reader
from rag_assets.config import Config, load_config
from rag_assets.index.base import VectorStore
from rag_assets.models import Hit, IngestRun
from rag_assets.pipeline.pipeline import Pipeline, RunOptions
from rag_assets.retrieval import open_retriever

STUB = "rag_assets.testing.embedders:StubEmbedder"


class Project:
    """Files under ``root``; ``run`` brings the index up to date without Dagster."""

    def __init__(self, folder: Path, *, root: str = "docs", **settings: Any) -> None:
        self.folder = folder
        self.root = folder / root
        self.root.mkdir(parents=True, exist_ok=True)
        self.log = folder / "embedded.log"
        self.runs = 0
        self.settings: dict[str, Any] = {
            "sources": [{"name": "docs", "root": root, "acl": {"default": ["public"]}}],
            "embedding": {"backend": STUB, "options": {"log_path": str(self.log)}},
        }
        self.configure(**settings)

    def configure(self, *, source: dict[str, Any] | None = None, **settings: Any) -> None:
        """Change keys of the one source, or whole sections, and write the file."""
        self.settings["sources"][0].update(source or {})
        self.settings.update(settings)
        self.path.write_text(json.dumps(self.settings), encoding="utf-8")

    @property
    def path(self) -> Path:
        """rag_assets.yaml."""
        return self.folder / "rag_assets.yaml"

    @property
    def config(self) -> Config:
        """The configuration as it is now."""
        return load_config(self.path)

    def write(self, path: str, text: str | bytes) -> Path:
        """Create or replace a file of the tree."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    def run(self, **options: Any) -> IngestRun:
        """Run every partition; the row of the last one."""
        pipeline = Pipeline(self.config)
        for partition in self.config.partitions():
            self.runs += 1
            row = pipeline.run(partition, RunOptions(f"run-{self.runs}", **options))
        return row

    def embedded(self) -> int:
        """How many texts the embedder was given since the project began."""
        return self.log.read_bytes().count(b"\n") if self.log.exists() else 0

    def reader(self) -> VectorStore:
        """The live index."""
        return open_reader(self.config)

    def writer(self) -> VectorStore:
        """The live index, to write to."""
        return open_index(self.config)

    def problems(self) -> list[str]:
        """What ``verify`` finds, in the index and against the assets."""
        from rag_assets.pipeline.verification import compare_with_assets

        store = self.reader()
        try:
            return [*store.verify(), *compare_with_assets(store, self.config)]
        finally:
            store.close()

    def search(self, query: str, k: int = 5, acl_tags: Any = EVERYTHING) -> list[Hit]:
        """Passages for a question."""
        retriever = open_retriever(self.path)
        try:
            return retriever.retrieve(query, k, acl_tags=acl_tags)
        finally:
            retriever.close()

"""A code location of its own that asks the index: questions in, a report of cited passages out."""

import re
from collections.abc import Sequence
from pathlib import Path

import dagster as dg
import yaml

from rag_assets.resources import RetrieverResource
from rag_assets.retrieval import Context, build_context

HERE = Path(__file__).resolve().parent


class QuestionsConfig(dg.Config):
    """Which questions are asked."""

    file: str = str(HERE.parent / "golden.yaml")
    """YAML with a list ``questions``, each with its ``question``."""
    limit: int = 5
    """At most so many, from the top of the list."""


class AnswersConfig(dg.Config):
    """On whose behalf the index is asked, and where the passages go."""

    acl_tags: list[str] = ["public"]  # noqa: RUF012 - dagster copies the default
    """The tags of the people who will read the report: nothing else is found for them."""
    k: int = 3
    """Passages for one question."""
    max_tokens: int = 1500
    """Of passages for one question, as for a prompt."""
    report: str = str(HERE / "report.md")


@dg.asset
def questions(config: QuestionsConfig) -> list[str]:
    """The questions, as people would type them."""
    entries = yaml.safe_load(Path(config.file).read_text("utf-8"))["questions"]
    return [entry["question"] for entry in entries[: config.limit]]


@dg.asset(deps=[dg.AssetKey("vector_index")])
def cited_passages(
    config: AnswersConfig, retriever: RetrieverResource, questions: list[str]
) -> dg.MaterializeResult[None]:
    """A Markdown file with the passages found for each question, and their sources."""
    with retriever.open() as opened:
        hits = opened.retrieve_many(questions, config.k, acl_tags=config.acl_tags)
    contexts = [build_context(found, config.max_tokens) for found in hits]
    sections = [_section(*pair) for pair in zip(questions, contexts, strict=True)]
    report = Path(config.report)
    report.write_text("\n\n".join(["# Cited passages", *sections]) + "\n", "utf-8")
    # Counts only: whoever opens the Dagster UI may not be among the readers of the report.
    return dg.MaterializeResult(
        metadata={
            "questions": len(questions),
            "passages": sum(len(context.hits) for context in contexts),
            "questions_without_passage": sum(not context.hits for context in contexts),
            "acl_tags": dg.MetadataValue.json(config.acl_tags),
            "report": dg.MetadataValue.path(report),
        }
    )


def _section(question: str, context: Context) -> str:
    """What was found for one question; the passages stand in fences that they cannot close."""
    heading = f"## {question}"
    if not context.hits:
        return f"{heading}\n\nNothing that these readers may see."
    return f"{heading}\n\n{context.text}\n\nSources:\n\n{_list(context.citations)}"


def _list(lines: Sequence[str]) -> str:
    """A Markdown list; titles come from documents, so their marks are escaped."""
    return "\n".join("- " + re.sub(r"([\\`*_{}\[\]()<>#!|~&])", r"\\\1", line) for line in lines)


@dg.definitions
def defs() -> dg.Definitions:
    """Two assets and the retriever of $RAG_ASSETS_CONFIG, or of ./rag_assets.yaml."""
    return dg.Definitions(
        assets=[questions, cited_passages], resources={"retriever": RetrieverResource()}
    )

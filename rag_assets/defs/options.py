"""What the five assets have in common, and when they are made without being asked for."""

from collections.abc import Callable
from typing import Any

import dagster as dg


def partition_asset(
    name: str,
    partitions: dg.PartitionsDefinition[str],
    code_version: str,
    *,
    kinds: set[str],
    description: str,
    **options: Any,
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """``dg.asset`` for one step of the pipeline; ``options`` are passed on to it."""
    decorate: Callable[[Callable[..., Any]], dg.AssetsDefinition] = dg.asset(
        name=name,
        partitions_def=partitions,
        code_version=code_version,
        group_name="ingest",
        kinds=kinds,
        owners=["team:rag-assets"],
        description=description,
        **options,
    )
    return decorate


def when_data_changed() -> dg.AutomationCondition[Any]:
    """``eager``, but only when the data version of an upstream asset changed.

    Plain ``eager`` asks again whenever upstream was materialised, even to the same data.
    """
    changed: dg.AutomationCondition[Any] = dg.AutomationCondition.any_deps_match(
        dg.AutomationCondition.data_version_changed()
    ).with_label("any_deps_changed")
    return dg.AutomationCondition.eager().replace("any_deps_updated", changed)

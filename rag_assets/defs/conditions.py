"""When Dagster materialises a downstream asset by itself: when its data changed."""

from typing import Any

import dagster as dg


def when_data_changed() -> dg.AutomationCondition[Any]:
    """``eager``, but only when the data version of an upstream asset changed.

    Plain ``eager`` asks again whenever upstream was materialised, even to the same data.
    """
    changed: dg.AutomationCondition[Any] = dg.AutomationCondition.any_deps_match(
        dg.AutomationCondition.data_version_changed()
    ).with_label("any_deps_changed")
    return dg.AutomationCondition.eager().replace("any_deps_updated", changed)

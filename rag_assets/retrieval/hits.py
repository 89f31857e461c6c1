"""A hit as JSON: the one shape of the command line, the HTTP service and whoever else asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rag_assets.models import Hit

FIELDS: Final = (
    "rank", "score", "score_kind", "vector_score", "text_score", "source", "path", "title",
    "section", "heading_path", "anchor", "url", "citation", "start_line", "end_line", "position",
    "language", "modified_at", "content",
)  # fmt: skip
"""The keys of ``hit_json``, in order; each is an attribute of ``Hit``."""


def hit_json(hit: Hit) -> dict[str, Any]:
    """A hit as plain JSON values, under the keys ``FIELDS``."""
    row = {name: getattr(hit, name) for name in FIELDS}
    row["heading_path"] = list(hit.heading_path)
    return row

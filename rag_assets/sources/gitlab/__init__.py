"""Markdown in the repositories and wikis of a GitLab."""

from rag_assets.sources.gitlab.source import GitLabSource

__all__ = ["GitLabSource"]

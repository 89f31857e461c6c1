"""Files in the folders of a Nextcloud, or of any WebDAV server."""

from rag_assets.sources.nextcloud.source import NextcloudSource

__all__ = ["NextcloudSource"]

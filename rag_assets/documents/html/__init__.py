"""HTML in, Markdown of what a reader sees out."""

from rag_assets.documents.html.convert import Converted, decode_html, html_to_markdown

__all__ = ["Converted", "decode_html", "html_to_markdown"]

"""The ``rag-assets`` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    from rag_assets.cli.commands import cli

    cli(prog_name="rag-assets")

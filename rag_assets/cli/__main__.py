"""``python -m rag_assets.cli``: the command without the console script."""

from rag_assets.cli import main

main()

"""The Dagster entry point: the code location of the configuration that is found from here."""

import dagster as dg

from rag_assets.config import load_config
from rag_assets.defs import build_definitions


@dg.definitions
def defs() -> dg.Definitions:
    """Definitions of $RAG_ASSETS_CONFIG, or of ./rag_assets.yaml."""
    return build_definitions(load_config())

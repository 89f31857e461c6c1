"""Secrets: named in the configuration, read from the environment, never shown."""

from __future__ import annotations

import os
from dataclasses import dataclass

from rag_assets.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Secret:
    """The place of a secret; printing it shows the name of the variable and nothing more."""

    variable: str
    """Name of the environment variable."""
    what: str
    """Its place in the configuration, such as ``sources.wiki.token``."""

    def read(self) -> str:
        """The secret, without white space around it.

        Raises:
            ConfigurationError: the variable is not set or empty, or holds what no header can carry.
        """
        value = os.environ.get(self.variable, "").strip()
        if not value:
            raise ConfigurationError(
                f"{self.what}: the environment variable {self.variable} is not set; set it where "
                "rag-assets and Dagster run"
            )
        if not (value.isascii() and value.isprintable()):
            raise ConfigurationError(
                f"{self.what}: the environment variable {self.variable} holds characters that a "
                "secret cannot have; copy it again"
            )
        return value

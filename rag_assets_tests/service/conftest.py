"""A service that is started once and only read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rag_assets_tests.service.live import Live, make_live


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A running service over a small index."""
    service = make_live(tmp_path_factory.mktemp("service"))
    yield service
    service.close()

"""Random requests after the OpenAPI document; see ``fuzz`` for the long run."""

from __future__ import annotations

import pytest

from rag_assets_tests.service.live import Live


def test_random_requests_find_no_server_error_no_leak_and_no_undocumented_answer(live: Live):
    """Statuses, headers, bodies are as the document says; wrong data is refused."""
    pytest.importorskip("schemathesis")
    from rag_assets_tests.service.fuzz import fuzz

    findings = fuzz(live, 150)
    assert findings.problems == []
    assert findings.server_errors == 0
    assert findings.cases >= 150
    assert findings.statuses[200] > 20
    assert findings.statuses[422] > 10

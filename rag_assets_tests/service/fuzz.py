"""Random requests after the OpenAPI document, right and wrong ones, against a running service.

``python -m rag_assets_tests.service.fuzz --cases 1000`` prints how many requests were sent, the
statuses, and every answer that breaks the document, is a 5xx, or holds a word of a hidden document;
it exits 1 when there is one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.core.failures import FailureGroup

from rag_assets_tests.service.live import HIDDEN, Live, make_live

CHECKS = {
    # It sends wrong tokens without end, which are 429 after a while; tested elsewhere.
    "ignored_auth": {"enabled": False},
    # A path pattern or a moment may be of the document's shape and still mean nothing: 422.
    "positive_data_acceptance": {"enabled": False},
    # Wrong data may also be too large.
    "negative_data_rejection": {
        "expected-statuses": [400, 401, 403, 404, 405, 406, 413, 415, 422, 429]
    },
}


@dataclass
class Findings:
    """What came out of a run."""

    statuses: Counter[int] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    @property
    def cases(self) -> int:
        """Requests that were answered."""
        return sum(self.statuses.values())

    @property
    def server_errors(self) -> int:
        """Answers of 500 and more."""
        return sum(count for status, count in self.statuses.items() if status >= 500)


def fuzz(live: Live, cases: int, *, token: str = "reader", seed: int = 0) -> Findings:
    """At least ``cases`` requests as ``token``, spread over operations and kinds of data."""
    # No proxy of the environment stands between us and a loopback address.
    os.environ["NO_PROXY"] = "127.0.0.1"
    schema = schemathesis.openapi.from_url(f"{live.url}/openapi.json", config=_config())
    findings = Findings()
    operations = [result.ok() for result in schema.get_all_operations()]
    kinds = [
        (operation, mode) for operation in operations for mode in GenerationMode
        if mode is GenerationMode.POSITIVE or operation.body or operation.path_parameters
    ]  # fmt: skip
    # An operation without parameters has one request: the others take its share.
    each = cases // max(1, sum(_has_input(operation) for operation, _ in kinds)) + 1
    with requests.Session() as session:
        session.trust_env = False
        for operation, mode in kinds:
            count = each if _has_input(operation) else 1
            while count > 0:
                before = findings.cases
                _run(operation, mode, count, live, token, seed, session, findings)
                seed += 1
                count -= max(1, findings.cases - before)
    return findings


def _has_input(operation: Any) -> bool:
    return bool(operation.body or operation.path_parameters)


def _config() -> SchemathesisConfig:
    return SchemathesisConfig.from_dict({"checks": CHECKS})


def _run(
    operation: Any,
    mode: GenerationMode,
    count: int,
    live: Live,
    token: str,
    seed: int,
    session: requests.Session,
    findings: Findings,
) -> None:
    headers = live.headers(token)

    def send(case: Any) -> None:
        response = case.call(base_url=live.url, headers=headers, session=session, timeout=30)
        findings.statuses[response.status_code] += 1
        told = f"{mode.value} {case.method} {case.formatted_path} {str(case.body)[:200]}"
        if response.status_code >= 500 or HIDDEN in response.text:
            findings.problems.append(f"{response.status_code} {told}: {response.text[:300]}")
        try:
            case.validate_response(response, headers=headers)
        except FailureGroup as exc:
            failures = "; ".join(str(failure) for failure in exc.exceptions)
            findings.problems.append(f"{told}: {failures[:2000]}")

    test = given(case=operation.as_strategy(generation_mode=mode))(send)
    test = settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )(test)
    with contextlib.redirect_stdout(sys.stderr):
        seeded(seed)(test)()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        live = make_live(Path(folder))
        try:
            findings = fuzz(live, arguments.cases, seed=arguments.seed)
        finally:
            live.close()
    for problem in findings.problems:
        print(problem)
    statuses = ", ".join(
        f"{status}: {count}" for status, count in sorted(findings.statuses.items())
    )
    print(f"{findings.cases} cases ({statuses})")
    print(f"{findings.server_errors} answers of 5xx, {len(findings.problems)} problems")
    return 1 if findings.problems or findings.server_errors else 0


if __name__ == "__main__":
    sys.exit(main())

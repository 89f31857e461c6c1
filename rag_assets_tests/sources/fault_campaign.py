"""Runs a source against every kind of fault, and says where it lost documents or a secret.

``python -m rag_assets_tests.sources.fault_campaign [NAME ...]`` runs all kinds at all moments for
each module of this folder that has a function ``campaign_setup() -> ContextManager[Setup]``, and
prints a table.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from rag_assets.errors import SourceError
from rag_assets.http_client import HttpLimits
from rag_assets.models import SourceFile, SourceListing
from rag_assets.sources.base import Source
from rag_assets_tests.certificates import Certificates, make_certificates
from rag_assets_tests.fault_kinds import FAULTS
from rag_assets_tests.fault_proxy import (
    Canary,
    Fault,
    FaultProxy,
    Request,
    Rule,
    When,
)
from rag_assets_tests.sources.secret_watch import SecretWatch, watching

MakeSource = Callable[[str, HttpLimits], Source]
"""A new source over the server at an address. Called for every case, several at once: what it keeps
on disk must be in a folder of its own."""
Moment = Literal["first", "listing", "content"]
"""The first request of a listing; one in the middle of what lists; one that reads a document."""
Verdict = Literal["failed", "healed", "left out", "not applicable", "WRONG"]

LIMITS: Final = HttpLimits(
    connect_timeout_seconds=0.5,
    timeout_seconds=0.7,
    deadline_seconds=2.0,
    retries=2,
    backoff_seconds=0.01,
    retry_after_cap_seconds=0.2,
)
"""So short that a test of patience takes two seconds at most."""
MOST_SECONDS: Final = 30.0
"""One listing through the proxy; deadlines are 2 s a request."""
MOST_MEGABYTES: Final = 256
MOMENTS: Final[tuple[Moment, ...]] = ("first", "listing", "content")
LEFT_OUT_REASONS: Final = frozenset({"unreadable", "vanished", "too_large"})
"""Of these a document may be left out whose own content cannot be had."""
SLOW_AT_ONCE: Final = 6


@dataclass(frozen=True, slots=True)
class Setup:
    """A source and the server it reads, ready to be attacked."""

    peer_url: str
    make_source: MakeSource
    expected_paths: Collection[str]
    secret: str
    content_requests: str = ""
    """Regular expression over ``METHOD target``: what reads one document. Empty: what a listing
    with everything known does not ask for."""
    exempt: Mapping[str, str] = field(default_factory=dict)
    """Fault, or ``fault@moment``, to why it is not held against this source."""

    def run(self, *, faults: Iterable[str] | None = None, thorough: bool = False) -> Campaign:
        """See ``run``."""
        return run(
            self.peer_url,
            self.make_source,
            expected_paths=self.expected_paths,
            secret=self.secret,
            content_requests=self.content_requests,
            exempt=self.exempt,
            faults=faults,
            thorough=thorough,
        )


@dataclass(frozen=True, slots=True)
class Case:
    """What came of one fault at one moment."""

    fault: str
    moment: Moment
    verdict: Verdict
    detail: str
    seconds: float
    megabytes: float
    """By how much the process grew, at its peak."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """What came of all."""

    cases: tuple[Case, ...]

    @property
    def wrong(self) -> tuple[Case, ...]:
        """The cases in which the source did what it must not."""
        return tuple(case for case in self.cases if case.verdict == "WRONG")

    @property
    def applied(self) -> frozenset[str]:
        """The kinds of fault that the source really met."""
        return frozenset(c.fault for c in self.cases if c.verdict != "not applicable")

    def check(self, at_least: int = 25) -> None:
        """Raises AssertionError: a case went wrong, or too few kinds applied."""
        lines = [f"{c.fault} at {c.moment}: {c.detail}" for c in self.wrong]
        heading = f"{len(lines)} of {len(self.cases)} cases went wrong:"
        assert not lines, "\n".join([heading, *lines])
        assert len(self.applied) >= at_least, f"only {len(self.applied)} kinds of fault applied"


def run(
    peer_url: str,
    make_source: MakeSource,
    *,
    expected_paths: Collection[str],
    secret: str,
    content_requests: str = "",
    exempt: Mapping[str, str] | None = None,
    faults: Iterable[str] | None = None,
    thorough: bool = False,
    most_seconds: float = MOST_SECONDS,
    most_megabytes: float = MOST_MEGABYTES,
) -> Campaign:
    """Attack the source and report; ``Campaign.check`` raises.

    ``faults`` names kinds (None: all of ``FAULTS``). ``thorough``: all moments, each again with
    everything known, and then a listing of the healed server; otherwise slow kinds meet only the
    middle of the listing and the others the middle and a content.

    Raises:
        AssertionError: without any fault the listing is not ``expected_paths``.
    """
    setup = Setup(peer_url, make_source, expected_paths, secret, content_requests, exempt or {})
    with watching(secret) as watch, Canary(peer_url) as canary:
        attack = _Attack(setup, canary, watch, thorough, most_seconds, most_megabytes)
        attack.probe()
        plan = list(attack.plan(FAULTS[name] for name in faults or FAULTS))
        quick = [attack.case(fault, moment) for fault, moment in plan if not fault.slow]
        with ThreadPoolExecutor(SLOW_AT_ONCE) as pool:
            waiting = [pair for pair in plan if pair[0].slow]
            slow = list(pool.map(lambda pair: attack.case(*pair), waiting))
    order = {name: number for number, name in enumerate(FAULTS)}
    return Campaign(tuple(sorted((*quick, *slow), key=lambda case: order[case.fault])))


# ---------------------------------------------------------------- one attack


@dataclass(slots=True)
class _Attack:
    """What is known of a source when it is well, and how it is attacked."""

    setup: Setup
    canary: Canary
    watch: SecretWatch
    thorough: bool
    most_seconds: float
    most_megabytes: float
    known: dict[str, SourceFile] = field(default_factory=dict)
    baseline: dict[str, object] = field(default_factory=dict)
    name: str = ""
    patterns: dict[Moment, str] = field(default_factory=dict)
    """By moment, the regular expression of the requests that are then attacked."""
    media: dict[Moment, str] = field(default_factory=dict)
    """By moment, the content type of the answer to them."""
    types: dict[str, str] = field(default_factory=dict)
    """By ``METHOD target``, the content type of the answer."""

    def probe(self) -> None:
        """List without faults: what is right, and which requests that takes."""
        first, listing = self._recorded(None)
        self.watch.learn(first)
        found = [file.path for file in listing.files]
        assert sorted(found) == sorted(self.setup.expected_paths), (
            f"without any fault the source lists {sorted(found)}"
        )
        self.name = listing.source
        self.baseline = _essence(listing)
        self.known = {file.path: file for file in listing.files}
        again, repeated = self._recorded(self.known)
        assert _essence(repeated) == self.baseline, "a second listing differs from the first"
        second, _ = self._recorded(None)
        stable = {r.line for r in first} & {r.line for r in second}
        reading = self._reading(first, {r.line for r in again})
        listed = list(dict.fromkeys(r.line for r in first if r.line not in reading))
        contents = list(dict.fromkeys(r.line for r in first if r.line in reading))
        targets: dict[Moment, str] = {"first": first[0].line, "listing": listed[len(listed) // 2]}
        if contents:
            targets["content"] = contents[len(contents) // 2]
        for moment, line in targets.items():
            self.patterns[moment] = _pattern(line, stable)
            self.media[moment] = self.types[line]

    def _recorded(
        self, known: Mapping[str, SourceFile] | None
    ) -> tuple[list[Request], SourceListing]:
        with FaultProxy(self.setup.peer_url) as proxy:
            listing = self.setup.make_source(proxy.url, LIMITS).list(known)
            self.types.update(proxy.media)
            return list(proxy.requests), listing

    def _reading(self, requests: Iterable[Request], again: Collection[str]) -> set[str]:
        """The lines of the requests that read one document."""
        if self.setup.content_requests:
            return {r.line for r in requests if re.search(self.setup.content_requests, r.line)}
        return {r.line for r in requests if r.method == "GET" and r.line not in again}

    def plan(self, faults: Iterable[Fault]) -> Iterator[tuple[Fault, Moment]]:
        """Which fault is met when."""
        for fault in faults:
            if fault.server != "plain" or fault.reach == "server":
                yield fault, "first"
            elif self.thorough:
                yield from ((fault, moment) for moment in MOMENTS if moment in self.patterns)
            else:
                yield fault, "listing"
                if "content" in self.patterns and not fault.slow and fault.reach == "request":
                    yield fault, "content"

    def case(self, fault: Fault, moment: Moment) -> Case:
        """Meet one fault at one moment, and judge."""
        if fault.media not in self.media[moment] and fault.reach != "server":
            kind = self.media[moment] or "of no type"
            return Case(fault.name, moment, "not applicable", f"the answer is {kind}", 0, 0)
        try:
            certificates = make_certificates() if fault.server.startswith("tls") else None
        except (OSError, ValueError) as error:
            return Case(fault.name, moment, "not applicable", f"no certificates: {error}", 0, 0)
        rule = Rule(fault, self._when(fault, moment))
        asked_before = len(self.canary.requests)
        proxy = FaultProxy(
            self.setup.peer_url,
            [rule] if fault.behave else [],
            server=fault.server,
            canary=self.canary,
            certificates=certificates,
        )
        patience = self.most_seconds * (3 if self.thorough else 1)  # as many listings
        before = _peak_megabytes(restart=not fault.slow)
        with proxy, _trusting(certificates), _stopping(proxy, patience):
            began = time.monotonic()
            outcome = self._list(proxy)
            seconds = time.monotonic() - began
            grown = _peak_megabytes() - before if not fault.slow else 0.0
            verdict, detail = self._judge(fault, moment, rule, outcome, proxy)
            faults = [
                *self._excesses(proxy, grown),
                *self._with_all_known(fault, moment, rule, proxy),
                *self._aftermath(proxy, rule),
                *self._leaks(outcome, self.canary.requests[asked_before:]),
            ]
        if faults and verdict != "not applicable":
            verdict, detail = "WRONG", "; ".join([*([detail] * (verdict == "WRONG")), *faults])
        excuse = self.setup.exempt.get(fault.name) or self.setup.exempt.get(
            f"{fault.name}@{moment}"
        )
        if verdict == "WRONG" and excuse:
            verdict, detail = "not applicable", f"exempt: {excuse}"
        return Case(fault.name, moment, verdict, detail, seconds, grown)

    def _when(self, fault: Fault, moment: Moment) -> When:
        if fault.reach == "server":
            return When(count=fault.count)
        pattern = self.patterns.get(moment, "")
        if fault.reach == "path":
            pattern = pattern.partition(r"\?")[0].removesuffix("$") + r"(\?|$)"
        return When(pattern, count=fault.count)

    def _list(
        self, proxy: FaultProxy, known: Mapping[str, SourceFile] | None = None
    ) -> SourceListing | BaseException:
        try:
            return self.setup.make_source(proxy.url, LIMITS).list(known)
        except Exception as error:  # noqa: BLE001 - every kind of error is judged
            return error

    def _judge(
        self,
        fault: Fault,
        moment: Moment,
        rule: Rule,
        outcome: SourceListing | BaseException,
        proxy: FaultProxy,
    ) -> tuple[Verdict, str]:
        if fault.behave is not None and not rule.fired:
            why = "no answer of this kind" if rule.inapplicable else "no request met it"
            return "not applicable" if rule.inapplicable else "WRONG", why
        expected = fault.expected(on_content=moment == "content")
        if isinstance(outcome, BaseException):
            wrong = self._wrong_error(outcome, proxy)
            if expected == "must_heal" and not wrong:
                wrong = "it gave up, though trying again helps"
            said = " ".join(str(outcome).split())[:300]
            return ("WRONG", f"{wrong}: {said}") if wrong else ("failed", said)
        found = _essence(outcome)
        if len(outcome.files) != len(found):
            return "WRONG", "a document is in the listing twice"
        if found == self.baseline:
            if expected == "must_fail":
                return "WRONG", "it passed over the fault as if nothing were"
            return "healed", "complete"
        if expected == "may_leave_out" and self._is_left_out(outcome, found):
            return "left out", next(iter(self.baseline.keys() - found.keys()))
        return "WRONG", _difference(self.baseline, found)

    def _is_left_out(self, listing: SourceListing, found: Mapping[str, object]) -> bool:
        """Whether all that is missing is one document, which is reported."""
        missing = self.baseline.keys() - found.keys()
        rest = {path: seen for path, seen in self.baseline.items() if path not in missing}
        reported = {row.path for row in listing.left_out if row.reason in LEFT_OUT_REASONS}
        return len(missing) == 1 and missing <= reported and found == rest

    def _wrong_error(self, error: BaseException, proxy: FaultProxy) -> str:
        if not isinstance(error, SourceError):
            return f"an error outside of the tree, {type(error).__name__}"
        if self.name not in str(error):
            return "the error does not name the source"
        if proxy.address not in str(error):
            return "the error does not name the server"
        return ""

    def _leaks(
        self, outcome: SourceListing | BaseException, elsewhere: Sequence[Request]
    ) -> Iterator[str]:
        """Where the secret, or what must stay here, went."""
        yield from self.watch.take()
        if isinstance(outcome, BaseException):
            text = "".join(traceback.format_exception(outcome)) + repr(outcome)
        else:
            text = repr(outcome) + json.dumps(dict(outcome.look_state), default=repr)
        if self.watch.holds_secret(text):
            yield "the secret stands in the error or the listing"
        if elsewhere:
            sent = any(self.watch.holds_secret(repr(r.headers) + r.line) for r in elsewhere)
            yield "the secret went to another host" if sent else "another host was asked"

    def _excesses(self, proxy: FaultProxy, grown: float) -> Iterator[str]:
        if proxy.gave_up:
            yield f"it did not end within {self.most_seconds:g} s"
        if grown > self.most_megabytes:
            yield f"it took {grown:.0f} MB"

    def _with_all_known(
        self, fault: Fault, moment: Moment, rule: Rule, proxy: FaultProxy
    ) -> Iterator[str]:
        """What is wrong when the fault meets a source that has everything already."""
        if not self.thorough or fault.behave is None or proxy.gave_up:
            return
        rule.restart()
        proxy.listen_again()
        outcome = self._list(proxy, self.known)
        if rule.fired:
            verdict, detail = self._judge(fault, moment, rule, outcome, proxy)
            if verdict == "WRONG":
                yield f"with everything known: {detail}"

    def _aftermath(self, proxy: FaultProxy, rule: Rule) -> Iterator[str]:
        """What is wrong with the listing after the server is well again."""
        if not self.thorough or rule.fault.behave is None or proxy.gave_up:
            return
        proxy.rules = []
        proxy.listen_again()
        outcome = self._list(proxy)
        if isinstance(outcome, BaseException):
            yield f"afterwards it fails still: {outcome}"
        elif _essence(outcome) != self.baseline:
            yield "afterwards " + _difference(self.baseline, _essence(outcome))


def _essence(listing: SourceListing) -> dict[str, object]:
    """By path, what must not depend on how the server felt. URLs hold the proxy's port."""
    return {
        f.path: (f.source, f.content_hash, f.modified_at, f.acl_tags, f.media_type, f.title)
        for f in listing.files
    }


def _difference(right: Mapping[str, object], found: Mapping[str, object]) -> str:
    lost = sorted(right.keys() - found.keys())
    more = sorted(found.keys() - right.keys())
    other = sorted(path for path in right.keys() & found.keys() if right[path] != found[path])
    return "; ".join(
        f"{what} {len(paths)} of {len(right)} ({', '.join(paths[:3])})"
        for what, paths in {"lost": lost, "invented": more, "altered": other}.items()
        if paths
    )


def _pattern(line: str, stable: Collection[str]) -> str:
    """One request, by all of its line where that is always the same."""
    if line in stable:
        return f"^{re.escape(line)}$"
    return f"^{re.escape(line.partition('?')[0])}" + r"(\?|$)"


@contextlib.contextmanager
def _trusting(certificates: Certificates | None) -> Iterator[None]:
    """Trust the test's own authority."""
    before = os.environ.get("SSL_CERT_FILE")
    if certificates is not None:
        os.environ["SSL_CERT_FILE"] = str(certificates.authority)
    try:
        yield
    finally:
        if certificates is not None:
            os.environ.pop("SSL_CERT_FILE")
            if before is not None:
                os.environ["SSL_CERT_FILE"] = before


@contextlib.contextmanager
def _stopping(proxy: FaultProxy, seconds: float) -> Iterator[None]:
    """End the run when it takes longer."""
    timer = threading.Timer(seconds, proxy.give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _peak_megabytes(*, restart: bool = False) -> float:
    """The most memory this process has had (since the last ``restart``, where Linux allows it)."""
    import resource

    if restart:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", "ascii")
    with contextlib.suppress(OSError):
        status = Path("/proc/self/status").read_text("ascii", "replace")
        if found := re.search(r"VmHWM:\s*(\d+)", status):
            return int(found[1]) / 1024
    unit = 1024 * 1024 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


# ---------------------------------------------------------------- the long version


def setups() -> dict[str, Callable[[], contextlib.AbstractContextManager[Setup]]]:
    """By name, the sources that can be attacked: modules here with a ``campaign_setup``."""
    found = {}
    for file in sorted(Path(__file__).parent.glob("*.py")):
        if re.search(r"^def campaign_setup\(", file.read_text("utf-8"), re.MULTILINE):
            module = importlib.import_module(f"{__package__}.{file.stem}")
            name = file.stem.removeprefix("test_").removesuffix("_faults")
            found[name] = module.campaign_setup
    return found


def table(campaigns: Mapping[str, Campaign]) -> str:
    """A line for each kind, a column for each source: the letters of its verdicts, by moment."""
    names = list(campaigns)
    lines = [f"{'fault':26}" + "".join(f"{name:>14}" for name in names)]
    for fault in FAULTS:
        cells = [_cell(campaigns[name], fault) for name in names]
        lines.append(f"{fault:26}" + "".join(f"{cell:>14}" for cell in cells))
    return "\n".join([*lines, "", _LEGEND])


_LEGEND: Final = (
    "by moment (first request, listing, content): F failed as it must, H healed, L one document "
    "left out with a reason, - not applicable, W wrong"
)
_LETTERS: Final[dict[Verdict, str]] = {
    "failed": "F", "healed": "H", "left out": "L", "not applicable": "-", "WRONG": "W",
}  # fmt: skip


def _cell(campaign: Campaign, fault: str) -> str:
    by_moment = {c.moment: _LETTERS[c.verdict] for c in campaign.cases if c.fault == fault}
    return "".join(by_moment.get(moment, " ") for moment in MOMENTS)


def main(names: Sequence[str]) -> int:
    """Attack the named sources, or all; the number of cases that went wrong, at most 100."""
    campaigns = {}
    for name, setup in setups().items():
        if names and name not in names:
            continue
        began = time.monotonic()
        with setup() as ready:
            campaigns[name] = campaign = ready.run(thorough=True)
        peak = max(case.megabytes for case in campaign.cases)
        print(
            f"{name}: {len(campaign.applied)} kinds, {len(campaign.cases)} cases, "
            f"{len(campaign.wrong)} wrong, +{peak:.0f} MB at most, "
            f"{time.monotonic() - began:.0f} s"
        )
        for case in campaign.wrong:
            print(f"  {case.fault} at {case.moment}: {case.detail}")
    print(table(campaigns))
    return min(100, sum(len(campaign.wrong) for campaign in campaigns.values()))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

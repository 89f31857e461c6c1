"""The fault proxy does what it says, right sources withstand it, and wrong ones are caught."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from rag_assets_tests.fault_kinds import FAULTS
from rag_assets_tests.fault_proxy import Canary, Fault, FaultProxy, Rule, When
from rag_assets_tests.sources import demo_wiki
from rag_assets_tests.sources.demo_wiki import TEXTS, TOKEN, DemoWiki, WikiSource, XmlWikiSource
from rag_assets_tests.sources.fault_campaign import MakeSource, Setup, run, setups, table

XML_FAULTS = [
    *(name for name in FAULTS if name.startswith("xml_")),
    "login_page_in_disguise", "cut_body", "bytes_not_utf8", "empty_body", "status_404",
]  # fmt: skip

WRONG: dict[str, tuple[list[str], str]] = {
    "GivesPartialListings": (["status_500"], "lost 5 of 8"),
    "GivesNothingWhenDown": (["connection_refused"], "lost 8 of 8"),
    "SkipsUnreadablePages": (["status_404"], "lost 1 of 8"),
    "BelievesEveryText": (["login_page"], "altered 1 of 8"),
    "LogsTheToken": (["status_401"], "log record of demo"),
    "PrintsTheToken": (["status_401"], "printed"),
    "TellsTheTokenInErrors": (["status_401"], "in the error"),
    "KeepsTheTokenInItsState": (["status_500_once"], "the listing"),
    "RaisesWhatComes": (["json_null"], "outside of the tree, TypeError"),
    "SaysNothingOfItself": (["status_500"], "does not name the source"),
    "GivesUpAtOnce": (["status_503_then_well"], "trying again helps"),
    "TakesDuplicates": (["repeated_item"], "in the listing twice"),
    "AsksWithoutLimits": (["redirect_307_elsewhere"], "the secret went to another host"),
    "TrustsAnyCertificate": (["tls_wrong_host"], "passed over the fault"),
    "AsksForEver": (["same_page_for_ever"], "did not end within"),
    "KeepsWhatWasWrong": (["json_null"], "afterwards altered 1 of 8"),
}
"""Wrong connectors of ``demo_wiki``, faults that show them, and what is said of them."""


@contextmanager
def wiki_of(make_source: MakeSource) -> Iterator[Setup]:
    """The demo wiki with one of its connectors."""
    with DemoWiki() as wiki:
        yield Setup(wiki.url, make_source, TEXTS.keys(), TOKEN)


def campaign_setup() -> object:
    """The right connector, for the long version of the campaign."""
    return wiki_of(WikiSource)


def ask(proxy: FaultProxy, *targets: str) -> list[int]:
    """Statuses of GETs over one connection; 0 for one that is broken off."""
    statuses = []
    for target in targets:
        client = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=5)
        try:
            client.request("GET", target, headers={"X-Token": TOKEN})
            answer = client.getresponse()
            answer.read()
            statuses.append(answer.status)
        except (OSError, http.client.HTTPException):
            statuses.append(0)
        finally:
            client.close()
    return statuses


def test_every_kind_is_described_and_has_an_effect() -> None:
    """At least 25 kinds; each says what it does and is done by a behaviour or by the server."""
    assert len(FAULTS) >= 25
    for name, fault in FAULTS.items():
        assert name == fault.name
        assert len(fault.does.split()) >= 1
        assert (fault.behave is None) == (fault.server != "plain")
    assert len({fault.does for fault in FAULTS.values()}) >= len(FAULTS) - 3  # four redirects


def test_without_rules_everything_passes_unchanged() -> None:
    """Status, type and bytes are the peer's, over one kept-alive connection."""
    with DemoWiki() as wiki, FaultProxy(wiki.url) as proxy:
        client = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=5)
        for target in ("/api/pages?offset=3&count=2", "/raw/guides/page-01.md", "/nowhere"):
            client.request("GET", target, headers={"X-Token": TOKEN})
            answer = client.getresponse()
            status, kind, body = wiki.answer(target)
            found = (answer.status, answer.getheader("content-type"), answer.read())
            assert found == (status, kind, body)
        client.close()
        assert proxy.requests[0].target == "/api/pages?offset=3&count=2"
        assert proxy.url == f"http://{proxy.address}{urlsplit(wiki.url).path}"


@pytest.mark.parametrize(
    ("when", "statuses"),
    [
        (When(), [500, 500, 500, 500]),
        (When(first=2, count=1), [200, 500, 200, 200]),
        (When(count=2), [500, 500, 200, 200]),
        (When(pattern=r"^GET /raw/"), [200, 200, 500, 500]),
        (When(pattern=r"^GET /raw/", first=2), [200, 200, 200, 500]),
    ],
    ids=["all", "the second", "the first two", "by path", "from the second of a path"],
)
def test_rules_choose_requests(when: When, statuses: list[int]) -> None:
    """By number, by path, all, or the first ones."""
    asked = ("/api/pages", "/api/pages/1", "/raw/guides/page-01.md", "/raw/guides/page-02.md")
    rule = Rule(FAULTS["status_500"], when)
    with DemoWiki() as wiki, FaultProxy(wiki.url, [rule]) as proxy:
        assert ask(proxy, *asked) == statuses
    assert rule.fired == statuses.count(500)


def test_server_that_dies_refuses_everybody() -> None:
    """After the fault no connection is accepted, and open ones are reset."""
    rule = Rule(FAULTS["refused_from_now_on"], When(first=2))
    with DemoWiki() as wiki, FaultProxy(wiki.url, [rule]) as proxy:
        assert ask(proxy, "/api/pages", "/api/pages", "/api/pages") == [200, 0, 0]


def test_fault_that_does_not_apply_lets_the_answer_through() -> None:
    """JSON has no entities: the rule is counted as inapplicable."""
    rule = Rule(FAULTS["xml_laughs"])
    with DemoWiki() as wiki, FaultProxy(wiki.url, [rule]) as proxy:
        assert ask(proxy, "/api/pages") == [200]
        assert (rule.fired, rule.inapplicable) == (0, 1)


def test_own_addresses_of_the_peer_are_replaced_in_headers() -> None:
    """A link or a redirect of the peer to itself leads through the proxy."""
    elsewhere = Fault("moved", "leads to the peer itself", "may_either", lambda exchange: (
        exchange.respond(exchange.forward().with_header("Link", exchange.request.header("x-link")))
    ))  # fmt: skip
    with (
        DemoWiki() as wiki,
        FaultProxy(wiki.url, [Rule(elsewhere)]) as first,
        FaultProxy(first.url) as second,
    ):
        client = http.client.HTTPConnection("127.0.0.1", second.port, timeout=5)
        link = f'<{first.origin}/api/pages?page=2>; rel="next"'
        client.request("GET", "/api/pages", headers={"X-Token": TOKEN, "X-Link": link})
        found = client.getresponse().getheader("link")
        client.close()
        assert found == link.replace(first.origin, second.origin)


def test_canary_answers_as_the_peer_does() -> None:
    """Who follows a redirect to it gets pages, so only the canary's record shows the mistake."""
    with DemoWiki() as wiki, Canary(wiki.url) as canary:
        port = urlsplit(canary.origin).port
        client = http.client.HTTPConnection("localhost", port, timeout=5)
        client.request("GET", "/raw/guides/page-00.md", headers={"X-Token": TOKEN})
        assert client.getresponse().read().decode() == TEXTS["guides/page-00.md"]
        client.close()
        assert [r.header("x-token") for r in canary.requests] == [TOKEN]


@pytest.mark.slow
def test_right_source_withstands_every_fault() -> None:
    """No document lost, no secret shown, memory and time bounded; at least 75 kinds apply."""
    with wiki_of(WikiSource) as setup:
        campaign = setup.run()
    campaign.check(at_least=75)
    verdicts = {case.verdict for case in campaign.cases}
    assert verdicts == {"failed", "healed", "left out", "not applicable"}
    assert re.search(r"^status_404 +FL$", table({"wiki": campaign}), re.MULTILINE)


def test_right_xml_source_withstands_hostile_xml() -> None:
    """Entities, DTDs, floods and depths; contents that are checked against the listing."""
    with wiki_of(XmlWikiSource) as setup:
        setup.run(faults=XML_FAULTS).check(at_least=len(XML_FAULTS))


@pytest.mark.parametrize("name", WRONG)
def test_wrong_source_is_caught(name: str) -> None:
    """Each kind of mistake is found by a fault that shows it, and said in plain words."""
    faults, words = WRONG[name]
    with wiki_of(getattr(demo_wiki, name)) as setup:
        campaign = run(
            setup.peer_url,
            setup.make_source,
            expected_paths=setup.expected_paths,
            secret=setup.secret,
            content_requests=r"/api/pages/\d+$",
            faults=faults,
            thorough=name == "KeepsWhatWasWrong",
            most_seconds=1.5,
        )
    with pytest.raises(AssertionError, match="went wrong"):
        campaign.check(at_least=1)
    assert words in "\n".join(case.detail for case in campaign.wrong)


def test_growth_over_the_bound_is_noticed() -> None:
    """Memory is measured at its peak, while the fault is met."""
    with wiki_of(WikiSource) as setup:
        campaign = run(
            setup.peer_url,
            setup.make_source,
            expected_paths=setup.expected_paths,
            secret=setup.secret,
            faults=["gzip_bomb"],
            most_megabytes=8,
        )
    assert re.search(r"it took \d+ MB", campaign.wrong[0].detail)


def test_exempted_fault_is_not_held_against_the_source() -> None:
    """An exemption names the fault, or the fault at a moment, and why."""
    with wiki_of(demo_wiki.GivesUpAtOnce) as setup:
        exempt = {"status_500_once@listing": "known", "status_502_once": "known"}
        given = Setup(setup.peer_url, setup.make_source, setup.expected_paths, TOKEN, "", exempt)
        campaign = given.run(faults=["status_500_once", "status_502_once"])
    assert [(case.fault, case.moment) for case in campaign.wrong] == [
        ("status_500_once", "content")
    ]


def test_source_that_lists_something_else_is_refused_before_any_fault() -> None:
    """What is wrong without a fault is no matter of faults."""
    with wiki_of(WikiSource) as setup, pytest.raises(AssertionError, match="without any fault"):
        run(setup.peer_url, WikiSource, expected_paths=["other.md"], secret=TOKEN)


def test_long_version_finds_what_can_be_attacked() -> None:
    """Modules of this folder with a ``campaign_setup`` are found by name."""
    assert "fault_proxy" in setups()

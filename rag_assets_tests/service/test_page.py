"""The diagnostic page over a real server: who may see it, what it shows, and that it is safe."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote_plus

import pytest

from rag_assets.errors import Unavailable
from rag_assets.models import LeftOut
from rag_assets.retrieval import open_retriever
from rag_assets_tests.project import Project
from rag_assets_tests.service.browsing import Browser, Html, check_page
from rag_assets_tests.service.live import Live

HOSTILE = """---
title: '"><script>alert(1)</script> <b>Badge</b>'
owner: "</dd><img src=x onerror=alert(2)>"
---
# Badge \u202etxt.exe {{ 7*7 }}

A badge opens the door.\u200b <script>alert(3)</script> <!-- --> </bdi></main> ]]>

## <a href="javascript:alert(4)">Renew</a>

Renew the badge with 'quotes', "double quotes" & an ampersand.
"""
PAGES = ("/", "/left-out", "/runs", "/documents-view?source=docs&path=badge.md", "/login")


def write_project(folder: Path) -> Project:
    """Documents, hostile ones too, and files left out for several reasons; indexed."""
    project = Project(folder)
    project.configure(source={"url": "https://docs.example.org/{path}"})
    project.write("badge.md", HOSTILE)
    project.write("rh/congés d’été.md", "# Congés\n\nPoser des congés d’été : en mars.\n")
    project.write("hr/pay.md", "---\nacl: service:hr\n---\n# Pay\n\nThe secret pay scale.\n")
    project.write("drafts/plan.md", "# Plan\n\nNot yet.\n")
    project.write("legacy/old.md", "# Old\n")
    project.write("SCRATCH.md", "# Scratch\n")
    project.write("blank.md", "  \n")
    project.write("broken.md", "---\nacl: {a: [b\n---\n# Broken\n\nText.\n")
    project.write(".aiignore", "# not agreed yet\ndrafts/\n")
    project.run()
    return project


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A running service; its tests change nothing but sessions."""
    project = write_project(tmp_path_factory.mktemp("page"))
    live = Live(project, dagster_url="https://dagster.example.org")
    live.token("root", everything=True, admin=True)
    live.token("reader", "public")
    live.token("public-admin", "public", admin=True)
    yield live
    live.close()


@pytest.fixture
def admin(site: Live) -> Browser:
    """A browser that is signed in."""
    browser = Browser(site.url)
    assert browser.log_in(site.secrets["root"]).status_code == 303
    return browser


# who may see it


@pytest.mark.parametrize("path", PAGES[:-1])
def test_anonymous_visitor_is_sent_to_the_login(site: Live, path: str) -> None:
    """No page shows anything without a token; the way back is remembered."""
    answer = Browser(site.url).get(path)
    assert answer.status_code == 303
    expected = "/login" if path == "/" else f"/login?next={quote_plus(path)}"
    assert answer.headers["location"] == expected


@pytest.mark.parametrize("path", ["/", "/logout"])
def test_anonymous_form_is_sent_to_the_login(site: Live, path: str) -> None:
    """A form without a session does nothing."""
    answer = Browser(site.url).client.post(path, data={"question": "badge"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")


def test_bearer_token_decides_as_the_session_does(site: Live) -> None:
    """Administrators read pages by header too; others get 403, unknown tokens 401."""
    assert site.get("/", "root").status_code == 200
    assert site.get("/", "reader").status_code == 403
    unknown = site.client.get("/", headers={"Authorization": "Bearer rag_x"})
    assert unknown.status_code == 401
    assert unknown.headers["www-authenticate"].startswith("Bearer")
    check_page(Html(unknown.text), "en")


def test_login_refuses_what_is_no_administrator(site: Live) -> None:
    """A wrong token and one without rights are told apart, and give no session."""
    browser = Browser(site.url)
    wrong = browser.log_in("rag_wrong")
    assert wrong.status_code == 401
    assert "not known" in wrong.text
    check_page(Html(wrong.text), "en")
    weak = browser.log_in(site.secrets["reader"])
    assert weak.status_code == 403
    assert "no administrator rights" in weak.text
    assert browser.get("/").status_code == 303


def test_session_cookie_is_opaque_and_kept_from_others(site: Live) -> None:
    """HttpOnly, SameSite=Strict, without the token; Secure and bound to the host over https."""
    browser = Browser(site.url)
    answer = browser.log_in(site.secrets["root"])
    cookie = answer.headers["set-cookie"].split(", ")[0]
    assert cookie.startswith("rag_assets_session=")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie
    assert site.secrets["root"] not in str(answer.headers)
    proxied = Browser(site.url)
    proxied.client.headers["X-Forwarded-Proto"] = "https"
    cookie = proxied.get("/login").headers["set-cookie"]
    assert cookie.startswith("__Host-rag_assets_login=")
    assert "Secure" in cookie


def test_login_leads_back_to_the_page_asked_for_and_nowhere_else(site: Live) -> None:
    """Addresses of other sites are not followed, however they are written."""
    token = site.secrets["root"]
    back = Browser(site.url).log_in(token, next="/left-out?reason=blank")
    assert back.headers["location"] == "/left-out?reason=blank"
    for evil in ("https://evil.example", "//evil.example", "/\\evil.example", "\t//evil.example"):
        assert Browser(site.url).log_in(token, next=evil).headers["location"] == "/"


def test_session_dies_with_its_token(tmp_path: Path) -> None:
    """A removed token, or one with a new secret, signs its browsers out at once."""
    live = Live(write_project(tmp_path))
    try:
        for change in (live.tokens.rotate, live.tokens.remove):
            live.token("boss", everything=True, admin=True)
            browser = Browser(live.url)
            browser.log_in(live.secrets["boss"])
            assert browser.get("/").status_code == 200
            change("boss")
            assert browser.get("/").status_code == 303
            if change == live.tokens.rotate:
                live.tokens.remove("boss")
    finally:
        live.close()


def test_logging_out_ends_the_session_on_the_server(site: Live, admin: Browser) -> None:
    """The old cookie is worth nothing afterwards."""
    cookies = dict(admin.client.cookies)
    assert admin.send("/logout", {}).headers["location"] == "/login?out=1"
    again = Browser(site.url)
    again.client.cookies.update(cookies)
    assert again.get("/").status_code == 303


@pytest.mark.parametrize(
    ("fields", "headers"),
    [
        ({"form_token": ""}, {}),
        ({"form_token": "made up"}, {}),
        ({"form_token": "é\udc80"}, {}),
        ({}, {"Sec-Fetch-Site": "cross-site"}),
        ({}, {"Sec-Fetch-Site": "same-site"}),
    ],
)
@pytest.mark.parametrize("path", ["/", "/logout"])
def test_form_of_another_site_does_nothing(
    admin: Browser, path: str, fields: dict[str, str], headers: dict[str, str]
) -> None:
    """A form needs the token of this session and must come from this site."""
    encoded = {key: value.encode("utf-8", "surrogatepass") for key, value in fields.items()}
    answer = admin.send(path, {"question": "badge", **encoded}, headers)  # type: ignore[dict-item]
    assert answer.status_code == 403
    check_page(Html(answer.text), "en")
    assert admin.get("/").status_code == 200


def test_foreign_origin_is_refused_without_fetch_metadata(site: Live, admin: Browser) -> None:
    """Browsers over plain http to another machine send Origin only."""
    form_token = Html(admin.get("/").text).all("input", name="form_token")[0]["value"]
    for origin, status in (("http://evil.example", 403), (site.url, 303), ("null", 303)):
        answer = admin.client.post(
            "/", data={"question": "x", "form_token": form_token}, headers={"Origin": origin}
        )
        assert answer.status_code == status


def test_login_form_of_another_browser_is_refused(site: Live) -> None:
    """Nobody can be signed in to somebody else's session."""
    stolen = Html(Browser(site.url).get("/login").text).all("input", name="form_token")[0]["value"]
    answer = Browser(site.url).client.post(
        "/login", data={"token": site.secrets["root"], "form_token": stolen}
    )
    assert answer.status_code == 403
    assert "rag_assets_session" not in str(answer.headers)


def test_guessing_tokens_is_slowed_down(tmp_path: Path) -> None:
    """The login counts against the same limit as refused bearer tokens."""
    project = Project(tmp_path)
    live = Live(project)
    try:
        live.token("boss", everything=True, admin=True)
        for _ in range(60):
            live.client.get("/stats", headers={"Authorization": "Bearer rag_guess"})
        answer = Browser(live.url, "fr").log_in("rag_guess")
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        assert "Trop de tentatives" in answer.text
    finally:
        live.close()


# headers and languages


@pytest.mark.parametrize("path", [*PAGES, "/searches/none", "/documents-view"])
def test_every_page_forbids_scripts_frames_and_storing(admin: Browser, path: str) -> None:
    """The policy lets only the style sheet in and only forms to this site out."""
    headers = admin.get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'self'; form-action 'self'")
    assert "frame-ancestors 'none'" in policy
    assert "base-uri 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"


def test_style_sheet_is_named_by_its_content(admin: Browser) -> None:
    """It may be kept for ever; another name is not found."""
    address = admin.page("/").all("link", rel="stylesheet")[0]["href"]
    answer = admin.get(address)
    assert answer.status_code == 200
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-type"].startswith("text/css")
    for other in ("page.css", "page-0000000000000000.css", "..%2fpage.py"):
        assert admin.get(f"/static/{other}").status_code == 404


def test_reader_is_answered_in_their_language(site: Live) -> None:
    """Accept-Language decides, a choice overrides it and is remembered."""
    browser = Browser(site.url, "de, fr-CA;q=0.8, en;q=0.5")
    assert "Jeton d’administration\n" in "\n".join(browser.page("/login", "fr").text) + "\n"
    browser.page("/login?lang=en", "en")
    browser.page("/login", "en")
    assert Browser(site.url, "de").get("/login").headers["content-language"] == "en"


@pytest.mark.parametrize("language", ["en", "fr"])
@pytest.mark.parametrize("path", PAGES)
def test_pages_are_well_formed_and_accessible(admin: Browser, path: str, language: str) -> None:
    """Balanced tags, labels, captions, one h1, a lang attribute, in both languages."""
    admin.client.headers["Accept-Language"] = language
    admin.page(path, language)


# what it shows


def test_overview_shows_sources_runs_and_reasons(admin: Browser) -> None:
    """Counts, the model, the last run with its link, and what is left out."""
    html = admin.page("/")
    assert "Documents 3" in html.words
    assert "384" in html.words or "dimensions" in html.words
    assert any(a.startswith("https://dagster.example.org/runs/run-") for a in html.links)
    assert "/left-out?reason=acl_unreadable&status=quarantined" in html.links
    assert "/left-out?source=docs" in html.links


def test_run_has_no_link_without_a_dagster_address(tmp_path: Path) -> None:
    """The run id is shown all the same."""
    live = Live(write_project(tmp_path))
    try:
        live.token("root", everything=True, admin=True)
        page = Html(live.get("/runs", "root").text)
        assert "run-1" in page.words
        assert not [address for address in page.links if "/runs/" in address]
    finally:
        live.close()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("drafts/plan.md", ("excluded", "Ignored by .aiignore", "drafts/", ".aiignore:2")),
        ("legacy/old.md", ("excluded", "Always excluded", "no setting lifts this", "legacy/")),
        ("SCRATCH.md", ("excluded", "Always excluded")),
        ("blank.md", ("excluded", "Empty")),
        ("broken.md", ("quarantined", "Access rights unreadable")),
        ("nowhere.md", ("not in the index", "no rule keeps it out")),
        ("badge.md", ("is in the index", "Passage 1")),
    ],
)
def test_document_view_says_why(admin: Browser, path: str, words: tuple[str, ...]) -> None:
    """Every path has an answer: its passages, the rule that decided and where it stands, or
    neither."""
    html = admin.page(f"/documents-view?source=docs&path={quote_plus(path)}")
    for expected in words:
        assert expected in html.words


def test_document_view_of_an_unknown_source_is_not_found(admin: Browser) -> None:
    """The page says that there is no such source."""
    answer = admin.get("/documents-view?source=elsewhere&path=a.md")
    assert answer.status_code == 404
    assert "no source of this name" in answer.text
    check_page(Html(admin.get("/documents-view").text), "en")


def test_ledger_is_filtered_by_reason_source_and_path(admin: Browser) -> None:
    """Only what is asked for is listed; the counts by reason stay in sight."""
    everything = admin.page("/left-out")
    assert "5 entries" in everything.words
    some = admin.page("/left-out?reason=aiignore")
    assert "1 entry" in some.words
    assert "drafts/" in some.words
    assert "SCRATCH.md" not in some.words
    assert "Always excluded" in some.words
    assert "SCRATCH.md" in admin.page("/left-out?path=scratch&source=docs").words
    nothing = admin.page("/left-out?path=%3Cscript%3E&page=99999999999")
    assert "matches these filters" in nothing.words


def test_large_ledger_is_shown_page_by_page(tmp_path: Path) -> None:
    """Ten thousand rows: a hundred at a time, with links that keep the filter."""
    project = write_project(tmp_path)
    rows = [
        LeftOut("docs", f"tmp/{n:05}.md", "excluded", "aiignore", "tmp/*", ".aiignore", 3)
        for n in range(10_000)
    ]
    store = project.writer()
    with store.writing(run_id="r", partition="docs", wait_seconds=5):
        store.replace_left_out("docs", rows, remove=())
    store.close()
    live = Live(project)
    try:
        live.token("root", everything=True, admin=True)
        first = live.get("/left-out?reason=aiignore", "root")
        assert len(first.content) < 150_000
        html = Html(first.text)
        assert "1 to 100 of 10,001" in html.words
        assert "/left-out?reason=aiignore&page=2" in html.links
        last = Html(live.get("/left-out?reason=aiignore&page=101", "root").text)
        assert "10,001 to 10,001 of 10,001" in last.words
        assert "/left-out?reason=aiignore&page=100" in last.links
        french = live.client.get(
            "/left-out", headers={**live.headers("root"), "Accept-Language": "fr"}
        )
        assert "10\u202f005 entrées" in french.text
    finally:
        live.close()


def test_missing_index_is_said_with_what_to_do(tmp_path: Path) -> None:
    """Every page answers before the first ingest."""
    live = Live(Project(tmp_path))
    try:
        live.token("root", everything=True, admin=True)
        browser = Browser(live.url)
        browser.log_in(live.secrets["root"])
        assert "There is no index yet. Build it" in browser.page("/").words
        assert "Nothing is left out." in browser.page("/left-out").words
        assert "No run was recorded yet." in browser.page("/runs").words
        assert "not in the index" in browser.page("/documents-view?source=docs&path=a.md").words
        answer = live.client.post("/", data={"question": "badge"}, headers=live.headers("root"))
        html = Html(answer.text)
        check_page(html, "en")
        assert "rag-assets ingest" in html.words
    finally:
        live.close()


# searching


def test_search_shows_the_ranks_of_a_passage_side_by_side(admin: Browser) -> None:
    """Vector, fused and text rank of each passage, the words found, and both ways to it."""
    html = admin.ask("renew the badge")
    heads = html.all("th", role="columnheader")
    assert len(heads) == 4
    for words in ("Vector", "Fused", "Text", "BM25"):
        assert words in html.words
    assert {mark.lower() for mark in html.marks} >= {"badge"}
    assert "https://docs.example.org/badge.md" in {a.partition("#")[0] for a in html.links}
    assert any(a.startswith("/documents-view?source=docs&path=badge.md#") for a in html.links)


def test_citation_leads_to_its_passage(admin: Browser) -> None:
    """The local view has an element of the name that the link ends with."""
    html = admin.ask("congés d'été", order="text")
    links = [a for a in html.links if a.startswith("/documents-view")]
    assert links
    for link in links:
        address, _, anchor = link.partition("#")
        assert admin.page(address).all("li", id=anchor)


def test_question_is_in_no_address_and_no_log(
    admin: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    """It is sent by POST and kept under a random name; the results can be reloaded."""
    secret = "zibeline badge"
    with caplog.at_level(logging.DEBUG):
        answer = admin.send("/", {"question": secret, "acl": "public"})
        location = answer.headers["location"]
        first, second = admin.get(location), admin.get(location)
    assert first.text == second.text
    assert secret in first.text
    assert "zibeline" not in location
    assert "zibeline" not in caplog.text
    assert all("zibeline" not in address for address in Html(first.text).links)


def test_search_is_kept_for_its_own_session_only(site: Live, admin: Browser) -> None:
    """Another administrator's session cannot open it, and is told to ask again."""
    location = admin.send("/", {"question": "badge"}).headers["location"]
    other = Browser(site.url)
    other.log_in(site.secrets["root"])
    assert other.get(location).headers["location"] == "/?gone=1"
    assert "no longer kept" in other.page("/?gone=1").words


def test_search_as_a_caller_shows_what_that_caller_sees(admin: Browser) -> None:
    """The ACL box narrows all three rankings."""
    everything = admin.ask("secret pay scale")
    assert "pay.md" in everything.words
    narrowed = admin.ask("secret pay scale", acl="public")
    assert "pay.md" not in narrowed.words
    assert "ACL tags public" in narrowed.words
    assert "pay.md" in admin.ask("secret pay scale", acl=" service:hr , other").words


def test_administrator_reads_only_documents_of_its_own_tags(site: Live) -> None:
    """Being an administrator opens the page, not every document."""
    browser = Browser(site.url)
    browser.log_in(site.secrets["public-admin"])
    for acl in ("", "service:hr", "public, service:hr"):
        assert "pay.md" not in browser.ask("secret pay scale", acl=acl).words
    hidden = browser.page("/documents-view?source=docs&path=hr/pay.md").words
    assert "secret pay scale" not in hidden
    assert "not in the index" in hidden


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"question": "   "}, "The question is empty."),
        ({"question": "badge", "path": "no/such/folder"}, "No passage was found."),
        ({"question": "badge", "acl": "no_such_tag"}, "No passage was found."),
        ({"question": "badge", "language": "not a language"}, "The search was refused."),
    ],
)
def test_search_that_finds_nothing_says_so(
    admin: Browser, fields: dict[str, str], words: str
) -> None:
    """Nothing found, nothing asked and a refused search are told apart."""
    question = fields["question"]
    rest = {key: value for key, value in fields.items() if key != "question"}
    assert words in admin.ask(question, **rest).words


@pytest.mark.parametrize("k", ["0", "-1", "1000000000", "٣", "x", "", "1e3", "9" * 500])
def test_number_of_passages_is_put_right(admin: Browser, k: str) -> None:
    """Whatever stands in the field, the page answers."""
    html = admin.ask("badge", k=k)
    assert 1 <= int(html.all("input", name="k")[0]["value"]) <= 100


@pytest.mark.parametrize(
    "question", ["<script>alert(1)</script>", '" onfocus="x', "AND", "C++", "{{ 7*7 }}", "\u202e"]
)
def test_hostile_question_is_only_text(admin: Browser, question: str) -> None:
    """A question stands in its field as it was typed, and does nothing."""
    html = admin.ask(question)
    assert html.all("input", name="question")[0]["value"] == question.strip()


def test_hostile_document_is_only_text(admin: Browser) -> None:
    """Markup of a document is shown, not obeyed; what cannot be seen is not there."""
    for html in (
        admin.page("/documents-view?source=docs&path=badge.md"),
        admin.ask("badge"),
    ):
        assert "<script>alert(" in html.words
        assert "{{ 7*7 }}" in html.words
        assert "\u202e" not in html.words
        assert not [address for address in html.links if "javascript" in address.partition("#")[0]]
    document = admin.page("/documents-view?source=docs&path=badge.md")
    assert "<img src=x onerror=alert(2)>" in document.words


class DeadEmbedder:
    """A retriever whose embedder gives no answer."""

    def __init__(self, project: Project) -> None:
        self._retriever = open_retriever(project.path)

    def retrieve(self, query: str, k: int, *, mode: str, **others: object) -> list[object]:
        """As the real one does in text mode; else what a dead embedder raises."""
        if mode != "text":
            raise Unavailable("http://127.0.0.1:9/embed: connection refused; is it running?")
        return self._retriever.retrieve(query, k, mode=mode, **others)  # type: ignore[arg-type,return-value]

    def close(self) -> None:
        """Close the real one."""
        self._retriever.close()


def test_text_ranking_stays_when_the_embedder_is_away(tmp_path: Path) -> None:
    """The page says which rankings are missing, why and what to do, and shows the other one."""
    project = write_project(tmp_path)
    live = Live(project, retriever=DeadEmbedder(project))
    try:
        live.token("root", everything=True, admin=True)
        browser = Browser(live.url, "fr")
        browser.log_in(live.secrets["root"])
        html = browser.ask("badge", page_language="fr")
        assert "Le classement vectoriel manque. Le classement fusionné manque." in html.words
        assert "connection refused" in html.words
        assert "badge.md" in html.words
    finally:
        live.close()


def test_body_of_a_form_is_limited(admin: Browser) -> None:
    """Too large, not a form, too many fields: a page that says so, never an error of ours."""
    assert admin.send("/", {"question": "x" * 70_000}).status_code == 413
    assert admin.client.post("/", json={"question": "x"}).status_code == 415
    many = {f"f{n}": "" for n in range(60)}
    assert admin.send("/", many).status_code == 400
    assert admin.client.post("/login", data=many).status_code == 400

"""A person at the diagnostic page: cookies, forms, and a strict reading of the HTML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html.parser import HTMLParser

import httpx

VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}
SHAPES = {"rect", "circle", "polyline"}


class Html(HTMLParser):
    """A page, read strictly: unbalanced tags, repeated ids and attributes are AssertionErrors."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.marks: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"repeated attribute in <{tag} {attrs}>"
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)
        if tag in ("dd", "td", "th", "li", "p"):
            self.text.append(" ")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in SHAPES | VOID, f"<{tag}/> does not close itself in HTML"
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open[-1] == tag, f"</{tag}> closes <{self._open[-1]}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if "mark" in self._open:
            self.marks.append(data)

    def all(self, tag: str, **attributes: str) -> list[dict[str, str]]:
        """The attributes of every element of that name with these attributes."""
        return [
            found
            for name, found in self.tags
            if name == tag and all(found.get(key) == value for key, value in attributes.items())
        ]

    @property
    def words(self) -> str:
        """All text, white space collapsed (no-break spaces stay)."""
        return re.sub("[ \n]+", " ", "".join(self.text)).strip()

    @property
    def links(self) -> list[str]:
        """Addresses of links, in order."""
        return [found["href"] for found in self.all("a")]


def check_page(html: Html, language: str) -> None:
    """What every page must keep to, whatever stands in it."""
    assert html.all("html") == [{"lang": language, "dir": "ltr"}]
    assert len(html.all("h1")) == 1
    assert len(html.all("main")) == 1
    assert html.all("a", href="#content"), "no skip link"
    ids = [found["id"] for _, found in html.tags if "id" in found]
    assert len(ids) == len(set(ids)), "an id stands twice"
    labelled = {found["for"] for found in html.all("label")}
    for tag in ("input", "select", "textarea"):
        for field in html.all(tag):
            assert field.get("type") == "hidden" or field["id"] in labelled, field
    for _, found in html.tags:
        for key in ("aria-labelledby", "aria-describedby"):
            assert set(found.get(key, "").split()) <= set(ids)
        assert not any(key.startswith("on") or key == "style" for key in found)
    assert len(html.all("table")) == len(html.all("caption"))
    assert all("scope" in found for found in html.all("th"))
    assert not {tag for tag, _ in html.tags} & {"script", "iframe", "img", "object", "style"}
    for address in html.links:
        assert address.startswith(("/", "#", "http://", "https://")), address
        assert address[:1] in "/#" or "rel" in html.all("a", href=address)[0]


class Browser:
    """One browser: keeps cookies, follows no redirect by itself."""

    def __init__(self, url: str, language: str = "en") -> None:
        self.client = httpx.Client(
            base_url=url, timeout=30, trust_env=False, headers={"Accept-Language": language}
        )

    def get(self, path: str) -> httpx.Response:
        """A page."""
        return self.client.get(path)

    def page(self, path: str, language: str = "en") -> Html:
        """A page that is there and keeps to ``check_page``."""
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        html = Html(answer.text)
        check_page(html, language)
        return html

    def send(
        self,
        path: str,
        fields: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
        *,
        form_on: str = "/",
    ) -> httpx.Response:
        """Fill in the form of a page and send it, as a browser of that page would."""
        form_token = Html(self.get(form_on).text).all("input", name="form_token")
        token = {"form_token": form_token[0]["value"]} if form_token else {}
        own = {"Sec-Fetch-Site": "same-origin", "Origin": "null", **(headers or {})}
        return self.client.post(path, data={**token, **fields}, headers=own)

    def log_in(self, token: str, **fields: str) -> httpx.Response:
        """Send the login form."""
        return self.send("/login", {"token": token, **fields}, form_on="/login")

    def ask(self, question: str, *, page_language: str = "en", **fields: str) -> Html:
        """Search, and follow the redirect to the results."""
        answer = self.send("/", {"question": question, **fields})
        assert answer.status_code == 303, answer.text
        return self.page(answer.headers["location"], page_language)

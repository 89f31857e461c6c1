"""HTML to Markdown: what a reader of the page sees, all of it, and nothing else."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_assets.documents.cleaning import clean_markdown
from rag_assets.documents.decoding import NotText
from rag_assets.documents.html import decode_html, html_to_markdown
from rag_assets.markdown import outline

SEEN, HIDDEN = "visible", "cachette"

HIDING = {
    "attribute": "<p hidden>{}</p>",
    "until found": "<p hidden='until-found'>{}</p>",
    "aria": "<span aria-hidden=true>{}</span>",
    "display": "<p style='display: none'>{}</p>",
    "display, important": "<p style='display:none!important'>{}</p>",
    "display, comment in it": "<p style='display:/* x */none'>{}</p>",
    "visibility": "<p style='visibility:hidden'>{}</p>",
    "opacity": "<p style='opacity:0'>{}</p>",
    "opacity, nearly": "<p style='opacity:.01'>{}</p>",
    "filter": "<p style='filter:opacity(0)'>{}</p>",
    "font size": "<p style='font-size:0'>{}</p>",
    "font size of a pixel": "<p style='font-size:1px'>{}</p>",
    "font shorthand": "<p style='font:0/0 a'>{}</p>",
    "off the left": "<p style='position:absolute;left:-9999px'>{}</p>",
    "off the top": "<p style='position:fixed; top: -100em'>{}</p>",
    "off the right": "<p style='position:absolute;left:9999px'>{}</p>",
    "indented away": "<p style='text-indent:-999em'>{}</p>",
    "margin": "<p style='margin-left:-10000px'>{}</p>",
    "translated": "<p style='transform:translateX(-9999px)'>{}</p>",
    "scaled": "<p style='transform:scale(0)'>{}</p>",
    "clipped": "<p style='position:absolute;clip:rect(0,0,0,0)'>{}</p>",
    "clip path": "<p style='clip-path:inset(50%)'>{}</p>",
    "no height": "<div style='height:0;overflow:hidden'>{}</div>",
    "no width": "<div style='width:1px; overflow: hidden'>{}</div>",
    "maximum height": "<div style='max-height:0;overflow-y:hidden'>{}</div>",
    "transparent": "<p style='color:transparent'>{}</p>",
    "alpha": "<p style='color:rgba(0,0,0,0)'>{}</p>",
    "hexadecimal alpha": "<p style='color:#00000000'>{}</p>",
    "white on white": "<p style='color:#fff'>{}</p>",
    "like its background": "<div style='background:#102030'><p style='color:#112131'>{}</p></div>",
    "font element": "<font color=white>{}</font>",
    "bgcolor": "<table><tr><td bgcolor=#000000><font color=black>{}</font></table>",
    "Word": "<p style='mso-hide:all'>{}</p>",
    "class": "<style>.x{{display:none}}</style><p class='a x'>{}</p>",
    "id": "<style>#x{{visibility:hidden}}</style><p id=x>{}</p>",
    "element": "<style>aside{{opacity:0}}</style><aside>{}</aside>",
    "inside another": "<style>.a > .b{{display:none}}</style><div class=a><p class=b>{}</p></div>",
    "on screens": "<style>@media screen{{.x{{display:none}}}}</style><p class=x>{}</p>",
    "more specific": "<style>p.x{{display:none}} p{{display:block}}</style><p class=x>{}</p>",
    "template": "<template><p>{}</p></template>",
    "noscript": "<noscript>{}</noscript>",
    "closed dialog": "<dialog>{}</dialog>",
    "script": "<script>{}</script>",
    "style": "<style>{}</style>",
    "comment": "<!-- {} -->",
    "conditional comment": "<!--[if IE]><p>{}</p><![endif]-->",
    "abrupt comment": "<!-- a --!><!-- {} -->",
    "declaration": "<!X {}>",
    "processing instruction": "<?php echo '{}' ?>",
    "CDATA in HTML": "<![CDATA[ {} ]]&gt; >",
    "iframe": "<iframe>{}</iframe>",
    "object": "<object data=x>{}</object>",
    "svg": "<svg><title>{}</title><text>{}</text></svg>",
    "annotation of mathematics": "<math><annotation>{}</annotation></math>",
    "hidden input": "<input type=hidden value='{}'>",
    "datalist": "<datalist><option>{}</datalist>",
    "attribute of another": "<p title='{}' data-x='{}' onclick='{}'></p>",
    "in a table": "<table><tr><td>a<td hidden>{}</table>",
    "paragraph without end": "<p hidden>{}<p>",
    "item without end": "<ul><li hidden>{}<li>a</ul>",
    "cell without end": "<table><tr><td hidden>{}<td>a</table>",
    "nested": "<div hidden><div>{}</div>{}</div>",
    "deep": "<div hidden>" + "<div>" * 3_000 + "{}" + "</div>" * 3_000 + "{}</div>",
    "formatting left open": "<p><b hidden>{}</p><p>{}</b></p>",
    "misnested": "<b hidden>{}<i>{}</b></i>",
    "written oddly": "<P STYLE = 'DISPLAY : NONE' >{}</P >",
    "references": "<p style='display&#58;none'>{}</p>",
    "slash": "<p/hidden>{}</p>",
    "first of two": "<p style='display:none' style=''>{}</p>",
}


@pytest.mark.parametrize("way", HIDING.values(), ids=HIDING)
def test_hidden_text_is_left_out(way: str) -> None:
    """Whatever hides it, and what follows is seen again."""
    converted = html_to_markdown(f"{SEEN} un {way.replace('{}', HIDDEN).format()} {SEEN} deux")
    assert HIDDEN not in converted.text
    assert re.findall(r"\w+ (?:un|deux)", converted.text.replace("\n", " ")) == [
        f"{SEEN} un",
        f"{SEEN} deux",
    ]


SHOWN = {
    "details": "<details><summary>Plus</summary>{}</details>",
    "open dialog": "<dialog open>{}</dialog>",
    "hidden, shown again": "<p hidden style='display:block'>{}</p>",
    "visible inside": "<div style='visibility:hidden'><p style='visibility:visible'>{}</p></div>",
    "sized inside": "<div style='font-size:0'><p style='font-size:12px'>{}</p></div>",
    "coloured cell": "<table><tr style='color:#fff'><td style='background:navy'>{}</table>",
    "gradient text": "<p style='color:transparent;-webkit-background-clip:text'>{}</p>",
    "half transparent": "<p style='opacity:.5'>{}</p>",
    "white, sheet elsewhere": "<link rel=stylesheet href=x><p style='color:#fff'>{}</p>",
    "for printing": "<style>@media print{{p{{display:none}}}}</style><p>{}</p>",
    "other class": "<style>.x{{display:none}}</style><p class=xy>{}</p>",
    "on hover": "<style>p:hover{{display:none}}</style><p>{}</p>",
    "shown later": "<style>.x{{display:none}} .x.on{{display:block}}</style><p class='x on'>{}</p>",
    "tab": "<a aria-controls=t>T</a><div id=t role=tabpanel hidden>{}</div>",
    "slightly moved": "<p style='position:relative;left:-10px'>{}</p>",
    "scrolling": "<div style='height:100px;overflow:hidden'>{}</div>",
    "aria false": "<p aria-hidden=false>{}</p>",
    "style of svg": "<svg><style></svg>{}",
    "svg broken out of": "<svg><p>{}</p>",
    "mathematics": "<math><mtext>{}</mtext></math>",
    "button": "<button>{}</button>",
    "text area": "<textarea>{}</textarea>",
    "option": "<select><option>{}</select>",
    "unknown element": "<x-y>{}</x-y>",
    "text in a table": "<table>{}<tr><td>a</table>",
    "text in a row": "<table><tr>{}<td>a</table>",
    "text in a list": "<ul>{}<li>a</ul>",
    "caption": "<table><caption>{}</caption><tr><td>a</table>",
    "cell without table": "<td>{}</td>",
    "item without list": "<li>{}",
    "unclosed tag": "{} <p class='x",
    "lone bracket": "1 < 2 {}",
    "empty comment": "<!--> {}",
    "deep": "<div>" * 3_000 + "{}",
    "deep lists": "<ul><li>" * 300 + "{}",
    "deep tables": "<table><tr><td>" * 300 + "{}",
    "deep quotations": "<blockquote>" * 300 + "{}",
    "heading in a cell": "<table><tr><td><h2>{}</h2></table>",
    "block in a link": "<a href=x><div>{}</div></a>",
    "dangerous link": "<a href='javascript:x'>{}</a>",
    "picture that is missing": "<img alt='{}'>",
    "picture as data": "<img src='data:image/png;base64,xx' alt='{}'>",
    "ruby": "<ruby>漢<rt>{}</rt></ruby>",
    "preformatted": "<pre>{}</pre>",
    "old preformatted": "<xmp>{}</xmp>",
}


@pytest.mark.parametrize("way", SHOWN.values(), ids=SHOWN)
def test_visible_text_is_never_lost(way: str) -> None:
    """Broken, unusual and deeply nested HTML keeps its words."""
    assert HIDDEN in html_to_markdown(way.replace("{}", HIDDEN).format()).text


STRUCTURE = [
    ("<h1>Été</h1><p>à la <b>plage</b></p>", "# Été\n\nà la **plage**\n"),
    ("<h2 id='fermeture'>Fermer</h2>", "## Fermer {#fermeture}\n"),
    ("<h2><a id=a></a>Fermer</h2>", "## Fermer {#a}\n"),
    ("<h2><a name=a>Fermer</a></h2>", "## Fermer {#a}\n"),
    ("<a href=u><h2 id=a>Fermer</h2></a>", "## [Fermer](u) {#a}\n"),
    ("<h2 id='a b'>Fermer</h2>", "## Fermer\n"),
    ("<h2>Fermer <a class=headerlink href='#f'>¶</a></h2>", "## Fermer\n"),
    ("<ul><li>a<ul><li>b</ul><li>c</ul>", "- a\n  * b\n- c\n"),
    ("<ol start=3><li>a<li>b</ol>", "3. a\n4. b\n"),
    ("<ul><li><input type=checkbox checked> fait</ul>", "- [x] fait\n"),
    (
        "<blockquote>a<blockquote>b</blockquote></blockquote>",
        "> a\n>\n> > b\n",
    ),
    (
        "<table><tr><th>A<th>B|C<tr><td>1<br>2<td><p>x</p></table>",
        "| A | B\\|C |\n| --- | --- |\n| 1 2 | x |\n",
    ),
    (
        "<pre><code class='language-py'>a =  1\n\n  b < `c`\n```\n</code></pre>",
        "````py\na =  1\n\n  b < `c`\n```\n````\n",
    ),
    ("<p>un <code>a_b</code> et <kbd>Ctrl</kbd></p>", "un `a_b` et `Ctrl`\n"),
    ("x<sup>2</sup> 1<sup>er</sup> H<sub>2</sub>O", "x^2 1er H2O\n"),
    ("<abbr title='Région'>R</abbr>, <abbr title='x'>O</abbr>s", "R (Région), Os\n"),
    ("<a href='/a?utm_source=x&b=1'>lien</a>", "[lien](/a?b=1)\n"),
    ("<a href='a b(c)'>lien</a>", "[lien](a%20b(c))\n"),
    ("<a href='https://a.b/c'>https://a.b/c</a>", "<https://a.b/c>\n"),
    ("a <a href=u></a> b", "a b\n"),
    ("<img src=a.png alt='Schéma [1]'>", "![Schéma [1]](a.png)\n"),
    ("<img class=emoji src=x alt='😀'>", "😀\n"),
    ("a<br>b<hr>c", "a  \nb\n\n---\n\nc\n"),
    ("<p>a\nb</p>", "a\nb\n"),
    ("mot<!-- x -->mot", "mot mot\n"),
    ("mot<p hidden>x</p>mot", "mot mot\n"),
    ("  <div><section><p>a</p></section></div>  ", "a\n"),
]


@pytest.mark.parametrize(("html", "markdown"), STRUCTURE)
def test_structure_survives(html: str, markdown: str) -> None:
    """Headings with their ids, lists, quotations, tables, code, links and pictures."""
    assert html_to_markdown(html).text == markdown


@pytest.mark.parametrize(
    "words",
    [
        "# titre", "- un", "+ un", "1. un", "12) un", "> cité", "```", "~~~", "---", "===",
        "[a]: javascript:b", "[a](javascript:b)", "[a][b]", "![a](b)", "`code`", "<b>", "</b>",
        "<!-- c -->", "&lt;", "&copy;", "\\<b>", "\\\\<b>", "|---|", "C:\\dossier\\<x>",
    ],
)  # fmt: skip
def test_text_that_looks_like_markdown_stays_text(words: str) -> None:
    """It opens no heading, list, link or tag, and cleaning it again takes nothing out."""
    escaped = words.replace("&", "&amp;").replace("<", "&lt;")
    text = html_to_markdown(f"<p>{escaped}</p><p>avant<br>{escaped}</p>").text
    assert {block.kind for block in outline(text).blocks} == {"paragraph"}
    assert clean_markdown(text).text == text
    assert re.sub(r"\\(?=[^\w\s])", "", text).count(re.sub(r"\\(?=[^\w\s])", "", words)) == 2


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)", " JavaScript:x", "java\nscript:x", "java&#9;script:x", "\x01data:x",
        "vbscript:x", "data:text/html,x", "file:///etc/passwd", "blob:x", "javascript&colon;x",
        "view-source:x", "java\u200bscript:x",
    ],
)  # fmt: skip
def test_dangerous_addresses_are_dropped_and_their_text_kept(address: str) -> None:
    """Of links and of pictures, however the scheme is written."""
    found = html_to_markdown(f'<a href="{address}">lien</a> <img src="{address}" alt="image">')
    assert found.text.split() == ["lien", "image"]
    assert found.removed == {"link": 1, "image": 1}


@pytest.mark.parametrize(
    ("picture", "text"),
    [
        ("<img src=https://t/p.gif width=1 height=1 alt=x>", ""),
        ("<img src=https://t/p.gif width='0' alt=x>", ""),
        ("<img src='https://t/?q=' alt=mot>", "mot\n"),
        ("<img src='https://t/?q={answer}' alt=mot>", "mot\n"),
        (f"<img src='//t/?q={'a' * 400}' alt=mot>", "mot\n"),
        ("<img src='https://t/badge?style=flat' alt=mot>", "![mot](https://t/badge?style=flat)\n"),
        ("<img src='/local?q=' alt=mot>", "![mot](/local?q=)\n"),
    ],
)
def test_pictures_that_track_or_carry_data_away_are_dropped(picture: str, text: str) -> None:
    """A pixel goes whole; of the others the alternative text stays."""
    assert html_to_markdown(picture).text == text


PAGE = """<!DOCTYPE html><html><head><title>Guide &amp; règles</title></head><body>
<header>Entête</header><nav>Menu</nav>{}<footer>Pied</footer></body></html>"""


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<main><header><h1>T</h1></header><nav>n</nav><p>a</p></main>", "# T\n\na\n"),
        ("<div role='main'><p>a</p></div>", "a\n"),
        ("<article><p>a</p></article><article><p>b</p></article>", "a\n\nb\n"),
        ("<main> </main><p>a</p>", "Entête\n\nMenu\n\na\n\nPied\n"),
        ("<p>a</p>", "Entête\n\nMenu\n\na\n\nPied\n"),
    ],
)
def test_of_a_page_the_main_content_is_taken(body: str, text: str) -> None:
    """When the page says what it is; never of a fragment, whose parts all count."""
    converted = html_to_markdown(PAGE.format(body))
    assert converted.title == "Guide & règles"
    assert converted.text == text
    assert "b" in html_to_markdown("<article>a</article><p>b</p>").text


def test_without_a_title_the_first_heading_names_the_page() -> None:
    """The title of a picture (svg) is not one."""
    assert html_to_markdown("<svg><title>x</title></svg><h1>T <i>u</i></h1>").title == "T u"
    assert html_to_markdown("<p>a</p>").title == ""


def test_every_line_knows_its_line_in_the_page() -> None:
    """Also in tables, lists and code."""
    words = {"Un": 2, "deux": 4, "A": 6, "B": 7, "item": 9, "autre": 10, "code": 11, "fin": 13}
    html = (
        "<html>\n<h1>Un</h1>\n<p>\ndeux\n</p><table>\n<tr><th>A</th></tr>\n<tr><td>B</td></tr>\n"
        "</table><ul>\n<li>item</li>\n<li>autre</li></ul>\n<pre>code\n\nfin</pre>"
    )
    converted = html_to_markdown(html)
    lines = converted.text.split("\n")
    assert len(lines) == len(converted.lines)
    assert list(converted.lines) == sorted(converted.lines)
    found = {
        word: converted.lines[number]
        for number, line in enumerate(lines)
        for word in words
        if word in re.findall(r"\w+", line)
    }
    assert found == words


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("<p>é".encode(), "<p>é"),
        (b"\xef\xbb\xbf<p>\xc3\xa9", "<p>é"),
        ("<p>é".encode("utf-16"), "<p>é"),
        ("<meta charset=iso-8859-1><p>é’".encode("cp1252"), "<meta charset=iso-8859-1><p>é’"),
        (b'<META content="text/html; charset=windows-1252"><p>\xe9', None),
        (b'<?xml version="1.0" encoding="ISO-8859-15"?><p>\xa4\xe9', None),
    ],
)
def test_character_sets_are_found(content: bytes, text: str | None) -> None:
    """By byte order mark, declaration, or UTF-8."""
    decoded = decode_html(content)
    assert decoded == text if text is not None else "é" in decoded


@pytest.mark.parametrize(
    "content",
    [
        b"<p>\xe9",
        b"<meta charset=utf-8><p>\xe9",
        b"<meta charset=rot13><p>a",
        b"<meta charset=klingon><p>a",
        b"<meta charset=windows-1252><p>\x81",
        b"<p>a\0",
        b"<meta charset=latin1><p>a\0",
    ],
)
def test_bytes_that_are_not_text_are_refused(content: bytes) -> None:
    """Nothing is guessed, nothing is replaced."""
    with pytest.raises(NotText):
        decode_html(content)


def test_absurd_character_references_do_no_harm() -> None:
    """Python itself refuses to read a number of 5,000 digits."""
    assert html_to_markdown(f"<p title='&#{'9' * 5000};'>a &#{'9' * 5000}; &#xFFFFFFFFF;").text


TAGS = st.sampled_from(
    ["p", "div", "b", "i", "a", "span", "ul", "ol", "li", "table", "tr", "td", "th", "h1", "h2",
     "pre", "code", "blockquote", "br", "svg", "style", "script", "template", "x-y", "sup",
     "button", "option", "dl", "dd"]
)  # fmt: skip
HTML = st.lists(
    st.one_of(
        TAGS.map("<{}>".format),
        TAGS.map("</{}>".format),
        TAGS.map("<{} hidden>".format),
        TAGS.map("<{} href='a' id=b>".format),
        st.sampled_from(
            ["mot ", "été", "\n", " ", "<", ">", "&lt;", "&amp;", "<!--", "-->", "`", "*", "[", "]",
             "(", ")", "\\", "#", "- ", "1. ", "{", "}", "|", "_", "<img src=a alt='b]'>", "'", '"',
             "&#58;", "&copy", ":", "=", "<![CDATA[", "<?", "!"]
        ),
    ),
    max_size=30,
).map("".join)  # fmt: skip


@given(HTML)
@settings(deadline=None)
def test_any_html_gives_markdown_that_cleaning_leaves_alone(html: str) -> None:
    """What was text in the page is text for Markdown, and lines are told for every line."""
    converted = html_to_markdown(html)
    assert len(converted.lines) == (converted.text.count("\n") + 1 if converted.text else 0)
    assert set(converted.lines) <= set(range(1, html.count("\n") + 2))
    assert clean_markdown(converted.text).text == converted.text

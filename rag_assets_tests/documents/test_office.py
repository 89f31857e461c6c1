"""Office and PDF files become Markdown; what cannot be converted is left out with a reason."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_assets.documents.isolation.worker import IsolatedWorker, WorkerFailed
from rag_assets.documents.office import (
    MAX_PARTS,
    WARM_UP,
    ConversionFailed,
    ConvertedOffice,
    OfficeUnavailable,
    office_to_markdown,
)
from rag_assets.models import DOCX, ODT, PDF
from rag_assets_tests.documents.office_files import (
    DECLARATION,
    OFFICE_RELATIONS,
    WORD,
    docx,
    docx_parts,
    encrypted_pdf,
    odt,
    odt_parts,
    package,
    paragraph,
    pdf,
    run,
    zip_bomb,
)

HAS_KREUZBERG = find_spec("kreuzberg") is not None
needs_kreuzberg = pytest.mark.skipif(not HAS_KREUZBERG, reason="the extra [office] is not there")

CANARY = "hirondelle"
DEEP_END = "</text:list-item></text:list>"
TABLE_DOCX = (
    "<w:tbl>"
    + "".join(
        f"<w:tr><w:tc>{paragraph(a)}</w:tc><w:tc>{paragraph(b)}</w:tc></w:tr>"
        for a, b in (("Nom", "Rôle"), ("Zoé", "chef"))
    )
    + "</w:tbl>"
)


@pytest.fixture(scope="module")
def worker() -> Iterator[IsolatedWorker]:
    """A worker as in a run: two seconds and 256 MB for each file, no byte written."""
    with IsolatedWorker(
        f"{office_to_markdown.__module__}:office_to_markdown",
        seconds=2,
        megabytes=256,
        result_types=[ConvertedOffice],
        warm_up=[(WARM_UP, PDF)],
    ) as worker:
        yield worker


def failure(worker: IsolatedWorker, content: bytes, media_type: str) -> str:
    """Why a file is not converted; the next one is."""
    with pytest.raises((ConversionFailed, WorkerFailed)) as caught:
        worker.call(content, media_type)
    message = str(caught.value)
    assert CANARY not in message
    assert worker.call(docx(paragraph("ensuite")), DOCX).text == "ensuite\n"
    return message


@needs_kreuzberg
class TestConversion:
    """What a reader sees is in the Markdown."""

    def test_docx_keeps_headings_tables_and_links(self, worker: IsolatedWorker) -> None:
        """Headings of French styles too; the title comes from the file's properties."""
        link = f'<w:p><w:hyperlink r:id="link">{run("site")}</w:hyperlink></w:p>'
        content = docx(
            paragraph("Congés payés", "Titre1")
            + paragraph("L'été, le cœur de l'équipe n° 1 se repose.")
            + paragraph("Pièces à joindre", "Titre2")
            + TABLE_DOCX
            + link,
            title="Guide  des\ncongés",
        )
        converted = worker.call(content, DOCX)
        assert converted.title == "Guide des congés"
        assert converted.text.splitlines() == [
            "# Congés payés",
            "",
            "L'été, le cœur de l'équipe n° 1 se repose.",
            "",
            "## Pièces à joindre",
            "",
            "| Nom | Rôle |",
            "| --- | --- |",
            "| Zoé | chef |",
            "",
            "[site](https://exemple.fr/)",
        ]

    def test_odt_keeps_headings_lists_and_tables(self, worker: IsolatedWorker) -> None:
        """The same for the format of LibreOffice."""
        content = odt(
            '<text:h text:outline-level="1">Congés</text:h><text:p>Un été.</text:p>'
            "<text:list><text:list-item><text:p>un</text:p></text:list-item><text:list-item>"
            '<text:p>deux</text:p></text:list-item></text:list><text:h text:outline-level="2">'
            "Où</text:h><table:table><table:table-row><table:table-cell><text:p>A</text:p>"
            "</table:table-cell><table:table-cell><text:p>B</text:p></table:table-cell>"
            "</table:table-row></table:table>",
            title="Guide",
        )
        converted = worker.call(content, ODT)
        assert converted.title == "Guide"
        assert [line for line in converted.text.splitlines() if line] == [
            "# Congés",
            "Un été.",
            "- un",
            "- deux",
            "## Où",
            "| A | B |",
            "| --- | --- |",
        ]

    def test_pdf_finds_headings_by_their_size(self, worker: IsolatedWorker) -> None:
        """Lines of one paragraph are joined; a title made by Word loses its prefix."""
        content = pdf(
            [
                [
                    (24, "Les congés payés"),
                    (11, "L'été, tout le monde part en congé (deux semaines)."),
                    (11, "La suite du paragraphe."),
                    (18, "Deuxième partie"),
                    (11, "Encore du texte."),
                ],
                [(11, "Page deux.")],
            ],
            title="Microsoft Word - Congés",
        )
        converted = worker.call(content, PDF)
        assert converted.title == "Congés"
        lines = [line for line in converted.text.splitlines() if line]
        assert lines[0] == "# Les congés payés"
        assert "## Deuxième partie" in lines
        assert "L'été, tout le monde part en congé (deux semaines)." in converted.text
        assert "Page deux." in converted.text

    def test_pages_without_text_are_empty(self, worker: IsolatedWorker) -> None:
        """A scan holds no text; it is not an error, and nothing is guessed."""
        assert worker.call(pdf([[]]), PDF).text.strip() == ""

    def test_what_looks_like_markdown_stays_text(self, worker: IsolatedWorker) -> None:
        """A paragraph that begins with a hash does not become a heading."""
        text = worker.call(docx(paragraph("# pas un titre")), DOCX).text
        assert text == "\\# pas un titre\n"

    @pytest.mark.parametrize(
        ("xml", "text"),
        [
            ("R&amp;D", "R&D"),
            ("a &lt; b &amp;&amp; c &gt; d", "a < b && c > d"),
            ("l&apos;&#233;t&#xE9; &quot;ici&quot; &#128512;", 'l\'été "ici" 😀'),
            ("&lt;nom&gt;", "\\<nom>"),
            ("&gt; 5", "\\> 5"),
            ("&amp;eacute; &amp;lt;", "\\&eacute; \\&lt;"),
            ("<![CDATA[x <b> & y]]>", "x \\<b> & y"),
            ("un\ufdd0deux &amp; trois", "undeux & trois"),
            ("&#0;&#xD800;a", "a"),
        ],
    )
    def test_docx_keeps_every_sign(self, worker: IsolatedWorker, xml: str, text: str) -> None:
        """What XML writes as a reference is there, as text: it opens no tag and no quotation."""
        title = xml if "<" not in xml and "#" not in xml else ""
        converted = worker.call(docx(paragraph(xml) + TABLE_DOCX, title=title), DOCX)
        assert converted.text.splitlines()[0] == text
        assert not title or converted.title == text.replace("\\", "")

    def test_odt_and_pdf_keep_every_sign(self, worker: IsolatedWorker) -> None:
        """The same for the other formats, whatever is escaped."""
        signs = "R&D, a < b > c, <nom>"
        xml = signs.replace("&", "&amp;").replace("<", "&lt;")
        for content, media_type in (
            (odt(f"<text:p>{xml}</text:p>"), ODT),
            (pdf([[(11, signs)]]), PDF),
        ):
            assert worker.call(content, media_type).text.replace("\\", "") == signs + "\n"

    def test_footnotes_keep_their_signs(self, worker: IsolatedWorker) -> None:
        """Parts beside the main one are mended too."""
        parts = docx_parts(f'<w:p>{run("a")}<w:r><w:footnoteReference w:id="2"/></w:r></w:p>')
        note = f'<w:footnote w:id="2"><w:p>{run("note R&amp;D")}{run(CANARY, "<w:vanish/>")}</w:p>'
        parts["word/footnotes.xml"] = (
            f'{DECLARATION}<w:footnotes xmlns:w="{WORD}">{note}</w:footnote></w:footnotes>'
        )
        relations = str(parts["word/_rels/document.xml.rels"])
        parts["word/_rels/document.xml.rels"] = relations.replace(
            "</Relationships>",
            f'<Relationship Id="f" Type="{OFFICE_RELATIONS}/footnotes" Target="footnotes.xml"/>'
            "</Relationships>",
        )
        text = worker.call(package(parts), DOCX).text
        assert "note R&D" in text
        assert CANARY not in text

    @pytest.mark.parametrize(
        "content",
        [
            docx(f"<w:p>{run('Nom')}<w:r><w:tab/></w:r>{run('Zoé')}</w:p>"),
            docx("<w:p><w:r><w:t>Nom</w:t><w:tab /><w:t>Zoé</w:t></w:r></w:p>"),
            docx("<w:p><w:r><w:t>Nom</w:t><w:cr/><w:t>Zoé</w:t></w:r></w:p>"),
        ],
    )
    def test_a_tab_does_not_join_words(self, worker: IsolatedWorker, content: bytes) -> None:
        """Words on both sides of a tab or a line break stay two words."""
        assert worker.call(content, DOCX).text.split() == ["Nom", "Zoé"]

    def test_blanks_of_odt_do_not_join_words(self, worker: IsolatedWorker) -> None:
        """Nor the elements that ODT uses for several blanks."""
        content = odt('<text:p>a<text:tab/>b<text:s text:c="3"/>c<text:s/>d</text:p>')
        assert worker.call(content, ODT).text.split() == ["a", "b", "c", "d"]

    def test_hyphens_stay(self, worker: IsolatedWorker) -> None:
        """A hyphen that forbids a line break is a hyphen."""
        content = docx("<w:p><w:r><w:t>est</w:t><w:noBreakHyphen/><w:t>ce</w:t></w:r></w:p>")
        assert worker.call(content, DOCX).text == "est-ce\n"


@needs_kreuzberg
class TestHiddenText:
    """What no reader sees is not in the Markdown."""

    @pytest.mark.parametrize(
        "hidden",
        [
            run(CANARY, "<w:vanish/>"),
            run(CANARY, '<w:b/><w:vanish w:val="true"/>'),
            run(CANARY, '<w:rStyle w:val="Cache"/>'),
            f"<w:r><w:rPr><w:vanish/></w:rPr><w:t>{CANARY}</w:t><w:tab/><w:t>{CANARY}</w:t></w:r>",
        ],
    )
    def test_hidden_runs_of_docx_are_gone(self, worker: IsolatedWorker, hidden: str) -> None:
        """Hidden by itself or by its style; its neighbours stay."""
        style = '<w:style w:type="character" w:styleId="Cache"><w:rPr><w:vanish/></w:rPr></w:style>'
        content = docx(f"<w:p>{run('avant')}{hidden}{run(' après')}</w:p>", styles=style)
        assert worker.call(content, DOCX).text == "avant après\n"

    def test_hidden_paragraphs_of_docx_are_gone(self, worker: IsolatedWorker) -> None:
        """A paragraph of a hidden style goes as a whole."""
        style = '<w:style w:styleId="Cache"><w:rPr><w:vanish/></w:rPr></w:style>'
        content = docx(paragraph("vu") + paragraph(CANARY, "Cache"), styles=style)
        assert worker.call(content, DOCX).text == "vu\n"

    def test_text_that_is_not_hidden_stays(self, worker: IsolatedWorker) -> None:
        """``vanish`` switched off, or on a paragraph's mark only, hides nothing."""
        mark = "<w:pPr><w:rPr><w:vanish/></w:rPr></w:pPr>"
        content = docx(
            paragraph("un", run_properties='<w:vanish w:val="0"/>')
            + f"<w:p>{mark}{run('deux')}</w:p>"
        )
        assert worker.call(content, DOCX).text == "un\n\ndeux\n"

    def test_hidden_text_of_odt_is_gone(self, worker: IsolatedWorker) -> None:
        """Spans and paragraphs whose style does not display text."""
        style = (
            '<style:style style:name="H" style:family="text">'
            '<style:text-properties text:display="none"/></style:style>'
        )
        content = odt(
            f'<text:p>avant<text:span text:style-name="H">{CANARY}<text:span>{CANARY}</text:span>'
            f'</text:span> après</text:p><text:p text:style-name="H">{CANARY}</text:p>',
            styles=style,
        )
        assert worker.call(content, ODT).text == "avant après\n"

    @settings(max_examples=15, deadline=None)
    @given(st.lists(st.tuples(st.sampled_from("abc é<"), st.booleans()), max_size=30))
    def test_exactly_the_visible_runs_remain(
        self, worker: IsolatedWorker, runs: list[tuple[str, bool]]
    ) -> None:
        """In any order of hidden and visible runs."""
        escaped = [(text.replace("<", "&lt;"), hidden) for text, hidden in runs]
        body = "".join(run(text, "<w:vanish/>" if hidden else "") for text, hidden in escaped)
        text = worker.call(docx(f"<w:p>{run('x')}{body}</w:p>"), DOCX).text
        seen = "x" + "".join(text for text, hidden in runs if not hidden)
        assert text.replace("\\", "").split() == seen.split()


@needs_kreuzberg
class TestRefusals:
    """Files that cannot be converted: a reason, no text, and the next file."""

    @pytest.mark.parametrize(
        ("content", "media_type", "words"),
        [
            (b"", DOCX, "no DOCX file"),
            (CANARY.encode(), ODT, "no ODT file"),
            (CANARY.encode() * 500, PDF, "no PDF file"),
            (b"PK\x03\x04" + CANARY.encode(), DOCX, "damaged"),
            (docx(paragraph(CANARY))[:700], DOCX, "damaged"),
            (b"%PDF-1.7 " + CANARY.encode(), PDF, "damaged"),
            (pdf([[(11, CANARY)]])[:200], PDF, "damaged"),
            (bytes.fromhex("d0cf11e0a1b11ae1") + bytes(2_000), DOCX, "password"),
            (encrypted_pdf(), PDF, "password"),
            (odt("<text:p>a</text:p>"), DOCX, "lacks"),
            (docx(paragraph("a")), ODT, "lacks"),
            (docx(f"<w:p><w:r><w:t>{CANARY}"), DOCX, "damaged"),
            (b"PK\x03\x04", "application/x-tar", "not converted"),
        ],
    )
    def test_a_broken_file_has_a_reason(
        self, worker: IsolatedWorker, content: bytes, media_type: str, words: str
    ) -> None:
        """The reason says what to do and quotes nothing."""
        assert words in failure(worker, content, media_type)

    def test_an_odt_with_a_password_is_told(self, worker: IsolatedWorker) -> None:
        """Its parts are unreadable; the manifest says why."""
        parts = odt_parts("<text:p>a</text:p>")
        manifest = str(parts["META-INF/manifest.xml"])
        parts["META-INF/manifest.xml"] = manifest.replace(
            "</manifest:manifest>", "<manifest:encryption-data/></manifest:manifest>"
        )
        assert "password" in failure(
            worker, package({**parts, "content.xml": os.urandom(500)}), ODT
        )

    def test_a_zip_bomb_is_not_unpacked(self, worker: IsolatedWorker) -> None:
        """100 MB in 100 kB are refused by what the package says of itself."""
        bomb = zip_bomb(docx_parts(paragraph("BOMB")), "word/document.xml", 100)
        assert len(bomb) < 1 << 20
        assert "MiB" in failure(worker, bomb, DOCX)

    def test_a_bomb_that_lies_about_its_size_is_held(self, worker: IsolatedWorker) -> None:
        """A directory that says 1 kB does not make a reader unpack 100 MB."""
        bomb = zip_bomb(docx_parts(paragraph("BOMB")), "word/document.xml", 100)
        true_size = (100 << 20) + len(str(docx_parts(paragraph(""))["word/document.xml"]))
        lying = bomb.replace(true_size.to_bytes(4, "little"), (1_000).to_bytes(4, "little"))
        assert lying != bomb
        failure(worker, lying, DOCX)

    def test_too_many_parts_are_refused(self, worker: IsolatedWorker) -> None:
        """No office program writes so many."""
        parts = docx_parts(paragraph("a"))
        parts |= {f"word/x{n}.xml": "" for n in range(MAX_PARTS)}
        assert "parts" in failure(worker, package(parts), DOCX)

    def test_two_parts_of_one_name_are_refused(self, worker: IsolatedWorker) -> None:
        """Readers would disagree on which of them counts."""
        name = b"word/docunent.xml"
        content = package({**docx_parts(paragraph("a")), name.decode(): "<a/>"})
        assert "two parts" in failure(worker, content.replace(name, b"word/document.xml"), DOCX)

    @pytest.mark.parametrize("count", [10, 10_000])
    def test_entities_of_a_document_type_are_not_expanded(
        self, worker: IsolatedWorker, count: int
    ) -> None:
        """Neither a bomb of entities nor a file of this machine gets into the text."""
        entities = f'<!DOCTYPE w [<!ENTITY a "{CANARY}"><!ENTITY f SYSTEM "file:///etc/hostname">]>'
        parts = docx_parts(f"<w:p><w:r><w:t>{'&a;' * count}&f;</w:t></w:r></w:p>")
        parts["word/document.xml"] = str(parts["word/document.xml"]).replace(
            DECLARATION, DECLARATION + entities
        )
        try:
            text = worker.call(package(parts), DOCX).text
        except ConversionFailed:
            return
        assert CANARY not in text
        assert os.uname().nodename not in text

    @pytest.mark.parametrize(
        ("content", "media_type"),
        [
            (odt("<text:list><text:list-item>" * 99_999 + DEEP_END * 99_999), ODT),
            (docx("<w:tbl><w:tr><w:tc>" * 30_000 + "</w:tc></w:tr></w:tbl>" * 30_000), DOCX),
            (docx("<w:sdt><w:sdtContent>" * 50_000 + "</w:sdtContent></w:sdt>" * 50_000), DOCX),
            (docx(paragraph("mot " * 10_000_000)), DOCX),
            (docx(paragraph("a") * 500_000), DOCX),
            (pdf([[(11, "a " * 2_000)] * 60] * 150), PDF),
        ],
        ids=["lists", "tables", "controls", "40 MB", "paragraphs", "pages"],
    )  # fmt: skip
    def test_a_file_that_is_too_complex_costs_only_itself(
        self, worker: IsolatedWorker, content: bytes, media_type: str
    ) -> None:
        """Converted, refused, or given up for time, memory or a crash; the next is converted."""
        with contextlib.suppress(ConversionFailed, WorkerFailed):
            worker.call(content, media_type)
        assert worker.call(docx(paragraph("ensuite")), DOCX).text == "ensuite\n"

    @settings(max_examples=40, deadline=None)
    @given(
        st.sampled_from(
            [(docx(TABLE_DOCX), DOCX), (odt("<text:p>é</text:p>"), ODT), (pdf([[(11, "é")]]), PDF)]
        ),
        st.lists(st.tuples(st.integers(0, 4_000), st.binary(min_size=1, max_size=4)), max_size=6),
    )
    def test_any_damage_is_survived(
        self, worker: IsolatedWorker, file: tuple[bytes, str], damage: list[tuple[int, bytes]]
    ) -> None:
        """Bytes changed anywhere: text, a reason, or a lost worker, and nothing else."""
        content, media_type = bytearray(file[0]), file[1]
        for place, data in damage:
            at = place % len(content)
            content[at : at + len(data)] = data
        with contextlib.suppress(ConversionFailed, WorkerFailed):
            assert isinstance(worker.call(bytes(content), media_type), ConvertedOffice)


@needs_kreuzberg
class TestConfinement:
    """Nothing is left behind, and nothing foreign is run."""

    def test_no_file_is_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """No cache of extracted text anywhere under the home, working or temporary folder."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HOME", str(tmp_path))
        with IsolatedWorker(
            f"{office_to_markdown.__module__}:office_to_markdown",
            result_types=[ConvertedOffice],
            warm_up=[(WARM_UP, PDF)],
        ) as worker:
            for _ in range(2):
                assert CANARY in worker.call(pdf([[(11, CANARY)]]), PDF).text
                assert CANARY in worker.call(docx(paragraph(CANARY)), DOCX).text
            left = [path for path in Path(str(worker._folder)).rglob("*") if path.is_file()]
            assert not [path for path in left if CANARY.encode() in path.read_bytes()]
        assert list(tmp_path.rglob("*")) == []

    def test_a_planted_pdf_library_is_not_loaded(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A library in the shared temporary folder that others can change is refused."""
        folder = tmp_path / "kreuzberg-pdfium"
        folder.mkdir()
        (folder / "libpdfium.so").write_bytes(b"planted")
        (folder / "libpdfium.so").chmod(0o666)
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        with pytest.raises(OfficeUnavailable, match="libpdfium"):
            office_to_markdown(pdf([[(11, "a")]]), PDF)

    @pytest.mark.skipif(sys.platform != "linux", reason="needs the limits of Linux")
    def test_a_library_that_cannot_be_unpacked_is_no_fault_of_the_file(self) -> None:
        """Without the warm-up a worker may not write it: no PDF is called damaged for that."""
        with IsolatedWorker(
            f"{office_to_markdown.__module__}:office_to_markdown", result_types=[ConvertedOffice]
        ) as worker:
            for _ in range(2):
                with pytest.raises(OfficeUnavailable, match="unpacked"):
                    worker.call(pdf([[(11, "a")]]), PDF)
            assert worker.call(docx(paragraph("a")), DOCX).text == "a\n"

    def test_reading_nothing_but_the_file(self) -> None:
        """Importing the module does not load the library: only a conversion does."""
        program = "import sys, rag_assets.documents.office; assert 'kreuzberg' not in sys.modules"
        subprocess.run([sys.executable, "-c", program], check=True)


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without kreuzberg learns the command."""
    monkeypatch.setitem(sys.modules, "kreuzberg", None)
    with pytest.raises(OfficeUnavailable, match=r"rag-assets\[office\]"):
        office_to_markdown(docx(paragraph("a")), DOCX)

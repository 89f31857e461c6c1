"""What was deleted, edited away, restricted or renamed is in no file of the data folder any more.

Each text that must vanish holds a word that stands nowhere else. It is looked for in every file, as
bytes in several encodings, and inside whatever packs its bytes: Parquet columns and statistics,
SQLite cells, zlib streams. French words are looked for by a part that accents, case and stemming
leave alone.
"""

from __future__ import annotations

import base64
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rag_assets.ingest import ingest
from rag_assets_tests.project import Project

DELETED = "bqvornakel"
EDITED = "dwuxtomiral"
QUARANTINED = "fkyzardunep"
IGNORED = "gjovqelimat"
RENAMED = "hxuprofenid"
UNCONFIGURED = "jzyvtolarec"
STAYS = "lqwintarog"
STREAMS = {b"\x78\x01": 15, b"\x78\x9c": 15, b"\x78\xda": 15, b"\x1f\x8b": 31}
"""First bytes of zlib and gzip streams, and the ``wbits`` that unpack them."""
GONE = (DELETED, EDITED, QUARANTINED, IGNORED, UNCONFIGURED)


def page(word: str) -> str:
    """A document that says the word everywhere: metadata, warnings, title, heading, body, code."""
    return (
        f"---\ntitle: Page {word}1titre\nauthor: {word}2auteur\n{word}3cle: [liste]\n---\n"
        f"# Chapitre {word}4haut\n\nTexte {word}5x et {word.upper()}6X, « {word}issements ».\n\n"
        f"## Partie des É{word}és\n\n```python\n{word}_7 = 'été'\n```\n"
        f"| a | b |\n|---|---|\n| {word}8 | l'É{word}9 |\n" + "remplissage ordinaire " * 300
    )


def spellings(word: str) -> list[bytes]:
    """The word as bytes: UTF-8, UTF-16, in capitals, hexadecimal, base64 at any offset.

    Without its first two letters: a full-text index writes what a term shares with its neighbour
    only once.
    """
    found = []
    for text in (word[2:], word[2:].upper()):
        for raw in (text.encode(), text.encode("utf-16-le"), text.encode("utf-16-be")):
            found += [raw, raw.hex().encode(), raw.hex().upper().encode()]
            for skip in range(3):
                packed = base64.b64encode(b"\0" * skip + raw)
                found.append(packed[4 if skip else 0 : -4])
    return found


def packed(path: Path) -> Iterator[bytes]:
    """All that a file holds: its bytes, and what is packed in it."""
    raw = path.read_bytes()
    yield raw
    if raw[:4] == b"PAR1":
        yield from parquet_values(path)
    elif raw.startswith(b"SQLite format 3\0"):
        for value in sqlite_values(path):
            yield value
            yield from unzipped(value)
    yield from unzipped(raw)


def unzipped(raw: bytes) -> Iterator[bytes]:
    """What the zlib and gzip streams in it unpack to, as far as they do."""
    for head, window in STREAMS.items():
        at = raw.find(head)
        while at >= 0:
            with suppress(zlib.error):
                yield zlib.decompressobj(window).decompress(raw[at:])
            at = raw.find(head, at + 1)


def parquet_values(path: Path) -> Iterator[bytes]:
    """Cells, schema metadata and statistics of every row group."""
    file = pq.ParquetFile(path)
    yield repr(file.schema_arrow.metadata).encode()
    for group in range(file.metadata.num_row_groups):
        for column in range(file.metadata.num_columns):
            statistics = file.metadata.row_group(group).column(column).statistics
            if statistics is not None and statistics.has_min_max:
                yield str((statistics.min, statistics.max)).encode()
    for column in file.read().columns:
        if not pa.types.is_fixed_size_list(column.type):
            yield from map(as_bytes, column.to_pylist())


def sqlite_values(path: Path) -> Iterator[bytes]:
    """Every cell of every table that can be read without extensions."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        names = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
        for name, sql in names.fetchall():
            if "VIRTUAL" in sql.upper():
                continue  # its own tables are listed too
            for row in connection.execute(f'SELECT * FROM "{name}"'):
                yield from map(as_bytes, row)
    finally:
        connection.close()


def as_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


def places(project: Project, word: str) -> set[str]:
    """The files of the data folder that hold the word, from the data folder down."""
    root = project.config.data_dir
    forms = spellings(word)
    return {
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.is_file() and any(form in part for part in packed(path) for form in forms)
    }


@pytest.fixture
def two_sources(project: Project) -> Project:
    """Six documents in one source, one in another, ingested by Dagster."""
    for path, word in (
        ("supprime.md", DELETED),
        ("retouche.md", EDITED),
        ("quarantaine.md", QUARANTINED),
        ("brouillons/exclu.md", IGNORED),
        (f"{RENAMED}.md", STAYS),
    ):
        project.write(path, page(word))
    project.write("autre.md", "# Autre\n\nun texte qui reste\n")
    wiki = project.folder / "wiki"
    wiki.mkdir()
    (wiki / "page.md").write_text(page(UNCONFIGURED), encoding="utf-8")
    docs = project.settings["sources"][0]
    project.configure(sources=[docs, {"name": "wiki", "root": "wiki", "acl": docs["acl"]}])
    report = ingest(project.path)
    assert report.status == "ok", [p.error for p in report.partitions]
    return project


def test_no_file_keeps_text_that_was_taken_away(two_sources: Project) -> None:
    """Index, journal, tables, cache, states, Dagster's databases and logs, after one more run."""
    project = two_sources
    for word in GONE:
        found = {place.split("/")[0] for place in places(project, word)}
        assert {"assets", "index"} <= found, "the search must be able to find it"
        assert found <= {"assets", "index"}, "while it is public, too, only where it is searched"
    (project.root / "supprime.md").unlink()
    project.write("retouche.md", "# Autre chose\n\nplus rien de cela\n")
    project.write("quarantaine.md", page(QUARANTINED).replace("---\n", "---\nacl: null\n", 1))
    project.write(".aiignore", "brouillons/\n")
    (project.root / f"{RENAMED}.md").rename(project.root / "nouveau.md")
    project.configure(sources=project.settings["sources"][:1])
    assert ingest(project.path).status == "partial"
    assert places(project, STAYS), "what was only renamed is still there"
    leaks = {word: found for word in GONE if (found := places(project, word))}
    assert leaks == {}
    names = places(project, RENAMED)
    assert {name.split("/")[0] for name in names} <= {"dagster"}, "an old name stays in its history"


@pytest.mark.parametrize("word", ["INDIGESTE", "PANNE"])
def test_an_embedder_that_quotes_texts_leaves_none_in_messages(project: Project, word: str) -> None:
    """Refusals and failures go to the index, to Dagster's history and to logs, without the text."""
    backend = "rag_assets_tests.pipeline.failing:QuotingEmbedder"
    options = project.settings["embedding"]["options"]
    project.configure(embedding={"backend": backend, "options": options})
    project.write("a.md", "# Autre\n\nun texte qui reste\n")
    project.write("b.md", f"# Titre de {STAYS}\n\n{word} « {STAYS}é »\n\n{DELETED} en 'un' mot\n")
    report = ingest(project.path)
    assert report.status == ("partial" if word == "INDIGESTE" else "failed")
    said = [str(part.error) for part in report.partitions]
    for canary in (STAYS, DELETED):
        assert not any(canary in line for line in said)
        found = {place.split("/")[0] for place in places(project, canary)}
        assert found == {"assets"}, "the file is still there, so its tables are"

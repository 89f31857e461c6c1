"""The full-text index after changes: what it holds, what it forgets, what of it is noticed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from rag_assets.acl import EVERYTHING
from rag_assets.index.connections import load_sqlite_vec
from rag_assets.index.sqlite import SqliteStore
from rag_assets.testing.documents import FINGERPRINT, indexed_document, write

LETTERS = "bcdfghklmnprstvz"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """An empty index in a file."""
    store = SqliteStore(tmp_path / "index.sqlite")
    store.initialize(FINGERPRINT)
    yield store
    store.close()


def opened(store: SqliteStore) -> apsw.Connection:
    """The file itself, to be damaged."""
    connection = apsw.Connection(str(store.path))
    load_sqlite_vec(connection)
    return connection


def words(chance: random.Random, count: int) -> str:
    """Random words that share beginnings, so that pages of the index are divided within them."""
    return " ".join(
        "".join(chance.choice(LETTERS[:4]) for _ in range(3))
        + "".join(chance.choice(LETTERS) for _ in range(12))
        for _ in range(count)
    )


def test_no_word_of_a_deleted_document_stays_in_the_file(store: SqliteStore) -> None:
    """Not even where a page of the index begins; what is left is found, whole and sound."""
    chance = random.Random(3)
    texts = {f"{n}.md": [words(chance, 150) for _ in range(3)] for n in range(60)}
    write(store, *(indexed_document(path, parts) for path, parts in texts.items()))
    gone = [path for n, path in enumerate(texts) if n % 3]
    for batch in (gone[:15], gone[15:30], gone[30:]):
        with store.writing(run_id="r", partition="p", wait_seconds=1):
            store.delete_documents("guides", batch)
            store.finish()
    assert store.verify() == []
    kept = {w for path in texts if path not in gone for part in texts[path] for w in part.split()}
    lost = {w for path in gone for part in texts[path] for w in part.split()} - kept
    store.close()
    held = b"".join(file.read_bytes() for file in store.path.parent.iterdir())
    # FTS5 writes only how a term differs from the one before, so the ends of words are looked for.
    assert not [word for word in lost if word[3:].encode() in held]
    for path in ("0.md", "30.md"):
        question = texts[path][1].split()[7]
        hits = store.search(None, 100, acl_tags=EVERYTHING, text=question)
        expected = {(p, n) for p in set(texts) - set(gone) for n in range(3)
                    if question in texts[p][n].split()}  # fmt: skip
        assert {(hit.path, hit.position) for hit in hits} == expected


def test_index_after_random_edits_equals_a_fresh_one(store: SqliteStore, tmp_path: Path) -> None:
    """Edits, deletions, changes of tags and language leave the postings of a fresh index."""
    chance = random.Random(5)
    now: dict[str, tuple[list[str], tuple[str, ...], str]] = {}
    for _ in range(40):
        batch = {f"{chance.randrange(12)}.md" for _ in range(3)}
        for path in batch:
            text = [words(chance, chance.randrange(1, 30)) for _ in range(chance.randrange(1, 4))]
            tags = (chance.choice(["public", "x"]),)
            now[path] = (text, tags, chance.choice(["fr", "en", ""]))
        write(store, *(indexed_document(p, now[p][0], tags=now[p][1], language=now[p][2])
                       for p in sorted(batch)))  # fmt: skip
        with store.writing(run_id="r", partition="p", wait_seconds=1):
            victim = chance.choice(sorted(now))
            if chance.random() < 0.3:
                del now[victim]
                store.delete_documents("guides", [victim])
            store.finish()
    assert store.verify() == []
    fresh = SqliteStore(tmp_path / "fresh" / "index.sqlite")
    fresh.initialize(FINGERPRINT)
    write(fresh, *(indexed_document(p, t, tags=g, language=lang)
                   for p, (t, g, lang) in now.items()))  # fmt: skip
    for text, tags, _ in now.values():
        question = " ".join(text)[:200]
        found = [s.search(None, 50, acl_tags=tags, text=question) for s in (store, fresh)]
        assert found[0] == found[1]
        assert found[0]
    fresh.close()


DAMAGES = {
    "terms of a passage": "UPDATE chunk SET terms = 'autre~fr1' WHERE id = 2",
    "lengths": "DELETE FROM text_length WHERE chunk_id = 3",
    "statistics": "UPDATE text_statistics SET terms = terms + 1",
    "sizes": "DELETE FROM chunk_text_docsize WHERE id = 1",
    "directory": "DELETE FROM chunk_text_idx",
}


@pytest.mark.parametrize("seed", range(4))
def test_words_that_stay_while_tags_change_never_come_back(store: SqliteStore, seed: int) -> None:
    """A frequent word in edited passages, tags changing to and fro: nobody finds a former state."""
    chance = random.Random(seed)
    texts: dict[int, str] = {}
    tags: dict[int, str] = {}

    def text() -> str:
        return " ".join(
            f"s{chance.randrange(10**6)} " + "commun " * chance.randint(0, 12)
            for _ in range(chance.choice([1, 2, 8, 30, 60]))
        )

    for _ in range(8):
        changed, gone = [], []
        for n in range(120):
            dice = chance.random()
            if n not in texts or dice < 0.25:
                texts[n], tags[n] = text(), tags.get(n) or chance.choice(["public", "hr"])
                changed.append(n)
            elif dice < 0.40:
                tags[n] = "hr" if tags[n] == "public" else "public"
                changed.append(n)
            elif dice < 0.45:
                gone.append(n)
                del texts[n], tags[n]
        chance.shuffle(changed)
        with store.writing(run_id="r", partition="p", wait_seconds=1):
            store.delete_documents("guides", [f"{n}.md" for n in gone])
            store.upsert_documents(
                [indexed_document(f"{n}.md", [texts[n]], tags=[tags[n]]) for n in changed],
                run_id="r",
            )
            store.finish()
        for tag in ("public", "hr"):
            hits = store.search(None, 500, acl_tags=[tag], text="commun")
            seen = {f"{n}.md" for n in texts if tags[n] == tag and "commun" in texts[n]}
            assert {hit.path for hit in hits} == seen
    assert store.verify() == []


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damage_is_noticed_and_repaired(store: SqliteStore, damage: str) -> None:
    """``verify`` names it, ``repair`` leaves a sound index to which the documents are written."""
    chance = random.Random(2)
    items = [indexed_document(f"{n}.md", [f"mot{n} commun", words(chance, 400)]) for n in range(4)]
    write(store, *items)
    connection = opened(store)
    connection.execute(damage)
    connection.close()
    assert store.verify() != []
    with store.writing(run_id="r", partition="p", wait_seconds=1):
        store.repair()
        store.upsert_documents(items, run_id="r")
    assert store.verify() == []
    assert len(store.search(None, 9, acl_tags=EVERYTHING, text="commun")) == 4


def test_two_passages_that_swapped_their_postings_are_noticed(store: SqliteStore) -> None:
    """Counts agree; only a comparison passage by passage tells."""
    write(store, indexed_document("a.md", ["premier mot"]), indexed_document("b.md", ["autre mot"]))
    connection = opened(store)
    rows = connection.execute("SELECT id, terms FROM chunk ORDER BY id").fetchall()
    for chunk_id, terms in rows:
        connection.execute(
            "INSERT INTO chunk_text (chunk_text, rowid, terms) VALUES ('delete', ?, ?)",
            (chunk_id, terms),
        )
    for (_, terms), (other, _) in zip(rows, reversed(rows), strict=True):
        connection.execute("INSERT INTO chunk_text (rowid, terms) VALUES (?, ?)", (other, terms))
    connection.close()
    assert any("full-text" in sentence for sentence in store.verify())

"""Faults that users of comparable indexes met, each as its whole kind."""

from __future__ import annotations

from pathlib import Path

import apsw
import numpy as np
import pytest

from rag_assets.acl import EVERYTHING
from rag_assets.errors import DimensionMismatch, FingerprintMismatch, VectorStoreError
from rag_assets.fingerprints import document_digest
from rag_assets.index.connections import load_sqlite_vec
from rag_assets.index.generations import IndexDirectory
from rag_assets.index.sqlite import SqliteStore
from rag_assets.models import IndexFingerprint
from rag_assets.retrieval import Retriever
from rag_assets.testing.documents import (
    FINGERPRINT,
    assert_nearest,
    by_source,
    found,
    indexed_document,
    nearest_by_hand,
    unit_vector,
    write,
)
from rag_assets.testing.embedders import StubEmbedder


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    """An initialised store."""
    store = SqliteStore(tmp_path / "index.sqlite")
    store.initialize(FINGERPRINT)
    return store


def upsert_twice(store: SqliteStore) -> None:
    """The same document twice, then changed: replaced, never a constraint error."""
    for text in ("un", "un", "deux"):
        write(store, indexed_document("a.md", [text]))
    hits = store.search(unit_vector("un"), 9, acl_tags=EVERYTHING)
    assert [hit.content for hit in hits] == ["deux"]
    assert store.stats().vectors == 1


def large_k(store: SqliteStore) -> None:
    """k = 5,000 over 4,500 passages: all of them, where the extension gives an error."""
    items = [indexed_document(f"{n}.md", [f"{n} {m}" for m in range(45)]) for n in range(100)]
    write(store, *items)
    hits = store.search(unit_vector("3 3"), 5_000, acl_tags=EVERYTHING)
    assert len(hits) == 4_500
    assert_nearest(hits, items, unit_vector("3 3"), 5_000, EVERYTHING, None)


def limit_through_join(store: SqliteStore) -> None:
    """Three hits under a filter on the documents are the three nearest of those."""
    items = [
        indexed_document(f"{n}.md", [f"t {n}"], source="ab"[n % 2], tags=[f"g{n % 3}"])
        for n in range(60)
    ]
    write(store, *items)
    for tags in (["g0"], ["g0", "g2"], EVERYTHING):
        hits = store.search(unit_vector("t 8"), 3, acl_tags=tags, filters=by_source(["b"]))
        assert found(hits) == nearest_by_hand(items, unit_vector("t 8"), 3, tags, ["b"])
        assert len(hits) == 3


def empty_question(store: SqliteStore) -> None:
    """An empty or broken question vector is refused here, in words."""
    write(store, indexed_document("a.md", ["un"]))
    for vector in ([], [np.nan] * 8, [0.0] * 8, [1e300] * 8, [[1.0] * 8]):
        with pytest.raises(VectorStoreError, match=r"dimension|question|shape"):
            store.search(np.array(vector), 3, acl_tags=EVERYTHING)


def order_of_a_list(store: SqliteStore) -> None:
    """The order is by distance, whatever the order of tags, sources and writing."""
    items = [indexed_document(f"{n}.md", [f"t {n}"], tags=[f"g{n}"]) for n in range(30)]
    write(store, *items)
    tags = [f"g{n}" for n in (19, 18, 3, 25)]
    for order in (tags, tags[::-1]):
        hits = store.search(unit_vector("t 18"), 4, acl_tags=order)
        assert hits[0].path == "18.md"
        assert [hit.score for hit in hits] == sorted((h.score for h in hits), reverse=True)


def other_dimension_to_write(store: SqliteStore) -> None:
    """A model of dimension 768 on an index of 384: refused before any write, both numbers."""
    other = SqliteStore(store.path.parent / "other.sqlite")
    other.initialize(IndexFingerprint("e5", 384, "c"))
    with pytest.raises(DimensionMismatch, match=r"384.*768"):
        other.initialize(IndexFingerprint("e5-large", 768, "c"))
    with pytest.raises(DimensionMismatch, match=r"384.*768"):
        write(other, indexed_document("a.md", ["un"], dim=768))
    assert other.stats().documents == 0


def other_dimension_to_ask(store: SqliteStore) -> None:
    """An embedder of another dimension or model than the index's: an explicit error."""
    embedder = StubEmbedder(dim=8, model="ancien")
    other = SqliteStore(store.path.parent / "other.sqlite")
    other.initialize(IndexFingerprint(embedder.fingerprint, 8, "c"))
    assert Retriever(other, embedder).retrieve("x", acl_tags=EVERYTHING) == []
    with pytest.raises(DimensionMismatch, match=r"8.*32.*--full"):
        Retriever(other, StubEmbedder(dim=32)).retrieve("x", acl_tags=EVERYTHING)
    with pytest.raises(FingerprintMismatch, match=r"--full"):
        Retriever(other, StubEmbedder(dim=8, model="autre")).retrieve("x", acl_tags=EVERYTHING)


def negative_and_huge_k(store: SqliteStore) -> None:
    """Any integer is a valid k."""
    write(store, indexed_document("a.md", ["un", "deux"]))
    sizes = [
        len(store.search(unit_vector("un"), k, acl_tags=EVERYTHING))
        for k in (-(2**64), -1, 0, 1, 10**6, 2**63, 2**64)
    ]
    assert sizes == [0, 0, 0, 1, 2, 2, 2]


def moved_file(store: SqliteStore) -> None:
    """The new path is written, then the old one removed: found there and only there."""
    write(store, indexed_document("a.md", ["contenu"], title="T"))
    with store.writing(run_id="r", partition="p", wait_seconds=1):
        store.upsert_documents([indexed_document("sub/a.md", ["contenu"], title="T")], run_id="r")
        store.delete_documents("guides", ["a.md"])
    hits = store.search(unit_vector("contenu"), 9, acl_tags=EVERYTHING)
    assert [hit.path for hit in hits] == ["sub/a.md"]
    assert "sub/a.md" in hits[0].url


def long_document_twice(store: SqliteStore) -> None:
    """A document of 250 passages written again touches no passage."""
    item = indexed_document("a.md", [f"t {n}" for n in range(250)])
    write(store, item)
    counts = write(store, item)
    assert (counts.chunks_upserted, counts.chunks_unchanged) == (0, 250)
    assert store.document_digests("guides")["a.md"] == document_digest(item.document, item.chunks)


def vectors_gone(store: SqliteStore, share: str) -> None:
    """Rows deleted by hand are noticed by counting, and repaired to be written again."""
    items = [indexed_document(f"{n}.md", [f"{n} {m}" for m in range(5)]) for n in range(20)]
    write(store, *items)
    connection = apsw.Connection(str(store.path))
    load_sqlite_vec(connection)
    connection.execute(f"DELETE FROM chunk_vector WHERE {share}")
    connection.close()
    assert store.quick_check()
    assert store.verify()
    with store.writing(run_id="r", partition="p", wait_seconds=1):
        assert store.repair() > 0
        missing = [i for i in items if i.document.path not in store.document_digests("guides")]
        store.upsert_documents(missing, run_id="r")
    assert store.quick_check() == store.verify() == []
    assert store.stats().vectors == 100


def half_of_the_vectors_gone(store: SqliteStore) -> None:
    """Half of the vectors."""
    vectors_gone(store, "rowid % 2 = 0")


def ten_vectors_gone(store: SqliteStore) -> None:
    """Ten of a hundred."""
    vectors_gone(store, "rowid <= 10")


def crash_between_steps(store: SqliteStore) -> None:
    """Text, vectors and hash change in one transaction: a failure in between leaves the old."""
    old = indexed_document("a.md", ["ancien"])
    write(store, old)
    with pytest.raises(VectorStoreError):
        write(store, indexed_document("a.md", ["nouveau"]), indexed_document("a.md", ["twice"]))
    assert store.document_hash("guides", "a.md") == old.document.content_hash
    assert store.search(unit_vector("x"), 3, acl_tags=EVERYTHING)[0].content == "ancien"


def renamed_file_leaves_no_ghost(store: SqliteStore) -> None:
    """After a rename no hit comes from the old name."""
    write(store, indexed_document("tarifs.md", ["prix"], title="T"))
    with store.writing(run_id="r", partition="p", wait_seconds=1):
        store.upsert_documents([indexed_document("prix.md", ["prix"], title="T")], run_id="r")
        assert store.delete_documents("guides", ["tarifs.md"]) == 1
    hits = store.search(unit_vector("prix"), 99, acl_tags=EVERYTHING)
    assert [hit.path for hit in hits] == ["prix.md"]


def superseded_vectors(store: SqliteStore) -> None:
    """Version 1, version 2, deleted: no vector is left."""
    write(store, indexed_document("a.md", ["un", "deux", "trois"]))
    write(store, indexed_document("a.md", ["quatre"]))
    with store.writing(run_id="r", partition="p", wait_seconds=1):
        store.delete_documents("guides", ["a.md"])
    assert store.stats().vectors == 0
    assert store.verify() == []


KINDS = {
    "VEC-01": upsert_twice,
    "VEC-03": large_k,
    "VEC-05": limit_through_join,
    "VEC-07": empty_question,
    "VEC-09": order_of_a_list,
    "VEC-11": other_dimension_to_write,
    "VEC-13": other_dimension_to_ask,
    "VEC-17": negative_and_huge_k,
    "INC-01": moved_file,
    "INC-03": long_document_twice,
    "INC-05": half_of_the_vectors_gone,
    "INC-07": crash_between_steps,
    "INC-09": ten_vectors_gone,
    "INC-13": renamed_file_leaves_no_ghost,
    "INC-15": superseded_vectors,
}
"""VEC-15 (two writers and a reader) is in test_concurrency.py."""


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_known_failure(store: SqliteStore, kind: object) -> None:
    """The index does what is expected of it where others failed."""
    kind(store)  # type: ignore[operator]


def test_model_swap_of_the_same_dimension_is_noticed_after_promotion(tmp_path: Path) -> None:
    """A rebuild with another model makes open retrievers of the old model refuse to answer."""
    old, new = StubEmbedder(dim=8, model="ancien"), StubEmbedder(dim=8, model="nouveau")
    directory = IndexDirectory(tmp_path)
    first = directory.writable_store()
    first.initialize(IndexFingerprint(old.fingerprint, 8, "c"))
    write(first, indexed_document("a.md", ["un"]))
    live = directory.live_store()
    assert live is not None
    retriever = Retriever(live, old)
    assert len(retriever.retrieve("un", acl_tags=EVERYTHING)) == 1
    second = directory.writable_store("b")
    second.initialize(IndexFingerprint(new.fingerprint, 8, "c"))
    write(second, indexed_document("a.md", ["un"]))
    second.promote()
    with pytest.raises(FingerprintMismatch):
        retriever.retrieve("un", acl_tags=EVERYTHING)
    assert len(Retriever(live, new).retrieve("un", acl_tags=EVERYTHING)) == 1

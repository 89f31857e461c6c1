"""What every ``VectorStore`` must do: a pytest class to subclass, overriding one fixture."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_assets.acl import EVERYTHING, AclTags
from rag_assets.errors import (
    DimensionMismatch,
    FingerprintMismatch,
    IndexLocked,
    VectorStoreError,
)
from rag_assets.filters import Filters
from rag_assets.fingerprints import document_digest
from rag_assets.index.base import UpsertCounts, VectorStore
from rag_assets.models import IndexFingerprint, IngestRun, LeftOut
from rag_assets.testing.documents import (
    DIM,
    FINGERPRINT,
    by_source,
    found,
    indexed_document,
    nearest_by_hand,
    unit_vector,
    write,
)

MakeStore = Callable[[], VectorStore]

_WORDS: Final = [f"passage {n}" for n in range(9)]
_TAGS: Final = ["public", "admin_only", "service:rh", "service:it"]
_DOCUMENTS: Final = st.lists(
    st.tuples(
        st.sampled_from(["guides", "wiki", "notes"]),
        st.sampled_from([f"{folder}/{n}.md" for folder in "aé" for n in range(6)]),
        st.lists(st.sampled_from(_WORDS), max_size=5),
        st.sets(st.sampled_from(_TAGS), max_size=3),
    ),
    unique_by=lambda one: one[:2],
    max_size=14,
)
_UNMINDED: Final = (
    HealthCheck.function_scoped_fixture,  # every example begins by replacing what the last wrote
    HealthCheck.differing_executors,  # the class is made to be subclassed
    HealthCheck.too_slow,
)


class VectorStoreContract:
    """Subclass it in a test module and override ``make_store``."""

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """A function that gives another store object over this test's own place, empty at first."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, make_store: MakeStore) -> VectorStore:
        """A store initialised with ``FINGERPRINT``, without documents."""
        store = make_store()
        store.initialize(FINGERPRINT)
        return store

    # -- writing ---------------------------------------------------------------------------------

    def test_satisfies_the_protocol(self, store: VectorStore) -> None:
        """The object has every member of the contract."""
        assert isinstance(store, VectorStore)

    def test_document_comes_back_as_written(self, store: VectorStore) -> None:
        """A hit and an explanation carry what was stored, accents included."""
        item = indexed_document("réseau/vpn.md", ["l'été", "cœur 🫀"], title="Le «VPN»")
        assert write(store, item) == UpsertCounts(chunks_upserted=2, chunks_unchanged=0)
        hit = store.search(unit_vector("cœur 🫀"), 1, acl_tags=["public"])[0]
        chunk = item.chunks[1]
        assert (hit.rank, hit.content, hit.title) == (1, "cœur 🫀", "Le «VPN»")
        assert hit.score == hit.vector_score == pytest.approx(1.0, abs=1e-6)
        assert (hit.start_line, hit.end_line, hit.section) == (3, 4, "Début")
        assert hit.url == "https://wiki.example/réseau/vpn.md#d%C3%A9but"
        assert hit.content_hash == chunk.content_hash
        explained = store.explain("guides", "réseau/vpn.md")
        assert explained.document == item.document
        assert list(explained.chunks) == list(item.chunks)
        assert explained.run_id == "run-1"
        assert explained.indexed_at is not None

    @pytest.mark.parametrize("wrong", [0, 1, 3])
    def test_as_many_vectors_as_chunks_are_required(self, store: VectorStore, wrong: int) -> None:
        """A count that differs is refused, and nothing of the batch is written."""
        good = indexed_document("a.md", ["un", "deux"])
        bad = replace(good, vectors=indexed_document("a.md", ["x"] * wrong).vectors)
        with pytest.raises(VectorStoreError):
            write(store, indexed_document("b.md", ["trois"]), bad)
        assert store.stats().documents == 0
        assert store.stats().vectors == 0

    @pytest.mark.parametrize(
        "fault",
        [np.nan, np.inf, -np.inf, 1e300, 0.0, 2.0],
        ids=["nan", "inf", "-inf", "1e300", "zero", "not-unit"],
    )
    def test_vector_without_direction_is_refused(self, store: VectorStore, fault: float) -> None:
        """NaN, infinite, overflowing, zero and unscaled vectors are refused before any write."""
        item = indexed_document("a.md", ["un", "deux"])
        vectors = item.vectors.astype(np.float64)
        vectors[1] = vectors[1] * fault if fault in (0.0, 2.0) else fault
        with pytest.raises(VectorStoreError, match=r"a\.md.*passage 1"):
            write(store, replace(item, vectors=vectors))  # type: ignore[arg-type]
        assert store.stats().chunks == 0

    @pytest.mark.parametrize("dim", [DIM - 1, DIM + 1, 2 * DIM])
    def test_other_dimension_is_refused_with_both_numbers(
        self, store: VectorStore, dim: int
    ) -> None:
        """Writing or asking with vectors of another dimension names both dimensions."""
        with pytest.raises(DimensionMismatch, match=rf"{DIM}.*{dim}"):
            write(store, indexed_document("a.md", ["un"], dim=dim))
        with pytest.raises(DimensionMismatch, match=rf"{DIM}.*{dim}"):
            store.search(unit_vector("un", dim), 3, acl_tags=EVERYTHING)

    def test_document_is_replaced_whole(self, store: VectorStore) -> None:
        """After a new version, nothing of the old one is found."""
        write(store, indexed_document("a.md", [f"ancien {n}" for n in range(6)]))
        counts = write(store, indexed_document("a.md", ["nouveau"]))
        assert counts.chunks_upserted == 1
        hits = store.search(unit_vector("ancien 3"), 100, acl_tags=EVERYTHING)
        assert [hit.content for hit in hits] == ["nouveau"]
        assert store.verify() == []

    def test_unchanged_passages_are_counted_as_unchanged(self, store: VectorStore) -> None:
        """One changed passage in five: one upserted, four unchanged."""
        texts = [f"texte {n}" for n in range(5)]
        write(store, indexed_document("a.md", texts))
        texts[2] = "autre chose"
        counts = write(store, indexed_document("a.md", texts))
        assert counts == UpsertCounts(chunks_upserted=1, chunks_unchanged=4)
        assert store.verify() == []

    def test_moved_passages_keep_their_vectors(self, store: VectorStore) -> None:
        """Passages in another order answer at their new positions."""
        texts = [f"texte {n}" for n in range(5)]
        write(store, indexed_document("a.md", texts))
        write(store, indexed_document("a.md", texts[::-1]))
        for position, text in enumerate(texts[::-1]):
            hit = store.search(unit_vector(text), 1, acl_tags=EVERYTHING)[0]
            assert (hit.content, hit.position) == (text, position)
        assert store.verify() == []

    @given(steps=st.lists(st.lists(st.sampled_from(_WORDS), max_size=7), min_size=1, max_size=5))
    @settings(max_examples=25, deadline=None, suppress_health_check=_UNMINDED)
    def test_any_sequence_of_versions_leaves_the_last(
        self, store: VectorStore, steps: list[list[str]]
    ) -> None:
        """Whatever a document was before, the index holds exactly its last version."""
        for texts in steps:
            item = indexed_document("a.md", texts)
            counts = write(store, item)
            assert counts.chunks_upserted + counts.chunks_unchanged == len(texts)
        assert list(store.explain("guides", "a.md").chunks) == list(item.chunks)
        hits = store.search(unit_vector("x"), 50, acl_tags=EVERYTHING)
        assert sorted(h.position for h in hits) == list(range(len(texts)))
        assert store.verify() == []

    def test_batch_is_written_whole_or_not_at_all(self, store: VectorStore) -> None:
        """One impossible document keeps the rest of its batch out, and the old versions in."""
        write(store, indexed_document("a.md", ["avant"]))
        bad = replace(indexed_document("b.md", ["x"]), chunks=[])
        with pytest.raises(VectorStoreError):
            write(store, indexed_document("a.md", ["après"]), bad)
        assert store.search(unit_vector("x"), 9, acl_tags=EVERYTHING)[0].content == "avant"

    def test_document_without_passages_is_a_document(self, store: VectorStore) -> None:
        """It is counted and explained, and never found."""
        write(store, indexed_document("vide.md", []))
        assert store.stats().documents == 1
        assert store.document_hash("guides", "vide.md") is not None
        assert store.search(unit_vector("x"), 5, acl_tags=EVERYTHING) == []
        assert store.verify() == []

    def test_writing_without_the_lease_is_refused(self, store: VectorStore) -> None:
        """No write goes around the lease."""
        for attempt in (
            lambda: store.upsert_documents([indexed_document("a.md", ["x"])], run_id="r"),
            lambda: store.delete_documents("guides", ["a.md"]),
            lambda: store.record_partition("guides", "1"),
            store.finish,
            store.repair,
        ):
            with pytest.raises(VectorStoreError):
                attempt()
        assert store.stats().documents == 0

    def test_same_text_in_two_files_is_two_documents(self, store: VectorStore) -> None:
        """Identity is source and path, never the hash."""
        write(
            store,
            indexed_document("a.md", ["pareil"], title="t"),
            indexed_document("b.md", ["pareil"], title="t"),
            indexed_document("a.md", ["pareil"], title="t", source="wiki"),
        )
        hits = store.search(unit_vector("pareil"), 9, acl_tags=EVERYTHING)
        assert found(hits) == [("guides", "a.md", 0), ("guides", "b.md", 0), ("wiki", "a.md", 0)]
        with store.writing(run_id="r", partition="guides", wait_seconds=1):
            assert store.delete_documents("guides", ["a.md", "absent.md"]) == 1
        assert len(store.search(unit_vector("pareil"), 9, acl_tags=EVERYTHING)) == 2
        assert store.verify() == []

    def test_deleted_documents_leave_nothing(self, store: VectorStore) -> None:
        """Document, passages and vectors go together."""
        write(store, *(indexed_document(f"{n}.md", ["un", "deux"]) for n in range(20)))
        with store.writing(run_id="r", partition="guides", wait_seconds=1):
            assert store.delete_documents("guides", [f"{n}.md" for n in range(20)]) == 20
            store.finish()
        stats = store.stats()
        assert (stats.documents, stats.chunks, stats.vectors) == (0, 0, 0)
        assert store.search(unit_vector("un"), 5, acl_tags=EVERYTHING) == []
        assert store.document_hash("guides", "3.md") is None
        assert store.verify() == []

    # -- searching -------------------------------------------------------------------------------

    @given(
        documents=_DOCUMENTS,
        k=st.integers(-1, 40),
        tags=st.one_of(st.just(EVERYTHING), st.sets(st.sampled_from([*_TAGS, "inconnu"]))),
        sources=st.one_of(st.none(), st.sets(st.sampled_from(["guides", "wiki", "absent"]))),
        question=st.sampled_from(["passage 0", "passage 7", "tout autre chose"]),
    )
    @settings(max_examples=60, deadline=None, suppress_health_check=_UNMINDED)
    def test_search_equals_brute_force(
        self,
        store: VectorStore,
        documents: list[tuple[str, str, list[str], set[str]]],
        k: int,
        tags: AclTags,
        sources: set[str] | None,
        question: str,
    ) -> None:
        """Under any tags and sources: the same passages in the same order, ties included."""
        items = [
            indexed_document(path, texts, source=source, tags=sorted(acl))
            for source, path, texts, acl in documents
        ]
        with store.writing(run_id="r", partition="all", wait_seconds=5):
            for source in ("guides", "wiki", "notes"):
                store.delete_documents(source, list(store.document_digests(source)))
            store.upsert_documents(items, run_id="r")
        vector = unit_vector(question)
        hits = store.search(vector, k, acl_tags=tags, filters=by_source(sources))
        assert found(hits) == nearest_by_hand(items, vector, k, tags, sources)
        assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
        for hit in hits:
            cosine = float(unit_vector(hit.content) @ vector)
            assert hit.vector_score == pytest.approx(cosine, abs=1e-5)

    @pytest.mark.parametrize("k", [0, -1, -(2**63)])
    def test_k_of_nothing_gives_nothing(self, store: VectorStore, k: int) -> None:
        """k <= 0 is an empty answer, never a database error."""
        write(store, indexed_document("a.md", ["un"]))
        assert store.search(unit_vector("un"), k, acl_tags=EVERYTHING) == []

    @pytest.mark.parametrize("k", [3, 4_096, 4_097, 10**6, 2**63, 2**80])
    def test_large_k_gives_everything_visible(self, store: VectorStore, k: int) -> None:
        """A k beyond what there is, or beyond an engine's limit, gives all that is visible."""
        write(store, indexed_document("a.md", ["un", "deux", "trois"]))
        write(store, indexed_document("b.md", ["quatre"], tags=["admin_only"]))
        assert len(store.search(unit_vector("un"), k, acl_tags=["public"])) == 3

    def test_ties_beyond_k_are_cut_by_name(self, store: VectorStore) -> None:
        """Of many equal passages the first by source, path and position are given."""
        items = [indexed_document(f"{n:03}.md", ["copie", "copie"]) for n in range(60)]
        write(store, *reversed(items))
        for k in (1, 2, 7, 119):
            hits = store.search(unit_vector("copie"), k, acl_tags=EVERYTHING)
            assert found(hits) == nearest_by_hand(items, unit_vector("copie"), k, EVERYTHING, None)

    @pytest.mark.parametrize(
        "fault", [np.nan, np.inf, 1e300, 0.0], ids=["nan", "inf", "1e300", "zero"]
    )
    def test_question_without_direction_is_refused(self, store: VectorStore, fault: float) -> None:
        """A broken question vector is named as such."""
        with pytest.raises(VectorStoreError, match="question"):
            store.search(np.full(DIM, fault), 3, acl_tags=EVERYTHING)

    @pytest.mark.parametrize("vector", [[], [[1.0] + [0.0] * (DIM - 1)]], ids=["empty", "matrix"])
    def test_question_of_another_shape_is_refused(self, store: VectorStore, vector: Any) -> None:
        """An empty vector (a failed embedding call) never reaches the database."""
        with pytest.raises(VectorStoreError):
            store.search(vector, 3, acl_tags=EVERYTHING)

    # -- access control --------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "tags",
        [
            [],
            ["inconnu"],
            ["%"],
            ["'"],
            ["' OR 1=1 --"],
            ["PUBLIC"],
            ["publi"],
            ["public "],
            ["service"],
            ["service:%"],
            ["public\0"],
            ["\udc80"],
            [""],
        ],
    )
    def test_tags_that_are_not_on_the_document_see_nothing(
        self, store: VectorStore, tags: list[str]
    ) -> None:
        """Tags are compared whole and byte for byte: no pattern, prefix, case or quoting."""
        write(store, indexed_document("a.md", ["un"], tags=["public", "service:rh"]))
        assert store.search(unit_vector("un"), 5, acl_tags=tags) == []

    def test_ten_thousand_tags_are_as_good_as_one(self, store: VectorStore) -> None:
        """However many tags a caller names, it sees what one of them allows."""
        items = [indexed_document(f"{n}.md", [f"t {n}"], tags=[f"tag:{n}"]) for n in range(300)]
        write(store, *items)
        tags = [f"tag:{n}" for n in range(5, 10_000)]
        hits = store.search(unit_vector("t 7"), 1000, acl_tags=tags)
        assert len(hits) == 295
        assert hits[0].path == "7.md"
        assert found(hits) == nearest_by_hand(items, unit_vector("t 7"), 1000, tags, None)

    def test_untagged_document_is_seen_by_nobody(self, store: VectorStore) -> None:
        """Only explicit trust sees a document without tags."""
        write(store, indexed_document("a.md", ["un"], tags=[]))
        assert store.search(unit_vector("un"), 5, acl_tags=["public", ""]) == []
        assert len(store.search(unit_vector("un"), 5, acl_tags=EVERYTHING)) == 1

    def test_one_str_is_not_a_collection_of_tags(self, store: VectorStore) -> None:
        """A bare str would be read as its letters; it is refused."""
        with pytest.raises(TypeError):
            store.search(unit_vector("un"), 5, acl_tags="public")
        with pytest.raises(TypeError):
            Filters(sources="guides")  # type: ignore[arg-type]

    def test_revoked_tag_takes_effect_with_the_write(self, store: VectorStore) -> None:
        """The same passages under other tags: the former caller no longer sees them."""
        write(store, indexed_document("a.md", ["un", "deux"], tags=["service:rh"]))
        counts = write(store, indexed_document("a.md", ["un", "deux"], tags=["admin_only"]))
        assert counts.chunks_unchanged == 2
        assert store.search(unit_vector("un"), 5, acl_tags=["service:rh"]) == []
        assert len(store.search(unit_vector("un"), 5, acl_tags=["admin_only"])) == 2
        assert store.verify() == []

    # -- what the index knows --------------------------------------------------------------------

    def test_hashes_and_digests_of_documents(self, store: VectorStore) -> None:
        """Both are kept by source and path."""
        item = indexed_document("a.md", ["un"])
        write(store, item, indexed_document("a.md", ["deux"], source="wiki"))
        assert store.document_hash("guides", "a.md") == item.document.content_hash
        assert store.document_hash("guides", "b.md") is None
        digest = document_digest(item.document, item.chunks)
        assert store.document_digests("guides") == {"a.md": digest}
        assert store.document_digests("absent") == {}

    def test_ledger_of_left_out_files(self, store: VectorStore) -> None:
        """Rows are replaced and removed by path, and come back ordered."""
        one = LeftOut("guides", "b.md", "excluded", "aiignore", "*.md", ".aiignore", 3)
        two = LeftOut("guides", "a/", "excluded", "hard_exclusion", "legacy")
        odd = LeftOut("guides", "c\udc80.md", "quarantined", "unsafe_name")
        with store.writing(run_id="r", partition="guides", wait_seconds=1):
            store.replace_left_out("guides", [one, two, odd], remove=[])
            store.replace_left_out("wiki", [replace(one, source="wiki")], remove=["x"])
        assert [row.path for row in store.left_out("guides")][:2] == ["a/", "b.md"]
        assert len(store.left_out()) == 4
        assert store.explain("guides", "b.md").left_out == one
        assert store.explain("guides", "a/deep/x.md").left_out == two
        again = replace(one, rule="b.*")
        with store.writing(run_id="r", partition="guides", wait_seconds=1):
            store.replace_left_out("guides", [again], remove=["a/", "c\udc80.md"])
        assert store.left_out("guides") == [again]
        assert store.verify() == []

    def test_indexed_document_leaves_the_ledger(self, store: VectorStore) -> None:
        """A path is either indexed or left out."""
        row = LeftOut("guides", "a.md", "quarantined", "acl_unreadable")
        with store.writing(run_id="r", partition="guides", wait_seconds=1):
            store.replace_left_out("guides", [row], remove=[])
            store.upsert_documents([indexed_document("a.md", ["x"])], run_id="r")
        assert store.left_out() == []
        assert store.verify() == []

    def test_explain_finds_the_other_unicode_form(self, store: VectorStore) -> None:
        """NFC and NFD spellings of a path are one question; the exact one wins."""
        nfc, nfd = "\u00e9t\u00e9.md", "e\u0301te\u0301.md"
        write(store, indexed_document(nfd, ["un"]))
        assert store.explain("guides", nfc).path == nfd
        write(store, indexed_document(nfc, ["deux"]))
        assert store.explain("guides", nfc).path == nfc
        assert store.explain("guides", "absent.md").document is None

    def test_runs_are_replaced_and_newest_first(self, store: VectorStore) -> None:
        """A row is known by run and partition, and needs no lease."""
        run = IngestRun("r1", "guides", "guides", "2026-03-01T09:00:00Z", None, "running")
        done = replace(
            run, status="failed", error="l'été\nfini", finished_at="2026-03-01T09:01:00Z"
        )
        later = IngestRun("r2", "guides", "guides", "2026-03-02T09:00:00Z", None, "ok", None, 3)
        for row in (run, later, done):
            store.record_run(row)
        assert store.runs() == [later, done]
        assert store.runs(1) == [later]
        assert store.runs(0) == []

    def test_partitions_keep_their_last_version(self, store: VectorStore) -> None:
        """A later version replaces the former; forgetting takes it back."""
        with store.writing(run_id="r", partition="guides", wait_seconds=1):
            store.record_partition("guides", "1")
            store.record_partition("guides", "2")
            store.record_partition("wiki-1of2", "3")
            assert store.partitions() == {"guides": "2", "wiki-1of2": "3"}
            store.forget_partition("wiki-1of2")
            store.forget_partition("absent")
        assert store.partitions() == {"guides": "2"}

    def test_stats_count_by_source(self, store: VectorStore) -> None:
        """Documents, passages, vectors, sources, and when something was last written."""
        assert store.stats().last_indexed_at is None
        write(
            store,
            indexed_document("a.md", ["un", "deux"]),
            indexed_document("a.md", ["trois"], source="wiki"),
        )
        stats = store.stats()
        assert (stats.documents, stats.chunks, stats.vectors) == (2, 3, 3)
        expected: Mapping[str, Mapping[str, int]] = {
            "guides": {"documents": 1, "chunks": 2},
            "wiki": {"documents": 1, "chunks": 1},
        }
        assert stats.sources == expected
        assert stats.fingerprint == FINGERPRINT
        assert stats.last_indexed_at is not None
        assert stats.size_bytes > 0
        assert store.quick_check() == []

    # -- fingerprint and lease -------------------------------------------------------------------

    def test_fingerprint_is_kept(self, make_store: MakeStore) -> None:
        """None before initialisation, afterwards the same for every opener."""
        assert make_store().fingerprint() is None
        make_store().initialize(FINGERPRINT)
        make_store().initialize(FINGERPRINT)
        assert make_store().fingerprint() == FINGERPRINT

    @pytest.mark.parametrize(
        ("other", "error"),
        [
            (replace(FINGERPRINT, model="autre"), FingerprintMismatch),
            (replace(FINGERPRINT, chunker="lines-2"), FingerprintMismatch),
            (replace(FINGERPRINT, dim=16), DimensionMismatch),
        ],
        ids=["model", "chunker", "dim"],
    )
    def test_other_fingerprint_is_refused(
        self, store: VectorStore, other: IndexFingerprint, error: type[Exception]
    ) -> None:
        """The message has both and the way out; the index stays as it was."""
        with pytest.raises(error) as caught:
            store.initialize(other)
        assert "--full" in str(caught.value)
        for name in ("model", "chunker", "dim"):
            if getattr(other, name) != getattr(FINGERPRINT, name):
                assert str(getattr(other, name)) in str(caught.value)
                assert str(getattr(FINGERPRINT, name)) in str(caught.value)
        assert store.fingerprint() == FINGERPRINT

    def test_second_writer_is_told_who_writes(
        self, store: VectorStore, make_store: MakeStore
    ) -> None:
        """It waits as long as it is told, then names partition and run of the holder."""
        other = make_store()
        with store.writing(run_id="run-42", partition="guides", wait_seconds=0):
            started = time.monotonic()
            with (
                pytest.raises(IndexLocked, match=r"guides.*since.*run-42.*process"),
                other.writing(run_id="r2", partition="wiki", wait_seconds=0.3),
            ):
                pass
            assert 0.3 <= time.monotonic() - started < 5
        with other.writing(run_id="r2", partition="wiki", wait_seconds=0):
            other.record_partition("wiki", "1")

    def test_waiting_writer_follows_the_first(
        self, store: VectorStore, make_store: MakeStore
    ) -> None:
        """The second begins when the first is done, and both are in the index."""
        other, order = make_store(), []

        def second() -> None:
            with other.writing(run_id="r2", partition="wiki", wait_seconds=20):
                order.append("second")
                other.upsert_documents([indexed_document("b.md", ["b"])], run_id="r2")

        with store.writing(run_id="r1", partition="guides", wait_seconds=0):
            thread = threading.Thread(target=second)
            thread.start()
            time.sleep(0.3)
            store.upsert_documents([indexed_document("a.md", ["a"])], run_id="r1")
            order.append("first")
        thread.join(20)
        assert order == ["first", "second"]
        assert store.stats().documents == 2

    def test_lease_is_given_back_after_an_exception(self, store: VectorStore) -> None:
        """A run that fails does not lock the index."""
        with (
            pytest.raises(ZeroDivisionError),
            store.writing(run_id="r", partition="guides", wait_seconds=0),
        ):
            raise ZeroDivisionError
        with store.writing(run_id="r", partition="guides", wait_seconds=0):
            pass

    def test_searches_from_many_threads_agree(self, store: VectorStore) -> None:
        """One store object answers many threads at once, while another version is written."""
        items = [indexed_document(f"{n}.md", [f"t {n} {m}" for m in range(4)]) for n in range(30)]
        write(store, *items)
        expected = found(store.search(unit_vector("t 3 1"), 5, acl_tags=EVERYTHING))
        wrong: list[Any] = []

        def ask() -> None:
            for _ in range(40):
                hits = found(store.search(unit_vector("t 3 1"), 5, acl_tags=EVERYTHING))
                if hits != expected:
                    wrong.append(hits)

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            write(store, *items)
        for thread in threads:
            thread.join()
        assert wrong == []

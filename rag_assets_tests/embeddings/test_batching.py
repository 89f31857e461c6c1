"""Embedding what is missing: reuse, order, resuming, and bad texts that fail alone."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_assets.embeddings.base import InputType, Vectors
from rag_assets.embeddings.batching import KNOWN_GOOD_TEXT, EmbedOutcome, embed_missing
from rag_assets.embeddings.cache import EmbeddingCache
from rag_assets.embeddings.http import HttpEmbedder
from rag_assets.errors import EmbeddingError, MalformedResponse, Unavailable
from rag_assets.fingerprints import sha256_hex
from rag_assets.models import EmbedderHealth
from rag_assets.testing.embedders import StubEmbedder

from .fault_server import DIM, FaultServer, answer, failing_on, silent, vectors_as, well


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[EmbeddingCache]:
    cache = EmbeddingCache(tmp_path / "embeddings.sqlite")
    yield cache
    cache.close()


def hashed(texts: Sequence[str]) -> dict[str, str]:
    return {sha256_hex(text): text for text in texts}


def assert_right(cache: EmbeddingCache, stub: StubEmbedder, items: dict[str, str]) -> None:
    """Every item's cached vector is the one of its text."""
    found = cache.get_many(stub.fingerprint, "passage", items)
    for content_hash, text in items.items():
        assert np.array_equal(
            found[content_hash], StubEmbedder(stub.dim).embed("passage", [text])[0]
        )


def suspected(error: EmbeddingError) -> EmbeddingError:
    error.texts_suspected = True
    return error


def failing(
    bad: Callable[[str], bool], error: Callable[[], EmbeddingError]
) -> Callable[[Sequence[str]], None]:
    """For ``StubEmbedder(before=...)``: raises when a batch has a bad text."""

    def before(texts: Sequence[str]) -> None:
        if any(bad(text) for text in texts):
            raise error()

    return before


def test_only_missing_texts_are_embedded(cache: EmbeddingCache) -> None:
    """The second time everything is reused, and the embedder is not called at all."""
    stub = StubEmbedder(batch_size=4)
    items = hashed([f"texte {n}" for n in range(10)])
    first = embed_missing(stub, "passage", items, cache)
    assert (first.embedded, first.reused) == (10, 0)
    again = embed_missing(stub, "passage", {**items, **hashed(["nouveau"])}, cache)
    assert (again.embedded, again.reused) == (1, 10)
    assert stub.texts_embedded == 11
    calls = stub.calls
    embed_missing(stub, "passage", items, cache)
    assert stub.calls == calls
    assert_right(cache, stub, items)


def test_duplicates_are_embedded_once(cache: EmbeddingCache) -> None:
    """Pairs may repeat; one content_hash with two texts is a mistake of the caller."""
    stub = StubEmbedder()
    outcome = embed_missing(stub, "passage", [("h1", "a"), ("h2", "b"), ("h1", "a")], cache)
    assert (outcome.embedded, stub.texts_embedded) == (2, 2)
    with pytest.raises(ValueError, match="h3"):
        embed_missing(stub, "passage", [("h3", "a"), ("h3", "b")], cache)


def test_nothing_to_do_asks_nobody(cache: EmbeddingCache) -> None:
    """No items: no fingerprint, no health, no file."""

    class Dead(StubEmbedder):
        @property
        def fingerprint(self) -> str:
            raise Unavailable("asked")

    assert embed_missing(Dead(), "passage", {}, cache) == EmbedOutcome(0, 0, {})
    assert not cache.path.exists()


def test_other_model_or_type_shares_nothing(cache: EmbeddingCache) -> None:
    """The key is (fingerprint, input type, content_hash)."""
    items = hashed(["un", "deux"])
    for stub in (StubEmbedder(model="a"), StubEmbedder(model="b"), StubEmbedder(16)):
        assert embed_missing(stub, "passage", items, cache).embedded == 2
    assert embed_missing(StubEmbedder(model="a"), "query", items, cache).embedded == 2
    assert embed_missing(StubEmbedder(model="a"), "passage", items, cache).reused == 2


def test_batches_hold_texts_of_like_length_in_a_fixed_order(cache: EmbeddingCache) -> None:
    """Sorted by length, then hash: the same batches whatever the order of the items."""
    batches: list[list[str]] = []
    items = hashed(["x" * (n % 7) + str(n) for n in range(40)])
    for order in (items, dict(reversed(items.items()))):
        stub = StubEmbedder(
            model=f"m{len(batches)}", batch_size=6, before=lambda texts: batches.append(list(texts))
        )
        embed_missing(stub, "passage", order, cache)
    half = len(batches) // 2
    assert batches[:half] == batches[half:]
    lengths = [len(text) for batch in batches[:half] for text in batch]
    assert lengths == sorted(lengths)


def test_progress_goes_from_nothing_to_all(cache: EmbeddingCache) -> None:
    """Called at the start and after each batch that is kept; rejected texts count as dealt with."""
    seen: list[tuple[int, int]] = []
    stub = StubEmbedder(batch_size=4, reject=lambda text: text == "bad")
    items = hashed([f"t{n}" for n in range(9)] + ["bad"])
    embed_missing(stub, "passage", items, cache, on_progress=lambda *args: seen.append(args))
    assert seen[0] == (0, 10)
    assert seen[-1] == (10, 10)
    assert seen == sorted(seen)


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 70),
    bad=st.sets(st.integers(0, 69)),
    batch_size=st.integers(1, 40),
    concurrency=st.sampled_from([1, 1, 3]),
    fault=st.sampled_from(["refused", "fault", "unusable"]),
)
def test_bad_texts_are_rejected_and_all_others_embedded(
    tmp_path_factory: pytest.TempPathFactory,
    count: int,
    bad: set[int],
    batch_size: int,
    concurrency: int,
    fault: str,
) -> None:
    """Whatever the number and place of bad texts, batch size and concurrency."""
    path = tmp_path_factory.mktemp("cache") / "c.sqlite"
    items = hashed([f"texte {n}" for n in range(count)])
    bad_texts = {f"texte {n}" for n in bad}
    stub = StubEmbedder(8, batch_size=batch_size, concurrency=concurrency)
    if fault == "refused":
        stub._reject = bad_texts.__contains__
    else:
        kind = Unavailable if fault == "fault" else MalformedResponse
        stub._before = failing(bad_texts.__contains__, lambda: suspected(kind("500: NaN")))
    cache = EmbeddingCache(path)
    outcome = embed_missing(stub, "passage", items, cache)
    expected = {h for h, text in items.items() if text in bad_texts}
    assert outcome.rejected.keys() == expected
    assert outcome.embedded == count - len(expected)
    good = {h: text for h, text in items.items() if h not in expected}
    assert_right(cache, stub, good)
    assert set(cache.missing(stub.fingerprint, "passage", items)) == expected
    cache.close()


@pytest.mark.parametrize("size", [2, 16, 64, 256])
def test_one_bad_text_costs_logarithmically_many_calls(cache: EmbeddingCache, size: int) -> None:
    """At most 2 log2(n) + 1 calls for its batch, and one probe."""
    items = hashed([f"texte {n:04d}" for n in range(size)])
    bad = sorted(items)[size // 3]
    stub = StubEmbedder(batch_size=size, reject=lambda text: text == items[bad])
    outcome = embed_missing(stub, "passage", items, cache)
    assert outcome.rejected.keys() == {bad}
    assert stub.calls <= 2 * math.log2(size) + 2


def test_rejected_texts_are_tried_again_by_the_next_run(cache: EmbeddingCache) -> None:
    """A refusal is not remembered: the server may have been mended."""
    items = hashed(["bon", "mauvais"])
    refusing = StubEmbedder(reject=lambda text: text == "mauvais")
    assert len(embed_missing(refusing, "passage", items, cache).rejected) == 1
    outcome = embed_missing(StubEmbedder(), "passage", items, cache)
    assert (outcome.embedded, outcome.reused, outcome.rejected) == (1, 1, {})


@pytest.mark.parametrize("size", [1, 5, 64])
def test_server_that_refuses_everything_rejects_nothing(cache: EmbeddingCache, size: int) -> None:
    """422 for whatever is sent (another contract): the run fails, no document is quarantined."""
    items = hashed([f"texte {n}" for n in range(size)])
    stub = StubEmbedder(reject=lambda text: True)
    with pytest.raises(Unavailable, match="refuses every text, even a plain sentence"):
        embed_missing(stub, "passage", items, cache)
    assert stub.calls <= math.log2(size) + 4


def test_server_that_begins_to_refuse_everything_is_noticed(cache: EmbeddingCache) -> None:
    """Refusals after a good start: the rest of the corpus is not quarantined one by one."""
    calls = iter(range(1000))
    stub = StubEmbedder(batch_size=8, reject=lambda text: next(calls) > 100)
    with pytest.raises(Unavailable, match="refuses every text"):
        embed_missing(stub, "passage", hashed([f"texte {n}" for n in range(400)]), cache)
    assert stub.calls < 30


@pytest.mark.parametrize("kind", [Unavailable, MalformedResponse])
def test_server_that_fails_at_everything_rejects_nothing(
    cache: EmbeddingCache, kind: type[EmbeddingError]
) -> None:
    """500 for whatever is sent: one probe, then the original error."""
    stub = StubEmbedder(before=failing(lambda text: True, lambda: suspected(kind("500"))))
    with pytest.raises(kind, match="500"):
        embed_missing(stub, "passage", hashed([f"t {n}" for n in range(64)]), cache)
    assert stub.calls == 2


def test_server_that_dies_halfway_rejects_nothing_and_keeps_the_first_half(
    cache: EmbeddingCache,
) -> None:
    """After some batches everything fails: Unavailable; the next run embeds only the rest."""
    calls = iter(range(1000))

    def before(texts: Sequence[str]) -> None:
        if next(calls) >= 3:
            raise suspected(Unavailable("connection reset"))

    items = hashed([f"texte {n}" for n in range(40)])
    with pytest.raises(Unavailable, match="reset"):
        embed_missing(StubEmbedder(batch_size=8, before=before), "passage", items, cache)
    outcome = embed_missing(StubEmbedder(), "passage", items, cache)
    assert (outcome.reused, outcome.embedded) == (24, 16)


def test_fault_of_a_moment_rejects_nothing(cache: EmbeddingCache) -> None:
    """A text that failed once gets a last try when the embedder turns out to work."""
    calls = iter(range(1000))

    def before(texts: Sequence[str]) -> None:
        if next(calls) == 0:
            raise suspected(Unavailable("502"))

    items = hashed(["seul"])
    outcome = embed_missing(StubEmbedder(before=before), "passage", items, cache)
    assert (outcome.embedded, outcome.rejected) == (1, {})


def test_errors_that_do_not_suspect_the_texts_are_not_bisected(cache: EmbeddingCache) -> None:
    """Refused credentials, a wrong count: no halving, no probe."""
    for error in (Unavailable("401"), MalformedResponse("2 vectors came for 3 texts")):

        def refuse(texts: Sequence[str], error: EmbeddingError = error) -> None:
            raise error

        stub = StubEmbedder(before=refuse)
        with pytest.raises(type(error)):
            embed_missing(stub, "passage", hashed([f"t {n}" for n in range(64)]), cache)
        assert stub.calls == 1


def test_embedder_with_a_wrong_row_count_is_malformed(cache: EmbeddingCache) -> None:
    """Vectors are never paired with texts by guess."""

    class Forgetful(StubEmbedder):
        def embed(self, type: InputType, texts: Sequence[str]) -> Vectors:
            return super().embed(type, texts)[:-1]

    with pytest.raises(MalformedResponse, match="for 3 texts"):
        embed_missing(Forgetful(), "passage", hashed(["a", "b", "c"]), cache)
    assert cache.missing("stub:stub:32", "passage", hashed(["a"])) == list(hashed(["a"]))


def test_model_that_changes_during_the_run_keeps_nothing(cache: EmbeddingCache) -> None:
    """An embedder whose health names another model at the end: this run's vectors are dropped."""

    class Swapped(StubEmbedder):
        def health(self) -> EmbedderHealth:
            return EmbedderHealth("ok", "new" if self.calls else "old", self.dim)

    old = hashed(["ancien"])
    embed_missing(StubEmbedder(), "passage", old, cache)
    items = hashed(["un", "deux"])
    with pytest.raises(MalformedResponse, match=r"'old'.*'new'.*Run again"):
        embed_missing(Swapped(batch_size=1), "passage", {**old, **items}, cache)
    assert set(cache.missing("stub:stub:32", "passage", {**old, **items})) == items.keys()


def test_each_batch_is_committed_before_the_next_begins(cache: EmbeddingCache) -> None:
    """Seen from another connection at the moment the embedder is called."""
    items = hashed([f"texte {n}" for n in range(20)])
    other = EmbeddingCache(cache.path)
    missing: list[int] = []

    def before(texts: Sequence[str]) -> None:
        missing.append(len(other.missing("stub:stub:32", "passage", items)))

    embed_missing(StubEmbedder(batch_size=5, before=before), "passage", items, cache)
    assert missing == [20, 15, 10, 5]
    other.close()


def test_concurrent_batches_are_limited_and_right(cache: EmbeddingCache) -> None:
    """As many under way as the embedder allows, in any order of arrival; vectors still match."""
    now, most = [0], [0]
    lock = threading.Lock()

    class Slow(StubEmbedder):
        def embed(self, type: InputType, texts: Sequence[str]) -> Vectors:
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            time.sleep(0.02 * (len(texts[0]) % 3))
            try:
                return super().embed(type, texts)
            finally:
                with lock:
                    now[0] -= 1

    stub = Slow(batch_size=3, concurrency=4)
    items = hashed([f"texte {'x' * (n % 11)} {n}" for n in range(60)])
    assert embed_missing(stub, "passage", items, cache).embedded == 60
    assert 2 <= most[0] <= 4
    assert_right(cache, stub, items)


def test_concurrent_failure_keeps_what_the_others_embedded(cache: EmbeddingCache) -> None:
    """The run fails, but batches already paid for are in the cache."""

    def before(texts: Sequence[str]) -> None:
        time.sleep(0.02)
        if "texte 30" in texts:
            raise Unavailable("503")

    items = hashed([f"texte {n}" for n in range(10, 60)])
    stub = StubEmbedder(batch_size=5, concurrency=3, before=before)
    with pytest.raises(Unavailable, match="503"):
        embed_missing(stub, "passage", items, cache)
    kept = len(items) - len(cache.missing(stub.fingerprint, "passage", items))
    assert kept == stub.texts_embedded - 5


BAD = "mauvais texte"


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (answer(422, '{"detail": "cannot"}'), "cannot"),
        (answer(500, "unsupported value"), "unsupported value"),
        (answer(400, "bad input"), "bad input"),
        (answer(502), "502"),
        (lambda c, r: c.close(), "broke off"),
        (silent(), "silent"),
        (well(lambda v: {**v, "vectors": [[None] * DIM] * len(v["vectors"])}), "null"),
        (well(lambda v: {**v, "vectors": [[0.0] * DIM] * len(v["vectors"])}), "zero"),
        (vectors_as("[[NaN]]"), "NaN"),
        (answer(413), "too large"),
    ],
    ids=[
        "422", "500", "400", "502", "crash", "hang", "null", "zero", "nan", "413",
    ],
)  # fmt: skip
def test_text_that_breaks_a_real_server_is_rejected_alone(
    cache: EmbeddingCache, failure: Callable[..., None], reason: str
) -> None:
    """Whatever a server does about one text, it costs one document and not the run."""
    items = hashed([f"texte {n}" for n in range(9)] + [BAD])
    with FaultServer(failing_on(lambda text: text == BAD, failure)) as server:
        embedder = HttpEmbedder(
            server.url, backoff_seconds=0.001, retries=1, timeout_seconds=0.15, batch_size=4
        )
        outcome = embed_missing(embedder, "passage", items, cache)
        asked = [post.texts for post in server.posts]
    assert outcome.rejected.keys() == {sha256_hex(BAD)}
    assert reason in outcome.rejected[sha256_hex(BAD)]
    assert BAD not in outcome.rejected[sha256_hex(BAD)]
    assert outcome.embedded == 9
    assert asked.count([KNOWN_GOOD_TEXT]) <= 5


KILLED_RUN = """
import sys
from rag_assets.embeddings.batching import embed_missing
from rag_assets.embeddings.cache import EmbeddingCache
from rag_assets.fingerprints import sha256_hex
from rag_assets.testing.embedders import StubEmbedder

texts = [f"texte {n}" for n in range(2000)]
stub = StubEmbedder(log_path=sys.argv[2], batch_size=10, seconds_per_text=0.0003)
cache = EmbeddingCache(sys.argv[1])
print("ready", flush=True)
outcome = embed_missing(stub, "passage", {sha256_hex(t): t for t in texts}, cache)
print(outcome.embedded, outcome.reused)
"""


def test_killed_run_resumes_where_it_stopped(tmp_path: Path) -> None:
    """kill -9 in the middle, several times: a kill costs at most one batch embedded twice."""
    path, log = tmp_path / "c.sqlite", tmp_path / "log"
    command = [sys.executable, "-c", KILLED_RUN, str(path), str(log)]
    kills = 4
    for number in range(kills):
        run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"
        time.sleep(0.08 + 0.03 * number)
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        run.stdout.close()
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    embedded, reused = map(int, done.stdout.split()[1:])
    assert embedded + reused == 2000
    logged = log.read_text().split()
    assert len(set(logged)) == 2000
    assert len(logged) - 2000 <= kills * 10
    cache = EmbeddingCache(path)
    assert_right(cache, StubEmbedder(), hashed([f"texte {n}" for n in range(2000)]))
    cache.close()

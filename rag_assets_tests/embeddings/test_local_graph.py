"""The graph built from the weights, and the folder it is kept in."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import numpy as np
import pytest

from rag_assets.embeddings.e5_graph import is_cached, load_graph
from rag_assets.embeddings.e5_weights import Q4Matrix, find_weights, open_weights
from rag_assets.embeddings.local import LocalEmbedder
from rag_assets.errors import Unavailable


@pytest.fixture(scope="module")
def weights():
    return open_weights(find_weights())


@pytest.fixture(scope="module")
def graph(weights, tmp_path_factory) -> bytes:
    return load_graph(tmp_path_factory.mktemp("models"), "q4", weights)


def test_graph_is_built_once_and_kept(weights, tmp_path):
    """The second load reads the file of the first."""
    assert not is_cached(tmp_path, "q4")
    first = load_graph(tmp_path, "q4", weights)
    assert is_cached(tmp_path, "q4")
    (path,) = tmp_path.iterdir()
    written = path.stat().st_mtime_ns
    assert load_graph(tmp_path, "q4", weights) == first == path.read_bytes()
    assert path.stat().st_mtime_ns == written


@pytest.mark.parametrize("damage", ["flipped", "truncated", "emptied"])
def test_damaged_graph_is_built_again(weights, graph, tmp_path, damage):
    """A file that is not what its name says is replaced, not run."""
    load_graph(tmp_path, "q4", weights)
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes({"flipped": bytes(content), "truncated": content[:99], "emptied": b""}[damage])
    assert load_graph(tmp_path, "q4", weights) == graph
    assert [kept.read_bytes() for kept in tmp_path.iterdir()] == [graph]


def test_folder_that_cannot_be_written_is_no_obstacle(weights, graph, tmp_path):
    """The graph is used from memory when it cannot be kept."""
    blocked = tmp_path / "models"
    blocked.write_text("a file stands here")
    assert load_graph(blocked, "q4", weights) == graph


def test_left_over_temporary_file_is_cleared_away(weights, tmp_path):
    """What a killed process left is removed by the next that builds; a fresh one is not."""
    old, fresh = (tmp_path / f"multilingual-e5-small-{n}.tmp" for n in ("1-aa", "2-bb"))
    old.write_bytes(b"half")
    fresh.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    load_graph(tmp_path, "q4", weights)
    assert not old.exists()
    assert fresh.exists()


def _embed(models_dir: Path, barrier, results) -> None:
    barrier.wait(60)
    results.put(LocalEmbedder(models_dir, threads=1).embed("query", ["pare-feu"]))


@pytest.mark.slow
def test_processes_may_build_at_once(tmp_path):
    """Three processes on an empty folder get equal vectors and leave one file."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(3), context.Queue()
    children = [context.Process(target=_embed, args=(tmp_path, barrier, results)) for _ in range(3)]
    for child in children:
        child.start()
    vectors = [results.get(timeout=120) for _ in children]
    for child in children:
        child.join(60)
    assert all(np.array_equal(vector, vectors[0]) for vector in vectors)
    assert len(list(tmp_path.iterdir())) == 1


def test_weights_of_another_file_are_refused(tmp_path):
    """A file of the right name and wrong content is named, with both hashes."""
    path = tmp_path / "e5-small-q4.bin"
    path.write_bytes(b"E5S1" + bytes(100))
    with pytest.raises(Unavailable, match="sha256"):
        open_weights(path)


def test_empty_weights_file_is_refused(tmp_path):
    """An empty file cannot even be mapped."""
    path = tmp_path / "e5-small-q4.bin"
    path.touch()
    with pytest.raises(Unavailable, match="cannot be read"):
        open_weights(path)


def test_q4_blocks_are_unpacked_low_halves_first():
    """Weight j is the low half of byte j, weight j + 16 its high half, minus 8, times the scale."""
    block = np.zeros((1, 1), np.dtype([("scale", "<f2"), ("halves", "u1", (16,))]))
    block["scale"] = 0.5
    block["halves"] = np.arange(16, dtype=np.uint8) | (np.arange(16, dtype=np.uint8)[::-1] << 4)
    matrix = Q4Matrix(block)
    expected = (np.concatenate([np.arange(16), np.arange(16)[::-1]]) - 8) * 0.5
    assert np.array_equal(matrix.dense(), expected[None].astype(np.float32))
    assert matrix.nibbles()[0, 0, 0] == 0 | (1 << 4)

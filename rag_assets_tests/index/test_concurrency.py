"""Several processes on one index: two writers and a reader, and writers that are killed."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rag_assets.acl import EVERYTHING
from rag_assets.index.sqlite import SqliteStore
from rag_assets.testing.documents import FINGERPRINT, indexed_document, unit_vector, write

REPOSITORY = Path(__file__).parents[2]
WRITE = """
import sys
from pathlib import Path
from rag_assets.index.sqlite import SqliteStore
from rag_assets.testing.documents import indexed_document
path, source, documents, per_batch, versions = sys.argv[1:6]
store = SqliteStore(Path(path))
for version in range(int(versions)):
    for start in range(0, int(documents), int(per_batch)):
        items = [
            indexed_document(
                f"{n}.md",
                [
                    f"{source} {n} version {version} part {part}"
                    for part in range(1 + (n + version) % 5)
                ],
                source=source,
            )
            for n in range(start, min(start + int(per_batch), int(documents)))
        ]
        with store.writing(run_id=source, partition=source, wait_seconds=120):
            store.upsert_documents(items, run_id=source)
        for item in items:
            print(item.document.path, item.document.content_hash, flush=True)
print("done", flush=True)
"""


def start_writer(
    path: Path, source: str, documents: int, per_batch: int, versions: int, stdout: Any
) -> subprocess.Popen[str]:
    """A process that writes documents and prints each one once it is committed."""
    arguments = [str(path), source, str(documents), str(per_batch), str(versions)]
    return subprocess.Popen(
        [sys.executable, "-c", WRITE, *arguments],
        stdout=stdout,
        text=True,
        cwd=REPOSITORY,
    )


def assert_whole(store: SqliteStore) -> int:
    """Every document of one state of the index has all passages of one version; how many."""
    seen = 0
    for item in store.documents():
        seen += 1
        versions = {chunk.content.split(" version ")[1].split()[0] for chunk in item.chunks}
        assert len(versions) == 1
        n, version = int(item.document.path[:-3]), int(versions.pop())
        assert len(item.chunks) == 1 + (n + version) % 5
        for chunk, vector in zip(item.chunks, item.vectors, strict=True):
            assert (unit_vector(chunk.content) == vector).all()
    return seen


@pytest.mark.slow
def test_two_writers_and_a_reader(tmp_path: Path) -> None:
    """Two processes write 500 documents each while one reads: none is lost, none seen in part."""
    store = SqliteStore(tmp_path / "index.sqlite")
    store.initialize(FINGERPRINT)
    logs = {name: tmp_path / f"{name}.log" for name in ("one", "two")}
    writers = []
    for name, log in logs.items():
        with log.open("w") as stdout:
            writers.append(start_writer(store.path, name, 500, 50, 2, stdout))
    looks = 0
    while any(writer.poll() is None for writer in writers):
        assert_whole(store)
        store.search(unit_vector("x"), 10, acl_tags=["public"])
        looks += 1
        time.sleep(0.02)
    assert all(log.read_text().endswith("done\n") for log in logs.values())
    assert looks > 3
    assert assert_whole(store) == 1000
    assert store.verify() == []


@pytest.mark.slow
def test_killed_writers_lose_nothing_acknowledged(tmp_path: Path) -> None:
    """20 kills at random moments: what was said to be written is there, whole, and verifies."""
    store = SqliteStore(tmp_path / "index.sqlite")
    store.initialize(FINGERPRINT)
    chance = random.Random(7)
    for attempt in range(20):
        writer = start_writer(store.path, "one", 120, 4, 50, subprocess.PIPE)
        assert writer.stdout is not None
        lines = [writer.stdout.readline()]
        timer = threading.Timer(chance.uniform(0.0, 0.25), writer.kill)
        timer.start()
        lines += writer.stdout.readlines()
        writer.wait()
        timer.cancel()
        acknowledged = dict(line.split() for line in lines if line.endswith("\n") and ".md" in line)
        assert acknowledged, attempt
        kept = {p: store.document_hash("one", p) for p in acknowledged}
        # The batch after the last acknowledged one may be committed already: a later version.
        changed = [p for p, content_hash in acknowledged.items() if kept[p] != content_hash]
        assert len(changed) <= 4
        assert_whole(store)
        assert store.verify() == []


def test_searches_go_on_during_compaction(tmp_path: Path) -> None:
    """While vectors move between blocks, no reader misses one and none sees one twice."""
    store = SqliteStore(tmp_path / "index.sqlite")
    store.initialize(FINGERPRINT)
    kept = [indexed_document(f"{n}.md", [f"kept {n} {m}" for m in range(4)]) for n in range(40)]
    rest = [indexed_document(f"x{n}.md", [f"x {n} {m}" for m in range(40)]) for n in range(40)]
    mixed = [item for pair in zip(kept, rest, strict=True) for item in pair]
    write(store, *mixed)
    done, wrong = threading.Event(), []

    def read() -> None:
        while not done.is_set():
            hits = store.search(unit_vector("kept 3 1"), 2000, acl_tags=EVERYTHING)
            names = [(hit.path, hit.position) for hit in hits if not hit.path.startswith("x")]
            if len(names) != 160 or len(set(names)) != 160:
                wrong.append(len(names))

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    with store.writing(run_id="r", partition="guides", wait_seconds=1):
        store.delete_documents("guides", [item.document.path for item in rest])
        store.finish()
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert store.stats().vectors == 160
    assert store.verify() == []


def test_finish_gives_space_back(tmp_path: Path) -> None:
    """After most of the index was deleted, the file shrinks and the log is empty."""
    store = SqliteStore(tmp_path / "index.sqlite")
    store.initialize(FINGERPRINT)
    items = [indexed_document(f"{n}.md", ["mot " * 800] * 10) for n in range(300)]
    write(store, *items)
    with store.writing(run_id="r", partition="guides", wait_seconds=1):
        store.finish()
        before = store.stats().size_bytes
        paths = [f"{n}.md" for n in range(300) if n % 20]
        store.delete_documents("guides", paths)
        store.finish()
        log = Path(f"{store.path}-wal")
        assert not log.exists() or log.stat().st_size == 0
    assert store.stats().size_bytes < before / 4
    assert store.verify() == []


def test_deleted_and_replaced_text_is_in_no_file(tmp_path: Path) -> None:
    """Nothing of a deleted or replaced passage, its vector or its tags stays in any byte."""
    store = SqliteStore(tmp_path / "index.sqlite")
    store.initialize(FINGERPRINT)
    filler = [indexed_document(f"f{n}.md", [f"reste {n}"] * 3) for n in range(50)]
    secret = indexed_document("s.md", ["mot-de-passe-1234 " * 30], tags=["service:secret-projet"])
    changed = indexed_document("c.md", ["ancienne-phrase-5678 " * 2000])
    write(store, *filler, secret, changed)
    assert b"mot-de-passe-1234" in every_byte(tmp_path)
    with store.writing(run_id="r2", partition="guides", wait_seconds=1):
        store.delete_documents("guides", ["s.md"])
        store.upsert_documents([indexed_document("c.md", ["court"])], run_id="r2")
        store.finish()
    data = every_byte(tmp_path)
    for trace in (
        b"mot-de-passe-1234",
        b"ancienne-phrase-5678",
        b"secret-projet",
        secret.vectors.tobytes(),
        changed.vectors.tobytes(),
    ):
        assert trace not in data


def every_byte(folder: Path) -> bytes:
    """All files of a folder, one after the other."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())

"""What an interrupted listing had fetched is there for the next one, and only what may be there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rag_assets.errors import AssetError
from rag_assets.fingerprints import sha256_hex
from rag_assets.models import SourceFile
from rag_assets.sources.journal import Journal


def file(version: str, text: str = "été") -> SourceFile:
    """A fetched document."""
    content = text.encode()
    return SourceFile(
        source="wiki",
        path=f"{version}.md",
        url="https://wiki.example.org/1",
        content=content,
        content_hash=sha256_hex(content),
        modified_at="2026-03-01T09:30:00Z",
        acl_tags=("public", "service:hr"),
        version=version,
        title="A > B",
    )


def interrupted(path: Path, *files: SourceFile, settings: str = "s") -> None:
    """A listing that broke off after these."""
    journal = Journal(path)
    journal.open(settings)
    for one in files:
        journal.add(one)
    journal.close()


def test_an_interrupted_listing_leaves_what_it_fetched(tmp_path: Path) -> None:
    """Equal in every field, by version; a second interruption adds to it."""
    path = tmp_path / "state" / "wiki.fetched"
    interrupted(path, file("1"), file("2", "deux"))
    interrupted(path, file("3"))
    found = Journal(path).open("s")
    assert found == {"1": file("1"), "2": file("2", "deux"), "3": file("3")}


def test_other_settings_start_anew(tmp_path: Path) -> None:
    """What other rules let through is not what these would."""
    path = tmp_path / "wiki.fetched"
    interrupted(path, file("1"), settings="before")
    assert Journal(path).open("after") == {}
    assert b"1.md" not in path.read_bytes()


def test_bytes_that_may_not_be_stored_are_not(tmp_path: Path) -> None:
    """A document that will be quarantined is fetched again instead."""
    path = tmp_path / "wiki.fetched"
    journal = Journal(path, may_keep=lambda one: b"secret" not in one.content)
    journal.open("s")
    journal.add(file("1"))
    journal.add(file("2", "secret"))
    journal.close()
    assert set(Journal(path).open("s")) == {"1"}
    assert b"secret" not in path.read_bytes()


@pytest.mark.parametrize("cut", [1, 7, 30, 200])
def test_a_record_cut_short_is_ignored_and_written_over(tmp_path: Path, cut: int) -> None:
    """A killed process leaves half a record; those before it count, those after it too."""
    path = tmp_path / "wiki.fetched"
    interrupted(path, file("1"), file("2"))
    path.write_bytes(path.read_bytes()[:-cut])
    interrupted(path, file("3"))
    assert Journal(path).open("s") == {"1": file("1"), "3": file("3")}


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"not a journal", b"\xff" * 9])
def test_a_damaged_file_is_an_empty_one(tmp_path: Path, content: bytes) -> None:
    """It is only a hint: whatever stands there, the listing goes on."""
    path = tmp_path / "wiki.fetched"
    path.write_bytes(content)
    assert Journal(path).open("s") == {}


def test_a_flipped_byte_of_content_is_noticed(tmp_path: Path) -> None:
    """The hash of the content decides."""
    path = tmp_path / "wiki.fetched"
    one = file("1", "x" * 50)
    interrupted(path, one)
    path.write_bytes(path.read_bytes().replace(b"xxxx", b"xyxx"))
    assert Journal(path).open("s") == {}


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The error says which file and what to do."""
    blocker = tmp_path / "state"
    blocker.write_text("a file", encoding="utf-8")
    with pytest.raises(AssetError, match=r"wiki\.fetched: cannot be written"):
        Journal(blocker / "wiki.fetched").open("s")


def test_add_before_open_does_nothing(tmp_path: Path) -> None:
    """There is no listing to resume."""
    Journal(tmp_path / "j").add(replace(file("1")))
    assert not (tmp_path / "j").exists()

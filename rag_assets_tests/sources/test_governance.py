"""What the rules keep out, in which order, and how they say so."""

from __future__ import annotations

import unicodedata

import pytest

from rag_assets.errors import ConfigurationError
from rag_assets.sources.governance import Governance


def governance(**settings: object) -> Governance:
    kind = settings.pop("source_kind", "markdown")
    return Governance("docs", kind, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "path",
    [
        "SCRATCH.md",
        "scratch.MD",
        "a/b/Scratch.md",
        "ſcratch.md",  # long s folds to s
        "ＳＣＲＡＴＣＨ.md",  # full width
        "SCR\u200bATCH.md",
        "legacy/a.md",
        "a/LEGACY/b/c.md",
        "Legacy./a.md",
        "legacy /a.md",
        "leg\u00adacy/a.md",
        "ｌｅｇａｃｙ/a.md",
        "lega\ufe0fcy/a.md",
        "Passbolt/a.md",
        "a/PASSBOLT/a.md",
    ],
)
def test_hard_exclusions_hold_however_they_are_spelt(path: str) -> None:
    """Case, width, invisible characters, dots and spaces at the end change nothing."""
    row = governance(included_paths=[path]).decide(path)
    assert row is not None
    assert (row.status, row.reason) == ("excluded", "hard_exclusion")
    assert row.rule in ("SCRATCH.md", "legacy/", "passbolt")


@pytest.mark.parametrize(
    "path",
    ["legacy.md", "legacy-2/a.md", "my legacy/a.md", "SCRATCH.markdown", "SCRATCH.md/a.md", "a.md"],
)
def test_hard_exclusions_take_whole_names_only(path: str) -> None:
    """A file `legacy.md`, a folder `SCRATCH.md` or a longer name is not meant."""
    assert governance().decide(path) is None


def test_nothing_of_a_passbolt_source_is_kept() -> None:
    """The kind of the source is enough."""
    row = governance(source_kind="Passbolt").decide("a.md")
    assert row is not None
    assert row.reason == "hard_exclusion"


def test_rules_decide_in_their_fixed_order() -> None:
    """Hard exclusions, excluded_paths, included_paths, ignore file."""
    rules = governance(
        excluded_paths=["legacy", "notes"], included_paths=["guide", "notes"], ignore_text="*.md"
    )
    found = [rules.decide(p) for p in ("legacy/a.md", "notes/a.md", "other/a.md", "guide/a.md")]
    assert [row and row.reason for row in found] == [
        "hard_exclusion",
        "excluded_paths",
        "not_included",
        "aiignore",
    ]


@pytest.mark.parametrize(
    ("prefix", "path", "excluded"),
    [
        pytest.param("notes/", "notes.md", False, id="IG-09-file"),
        pytest.param("notes/", "notes/a.md", True, id="IG-09-folder"),
        ("notes", "notes/a/b.md", True),
        ("notes", "notes.md", False),
        ("notes", "notes-2/a.md", False),
        ("notes", "a/notes/b.md", False),
        ("./a//notes/", "a/notes/b.md", True),
        ("a.md", "a.md", True),
        ("a.md/", "a.md", False),
        (unicodedata.normalize("NFD", "été"), "été/a.md", True),
        ("été", unicodedata.normalize("NFD", "été/a.md"), True),
    ],
)
def test_prefixes_are_compared_name_by_name(prefix: str, path: str, excluded: bool) -> None:
    """`notes` is the folder and what lies in it, `notes/` the folder only; never `notes.md`."""
    assert (governance(excluded_paths=[prefix]).decide(path) is not None) is excluded
    included = governance(included_paths=[prefix]).decide(path)
    assert (included is None) is excluded


def test_folders_on_the_way_to_an_included_path_are_entered() -> None:
    """Otherwise the walk would never reach it."""
    rules = governance(included_paths=["a/b"])
    assert rules.decide("a", is_dir=True) is None
    assert rules.decide("a/b", is_dir=True) is None
    row = rules.decide("c", is_dir=True)
    assert row is not None
    assert (row.path, row.reason) == ("c/", "not_included")
    assert rules.decide("a/x.md") is not None


@pytest.mark.parametrize("key", ["excluded_paths", "included_paths"])
@pytest.mark.parametrize(
    "prefix",
    ["../other", "a/../../b", "/etc", "~/docs", "C:/docs", "", ".", "a\\b", "*.md", "a\nb"],
)
def test_prefixes_that_cannot_work_are_refused(key: str, prefix: str) -> None:
    """Kind 63: a prefix that never matches would silently publish what it should hide."""
    with pytest.raises(ConfigurationError, match=f"rag_assets.yaml:7 {key}"):
        governance(**{key: [prefix]}, config_locations={prefix: ("rag_assets.yaml", 7)})


def test_the_deciding_rule_is_named_with_its_line() -> None:
    """A person finds the line without searching."""
    rules = governance(
        excluded_paths=["notes"],
        ignore_text="# brouillons\n\ndrafts/\n*.tmp.md\n",
        config_locations={"notes": ("rag_assets.yaml", 12)},
    )
    row = rules.decide("notes/a.md")
    assert row is not None
    assert (row.rule, row.rule_file, row.rule_line) == ("notes", "rag_assets.yaml", 12)
    row = rules.decide("drafts/a/b.md")
    assert row is not None
    assert (row.rule, row.rule_file, row.rule_line) == ("drafts/", ".aiignore", 3)
    row = rules.decide("x.tmp.md")
    assert row is not None
    assert (row.rule, row.rule_line) == ("*.tmp.md", 4)


def test_entries_are_decided_as_whole_paths_are() -> None:
    """Deciding level by level, as a walk does, gives what deciding the path at once gives."""
    rules = governance(excluded_paths=["a/b"], ignore_text="c\n!c/keep.md\n/d/*\n!/d/e\n")
    for path in ["a/b/x.md", "a/c/keep.md", "d/x.md", "d/e/x.md", "x/legacy/y.md", "z/y.md"]:
        names, by_level = path.split("/"), None
        for depth, name in enumerate(names, start=1):
            level = "/".join(names[:depth])
            by_level = rules.decide_entry(level, name, is_dir=depth < len(names))
            if by_level is not None:
                break
        whole = rules.decide(path)
        assert (by_level and by_level.rule) == (whole and whole.rule)

"""Access rules by path: what they grant, how they are written, and that a change costs little."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_assets.acl import AclRule, AclRules, most_restrictive
from rag_assets.cli.commands import cli
from rag_assets.components import build_source
from rag_assets.config import load_config
from rag_assets.errors import ConfigurationError
from rag_assets.sources.markdown_tree import MarkdownTree
from rag_assets_tests.project import Project
from rag_assets_tests.sources.conftest import Tree
from rag_assets_tests.test_config import refusal, written

HR = AclRules(
    ("public",),
    (
        AclRule(("hr/**",), ("service:hr",)),
        AclRule(("hr/direction", "**/*.private.md"), ("admin_only", "service:hr")),
        AclRule(("hr/nobody.md",), ()),
        AclRule(("hr/affichage.md",), ("public",)),
    ),
)


@pytest.mark.parametrize(
    ("path", "tags", "rules"),
    [
        ("guides/a.md", ("public",), ()),
        ("hr.md", ("public",), ()),
        ("hr/a.md", ("service:hr",), (0,)),
        ("hr/direction/a.md", ("service:hr",), (0, 1)),
        ("notes/x.private.md", ("admin_only", "service:hr"), (1,)),
        ("hr/nobody.md", (), (0, 2)),
        ("hr/affichage.md", ("service:hr",), (0, 3)),
        ("HR/a.md", ("public",), ()),
    ],
)
def test_rules_that_match_take_the_place_of_the_default(
    path: str, tags: tuple[str, ...], rules: tuple[int, ...]
) -> None:
    """Of several only what all grant remains, with ``public`` as everybody."""
    assert (HR.tags_for(path), HR.matching(path)) == (tags, rules)


def test_without_default_and_rule_nobody_sees_it() -> None:
    """Deny by default."""
    assert AclRules().tags_for("a.md") == ()
    assert AclRules((), (AclRule(("b",), ("public",)),)).tags_for("a.md") == ()


tags = st.lists(st.sampled_from(["public", "a", "b", "c"]), max_size=3).map(tuple)
Tags = tuple[str, ...]


@settings(max_examples=200, deadline=None)
@given(tags, tags, tags)
def test_the_stricter_of_several_readings_does_not_depend_on_their_order(
    one: Tags, two: Tags, three: Tags
) -> None:
    """And shows a document to no caller who cannot see it under each of the readings."""
    strict = most_restrictive
    assert strict(one, two) == strict(two, one)
    assert strict(strict(one, two), three) == strict(one, strict(two, three))
    for caller in ({"public"}, {"public", "a"}, {"public", "b"}, {"public", "c"}):
        if caller & set(strict(one, two)):
            assert caller & set(one)
            assert caller & set(two)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"paths": ["/hr/**"]}, "absolute"),
        ({"paths": ["../hr"]}, "'..'"),
        ({"paths": ["[hr"]}, "never matches"),
        ({"paths": [""]}, "blank"),
        ({"paths": ["a" * 5000]}, "longer"),
        ({"paths": []}, "at least 1"),
        ({"paths": None}, "must be a list"),
        ({"tags": None}, "must be a list"),
        ({"tags": "service hr"}, "not an ACL tag"),
        ({"tags": [""]}, "not an ACL tag"),
        ({"tags": 5}, "must be a list"),
        ({"who": "x"}, "unknown key"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_place(
    tmp_path: Path, bad: dict[str, Any], message: str
) -> None:
    """File, line, column and key, as for every setting; nothing is guessed about access."""
    rule = {"paths": "hr", "tags": "service:hr", **bad}
    text = (
        "sources:\n- name: docs\n  root: docs\n  acl:\n    default: [public]\n    rules:\n"
        f"    - {json.dumps(rule)}\n"
    )
    refused = refusal(tmp_path, text)
    assert "rag_assets.yaml:7:" in refused
    assert "sources.0.acl.rules.0." in refused
    assert message in refused


@pytest.mark.parametrize("missing", ["paths", "tags"])
def test_a_rule_needs_paths_and_tags(tmp_path: Path, missing: str) -> None:
    """A rule without tags is a mistake; nobody is written as an empty list."""
    rule = {"paths": "hr", "tags": "service:hr"}
    del rule[missing]
    text = f"sources:\n- name: docs\n  root: docs\n  acl:\n    rules: [{json.dumps(rule)}]\n"
    assert f"{missing}: missing" in refusal(tmp_path, text)


def test_one_text_is_read_as_one_pattern_and_one_tag(tmp_path: Path) -> None:
    """``paths: hr/**`` and ``paths: [hr/**]`` are the same."""
    text = (
        "sources:\n- name: docs\n  root: docs\n  acl:\n    default: [public]\n    rules:\n"
        '    - {paths: "hr/**", tags: service:hr}\n    - {paths: [a, "b/*"], tags: []}\n'
    )
    rules = load_config(written(tmp_path, text)).sources[0].acl.to_rules()
    assert [(rule.paths, rule.tags) for rule in rules.rules] == [
        (("hr/**",), ("service:hr",)),
        (("a", "b/*"), ()),
    ]
    assert rules.tags_for("hr/a.md") == ("service:hr",)


def test_rules_built_in_code_are_checked_too() -> None:
    """An integrator's mistake is named, not ignored."""
    with pytest.raises(ConfigurationError, match=r"'/hr'.*absolute"):
        AclRule(("/hr",), ("a",))
    with pytest.raises(TypeError):
        AclRule("hr", ("a",))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        AclRule(("hr",), "public")  # type: ignore[arg-type]


def later() -> int:
    """A clock for which files just written are old, so that they are carried over."""
    return time.time_ns() + 10_000_000_000


def test_files_carried_over_get_the_tags_of_now(tmp_path: Path) -> None:
    """Without being read again, each by its own path; an NFD name is matched in NFC."""
    tree = Tree(tmp_path / "tree")
    for path in ("a.md", "rh/a.md", "rh/e\u0301quipe/b.md"):
        tree.write(path)

    first = tree.list(clock=later)
    known = {file.path: file for file in first.files}
    rules = (AclRule(("rh",), ("service:rh",)), AclRule(("rh/équipe/*.md",), ("public",)))
    acl = AclRules(("public",), (*rules, AclRule(("rh/équipe",), ("b", "service:rh"))))
    source = tree.source(clock=later, acl=acl)
    assert source.look(first.look_state).unknown, "other rules are other settings"
    second = source.list(known)
    assert second.read == 0
    assert {f.path: f.acl_tags for f in second.files} == {
        "a.md": ("public",),
        "rh/a.md": ("service:rh",),
        "rh/e\u0301quipe/b.md": ("service:rh",),
    }


@pytest.fixture
def pages(project: Project) -> Project:
    """Two public pages and one of the human resources, indexed."""
    project.configure(
        source={"acl": {"default": ["public"], "rules": [{"paths": "hr/**", "tags": "hr"}]}}
    )
    project.write("a.md", "# Accès\n\nle mot commun\n")
    project.write("b.md", "---\nteam: x\n---\n# Autre\n\nle mot commun aussi\n")
    project.write("hr/c.md", "# Paie\n\nle mot commun encore\n")
    project.run()
    return project


def visible(project: Project, *names: str) -> set[str]:
    return {hit.path for hit in project.search("mot commun", 10, acl_tags=names)}


def test_rules_of_the_configuration_reach_the_search(pages: Project) -> None:
    """From the file to what a caller sees."""
    assert visible(pages, "public") == {"a.md", "b.md"}
    assert visible(pages, "hr") == {"hr/c.md"}
    assert isinstance(build_source(pages.config, pages.config.partitions()[0]), MarkdownTree)


@pytest.mark.parametrize(
    ("acl", "public", "hr"),
    [
        pytest.param({"default": ["hr"]}, set(), {"a.md", "b.md", "hr/c.md"}, id="default"),
        pytest.param({"default": ["public"]}, {"a.md", "b.md", "hr/c.md"}, set(), id="rule-gone"),
        pytest.param(
            {"default": ["public"], "rules": [{"paths": ["?.md"], "tags": ["hr"]}]},
            {"hr/c.md"},
            {"a.md", "b.md"},
            id="rule",
        ),
        pytest.param({}, set(), set(), id="nobody"),
    ],
)
def test_a_change_of_rules_alone_embeds_nothing(
    pages: Project, acl: dict[str, Any], public: set[str], hr: set[str]
) -> None:
    """The next run moves every document to its new tags, from the vectors that are there."""
    before = pages.embedded()
    pages.configure(source={"acl": acl})
    assert pages.run().status == "ok"
    assert pages.embedded() == before
    assert (visible(pages, "public"), visible(pages, "hr")) == (public, hr)
    assert pages.problems() == []


@pytest.mark.parametrize(
    ("front_matter", "public", "it"),
    [
        pytest.param("team: x\nacl: service:it", {"a.md"}, {"b.md"}, id="added"),
        pytest.param("acl: service:it", {"a.md"}, {"b.md"}, id="in-place-of-another-key"),
        pytest.param("acl: public", {"a.md", "b.md"}, set(), id="what-it-was"),
    ],
)
def test_acl07_a_change_of_the_acl_key_alone_embeds_nothing(
    pages: Project, front_matter: str, public: set[str], it: set[str]
) -> None:
    """ACL-07: rights are those of the file after the next run, with no embedding call."""
    for text, tags in ((front_matter, (public, it)), ("team: x", ({"a.md", "b.md"}, set()))):
        before = pages.embedded()
        pages.write("b.md", f"---\n{text}\n---\n# Autre\n\nle mot commun aussi\n")
        run = pages.run()
        assert (run.documents_indexed, pages.embedded()) == (1, before)
        assert (visible(pages, "public"), visible(pages, "service:it")) == tags


@pytest.mark.parametrize(
    ("line", "status"),
    [
        pytest.param("team: x", "indexed", id="ACL-05-missing"),
        pytest.param("acl: []", "quarantined", id="ACL-05-empty-list"),
        pytest.param("acl: null", "quarantined", id="ACL-05-null"),
        pytest.param("acl:", "quarantined", id="ACL-05-empty"),
        pytest.param("acl: [public]", "quarantined", id="ACL-05-list"),
        pytest.param("acl: {public: true}", "quarantined", id="ACL-05-mapping"),
        pytest.param("ACLs: public", "quarantined", id="ACL-05-misspelt"),
    ],
)
def test_acl05_missing_empty_and_null_are_three_cases(
    pages: Project, line: str, status: str
) -> None:
    """ACL-05: missing, the source decides; empty or unreadable, nobody sees it, and why is told."""
    pages.write("b.md", f"---\n{line}\n---\n# Autre\n\nle mot commun aussi\n")
    pages.run()
    store = pages.reader()
    try:
        known = store.explain("docs", "b.md")
    finally:
        store.close()
    if status == "indexed":
        assert known.document is not None
        assert known.document.acl_tags == ("public",)
        return
    assert known.document is None
    assert known.left_out is not None
    assert (known.left_out.status, known.left_out.reason) == ("quarantined", "acl_unreadable")
    assert (known.left_out.rule_file, known.left_out.rule_line) == ("b.md", 2)
    assert "b.md" not in visible(pages, "public", "hr")


def explained(project: Project, path: str) -> dict[str, Any]:
    result = CliRunner().invoke(cli, ["--config", str(project.path), "explain", path, "--json"])
    assert result.exit_code == 0, result.output
    value: dict[str, Any] = json.loads(result.stdout)
    return value


def test_explain_says_who_may_see_a_document_and_what_decided(pages: Project) -> None:
    """Source default, rule with its line, front matter; and what the next ingest would change."""
    pages.path.write_text(json.dumps(pages.settings, indent=1), encoding="utf-8")
    pages.write("hr/d.md", "---\nacl: hr, admin_only\n---\n# D\n\ntexte\n")
    pages.write("hr/e.md", "---\nacl: admin_only\n---\n# E\n\ntexte\n")
    pages.run()
    lines = pages.path.read_text().splitlines()
    default = next(n for n, line in enumerate(lines, 1) if '"default"' in line)
    rule = next(n for n, line in enumerate(lines, 1) if '"paths"' in line) - 1
    found = explained(pages, "a.md")
    assert found["acl_tags"] == ["public"]
    assert found["acl_decided_by"] == [f"acl.default (rag_assets.yaml:{default})"]
    by_rule = f"acl.rules[0] hr/** (rag_assets.yaml:{rule})"
    assert explained(pages, "hr/c.md")["acl_decided_by"] == [by_rule]
    assert explained(pages, "hr/d.md")["acl_decided_by"] == [by_rule]
    narrowed = explained(pages, "hr/e.md")
    assert (narrowed["acl_tags"], narrowed["acl_decided_by"]) == ([], [by_rule, "front matter"])
    pages.configure(source={"acl": {"default": ["hr"]}})
    changed = explained(pages, "a.md")
    assert changed["acl_tags"] == ["public"]
    assert any("the next ingest grants: hr" in warning for warning in changed["warnings"])
    text = CliRunner().invoke(cli, ["--config", str(pages.path), "explain", "hr/e.md"]).output
    assert "ACL tags: none (visible to nobody); by " in text

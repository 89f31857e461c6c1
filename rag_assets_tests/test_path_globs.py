"""Path patterns mean what an independent, slow matcher says, on any text."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_assets.path_globs import compile_paths


def matches(pattern: str, path: str) -> bool:
    return compile_paths([pattern])(path)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        pytest.param("guides", "guides/a.md", True, id="prefix"),
        pytest.param("guides", "guides", True, id="prefix-itself"),
        pytest.param("guides", "guides2/a.md", False, id="prefix-of-whole-names"),
        pytest.param("guides", "aide/guides/a.md", False, id="prefix-from-the-root"),
        pytest.param("guides/", "guides/a/b.md", True, id="folder"),
        pytest.param("guides/", "guides", False, id="folder-is-no-document"),
        pytest.param("guides/a.md", "guides/a.md", True, id="document"),
        pytest.param("guides/a.md", "guides/a.md.md", False, id="document-not-longer"),
        pytest.param("Guides", "guides/a.md", False, id="prefix-case"),
        pytest.param("G*", "guides.md", False, id="glob-case"),
        pytest.param("*.md", "a.md", True, id="star"),
        pytest.param("*.md", "a/b.md", False, id="star-within-a-name"),
        pytest.param("a?.md", "a/.md", False, id="question-mark-is-no-slash"),
        pytest.param("**/*.fr.md", "a.fr.md", True, id="no-folder"),
        pytest.param("**/*.fr.md", "x/y/a.fr.md", True, id="many-folders"),
        pytest.param("rh/**", "rh/a/b.md", True, id="everything-below"),
        pytest.param("rh/**", "rh", False, id="not-the-folder"),
        pytest.param("rh/**", "rh2/a.md", False, id="not-beside"),
        pytest.param("a/**/b.md", "a/b.md", True, id="between-none"),
        pytest.param("a/**/b.md", "a/x/y/b.md", True, id="between-many"),
        pytest.param("a/**/b.md", "a/xb.md", False, id="between-whole-names"),
        pytest.param("**", "n'importe/où.md", True, id="all"),
        pytest.param("a**/b.md", "ax/y/b.md", False, id="stars-in-a-name-are-one"),
        pytest.param("drafts*/", "drafts-2/a/b.md", True, id="glob-of-folders"),
        pytest.param("drafts*/", "drafts-2", False, id="glob-of-folders-only"),
        pytest.param("[ab]*.md", "b1.md", True, id="set"),
        pytest.param("[!a]*.md", "a1.md", False, id="not-in-set"),
        pytest.param("[!a]b.md", "/b.md", False, id="set-is-no-slash"),
        pytest.param("[a-c]?.md", "c1.md", True, id="range"),
        pytest.param("[[]note].md", "[note].md", True, id="bracket"),
        pytest.param(r"\[*.md", "[note].md", True, id="escaped"),
        pytest.param("?t?.md", "été.md", True, id="a-character-is-not-a-byte"),
        pytest.param("équipe/", unicodedata.normalize("NFD", "équipe/a.md"), True, id="nfd-path"),
        pytest.param(unicodedata.normalize("NFD", "é*"), "été.md", True, id="nfd-pattern"),
        pytest.param("a+b(c)|d", "a+b(c)|d/x.md", True, id="regex-signs-prefix"),
        pytest.param("a+b(c)|d*", "a+b(c)|d.md", True, id="regex-signs-glob"),
        pytest.param("*", "a\nb", True, id="newline-in-the-path"),
        pytest.param("*.md", "a.md\n", False, id="newline-at-the-end"),
        pytest.param("*", "a\0b", True, id="nul-in-the-path"),
        pytest.param("?", "\udc80", True, id="lone-surrogate-in-the-path"),
    ],
)
def test_pattern(pattern: str, path: str, expected: bool) -> None:
    """One kind of pattern each."""
    assert matches(pattern, path) is expected


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        " ",
        "/",
        "/a",
        "/a/*",
        "..",
        "../a",
        "a/../b*",
        "./a",
        "a//b",
        "a//",
        "[abc",
        "*\\",
        "[/]",
        "[[:letter:]]",
        "a\nb",
        "a\0b*",
        "\udc80",
        "\ud800*",
        "x" * 4097,
        "*a" * 101,
    ],
)
def test_a_pattern_that_could_never_match_is_refused(pattern: str) -> None:
    """The message names the pattern, and only its beginning when it is long."""
    with pytest.raises(ValueError, match="path pattern") as raised:
        compile_paths(["ok.md", pattern])
    assert repr(pattern[:70])[1:-1] in str(raised.value)
    assert len(str(raised.value)) < 300


def test_globs_that_are_too_large_together_are_refused() -> None:
    """A thousand of the largest would take seconds to compile."""
    with pytest.raises(ValueError, match="patterns together have"):
        compile_paths(["[!a]" * 500 + f"{number}*" for number in range(1000)])


def test_one_text_is_no_sequence_of_patterns() -> None:
    """``compile_paths("rh/**")`` would otherwise take each letter for a pattern."""
    with pytest.raises(TypeError, match="sequence"):
        compile_paths("rh/**")


def test_no_patterns_match_nothing() -> None:
    """An empty list is not "no condition"."""
    assert not compile_paths([])("a.md")


def test_several_patterns_match_what_any_of_them_does() -> None:
    """Prefixes and globs together, more than one expression holds."""
    found = compile_paths(["rh", *(f"équipe-{n}/*.md" for n in range(500))])
    assert found("rh/a.md")
    assert found("équipe-499/a.md")
    assert not found("équipe-500/a.md")


def test_pathological_patterns_take_linear_time() -> None:
    """Nested stars do not blow up, on the longest of paths; many of them neither."""
    patterns = ["*a" * 50 + "b", "**/" * 30 + "x", "a*" * 50, "**/*a*/" * 20 + "z"]
    patterns += [f"{'*a?' * 20}{number}" for number in range(400)]
    start = time.perf_counter()
    found = compile_paths(patterns)
    assert found("/".join(["a" * 200] * 20)) is False
    assert found("a" * 100_000) is True
    assert time.perf_counter() - start < 5


def slow(pattern: str, path: str) -> bool:
    """The same meaning, name by name and character by character, by exhaustion."""
    pattern, path = (unicodedata.normalize("NFC", text) for text in (pattern, path))
    names = path.split("/")
    if not set(pattern) & set("*?["):
        wanted = pattern.rstrip("/").split("/")
        below = names[: len(wanted)] == wanted
        return below and (len(names) > len(wanted) or not pattern.endswith("/"))
    parts = pattern.split("/")
    return slow_names([*parts[:-1], parts[-1] or "**"], names)


def slow_names(parts: list[str], names: list[str]) -> bool:
    if not parts:
        return not names
    first, rest = parts[0], parts[1:]
    if set(first) == {"*"} and len(first) > 1:
        if not rest:
            return bool(names)
        return any(slow_names(rest, names[skip:]) for skip in range(len(names)))
    return bool(names) and slow_name(first, names[0]) and slow_names(rest, names[1:])


def slow_name(part: str, name: str) -> bool:
    if not part:
        return not name
    if part[0] == "*":
        return any(slow_name(part[1:], name[skip:]) for skip in range(len(name) + 1))
    if not name:
        return False
    if part[0] == "[":
        close = part.index("]", 2)
        inside = part[1:close]
        negated = inside.startswith("!")
        return (name[0] in inside.lstrip("!")) is not negated and slow_name(
            part[close + 1 :], name[1:]
        )
    return part[0] in ("?", name[0]) and slow_name(part[1:], name[1:])


atoms = st.sampled_from(["a", "b", "é", "e\u0301", ".", "*", "**", "?", "[ab]", "[!a]", "[!é.]"])
globs = (
    st.lists(st.one_of(atoms, st.sampled_from(["/", "/**/", "/**", "**/"])), min_size=1, max_size=9)
    .map("".join)
    .filter(lambda glob: not set(glob.removesuffix("/").split("/")) & {"", ".", ".."})
)
paths = (
    st.text(st.sampled_from("abbé.\u0301///"), min_size=1, max_size=8)
    .map(lambda path: "/".join(name for name in path.split("/") if name))
    .filter(bool)
)


@settings(max_examples=400, deadline=None)
@given(globs, st.lists(paths, min_size=1, max_size=5))
def test_it_agrees_with_an_exhaustive_matcher(pattern: str, candidates: list[str]) -> None:
    """On short patterns and paths over few letters, where matches are frequent."""
    found = compile_paths([pattern])
    for path in candidates:
        assert found(path) is slow(pattern, path), path


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=30), st.text(st.characters(), max_size=60))
def test_any_text_is_refused_or_matched_without_an_error(pattern: str, path: str) -> None:
    """Whatever a person types, and whatever a file system holds."""
    try:
        found = compile_paths([pattern, f"**/{pattern}"])
    except ValueError:
        return
    assert found(path) in (True, False)
    assert found("\ud800" + path + "\udfff") in (True, False)

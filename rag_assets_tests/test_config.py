"""The configuration file: found, read with positions, refused with file, line, column and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from rag_assets.config import load_config
from rag_assets.errors import ConfigurationError

MINIMAL = "sources:\n- name: docs\n  root: docs\n"


def written(folder: Path, text: str | bytes) -> Path:
    """A configuration file with that text."""
    path = folder / "rag_assets.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refusal(folder: Path, text: str | bytes) -> str:
    """The message with which a configuration is refused."""
    with pytest.raises(ConfigurationError) as caught:
        load_config(written(folder, text))
    return str(caught.value)


def test_defaults_are_those_of_the_documentation(tmp_path):
    """A minimal file gives the documented defaults, with paths made absolute from the file."""
    config = load_config(written(tmp_path, MINIMAL))
    assert (config.chunk.size, config.chunk.overlap, config.chunk.anchor_style) == (
        512,
        64,
        "github",
    )
    assert config.embedding.backend == "local"
    assert config.retrieval.k == 10
    assert config.data_dir == tmp_path / ".rag_assets"
    assert config.sources[0].root == tmp_path / "docs"
    assert config.sources[0].acl.default == (), "without tags a source is visible to nobody"


def test_explicit_path_wins_over_variable_and_current_folder(tmp_path, monkeypatch):
    """--config, then RAG_ASSETS_CONFIG, then the current folder."""
    places = {name: tmp_path / name for name in ("flag", "variable", "here")}
    for name, folder in places.items():
        folder.mkdir()
        written(folder, MINIMAL.replace("docs", name))
    monkeypatch.chdir(places["here"])
    assert load_config().sources[0].name == "here"
    monkeypatch.setenv("RAG_ASSETS_CONFIG", str(places["variable"] / "rag_assets.yaml"))
    assert load_config().sources[0].name == "variable"
    assert load_config(places["flag"] / "rag_assets.yaml").sources[0].name == "flag"


def test_missing_file_says_where_it_was_looked_for(tmp_path, monkeypatch):
    """The message names the path and how to get a file."""
    monkeypatch.setenv("RAG_ASSETS_CONFIG", str(tmp_path / "none.yaml"))
    with pytest.raises(ConfigurationError, match=r"none\.yaml.*RAG_ASSETS_CONFIG.*init"):
        load_config()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sources:\n- name: a\n  rot: b\n", "rag_assets.yaml:3:3 sources.0.rot: unknown key"),
        (MINIMAL + "chunks: {}\n", "rag_assets.yaml:4:1 chunks: unknown key"),
        (MINIMAL + "chunk: {size: 10, overlap: 10}\n", "4:1 chunk: overlap (10) must be smaller"),
        (MINIMAL + "chunk: {size: 0}\n", "4:9 chunk.size:"),
        (MINIMAL + "chunk:\n  size: '512'\n", "5:3 chunk.size:"),
        (MINIMAL + "  shards: yes\n", "4:3 sources.0.shards:"),
        (MINIMAL + "  excluded_paths: [a, ../b]\n", "excluded_paths.1: '../b' contains '..'"),
        (MINIMAL + "  included_paths: [/etc]\n", "included_paths.0: '/etc' is absolute"),
        (MINIMAL + "  excluded_paths: 'a'\n", "4:3 sources.0.excluded_paths:"),
        (MINIMAL + "  acl: {default: ['a b']}\n", "acl.default.0: 'a b' is not an ACL tag"),
        (MINIMAL + "  kind: passbolt\n", "sources.0.kind: Passbolt holds secrets"),
        (MINIMAL + "  kind: wiki\n", "sources.0.kind: 'wiki' is unknown"),
        (MINIMAL + "  url: https://x/{page}\n", "sources.0.url: must contain {path}"),
        (MINIMAL + "  url: javascript:{path}\n", "sources.0.url: must begin with https://"),
        (MINIMAL + "- name: docs\n  root: b\n", "two sources give the partition 'docs'"),
        (MINIMAL + "- name: DOCS\n  root: b\n", "two sources give the partition 'DOCS'"),
        (MINIMAL + "embedding: {backend: http}\n", "4:1 embedding: url is missing"),
        (MINIMAL + "embedding: {backend: magic}\n", "embedding.backend: 'magic' is unknown"),
        (MINIMAL + "retrieval: {k: 5000}\n", "4:13 retrieval.k:"),
        ("sources: []\n", "1:1 sources:"),
        ("sources:\n- name: a/b\n  root: c\n", "2:3 sources.0.name:"),
        ("sources:\n- name: a\n", "root is missing"),
        ("sources:\n- name: a\n  name: b\n", "3:3 sources.0.name: set twice"),
        ("sources: [\n", "not valid YAML"),
        ("", "empty"),
        ("- a\n", "1:1 (file):"),
        (b"\xff\xfe", "not UTF-8"),
        ("sources: !!python/object:os.system x\n", "not readable"),
        ("a: " * 300 + "b\n", "not valid YAML"),
    ],
)  # fmt: skip
def test_fault_names_file_line_column_and_key(tmp_path, text, expected):
    """Every fault is one line that leads to the place."""
    message = refusal(tmp_path, text)
    assert expected in message
    assert "Traceback" not in message
    assert message.startswith(str(tmp_path))


def test_all_faults_are_told_at_once(tmp_path):
    """A person mends the file once, not fault by fault."""
    message = refusal(tmp_path, "sources:\n- name: a\n  root: b\n  x: 1\nchunk: {sise: 1}\n")
    assert "sources.0.x" in message
    assert "chunk.sise" in message


def test_shards_are_partitions_of_one_source(tmp_path):
    """``shards: 3`` gives three keys, in order."""
    config = load_config(written(tmp_path, MINIMAL + "  shards: 3\n"))
    assert [p.key for p in config.partitions()] == ["docs-1of3", "docs-2of3", "docs-3of3"]
    assert {p.source for p in config.partitions()} == {"docs"}


def test_unknown_source_or_partition_lists_the_known(tmp_path):
    """A typing error is answered with the right names."""
    config = load_config(written(tmp_path, MINIMAL))
    with pytest.raises(ConfigurationError, match="no source is named 'docz'; there are: docs"):
        config.partitions(["docz"])
    with pytest.raises(ConfigurationError, match="no partition 'x'; there are: docs"):
        config.partition("x")


def test_alias_bomb_is_refused_quickly(tmp_path):
    """Nine levels of nine aliases are not expanded."""
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    message = refusal(tmp_path, "\n".join(lines) + "\n")
    assert "alias" in message or "unknown key" in message


@pytest.mark.parametrize(
    "given", ["token: glpat-abcdefgh-0001", "token: {env: glpat-abcdefgh-0001}", "token: [a]"]
)
def test_a_secret_in_the_configuration_is_refused_and_not_repeated(
    tmp_path: Path, given: str
) -> None:
    """The likeliest mistake: the secret itself where the name of its variable belongs."""
    file = tmp_path / "rag_assets.yaml"
    file.write_text(f"sources:\n- name: code\n  kind: gitlab\n  groups: [a]\n  {given}\n", "utf-8")
    with pytest.raises(ConfigurationError, match="environment variable") as caught:
        load_config(file)
    assert "abcdefgh" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("repositry: x", "sources.0.repositry: unknown key; did you mean repository?"),
        ("kind: git\n  repository: x", "leave kind out"),
        ("kind: gitlab\n  base_url: https://a.example/api/v4\n  groups: [a]", "without /api"),
        ("kind: bookstack\n  base_url: https://passbolt.example\n  token: {env: T}", "Passbolt"),
        ("kind: passbolt", "never indexed"),
        ("root: docs\n  url: https://a.example/{commit}/{path}", "{commit} needs repository"),
        ("root: docs\n  repository: b", "both set"),
        ("root: docs\n  ref: main", "ref needs repository"),
        ("kind: nextcloud\n  base_url: https://u:p@a.example\n  user: a\n  password: {env: P}",
         "without user"),
    ],
)  # fmt: skip
def test_a_wrong_source_says_what_to_do(tmp_path: Path, source: str, said: str) -> None:
    """Each on the line and key where it stands."""
    file = tmp_path / "rag_assets.yaml"
    file.write_text(f"sources:\n- name: code\n  {source}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        load_config(file)
    assert said in str(caught.value)
    assert "rag_assets.yaml:" in str(caught.value)

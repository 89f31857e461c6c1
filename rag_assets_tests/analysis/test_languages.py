"""The language of Markdown texts and of language tags."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from rag_assets.analysis import detect_language, primary_subtag

SHARED = Path(__file__).parents[2] / ".." / "shared" / "data"

FRENCH = "Avant de commencer, vérifiez que le service est bien démarré et que vous avez les droits."
ENGLISH = "Before you begin, make sure that the service is running and that you have permission."
CODE = "```python\nfor user in users:\n    print(user.name, user.age)\n    return the_value\n```\n"


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (FRENCH, "fr"),
        (ENGLISH, "en"),
        (f"# Configuration\n\n{CODE * 40}\n{FRENCH}\n\n{CODE}", "fr"),
        (f"{ENGLISH}\n\n[Guide](https://exemple.fr/les/guides/de/la/securite/des/reseaux)", "en"),
        (f"<div class='what is the'>\n{FRENCH}\n</div>", "fr"),
        (f"~~~\n{ENGLISH * 9}\n~~~\n\n{FRENCH}", "fr"),
        ("Wie kann ich das Netzwerk sichern und die Dienste neu starten?", "de"),
        ("本文書はシステムの管理者のために書かれています。", "ja"),
        ("Comment sécuriser le réseau de l'établissement ?", "fr"),
        ("How do I reset the password of a user?", "en"),
        ("", ""),
        ("42", ""),
        (CODE, ""),
        ("https://example.org/the/quick/brown/fox", ""),
        ("🤓 !", ""),
        ("API", ""),
    ],
)
def test_prose_decides(text: str, language: str) -> None:
    """Code, links and tags have no say, and with too little prose nothing is said."""
    assert detect_language(text) == language


@pytest.mark.parametrize(
    ("tag", "subtag"),
    [
        ("fr", "fr"), ("FR", "fr"), ("fr-FR", "fr"), ("fr_CA", "fr"), ("fr_FR.UTF-8", "fr"),
        ("zh-Hant-TW", "zh"), ("eng", "en"), (" pt-br ", "pt"),
        ("", ""), ("french", ""), ("php", ""), ("js", ""), ("fr, en", ""), ("x", ""), ("é", ""),
        ("f" * 10_000, ""),
    ],
)  # fmt: skip
def test_tags_are_cut_to_the_language(tag: str, subtag: str) -> None:
    """Region, script and encoding do not matter; what is no language is nothing."""
    assert primary_subtag(tag) == subtag


def test_a_real_tree_is_recognised(tmp_path: Path) -> None:
    """Every document of a real French tree is French."""
    source = SHARED / "trees" / "etalab-guides.bundle"
    if not source.exists():
        pytest.skip("the shared data is not here")
    subprocess.run(["git", "clone", "-q", str(source.resolve()), str(tmp_path / "t")], check=True)
    files = sorted((tmp_path / "t").rglob("*.md"))
    assert len(files) > 40
    assert {detect_language(file.read_text(encoding="utf-8")) for file in files} == {"fr"}


@pytest.mark.parametrize(("name", "language"), [("fr_piaf", "fr"), ("en_scifact", "en")])
def test_questions_are_recognised(name: str, language: str) -> None:
    """Questions of one sentence: none is taken for another language, nine of ten are told."""
    file = SHARED / "retrieval" / name / "queries.jsonl"
    if not file.exists():
        pytest.skip("the shared data is not here")
    lines = file.read_text(encoding="utf-8").splitlines()[:300]
    found = [detect_language(json.loads(line)["text"]) for line in lines]
    assert set(found) <= {language, ""}
    assert found.count(language) >= 0.9 * len(found)

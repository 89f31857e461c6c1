"""Words, identifiers and numbers people write, and the words they look for them with."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rag_assets.analysis import analyse, matching_spans, query_terms

FOUND = [
    ("fr", "La sécurité du réseau", "securite reseau"),
    ("fr", "LES RÉSEAUX SÉCURISÉS", "réseau sécurisé"),
    ("fr", "l’été à l’hôtel", "été hôtel"),
    ("fr", "Jusqu'à qu’elle l'aujourd'hui", "elle aujourd’hui"),
    ("fr", "le cœur et l'œuvre", "coeur oeuvre"),
    ("fr", "générations utilisées", "génération utilisé"),
    ("fr", "le pare-feu", "pare feu"),
    ("fr", "1 000,50 €", "1000,50"),
    ("fr", "1 000,50 €", "1 000,50"),
    ("fr", "1\u202f000,50 €", "1,000.50"),
    ("fr", "100 000 salariés", "100000"),
    ("fr", "50 % des cas", "50%"),
    ("fr", "50\u00a0% des cas", "50%"),
    ("fr", "s&eacute;curit&eacute;", "sécurité"),
    ("en", "getUserById(id)", "get user by id"),
    ("en", "getUserById(id)", "getuserbyid"),
    ("en", "HTTPServer", "http server"),
    ("en", "OAuthScopes", "oauthscopes"),
    ("en", "snake_case_name", "snake case names"),
    ("en", "kebab-case", "kebab case"),
    ("en", "path/to/file.py", "file.py"),
    ("en", "`path/to/file.py`", "path to file"),
    ("en", "see [it](docs/guide.md#setup)", "guide.md"),
    ("en", "HTTP/2", "http 2"),
    ("en", "v1.2.3", "1.2.3"),
    ("en", "pass --flag-name=3", "flag-name"),
    ("en", "__init__", "init"),
    ("en", "utf8 and utf-8", "utf 8"),
    ("en", "ΑΘΗΝΑ Αθήνα", "αθηνα"),
    ("en", "the user's guides", "user guide"),
    ("en", "R&D at a@b.com", "r&d a@b.com"),
    ("en", "R&amp;D", "R&D"),
    ("de", "Straße und Häuser", "strasse hauser"),
    ("tr", "İstanbul ışık", "istanbul isik"),
    ("ja", "日本語の文書", "文書"),
    ("th", "ภาษาไทย", "ไทย"),
    ("ko", "한국어 문서를", "문서"),
    ("ru", "Красный йод", "красные йод"),
    ("", "ＦＵＬＬ ﬁn", "full fin"),
]


@pytest.mark.parametrize(("language", "text", "query"), FOUND)
def test_every_word_of_the_question_is_found(language: str, text: str, query: str) -> None:
    """All terms of the question are terms of the text."""
    assert set(query_terms(query, language)) <= set(analyse(text, language))


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("getUserById", "getuserbyid"),
        ("snake_case_name", "snake_case_name"),
        ("state-of-the-art", "state-of-the-art"),
        ("HTTP/2", "http/2"),
        ("C++", "c++"),
        ("C#", "c#"),
        (".NET", ".net"),
        ("v1.2.3", "v1.2.3"),
        ("38.101", "38.101"),
        ("50%", "50%"),
        ("@equipe", "@equipe"),
        ("#1234", "#1234"),
        ("path/to/file.py", "path/to/file.py"),
        ("(see file.py).", "file.py"),
    ],
)
def test_the_whole_is_a_term_of_its_own(text: str, whole: str) -> None:
    """A question that spells it as the text does has one term more in common with it."""
    terms = analyse(text, "en")
    assert whole in terms
    assert len(set(terms)) > 1


@pytest.mark.parametrize(
    ("fault", "query", "text"),
    [
        ("HYB-01", "l'été à l'hôtel", "Un été à l’hôtel"),
        ("HYB-01", "l’été à l’hôtel", "l'ete a l'hotel"),
        ("HYB-03", "v1.2.", "la version v1.2"),
        ("HYB-03", "C++", "en C++ moderne"),
        ("HYB-03", "jour?", "un jour"),
        ("HYB-03", "50%", "à 50 %"),
        ("HYB-03", "@equipe", "merci @équipe !"),
        ("HYB-05", "state-of-the-art", "a state-of-the-art system"),
        ("HYB-05", "state-of-the-art", "the state of the art"),
        ("HYB-07", "sécurité réseau", "securite reseau"),
        ("HYB-07", "securite reseau", "sécurité réseau"),
    ],
)
@pytest.mark.parametrize("language", ["fr", "en", ""])
def test_reported_queries_find_their_text(fault: str, query: str, text: str, language: str) -> None:
    """What broke full-text search elsewhere shares its words with the text here."""
    shared = set(query_terms(query, language)) & set(analyse(text, language))
    assert shared


@pytest.mark.parametrize("language", ["fr", "en", ""])
def test_accented_question_has_the_terms_of_the_index(language: str) -> None:
    """HYB-07: the same terms on both sides, accents or not."""
    assert query_terms("sécurité réseau", language) == analyse("securite reseau", language)


def test_elided_words_leave_nothing() -> None:
    """HYB-01: only the words with a meaning of their own remain."""
    assert analyse("l'été à l'hôtel", "fr") == ["ete", "a", "hotel"]
    assert analyse("d’abord, qu'il n’y a", "fr") == ["abord", "il", "y", "a"]


def test_repetitions_are_kept() -> None:
    """Frequency counts in a text, not in a question."""
    assert analyse("mot mot mot", "fr") == ["mot"] * 3
    assert query_terms("mot mot mot", "fr") == ["mot"]


@pytest.mark.parametrize("text", ["", " \n", "?!", "— « »", "🤓", "* ** ***", "\x00"])
def test_nothing_to_search_for_has_no_terms(text: str) -> None:
    """Punctuation alone is an empty question."""
    assert analyse(text, "fr") == []


@pytest.mark.parametrize(
    ("text", "query", "language", "marked"),
    [
        ("La sécurité du réseau.", "securite RÉSEAUX", "fr", ["sécurité", "réseau"]),
        ("La se\u0301curite\u0301 !", "sécurité", "fr", ["se\u0301curite\u0301"]),
        ("sé\u00adcu\u200brité", "sécurité", "fr", ["sé\u00adcu\u200brité"]),
        ("À l’hôtel", "hotel", "fr", ["hôtel"]),
        ("un pare-feu,", "pare feu", "fr", ["pare-feu"]),
        ("en C++ ou en C.", "c++", "fr", ["C++", "C"]),
        ("50 % de 1 000,50", "50% 1000,50", "fr", ["50 %", "1 000,50"]),
        ("call getUserById()", "user", "en", ["getUserById"]),
        ("[x](path/to/file.py)", "file.py", "en", ["file.py"]),
        ("これは日本語です", "日本", "ja", ["日本"]),
        ("the user's guide", "guides", "en", ["guide"]),
        ("rien", "autre", "fr", []),
        ("rien", "", "fr", []),
    ],
)
def test_matches_are_marked_in_the_original(
    text: str, query: str, language: str, marked: list[str]
) -> None:
    """Spans are whole words as the text writes them."""
    assert [text[a:b] for a, b in matching_spans(text, query, language)] == marked


def test_import_is_light() -> None:
    """Importing the analyser loads neither numpy nor a stemmer nor a language model."""
    code = (
        "import sys, rag_assets.analysis; "
        "print({'numpy', 'Stemmer', 'py3langid'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"

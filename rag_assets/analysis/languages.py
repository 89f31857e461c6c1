"""The language of a text: what a tag says, or what its prose looks like."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from rag_assets.analysis.stemming import SNOWBALL

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

PROSE_CHARACTERS: Final = 2_000
"""How much prose decides. On 2,692 real documents 1,000 to 5,000 gave the same answers."""
HEAD_CHARACTERS: Final = 40_000
"""How far into a text prose is looked for."""
MINIMUM_LETTERS: Final = 3
"""With fewer letters nothing is said."""
MINIMUM_CONFIDENCE: Final = 0.6
"""Share of belief that the best language must have; in doubt nothing is said.

On 12,900 texts (documentation trees in twelve languages, passages, questions) no answer from here
on was wrong and 99.5 % had one; at 0.4, three French questions were called Catalan or Italian.
"""

_UNSTEMMED: Final = (
    "be bg bn he hr ja ka kk km ko lo lv mk mn ms my sk sl sq sw te th tl uk ur uz vi zh"
)
_NOT_LANGUAGE: Final = "zxx"
_TAG: Final = re.compile(r"([a-z]{2,3})(?:[-_][a-z0-9]{1,8})*(?:[.@][\w.@-]+)?", re.IGNORECASE)
_ISO_639_1: Final = (
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy "
    "da de dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu "
    "hy hz ia id ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb "
    "lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om "
    "or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw "
    "ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"
)
_SUBTAGS: Final = frozenset(_ISO_639_1.split())
"""What else has two or three letters is rarely meant: ``language: php``."""
_THREE_LETTERS: Final = {
    "cat": "ca", "deu": "de", "dut": "nl", "eng": "en", "fra": "fr", "fre": "fr", "ger": "de",
    "ita": "it", "nld": "nl", "por": "pt", "spa": "es",
}  # fmt: skip

_FENCE: Final = re.compile(r"^[ \t>]*(`{3,}|~{3,})")
_NOT_PROSE: Final = re.compile(
    r"`[^`\n]{1,500}`"  # inline code
    r"|<[^<>\n]{1,500}>"  # tags and autolinks
    r"|\]\([^()\s]{1,500}"  # targets of links
    r"|\b(?:https?|ftp|mailto):[^\s<>\"'|)]{1,2000}"
    r"|\{[%{][^{}\n]{1,500}[%}]\}"  # template calls
    r"|[^\s/]{0,100}/[^\s]{1,500}"  # paths
    r"|\w{0,100}[_=@#\\{}\d]\w{0,100}"  # identifiers, numbers
)
_PUNCTUATION: Final = re.compile(r"[\s!-&(-@\[-`{-~]+")


def primary_subtag(tag: str) -> str:
    """``fr`` for ``fr``, ``fr-FR``, ``fr_CA.UTF-8``, ``FRA``; empty for what is no language tag."""
    match = _TAG.fullmatch(tag.strip()[:100])
    subtag = match[1].lower() if match else ""
    subtag = _THREE_LETTERS.get(subtag, subtag)
    return subtag if subtag in _SUBTAGS else ""


def detect_language(text: str) -> str:
    """The primary subtag of the language that ``text`` is written in; empty in doubt.

    Code, links, tags and template calls of Markdown do not decide. Deterministic, offline, and
    linear in the length of what is looked at: the first ``HEAD_CHARACTERS``.
    """
    prose = _prose(text)
    if sum(map(str.isalpha, prose)) < MINIMUM_LETTERS:
        return ""
    language, confidence = _identifier().classify(prose)
    return "" if confidence < MINIMUM_CONFIDENCE or language == _NOT_LANGUAGE else str(language)


def _prose(text: str) -> str:
    """The words of a Markdown text, one blank between them, at most ``PROSE_CHARACTERS``."""
    kept: list[str] = []
    length, fence = 0, ""
    for line in text[:HEAD_CHARACTERS].splitlines():
        marker = _FENCE.match(line)
        if fence:
            if marker and marker[1].startswith(fence):
                fence = ""
            continue
        if marker:
            fence = marker[1]
            continue
        words = _PUNCTUATION.sub(" ", _NOT_PROSE.sub(" ", line)).strip()
        kept.append(words)
        length += len(words) + 1
        if length > PROSE_CHARACTERS:
            break
    return " ".join(kept)[:PROSE_CHARACTERS]


@cache
def _identifier() -> LanguageIdentifier:
    """py3langid's model, over languages that documents are likely to be in."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    labels = set(identifier.labels)
    identifier.set_languages(labels & {*SNOWBALL, *_UNSTEMMED.split(), _NOT_LANGUAGE})
    return identifier

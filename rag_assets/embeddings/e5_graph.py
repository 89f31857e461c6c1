"""The encoder of multilingual-e5-small as an ONNX graph, built once from the weights and cached.

In: ``embedded`` float32 [1, tokens, 384], the sum of word, position and type embeddings of one
text. Out: ``pooled`` float32 [1, 384], the mean over its tokens (not yet of length 1). One text a
run: from 24 tokens on, several texts a run are no faster on a CPU, and without padding a vector
does not depend on the texts beside it, to the last bit.

``int8`` rounds the weights to 8 bits per output and the activations to 8 bits per token, both
unsigned. Signed weights are faster, but on processors without VNNI instructions their pairwise sums
saturate in 16 bits (cosine with float32 .9976 instead of .9993), and one scale for all tokens of a
text, as the stock dynamic quantisation has it, loses more (.992). ``q4`` keeps the 4-bit weights.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from rag_assets.embeddings.e5_weights import DIM, MODEL_NAME, QK, WEIGHTS_SHA256, E5Weights
from rag_assets.fingerprints import fingerprint

Precision = Literal["int8", "q4"]

GRAPH_VERSION: Final = "1"
"""Raise when the same weights and precision would give another graph; part of the fingerprint."""

_CONTRIB: Final = "com.microsoft"
"""The operator domain of ONNX Runtime's own operators."""
_OPSET: Final = 18
_IR_VERSION: Final = 9
"""Old enough for ONNX Runtime 1.19, the oldest that the package allows."""
_GELU_FLOOR: Final = 0.17
"""gelu(x) >= -0.16998 for every x, so gelu(x) + 0.17 is positive."""
_ABANDONED_SECONDS: Final = 3600.0
"""A temporary file older than this is left over from a process that was killed."""

_log = logging.getLogger(__name__)


def recipe(precision: Precision) -> str:
    """Identifies what a graph computes: weights, precision, how it is built."""
    return fingerprint(MODEL_NAME, WEIGHTS_SHA256, precision, GRAPH_VERSION)


def load_graph(models_dir: Path, precision: Precision, weights: E5Weights) -> bytes:
    """The serialised graph out of ``models_dir``, or built and put there.

    The name of a cached graph ends in the sha256 of its bytes; one that does not match is built
    anew. Processes that build at once write the same bytes, each through a file of its own that is
    moved into place. When the folder cannot be written, the graph is used without being kept.
    """
    stem = f"{MODEL_NAME}-{precision}-{recipe(precision)}"
    for path in _cached(models_dir, stem):
        try:
            graph = path.read_bytes()
        except OSError:
            continue
        if path.name == _name(stem, graph):
            return graph
        _log.warning("%s is damaged: building it again", path)
        path.unlink(missing_ok=True)
    graph = build_graph(weights, precision)
    try:
        _store(models_dir, _name(stem, graph), graph)
    except OSError as error:
        _log.warning("the model graph could not be kept in %s: %s", models_dir, error)
    return graph


def is_cached(models_dir: Path, precision: Precision) -> bool:
    """Whether a graph lies in ``models_dir`` (its bytes are not checked here)."""
    return any(_cached(models_dir, f"{MODEL_NAME}-{precision}-{recipe(precision)}"))


def _cached(models_dir: Path, stem: str) -> Iterable[Path]:
    return sorted(models_dir.glob(f"{stem}.*.onnx"))


def _name(stem: str, graph: bytes) -> str:
    return f"{stem}.{hashlib.sha256(graph).hexdigest()}.onnx"


def _store(models_dir: Path, name: str, graph: bytes) -> None:
    """Write under a temporary name, then move; clear away what killed processes left."""
    models_dir.mkdir(parents=True, exist_ok=True)
    for path in models_dir.glob(f"{MODEL_NAME}-*.tmp"):
        if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
            path.unlink(missing_ok=True)
    temporary = models_dir / f"{MODEL_NAME}-{os.getpid()}-{secrets.token_hex(8)}.tmp"
    try:
        with temporary.open("xb") as file:
            file.write(graph)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(models_dir / name)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def build_graph(weights: E5Weights, precision: Precision) -> bytes:
    """The encoder as a serialised ONNX model; deterministic for one version of ``onnx``."""
    import onnx
    from onnx import TensorProto, helper

    graph = _Int8Graph(weights) if precision == "int8" else _Q4Graph(weights)
    graph.encode()
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            MODEL_NAME,
            [helper.make_tensor_value_info("embedded", TensorProto.FLOAT, [1, "tokens", DIM])],
            [helper.make_tensor_value_info("pooled", TensorProto.FLOAT, [1, DIM])],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid(_CONTRIB, 1)],
        producer_name="rag_assets",
    )
    model.ir_version = _IR_VERSION
    onnx.checker.check_model(model)
    serialised: bytes = model.SerializeToString(deterministic=True)
    return serialised


class _Graph:
    """A BERT encoder node by node; how a linear layer multiplies is left to the subclass."""

    def __init__(self, weights: E5Weights) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._weights = weights
        self._names: set[str] = set()

    def linear(self, x: str, names: list[str], *, after_gelu: bool = False) -> tuple[str, str]:
        """``x`` times the matrices (side by side), without bias; and the bias to add."""
        raise NotImplementedError

    def encode(self) -> None:
        """All nodes from ``embedded`` to ``pooled``."""
        self.constant("qkv.sizes", np.array([DIM] * 3, np.int64))
        x = self.norm("embedded", "emb.ln")
        for layer in range(self._weights.layers):
            x = self._layer(x, f"l{layer}.")
        axes = self.constant("tokens.axis", np.array([1], np.int64))
        self.node("ReduceMean", [x, axes], output="pooled", keepdims=0)

    def _layer(self, x: str, layer: str) -> str:
        product, bias = self.linear(x, [f"{layer}{part}" for part in "qkv"])
        query, key, value = self.split(product, "qkv.sizes", 3)
        heads = self._weights.heads
        attended = self.node(
            "MultiHeadAttention", [query, key, value, bias], _CONTRIB, num_heads=heads
        )
        x = self._residual(x, attended, f"{layer}ao", f"{layer}aln")
        product, bias = self.linear(x, [f"{layer}fi"])
        activated = self.node("BiasGelu", [product, bias], _CONTRIB)
        return self._residual(x, activated, f"{layer}fo", f"{layer}oln", after_gelu=True)

    def _residual(
        self, x: str, branch: str, linear: str, norm: str, *, after_gelu: bool = False
    ) -> str:
        product, bias = self.linear(branch, [linear], after_gelu=after_gelu)
        # Add and LayerNormalization take a third of the time of the fused SkipLayerNormalization.
        return self.norm(self.add(x, self.add(product, bias)), norm)

    def constant(self, name: str, values: npt.NDArray[Any]) -> str:
        """``name``, holding ``values``; the first definition of a name stays."""
        from onnx import numpy_helper

        if name not in self._names:
            self._names.add(name)
            self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def node(
        self,
        operator: str,
        inputs: list[str],
        domain: str = "",
        *,
        output: str | None = None,
        **attributes: Any,
    ) -> str:
        """The name of the one output of a new node."""
        from onnx import helper

        name = output or f"{operator}.{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(operator, inputs, [name], name=name, domain=domain, **attributes)
        )
        return name

    def split(self, x: str, sizes: str, parts: int) -> list[str]:
        """The names of ``parts`` slices of the last axis."""
        from onnx import helper

        names = [f"Split.{len(self.nodes)}.{part}" for part in range(parts)]
        self.nodes.append(helper.make_node("Split", [x, sizes], names, name=names[0], axis=-1))
        return names

    def add(self, one: str, other: str) -> str:
        return self.node("Add", [one, other])

    def norm(self, x: str, name: str) -> str:
        """Layer norm over the hidden axis."""
        scale = self.constant(f"{name}.w", self._weights.vectors[f"{name}.w"])
        shift = self.constant(f"{name}.b", self._weights.vectors[f"{name}.b"])
        epsilon = self._weights.epsilon
        return self.node("LayerNormalization", [x, scale, shift], axis=-1, epsilon=epsilon)

    def bias(self, names: list[str]) -> npt.NDArray[np.float32]:
        return np.concatenate([self._weights.vectors[f"{name}.b"] for name in names])


class _Q4Graph(_Graph):
    """Linear layers on the 4-bit weights as they are."""

    def linear(self, x: str, names: list[str], *, after_gelu: bool = False) -> tuple[str, str]:
        del after_gelu  # the operator scales its own input
        matrices = [self._weights.matrices[f"{name}.w"] for name in names]
        nibbles = np.concatenate([matrix.nibbles() for matrix in matrices])
        scales = np.concatenate([matrix.scales() for matrix in matrices])
        rows, blocks, _ = nibbles.shape
        product = self.node(
            "MatMulNBits",
            [
                x,
                self.constant(f"{names[0]}.q4", nibbles),
                self.constant(f"{names[0]}.scales", scales.reshape(-1)),
            ],
            _CONTRIB,
            K=blocks * QK,
            N=rows,
            bits=4,
            block_size=QK,
            accuracy_level=4,  # activations in int8 blocks, as the weights' own engine has them
        )
        return product, self.constant(f"{names[0]}.bias", self.bias(names))


class _Int8Graph(_Graph):
    """Linear layers in unsigned 8 bits: weights scaled per output, activations per token."""

    def linear(self, x: str, names: list[str], *, after_gelu: bool = False) -> tuple[str, str]:
        dense = np.concatenate([self._weights.matrices[f"{name}.w"].dense() for name in names]).T
        scales = (np.abs(dense).max(axis=0) / 127).astype(np.float32)
        scales[scales == 0] = 1
        rounded = np.rint(dense / scales)
        bias = self.bias(names)
        if after_gelu:
            # The floor was added to every input: take off what it contributes to every output.
            bias = (bias - _GELU_FLOOR * (rounded * scales).sum(axis=0)).astype(np.float32)
        quantised, row_scales, zero = self._positive(x) if after_gelu else self._symmetric(x)
        product = self.node(
            "MatMulIntegerToFloat",
            [
                quantised,
                self.constant(f"{names[0]}.u8", (rounded + 128).astype(np.uint8)),
                self.constant("one", np.array(1, np.float32)),
                self.constant(f"{names[0]}.scales", scales),
                zero,
                self.constant("middle", np.array(128, np.uint8)),
            ],
            _CONTRIB,
        )
        product = self.node("Mul", [product, row_scales])
        return product, self.constant(f"{names[0]}.bias", bias)

    def _symmetric(self, x: str) -> tuple[str, str, str]:
        """Per token: round(x / scale) + 128, the scale, and 128."""
        largest = self._row_max(self.node("Abs", [x]))
        scale = self.node("Mul", [largest, self.constant("1/127", np.array(1 / 127, np.float32))])
        # A row of zeros must not be divided by zero.
        scale = self.node("Max", [scale, self.constant("tiny", np.array(1e-9, np.float32))])
        return self._quantise(x, scale, self.constant("middle", np.array(128, np.uint8)))

    def _positive(self, x: str) -> tuple[str, str, str]:
        """Per token: round((x + floor) / scale), the scale, and 0: twice as fine as symmetric."""
        x = self.add(x, self.constant("gelu.floor", np.array(_GELU_FLOOR, np.float32)))
        largest = self._row_max(x)
        scale = self.node("Mul", [largest, self.constant("1/255", np.array(1 / 255, np.float32))])
        return self._quantise(x, scale, self.constant("zero", np.array(0, np.uint8)))

    def _quantise(self, x: str, scale: str, zero: str) -> tuple[str, str, str]:
        scaled = self.node("Div", [x, scale])
        one = self.constant("one", np.array(1, np.float32))
        return self.node("QuantizeLinear", [scaled, one, zero]), scale, zero

    def _row_max(self, x: str) -> str:
        axes = self.constant("hidden.axis", np.array([-1], np.int64))
        return self.node("ReduceMax", [x, axes], keepdims=1)

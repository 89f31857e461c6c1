"""What counts as a vector: numbers from outside in, finite unit rows of float32 out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from rag_assets.embeddings.base import Vectors
from rag_assets.errors import MalformedResponse

_NUMBERS: Final = frozenset({float, int})
"""Exact types: ``bool`` is an ``int`` to Python and to numpy, but no coordinate."""


class UnusableVector(MalformedResponse):
    """A vector that is not finite, or is zero: its text may be the cause, not the embedder."""

    texts_suspected = True


def parse_vectors(value: object, *, count: int, dim: int) -> Vectors:
    """float32 [count, dim], unit rows, out of parsed JSON: a list of lists of numbers.

    Raises:
        MalformedResponse: another count, another dimension, or anything but numbers.
        UnusableVector: a vector is not finite, or is zero.
    """
    if not isinstance(value, list):
        raise MalformedResponse(f"vectors are {_kind(value)}, not a list of lists of numbers")
    if len(value) != count:
        raise MalformedResponse(f"{len(value)} vectors came for {count} texts")
    if count == 0:
        return np.empty((0, dim), np.float32)
    for position, row in enumerate(value):
        _check_row(position, row, dim)
    try:
        numbers = np.array(value, np.float64)
    except OverflowError as error:
        raise UnusableVector("a vector has a number too large for any float") from error
    return unit_rows(numbers)


def unit_rows(vectors: npt.NDArray[np.floating]) -> Vectors:
    """float32 [n, dim]: the rows of ``vectors`` (float, [n, dim]) scaled to length 1.

    Lengths are taken in float64 after scaling by the largest coordinate, so that neither 1e30 nor
    1e-30 is lost on the way.

    Raises:
        UnusableVector: a row is not finite, or is zero; the message has its position.
    """
    wide = vectors.astype(np.float64)
    if not wide.size:
        return wide.astype(np.float32)
    largest = np.abs(wide).max(axis=1)
    _refuse(~np.isfinite(largest), "is not finite (NaN or infinite)")
    _refuse(largest == 0, "is zero")
    wide /= largest[:, None]
    wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    return wide.astype(np.float32)


def check_shape(vectors: Vectors, texts: Sequence[str]) -> None:
    """Refuse an answer of an embedder that has not one row for every text.

    Raises:
        MalformedResponse: not [len(texts), dim].
    """
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise MalformedResponse(
            f"the embedder gave vectors of shape {list(vectors.shape)} for {len(texts)} texts"
        )


def _check_row(position: int, row: object, dim: int) -> None:
    if not isinstance(row, list):
        raise MalformedResponse(f"vector {position} is {_kind(row)}, not a list of numbers")
    if len(row) != dim:
        raise MalformedResponse(f"vector {position} has {len(row)} numbers, expected {dim}")
    strangers = set(map(type, row)) - _NUMBERS
    if strangers == {type(None)}:
        # What a server writes that cannot say NaN in JSON.
        raise UnusableVector(f"vector {position} has null for a number")
    if strangers:
        names = ", ".join(sorted(kind.__name__ for kind in strangers))
        raise MalformedResponse(f"vector {position} has {names} among its numbers")


def _refuse(rows: npt.NDArray[np.bool_], why: str) -> None:
    if rows.any():
        raise UnusableVector(f"vector {int(np.argmax(rows))} {why}")


def _kind(value: object) -> str:
    return "missing" if value is None else f"of type {type(value).__name__}"

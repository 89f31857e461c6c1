"""What is a vector and what is not."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_assets.embeddings.vectors import UnusableVector, check_shape, parse_vectors, unit_rows
from rag_assets.errors import MalformedResponse

finite = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.lists(finite, min_size=3, max_size=3), min_size=1, max_size=5))
def test_rows_become_unit_or_are_refused(rows: list[list[float]]) -> None:
    """Every finite non-zero row, from 5e-324 to 1.8e308, keeps its direction at length 1."""
    array = np.array(rows, np.float64)
    if (np.abs(array).max(axis=1) == 0).any():
        with pytest.raises(UnusableVector, match="is zero"):
            unit_rows(array)
        return
    units = unit_rows(array)
    assert units.dtype == np.float32
    assert np.allclose(np.linalg.norm(units.astype(np.float64), axis=1), 1, atol=1e-6)
    scaled = array / np.abs(array).max(axis=1, keepdims=True)
    cosines = (units * scaled).sum(axis=1) / np.linalg.norm(scaled, axis=1)
    assert (cosines > 1 - 1e-6).all()


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
        max_leaves=12,
    )
)
def test_any_json_is_vectors_or_malformed(value: Any) -> None:
    """Whatever JSON a server sends: unit rows of the right shape, or ``MalformedResponse``."""
    try:
        vectors = parse_vectors(json.loads(json.dumps(value)), count=2, dim=2)
    except MalformedResponse:
        return
    assert vectors.shape == (2, 2)
    assert np.isfinite(vectors).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf"), 0.0])
def test_message_has_the_position(bad: float) -> None:
    """The row that cannot be used is named."""
    vectors = np.ones((4, 3), np.float32)
    vectors[2] = bad
    with pytest.raises(UnusableVector, match="vector 2"):
        unit_rows(vectors)


def test_input_is_not_changed() -> None:
    """The caller's array stays as it is."""
    vectors = np.full((2, 2), 3.0)
    unit_rows(vectors)
    assert (vectors == 3.0).all()


def test_no_rows_are_fine() -> None:
    """[] of a known dimension."""
    assert parse_vectors([], count=0, dim=7).shape == (0, 7)
    assert unit_rows(np.empty((0, 7))).shape == (0, 7)


@pytest.mark.parametrize("shape", [(2, 3), (4, 3), (3,)])
def test_row_count_must_be_that_of_the_texts(shape: tuple[int, ...]) -> None:
    """As many rows as texts."""
    with pytest.raises(MalformedResponse, match="3 texts"):
        check_shape(np.ones(shape, np.float32), ["a", "b", "c"])

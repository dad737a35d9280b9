"""What options make of a vector: properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gpuworker.engine.postprocess import finish
from shared.messages import PLAIN, Options

NUMBERS = st.floats(-8, 8, width=32)
VECTORS = st.lists(NUMBERS, min_size=2, max_size=12).map(lambda numbers: np.array(numbers, dtype="<f4"))


def unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns a vector of length 1 in its direction; of one of zeros, itself."""
    length = float(np.linalg.norm(vector.astype(np.float64)))
    return (vector / length).astype("<f4") if length else vector


@given(VECTORS, st.booleans())
def test_without_options_it_is_the_models(vector: NDArray[np.float32], normalizes: bool) -> None:
    """To the last bit."""
    assert finish(vector, PLAIN, normalizes=normalizes, raw=False).tobytes() == vector.tobytes()


@given(VECTORS, st.booleans(), st.booleans())
def test_a_model_that_normalizes_does_so_for_whoever_does_not_object(
    vector: NDArray[np.float32],
    asked: bool,
    raw: bool,
) -> None:
    """Beside an input that wants the raw vector, the others get theirs of length 1."""
    options = Options(normalize=True if asked else None)
    found = finish(vector if raw else unit(vector), options, normalizes=True, raw=raw)
    assert np.allclose(found, unit(vector), atol=1e-6)
    assert finish(vector, Options(normalize=False), normalizes=True, raw=True).tobytes() == vector.tobytes()


@given(VECTORS, st.data())
def test_dimensions_are_cut_and_then_normalized(vector: NDArray[np.float32], data: st.DataObject) -> None:
    """The first so many numbers; of length 1 if the whole vector has it or is to have it."""
    number = data.draw(st.integers(1, len(vector)))
    first = vector[:number]
    assert np.allclose(
        finish(vector, Options(dimensions=number, normalize=True), normalizes=False, raw=False), unit(first)
    )
    assert finish(vector, Options(dimensions=number), normalizes=False, raw=False).tobytes() == first.tobytes()
    whole = unit(vector)
    found = finish(whole, Options(dimensions=number), normalizes=True, raw=False)
    assert np.allclose(found, unit(whole[:number]), atol=1e-6)


@pytest.mark.parametrize("options", [Options(normalize=True), Options(normalize=True, dimensions=2)])
def test_zeros_stay_zeros(options: Options) -> None:
    """They have no direction."""
    assert not finish(np.zeros(4, dtype="<f4"), options, normalizes=False, raw=False).any()


@given(VECTORS, st.sampled_from([None, True, False]))
def test_it_is_float32_for_the_wire(vector: NDArray[np.float32], normalize: bool | None) -> None:
    """Little-endian, whatever was done to it."""
    assert finish(vector, Options(normalize=normalize), normalizes=False, raw=False).dtype == np.dtype("<f4")

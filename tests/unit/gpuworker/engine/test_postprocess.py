"""What options do to a vector: properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gpuworker.engine.postprocess import postprocess
from shared.messages import DEFAULT_OPTIONS, Options

NUMBERS = st.floats(-8, 8, width=32, allow_subnormal=False)  # these have too few digits for a length of 1
VECTORS = st.lists(NUMBERS, min_size=2, max_size=12).map(lambda numbers: np.array(numbers, dtype="<f4"))


def unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the vector of length 1 in the same direction; a vector of zeros as it is."""
    length = float(np.linalg.norm(vector.astype(np.float64)))
    return (vector / length).astype("<f4") if length else vector


@given(VECTORS, st.booleans())
def test_without_options_the_vector_stays_as_it_is(vector: NDArray[np.float32], normalizes: bool) -> None:
    """The result has the same bits."""
    assert postprocess(vector, DEFAULT_OPTIONS, normalizes=normalizes, raw=False).tobytes() == vector.tobytes()


@given(VECTORS, st.booleans(), st.booleans())
def test_a_model_that_normalizes_does_so_unless_the_input_forbids_it(
    vector: NDArray[np.float32],
    explicit: bool,
    raw: bool,
) -> None:
    """An input with normalize=false gets the raw vector; the other inputs of its batch get vectors of length 1."""
    options = Options(normalize=True if explicit else None)
    found = postprocess(vector if raw else unit(vector), options, normalizes=True, raw=raw)
    assert np.allclose(found, unit(vector), atol=1e-6)
    assert postprocess(vector, Options(normalize=False), normalizes=True, raw=True).tobytes() == vector.tobytes()


@given(VECTORS, st.data())
def test_dimensions_are_cut_and_then_normalized(vector: NDArray[np.float32], data: st.DataObject) -> None:
    """The first numbers remain; they have length 1 if the whole vector has or shall have it."""
    dimensions = data.draw(st.integers(1, len(vector)))
    first = vector[:dimensions]
    assert np.allclose(
        postprocess(vector, Options(dimensions=dimensions, normalize=True), normalizes=False, raw=False), unit(first)
    )
    assert postprocess(vector, Options(dimensions=dimensions), normalizes=False, raw=False).tobytes() == first.tobytes()
    whole = unit(vector)
    found = postprocess(whole, Options(dimensions=dimensions), normalizes=True, raw=False)
    assert np.allclose(found, unit(whole[:dimensions]), atol=1e-6)


@pytest.mark.parametrize("options", [Options(normalize=True), Options(normalize=True, dimensions=2)])
def test_zeros_stay_zeros(options: Options) -> None:
    """A vector of zeros has no direction."""
    assert not postprocess(np.zeros(4, dtype="<f4"), options, normalizes=False, raw=False).any()


@given(VECTORS, st.sampled_from([None, True, False]))
def test_the_result_is_float32_for_the_wire(vector: NDArray[np.float32], normalize: bool | None) -> None:
    """It is little-endian, whatever the options are."""
    assert postprocess(vector, Options(normalize=normalize), normalizes=False, raw=False).dtype == np.dtype("<f4")

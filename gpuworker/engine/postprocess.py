"""Applies an entry's options to the model's vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from shared.messages import Options


def postprocess(vector: NDArray[np.float32], options: Options, *, normalizes: bool, raw: bool) -> NDArray[np.float32]:
    """Returns a vector cut to its dimensions, and of length 1 if requested. A vector of zeros stays as it is.

    Args:
        vector: of shape (dim,), as the model returned it.
        options: of its entry.
        normalizes: whether the model returns vectors of length 1.
        raw: whether this vector is from before the model's normalization.
    """
    cut = vector[: options.dimensions]
    to_normalize = normalizes if options.normalize is None else options.normalize
    if not to_normalize or (normalizes and not raw and len(cut) == len(vector)):
        return cut
    length = float(np.linalg.norm(cut.astype(np.float64)))  # squares of small numbers are 0 in float32
    return cut / length if length > 0 else cut

"""The ranges of a model's vectors as int8 and uint8, from a file: the smallest and the largest number by dimension."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
from msgspec import structs

from gpuworker.model_spec import ModelLoadError, one_line
from shared.messages import EMBED

if TYPE_CHECKING:
    from gpuworker.backends.base import Backend
    from gpuworker.ipc.messages import Ready

MAX_RANGE_DIM = 2_048
"""Each heartbeat has all ranges: 22 kB for as many dimensions."""

DIGITS = 16


def load_ranges(path: str | None, backend: Backend) -> bytes:
    """Returns the ranges in a .npy file, as little-endian float32 of shape (2, dimensions); none without a file.

    Raises:
        ModelLoadError: it is no such file, it does not fit the model's vectors, or the model has none.
    """
    if path is None:
        return b""
    if EMBED not in backend.ops:
        raise ModelLoadError("--int8-ranges is for vectors, and this model returns none: leave it out")
    shape = (2, backend.dim)
    if backend.dim > MAX_RANGE_DIM:
        raise ModelLoadError(f"--int8-ranges is for vectors of up to {MAX_RANGE_DIM} dimensions: leave it out")
    try:  # a map reads no more of the file than its shape allows
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise ModelLoadError(f"--int8-ranges {path} cannot be read: {one_line(error)}") from error
    except (ValueError, EOFError) as error:  # numpy would say how to unpickle it, which no worker does
        reason = "is damaged, or no .npy file of numbers: write it with numpy.save"
        raise ModelLoadError(f"--int8-ranges {path} {reason}") from error
    if not isinstance(found, np.ndarray) or found.shape != shape or found.dtype.kind != "f":
        what = f"{found.dtype} of shape {found.shape}" if isinstance(found, np.ndarray) else "several arrays"
        raise ModelLoadError(f"--int8-ranges {path} has {what}: this model needs floats of shape {shape}")
    ranges = np.asarray(found, dtype="<f4")
    if not np.isfinite(ranges).all() or (ranges[0] > ranges[1]).any():
        raise ModelLoadError(f"--int8-ranges {path}: it needs the smallest numbers, then the largest ones")
    return ranges.tobytes()


def with_ranges(ready: Ready, ranges: bytes) -> Ready:
    """Returns the description of a model with its ranges, if it has any.

    Its revision is another one then: no request has vectors by two files.
    """
    if not ranges:
        return ready
    revision = hashlib.sha256(ready.revision.encode() + ranges).hexdigest()[:DIGITS]
    return structs.replace(ready, int8_ranges=ranges, revision=revision)

"""The layers of a hybrid model that make its sparse and its multi-vector part of the vectors of tokens: see BGE-M3."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from safetensors.torch import load_file

from gpuworker.model_files import find_head
from gpuworker.model_spec import ModelLoadError, one_line
from gpuworker.model_type import HEADS
from shared.messages import MULTI_VECTOR, SPARSE

if TYPE_CHECKING:
    from pathlib import Path

    from gpuworker.model_files import Find

MAX_HEAD_BYTES = 2**30
"""Maximum size of a file with the weights of one layer: with 8,192 dimensions they take 256 MiB."""


class TokenHeads(NamedTuple):
    """The layers that a model has, in float32 on its device.

    Attributes:
        sparse: of one output, a token's weight.
        multi_vector: its output is a token's vector.
    """

    sparse: torch.nn.Linear | None
    multi_vector: torch.nn.Linear | None

    def weights_of(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns the weight of each token, of shape (tokens,), of vectors of shape (tokens, size)."""
        assert self.sparse is not None  # noqa: S101 - the part is one of the model
        return torch.relu(self.sparse(hidden)).squeeze(-1)

    def vectors_of(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns the vector of each token, of length 1 and shape (tokens, dim), of vectors of shape (tokens, size)."""
        assert self.multi_vector is not None  # noqa: S101 - the part is one of the model
        return torch.nn.functional.normalize(self.multi_vector(hidden), dim=-1)


def load_heads(find: Find, size: int, device: str) -> TokenHeads:
    """Returns the layers of a model whose transformer gives vectors of tokens of this size.

    Raises:
        ModelLoadError: a file cannot be read, or holds no such layer.
    """
    layers: dict[str, torch.nn.Linear] = {}
    for name, part in HEADS.items():
        path = find_head(find, name)
        if path is not None:
            layers[part] = _load_layer(path, size, 1 if part == SPARSE else None).to(device)
    return TokenHeads(layers.get(SPARSE), layers.get(MULTI_VECTOR))


def _load_layer(path: Path, size: int, outputs: int | None) -> torch.nn.Linear:
    """Returns a layer with the weights in a file. No file runs code: what torch.save wrote is read as weights only."""
    if path.stat().st_size > MAX_HEAD_BYTES:
        raise ModelLoadError(f"{path.name} is over {MAX_HEAD_BYTES >> 20} MiB: it holds more than one layer")
    try:
        loaded = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
        weight, bias = loaded["weight"], loaded.get("bias")
        layer = torch.nn.Linear(size, weight.shape[0], bias=bias is not None, device="meta")
        layer.load_state_dict({name: each.float() for name, each in loaded.items()}, assign=True)
    except Exception as error:  # the libraries raise errors of any class
        raise ModelLoadError(
            f"{path.name} holds no layer for vectors of {size} numbers: download or copy it again ({one_line(error)})"
        ) from error
    if outputs not in (None, layer.out_features):
        raise ModelLoadError(f"{path.name} has {layer.out_features} outputs, and {outputs} is expected")
    return layer.eval()

"""The floating-point format in which a model computes: float32, bfloat16 or float16."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers.base.model import BaseModel

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def dtype_of(name: str, device: str) -> torch.dtype:
    """Returns the format of this name. For `auto` it is the short format that a GPU computes in, elsewhere float32."""
    if name != "auto":
        return DTYPES[name]
    if not device.startswith("cuda"):
        return torch.float32
    has_bfloat16 = torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if has_bfloat16 else torch.float16


def cast_weights(model: BaseModel, dtype: torch.dtype) -> None:
    """Casts the transformer's weights to a shorter format. The steps after it, from pooling on, keep float32.

    So do tables that are no weights: in a short format the angles of rotary positions would be off by whole turns.
    """
    if dtype != torch.float32:
        for parameter in model[0].parameters():
            parameter.data = parameter.data.to(dtype)
        model[0].register_forward_hook(_widen)


def _widen(_module: object, _arguments: object, features: dict[str, Any]) -> dict[str, Any]:
    """A hook after the transformer: a mean over tokens in a short format would lose precision, or overflow."""
    wide = {name: value.float() for name, value in features.items() if _is_short(value)}
    return {**features, **wide}


def _is_short(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in (torch.bfloat16, torch.float16)

"""The last layer of a transformer for the first token of each sequence alone, where a head reads nothing else.

Of the other tokens this layer needs keys and values, but neither queries, nor what follows the attention: that is ten
of the twelve products of matrices in it, of BERT's sizes. So a model of six layers has a seventh less to compute. A
language model's server does the same for the last token of a prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch.nn import Module

from gpuworker.backends import packing

LAYERS = frozenset({"BertLayer", "CamembertLayer", "ElectraLayer", "RobertaLayer", "XLMRobertaLayer"})
"""Classes of transformers with the parts of BERT's layer, by their names: an import of each costs time at the start."""


def give_to_head(model: Module | None) -> None:
    """Has the head of a model get the first token of each sequence of a packed batch, as it reads of a padded one.

    A model whose head reads anything else has other logits then, and does not run packed (see acceleration).
    """
    body = getattr(model, "base_model", None)
    encoder = getattr(body, "encoder", None) or getattr(body, "transformer", None)
    if not isinstance(encoder, Module):
        return
    layers = getattr(encoder, "layer", None)
    last = layers[-1] if isinstance(layers, torch.nn.ModuleList) else None
    if last is not None and type(last).__name__ in LAYERS:
        last.forward = partial(_run_last_layer, last, last.forward)
    else:
        encoder.register_forward_hook(_keep_first_tokens, with_kwargs=True)


def _run_last_layer(
    layer: Any,  # noqa: ANN401 - of LAYERS
    usual: Callable[..., torch.Tensor],
    hidden: torch.Tensor,
    *arguments: Any,  # noqa: ANN401
    **named: Any,  # noqa: ANN401
) -> torch.Tensor:
    """Returns what a layer makes of the first token of each sequence, of shape (sequences, 1, size)."""
    boundaries = named.get("cu_seq_lens_q")
    if boundaries is None:
        return usual(hidden, *arguments, **named)
    first = hidden[:, boundaries[:-1].long()]
    attention, size = layer.attention.self, layer.attention.self.attention_head_size
    query, key, value = (
        part(tokens).view(1, tokens.shape[1], -1, size).transpose(1, 2)
        for part, tokens in ((attention.query, first), (attention.key, hidden), (attention.value, hidden))
    )
    attended, _ = packing.attend(
        attention,
        query,
        key,
        value,
        None,
        scaling=attention.scaling,
        cu_seq_lens_q=torch.arange(first.shape[1] + 1, dtype=boundaries.dtype, device=boundaries.device),
        cu_seq_lens_k=boundaries,
        max_length_q=1,
        max_length_k=named["max_length_k"],
    )
    attended = layer.attention.output(attended.reshape(first.shape), first)
    output: torch.Tensor = layer.output(layer.intermediate(attended), attended)
    return output.transpose(0, 1)


def _keep_first_tokens(_module: object, _arguments: object, named: Mapping[str, Any], output: Any) -> Any:  # noqa: ANN401 - of any model
    """A hook after the layers of a transformer: of a packed batch, keeps the first token of each sequence."""
    boundaries = named.get("cu_seq_lens_q")
    if boundaries is not None:
        output.last_hidden_state = output.last_hidden_state[0, boundaries[:-1].long()].unsqueeze(1)
    return output

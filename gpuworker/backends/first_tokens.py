"""The last layer of a transformer for the first token of each sequence alone, where what follows reads nothing else.

These are the heads of most rerankers and classifiers, and the pooling `cls` of many embedding models.

Of the other tokens this layer needs keys and values, but neither queries, nor what follows the attention: that is ten
of the twelve products of matrices in it, of BERT's sizes. So a model of six layers has a seventh less to compute. A
language model's server does the same for the last token of a prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.sentence_transformer.modules import Pooling
from torch.nn import Module, ModuleList

from gpuworker.backends import packing

if TYPE_CHECKING:
    from sentence_transformers.base.model import BaseModel

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
    if (last := _last_layer_of(encoder)) is not None:
        last.forward = partial(_run_last_layer, last, last.forward)
    else:
        encoder.register_forward_hook(_keep_first_tokens, with_kwargs=True)


Step = Callable[[dict[str, Any]], dict[str, Any]]
"""Adds features to those of a batch, as the parts of a sentence-transformers model do."""


def steps_to_pooling(model: BaseModel) -> list[Step] | None:
    """Returns steps that compute what a model does of a packed batch; None if its pooling reads other tokens.

    They share the weights with the model, which still computes all tokens, for requests that want their vectors.
    """
    transformer, *others = model
    pooling = others[0] if others else None
    if not (isinstance(pooling, Pooling) and pooling.pooling_mode == "cls" and pooling.include_prompt):
        return None
    body: Any = getattr(transformer, "model", None)
    encoder = getattr(body, "encoder", None)
    if not isinstance(encoder, Module) or (last := _last_layer_of(encoder)) is None:
        return None
    twin = copy(last)
    twin.forward = partial(_run_last_layer, last, last.forward)
    layers = ModuleList([*encoder.layer[:-1], twin])  # type: ignore[index]  # it has layers
    body = _with_part(body, "encoder", _with_part(encoder, "layer", layers))
    return [_with_part(transformer, "model", body), _drop_boundaries, *others]


def _last_layer_of(encoder: Module) -> Any:  # noqa: ANN401 - of LAYERS
    """Returns the last layer of an encoder if it is one of LAYERS, else None."""
    layers = getattr(encoder, "layer", None)
    last = layers[-1] if isinstance(layers, ModuleList) else None
    return last if type(last).__name__ in LAYERS else None


def _with_part(module: Module, name: str, part: Module) -> Any:  # noqa: ANN401 - of the class of the module
    """Returns a module with another part, which shares all others, the weights and the hooks.

    Hooks that the module gets later are for both: as in bfloat16 on a CPU, where one widens its output.
    """
    twin = copy(module)
    twin._modules = {**module._modules, name: part}  # noqa: SLF001 - `setattr` would change the original's
    return twin


def _drop_boundaries(features: dict[str, Any]) -> dict[str, Any]:
    """Has the pooling read features of shape (sequences, 1, size) as a padded batch."""
    del features["cu_seq_lens_q"]
    return features


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

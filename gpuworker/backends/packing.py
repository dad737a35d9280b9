"""Batches without padding: the sequences lie end to end in one row, and each attends only to itself.

Everything except attention works token by token, and needs no padding. On a CPU, attention runs on all sequences of one
length at once; in a batch that is sorted by length these are neighbours. On a GPU, it is FlashAttention's kernel for
sequences of any lengths, which is part of torch. Its names for the parts of a packed batch (`cu_seq_lens_q`, ...) are
used here, because models in transformers, and the pooling of sentence-transformers, use them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby, pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

IMPLEMENTATION = "redbatch_packed"


def pack(sequences: Sequence[list[int]], first_position: int) -> dict[str, Any]:
    """Returns the features of a packed batch: ids and positions of shape (1, tokens), boundaries of shape (n + 1,)."""
    lengths = [len(ids) for ids in sequences]
    tokens = sum(lengths)
    ends = np.cumsum([0, *lengths], dtype=np.int32)
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    boundaries = torch.from_numpy(ends)
    return {
        "input_ids": _row(np.fromiter(chain.from_iterable(sequences), np.int64, tokens)),
        "position_ids": _row(first_position + np.arange(tokens) - ends[sequence]),
        "seq_idx": _row(sequence),
        "cu_seq_lens_q": boundaries,
        "cu_seq_lens_k": boundaries,
        "max_length_q": max(lengths),
        "max_length_k": max(lengths),
    }


def _row(values: NDArray[np.int64]) -> torch.Tensor:
    return torch.from_numpy(values).unsqueeze(0)


def first_position_of(model: PreTrainedModel) -> int:
    """Returns the position of a sequence's first token: RoBERTa and its kin reserve the first ones for padding."""
    for module in model.modules():
        padding = getattr(module, "padding_idx", None)
        if isinstance(padding, int) and isinstance(getattr(module, "position_embeddings", None), torch.nn.Embedding):
            return padding + 1
    return 0


def attend(
    module: torch.nn.Module,  # noqa: ARG001
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    **kwargs: Any,  # noqa: ANN401
) -> tuple[torch.Tensor, None]:
    """Computes the attention of a packed batch: tensors of shape (1, heads, tokens, size) to (1, tokens, heads, size).

    The queries may be of fewer tokens of each sequence than the keys (see first_tokens).

    Raises:
        ValueError: the batch is not packed, or needs another attention; such a model must not run packed.
    """
    queries, keys = kwargs.get("cu_seq_lens_q"), kwargs.get("cu_seq_lens_k")
    if queries is None or keys is None or attention_mask is not None or key.shape[1] != query.shape[1]:
        raise ValueError("this attention takes packed batches, without a mask and with a key for each head")
    if kwargs.get("sliding_window") is not None:  # nothing else shows it: texts within the window would be right
        raise ValueError("this attention has no window")
    if query.is_cuda:
        q, k, v = (each[0].transpose(0, 1) for each in (query, key, value))
        longest = kwargs["max_length_q"], kwargs["max_length_k"]
        attended = varlen_attn(q, k, v, queries, keys, *longest, scale=scaling)
        return cast("torch.Tensor", attended).unsqueeze(0), None
    return _by_length(query, key, value, list(zip(_lengths(queries), _lengths(keys), strict=True)), scaling), None


def _lengths(boundaries: torch.Tensor) -> list[int]:
    return [stop - start for start, stop in pairwise(boundaries.tolist())]


def _by_length(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, lengths: list[tuple[int, int]], scaling: float | None
) -> torch.Tensor:
    """Computes the attention of sequences that are sorted by length: all of one length at once.

    Args:
        query: shape (1, heads, tokens that ask, size).
        key: shape (1, heads, tokens, size).
        value: as `key`.
        lengths: of each sequence, the number of its tokens in `query` and in `key`.
        scaling: of the products of queries and keys.
    """
    out = torch.empty_like(query.transpose(1, 2), memory_format=torch.contiguous_format)
    heads, size = query.shape[1], query.shape[3]
    q_at = k_at = 0
    for (q_length, k_length), group in groupby(lengths):
        number = len(list(group))
        q_end, k_end = q_at + q_length * number, k_at + k_length * number
        q = _sequences(query[0, :, q_at:q_end], number)
        k, v = (_sequences(each[0, :, k_at:k_end], number) for each in (key, value))
        attended = scaled_dot_product_attention(q, k, v, scale=scaling)
        out[0, q_at:q_end].view(number, q_length, heads, size).copy_(attended.transpose(1, 2))
        q_at, k_at = q_end, k_end
    return out


def _sequences(tokens: torch.Tensor, number: int) -> torch.Tensor:
    """Takes tokens of sequences of one length apart: shape (heads, tokens, size) to (number, heads, length, size)."""
    return tokens.view(tokens.shape[0], number, -1, tokens.shape[2]).transpose(0, 1)


AttentionInterface.register(IMPLEMENTATION, attend)

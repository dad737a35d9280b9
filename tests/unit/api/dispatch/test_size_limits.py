"""The size limits of a request that depend on its workers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.dialects.request import InferenceRequest
from api.dispatch.size_limits import MAX_OUTPUT_TOKENS, check_input_sizes, check_output_size, input_limit
from api.dispatch.splitting import SPECIAL_TOKENS
from shared.codec import encode_binary, encode_ids
from shared.errors import InvalidRequestError, TooLargeError
from shared.messages import BYTES, DECODE, EMBED, EMBED_ALL, PREDICT, TOKENIZE, Heartbeat


def worker(dim: int, longest: int) -> Heartbeat:
    """Returns the heartbeat of a worker whose model has this dimension and maximum input length."""
    return Heartbeat("w", "h", 1, "cpu", "m", dim, "ready", 1.0, 0, 0, 0, max_input_tokens=longest)


@pytest.mark.parametrize(
    ("texts", "longest", "fits"),
    [(("x" * 8_190,), 8_192, True), (("x" * 8_190, ""), 8_192, False), (("x" * 9_000,) * 32, 256, True)],
)
def test_the_vectors_of_tokens_are_bounded(texts: tuple[str, ...], longest: int, fits: bool) -> None:
    """Each text counts up to the model's input length: one answer holds at most 8,192 times 1,024 float32."""
    request = InferenceRequest(texts, 1_000, op=EMBED_ALL)
    if fits:
        check_output_size(request, [worker(1_024, longest), worker(0, 0)])
    else:
        with pytest.raises(TooLargeError, match=r"may take 33 MiB .* over the limit of 32 MiB"):
            check_output_size(request, [worker(1_024, longest)])
    check_output_size(request, [])
    check_output_size(request._replace(op=EMBED), [worker(1_024, longest)])


@pytest.mark.parametrize("op", [TOKENIZE, DECODE])
def test_tokenizer_requests_are_bounded(op: str) -> None:
    """The bound is in tokens, and a text has at most one token per character."""
    text = "x" * (MAX_OUTPUT_TOKENS // 5 - SPECIAL_TOKENS)
    value = text if op == TOKENIZE else encode_ids([1] * len(text))
    check_output_size(InferenceRequest((value,) * 5, 1_000, op=op), [])
    with pytest.raises(TooLargeError, match="500000 tokens"):
        check_output_size(InferenceRequest((value,) * 6, 1_000, op=op), [])


def test_the_lowest_limit_that_workers_announce_bounds_an_input() -> None:
    """It refuses the request, or the input of a partial one; without a limit nothing is refused."""
    request = InferenceRequest(("1", encode_binary(BYTES, bytes(11)), '"é"'), 1_000, op=PREDICT)
    small, wide, without = (replace(worker(0, 0), max_input_bytes=size) for size in (10, 11, 0))
    assert check_input_sizes(request, [wide, without]) == request
    assert check_input_sizes(request, []) == request
    with pytest.raises(TooLargeError, match=r"Input 1 has 11 bytes, over the limit of 10: .*max_model_input_bytes"):
        check_input_sizes(request, [wide, small])
    partial = request._replace(partial=True, input_errors={0: InvalidRequestError("no")})
    assert list(check_input_sizes(partial, [small]).input_errors) == [0, 1]
    assert check_input_sizes(request._replace(op=EMBED, inputs=("x" * 99,)), [small]).input_errors == {}


def test_the_limit_names_the_setting_that_bounds() -> None:
    """The gateway's limit counts, unless a worker announces a lower one."""
    small, wide, without = (replace(worker(0, 0), max_input_bytes=size) for size in (10, 30, 0))
    assert input_limit(20, []) == input_limit(20, [wide, without]) == (20, "max_input_bytes of the gateway")
    assert input_limit(20, [wide, small]) == (10, "max_model_input_bytes of the workers")

"""Batches of few shapes: each batch fits into one, with little padding."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuworker.backends.buckets import MIN_TOKENS, round_up, shape_of, shapes

NUMBERS = st.integers(1, 10_000)


@given(NUMBERS)
def test_a_side_is_at_most_one_and_a_half_times_as_long(number: int) -> None:
    """It is never shorter."""
    assert number <= round_up(number) <= 1.5 * number


@given(NUMBERS, NUMBERS)
def test_sides_keep_their_order(one: int, other: int) -> None:
    """A larger number never gets a smaller side."""
    assert (round_up(one) <= round_up(other)) or one > other


@given(NUMBERS)
def test_sides_are_few(number: int) -> None:
    """Each is a power of two or one and a half times one; a side that is rounded up again does not change."""
    side = round_up(number)
    assert side.bit_count() <= 2
    assert round_up(side) == side
    assert len({round_up(each) for each in range(1, number + 1)}) <= 2 * number.bit_length() + 1


@given(
    st.integers(1, 64), st.integers(1, 512), st.integers(1, 64), st.integers(16, 4_096), st.sampled_from([8, 500, 512])
)
def test_each_batch_within_the_limits_has_one_of_the_shapes(
    texts: int, tokens: int, max_texts: int, max_tokens: int, longest: int
) -> None:
    """So the warm-up can run all shapes before the first request."""
    tokens = min(tokens, longest)
    texts = min(texts, max_texts, max(1, max_tokens // tokens))
    known = list(shapes(max_texts, max_tokens, longest))
    assert shape_of(texts, tokens, longest) in known
    assert all(side <= longest for _, side in known)
    assert len(set(known)) == len(known)


def test_short_texts_share_a_side() -> None:
    """Texts of up to MIN_TOKENS tokens are padded to the same length."""
    assert {shape_of(1, tokens, 512) for tokens in range(1, MIN_TOKENS + 1)} == {(1, MIN_TOKENS)}
    assert list(shapes(3, 64, 20)) == [(1, 16), (2, 16), (3, 16), (1, 20), (2, 20), (3, 20)]

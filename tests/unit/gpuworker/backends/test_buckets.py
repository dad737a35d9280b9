"""Few shapes: each batch fits in one, and is not padded to much more than it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuworker.backends.buckets import MIN_TOKENS, round_up, shape_of, shapes

NUMBERS = st.integers(1, 10_000)


@given(NUMBERS)
def test_a_side_is_at_most_half_as_long_again(number: int) -> None:
    """And never shorter."""
    assert number <= round_up(number) <= 1.5 * number


@given(NUMBERS, NUMBERS)
def test_sides_keep_their_order(one: int, other: int) -> None:
    """More never fits into less."""
    assert (round_up(one) <= round_up(other)) or one > other


@given(NUMBERS)
def test_sides_are_few(number: int) -> None:
    """A power of two, or half as much again as one; and each is its own."""
    side = round_up(number)
    assert side.bit_count() <= 2
    assert round_up(side) == side
    assert len({round_up(each) for each in range(1, number + 1)}) <= 2 * number.bit_length() + 1


@given(
    st.integers(1, 64), st.integers(1, 512), st.integers(1, 64), st.integers(16, 4_096), st.sampled_from([8, 500, 512])
)
def test_each_batch_within_bounds_has_one_of_the_shapes(
    texts: int, tokens: int, max_texts: int, max_tokens: int, longest: int
) -> None:
    """So all of them can be met before the first request."""
    tokens = min(tokens, longest)
    texts = min(texts, max_texts, max(1, max_tokens // tokens))
    known = list(shapes(max_texts, max_tokens, longest))
    assert shape_of(texts, tokens, longest) in known
    assert all(side <= longest for _, side in known)
    assert len(set(known)) == len(known)


def test_short_texts_share_a_side() -> None:
    """Below it, nothing would be won."""
    assert {shape_of(1, tokens, 512) for tokens in range(1, MIN_TOKENS + 1)} == {(1, MIN_TOKENS)}
    assert list(shapes(3, 64, 20)) == [(1, 16), (2, 16), (3, 16), (1, 20), (2, 20), (3, 20)]

"""The order of items in each round."""

from __future__ import annotations

from bench.rounds import Round


def test_each_round_starts_with_another_item() -> None:
    """With three rounds, the start moves on by a third, so that each item is early, late and in between."""
    assert ["".join(Round(number, 3).rotate("abcdef")) for number in range(3)] == ["abcdef", "cdefab", "efabcd"]
    assert [Round(number, 2).rotate("abc") for number in range(2)] == [list("abc"), list("bca")]
    assert Round(1, 2).rotate([]) == []

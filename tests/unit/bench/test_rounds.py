"""Who goes first."""

from __future__ import annotations

from bench.rounds import Round


def test_each_round_begins_with_another() -> None:
    """A third of the way on with three rounds, so that each is early, late and in between; and has all of them."""
    assert ["".join(Round(number, 3).rotate("abcdef")) for number in range(3)] == ["abcdef", "cdefab", "efabcd"]
    assert [Round(number, 2).rotate("abc") for number in range(2)] == [list("abc"), list("bca")]
    assert Round(1, 2).rotate([]) == []

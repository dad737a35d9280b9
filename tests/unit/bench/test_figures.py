"""Rounds are folded into medians and spreads."""

from __future__ import annotations

from bench.figures import Row, fold, rounded, tables


def test_rows_of_the_same_are_folded() -> None:
    """The median, the smallest and the largest of all rounds are kept, and each run in order."""
    rows = [Row("t", {"clients": clients}, {"x": x}) for x in (3.0, 1.0, 10.0) for clients in (1, 64)]
    folded = tables(fold(rows))
    expected = {"median": 3.0, "min": 1.0, "max": 10.0, "runs": [3.0, 1.0, 10.0]}
    assert folded == {"t": [{"of": {"clients": clients}, "figures": {"x": expected}} for clients in (1, 64)]}


def test_tables_and_rows_stay_apart_and_in_order() -> None:
    """What differs in table or in anything that it is of, is another row; the first round gives the order."""
    rows = [Row("b", {"n": 2}, {"x": 1.0}), Row("a", {"n": 2}, {"x": 2.0}), Row("b", {"n": 1}, {"x": 3.0})]
    folded = fold(rows + rows)
    assert [(each.table, each.of["n"], each.figures["x"].runs) for each in folded] == [
        ("b", 2, [1.0, 1.0]),
        ("a", 2, [2.0, 2.0]),
        ("b", 1, [3.0, 3.0]),
    ]


def test_a_figure_that_not_every_round_has_keeps_those_there_are() -> None:
    """The median is of those."""
    (folded,) = fold([Row("t", {}, {"x": 1.0}), Row("t", {}, {"x": 2.0, "y": 5.0})])
    assert folded.figures["x"].median == 1.5
    assert folded.figures["y"].median == 5.0


def test_numbers_keep_the_digits_that_say_something() -> None:
    """Five of them."""
    assert [rounded(value) for value in (1234.5678, 0.00123456789, 0.0)] == [1234.6, 0.0012346, 0.0]

"""Folding of rounds into medians and spreads."""

from __future__ import annotations

from bench.figures import Row, fold, rounded, tables


def test_rows_with_the_same_keys_are_folded() -> None:
    """A folded row has median, minimum and maximum of all rounds, and each run in order."""
    rows = [Row("t", {"clients": clients}, {"x": x}) for x in (3.0, 1.0, 10.0) for clients in (1, 64)]
    folded = tables(fold(rows))
    expected = {"median": 3.0, "min": 1.0, "max": 10.0, "runs": [3.0, 1.0, 10.0]}
    assert folded == {"t": [{"of": {"clients": clients}, "figures": {"x": expected}} for clients in (1, 64)]}


def test_tables_and_rows_stay_apart_and_in_order() -> None:
    """Rows that differ in the table or in a key are separate; the first round defines the order."""
    rows = [Row("b", {"n": 2}, {"x": 1.0}), Row("a", {"n": 2}, {"x": 2.0}), Row("b", {"n": 1}, {"x": 3.0})]
    folded = fold(rows + rows)
    assert [(each.table, each.of["n"], each.figures["x"].runs) for each in folded] == [
        ("b", 2, [1.0, 1.0]),
        ("a", 2, [2.0, 2.0]),
        ("b", 1, [3.0, 3.0]),
    ]


def test_a_figure_missing_in_a_round_keeps_the_others() -> None:
    """Its median is over the rounds that have it."""
    (folded,) = fold([Row("t", {}, {"x": 1.0}), Row("t", {}, {"x": 2.0, "y": 5.0})])
    assert folded.figures["x"].median == 1.5
    assert folded.figures["y"].median == 5.0


def test_numbers_keep_five_significant_digits() -> None:
    """Further digits are rounded."""
    assert [rounded(value) for value in (1234.5678, 0.00123456789, 0.0)] == [1234.6, 0.0012346, 0.0]

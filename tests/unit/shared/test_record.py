"""Records: named tuples in use, but not tuples."""

from __future__ import annotations

import pytest

from shared.record import Record


class Point(Record, frozen=True):
    """A record of two fields."""

    x: int
    y: int = 0


def test_a_copy_has_other_values_of_some_fields() -> None:
    """The first one stays as it is."""
    point = Point(1, y=2)
    assert (point._replace(x=3), point) == (Point(3, 2), Point(1, 2))


def test_a_field_cannot_be_set() -> None:
    """Several requests may share a record."""
    with pytest.raises(AttributeError):
        Point(1).x = 2  # type: ignore[misc]


def test_an_unknown_field_is_an_error() -> None:
    """Type checkers do not see it."""
    with pytest.raises(TypeError, match="z"):
        Point(1)._replace(z=1)


def test_equal_records_are_one_key() -> None:
    """Requests that share an entry are found by such a key."""
    assert {Point(1, 2): "a"}[Point(1, 2)] == "a"

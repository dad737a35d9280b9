"""The names that classes of users import."""

from __future__ import annotations

from gpuworker.functions import InputRefused, InputRefusedError


def test_the_old_name_of_the_error_stays() -> None:
    """A class that raises InputRefused is still answered with 400."""
    assert InputRefused is InputRefusedError

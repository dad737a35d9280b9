"""The measure of who used a device when: what it does not see, no test of leases would."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.usage_recorder import overlap_s, stretches


def note(folder: Path, process: str, *batches: tuple[float, float]) -> None:
    """Notes batches as a process would: from when to when, with a tick every 5 ms."""
    with (folder / f"{process}.ticks").open("w") as file:
        for began, ended in batches:
            file.write("\n")
            ticks = int((ended - began) / 0.005)
            file.writelines(f"{began + 0.005 * tick:.6f}\n" for tick in range(ticks))
            file.write(f"{ended:.6f}\n")


def test_two_that_compute_side_by_side_for_seconds_are_seen(tmp_path: Path) -> None:
    """Though none of their batches takes longer than 30 ms."""
    note(tmp_path, "a", *((10 + 0.04 * i, 10.03 + 0.04 * i) for i in range(100)))
    note(tmp_path, "b", *((12.01 + 0.04 * i, 12.04 + 0.04 * i) for i in range(100)))
    assert overlap_s(tmp_path, by_batch=False) == pytest.approx(14 - 12.02, abs=0.05)
    assert overlap_s(tmp_path, by_batch=True) > 0


def test_turns_do_not_overlap(tmp_path: Path) -> None:
    """One begins when the other has ended, or while it is stopped."""
    note(tmp_path, "a", (1.0, 1.03), (1.1, 1.13))
    note(tmp_path, "b", (1.04, 1.07), (1.14, 1.17))
    assert overlap_s(tmp_path, by_batch=True) == 0
    assert [each.process for each in stretches(tmp_path, by_batch=True)] == ["a", "b", "a", "b"]
    (tmp_path / "c.ticks").write_text("\n2.000\n2.005\n5.000\n5.005\n")
    note(tmp_path, "d", (3.0, 3.03))
    assert overlap_s(tmp_path, by_batch=True) == 0


def test_a_take_over_is_none(tmp_path: Path) -> None:
    """One has left before the other comes."""
    note(tmp_path, "a", *((1 + 0.04 * i, 1.03 + 0.04 * i) for i in range(20)))
    note(tmp_path, "b", *((3 + 0.04 * i, 3.03 + 0.04 * i) for i in range(20)))
    assert overlap_s(tmp_path, by_batch=False) == 0

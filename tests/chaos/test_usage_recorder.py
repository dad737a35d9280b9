"""The record of device usage: the tests of leases can detect only overlaps that it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.usage_recorder import overlap_s, usage_intervals


def write_batches(folder: Path, process: str, *batches: tuple[float, float]) -> None:
    """Writes batches like a process: from start to end (s), with a tick every 5 ms."""
    with (folder / f"{process}.ticks").open("w") as file:
        for began, ended in batches:
            file.write("\n")
            ticks = int((ended - began) / 0.005)
            file.writelines(f"{began + 0.005 * tick:.6f}\n" for tick in range(ticks))
            file.write(f"{ended:.6f}\n")


def test_processes_that_compute_at_once_for_seconds_overlap(tmp_path: Path) -> None:
    """Two processes overlap for 2 s although none of their batches takes longer than 30 ms."""
    write_batches(tmp_path, "a", *((10 + 0.04 * i, 10.03 + 0.04 * i) for i in range(100)))
    write_batches(tmp_path, "b", *((12.01 + 0.04 * i, 12.04 + 0.04 * i) for i in range(100)))
    assert overlap_s(tmp_path, by_batch=False) == pytest.approx(14 - 12.02, abs=0.05)
    assert overlap_s(tmp_path, by_batch=True) > 0


def test_turns_do_not_overlap(tmp_path: Path) -> None:
    """Batches that begin after the end, or during a stop, of another process do not overlap."""
    write_batches(tmp_path, "a", (1.0, 1.03), (1.1, 1.13))
    write_batches(tmp_path, "b", (1.04, 1.07), (1.14, 1.17))
    assert overlap_s(tmp_path, by_batch=True) == 0
    assert [each.process for each in usage_intervals(tmp_path, by_batch=True)] == ["a", "b", "a", "b"]
    (tmp_path / "c.ticks").write_text("\n2.000\n2.005\n5.000\n5.005\n")
    write_batches(tmp_path, "d", (3.0, 3.03))
    assert overlap_s(tmp_path, by_batch=True) == 0


def test_a_takeover_does_not_overlap(tmp_path: Path) -> None:
    """A process that starts after the other has ended does not overlap with it."""
    write_batches(tmp_path, "a", *((1 + 0.04 * i, 1.03 + 0.04 * i) for i in range(20)))
    write_batches(tmp_path, "b", *((3 + 0.04 * i, 3.03 + 0.04 * i) for i in range(20)))
    assert overlap_s(tmp_path, by_batch=False) == 0

"""When a worker without a GPU leaves its entries to other workers."""

from __future__ import annotations

from gpuworker.policy.standby import StandbyRule


def test_the_only_worker_keeps_its_entries() -> None:
    """No other worker could take them; later, one can."""
    rule = StandbyRule()
    assert not rule.should_stand_by(1)
    assert rule.should_stand_by(2)


def test_a_worker_stands_by_once_between_two_batches() -> None:
    """Otherwise entries could go back and forth between workers of which none has a GPU."""
    rule = StandbyRule()
    assert rule.should_stand_by(2)
    assert not rule.should_stand_by(2)
    rule.record_batch()
    assert rule.should_stand_by(2)

"""Inputs and limits for tests of the plan, and a planner on a simulated clock."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from gpuworker.policy.batching import SchedulerState, plan
from gpuworker.policy.composition import WaitingInput
from gpuworker.policy.costs import Costs
from gpuworker.policy.limits import Limits
from gpuworker.policy.suspects import SuspectTurns

TICK_S = 0.05
NOW = 20 * TICK_S
ATTEMPTS = st.sampled_from([0, 0, 0, 0, 1, 2])
COSTS = st.builds(Costs, st.sampled_from([0.0, 0.05, 0.3]), st.sampled_from([0.001, 0.02]))

limits_strategy = st.builds(
    lambda **given: Limits(**given),  # noqa: PLW0108 - for a named tuple, builds() would also fill fields with a default
    max_size=st.integers(1, 10),
    max_tokens=st.integers(1, 60),
    wait_s=st.sampled_from([0.0, 0.1, 0.5, 2.0]),
    age_bound_s=st.sampled_from([0.0, 0.2, 100.0]),
    reserve_s=st.sampled_from([0.0, 0.1]),
    overhead_tokens=st.sampled_from([0.0, 1.0, 32.0, 1e6]),
)


@st.composite
def waiting_inputs(draw: st.DrawFn) -> list[WaitingInput]:
    """Inputs that may wait at NOW, in the order of arrival; many are of one length, and some of one age."""
    since = sorted(draw(st.lists(st.integers(0, 20).map(lambda ticks: ticks * TICK_S), max_size=30)))
    return [
        WaitingInput(
            draw(st.integers(1, 12)),
            each,
            draw(st.sampled_from([0.5, NOW, 1.05, 1.2, 9.0])),
            draw(ATTEMPTS),
            draw(st.sampled_from("abcdefgh")),
        )
        for each in since
    ]


def live(waiting: Sequence[WaitingInput], now: float = NOW) -> list[int]:
    """Returns the indices of the inputs that may still run."""
    return [i for i, each in enumerate(waiting) if each.deadline > now]


def padded(waiting: Sequence[WaitingInput], batch: Sequence[int]) -> int:
    """Returns the cost of a batch, in tokens."""
    return max(waiting[i].tokens for i in batch) * len(batch)


def run_all(
    arrivals: Sequence[WaitingInput],
    limits: Limits,
    run_s: float,
    start: float = 0.0,
    suspect_s: float | None = None,
) -> tuple[list[tuple[int, ...]], list[int]]:
    """Plans on a simulated clock until no input waits; returns the batches and the expired, by place in `arrivals`.

    A suspect runs for `suspect_s`, by default as long as a batch of others.
    """
    now, left, turns = start, list(range(len(arrivals))), SuspectTurns()
    batches: list[tuple[int, ...]] = []
    expired: list[int] = []
    while left:
        there = [i for i in left if arrivals[i].since <= now]
        result = plan([arrivals[i] for i in there], limits, now, SchedulerState(suspects_had_turn=turns.is_over))
        gone = {there[i] for i in (*result.batch, *result.expired)}
        left = [i for i in left if i not in gone]
        expired += [there[i] for i in result.expired]
        if result.batch:
            batches.append(tuple(there[i] for i in result.batch))
            suspect = arrivals[batches[-1][0]].suspect
            if not suspect:
                turns.start_batch()
            took_s = suspect_s if suspect and suspect_s is not None else run_s
            turns.end_run(took_s, suspect=suspect)
            now += took_s
        elif left and not gone:
            coming = [arrivals[i].since for i in left if arrivals[i].since > now]
            now = min([*coming, *([] if result.wake_at is None else [result.wake_at])])
    return batches, expired

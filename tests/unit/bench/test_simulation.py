"""The simulated cluster, and the adaptive wait in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path as FilePath
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.simulation import results
from bench.simulation.cluster import Outcome, simulate
from bench.simulation.comparison import CLOSED, Effort, Result, Scene, Short, compare, mean, rival
from bench.simulation.figures import Figures, figures
from bench.simulation.reality import Compared, Formula
from bench.simulation.setup import DEVICES, Device, Path, Setup
from bench.simulation.traffic import LOADS, Traffic, at_once, closed_loop, diurnal, lengths, open_loop
from gpuworker.policy.costs import Costs

SLOW_START = DEVICES["gpu-large-base"]
WAITS_S = [0.0, 0.01, None]
PATH = Path(0.001, 0.002, 0.0, 0.0)

setups = st.builds(
    Setup,
    device=st.builds(
        Device,
        costs=st.sampled_from([Costs(0.002, 0.003), Costs(0.02, 0.0001)]),
        max_tokens=st.sampled_from([256, 1_024]),
        packed=st.booleans(),
        runners=st.integers(1, 3),
        ahead=st.booleans(),
        jitter=st.sampled_from([0.0, 0.1]),
        gap_s=st.sampled_from([0.0, 0.001]),
    ),
    wait_s=st.sampled_from(WAITS_S),
    workers=st.integers(1, 3),
    max_size=st.sampled_from([1, 8, 64]),
    window=st.sampled_from([1, 16, 256]),
    timeout_s=st.sampled_from([0.05, 10.0]),
)


ONE_BATCH = 2.0
"""A request is refused before its deadline by no more than what a batch takes, by an estimate that may be off."""


def traffic(kind: str, seed: int) -> Traffic:
    """Returns some 200 requests."""
    if kind == "closed":
        return closed_loop(8, 0.5, 0.1)
    return at_once(200) if kind == "at once" else open_loop(kind, 150.0, 200, seed)


kinds = st.sampled_from(["poisson", "bursty", "diurnal", "closed", "at once"])


@settings(max_examples=30, deadline=None)
@given(setups, kinds, st.integers(1, 5))
def test_each_request_is_answered_once(setup: Setup, kind: str, seed: int) -> None:
    """With a result by one batch, or in vain when it would come after its deadline; and never before it was sent."""
    outcome = simulate(setup, traffic(kind, seed), seed)
    longest_s = max((ran.ended_s - ran.began_s for ran in outcome.batches), default=0.0)
    assert sum(ran.size for ran in outcome.batches) == sum(request.ok for request in outcome.requests)
    for request in outcome.requests:
        assert request.answered_s is not None
        assert request.answered_s > request.sent_s
        assert request.ok or request.answered_s >= request.waiting.deadline - ONE_BATCH * longest_s


@settings(max_examples=15, deadline=None)
@given(setups, kinds, st.integers(1, 5))
def test_the_same_seed_gives_the_same_run(setup: Setup, kind: str, seed: int) -> None:
    """Every request and every batch, to the last digit."""
    assert simulate(setup, traffic(kind, seed), seed) == simulate(setup, traffic(kind, seed), seed)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(list(DEVICES)), kinds, st.integers(1, 5))
def test_without_a_wait_a_free_engine_runs_what_comes(device: str, kind: str, seed: int) -> None:
    """Each batch of a single runner begins when the one before ends, or when its oldest input comes."""
    setup = Setup(replace(DEVICES[device], runners=1))
    ended_s = 0.0
    for ran in simulate(setup, traffic(kind, seed), seed).batches:
        assert ran.began_s == max(ended_s, ran.shelved_s)
        ended_s = ran.ended_s


@settings(max_examples=30, deadline=None)
@given(setups, kinds)
def test_a_batch_keeps_its_limits(setup: Setup, kind: str) -> None:
    """In number, and, unless it is one input, in tokens with what padding there is."""
    for ran in simulate(setup, traffic(kind, 1)).batches:
        assert ran.size <= setup.max_size
        assert ran.size == 1 or ran.padded <= setup.device.max_tokens


def latencies_ms(outcome: Outcome) -> list[float]:
    """Returns how long each request took."""
    return [(each.answered_s - each.sent_s) * 1000 for each in outcome.requests if each.answered_s is not None]


def test_one_request_takes_its_way_its_wait_and_its_batch() -> None:
    """1 ms there, 2 ms back, 5 ms for a batch of one; and 10 ms of waiting where that is set."""
    alone = Setup(DEVICES["simulated"], PATH)
    assert latencies_ms(simulate(alone, at_once(1))) == pytest.approx([8.0])
    assert latencies_ms(simulate(replace(alone, wait_s=0.01), at_once(1))) == pytest.approx([18.0])


def test_many_at_once_stand_in_line() -> None:
    """The server on the path takes them one by one: the first has a batch to itself, and the others the next."""
    setup = Setup(DEVICES["simulated"], Path(0.0, 0.0, 0.001, 0.0))
    outcome = simulate(setup, at_once(5))
    assert [ran.size for ran in outcome.batches] == [1, 4]
    assert latencies_ms(outcome) == pytest.approx([6.0] + [6.0 + 14.0] * 4)


def test_several_workers_share_the_lane() -> None:
    """Two workers answer 200 requests at once in half the time of one."""
    one, two = (
        max(latencies_ms(simulate(Setup(DEVICES["simulated"], workers=workers), at_once(200)))) for workers in (1, 2)
    )
    assert two == pytest.approx(one / 2, rel=0.1)


def test_clients_ask_again_when_they_are_answered() -> None:
    """Of one client, each request is sent when the last was answered, until the end."""
    outcome = simulate(Setup(DEVICES["simulated"], PATH), closed_loop(1, 1.0, 0.0))
    assert len(outcome.requests) == 125
    for before, after in zip(outcome.requests, outcome.requests[1:], strict=False):
        assert after.sent_s == before.answered_s


def test_figures_count_what_was_answered_in_the_window_and_time_what_was_sent_in_it() -> None:
    """One client, 8 ms for each: 125 a second, in batches of one, from whenever it is looked at."""
    found = figures(simulate(Setup(DEVICES["simulated"], PATH), closed_loop(1, 2.0, 1.0)), 1.0, 2.0)
    assert found.per_s == pytest.approx(125, abs=1)
    assert (found.p50_ms, found.p99_ms, found.batch) == pytest.approx((8.0, 8.0, 1.0))
    assert (found.failed, found.padding) == (0, 0)


def test_a_day_has_its_high_and_its_low() -> None:
    """The first half has about twice as many arrivals as the second, and both together as many as on average."""
    arrivals = [at_s for at_s, _ in zip(diurnal(1_000.0, Random(1), 10.0), range(10_000), strict=False) if at_s < 10]
    first = sum(at_s < 5 for at_s in arrivals)
    assert len(arrivals) == pytest.approx(10_000, rel=0.03)
    assert first / (len(arrivals) - first) == pytest.approx((0.5 + 0.5 / 3.14) / (0.5 - 0.5 / 3.14), rel=0.1)


def test_mixed_lengths_are_those_of_the_mixed_texts() -> None:
    """39 tokens on average, none over 256."""
    drawn = [tokens for tokens, _ in zip(lengths("mixed", 1), range(20_000), strict=False)]
    assert sum(drawn) / len(drawn) == pytest.approx(39, rel=0.03)
    assert max(drawn) == 256


# -- the adaptive wait -------------------------------------------------------------------------------------------------

FRONTIER = [
    *(
        Scene(device, load, level)
        for device in ("simulated", "minilm-cpu")
        for load, level in (("poisson", 0.3), ("poisson", 0.6), ("bursty", 0.6), ("diurnal", 0.6), (CLOSED, 64))
    ),
    *(Scene(device, CLOSED, 8) for device in DEVICES),
]


@pytest.mark.parametrize("scene", FRONTIER, ids=lambda scene: f"{scene.device}, {results.name(scene)}")
def test_no_fixed_wait_is_clearly_better(scene: Scene) -> None:
    """In throughput or p95 by over 2 %, more than chance would have it, and as good in the other, in other runs."""
    assert not compare(scene, Effort(requests=600, seeds=2, judges=4, least_s=2.0)).short.clear


HALF = {"simulated": 150.0, "minilm-cpu": 150.0, "gpu": 2_000.0, "large-base": 80.0, "gpu-large-base": 800.0}
"""Requests a second, about half of what each device can do."""


def half_load(device: str, load: str, wait_s: float | None) -> Figures:
    """Returns the means of three runs. Without padding, no small difference leads to another choice of inputs."""
    runs, packed = [], replace(DEVICES[device], packed=True)
    for seed in (1, 2, 3):
        sent = open_loop(load, HALF[device], 1_000, seed)
        runs.append(figures(simulate(Setup(packed, wait_s=wait_s), sent, seed), 0.0, sent.until_s))
    return mean(runs)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("load", LOADS)
def test_where_nobody_asks_again_it_is_as_good_as_no_wait(device: str, load: str) -> None:
    """At half of what the device can do, throughput, median and p95 are at most 2 % worse than without a wait."""
    adaptive, none = (half_load(device, load, wait_s) for wait_s in (None, 0.0))
    assert adaptive.per_s >= 0.98 * none.per_s
    assert adaptive.p50_ms <= 1.02 * none.p50_ms
    assert adaptive.p95_ms <= 1.02 * none.p95_ms


def test_clients_that_take_turns_are_joined() -> None:
    """Eight clients on a device whose batches take 20 ms at least: 1.5 times as much as without, at a lower p95."""
    adaptive, none = (
        figures(simulate(Setup(SLOW_START, wait_s=wait_s), closed_loop(8, 5.0, 1.0)), 1.0, 5.0) for wait_s in (None, 0)
    )
    assert adaptive.per_s > 1.5 * none.per_s
    assert adaptive.p95_ms < none.p95_ms


def test_clients_that_think_as_long_as_a_batch_takes_are_not_waited_for() -> None:
    """They come at any time: throughput and p95 stay within 3 % of what they are without a wait."""
    adaptive, none = (
        figures(simulate(Setup(SLOW_START, wait_s=wait_s), closed_loop(32, 8.0, 1.0, 0.03)), 1.0, 8.0)
        for wait_s in (None, 0)
    )
    assert adaptive.per_s == pytest.approx(none.per_s, rel=0.03)
    assert adaptive.p95_ms == pytest.approx(none.p95_ms, rel=0.03)


# -- what is made of it ------------------------------------------------------------------------------------------------

FIGURES = Figures(100, 0, 100.0, 10.0, 10.0, 20.0, 30.0, 4.0, 0.0)


def result(load: str, level: float, *runs: tuple[float, float]) -> Result:
    """Returns a result whose fixed wait of 5 ms gave these throughputs and p95, and all else 100/s and 20 ms."""
    other = [replace(FIGURES, per_s=per_s, p95_ms=p95_ms) for per_s, p95_ms in runs]
    same = [FIGURES] * len(runs)
    return Result(Scene("gpu", load, level), same, {0.0: same, 5.0: other}, 5.0, (same, other), 1.0, 1, 1.0)


@pytest.mark.parametrize(
    ("level", "runs", "share"),
    [
        (0.6, [(100.0, 16.0)], 0.25),
        (0.6, [(110.0, 20.0)], 0.10),
        (0.6, [(95.0, 16.0)], 0.0),
        (0.6, [(110.0, 25.0)], 0.0),
        (1.1, [(100.0, 16.0)], 0.0),
        (1.1, [(110.0, 25.0)], 0.10),
    ],
)
def test_short_is_what_another_gives_without_taking(
    level: float, runs: list[tuple[float, float]], share: float
) -> None:
    """A better p95 counts at the same throughput, and throughput at the same p95; in overload throughput alone."""
    assert result("poisson", level, *runs).short.share == pytest.approx(share)


def test_the_rival_is_who_is_furthest_ahead() -> None:
    """A fixed wait that is better in one figure and as good in the other; else the best of them."""
    scene, mine = Scene("gpu", "poisson", 0.6), [FIGURES]
    sooner, soonest, slower = (
        [replace(FIGURES, per_s=per_s, p95_ms=p95_ms)] for per_s, p95_ms in ((100.0, 18.0), (100.0, 15.0), (90.0, 10.0))
    )
    assert rival(scene, mine, {0.0: mine, 1.0: sooner, 2.0: soonest, 5.0: slower}) == 2.0
    assert rival(scene, mine, {0.0: mine, 5.0: slower}) == 0.0


def test_chance_is_no_shortfall() -> None:
    """What one run gives and another takes is not clear; what all give is."""
    assert not result("poisson", 0.6, (100.0, 16.0), (100.0, 24.0), (100.0, 18.0)).short.clear
    assert result("poisson", 0.6, (100.0, 16.0), (100.0, 16.5), (100.0, 15.5)).short.clear
    assert not Short(0.02, 0.0).clear


def test_the_best_fixed_wait_has_the_best_p95_of_those_with_the_best_throughput() -> None:
    """A faster one first, then the sooner one."""
    assert result("poisson", 0.6, (100.0, 16.0)).best_ms == 5.0
    assert result("poisson", 0.6, (99.0, 16.0)).best_ms == 0.0
    assert mean(result("poisson", 0.6, (90.0, 16.0), (110.0, 18.0)).fixed[5.0]).p95_ms == 17.0


def test_a_scene_that_is_simulated_again_takes_its_own_place(tmp_path: FilePath) -> None:
    """The file holds each scene once, the latest, and the same results make the same file."""
    old, new = result("poisson", 0.6, (100.0, 16.0)), result("poisson", 0.6, (100.0, 20.0))
    path = tmp_path / "results" / "simulation.json"
    assert results.read(path) == []
    results.write(results.merged([], [old, result(CLOSED, 8, (1.0, 1.0))], Effort(seeds=4)), path)
    results.write(results.merged(results.read(path), [new], Effort(seeds=1)), path)
    found = results.read(path)
    assert [(each["load"], each["fixed"]["5"]["p95_ms"]) for each in found] == [("poisson", 20.0), (CLOSED, 1.0)]
    assert [each["effort"]["seeds"] for each in found] == [1, 4]


def test_the_error_of_a_prediction_is_relative_to_what_was_measured() -> None:
    """90 for 100 is 10 % too low."""
    assert Compared("64 clients", "requests/s", 100.0, 90.0).error == pytest.approx(-0.1)


def test_a_formula_is_a_model_of_which_the_most_is_known() -> None:
    """64 inputs in 5 + 63 × 3 ms."""
    formula = Formula(5, 3)
    assert formula.model == "simulated:base_ms=5,item_ms=3"
    assert formula.capacity == pytest.approx(64 / 0.194)

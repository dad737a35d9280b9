"""When the circuit of a failing model opens, and how it closes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuworker.policy.circuit import MAX_BACKOFF_S, MIN_FAILURES, Circuit, CircuitOptions, CircuitState

OPTIONS = CircuitOptions(open_after_s=10.0, backoff_s=5.0)
CLOSED, OPEN, HALF_OPEN = CircuitState


def opened(at: float = 10.0) -> Circuit:
    """Returns a circuit that opens at this time, with failures in the ten seconds before."""
    circuit = Circuit(OPTIONS)
    for second in range(11):
        circuit.record_batch(0, "OSError", at - 10.0 + second)
    assert circuit.state(at) is OPEN
    return circuit


def test_it_opens_when_every_batch_failed_for_long_enough() -> None:
    """And says why, and for how long."""
    circuit = Circuit(OPTIONS)
    assert not any(circuit.record_batch(0, "OSError", second) for second in range(10))
    assert circuit.state(9.9) is CLOSED
    assert circuit.record_batch(0, "ValueError", 10.0)
    assert (circuit.state(10.0), circuit.reason, circuit.open_s(12.0)) == (OPEN, "ValueError", 3.0)


def test_a_batch_with_an_output_starts_the_time_again() -> None:
    """The model works: its failures are those of inputs."""
    circuit = Circuit(OPTIONS)
    for second in range(100):
        assert not circuit.record_batch(0, "OSError", second)
        if second % 9 == 0:
            circuit.record_batch(1, "OSError", second)
    assert circuit.state(100.0) is CLOSED


def test_rare_failures_do_not_open_it() -> None:
    """A quiet worker whose one client sends a bad input now and then has no broken model."""
    circuit = Circuit(OPTIONS)
    assert not any(circuit.record_batch(0, "OSError", 11.0 * n) for n in range(100))
    few = Circuit(OPTIONS)
    assert not any(few.record_batch(0, "OSError", 9.0 * n) for n in range(MIN_FAILURES - 1))


def test_batches_that_fail_after_a_long_time_out_open_it() -> None:
    """The run of a batch is no pause between failures."""
    circuit = Circuit(OPTIONS)
    assert any(circuit.record_batch(0, "TimeoutError", 30.0 * n, run_s=29.0) for n in range(100))


def test_batches_without_outputs_and_exceptions_say_nothing() -> None:
    """Such as those whose inputs were refused, or were too late."""
    circuit = Circuit(OPTIONS)
    assert not any(circuit.record_batch(0, "", second) for second in range(100))


def test_an_attempt_that_succeeds_closes_it() -> None:
    """After the backoff the circuit is half open: the next batch decides."""
    circuit = opened()
    assert circuit.state(14.9) is OPEN
    assert circuit.state(15.0) is HALF_OPEN
    assert not circuit.record_batch(1, "", 15.1)
    assert (circuit.state(15.1), circuit.reason) == (CLOSED, "")
    assert not circuit.record_batch(0, "OSError", 15.2), "it counts from the beginning again"


def test_an_attempt_that_fails_opens_it_for_twice_as_long() -> None:
    """Up to a bound; a success sets the backoff back."""
    circuit, now, backoffs = opened(), 10.0, []
    for _ in range(6):
        backoffs.append(circuit.open_s(now))
        now += backoffs[-1]
        assert circuit.record_batch(0, "OSError", now)
    assert backoffs == [5.0, 10.0, 20.0, 40.0, MAX_BACKOFF_S, MAX_BACKOFF_S]
    circuit.reset()
    assert circuit.state(now) is CLOSED


def test_batches_that_end_while_it_is_open_do_not_extend_it() -> None:
    """They ran when it opened; one with an output closes it."""
    circuit = opened()
    assert not circuit.record_batch(0, "OSError", 12.0)
    assert circuit.open_s(12.0) == 3.0
    circuit.record_batch(1, "", 12.5)
    assert circuit.state(12.5) is CLOSED


def test_it_can_be_switched_off() -> None:
    """By a time of 0."""
    circuit = Circuit(CircuitOptions(0.0, 5.0))
    assert not any(circuit.record_batch(0, "OSError", second) for second in range(1_000))


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0.0, 30.0)), max_size=80))
def test_it_opens_only_after_failures_alone(batches: list[tuple[int, float]]) -> None:
    """Whenever it opens from closed, there were MIN_FAILURES failures and no output in the last ten seconds."""
    circuit, now, history = Circuit(OPTIONS), 0.0, list[tuple[float, int]]()
    for kind, pause in batches:
        now += pause
        was_closed = circuit.state(now) is CLOSED
        history.append((now, kind))
        did_open = circuit.record_batch(int(kind == 2), "E" if kind == 1 else "", now)
        if kind == 2:
            assert circuit.state(now) is CLOSED
        if did_open and was_closed:
            recent = [each for at, each in history if at >= now - OPTIONS.open_after_s]
            last_output = max((i for i, (_, each) in enumerate(history) if each == 2), default=-1)
            assert 2 not in recent
            assert [each for _, each in history[last_output + 1 :]].count(1) >= MIN_FAILURES
        assert 0.0 <= circuit.open_s(now) <= MAX_BACKOFF_S


def test_a_half_open_circuit_allows_one_entry_if_nothing_is_held() -> None:
    """An open one allows none, and a closed one sets no limit."""
    circuit = opened()
    assert [circuit.max_entries(at, held) for at, held in ((14.9, 0), (15.0, 0), (15.0, 1))] == [0, 1, 0]
    circuit.record_batch(1, "", 15.0)
    assert circuit.max_entries(15.0, 3) is None

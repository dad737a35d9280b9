"""The inputs that wait for a batch, and which of them a plan sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from gpuworker.engine.waiting_inputs import WaitingInputs
from gpuworker.engine.work import Batch, EntryTask, InputItem
from gpuworker.policy.composition import WaitingInput
from gpuworker.policy.costs import Costs
from gpuworker.policy.limits import Limits

LIMITS = Limits(4, 1_000, packed=True, costs=Costs(0.01, 0.001))
LONG_LIMITS = LIMITS._replace(min_long_tokens=50)
NOW, LATER = 100.0, 1_000.0


class Encoded(NamedTuple):
    """A text of this number of tokens."""

    tokens: int
    truncated: bool = False


def item(text: str, *, tokens: int = 10, bulk: bool = False, attempts: int = 0, since: float = NOW) -> InputItem:
    """Returns the only input of an entry."""
    task = EntryTask(f"{text} {bulk} {attempts}", (text,), since, LATER, attempts, bulk)
    return InputItem(task, 0, Encoded(tokens), WaitingInput(tokens, since, LATER, attempts, task.key, bulk), since)


def planned(waiting: WaitingInputs, now: float = NOW, limits: Limits = LIMITS) -> list[str]:
    """Takes the next batch of the waiting inputs, as one that begins; returns its texts."""
    rows, _ = waiting.take(waiting.plan(limits, now, busy=False, suspects_had_turn=False), now)
    waiting.record_start(rows, now)
    return [str(row.items[0].task.inputs[0]) for row in rows]


def waiting_inputs(items: Sequence[InputItem]) -> WaitingInputs:
    """Returns waiting inputs with these items."""
    waiting = WaitingInputs(LIMITS, 1)
    waiting.add(items)
    return waiting


def test_bulk_goes_in_the_order_of_arrival_however_much_there_is() -> None:
    """A plan sees as many inputs as fit into a batch, and all inputs are taken in the end."""
    waiting = waiting_inputs([item(f"{i}", bulk=True, since=NOW + i) for i in range(1_000)])
    assert waiting.tokens == 10_000
    assert [text for _ in range(250) for text in planned(waiting)] == [f"{i}" for i in range(1_000)]
    assert (waiting.tokens, bool(waiting)) == (0, False)


def test_interactive_inputs_are_seen_behind_any_amount_of_bulk() -> None:
    """Suspects are visible, too, and do not delay bulk."""
    suspects = [item(f"suspect {i}", bulk=True, attempts=1) for i in range(50)]
    bulk = [item(f"{i}", bulk=True) for i in range(100)]
    waiting = waiting_inputs([*suspects, *bulk, item("interactive")])
    assert planned(waiting) == ["interactive", "0", "1", "2"]
    while not planned(waiting)[0].startswith("suspect"):
        pass
    assert waiting.tokens == 49 * 10


def test_a_plan_sees_two_batches_of_a_lane_however_many_inputs_wait() -> None:
    """Its time does not depend on their number. Inputs whose deadline has passed are found when a plan sees them."""
    waiting, found = waiting_inputs([item(f"{i}", since=NOW + i) for i in range(20)]), []
    while waiting:
        _, late = waiting.take(waiting.plan(LIMITS, LATER, busy=False, suspects_had_turn=False), LATER)
        found.append(len(late))
        for each in late:
            each.task.closed = True
        waiting.remove_closed()
    assert found == [8, 8, 4]


def test_a_short_input_is_seen_behind_any_number_of_long_ones() -> None:
    """It goes first."""
    waiting = WaitingInputs(LONG_LIMITS, 1)
    waiting.add([*(item(f"long {i}", tokens=60) for i in range(100)), item("short")])
    assert planned(waiting, limits=LONG_LIMITS) == ["short"]


@pytest.mark.parametrize(("is_closed", "order"), [(False, ["3", "0", "1", "2"]), (True, ["0", "1", "2", "3"])])
def test_a_row_goes_with_the_short_inputs_while_a_short_entry_waits_for_it(is_closed: bool, order: list[str]) -> None:
    """A text of a long entry that a short entry has too. When that one has ended, the text is again one of the long."""
    waiting = WaitingInputs(LONG_LIMITS, 1)
    long = [item(f"{i}") for i in range(4)]
    waiting.add([each._replace(waiting=each.waiting._replace(entry_inputs=4, entry_tokens=60)) for each in long])
    short = item("3")
    waiting.add([short])
    short.task.closed = is_closed
    waiting.remove_closed()
    assert planned(waiting, limits=LONG_LIMITS._replace(costs=None)) == order


def test_a_row_with_bulk_and_interactive_inputs_is_interactive_while_these_wait() -> None:
    """After they have ended the row is bulk again, behind the other bulk, and is owed its turn like it."""
    shared, same = item("same", bulk=True), item("same")
    waiting = waiting_inputs([item("a", bulk=True), shared, same])
    assert waiting.tokens == 20
    same.task.closed = True
    waiting.remove_closed()
    waiting.add([item("interactive")])
    assert planned(waiting) == ["interactive", "a", "same"]
    assert not waiting


def test_a_batch_that_is_put_back_goes_before_later_inputs() -> None:
    """The interactive input that it would have delayed goes first; inputs of closed entries are left out."""
    ready = [item(f"{i}", bulk=True) for i in range(3)]
    waiting = waiting_inputs(ready)
    rows, _ = waiting.take(waiting.plan(LIMITS, NOW, busy=True, suspects_had_turn=False), NOW)
    waiting.hold_ready(Batch(rows, None), NOW, bulk_first=False, passes_over=False)
    waiting.add([item("later", bulk=True, since=NOW + 1), item("interactive", since=NOW + 1)])
    ready[1].task.closed = True
    assert waiting.take_ready(LIMITS, NOW + 1) is None
    assert waiting.tokens == 40
    assert planned(waiting) == ["interactive", "0", "2", "later"]


def test_a_batch_with_bulk_would_be_outranked_if_interactive_inputs_come_before_it_begins() -> None:
    """It would not if the last batch had no bulk, or if no interactive inputs are expected."""
    waiting = waiting_inputs([item("single")])
    planned(waiting)
    assert not waiting.would_be_outranked(NOW)
    for i in range(300):
        now = NOW + i * 0.01
        waiting.add([item(f"interactive {i}", since=now), item(f"{i}", bulk=True, since=now)])
        planned(waiting, now)
    assert waiting.would_be_outranked(now)
    assert not waiting.would_be_outranked(now + 60)


def hold_ready(waiting: WaitingInputs, now: float) -> None:
    """Makes the next batch ready while another one runs."""
    rows, _ = waiting.take(waiting.plan(LONG_LIMITS, now, busy=True, suspects_had_turn=False), now)
    waiting.hold_ready(Batch(rows, None), now, bulk_first=False, passes_over=waiting.passes_over)


@pytest.fixture
def long_ready() -> WaitingInputs:
    """Inputs of which four long ones, which wait since NOW, are a ready batch."""
    waiting = WaitingInputs(LONG_LIMITS, 1)
    waiting.add([item(f"{i}", tokens=60) for i in range(4)])
    hold_ready(waiting, NOW)
    return waiting


def test_a_ready_batch_of_long_inputs_lets_short_ones_go_first_within_the_age_bound(long_ready: WaitingInputs) -> None:
    """It stays ready for each batch of short ones; after the bound only for one more."""
    within, after = NOW + LIMITS.age_bound_s / 2, NOW + LIMITS.age_bound_s
    for now in (within, within):
        long_ready.add([item("short")])
        assert long_ready.take_ready(LONG_LIMITS, now) is None
        assert planned(long_ready, now) == ["short"]
    long_ready.add([item("later")])
    ready = long_ready.take_ready(LONG_LIMITS, after)
    assert ready is not None
    assert len(ready.rows) == 4
    assert long_ready.take_ready(LONG_LIMITS, after) is None
    assert planned(long_ready, after) == ["later"]


def test_a_ready_batch_of_long_inputs_goes_if_the_short_ones_wait_for_more(long_ready: WaitingInputs) -> None:
    """Short inputs that wait for a fuller batch do not keep the device idle."""
    long_ready.add([item("short")])
    assert long_ready.take_ready(LONG_LIMITS, NOW) is None
    assert long_ready.let_ready_go()
    assert long_ready.take_ready(LONG_LIMITS, NOW) is not None
    assert not long_ready.let_ready_go()


def test_long_inputs_and_short_ones_take_turns_past_the_age_bound() -> None:
    """If a batch of long ones is made ready while one of short ones runs, exactly that one goes next."""
    waiting, now, order = WaitingInputs(LONG_LIMITS, 1), NOW + 1.0, []
    waiting.add([item(f"long {i}", tokens=60) for i in range(40)])
    for number in range(8):
        waiting.add([item(f"short {number}", since=now)])
        if (ready := waiting.take_ready(LONG_LIMITS, now)) is None:
            rows, _ = waiting.take(waiting.plan(LONG_LIMITS, now, busy=False, suspects_had_turn=False), now)
        else:
            rows = ready.rows
        waiting.record_start(rows, now)
        order.append("long" if rows[0].encoded.tokens == 60 else "short")
        if order[-1] == "short" and waiting.ready is None:
            hold_ready(waiting, now)
        now += 0.02
    assert order == ["short", "long"] * 4

"""What waits for a batch, and what of it a plan can see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpuworker.policy.batching import Limits, Waiting
from gpuworker.policy.costs import Costs
from gpuworker.engine.waiting import Shelf
from gpuworker.engine.work import Batch, Item, Work

LIMITS = Limits(4, 1_000, packed=True, costs=Costs(0.01, 0.001))
NOW, LATER = 100.0, 1_000.0


class Encoded(NamedTuple):
    """A text of so many tokens."""

    tokens: int


def item(text: str, *, tokens: int = 10, bulk: bool = False, attempts: int = 0, since: float = NOW) -> Item:
    """Returns the only input of an entry."""
    work = Work(f"{text} {bulk} {attempts}", (text,), since, LATER, attempts, bulk)
    return Item(work, 0, Encoded(tokens), Waiting(tokens, since, LATER, attempts, work.key, bulk), since)


def planned(shelf: Shelf, now: float = NOW) -> list[str]:
    """Takes the next batch off the shelf; returns its texts."""
    rows, _ = shelf.take(shelf.plan(LIMITS, now, busy=False, suspect_ran=False), now)
    shelf.begins(rows, now)
    return [str(row.items[0].work.inputs[0]) for row in rows]


def shelf_of(items: Sequence[Item]) -> Shelf:
    """Returns a shelf with these."""
    shelf = Shelf(LIMITS, 1)
    shelf.add(items)
    return shelf


def test_bulk_goes_in_the_order_of_arrival_however_much_there_is() -> None:
    """A plan sees as much as a batch takes, and all of it goes in the end."""
    shelf = shelf_of([item(f"{i}", bulk=True, since=NOW + i) for i in range(1_000)])
    assert shelf.tokens == 10_000
    assert [text for _ in range(250) for text in planned(shelf)] == [f"{i}" for i in range(1_000)]
    assert (shelf.tokens, bool(shelf)) == (0, False)


def test_interactive_inputs_are_seen_behind_any_amount_of_bulk() -> None:
    """And so are suspects, who do not stand in the way of bulk either."""
    suspects = [item(f"suspect {i}", bulk=True, attempts=1) for i in range(50)]
    bulk = [item(f"{i}", bulk=True) for i in range(100)]
    shelf = shelf_of([*suspects, *bulk, item("interactive")])
    assert planned(shelf) == ["interactive", "0", "1", "2"]
    while not planned(shelf)[0].startswith("suspect"):
        pass
    assert shelf.tokens == 49 * 10


def test_what_bulk_and_interactive_inputs_share_is_interactive_as_long_as_these_wait() -> None:
    """When they have gone it is bulk again, in its place behind others, and owed its turn like these."""
    shared, same = item("same", bulk=True), item("same")
    shelf = shelf_of([item("a", bulk=True), shared, same])
    assert shelf.tokens == 20
    same.work.over = True
    shelf.sweep()
    shelf.add([item("interactive")])
    assert planned(shelf) == ["interactive", "a", "same"]
    assert not shelf


def test_a_batch_that_is_put_back_goes_before_what_came_since() -> None:
    """But behind the interactive input that it would have held up; what has ended meanwhile is left out."""
    ready = [item(f"{i}", bulk=True) for i in range(3)]
    shelf = shelf_of(ready)
    rows, _ = shelf.take(shelf.plan(LIMITS, NOW, busy=True, suspect_ran=False), NOW)
    shelf.hold(Batch(rows, None), NOW, bulk_led=False)
    shelf.add([item("later", bulk=True, since=NOW + 1), item("interactive", since=NOW + 1)])
    ready[1].work.over = True
    assert shelf.take_ready() is None
    assert shelf.tokens == 40
    assert planned(shelf) == ["interactive", "0", "2", "later"]


def test_a_batch_with_bulk_is_not_made_ready_where_interactive_inputs_come_before_it_begins() -> None:
    """It would be put back; without bulk in the last, or without others to come, it is worth it."""
    shelf = shelf_of([item("alone")])
    planned(shelf)
    assert not shelf.is_unsettled(NOW)
    for i in range(300):
        now = NOW + i * 0.01
        shelf.add([item(f"interactive {i}", since=now), item(f"{i}", bulk=True, since=now)])
        planned(shelf, now)
    assert shelf.is_unsettled(now)
    assert not shelf.is_unsettled(now + 60)

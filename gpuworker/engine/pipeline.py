"""Tokenize, plan, run, hand back: each overlaps the next, so the device never waits for text.

Two threads work on one shelf of waiting inputs. The *feeder* tokenizes what came in, and when a full batch can be made
while another runs, it collates that one and holds it ready. The *runner* takes the ready batch, or plans one from
what waits, and runs it. A batch that is not full is only planned when the device is free for it: until then it grows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuworker.backends.base import Backend
from gpuworker.batching import Limits, Plan, Waiting, plan
from gpuworker.engine.work import Batch, Failed, Item, Ran, Work

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FEED_TEXTS = 256
"""Most texts tokenized in one call, so that the first of many need not wait for the last."""

RESERVE_WEIGHT = 0.2
LATE = "The deadline passed while the request waited: allow more time, or send less at once."


class Pipeline:
    """Runs the inputs of entries in batches.

    Args:
        backend: the loaded model.
        limits: bounds of a batch.
        begun: told which entries' first input begins to run, before it does.
        ran: told what each batch gave.
    """

    def __init__(
        self, backend: Backend, limits: Limits, begun: Callable[[list[str]], None], ran: Callable[[Ran], None]
    ) -> None:
        self._backend = backend
        self._limits = limits
        self._begun = begun
        self._ran = ran
        self._changed = threading.Condition()
        self._inbox: list[Work] = []
        self._shelf: list[Item] = []
        self._works: dict[str, Work] = {}
        self._ready: Batch | None = None
        self._running = False
        self._last_end: float | None = None

    def start(self) -> None:
        """Starts both threads, as daemons: the process ends without asking them."""
        for target in (self._feed, self._run):
            threading.Thread(target=target, name=target.__name__.strip("_"), daemon=True).start()

    def add(self, works: Iterable[Work]) -> None:
        """Takes in entries."""
        with self._changed:
            for work in works:
                self._works[work.key] = work
                self._inbox.append(work)
            self._changed.notify_all()

    def drop(self, keys: Iterable[str]) -> None:
        """Forgets entries that nobody waits for any more; an input that runs, runs to its end."""
        with self._changed:
            for key in keys:
                if key in self._works:
                    self._close(self._works[key])
            self._sweep()

    def drain(self) -> list[str]:
        """Gives up what has not begun and returns its keys; what has begun is finished."""
        with self._changed:
            unbegun = [work for work in self._works.values() if work.began is None]
            for work in unbegun:
                self._close(work)
            self._sweep()
            return [work.key for work in unbegun]

    # -- the feeder ---------------------------------------------------------------------------------------------------

    def _feed(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._inbox or self._may_prepare())
                works = self._take_inbox()
                prepared, expired = ((), []) if works else self._plan_ahead()
            if works:
                self._tokenize(works)
            if expired:
                self._ran(Ran(failed=expired))
            if prepared:
                self._prepare(prepared)

    def _take_inbox(self) -> list[Work]:
        texts = count = 0
        for work in self._inbox:
            if count and texts + len(work.texts) > FEED_TEXTS:
                break
            texts += len(work.texts)
            count += 1
        works, self._inbox = self._inbox[:count], self._inbox[count:]
        return works

    def _tokenize(self, works: list[Work]) -> None:
        broken: list[tuple[Work, Exception]] = []
        items: list[Item] = []
        try:
            items = self._items(works)
        except Exception:  # noqa: BLE001 - one of them is to blame: find out which
            for work in works:
                try:
                    items += self._items([work])
                except Exception as error:  # noqa: BLE001 - whatever the tokenizer raises fails this entry alone
                    broken.append((work, error))
        with self._changed:
            failed = [_failure(work, error) for work, error in broken if self._close(work)]
            self._shelf += [item for item in items if not item.work.over]
            self._changed.notify_all()
        if failed:
            self._ran(Ran(failed=failed))

    def _items(self, works: list[Work]) -> list[Item]:
        encoded = iter(self._backend.tokenize([text for work in works for text in work.texts]))
        items = []
        for work in works:
            for index in range(len(work.texts)):
                each = next(encoded)
                items.append(Item(work, index, each, Waiting(each.tokens, work.since, work.deadline, work.alone)))
        return items

    def _may_prepare(self) -> bool:
        """A batch is made ahead only when one runs, none is ready, and a full one can be."""
        return self._running and self._ready is None and bool(self._shelf) and self._plan().full

    def _plan_ahead(self) -> tuple[tuple[Item, ...], list[Failed]]:
        return self._take(self._plan()) if self._may_prepare() else ((), [])

    def _prepare(self, items: tuple[Item, ...]) -> None:
        batch = self._collate(items)
        with self._changed:
            self._ready = batch
            self._changed.notify_all()

    # -- the runner ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            batch = self._next()
            live = self._live(batch)
            if not live:
                continue
            if len(live) < len(batch.items):
                batch = self._collate(live)
            self._run_batch(batch)

    def _live(self, batch: Batch) -> tuple[Item, ...]:
        """Returns the inputs that somebody still waits for: a batch that was held ready may have waited long."""
        now = time.monotonic()
        with self._changed:
            late = [item.work for item in batch.items if item.waiting.deadline <= now]
            failed = [Failed(work.key, "deadline_exceeded", LATE) for work in late if self._close(work)]
            if failed:
                self._sweep()
        if failed:
            self._ran(Ran(failed=failed))
        return tuple(item for item in batch.items if not item.work.over)

    def _next(self) -> Batch:
        """Waits for a batch, ready or planned now; answers what expired meanwhile."""
        while True:
            with self._changed:
                self._running = False
                if self._ready is not None:
                    ready, self._ready = self._ready, None
                    self._running = True
                    self._changed.notify_all()
                    return ready
                made = self._plan()
                items, expired = self._take(made)
                self._running = bool(items)
                if items:
                    self._changed.notify_all()
                if not items and not expired:
                    self._changed.wait(None if made.wake_at is None else max(0.0, made.wake_at - time.monotonic()))
                    continue
            if expired:
                self._ran(Ran(failed=expired))
            if items:
                return self._collate(items)

    def _run_batch(self, batch: Batch) -> None:
        now = time.monotonic()
        ran = Ran(len(batch.items), batch.tokens, batch.padded)
        ran.gap = 0.0 if self._last_end is None else now - self._last_end
        with self._changed:
            fresh = {item.work.key: item.work for item in batch.items if item.work.began is None}
            for work in fresh.values():
                work.began = now
        if fresh:
            self._begun(list(fresh))
        self._compute(batch, ran)
        self._last_end = time.monotonic()
        ran.seconds = self._last_end - now
        self._expect(ran.seconds)
        for work in ran.done:
            work.seconds, work.size = ran.seconds, ran.size
        if ran.failed:
            with self._changed:
                self._sweep()
        self._ran(ran)

    def _expect(self, seconds: float) -> None:
        """Takes in how long a batch took: a wait for a fuller one must leave that long before a deadline."""
        reserve_s = RESERVE_WEIGHT * seconds + (1 - RESERVE_WEIGHT) * self._limits.reserve_s
        self._limits = replace(self._limits, reserve_s=reserve_s)

    def _compute(self, batch: Batch, ran: Ran) -> None:
        """Runs a batch; one that fails is halved until the inputs that fail are alone."""
        try:
            vectors = self._vectors(batch)
        except Exception as error:  # noqa: BLE001 - whatever the model raises, its neighbours get their answers
            if len(batch.items) == 1:
                work = batch.items[0].work
                with self._changed:
                    if self._close(work):
                        ran.failed.append(_failure(work, error))
                return
            middle = len(batch.items) // 2
            for half in (batch.items[:middle], batch.items[middle:]):
                self._compute(self._collate(half), ran)
            return
        with self._changed:
            for item, vector in zip(batch.items, vectors, strict=True):
                work = item.work
                work.rows[item.index] = vector
                work.left -= 1
                if work.left == 0 and self._close(work):
                    ran.done.append(work)

    def _vectors(self, batch: Batch) -> NDArray[np.float32]:
        if batch.error is not None:
            raise batch.error
        vectors = self._backend.run(batch.collated)
        if len(vectors) != len(batch.items):
            raise ValueError(f"the model gave {len(vectors)} vectors for {len(batch.items)} inputs")
        return vectors

    # -- the shelf, under the lock ------------------------------------------------------------------------------------

    def _plan(self) -> Plan:
        return plan([item.waiting for item in self._shelf], self._limits, time.monotonic())

    def _take(self, made: Plan) -> tuple[tuple[Item, ...], list[Failed]]:
        """Takes off the shelf what a plan names: the inputs of its batch, and the entries whose deadline has passed."""
        items = tuple(self._shelf[i] for i in made.batch)
        late = {self._shelf[i].work.key: self._shelf[i].work for i in made.expired}
        for work in late.values():
            self._close(work)
        taken = set(made.batch)
        self._shelf = [item for i, item in enumerate(self._shelf) if i not in taken and not item.work.over]
        return items, [Failed(key, "deadline_exceeded", LATE) for key in late]

    def _close(self, work: Work) -> bool:
        """Ends the life of an entry here; returns whether it had not ended yet."""
        if self._works.get(work.key) is work:  # the same entry may have come again meanwhile
            del self._works[work.key]
        ended, work.over = work.over, True
        return not ended

    def _sweep(self) -> None:
        """Removes the inputs of entries that have ended."""
        self._inbox = [work for work in self._inbox if not work.over]
        self._shelf = [item for item in self._shelf if not item.work.over]

    def _collate(self, items: tuple[Item, ...]) -> Batch:
        try:
            return Batch(items, self._backend.collate([item.encoded for item in items]))
        except Exception as error:  # noqa: BLE001 - it fails the inputs that caused it, as an error in the run does
            return Batch(items, None, error)


def _failure(work: Work, error: Exception) -> Failed:
    """Names the kind of error alone: its text may hold the input's."""
    return Failed(work.key, "input_failed", f"The model failed on this input ({type(error).__name__}).")

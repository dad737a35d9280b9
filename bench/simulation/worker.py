"""A simulated worker: what it claims, and its engine. The policies in it are those of the product."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from bench.simulation.setup import Setup
from gpuworker.policy.batching import Limits, Plan, Waiting, plan
from gpuworker.policy.credits import Held, credit
from gpuworker.policy.adaptive_limits import Pace

RATE_DECAY = 0.9
"""As gpuworker.consumer.result_handler has it."""

At = Callable[[float, Callable[[float], None]], None]


@dataclass(slots=True)
class Request:
    """One request of one input, and what came of it: when it was answered, and whether with a result."""

    sent_s: float
    tokens: int
    waiting: Waiting
    shelved_s: float = 0.0
    answered_s: float | None = None
    ok: bool = False


@dataclass(frozen=True, slots=True)
class Ran:
    """A batch that ran: when, its size, tokens without and with padding, and when its oldest input was ready for it."""

    began_s: float
    ended_s: float
    size: int
    tokens: int
    padded: int
    shelved_s: float


class Worker:
    """Claims from the lane, and runs batches.

    Args:
        setup: of the cluster.
        random: for the jitter of its device.
        at: has something called at a time.
        answered: told what was answered, when, and whether with results.
        freed: told when that leaves room to claim more.
    """

    def __init__(
        self,
        setup: Setup,
        random: Random,
        at: At,
        answered: Callable[[float, Sequence[Request], bool], None],
        freed: Callable[[float], None],
    ) -> None:
        self.batches: list[Ran] = []
        self.held = self._held_tokens = 0
        self._setup = setup
        self._device = setup.device
        self._random = random
        self._at = at
        self._answered = answered
        self._freed = freed
        self._pace = Pace(setup.limits, setup.device.runners)
        self._rate_tokens = self._rate_s = 0.0
        self._shelf: list[Request] = []
        self._waiting: list[Waiting] = []
        self._ready: list[Request] = []
        self._running = self._running_tokens = 0
        self._wake_s = 0.0

    # -- claiming ------------------------------------------------------------------------------------------------------

    def claim(self, now: float, lane: deque[Request], share: int) -> None:
        """Takes from the lane what its credit and its share allow."""
        tokens_per_s = self._rate_tokens / self._rate_s if self._rate_s else 0.0
        held = Held(self.held, self._held_tokens)
        allowed = credit(held, self._setup.window, tokens_per_s, 2 * self._device.max_tokens)
        if allowed is None:
            return
        entries, tokens = min(allowed.entries, share), allowed.tokens
        claimed: list[Request] = []
        while lane and len(claimed) < entries and tokens > 0:
            claimed.append(lane.popleft())
            tokens -= claimed[-1].tokens
        if claimed:
            self._take(now, claimed)
            self._turn(now)

    def _take(self, now: float, claimed: list[Request]) -> None:
        self.held += len(claimed)
        self._held_tokens += sum(each.tokens for each in claimed)
        late = [each for each in claimed if each.waiting.deadline <= now]
        if late:
            self._give(now, late, ok=False)
            claimed = [each for each in claimed if each.waiting.deadline > now]
        for each in claimed:
            each.shelved_s = now
        self._shelf += claimed
        self._waiting += [each.waiting for each in claimed]
        self._pace.arrived(now, len(claimed))

    def _give(self, now: float, requests: Sequence[Request], *, ok: bool) -> None:
        self.held -= len(requests)
        self._held_tokens -= sum(request.tokens for request in requests)
        self._answered(now, requests, ok)
        self._at(now, self._freed)

    # -- the engine ----------------------------------------------------------------------------------------------------

    def _turn(self, now: float) -> None:
        """Whoever is free runs what is ready or planned; when all are busy, a full batch is made ready."""
        while self._running < self._device.runners:
            batch = self._next(now)
            if not batch:
                return
            self._begin(now, batch)
        if self._device.ahead and not self._ready and self._may_be_full():
            made = self._plan(now)
            if made.full:
                self._ready = self._unshelve(now, made)

    def _next(self, now: float) -> list[Request]:
        if self._ready:
            live = [each for each in self._ready if each.waiting.deadline > now]
            late = [each for each in self._ready if each.waiting.deadline <= now]
            self._ready = []
            if late:
                self._give(now, late, ok=False)
            if live:
                return live
        while self._shelf:
            made = self._plan(now)
            batch = self._unshelve(now, made)
            if batch:
                return batch
            if made.wake_at is not None:
                self._sleep(made.wake_at)
                break
        return []

    def _may_be_full(self) -> bool:
        """Saves most of the plans that would find that more inputs fit; the plan decides."""
        number = len(self._shelf)
        if number == 0 or number >= self._setup.max_size:
            return number > 0
        longest = max(each.tokens for each in self._waiting)
        return (number + 1) * longest > self._limits().max_tokens

    def _plan(self, now: float) -> Plan:
        return plan(self._waiting, self._limits(), now)

    def _limits(self) -> Limits:
        return self._pace.limits(sum(each.tokens for each in self._waiting), self._running_tokens)

    def _unshelve(self, now: float, made: Plan) -> list[Request]:
        batch = [self._shelf[i] for i in made.batch]
        late = [self._shelf[i] for i in made.expired]
        gone = {*made.batch, *made.expired}
        if len(gone) == len(self._shelf):
            self._shelf, self._waiting = [], []
        elif gone:
            self._shelf = [each for i, each in enumerate(self._shelf) if i not in gone]
            self._waiting = [each for i, each in enumerate(self._waiting) if i not in gone]
        if late:
            self._give(now, late, ok=False)
        return batch

    def _sleep(self, wake_s: float) -> None:
        if wake_s != self._wake_s:
            self._wake_s = wake_s
            self._at(wake_s, self._turn)

    def _begin(self, now: float, batch: list[Request]) -> None:
        self._running += 1
        tokens, shelved_s = sum(each.tokens for each in batch), min(each.shelved_s for each in batch)
        padded = tokens if self._device.packed else len(batch) * max(each.tokens for each in batch)
        seconds = self._device.costs.seconds(padded)
        if self._device.jitter:
            seconds *= max(0.5, self._random.gauss(1.0, self._device.jitter))
        self._running_tokens += tokens
        ran = Ran(now, now + seconds, len(batch), tokens, padded, shelved_s)
        self._at(now + seconds, lambda at: self._end(at, batch, ran))

    def _end(self, now: float, batch: list[Request], ran: Ran) -> None:
        seconds = ran.ended_s - ran.began_s
        self.batches.append(ran)
        self._rate_tokens = RATE_DECAY * self._rate_tokens + ran.tokens
        self._rate_s = RATE_DECAY * self._rate_s + seconds + self._device.gap_s
        self._pace.ran(now, seconds, ran.size, ran.padded, ran.size)
        self._give(now, batch, ok=True)
        if self._device.gap_s:
            self._at(now + self._device.gap_s, lambda at: self._free(at, ran))
        else:
            self._free(now, ran)

    def _free(self, now: float, ran: Ran) -> None:
        self._running -= 1
        self._running_tokens -= ran.tokens
        self._turn(now)

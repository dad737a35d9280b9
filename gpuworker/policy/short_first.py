"""Whether short inputs go before long ones. Pure.

An input is long if its entry fills at least half of a batch, by tokens or by number. A request of many long texts makes
one full batch after the other; a single short text that arrives meanwhile would wait for all of them, and would then
take as long as its batch, which long texts fill. So short inputs go first, in a separate batch. They wait for the
batch that runs, and for their own, which is small.

Such a batch costs the fixed part of one more batch. So short inputs have a separate batch only if that is at most a
fifth of the time of a batch that contains all, or what fits into one; a thirteenth, once long inputs have waited for
seconds. Otherwise, and before any costs are known, they lead that batch, and long inputs fill it. A padded batch hardly
ever has both, because of the padding: there, short inputs always have a separate one.

Long inputs do not starve. One that has waited for the age bound is passed over at most once: it is in the next batch,
or in the one after that. The other inputs of that batch are short ones first. Where long inputs have waited for
seconds, they run between two batches of short ones for eighteen times the fixed part of such a batch, which then is at
most a nineteenth; but no more than run within the age bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuworker.policy.composition import Candidates, CompositionContext, WaitingInput
from gpuworker.policy.limits import Limits
from shared.long_entries import LONG_PARTS
from shared.long_entries import is_long as is_long_entry

MIN_BATCH, OVERLOADED_BATCH = 4, 12
"""Minimum time of a batch that contains all, without its fixed part, as a multiple of that part: usually, and if a long
input has waited for OVERLOADED_S, because then throughput counts."""

OVERLOADED_S = 2.0
OVERLOADED_TURN = 18
"""Minimum time of the long inputs that run between two batches of short ones, as a multiple of a batch's fixed part, if
a long input has waited for OVERLOADED_S."""


def is_long(each: WaitingInput, limits: Limits) -> bool:
    """Returns whether an input is long."""
    minimum = limits.min_long_tokens
    if minimum is None:
        return False
    return each.tokens >= minimum or is_long_entry(each.entry_tokens, each.entry_inputs, minimum, limits.max_size)


def choose_candidates(waiting: Sequence[WaitingInput], first: list[int], context: CompositionContext) -> Candidates:
    """Returns which inputs of the lane that goes first make the next batch, and their order."""
    limits, now = context.limits, context.now
    by_age = sorted(first, key=lambda i: waiting[i].since)
    anchor = by_age[0] if _is_overdue(waiting[by_age[0]], limits, now) else None
    if waiting[by_age[0]].bulk or limits.min_long_tokens is None:
        return Candidates(by_age, anchor)
    long = [i for i in by_age if is_long(waiting[i], limits)]
    if not long or len(long) == len(by_age):
        return Candidates(by_age, anchor)
    short = [i for i in by_age if not is_long(waiting[i], limits)]
    long_since = waiting[long[0]].since
    if has_turn(long_since, context):
        return Candidates([long[0], *short, *long[1:]], long[0])
    if not limits.packed or _pays(
        waiting, first, limits, OVERLOADED_BATCH if now - long_since >= OVERLOADED_S else MIN_BATCH
    ):
        oldest = short[0] if _is_overdue(waiting[short[0]], limits, now) else None
        return Candidates(short, oldest, is_short_first=True)
    return Candidates([*short, *long], short[0], is_short_first=True)


def has_turn(long_since: float, context: CompositionContext) -> bool:
    """Whether the next batch has to contain the oldest long input, though short ones wait.

    It has waited for the age bound, and since short inputs last went first, no long ones have run, or too few.

    Args:
        long_since: when the wait of the oldest long input began, s.
        context: what the batch depends on.
    """
    limits, waited_s, min_tokens = context.limits, context.now - long_since, 1.0
    if waited_s < limits.age_bound_s:
        return False
    if waited_s >= OVERLOADED_S and limits.costs is not None and limits.costs.token_s > 0:
        bound = limits.age_bound_s / limits.costs.token_s
        min_tokens = max(min_tokens, min(OVERLOADED_TURN * limits.costs.overhead_tokens, bound))
    return context.long_since_short < min_tokens


def long_since_short(before: float, batch: Iterable[WaitingInput], limits: Limits, *, passes_over: bool) -> float:
    """Returns the tokens of long inputs that have run since a batch of short ones went before such, after a batch.

    Args:
        before: the same before this batch.
        batch: its inputs.
        limits: of a batch.
        passes_over: whether it leaves long inputs waiting, in favor of short ones.
    """
    if passes_over:
        return 0.0
    return before + sum(each.tokens for each in batch if is_long(each, limits) and not each.bulk)


def _is_overdue(each: WaitingInput, limits: Limits, now: float) -> bool:
    return now - each.since >= limits.age_bound_s


def _pays(waiting: Sequence[WaitingInput], first: list[int], limits: Limits, min_batch: int) -> bool:
    """Whether a batch of all these, or what fits into one, takes `min_batch` times the fixed part of a batch."""
    if limits.costs is None or limits.min_long_tokens is None:
        return False
    tokens = sum(waiting[i].tokens for i in first) * min(1.0, limits.max_size / len(first))
    return min(tokens, LONG_PARTS * limits.min_long_tokens) >= min_batch * limits.costs.overhead_tokens

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
or in the one after that. The other inputs of that batch are short ones first.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuworker.policy.composition import Candidates, CompositionContext, WaitingInput
from gpuworker.policy.limits import Limits
from shared.long_entries import LONG_PARTS
from shared.long_entries import is_long as is_long_entry

MIN_BATCH, OVERLOADED_BATCH = 4, 12
"""Minimum time of a batch that contains all, without its fixed part, as a multiple of that part: usually, and if a long
input has waited for OVERLOADED_S, because then throughput counts."""

OVERLOADED_S = 2.0


def is_long(each: WaitingInput, limits: Limits) -> bool:
    """Returns whether an input is long."""
    if limits.long_tokens is None:
        return False
    return is_long_entry(max(each.tokens, each.entry_tokens), each.entry_inputs, limits.long_tokens, limits.max_size)


def choose_candidates(waiting: Sequence[WaitingInput], first: list[int], context: CompositionContext) -> Candidates:
    """Returns which inputs of the lane that goes first make the next batch, and their order."""
    limits, now = context.limits, context.now
    by_age = sorted(first, key=lambda i: waiting[i].since)
    anchor = by_age[0] if _is_overdue(waiting[by_age[0]], limits, now) else None
    if waiting[by_age[0]].bulk or limits.long_tokens is None:
        return Candidates(by_age, anchor)
    long = [i for i in by_age if is_long(waiting[i], limits)]
    if not long or len(long) == len(by_age):
        return Candidates(by_age, anchor)
    short = [i for i in by_age if not is_long(waiting[i], limits)]
    waited_s = now - waiting[long[0]].since
    if waited_s >= limits.age_bound_s and context.long_passed_over:
        return Candidates([long[0], *short, *long[1:]], long[0])
    if not limits.packed or _pays(waiting, first, limits, OVERLOADED_BATCH if waited_s >= OVERLOADED_S else MIN_BATCH):
        oldest = short[0] if _is_overdue(waiting[short[0]], limits, now) else None
        return Candidates(short, oldest, is_short_first=True)
    return Candidates([*short, *long], short[0], is_short_first=True)


def _is_overdue(each: WaitingInput, limits: Limits, now: float) -> bool:
    return now - each.since >= limits.age_bound_s


def _pays(waiting: Sequence[WaitingInput], first: list[int], limits: Limits, min_batch: int) -> bool:
    """Whether a batch of all these, or what fits into one, takes `min_batch` times the fixed part of a batch."""
    if limits.costs is None or limits.long_tokens is None:
        return False
    tokens = sum(waiting[i].tokens for i in first) * min(1.0, limits.max_size / len(first))
    return min(tokens, LONG_PARTS * limits.long_tokens) >= min_batch * limits.costs.overhead_tokens

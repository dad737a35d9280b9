"""What a job in the lane bulk makes of the number of workers: its entries there, and what the rules then want. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.autoscaling.hpa import by_average
from bench.autoscaling.keda import ScaledObject
from shared.jobs import feed_window

FLEETS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Texts:
    """What a job is of.

    Attributes:
        name: of the mix.
        tokens: of each text on average.
        per_s: how many of them a worker does in a second.
        batch_tokens: how many tokens a batch of such a worker may hold.
    """

    name: str
    tokens: float
    per_s: float
    batch_tokens: int


def entries(texts: Texts, per_entry: int, workers: int) -> int:
    """Returns how many entries of jobs are in the lane while so many workers run them: all that may be there."""
    room = feed_window(texts.per_s * texts.tokens * workers, texts.batch_tokens, workers)
    return min(room.entries, math.ceil(room.tokens / (per_entry * texts.tokens)))


def wanted(texts: Texts, per_entry: int, workers: int, scaled: ScaledObject) -> int:
    """Returns how many workers the lane bulk asks for when there are so many, and a job."""
    asked = by_average(entries(texts, per_entry, workers), scaled.bulk_target, workers)
    return min(max(asked, 1, scaled.least), scaled.most)


def rows(
    by_device: Mapping[str, Sequence[Texts]], scaled: Mapping[str, ScaledObject], per_entry: int
) -> Iterator[dict[str, Any]]:
    """Yields, as JSON has them, what jobs ask for: with the target of bulk, and were it that of the other lane."""
    for device, mixes in by_device.items():
        for texts in mixes:
            for target in (scaled[device].bulk_target, scaled[device].target):
                given = ScaledObject(target, scaled[device].least, scaled[device].most, bulk_target=target)
                yield {
                    "device": device,
                    "texts": texts.name,
                    "target": target,
                    "chosen": target == scaled[device].bulk_target,
                    "entries": [entries(texts, per_entry, fleet) for fleet in FLEETS],
                    "wanted": [wanted(texts, per_entry, fleet, given) for fleet in FLEETS],
                }

"""The effect of a bulk job on the number of workers: its entries, and the workers that they ask for. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.autoscaling.hpa import replicas_for_average_value
from bench.autoscaling.keda import ScaledObject
from shared.feed_window import feed_window

WORKER_COUNTS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class TextMix:
    """The texts of a job.

    Attributes:
        name: name of the mix.
        tokens: mean tokens of a text.
        per_s: texts per second of one worker.
        batch_tokens: maximum tokens in a batch of such a worker.
    """

    name: str
    tokens: float
    per_s: float
    batch_tokens: int


def job_entries(texts: TextMix, inputs_per_entry: int, workers: int) -> int:
    """Returns the entries of jobs in the lane while `workers` run them: the maximum that the window allows."""
    bounds = feed_window(texts.per_s * texts.tokens * workers, texts.batch_tokens, workers)
    return min(bounds.entries, math.ceil(bounds.tokens / (inputs_per_entry * texts.tokens)))


def desired_workers(texts: TextMix, inputs_per_entry: int, workers: int, scaled: ScaledObject) -> int:
    """Returns the number of workers that the bulk lane asks for while `workers` run a job."""
    entries = job_entries(texts, inputs_per_entry, workers)
    recommended = replicas_for_average_value(entries, scaled.bulk_target, workers)
    return min(max(recommended, 1, scaled.min_replicas), scaled.max_replicas)


def rows(
    by_device: Mapping[str, Sequence[TextMix]], scaled: Mapping[str, ScaledObject], inputs_per_entry: int
) -> Iterator[dict[str, Any]]:
    """Yields JSON rows of the workers that jobs ask for, with the bulk target and with the interactive target."""
    for device, mixes in by_device.items():
        for texts in mixes:
            for target in (scaled[device].bulk_target, scaled[device].target):
                bounds = scaled[device].min_replicas, scaled[device].max_replicas
                variant = ScaledObject(target, *bounds, bulk_target=target)
                yield {
                    "device": device,
                    "texts": texts.name,
                    "target": target,
                    "chosen": target == scaled[device].bulk_target,
                    "entries": [job_entries(texts, inputs_per_entry, workers) for workers in WORKER_COUNTS],
                    "workers": [
                        desired_workers(texts, inputs_per_entry, workers, variant) for workers in WORKER_COUNTS
                    ],
                }

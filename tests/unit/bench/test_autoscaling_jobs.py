"""The number of workers that jobs ask for, and the effect of requests in the bulk lane."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.settings import GatewaySettings
from bench.autoscaling import report
from bench.autoscaling.cluster import Scenario
from bench.autoscaling.hpa import replicas_for_average_value
from bench.autoscaling.jobs import WORKER_COUNTS, TextMix, desired_workers, job_entries, rows
from bench.autoscaling.keda import ScaledObject
from bench.autoscaling.manifests import from_manifests, on_cpus
from bench.autoscaling.scenarios import CPU, GPU, Measurements, job_texts, with_large_requests
from bench.autoscaling.worker_profile import WorkerProfile
from shared.feed_window import MAX_ENTRIES

INPUTS_PER_ENTRY: int = GatewaySettings.model_fields["inputs_per_entry"].default
MEASURED = Measurements(229.0, 623.0, 0.00025, 1.0, 7.0)
SCENARIOS = {
    CPU: Scenario(WorkerProfile.constant(229.0, 0.1), 100.0),
    GPU: Scenario(WorkerProfile.constant(4_900.0, 0.02), 2_000.0),
}
TEXTS = job_texts(MEASURED, SCENARIOS)
SCALED = {GPU: from_manifests().workers, CPU: on_cpus(from_manifests()).workers}


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (TextMix("mixed", 39.0, 229.0, 512), [15, 29, 58, 115]),  # two seconds' work
        (TextMix("slow", 39.0, 20.0, 512), [7, 7, 7, 14]),  # 8,192 tokens, and four batches for each worker
        (TextMix("mixed", 39.0, 4_900.0, 16_384), [307, 613, 1_024, 1_024]),  # no more entries than 1,024
    ],
)
def test_a_job_fills_its_window_of_the_lane(texts: TextMix, expected: list[int]) -> None:
    """For each number of workers a job has the entries that shared.jobs.window allows."""
    assert [job_entries(texts, INPUTS_PER_ENTRY, workers) for workers in WORKER_COUNTS] == expected


@pytest.mark.parametrize("device", [CPU, GPU])
def test_no_job_alone_adds_a_worker(device: str) -> None:
    """No text mix adds a worker to any number of workers with the bulk target; with the interactive target one does."""
    scaled = SCALED[device]
    for texts in TEXTS[device]:
        for workers in range(1, scaled.max_replicas + 1):
            assert desired_workers(texts, INPUTS_PER_ENTRY, workers, scaled) <= workers
    as_interactive = replace(scaled, bulk_target=scaled.target)
    assert any(desired_workers(texts, INPUTS_PER_ENTRY, 1, as_interactive) > 1 for texts in TEXTS[device])


def test_no_job_adds_a_gpu_worker_of_any_speed() -> None:
    """The maximum number of job entries asks for one worker."""
    assert replicas_for_average_value(MAX_ENTRIES, SCALED[GPU].bulk_target, 1) == 1


def test_no_job_adds_a_cpu_worker_that_is_six_times_as_fast() -> None:
    """Jobs of either text mix add no worker with six times the cores."""
    for texts in TEXTS[CPU]:
        fast = replace(texts, per_s=6 * texts.per_s)
        for workers in range(1, SCALED[CPU].max_replicas + 1):
            assert desired_workers(fast, INPUTS_PER_ENTRY, workers, SCALED[CPU]) <= workers


@pytest.mark.parametrize("device", [CPU, GPU])
def test_bulk_requests_of_one_text_add_workers(device: str) -> None:
    """Half of the queue's bounds, which bulk requests may fill, asks for more workers before gateways refuse any."""
    scaled, scenario = SCALED[device], SCENARIOS[device]
    for workers in range(1, scaled.max_replicas):
        max_waiting = min(scenario.queue_capacity(workers), scenario.settings.max_queue_inputs // 2)
        assert replicas_for_average_value(max_waiting, scaled.bulk_target, workers) > workers


@pytest.mark.parametrize("device", [CPU, GPU])
def test_bulk_requests_of_32_texts_add_no_workers(device: str) -> None:
    """Gateways refuse them before their entries, which are as few as a job's, ask for more workers."""
    scaled, scenario = SCALED[device], with_large_requests(SCENARIOS[device], INPUTS_PER_ENTRY)
    for workers in range(1, scaled.max_replicas):
        max_waiting = min(scenario.queue_capacity(workers), scenario.settings.max_queue_inputs // 2 // INPUTS_PER_ENTRY)
        assert replicas_for_average_value(max_waiting, scaled.bulk_target, workers) <= workers


def test_the_table_has_the_chosen_target_in_bold() -> None:
    """The table has a row for each text mix and target; the row of the chosen target is in bold."""
    scaled = ScaledObject(4.0, 1, 8, bulk_target=40.0)
    actual = list(rows({CPU: TEXTS[CPU][:1]}, {CPU: scaled}, INPUTS_PER_ENTRY))
    assert report.jobs_table(actual).splitlines()[2:] == [
        "| **CPU** | **mixed** | **40** | **15 → 1** | **29 → 1** | **58 → 2** | **115 → 3** |",
        "| CPU | mixed | 4 | 15 → 4 | 29 → 8 | 58 → 8 | 115 → 8 |",
    ]

"""What jobs ask the autoscaler for, and what requests of the lane bulk do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.settings import GatewaySettings
from bench.autoscaling import report
from bench.autoscaling.cluster import Scene
from bench.autoscaling.hpa import by_average
from bench.autoscaling.jobs import FLEETS, Texts, entries, rows, wanted
from bench.autoscaling.keda import ScaledObject
from bench.autoscaling.manifests import from_manifests, on_cpus
from bench.autoscaling.scenarios import CPU, GPU, Measured, of_jobs, of_many
from bench.autoscaling.worker_profile import Station
from shared.jobs import MOST_ENTRIES

PER_ENTRY: int = GatewaySettings.model_fields["inputs_per_entry"].default
MEASURED = Measured(229.0, 623.0, 0.00025, 1.0, 7.0)
SCENES = {CPU: Scene(Station.even(229.0, 0.1), 100.0), GPU: Scene(Station.even(4_900.0, 0.02), 2_000.0)}
TEXTS = of_jobs(MEASURED, SCENES)
SET = {GPU: from_manifests().workers, CPU: on_cpus(from_manifests()).workers}


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (Texts("mixed", 39.0, 229.0, 512), [15, 29, 58, 115]),  # two seconds' work
        (Texts("slow", 39.0, 20.0, 512), [7, 7, 7, 14]),  # 8,192 tokens, and four batches for each worker
        (Texts("mixed", 39.0, 4_900.0, 16_384), [307, 613, 1_024, 1_024]),  # no more entries than 1,024
    ],
)
def test_a_job_has_as_many_entries_in_the_lane_as_it_may(texts: Texts, found: list[int]) -> None:
    """By shared.jobs.window, for each number of workers."""
    assert [entries(texts, PER_ENTRY, fleet) for fleet in FLEETS] == found


@pytest.mark.parametrize("device", [CPU, GPU])
def test_no_job_alone_adds_a_worker(device: str) -> None:
    """Whatever it is of, and however many workers there are; with the other lane's target it would."""
    scaled = SET[device]
    for texts in TEXTS[device]:
        for fleet in range(1, scaled.most + 1):
            assert wanted(texts, PER_ENTRY, fleet, scaled) <= fleet
    as_interactive = replace(scaled, bulk_target=scaled.target)
    assert any(wanted(texts, PER_ENTRY, 1, as_interactive) > 1 for texts in TEXTS[device])


def test_on_gpus_no_job_ever_does() -> None:
    """However fast they are: there is a bound on the entries of jobs."""
    assert by_average(MOST_ENTRIES, SET[GPU].bulk_target, 1) == 1


def test_on_cpus_none_does_that_are_several_times_as_fast() -> None:
    """Texts of either kind, on six times the cores."""
    for texts in TEXTS[CPU]:
        for fleet in range(1, SET[CPU].most + 1):
            assert wanted(replace(texts, per_s=6 * texts.per_s), PER_ENTRY, fleet, SET[CPU]) <= fleet


@pytest.mark.parametrize("device", [CPU, GPU])
def test_requests_that_wait_in_bulk_do_add_workers(device: str) -> None:
    """Of one text each, long before gateways refuse them: of the queue's bounds they may fill half."""
    scaled, scene = SET[device], SCENES[device]
    for fleet in range(1, scaled.most):
        may_wait = min(scene.room(fleet), scene.settings.max_queue_inputs // 2)
        assert by_average(may_wait, scaled.bulk_target, fleet) > fleet


@pytest.mark.parametrize("device", [CPU, GPU])
def test_those_of_32_texts_do_not(device: str) -> None:
    """They are as few entries as a job's: gateways refuse them before."""
    scaled, scene = SET[device], of_many(SCENES[device], PER_ENTRY)
    for fleet in range(1, scaled.most):
        may_wait = min(scene.room(fleet), scene.settings.max_queue_inputs // 2 // PER_ENTRY)
        assert by_average(may_wait, scaled.bulk_target, fleet) <= fleet


def test_the_table_has_what_is_set_in_bold_and_the_other_beside_it() -> None:
    """A row for each mix and target."""
    scaled = ScaledObject(4.0, 1, 8, bulk_target=40.0)
    found = list(rows({CPU: TEXTS[CPU][:1]}, {CPU: scaled}, PER_ENTRY))
    assert report.jobs(found).splitlines()[2:] == [
        "| **CPU** | **mixed** | **40** | **15 → 1** | **29 → 1** | **58 → 2** | **115 → 3** |",
        "| CPU | mixed | 4 | 15 → 4 | 29 → 8 | 58 → 8 | 115 → 8 |",
    ]

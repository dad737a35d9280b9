"""The stated maximum memory of a gateway."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from api.http import auth
from api.http.share_holder import holder_of_address
from api.memory_bounds import (
    ADDRESS_BYTES,
    CHAR_BYTES,
    CHARGE_BYTES,
    KEY_BYTES,
    MIB,
    PARTS_BYTES,
    as_markdown,
    max_memory_bytes,
    memory_bounds,
)
from api.settings import GatewaySettings
from shared import api_keys
from shared.charges import Charge
from shared.tenants import Limits, Quota
from tests.unit.api.parse_peak import SHAPES

ROOT = Path(__file__).parents[3]
UNITS = {"Mi": 2**20, "Gi": 2**30, "M": 2**20, "G": 2**30}


def test_each_memory_setting_counts() -> None:
    """A larger bound is a larger maximum."""
    default = max_memory_bytes(GatewaySettings())
    for name in (
        "max_connections",
        "max_head_fields",
        "max_heads_bytes",
        "max_bodies_bytes",
        "max_body_bytes",
        "max_v1_body_bytes",
        "max_predict_body_bytes",
        "max_in_flight_bytes",
        "max_unsent_bytes",
        "max_connection_unsent_bytes",
        "max_inputs",
        "cache_bytes",
    ):
        larger = 20 * int(getattr(GatewaySettings(), name)) or 1  # also the smallest body is the largest one then
        assert max_memory_bytes(GatewaySettings.model_validate({name: larger})) > default, name


def test_the_table_adds_up() -> None:
    """The last row is the sum of the others."""
    settings = GatewaySettings()
    assert f"**{sum(each.num_bytes for each in memory_bounds(settings)) / MIB:,.0f}**" in as_markdown(settings)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_parsed_body_takes_no_more_than_stated(shape: str) -> None:
    """Measured in a separate process, since the largest memory of a process never shrinks."""
    command = [sys.executable, "-m", "tests.unit.api.parse_peak", shape]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    grown, size = map(int, output.split())
    assert MIB < grown <= PARTS_BYTES + CHAR_BYTES * size


def new_key(number: int) -> object:
    """Returns a key as it is remembered, of 128 characters of text beside its digest."""
    quota = Quota(number + 0.5, 10_000 + number, 1_000_000 + number, 1.5)
    key, _ = api_keys.new_key(("embed", "jobs"), tenant=f"tenant {number:057}", name=f"name {number:059}", quota=quota)
    key = replace(key, created_ms=10**12 + number, expires_ms=10**13 + number)
    return auth._CachedKey(key, number + 0.25, number + 0.5)


def new_charge(number: int) -> object:
    """Returns a charge that waits."""
    quota = Quota(number + 0.5, 10_000 + number, 1_000_000 + number, 1.5)
    future = asyncio.get_running_loop().create_future()
    return Charge(f"tenant {number:057}", Limits(quota, number + 0.5), 10**6 + number, may_refuse=True), future


def new_failure(number: int) -> object:
    """Returns the bucket of an address."""
    failures = auth.FailureLimiter()
    failures.record_failure(f"2001:db8:0:{number:x}::/64", number + 0.5)
    return failures._buckets.popitem()


@pytest.mark.parametrize(
    ("new", "max_bytes"),
    [
        (new_key, KEY_BYTES),
        (new_charge, CHARGE_BYTES),
        (new_failure, ADDRESS_BYTES),
        (lambda number: holder_of_address(f"2001:db8:0:{number:x}::1"), ADDRESS_BYTES),
    ],
    ids=["API key", "charge", "wrong key", "address"],
)
async def test_what_is_remembered_takes_no_more_than_stated(new: Callable[[int], object], max_bytes: int) -> None:
    """Each in a dictionary, with its name."""
    number = 1_000
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = {f"the name of number {each}": new(each) for each in range(number)}
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0 < (after - before) / len(kept) <= max_bytes


def test_the_containers_have_that_memory() -> None:
    """The limits of the manifests are at least the maximum with the default settings."""
    documents = list(yaml.safe_load_all((ROOT / "k8s/base/gateway.yaml").read_text(encoding="utf-8")))
    (deployment,) = (each for each in documents if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    stack = yaml.safe_load((ROOT / "swarm/stack.yml").read_text(encoding="utf-8"))
    swarm_limit = stack["services"]["gateway"]["deploy"]["resources"]["limits"]["memory"]
    for limit in (container["resources"]["limits"]["memory"], swarm_limit):
        number = limit.rstrip("GMi")
        assert int(number) * UNITS[limit.removeprefix(number)] >= max_memory_bytes(GatewaySettings())

"""The stated maximum memory of a gateway."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from api.memory_bounds import (
    CHAR_BYTES,
    MIB,
    PARTS_BYTES,
    as_markdown,
    max_memory_bytes,
    memory_bounds,
)
from api.settings import GatewaySettings
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
        "max_v1_body_bytes",
        "max_in_flight_bytes",
        "max_unsent_bytes",
        "max_connection_unsent_bytes",
        "max_inputs",
        "cache_bytes",
    ):
        value = int(getattr(GatewaySettings(), name))
        assert max_memory_bytes(GatewaySettings.model_validate({name: 4 * value or 1})) > default, name


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

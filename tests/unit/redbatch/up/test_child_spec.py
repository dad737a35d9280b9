"""The processes that `up` starts: their command lines and environments."""

from __future__ import annotations

import pytest
import typer

from gpuworker.gpu.devices import Gpu
from gpuworker.settings import WorkerSettings
from redbatch.commands import app
from redbatch.up.child_spec import assign_gpus, gateway_specs, with_up_defaults, worker_specs
from redbatch.variables import VARIABLES_CHECKED

COMMANDS = typer.main.get_group(app).commands
TWO_GPUS = [Gpu(f"GPU-{letter}", "NVIDIA H100", 80 * 2**30, "570.1") for letter in "ab"]


def test_an_embedded_cluster_needs_no_fixed_ports_and_no_delay() -> None:
    """Under `up`, admin ports are free ports, the drain starts at once, and both sides use the queue of the model."""
    settings = with_up_defaults({"model": "intfloat/E5-small"})
    assert settings["admin_port"] == "0"
    assert settings["drain_delay_s"] == "0"
    assert "error_messages" not in settings, "no log has messages of exceptions, which may quote inputs"
    assert settings["queue"] == "e5-small"


def test_the_help_of_up_has_its_defaults() -> None:
    """A default of separate processes there would be wrong; that of the queue depends on the model."""
    defaults = {each.name: each.default for each in COMMANDS["up"].params}
    assert {name: defaults[name] for name in with_up_defaults({})} == with_up_defaults({}) | {"queue": None}


def test_settings_of_the_user_win() -> None:
    """`up` never replaces a setting of the user."""
    overrides = {"admin_port": "9000", "error_messages": "off", "drain_delay_s": "3", "queue": "mine", "port": "1"}
    assert with_up_defaults(overrides) == overrides


def test_gateways_inherit_the_listening_socket() -> None:
    """Each gateway gets the descriptor of the one socket as a flag, and the settings as environment variables."""
    settings = with_up_defaults({"max_inputs": "5"})
    first, second = gateway_specs(2, settings, 7, {"PATH": "/bin", "REDBATCH_MAX_INPUTS": "9"})
    assert (first.name, second.name) == ("gateway-1", "gateway-2")
    assert first.descriptors == second.descriptors == (7,)
    assert first.command[1:] == ["-P", "-m", "redbatch", "gateway", "--listen-fd", "7"]
    assert first.environment["PATH"] == "/bin"
    assert first.environment["REDBATCH_MAX_INPUTS"] == "5"
    assert "REDBATCH_MAX_BODY_BYTES" not in first.environment
    assert VARIABLES_CHECKED in first.environment, "a child does not repeat the warnings of `up`"


def test_a_fixed_admin_port_is_the_first_of_consecutive_ones() -> None:
    """Gateways, then workers, take consecutive ports: two processes cannot share one."""
    settings = with_up_defaults({"admin_port": "9000"})
    specs = [*gateway_specs(2, settings, 7, {}), *worker_specs(2, settings, {}, gateways=2)]
    assert [spec.environment["REDBATCH_ADMIN_PORT"] for spec in specs] == ["9000", "9001", "9002", "9003"]


def test_workers_of_one_name_are_numbered() -> None:
    """Several workers get numbered ids: the id names the consumer in the group, so two workers cannot share it."""
    settings = with_up_defaults({"worker_id": "here"})
    assert [spec.environment["REDBATCH_WORKER_ID"] for spec in worker_specs(2, settings, {})] == ["here-1", "here-2"]
    assert [spec.environment["REDBATCH_WORKER_ID"] for spec in worker_specs(1, settings, {})] == ["here"]


@pytest.mark.parametrize(
    ("count", "settings", "gpus", "assigned"),
    [
        (2, {}, TWO_GPUS, ["GPU-a", "GPU-b"]),
        (3, {}, TWO_GPUS, ["GPU-a", "GPU-b", "GPU-a"]),
        (1, {}, TWO_GPUS, []),
        (2, {}, TWO_GPUS[:1], []),
        (2, {}, [], []),
        (2, {"device": "cuda:1"}, TWO_GPUS, []),
        (2, {"device": "cpu"}, TWO_GPUS, []),
        (2, {"devices": "all"}, TWO_GPUS, []),
        (2, {"gpu_lease": "batch"}, TWO_GPUS, []),
    ],
)
def test_workers_are_spread_over_the_gpus(
    count: int, settings: dict[str, str], gpus: list[Gpu], assigned: list[str]
) -> None:
    """In turn, unless the user has chosen devices or leases, or there is nothing to spread over."""
    assert assign_gpus(count, WorkerSettings(**settings), gpus) == assigned  # type: ignore[arg-type]


def test_a_worker_sees_only_its_gpu() -> None:
    """If GPUs are assigned; otherwise the user's variable stays."""
    settings, environment = with_up_defaults({}), {"CUDA_VISIBLE_DEVICES": "0,1"}
    spread = worker_specs(2, settings, environment, gpu_uuids=["GPU-a", "GPU-b"])
    assert [spec.environment["CUDA_VISIBLE_DEVICES"] for spec in spread] == ["GPU-a", "GPU-b"]
    assert [spec.environment["CUDA_VISIBLE_DEVICES"] for spec in worker_specs(2, settings, environment)] == ["0,1"] * 2

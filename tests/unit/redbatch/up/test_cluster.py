"""Which processes `up` starts, and what it tells them."""

from __future__ import annotations

from redbatch.up.cluster import gateway_specs, under_up, worker_specs


def test_an_embedded_cluster_needs_no_fixed_ports_and_no_delay() -> None:
    """Under `up` admin ports are free ones, the drain starts at once, and both sides have the model's queue."""
    settings = under_up({"model": "intfloat/E5-small"})
    assert settings["admin_port"] == "0"
    assert settings["drain_delay_s"] == "0"
    assert settings["queue"] == "e5-small"


def test_what_the_user_gave_wins() -> None:
    """A given setting is never replaced."""
    given = {"admin_port": "9000", "drain_delay_s": "3", "queue": "mine", "port": "1"}
    assert under_up(given) == given


def test_gateways_inherit_the_listening_socket() -> None:
    """Each gateway gets the one socket by its number, and the settings as variables."""
    settings = under_up({"max_inputs": "5"})
    first, second = gateway_specs(2, settings, 7, {"PATH": "/bin", "REDBATCH_MAX_INPUTS": "9"})
    assert (first.name, second.name) == ("gateway-1", "gateway-2")
    assert first.descriptors == second.descriptors == (7,)
    assert first.command[1:] == ["-P", "-m", "redbatch", "gateway", "--listen-fd", "7"]
    assert first.environment["PATH"] == "/bin"
    assert first.environment["REDBATCH_MAX_INPUTS"] == "5"
    assert "REDBATCH_MAX_BODY_BYTES" not in first.environment


def test_a_given_admin_port_is_the_first_of_consecutive_ones() -> None:
    """Two processes cannot have the same port: gateways count on, then workers."""
    settings = under_up({"admin_port": "9000"})
    specs = [*gateway_specs(2, settings, 7, {}), *worker_specs(2, settings, {}, gateways=2)]
    assert [spec.environment["REDBATCH_ADMIN_PORT"] for spec in specs] == ["9000", "9001", "9002", "9003"]


def test_workers_of_one_name_are_numbered() -> None:
    """A worker's id is its consumer in the group, so no two workers share it."""
    settings = under_up({"worker_id": "here"})
    assert [spec.environment["REDBATCH_WORKER_ID"] for spec in worker_specs(2, settings, {})] == ["here-1", "here-2"]
    assert [spec.environment["REDBATCH_WORKER_ID"] for spec in worker_specs(1, settings, {})] == ["here"]

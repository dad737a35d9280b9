"""The stack for Docker Swarm: what its schema does not see, and its schema where there is a docker to ask."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from api.asked import MAX_TIMEOUT_MS
from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from redbatch.commands import app
from tests.deploy.checks.settings import SETTINGS, parse_settings
from tests.deploy.dockerfile import ROOT, environment, stages
from tests.deploy.swarm_stack import RESERVE, STACK, made_secrets, most_bytes, resolved
from tests.servers import skip, tool

USER = "65532"


@pytest.fixture(scope="module")
def stack() -> dict[str, Any]:
    """The stack, as it is without any variable."""
    return resolved(STACK)


def seconds(duration: str) -> int:
    """Returns the seconds of a duration such as 2m or 60s."""
    number, unit = re.fullmatch(r"(\d+)([sm])", duration).groups()  # type: ignore[union-attr]
    return int(number) * {"s": 1, "m": 60}[unit]


@pytest.mark.parametrize("files", [[STACK], [STACK, RESERVE]], ids=["stack", "with GPUs reserved"])
def test_docker_reads_it(files: list[Path]) -> None:
    """By its own schema, without a daemon; images and secrets are those of the variables."""
    named = [word for path in files for word in ("-c", path)]
    own = {
        "REDBATCH_REGISTRY": "here/",
        "REDBATCH_VERSION": "9.1",
        "REDBATCH_WORKER_VERSION": "9.2",
        "REDBATCH_SECRETS": "_7",
    }
    ran = subprocess.run(
        [tool("docker", "it reads stacks"), "stack", "config", *named],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | own,
    )
    assert ran.returncode == 0, ran.stderr
    read = yaml.safe_load(ran.stdout)
    reserved = read["services"]["worker"]["deploy"]["resources"].get("reservations")
    assert (reserved is None) == (files == [STACK])
    images = [read["services"][name]["image"] for name in SETTINGS]
    assert images == ["here/redbatch-gateway:9.1", "here/redbatch-worker:9.2"]
    assert {each["name"].removesuffix("_7") for each in read["secrets"].values()} == set(read["secrets"])


def test_images_have_a_version(stack: dict[str, Any]) -> None:
    """And ours that of the package, in a registry that a variable names."""
    images = {name: service["image"] for name, service in stack["services"].items()}
    ours = {name: f"redbatch-{name}:{version('redbatch')}" for name in SETTINGS}
    assert images == {"redis": images["redis"], **ours}
    assert re.fullmatch(r"redis:\d+\.\d+\.\d+", images["redis"])
    assert STACK.read_text(encoding="utf-8").count("${REDBATCH_REGISTRY:-}redbatch-") == len(ours)


@pytest.mark.parametrize("name", SETTINGS)
def test_what_is_set_is_a_setting(stack: dict[str, Any], name: str) -> None:
    """Of the process that it is set for, which takes the value; each file that is named is a secret of the service."""
    service = stack["services"][name]
    ours = {key: value for key, value in service["environment"].items() if key.startswith("REDBATCH_")}
    for variable, value in ours.items():
        assert variable.removeprefix("REDBATCH_").removesuffix("_FILE").lower() in SETTINGS[name].model_fields
        if variable.endswith("_FILE"):
            assert value in [f"/run/secrets/{each['source']}" for each in service["secrets"]]
    assert "REDBATCH_REDIS_URL_FILE" in ours
    parse_settings({**ours, "REDBATCH_WORKER_ID": "host-1"}, SETTINGS[name])
    assert [(each["uid"], each["mode"]) for each in service["secrets"]] == [(USER, 0o400)]
    assert not {"command", "entrypoint", "stop_signal", "healthcheck"} & set(service)  # the image's


def test_who_comes_in_needs_a_key(stack: dict[str, Any]) -> None:
    """The port is open to all."""
    assert stack["services"]["gateway"]["environment"]["REDBATCH_AUTH"] == "on"


def test_each_worker_has_a_name_of_its_own(stack: dict[str, Any]) -> None:
    """Of its node and its task."""
    given = stack["services"]["worker"]["environment"]
    assert given["REDBATCH_WORKER_ID"] == "{{.Node.Hostname}}-{{.Task.ID}}"
    assert (given["REDBATCH_DEVICES"], given["NVIDIA_VISIBLE_DEVICES"]) == ("all", "all")


def test_there_is_time_to_drain(stack: dict[str, Any]) -> None:
    """Before Swarm kills: longer than each takes by its settings."""
    given = {name: stack["services"][name]["environment"] for name in SETTINGS}
    gateway = parse_settings(given["gateway"], GatewaySettings)
    worker = parse_settings({**given["worker"], "REDBATCH_WORKER_ID": "host-1"}, WorkerSettings)
    grace = {name: seconds(stack["services"][name]["stop_grace_period"]) for name in SETTINGS}
    assert gateway.drain_grace_s * 1000 >= MAX_TIMEOUT_MS
    assert grace["gateway"] > gateway.drain_delay_s + gateway.drain_grace_s
    assert grace["worker"] > worker.drain_grace_s


def test_redis_is_one_and_keeps_what_it_has(stack: dict[str, Any]) -> None:
    """On the node with its data, with its users' file for itself, and never two of it at once."""
    service = stack["services"]["redis"]
    assert service["deploy"]["placement"]["constraints"] == ["node.labels.redis == true"]
    assert service["deploy"]["update_config"]["order"] == "stop-first"
    assert service["deploy"]["endpoint_mode"] == "dnsrr"
    assert service["deploy"].get("replicas", 1) == 1
    assert seconds(service["stop_grace_period"]) >= 60
    (users,) = service["secrets"]
    assert (users["target"], users["uid"], users["mode"]) == (
        "/run/secrets/redis/users.acl", service["user"].partition(":")[0], 0o400,
    )  # fmt: skip
    (config,) = service["configs"]
    assert (config["target"], config["source"]) == (service["command"][1], "redis")
    assert "redis:/data" in service["volumes"]
    gigabytes = int(service["deploy"]["resources"]["limits"]["memory"].removesuffix("G"))
    assert most_bytes(service) <= 0.7 * gigabytes * 2**30


def test_a_changed_file_has_another_name(stack: dict[str, Any]) -> None:
    """A configuration of a Swarm never changes: its name is of its content."""
    digest = hashlib.sha256((STACK.parent / "redis.conf").read_bytes()).hexdigest()
    assert stack["configs"] == {"redis": {"name": f"redbatch_redis_conf_{digest[:8]}", "file": "./redis.conf"}}


def test_workers_go_where_gpus_are(stack: dict[str, Any]) -> None:
    """One on each labelled node, and the old one leaves before the new one comes: there is no second GPU."""
    deploy = stack["services"]["worker"]["deploy"]
    assert deploy["mode"] == "global"
    assert (deploy["update_config"]["parallelism"], deploy["update_config"]["failure_action"]) == (1, "rollback")
    assert deploy["placement"] == {"constraints": ["node.labels.gpu == true"]}
    assert deploy["update_config"]["order"] == "stop-first"
    for service in stack["services"].values():
        for each in service["deploy"].get("placement", {}).get("constraints", []):
            assert re.fullmatch(r"node\.labels\.[a-z]+ == [a-z]+", each)  # `=` would be taken, and never met


def test_gateways_are_replaced_without_a_gap(stack: dict[str, Any]) -> None:
    """The new one first; back to the old one if it fails."""
    deploy = stack["services"]["gateway"]["deploy"]
    assert deploy["replicas"] == 2
    assert deploy["update_config"]["parallelism"] == 1
    assert (deploy["update_config"]["order"], deploy["update_config"]["failure_action"]) == ("start-first", "rollback")


def test_nobody_has_more_rights_than_it_needs(stack: dict[str, Any]) -> None:
    """No file to write to, no capability, a bound on memory; secrets are not in the file, and the network is theirs."""
    for service in stack["services"].values():
        assert service["read_only"] is True
        assert {"type": "tmpfs", "target": "/tmp"} in service["volumes"]  # noqa: S108 - the container's
        assert service["cap_drop"] == ["ALL"]
        assert service["networks"] == ["inner"]
        assert "memory" in service["deploy"]["resources"]["limits"]
    assert stack["networks"]["inner"] == {
        "driver": "overlay",
        "internal": True,
        "attachable": True,
        "driver_opts": {"encrypted": "true"},
    }
    assert stack["secrets"] == {name: {"external": True, "name": name} for name in made_secrets()}


def test_ports_are_those_of_the_images(stack: dict[str, Any]) -> None:
    """The one that is published is the gateway's; the admin port can be reached from other containers."""
    assert stack["services"]["gateway"]["ports"] == [f"8080:{GatewaySettings().port}"]
    assert not [name for name, service in stack["services"].items() if name != "gateway" and "ports" in service]
    assert environment("gateway")["REDBATCH_ADMIN_HOST"] == "0.0.0.0"  # noqa: S104 - the image's


def test_the_page_names_what_the_command_makes() -> None:
    """docs/deploy.md has the secrets made by the command, and takes the key's URL out of what that prints."""
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    assert "redbatch-gateway:0.1.0 swarm secrets > secrets.sh" in page
    assert "docker secret create" not in page
    (pattern,) = re.findall(r"grep -o '(.*?)' secrets.sh", page)
    script = CliRunner().invoke(app, ["swarm", "secrets"]).stdout
    found = subprocess.run(["grep", "-o", pattern], input=script, capture_output=True, text=True, check=True).stdout
    assert re.fullmatch(r"redis://admin:[0-9a-f]{64}@redis:6379/0\n", found)


def compose() -> list[str]:
    """Returns the command that reads compose.yaml: docker's own, or the older one beside it."""
    for words in (["docker", "compose"], ["docker-compose"]):
        if (
            shutil.which(words[0])
            and subprocess.run([*words, "version"], check=False, capture_output=True).returncode == 0
        ):
            return words
    return skip("there is no docker compose: it reads compose.yaml")


def test_compose_reads_it() -> None:
    """By its own schema, without a daemon; and it would refuse a field that there is not."""
    words = [*compose(), "-f", "-", "config", "-q"]

    def reads(text: str) -> bool:
        return subprocess.run(words, check=False, input=text.encode(), capture_output=True, cwd=ROOT).returncode == 0

    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    assert reads(text)
    assert not reads(text.replace("read_only:", "readonly:"))


def test_a_laptop_has_what_it_builds() -> None:
    """compose.yaml: stages that there are, settings that there are, and a port for this machine alone."""
    services = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    for name, settings in SETTINGS.items():
        assert services[name]["build"]["target"] in stages()
        for variable in services[name]["environment"]:
            assert variable.removeprefix("REDBATCH_").lower() in settings.model_fields
    assert services["gateway"]["ports"] == ["127.0.0.1:8080:8080"]

"""The stack for Docker Swarm: rules that its schema does not see, and its schema if docker is installed."""

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

from api.dialects.request import MAX_TIMEOUT_MS
from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from redbatch.commands import app
from tests.deploy.checks.settings import SETTINGS, parse_settings
from tests.deploy.dockerfile import ROOT, environment, stages
from tests.deploy.swarm_stack import CPU, RESERVE, SHARDS, STACK, generated_secrets, maxmemory_bytes, resolve
from tests.servers import require_tool, skip

USER = "65532"


@pytest.fixture(scope="module")
def stack() -> dict[str, Any]:
    """Returns the stack with the defaults of all variables."""
    return resolve(STACK)


def seconds(duration: str) -> int:
    """Returns a duration such as 2m or 60s in s."""
    number, unit = re.fullmatch(r"(\d+)([sm])", duration).groups()  # type: ignore[union-attr]
    return int(number) * {"s": 1, "m": 60}[unit]


@pytest.mark.parametrize(
    "files",
    [[STACK], [STACK, RESERVE], [STACK, CPU], [STACK, SHARDS]],
    ids=["stack", "with GPUs reserved", "without GPUs", "with two Redis"],
)
def test_docker_accepts_the_stack(files: list[Path]) -> None:
    """Docker accepts the stack by its schema, without a daemon, and applies the variables of images and secrets."""
    named = [word for path in files for word in ("-c", path)]
    own = {
        "REDBATCH_REGISTRY": "here/",
        "REDBATCH_VERSION": "9.1",
        "REDBATCH_WORKER_VERSION": "9.2",
        "REDBATCH_WORKER_ORDER": "start-first",
        "REDBATCH_SECRETS": "_7",
    }
    ran = subprocess.run(
        [require_tool("docker", "it validates stacks"), "stack", "config", *named],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | own,
    )
    assert ran.returncode == 0, ran.stderr
    rendered = yaml.safe_load(ran.stdout)
    reserved = rendered["services"]["worker"]["deploy"]["resources"].get("reservations")
    assert (reserved is None) == (RESERVE not in files)
    devices = rendered["services"]["worker"]["environment"]["REDBATCH_DEVICES"]
    assert devices == ("cpu" if CPU in files else "all")
    assert rendered["services"]["worker"]["deploy"]["update_config"]["order"] == "start-first"
    images = [rendered["services"][name]["image"] for name in SETTINGS]
    assert images == ["here/redbatch-gateway:9.1", "here/redbatch-worker:9.2"]
    assert {each["name"].removesuffix("_7") for each in rendered["secrets"].values()} == set(rendered["secrets"])


def test_images_are_pinned(stack: dict[str, Any]) -> None:
    """Redis has an exact version, the other images that of the package, in the registry of a variable."""
    images = {name: service["image"] for name, service in stack["services"].items()}
    ours = {name: f"redbatch-{name}:{version('redbatch')}" for name in SETTINGS}
    assert images == {"redis": images["redis"], **ours}
    assert re.fullmatch(r"redis:\d+\.\d+\.\d+", images["redis"])
    assert STACK.read_text(encoding="utf-8").count("${REDBATCH_REGISTRY:-}redbatch-") == len(ours)


@pytest.mark.parametrize("name", SETTINGS)
def test_each_variable_is_a_setting(stack: dict[str, Any], name: str) -> None:
    """Each variable is a setting of its process with a valid value, and each file is a secret of the service."""
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


def test_gateways_require_an_api_key(stack: dict[str, Any]) -> None:
    """The published port requires API keys, because anyone can reach it."""
    assert stack["services"]["gateway"]["environment"]["REDBATCH_AUTH"] == "on"


def test_each_worker_has_a_unique_name(stack: dict[str, Any]) -> None:
    """A worker's id consists of its node and its task, and it uses all GPUs of the node."""
    given = stack["services"]["worker"]["environment"]
    assert given["REDBATCH_WORKER_ID"] == "{{.Node.Hostname}}-{{.Task.ID}}"
    assert (given["REDBATCH_DEVICES"], given["NVIDIA_VISIBLE_DEVICES"]) == ("all", "all")


def test_there_is_time_to_drain(stack: dict[str, Any]) -> None:
    """The grace periods of Swarm are longer than the drains by the settings, which cover the longest timeout."""
    given = {name: stack["services"][name]["environment"] for name in SETTINGS}
    gateway = parse_settings(given["gateway"], GatewaySettings)
    worker = parse_settings({**given["worker"], "REDBATCH_WORKER_ID": "host-1"}, WorkerSettings)
    grace = {name: seconds(stack["services"][name]["stop_grace_period"]) for name in SETTINGS}
    assert gateway.drain_grace_s * 1000 >= MAX_TIMEOUT_MS
    assert grace["gateway"] > gateway.drain_delay_s + gateway.drain_grace_s
    assert grace["worker"] > worker.drain_grace_s


def test_there_is_one_redis_that_keeps_its_data(stack: dict[str, Any]) -> None:
    """One Redis runs on the node with its data, with its own file of users, and never two at once."""
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
    assert maxmemory_bytes(service) <= 0.7 * gigabytes * 2**30


def test_the_second_redis_is_as_the_first(stack: dict[str, Any]) -> None:
    """Only its node and its volume are others, and both lists of Redis come from the secrets of the services."""
    shards = resolve(SHARDS)["services"]
    given = yaml.safe_dump(stack["services"]["redis"]).replace("redis:/data", "redis2:/data")
    assert shards["redis2"] == yaml.safe_load(given.replace("node.labels.redis ==", "node.labels.redis2 =="))
    for name in SETTINGS:
        file = stack["services"][name]["environment"]["REDBATCH_REDIS_URL_FILE"]
        assert shards[name]["environment"] == {
            "REDBATCH_REDIS_URL_FILE": "/dev/null",
            "REDBATCH_REDIS_SHARDS_FILE": file,
        }


def test_a_changed_file_has_another_name(stack: dict[str, Any]) -> None:
    """The name of a config contains a digest of its content, because Swarm configs are immutable."""
    digest = hashlib.sha256((STACK.parent / "redis.conf").read_bytes()).hexdigest()
    assert stack["configs"] == {"redis": {"name": f"redbatch_redis_conf_{digest[:8]}", "file": "./redis.conf"}}


def test_workers_go_where_gpus_are(stack: dict[str, Any]) -> None:
    """One worker runs on each labelled node, and stops before its successor starts: there is no second GPU."""
    deploy = stack["services"]["worker"]["deploy"]
    assert deploy["mode"] == "global"
    assert (deploy["update_config"]["parallelism"], deploy["update_config"]["failure_action"]) == (1, "rollback")
    assert deploy["placement"] == {"constraints": ["node.labels.gpu == true"]}
    assert deploy["update_config"]["order"] == "stop-first"
    for service in stack["services"].values():
        for each in service["deploy"].get("placement", {}).get("constraints", []):
            assert re.fullmatch(
                r"node\.labels\.[a-z]+ == [a-z]+", each
            )  # docker would accept `=`, but no node would match


def test_stopped_tasks_are_replaced_after_a_second(stack: dict[str, Any]) -> None:
    """The default delay of five seconds, and the time to load a model, are longer than the timeout of a request."""
    for service in stack["services"].values():
        assert service["deploy"]["restart_policy"] == {"condition": "any", "delay": "1s"}


def test_gateways_are_replaced_without_a_gap(stack: dict[str, Any]) -> None:
    """A new gateway starts before the old one stops, and a failure rolls back."""
    deploy = stack["services"]["gateway"]["deploy"]
    assert deploy["replicas"] == 2
    assert deploy["update_config"]["parallelism"] == 1
    assert (deploy["update_config"]["order"], deploy["update_config"]["failure_action"]) == ("start-first", "rollback")


def test_services_have_minimal_privileges(stack: dict[str, Any]) -> None:
    """Services have read-only files, no capabilities, a memory limit, external secrets and an internal network."""
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
    assert stack["secrets"] == {name: {"external": True, "name": name} for name in generated_secrets()}


def test_ports_are_those_of_the_images(stack: dict[str, Any]) -> None:
    """Only the gateway's HTTP port is published; admin ports are reachable from other containers."""
    assert stack["services"]["gateway"]["ports"] == [f"8080:{GatewaySettings().port}"]
    assert not [name for name, service in stack["services"].items() if name != "gateway" and "ports" in service]
    assert environment("gateway")["REDBATCH_ADMIN_HOST"] == "0.0.0.0"  # noqa: S104 - the image's


def test_the_documentation_uses_the_command_for_secrets() -> None:
    """docs/deploy.md creates secrets with the command, and extracts the URL for API keys from its output."""
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    assert "redbatch-gateway:0.1.0 swarm secrets > secrets.sh" in page
    assert "docker secret create" not in page
    (pattern,) = re.findall(r"grep -o '(.*?)' secrets.sh", page)
    script = CliRunner().invoke(app, ["swarm", "secrets"]).stdout
    found = subprocess.run(["grep", "-o", pattern], input=script, capture_output=True, text=True, check=True).stdout
    assert re.fullmatch(r"redis://admin:[0-9a-f]{64}@redis:6379/0\n", found)


def compose() -> list[str]:
    """Returns the command for compose.yaml: docker's plugin or the older docker-compose; skips without both."""
    for words in (["docker", "compose"], ["docker-compose"]):
        if (
            shutil.which(words[0])
            and subprocess.run([*words, "version"], check=False, capture_output=True).returncode == 0
        ):
            return words
    return skip("docker compose is not installed: it validates compose.yaml")


def test_compose_accepts_the_file() -> None:
    """Docker compose accepts compose.yaml by its schema, without a daemon, and refuses an unknown field."""
    words = [*compose(), "-f", "-", "config", "-q"]

    def accepts(text: str) -> bool:
        return subprocess.run(words, check=False, input=text.encode(), capture_output=True, cwd=ROOT).returncode == 0

    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    assert accepts(text)
    assert not accepts(text.replace("read_only:", "readonly:"))


def test_compose_uses_existing_stages_and_settings() -> None:
    """compose.yaml uses existing stages and settings, and publishes its port on this machine only."""
    services = resolve(ROOT / "compose.yaml")["services"]
    for name, settings in SETTINGS.items():
        assert services[name]["build"]["target"] in stages()
        for variable in services[name]["environment"]:
            assert variable.removeprefix("REDBATCH_").lower() in settings.model_fields
    assert services["gateway"]["ports"] == ["127.0.0.1:8080:8080"]


def test_compose_keeps_accepted_jobs() -> None:
    """The Redis of compose.yaml writes an append-only file, into a volume that outlives its container."""
    stack = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    command = stack["services"]["redis"]["command"]
    assert command[command.index("--appendonly") + 1] == "yes"
    (mount,) = stack["services"]["redis"]["volumes"]
    volume, _, folder = mount.partition(":")
    assert folder == "/data"
    assert volume in stack["volumes"]


def test_compose_bounds_the_memory_of_redis() -> None:
    """The Redis of compose.yaml evicts nothing, and has a maxmemory, which leaves memory for the copy of a fork."""
    service = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]["redis"]
    command = service["command"]
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"
    megabytes = int(service["deploy"]["resources"]["limits"]["memory"].removesuffix("M"))
    assert 0 < maxmemory_bytes(service) <= 0.7 * megabytes * 2**20

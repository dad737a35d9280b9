"""The stack for Docker Swarm: what its schema does not see, and its schema where there is a docker to ask."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
import redis.exceptions
import yaml
from typer.testing import CliRunner

from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from redbatch.commands import app
from shared.settings import QueueSettings
from tests.deploy.dockerfile import ROOT, environment, stages
from tests.servers import server_binary
from tests.waiting import wait_until

STACK, RESERVE = ROOT / "swarm" / "stack.yml", ROOT / "swarm" / "stack.gpu-reserve.yml"
OURS: dict[str, type[QueueSettings]] = {"gateway": GatewaySettings, "worker": WorkerSettings}


@pytest.fixture(scope="module")
def stack() -> dict[str, Any]:
    """The stack as it stands in its file."""
    found: dict[str, Any] = yaml.safe_load(STACK.read_text(encoding="utf-8"))
    return found


def seconds(duration: str) -> int:
    """Returns the seconds of a duration such as 2m or 60s."""
    number, unit = re.fullmatch(r"(\d+)([sm])", duration).groups()  # type: ignore[union-attr]
    return int(number) * {"s": 1, "m": 60}[unit]


@pytest.mark.skipif(shutil.which("docker") is None, reason="there is no docker to ask")
@pytest.mark.parametrize("files", [[STACK], [STACK, RESERVE]], ids=["stack", "with GPUs reserved"])
def test_docker_reads_it(files: list[Path]) -> None:
    """By its own schema, without a daemon."""
    named = [word for path in files for word in ("-c", path)]
    ran = subprocess.run(["docker", "stack", "config", *named], check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    reserved = yaml.safe_load(ran.stdout)["services"]["worker"]["deploy"]["resources"].get("reservations")
    assert (reserved is None) == (files == [STACK])


def test_images_have_a_version(stack: dict[str, Any]) -> None:
    """And ours that of the package."""
    version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert version is not None
    for name, service in stack["services"].items():
        image = service["image"].removeprefix("${REDBATCH_REGISTRY:-}")
        assert re.fullmatch(r"[a-z-]+:\d[\w.-]+", image)
        assert (name in OURS) == (image == f"redbatch-{name}:{version[1]}") == (image != service["image"])


def test_what_is_set_is_a_setting(stack: dict[str, Any]) -> None:
    """Of the process that it is set for; and each file that is named is a secret of that service."""
    for name, settings in OURS.items():
        service = stack["services"][name]
        for variable, value in service["environment"].items():
            if variable.startswith("REDBATCH_"):
                field = variable.removeprefix("REDBATCH_").removesuffix("_FILE").lower()
                assert field in settings.model_fields
                files = [f"/run/secrets/{each['source']}" for each in service["secrets"]]
                assert not variable.endswith("_FILE") or value in files
        assert {each["uid"] for each in service["secrets"]} == {"65532"}


def test_there_is_time_to_drain(stack: dict[str, Any]) -> None:
    """Before Swarm kills: longer than each takes by its settings."""
    given = stack["services"]["gateway"]["environment"]
    gateway, worker = GatewaySettings(drain_grace_s=given["REDBATCH_DRAIN_GRACE_S"]), WorkerSettings()
    grace = {name: seconds(stack["services"][name]["stop_grace_period"]) for name in OURS}
    assert grace["gateway"] > gateway.drain_delay_s + gateway.drain_grace_s
    assert grace["worker"] > worker.drain_grace_s


def test_workers_go_where_gpus_are(stack: dict[str, Any]) -> None:
    """One on each labelled node, and the old one leaves before the new one comes: there is no second GPU."""
    deploy = stack["services"]["worker"]["deploy"]
    assert deploy["mode"] == "global"
    assert deploy["placement"] == {"constraints": ["node.labels.gpu == true"]}
    assert deploy["update_config"]["order"] == "stop-first"
    for service in stack["services"].values():
        for each in service["deploy"].get("placement", {}).get("constraints", []):
            assert re.fullmatch(r"node\.labels\.[a-z]+ == [a-z]+", each)  # `=` would be taken, and never met


def test_gateways_are_replaced_without_a_gap(stack: dict[str, Any]) -> None:
    """The new one first; back to the old one if it fails."""
    deploy = stack["services"]["gateway"]["deploy"]
    assert deploy["replicas"] == 2
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
    for name, secret in stack["secrets"].items():
        assert secret == {"external": True, "name": f"{name}${{REDBATCH_SECRETS:-}}"}
    assert sorted(stack["secrets"]) == sorted(made_secrets())


def test_ports_are_those_of_the_images(stack: dict[str, Any]) -> None:
    """The one that is published is the gateway's; the admin port can be reached from other containers."""
    assert stack["services"]["gateway"]["ports"] == [f"8080:{GatewaySettings().port}"]
    assert environment("gateway")["REDBATCH_ADMIN_HOST"] == "0.0.0.0"  # noqa: S104 - the image's


def made_secrets() -> dict[str, str]:
    """Returns what `redbatch swarm secrets` has docker keep, by name."""
    script = CliRunner().invoke(app, ["swarm", "secrets"]).stdout
    found = re.findall(r"^docker secret create (\S+) - <<'(\w+)'\n(.*?)^\2$", script, re.DOTALL | re.MULTILINE)
    return {name: text for name, _, text in found}


@pytest.mark.redis
async def test_redis_takes_its_file(tmp_path: Path, needs_redis: Callable[[str], None]) -> None:
    """It refuses what it has no room for, and writes down the rest. Who has no password may ask whether it lives."""
    needs_redis("7.0")
    socket = tmp_path / "redis.sock"
    acl = tmp_path / "users.acl"
    made = made_secrets()
    acl.write_text(f"{made['redbatch_redis_acl']}user observer on nopass +config|get\n", encoding="utf-8")
    text = (ROOT / "swarm" / "redis.conf").read_text(encoding="utf-8")
    text = text.replace("dir /data", f"dir {tmp_path}").replace("/run/secrets/redis/users.acl", str(acl))
    (tmp_path / "redis.conf").write_text(f"{text}\nport 0\nunixsocket {socket}\n", encoding="utf-8")
    server = subprocess.Popen([server_binary(), tmp_path / "redis.conf"], stdout=subprocess.DEVNULL)
    try:
        await wait_until(socket.exists, "Redis listens")
        for name in OURS:
            where = urlsplit(made[f"redbatch_{name}_redis_url"].strip())
            assert (where.scheme, where.username, where.hostname, where.port) == ("redis", name, "redis", 6379)
            with as_user(socket, name, str(where.password)) as client:
                assert client.execute_command("TIME")
        with as_user(socket, "observer", "any") as observer:
            asked = ("maxmemory-policy", "appendonly", "appendfsync", "maxmemory", "stream-node-max-entries", "save")
            found = [observer.config_get(each)[each] for each in asked]
            assert found == ["noeviction", "yes", "everysec", str(1_400 * 2**20), "4", ""]
        with as_user(socket, "probe", "probe") as probe:
            assert probe.ping()
            with pytest.raises(redis.exceptions.NoPermissionError):
                probe.get("rb:queues")
        with (
            redis.Redis(unix_socket_path=str(socket), protocol=2) as nobody,
            pytest.raises(redis.AuthenticationError),
        ):
            nobody.ping()
    finally:
        server.terminate()
        server.wait(10)


def as_user(socket: Path, user: str, password: str) -> redis.Redis:
    """Returns a client of that user."""
    return redis.Redis(
        unix_socket_path=str(socket), username=user, password=password, protocol=2, decode_responses=True
    )


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
    """Returns the command that reads compose.yaml, if there is one: docker's own, or the older one beside it."""
    for words in (["docker", "compose"], ["docker-compose"]):
        if (
            shutil.which(words[0])
            and subprocess.run([*words, "version"], check=False, capture_output=True).returncode == 0
        ):
            return words
    return []


@pytest.mark.skipif(not compose(), reason="there is no docker compose to ask")
def test_compose_reads_it() -> None:
    """By its own schema, without a daemon; and it would refuse a field that there is not."""

    def reads(text: str) -> bool:
        words = [*compose(), "-f", "-", "config", "-q"]
        return subprocess.run(words, check=False, input=text.encode(), capture_output=True, cwd=ROOT).returncode == 0

    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    assert reads(text)
    assert not reads(text.replace("read_only:", "readonly:"))


def test_a_laptop_has_what_it_builds() -> None:
    """compose.yaml: stages that there are, settings that there are, and a port for this machine alone."""
    services = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    for name, settings in OURS.items():
        assert services[name]["build"]["target"] in stages()
        for variable in services[name]["environment"]:
            assert variable.removeprefix("REDBATCH_").lower() in settings.model_fields
    assert services["gateway"]["ports"] == ["127.0.0.1:8080:8080"]

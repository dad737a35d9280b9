"""The command, variables, mounted files and ports of a container, derived from its manifest and its image.

Unsupported fields raise AssertionError, so that no manifest passes because the simulation ignores a part of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.deploy.dockerfile import PATH, chain, environment
from tests.deploy.manifests import Manifest, label, named, pod_labels, pod_of

EVERYWHERE = "0.0.0.0"  # noqa: S104 - the address that images listen on
INIT = ["tini", "--"]
PROBES = {"startupProbe", "readinessProbe", "livenessProbe"}
SIMULATED_KEYS = {"name", "image", "command", "args", "env", "envFrom", "ports", "volumeMounts", "lifecycle"} | PROBES
IGNORED_KEYS = {"resources", "securityContext"}
"""Fields that do not apply to a process on this machine; other tests check them."""


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """Fields of one pod, as the downward API provides them by their paths."""

    name: str
    namespace: str
    address: str
    account: str
    labels: Mapping[str, str]

    @classmethod
    def of(cls, workload: Manifest, number: int, address: str) -> PodIdentity:
        """Returns the identity of a workload's pod."""
        about = workload["metadata"]
        account = pod_of(workload).get("serviceAccountName", "default")
        return cls(f"{about['name']}-{number}", about["namespace"], address, account, pod_labels(workload))

    def field(self, path: str) -> str:
        """Returns a field by its path. Raises AssertionError: there is no such field."""
        fields = {
            "metadata.name": self.name,
            "metadata.namespace": self.namespace,
            "spec.nodeName": "node",
            "spec.serviceAccountName": self.account,
            "status.podIP": self.address,
            **{f"metadata.labels['{name}']": value for name, value in self.labels.items()},
        }
        assert path in fields, f"a pod has no field {path}"
        return fields[path]


@dataclass(frozen=True, slots=True)
class Command:
    """The words of a command, and its environment variables."""

    words: list[str]
    env: Mapping[str, str]


def require_known_keys(given: Manifest, keys: set[str], what: str) -> None:
    """Raises AssertionError: a mapping has a key that the simulation does not support."""
    assert not given.keys() - keys, f"{what}: {sorted(given.keys() - keys)} cannot be simulated"


def container_of(workload: Manifest) -> Manifest:
    """Returns the single container of a workload's pods. Raises AssertionError: a field is not supported."""
    pod = pod_of(workload)
    (found,) = pod["containers"]
    assert "initContainers" not in pod, f"{label(workload)}: initContainers are not simulated"
    require_known_keys(found, SIMULATED_KEYS | IGNORED_KEYS, label(workload))
    result: Manifest = found
    return result


def port_of(container: Manifest, port: int | str) -> int | None:
    """Returns the number of a port, which may be given by name; None if no port has that name."""
    if isinstance(port, int):
        return port
    ports = {each["name"]: each["containerPort"] for each in container.get("ports", [])}
    return ports.get(port)


def command_of(
    manifests: list[Manifest], workload: Manifest, identity: PodIdentity, folder: Path, image: Mapping[str, str]
) -> Command:
    """Returns the command of a pod's container.

    Args:
        manifests: include ConfigMaps and Secrets.
        workload: the owner of the pod.
        identity: the pod's.
        folder: an empty folder for the mounted files.
        image: variables of the image that differ from those in the Dockerfile.
    """
    container, mounts = container_of(workload), mount_secrets(manifests, workload, folder)

    def here(text: str) -> str:
        assert "$(" not in text, f"{text}: variables are not expanded"
        for path, at in mounts.items():
            if text.startswith(f"{path}/"):
                return text.replace(path, str(at), 1)
        return text.replace(EVERYWHERE, identity.address)

    # The other variables of an image are paths inside the image: of its Python and its models.
    env = {name: value for name, value in environment(stage_of(container)).items() if name.startswith("REDBATCH_")}
    env |= {**image, **variables(manifests, container, identity)}
    return Command([here(each) for each in words(container)], {name: here(value) for name, value in env.items()})


def stage_of(container: Manifest) -> str:
    """Returns the stage of the Dockerfile that builds a container's image, by the commands at the top of the file."""
    built = {tag: stage for stage, tag in re.findall(r"--target (\S+) +-t (\S+)", PATH.read_text(encoding="utf-8"))}
    assert container["image"] in built, f"{container['image']} is not one of {sorted(built)}"
    return str(built[container["image"]])


def words(container: Manifest) -> list[str]:
    """Returns the words of a container's command without the init in front, which would only have the same child here.

    `command` replaces the image's ENTRYPOINT and its CMD; `args` replaces CMD.
    """
    stages = chain(stage_of(container))
    (entrypoint,) = [json.loads(each) for stage in stages for each in stage.values("ENTRYPOINT")]
    (default,) = [json.loads(each) for stage in stages for each in stage.values("CMD")]
    command, args = container.get("command"), container.get("args")
    found: list[str] = [*(command or entrypoint), *(args or ([] if command else default))]
    found = found[len(INIT) :] if found[: len(INIT)] == INIT else found
    assert found[0] == "redbatch", f"{found[0]} is not redbatch"
    assert not any(re.search(r"\s", each) for each in found), found
    return found


def variables(manifests: list[Manifest], container: Manifest, identity: PodIdentity) -> dict[str, str]:
    """Returns the variables of a container's manifest: those of ConfigMaps, overridden by its own."""
    found: dict[str, str] = {}
    for each in container.get("envFrom", []):
        require_known_keys(each, {"configMapRef"}, "envFrom")
        found |= named(manifests, "ConfigMap", each["configMapRef"]["name"])["data"]
    for each in container.get("env", []):
        if "value" in each:
            found[each["name"]] = each["value"]
            continue
        require_known_keys(each["valueFrom"], {"fieldRef"}, f"valueFrom of {each['name']}")
        found[each["name"]] = identity.field(each["valueFrom"]["fieldRef"]["fieldPath"])
    return found


def mount_secrets(manifests: list[Manifest], workload: Manifest, folder: Path) -> dict[str, Path]:
    """Writes the files of the Secrets that a pod's container mounts; returns their folders by the mount paths.

    An emptyDir is the same path on this machine.
    """
    volumes = {each["name"]: each for each in pod_of(workload).get("volumes", [])}
    found: dict[str, Path] = {}
    for mount in container_of(workload).get("volumeMounts", []):
        require_known_keys(mount, {"name", "mountPath", "readOnly"}, f"mount {mount['name']}")
        volume = volumes[mount["name"]]
        require_known_keys(volume, {"name", "secret", "emptyDir"}, f"volume {mount['name']}")
        if "secret" in volume:
            found[mount["mountPath"]] = at = folder / mount["name"]
            write_secret(manifests, volume["secret"], at)
    return found


def write_secret(manifests: list[Manifest], volume: Manifest, folder: Path) -> None:
    """Writes the files of a volume of a Secret: all its keys, or the listed items."""
    require_known_keys(volume, {"secretName", "items", "defaultMode"}, f"secret {volume['secretName']}")
    values = named(manifests, "Secret", volume["secretName"])["stringData"]
    shown = volume.get("items", [{"key": key, "path": key} for key in values])
    for item in shown:
        assert item["key"] in values, f"secret {volume['secretName']} has no {item['key']}"
        path = folder / item["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(values[item["key"]], encoding="utf-8")

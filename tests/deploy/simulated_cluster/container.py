"""What Kubernetes has a container run, by its manifest and its image: words, variables, mounted files, and its ports.

What is not played raises AssertionError: a manifest that asks for more than the play knows is not to pass by it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.deploy.dockerfile import PATH, chain, environment
from tests.deploy.manifests import Manifest, label, named, pod_labels, pod_of

EVERYWHERE = "0.0.0.0"  # noqa: S104 - what images listen on
INIT = ["tini", "--"]
PROBES = {"startupProbe", "readinessProbe", "livenessProbe"}
PLAYED = {"name", "image", "command", "args", "env", "envFrom", "ports", "volumeMounts", "lifecycle"} | PROBES
ELSEWHERE = {"resources", "securityContext"}
"""What no process here can be given; other tests look at it."""


@dataclass(frozen=True, slots=True)
class Place:
    """What only a pod itself knows of itself: its fields are told by their paths in the API."""

    name: str
    namespace: str
    address: str
    account: str
    labels: Mapping[str, str]

    @classmethod
    def of(cls, workload: Manifest, number: int, address: str) -> Place:
        """Returns that of a workload's pod."""
        about = workload["metadata"]
        account = pod_of(workload).get("serviceAccountName", "default")
        return cls(f"{about['name']}-{number}", about["namespace"], address, account, pod_labels(workload))

    def field(self, path: str) -> str:
        """Returns one of its fields."""
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
class Run:
    """What is run: the words of a command, and its variables."""

    words: list[str]
    env: Mapping[str, str]


def known(given: Manifest, keys: set[str], what: str) -> None:
    """Raises AssertionError: something has a key that the play does not know."""
    assert not given.keys() - keys, f"{what}: {sorted(given.keys() - keys)} cannot be played"


def container_of(workload: Manifest) -> Manifest:
    """Returns the one container of a workload's pods."""
    pod = pod_of(workload)
    (found,) = pod["containers"]
    assert "initContainers" not in pod, f"{label(workload)}: no init is played"
    known(found, PLAYED | ELSEWHERE, label(workload))
    result: Manifest = found
    return result


def port_of(container: Manifest, port: int | str) -> int | None:
    """Returns the number of a port, which may be called by its name; None if nothing is called so."""
    if isinstance(port, int):
        return port
    ports = {each["name"]: each["containerPort"] for each in container.get("ports", [])}
    return ports.get(port)


def run_of(manifests: list[Manifest], workload: Manifest, place: Place, folder: Path, image: Mapping[str, str]) -> Run:
    """Returns what a pod's container runs.

    Args:
        manifests: with ConfigMaps and Secrets.
        workload: whose pod it is.
        place: the pod's.
        folder: an empty one, for the files that it mounts.
        image: variables that another image would have than that of the Dockerfile.
    """
    container, mounts = container_of(workload), mounted(manifests, workload, folder)

    def here(text: str) -> str:
        assert "$(" not in text, f"{text}: no variable is expanded"
        for path, at in mounts.items():
            if text.startswith(f"{path}/"):
                return text.replace(path, str(at), 1)
        return text.replace(EVERYWHERE, place.address)

    # All else in an image's environment is of its own files: where its Python is, and its models.
    env = {name: value for name, value in environment(stage_of(container)).items() if name.startswith("REDBATCH_")}
    env |= {**image, **variables(manifests, container, place)}
    return Run([here(each) for each in words(container)], {name: here(value) for name, value in env.items()})


def stage_of(container: Manifest) -> str:
    """Returns which stage of the Dockerfile a container's image is built from, by the commands in its head."""
    built = {tag: stage for stage, tag in re.findall(r"--target (\S+) +-t (\S+)", PATH.read_text(encoding="utf-8"))}
    assert container["image"] in built, f"{container['image']} is none of {sorted(built)}"
    return str(built[container["image"]])


def words(container: Manifest) -> list[str]:
    """Returns the words of a container's command, but for the init in front: here it would have one child too.

    `command` takes the place of the image's ENTRYPOINT, and of its CMD as well; `args` that of CMD.
    """
    stages = chain(stage_of(container))
    (entrypoint,) = [json.loads(each) for stage in stages for each in stage.values("ENTRYPOINT")]
    (default,) = [json.loads(each) for stage in stages for each in stage.values("CMD")]
    command, args = container.get("command"), container.get("args")
    found: list[str] = [*(command or entrypoint), *(args or ([] if command else default))]
    found = found[len(INIT) :] if found[: len(INIT)] == INIT else found
    assert found[0] == "redbatch", f"{found[0]} is not what runs here"
    assert not any(re.search(r"\s", each) for each in found), found
    return found


def variables(manifests: list[Manifest], container: Manifest, place: Place) -> dict[str, str]:
    """Returns the variables that a container's manifest gives it: of ConfigMaps first, then its own."""
    found: dict[str, str] = {}
    for each in container.get("envFrom", []):
        known(each, {"configMapRef"}, "envFrom")
        found |= named(manifests, "ConfigMap", each["configMapRef"]["name"])["data"]
    for each in container.get("env", []):
        if "value" in each:
            found[each["name"]] = each["value"]
            continue
        known(each["valueFrom"], {"fieldRef"}, f"valueFrom of {each['name']}")
        found[each["name"]] = place.field(each["valueFrom"]["fieldRef"]["fieldPath"])
    return found


def mounted(manifests: list[Manifest], workload: Manifest, folder: Path) -> dict[str, Path]:
    """Writes the files that a pod's container has of Secrets; returns their folders by those in the container.

    Its empty folders are this machine's.
    """
    volumes = {each["name"]: each for each in pod_of(workload).get("volumes", [])}
    found: dict[str, Path] = {}
    for mount in container_of(workload).get("volumeMounts", []):
        known(mount, {"name", "mountPath", "readOnly"}, f"mount {mount['name']}")
        volume = volumes[mount["name"]]
        known(volume, {"name", "secret", "emptyDir"}, f"volume {mount['name']}")
        if "secret" in volume:
            found[mount["mountPath"]] = at = folder / mount["name"]
            write_secret(manifests, volume["secret"], at)
    return found


def write_secret(manifests: list[Manifest], volume: Manifest, folder: Path) -> None:
    """Writes the files of a volume that shows a Secret: all of it, or those that it names."""
    known(volume, {"secretName", "items", "defaultMode"}, f"secret {volume['secretName']}")
    values = named(manifests, "Secret", volume["secretName"])["stringData"]
    shown = volume.get("items", [{"key": key, "path": key} for key in values])
    for item in shown:
        assert item["key"] in values, f"secret {volume['secretName']} has no {item['key']}"
        path = folder / item["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(values[item["key"]], encoding="utf-8")

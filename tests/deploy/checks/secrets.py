"""Ways to Redis that lead nowhere: files that no secret has, keys that it has not, addresses that are not Redis'."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from redbatch.redis_users import k8s
from redbatch.redis_users.passwords import Access, Redis, new_access
from tests.deploy.manifests import Manifest, config_of, containers, label, objects, of_kind, pod_of, workloads

MOUNTED = "/run/secrets/"
OF_CERTIFICATES = {"ca.crt", "tls.crt", "tls.key"}


def made(access: Access) -> dict[str, dict[str, str]]:
    """Returns what is in the secrets that `redbatch k8s secrets --tls` makes, by their names."""
    found = objects(k8s.manifests("redbatch", access, Redis("redis", 6379, tls=True)))
    return {each["metadata"]["name"]: each["stringData"] for each in of_kind(found, "Secret")}


MADE_BEFORE: Mapping[str, Mapping[str, str]] = made(new_access())


def secrets_of(manifests: list[Manifest]) -> dict[str, set[str]]:
    """Returns the keys of all secrets that there are: of those that are made before, and of certificates."""
    made = {name: set(values) for name, values in MADE_BEFORE.items()}
    return made | {each["spec"]["secretName"]: OF_CERTIFICATES for each in of_kind(manifests, "Certificate")}


def astray(manifests: list[Manifest]) -> list[str]:
    """Returns files and keys of secrets that there are not, and URLs that do not lead to Redis."""
    found = [f"{label(each)}: {fault}" for each in workloads(manifests) for fault in _files(manifests, each)]
    found += [
        f"{label(each)}: the secret {target['name']} has no {target['key']}"
        for each in of_kind(manifests, "TriggerAuthentication")
        for target in each["spec"]["secretTargetRef"]
        if target["key"] not in secrets_of(manifests).get(target["name"], ())
    ]
    return found + _addresses(manifests)


def _files(manifests: list[Manifest], workload: Manifest) -> Iterator[str]:
    pod = pod_of(workload)
    secrets = {each["name"]: each["secret"]["secretName"] for each in pod.get("volumes", []) if "secret" in each}
    for container in containers(pod):
        there = {
            f"{mount['mountPath']}/{key}"
            for mount in container.get("volumeMounts", [])
            for key in secrets_of(manifests).get(secrets.get(mount["name"], ""), ())
        }
        values = config_of(manifests, container)
        words = [*values.values(), *container.get("command", []), *container.get("args", [])]
        yield from (f"there is no {word}" for word in words if word.startswith(MOUNTED) and word not in there)


def _addresses(manifests: list[Manifest]) -> list[str]:
    """Returns where the URLs of the secrets lead that is no port of the Service."""
    url = urlsplit(MADE_BEFORE["gateway-redis"]["url"])
    services = {each["metadata"]["name"]: each["spec"]["ports"] for each in of_kind(manifests, "Service")}
    ports = [port["port"] for port in services.get(str(url.hostname), [])]
    return [] if url.port in ports else [f"Redis is to be at {url.hostname}:{url.port}, and there is {services}"]

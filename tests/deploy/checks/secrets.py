"""Access to Redis: files and keys that a Secret has, no secret in a variable, URLs of the Service, and certificates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from redbatch.redis_users import k8s
from redbatch.redis_users.passwords import Credentials, RedisAddress, new_credentials, pods_with_sentinels
from shared.redis_url import parse_url
from tests.deploy.manifests import (
    SENTINEL,
    Manifest,
    component_of,
    config_of,
    containers,
    has_sentinels,
    label,
    objects,
    of_kind,
    pod_of,
    uses_redis_cluster,
    workloads,
)

MOUNTED = "/run/secrets/"
MODE = 0o440
TLS_FILES = {"ca": "ca.crt", "cert": "tls.crt", "key": "tls.key"}
SERVER_NAMES = {"redis", "redis.redbatch.svc", "localhost"}
"""Names under which clients, KEDA and the pod's own probes reach Redis."""

USAGES = {"redis-ca": set[str](), "redis": {"server auth", "client auth"}}
"""Extended usages; Redis is a client too in its own probes. All other certificates are of clients."""

SERVICE = RedisAddress("redis", 6379, tls=True)
"""As with `redbatch k8s secrets --tls`."""

VOLUMES = {"gateway": "gateway-redis", "worker": "worker-redis", "redis": "redis-users"}
"""The Secret under /run/secrets/redis by component: each process has its own Redis user."""


def generated_secrets(access: Credentials, redis: RedisAddress = SERVICE) -> dict[str, dict[str, str]]:
    """Returns the content of the Secrets that `redbatch k8s secrets` makes, by their names."""
    found = objects(k8s.manifests("redbatch", access, redis))
    return {each["metadata"]["name"]: each["stringData"] for each in of_kind(found, "Secret")}


GENERATED: Mapping[str, Mapping[str, str]] = generated_secrets(new_credentials())
WITH_SENTINELS: Mapping[str, Mapping[str, str]] = generated_secrets(
    new_credentials(None, pods_with_sentinels("redbatch").users), pods_with_sentinels("redbatch")
)


def secret_keys(manifests: list[Manifest]) -> dict[str, set[str]]:
    """Returns the keys of all Secrets by name: of those that are generated beforehand, and of certificates."""
    generated = WITH_SENTINELS if has_sentinels(manifests) else GENERATED
    keys = {name: set(values) for name, values in generated.items()}
    return keys | {each["spec"]["secretName"]: set(TLS_FILES.values()) for each in of_kind(manifests, "Certificate")}


def check(manifests: list[Manifest]) -> Iterator[str]:
    """Yields files and keys that no Secret has, secrets in variables, and URLs that do not lead to Redis' Service."""
    keys, certificates = secret_keys(manifests), of_kind(manifests, "Certificate")
    for each in workloads(manifests):
        yield from (f"{label(each)}: {fault}" for fault in _faults(manifests, each, keys))
    for each in certificates:
        yield from (f"{label(each)}: {fault}" for fault in _certificate_faults(each["spec"], each["metadata"]["name"]))
    expected = {"username": "username", "password": "password"} | ({"tls": "tls", **TLS_FILES} if certificates else {})
    for each in of_kind(manifests, "TriggerAuthentication"):
        if {target["parameter"]: target["key"] for target in each["spec"]["secretTargetRef"]} != expected:
            yield f"{label(each)}: secretTargetRef is not {expected}"
        for target in each["spec"]["secretTargetRef"]:
            if target["key"] not in keys.get(target["name"], ()):
                yield f"{label(each)}: the Secret {target['name']} has no key {target['key']}"
    services = {each["metadata"]["name"]: each["spec"]["ports"] for each in of_kind(manifests, "Service")}
    if has_sentinels(manifests):
        yield from _sentinel_faults(manifests, services)
    if has_sentinels(manifests) or uses_redis_cluster(manifests):
        return
    url = urlsplit(GENERATED["gateway-redis"]["url"])
    if url.port not in [port["port"] for port in services.get(str(url.hostname), [])]:
        yield f"Service {url.hostname}: it has no port {url.port}, which the URLs of Redis name"


def _sentinel_faults(manifests: list[Manifest], services: Mapping[str, object]) -> Iterator[str]:
    """Clients ask the sentinels at the names of the pods: the Service of a single Redis would lead to replicas too."""
    if "redis" in services:
        yield "Service redis: it leads to replicas"
    (workload,) = of_kind(manifests, "StatefulSet")
    domain = f"{workload['spec']['serviceName']}.{workload['metadata']['namespace']}.svc"
    pods = [f"{workload['metadata']['name']}-{i}.{domain}" for i in range(workload["spec"].get("replicas", 1))]
    (port,) = (each["ports"][0]["containerPort"] for each in pod_of(workload)["containers"] if each["name"] == SENTINEL)
    nodes = [f"{node.host}:{node.port}" for node in parse_url(WITH_SENTINELS["gateway-redis"]["url"]).nodes]
    if nodes != [f"{pod}:{port}" for pod in pods]:
        yield f"{label(workload)}: replicas: its sentinels are not those of the URL: {nodes}"


def _faults(manifests: list[Manifest], workload: Manifest, keys: Mapping[str, set[str]]) -> Iterator[str]:
    secrets = {each["name"]: each["secret"] for each in pod_of(workload).get("volumes", []) if "secret" in each}
    for each in secrets.values():
        if each.keys() != {"secretName", "defaultMode"} or each["defaultMode"] != MODE:
            yield f"its secret volume has other fields than secretName and defaultMode 0440: {each}"
    for container in containers(pod_of(workload)):
        if any("secretRef" in each for each in container.get("envFrom", [])) or any(
            "secretKeyRef" in each.get("valueFrom", {}) for each in container.get("env", [])
        ):
            yield "a secret is in its environment, not in a file"
        mounts = {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts", [])}
        volume = secrets.get(mounts.get(f"{MOUNTED}redis", ""), {})
        if container["name"] != SENTINEL and volume.get("secretName") != VOLUMES.get(component_of(workload)):
            yield f"secretName: {MOUNTED}redis is not the Secret of its Redis user"
        files = {
            f"{path}/{key}"
            for path, name in mounts.items()
            for key in keys.get(secrets.get(name, {}).get("secretName", ""), ())
        }
        values = config_of(manifests, container)
        expected = {"REDBATCH_REDIS_URL_FILE": "url"}
        if of_kind(manifests, "Certificate"):
            expected |= {f"REDBATCH_REDIS_TLS_{name.upper()}": file for name, file in TLS_FILES.items()}
        found = {name: path.rpartition("/")[2] for name, path in values.items() if "_REDIS_" in name}
        if workload["kind"] == "Deployment" and found != expected:
            yield f"its files for Redis are {found}, not {expected}"
        words = [*values.values(), *container.get("command", []), *container.get("args", [])]
        yield from (f"there is no file {word}" for word in words if word.startswith(MOUNTED) and word not in files)


def _certificate_faults(spec: Manifest, name: str) -> Iterator[str]:
    if {usage for usage in spec.get("usages", []) if " auth" in usage} != USAGES.get(name, {"client auth"}):
        yield "its usages are not those of its role"
    if name == "redis" and not set(spec.get("dnsNames", [])) >= SERVER_NAMES:
        yield f"dnsNames lacks one of {sorted(SERVER_NAMES)}"
    renew, duration = (re.fullmatch(r"(\d+)h", spec.get(key, "0h")) for key in ("renewBefore", "duration"))
    if renew is None or duration is None:
        yield "renewBefore or duration is not in hours: cert-manager reads no days"
    elif int(renew[1]) * 2 > int(duration[1]):
        yield "renewBefore: it is renewed in the first half of its duration, or at once"

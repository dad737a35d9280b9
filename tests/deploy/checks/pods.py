"""What gateways, workers and Redis are as workloads: the shapes of their specs."""

from __future__ import annotations

import re
from importlib.metadata import version

from tests.deploy.checks.shapes import By, Shape, between, cores, quantity
from tests.deploy.manifests import Manifest, component_of, containers, pod_of

OURS, OF_REDIS = 65532, 999
"""Users: that of the images, and that of Redis' image."""

CONTEXT = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ("ALL",)},
}
"""What a container may: with its pod's, less than the Pod Security Standard `restricted` allows."""

TLS = "/run/secrets/redis-tls/"
GPU_NAMES = ("nvidia.com/gpu", "nvidia.com/gpu.shared")
MOUNTS = {"/tmp": {"name": "tmp"}}  # noqa: S108 - the pod's own


def pod_context(user: int) -> Shape:
    """Returns what the pod of a user may; its group owns files of secrets, which are 0440."""
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _labels(component: str) -> Shape:
    of_instance = {"app.kubernetes.io/instance": re.compile("[a-z0-9-]+")} if component == "worker" else {}
    return {"app.kubernetes.io/name": "redbatch", "app.kubernetes.io/component": component, **of_instance}


def _secret(name: str) -> Shape:
    return {"secret": {"secretName": name, "defaultMode": 0o440}}


def _field(path: str) -> Shape:
    return {"valueFrom": {"fieldRef": {"fieldPath": path}}}


def _http(path: str) -> Shape:
    return _probe({"httpGet": {"path": path, "port": "admin"}})


def _probe(asks: Shape) -> Shape:
    return {
        **asks,
        "periodSeconds": between(1, 30),
        "timeoutSeconds?": between(1, 30),
        "failureThreshold": between(1, 600),
    }


def _pod(component: str, user: int, container: Shape, volumes: Shape) -> Shape:
    return {
        "serviceAccountName": re.compile(rf"{component}(-[a-z0-9-]+)?"),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_context(user),
        "terminationGracePeriodSeconds": between(30, 3600),
        "containers": ({"name": component, "securityContext": CONTEXT, **container},),
        "volumes": By("name", {"tmp": {"emptyDir": {"sizeLimit": quantity("16Mi", "8Gi")}}, **volumes}),
    }


def _ours(component: str, probes: tuple[str, str], container: Shape, pod: Shape, *, tls: bool) -> Shape:
    """Returns the pod of a gateway or worker: its way to Redis, by TLS or in the clear, and what is its own."""
    files = {"REDBATCH_REDIS_URL_FILE": {"value": "/run/secrets/redis/url"}}
    mounts = {**MOUNTS, "/run/secrets/redis": {"name": "redis", "readOnly": True}, **container.pop("mounts", {})}
    volumes = {"redis": _secret(f"{component}-redis"), **pod.pop("volumes", {})}
    if tls:
        names = {"CA": "ca.crt", "CERT": "tls.crt", "KEY": "tls.key"}
        files |= {f"REDBATCH_REDIS_TLS_{name}": {"value": TLS + file} for name, file in names.items()}
        mounts[TLS.removesuffix("/")] = {"name": "tls", "readOnly": True}
        volumes["tls"] = _secret(f"{component}-redis-tls")
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": _labels(component)},
    }
    its = {
        "envFrom": ({"configMapRef": {"name": re.compile(rf"{component}-[a-z0-9-]+")}},),
        "env": By("name", files | container.pop("env", {})),
        "ports": By("name", {name: {"containerPort": between(1024, 65535)} for name in container.pop("ports")}),
        "startupProbe": _http(probes[0]),
        "livenessProbe": _http("/livez"),
        "readinessProbe": _http(probes[1]),
        "volumeMounts": By("mountPath", mounts),
    }
    return {**_pod(component, OURS, {**its, **container}, volumes), "topologySpreadConstraints": (spread,), **pod}


def _image(component: str, tag: str) -> Shape:
    return re.compile(rf"([\w.-]+/)*redbatch-{component}:{re.escape(version('redbatch'))}{tag}")


def _gateway(*, tls: bool) -> Shape:
    container = {
        "image": _image("gateway", ""),
        "ports": ("http", "admin"),
        "lifecycle": {"preStop": {"sleep": {"seconds": between(1, 30)}}},
        "resources": {
            "requests": {"cpu": cores("0.1", "2"), "memory": quantity("256Mi", "2Gi")},
            "limits": {"memory": quantity("512Mi", "4Gi")},
        },
    }
    return _ours("gateway", ("/livez", "/readyz?exclude=worker"), container, {}, tls=tls)


GPUS = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": tuple(
                    {"matchExpressions": ({"key": key, "operator": "In", "values": ("true",)},)}
                    for key in ("nvidia.com/gpu.present", "gpu")
                )
            }
        }
    },
    "tolerations": ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},),
}
"""Nodes with GPUs, by either label; they say by a taint that they are for nobody else."""


def gpu_of(workload: Manifest) -> str:
    """Returns the resource by which its pods have a GPU; an empty text for none."""
    limits = [each.get("resources", {}).get("limits", {}) for each in containers(pod_of(workload))]
    return next((name for each in limits for name in each if name.startswith("nvidia.com/")), "")


def _worker(gpu: str, *, tls: bool) -> Shape:
    memory = ("4Gi", "8Gi", "64Gi") if gpu else ("1Gi", "2Gi", "16Gi")
    env = {"REDBATCH_WORKER_ID": _field("metadata.name")}
    if gpu:
        env["REDBATCH_DEVICE"] = {"value": "cuda"}  # by itself it would take the CPU where there is no GPU
    if gpu == "nvidia.com/gpu.shared":
        env |= {"REDBATCH_GPU_LEASE": {"value": "batch"}, "REDBATCH_GPU_LEASE_POOL": _field("spec.nodeName")}
    container = {
        "image": _image("worker", r"(-(?!cpu$)\w+)?" if gpu else "-cpu"),
        "env": env,
        "ports": ("admin",),
        "mounts": {"/dev/shm": {"name": "shm"}},  # noqa: S108 - the pod's own
        "resources": {
            "requests": {"cpu": cores("1", "16"), "memory": quantity(*memory[::2])},
            "limits": {"memory": quantity(*memory[1:]), **({gpu: 1} if gpu in GPU_NAMES else {})},
        },
    }
    shm = {"emptyDir": {"medium": "Memory", "sizeLimit": quantity("64Mi", "16Gi")}}
    pod = {"volumes": {"shm": shm}, **(GPUS if gpu else {})}
    return _ours("worker", ("/readyz?exclude=redis", "/readyz"), container, pod, tls=tls)


def _deployment(component: str, pod: Shape) -> Shape:
    """No `replicas`: applying it again would undo what has scaled it."""
    surge, unavailable = {"gateway": (1, 0), "worker": (0, 1)}[component]  # no second GPU may be there
    wait = (
        {"minReadySeconds": between(1, 60)}
        if component == "gateway"
        else {"progressDeadlineSeconds": between(600, 7200)}
    )
    return {
        **wait,
        "strategy": {"type?": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}},
        "selector": {"matchLabels": _labels(component)},
        "template": {"metadata": {"labels": _labels(component)}, "spec": pod},
    }


OF_TLS = (
    *("--port", "0", "--tls-port", "6379"),
    *("--tls-ca-cert-file", f"{TLS}ca.crt", "--tls-cert-file", f"{TLS}tls.crt", "--tls-key-file", f"{TLS}tls.key"),
    *("--tls-auth-clients", "yes"),
)


def _redis_container(*, tls: bool) -> Shape:
    # Without -e redis-cli exits with 0 whatever the answer says; its certificate is for localhost.
    files = {"cacert": "ca.crt", "cert": "tls.crt", "key": "tls.key"}
    way = f"--tls {' '.join(f'--{name} {TLS}{file}' for name, file in files.items())} -h localhost " if tls else ""
    cli = f"redis-cli -e {way}--user probe --pass probe --no-auth-warning ping | grep -qx PONG"
    asks = _probe({"exec": {"command": ("sh", "-c", cli)}})
    mounts = {
        **MOUNTS,
        "/data": {"name": "data"},
        "/etc/redis": {"name": "config", "readOnly": True},
        "/run/secrets/redis": {"name": "users", "readOnly": True},
        **({TLS.removesuffix("/"): {"name": "tls", "readOnly": True}} if tls else {}),
    }
    return {
        "image": re.compile(r"redis:7\.\d+\.\d+"),
        "command": ("redis-server", "/etc/redis/redis.conf", *(OF_TLS if tls else ())),
        "args": ("--maxmemory", re.compile(r"\d+mb")),
        "ports": ({"name": "redis", "containerPort": 6379},),
        "startupProbe": asks,
        "readinessProbe": asks,
        "livenessProbe": _probe({"tcpSocket": {"port": "redis"}}),  # to kill one that is slow makes nothing faster
        "resources": {
            "requests": {"cpu": cores("0.1", "4"), "memory": quantity("512Mi", "64Gi")},
            "limits": {"memory": quantity("512Mi", "64Gi")},
        },
        "volumeMounts": By("mountPath", mounts),
    }


def _redis(*, tls: bool) -> Shape:
    volumes = {
        "config": {"configMap": {"name": re.compile(r"redis-[a-z0-9]+")}},
        "users": _secret("redis-users"),
        **({"tls": _secret("redis-tls")} if tls else {}),
    }
    claim = {
        "metadata": {"name": "data", "labels?": {"app.kubernetes.io/name": "redbatch"}},
        "spec": {"accessModes": ("ReadWriteOnce",), "resources": {"requests": {"storage": quantity("1Gi", "1Ti")}}},
    }
    pod = _pod("redis", OF_REDIS, _redis_container(tls=tls), volumes)
    return {
        "serviceName": "redis-pods",
        "replicas": 1,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "selector": {"matchLabels": _labels("redis")},
        "template": {"metadata": {"labels": _labels("redis")}, "spec": pod},
        "volumeClaimTemplates": (claim,),
    }


def shape(workload: Manifest, *, tls: bool) -> Shape | None:
    """Returns the shape of the spec of a workload; None if it is none of ours."""
    kind, component = workload["kind"], component_of(workload)
    if (kind, component) == ("StatefulSet", "redis"):
        return _redis(tls=tls)
    if (kind, component) == ("Deployment", "gateway"):
        return _deployment(component, _gateway(tls=tls))
    if (kind, component) == ("Deployment", "worker"):
        return _deployment(component, _worker(gpu_of(workload), tls=tls))
    return None

"""The values of the chart: what users choose. All else is literally that of k8s/."""

from __future__ import annotations

from typing import Any

from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from tools.helm_chart.values import Place, Schema, Value

STRING: Schema = {"type": "string", "minLength": 1}
COUNT: Schema = {"type": "integer", "minimum": 0}
LIST: Schema = {"type": "array", "items": {"type": "object"}}
MAP: Schema = {"type": "object"}
STRINGS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
QUANTITIES: Schema = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}
RESOURCES: Schema = {
    "type": "object",
    "properties": {"requests": QUANTITIES, "limits": QUANTITIES},
    "additionalProperties": False,
}
OF_OTHER_PROGRAMS = "^([^R]|R[^E]|RE[^D]|RED[^B])"
"""Names of variables that are no settings of Redbatch. (Regular expressions of Go cannot exclude a prefix.)"""
QUEUE = "REDBATCH_QUEUE"
GATEWAY_SETTINGS = '(include "redbatch.gateway-settings" . | fromJson)'
"""In Helm's language, with the queue."""

GATEWAY = "Deployment/gateway spec template spec"
WORKER = "Deployment/worker spec template spec"
REDIS = "StatefulSet/redis spec"
REDIS_POD = f"{REDIS} template spec containers redis"


def settings(model: type[GatewaySettings | WorkerSettings], *left_out: str) -> Schema:
    """Returns the schema of a ConfigMap with settings. It refuses misspelt ones and passwords, which are in Secrets."""
    names = [name for name in model.model_fields if name != "redis_url" and not name.endswith("_password")]
    variables = [f"REDBATCH_{name.upper()}" for name in names]
    return {
        "type": "object",
        "properties": {name: {"type": "string"} for name in variables if name not in left_out},
        "patternProperties": {OF_OTHER_PROGRAMS: {"type": "string"}},
        "additionalProperties": False,
    }


def image(name: str, *containers: str) -> tuple[Value, Value]:
    """Returns repository and tag of an image."""
    patterns = (r"^(.+):", r":([^:/]+)$")
    repository, tag = (tuple(Place(f"{each} image", pattern) for each in containers) for pattern in patterns)
    return (
        Value(f"{name}.image.repository", "Name of the image, with its registry.", STRING, repository),
        Value(f"{name}.image.tag", "Tag of the image.", STRING, tag),
    )


def without_queue(data: dict[str, str]) -> dict[str, str]:
    """Returns the settings of gateways except the queue, which is a separate value."""
    return {name: value for name, value in data.items() if name != QUEUE}


GATEWAY_VALUES = (
    Value(
        "queue",
        "Queue of requests that name no model: the name of the workers' model.",
        STRING,
        (Place("ScaledObject/worker spec triggers * metadata stream", r"^rb:\{(.+)\}:"),),
    ),
    Value(
        "imagePullSecrets",
        'Secrets for the registry of the images, as `[{"name": "registry"}]`.',
        LIST,
        (Place("ServiceAccount/gateway imagePullSecrets"), Place("ServiceAccount/worker imagePullSecrets")),
        optional=True,
    ),
    *image("gateway", f"{GATEWAY} containers gateway"),
    Value(
        "gateway.settings",
        "Settings of the gateways ([docs/settings.md](../../docs/settings.md)), as texts. A change causes a rollout.",
        settings(GatewaySettings, QUEUE),
        (Place("ConfigMap/gateway data"),),
        code=GATEWAY_SETTINGS,
        read=without_queue,
    ),
    Value("gateway.resources", "CPU and memory.", RESOURCES, (Place(f"{GATEWAY} containers gateway resources"),)),
    *(
        Value(
            f"gateway.autoscaling.{name}",
            f"{word} number of gateways: they are scaled by CPU.",
            COUNT,
            (Place(f"HorizontalPodAutoscaler/gateway spec {name}"),),
        )
        for name, word in (("minReplicas", "Minimum"), ("maxReplicas", "Maximum"))
    ),
)

WORKER_VALUES = (
    *image("worker", f"{WORKER} containers worker"),
    Value(
        "worker.settings",
        "Settings of the workers, as texts. A change causes a rollout.",
        settings(WorkerSettings),
        (Place("ConfigMap/worker data"),),
    ),
    Value(
        "worker.replicas",
        "Number of workers. null: `kubectl scale` or KEDA sets it.",
        COUNT,
        (Place("Deployment/worker spec replicas"),),
        optional=True,
    ),
    *(
        Value(
            f"worker.resources.{name}",
            f"{name.capitalize()}. null: those of the device. Other ones replace all of them{also}.",
            QUANTITIES,
            (Place(f"{WORKER} containers worker resources {name}"),),
            optional=True,
        )
        for name, also in (("requests", ""), ("limits", ", the GPU too: name `nvidia.com/gpu` or a MIG device again"))
    ),
    *(
        Value(f"worker.{name}", text, schema, (Place(f"{WORKER} {name}"),), optional=True)
        for name, text, schema in (
            ("nodeSelector", "Labels of the nodes.", MAP),
            ("affinity", "Affinity of the pods. null: that of the device.", MAP),
            ("tolerations", "Tolerations of the pods. null: those of the device.", LIST),
            ("runtimeClassName", "`nvidia`, if NVIDIA's runtime is not the default of the nodes.", STRING),
        )
    ),
    *(
        Value(f"worker.autoscaling.{name}", text, COUNT, (Place(f"ScaledObject/worker spec {field}"),))
        for name, field, text in (
            ("minReplicas", "minReplicaCount", "Minimum number of workers with KEDA."),
            ("maxReplicas", "maxReplicaCount", "Maximum number of workers with KEDA: that of your GPUs."),
        )
    ),
    Value(
        "worker.autoscaling.namespace",
        "The namespace of KEDA.",
        STRING,
        (Place("NetworkPolicy/keda * matchLabels kubernetes.io/metadata.name"),),
    ),
)

REDIS_VALUES = (
    *image("redis", REDIS_POD, f"{REDIS} template spec containers sentinel"),
    Value("redis.maxmemory", "Redis' maxmemory: 70 % of its memory limit.", STRING, (Place(f"{REDIS_POD} args 1"),)),
    Value("redis.resources", "CPU and memory of a Redis.", RESOURCES, (Place(f"{REDIS_POD} resources"),)),
    Value(
        "redis.storage.size",
        "Size of the volume of a Redis.",
        STRING,
        (Place(f"{REDIS} volumeClaimTemplates 0 spec resources requests storage"),),
    ),
    Value(
        "redis.storage.className",
        "StorageClass of the volume. null: the default of the cluster.",
        STRING,
        (Place(f"{REDIS} volumeClaimTemplates 0 spec storageClassName"),),
        optional=True,
    ),
    Value(
        "redis.cluster.shards",
        "Shards of each queue, with redis.mode=cluster: the number of masters.",
        {"type": "integer", "minimum": 1},
        (Place("Deployment/* env REDBATCH_QUEUE_SHARDS value", r"^(\d+)$"),),
        code="(toString .Values.redis.cluster.shards)",
        read=int,
    ),
)

OTHER_VALUES = (
    Value(
        "monitoring.namespace",
        "The namespace of Prometheus.",
        STRING,
        (Place("NetworkPolicy/monitoring * matchLabels kubernetes.io/metadata.name"),),
    ),
    Value(
        "monitoring.release",
        "Label `release` by which Prometheus' operator selects PodMonitors and rules.",
        STRING,
        (Place("PodMonitor/* metadata labels release"), Place("PrometheusRule/* metadata labels release")),
    ),
    Value(
        "monitoring.runbooks",
        "Address of your copy of this repository, for the links to runbooks.",
        STRING,
        (Place("PrometheusRule/* runbook_url", r"^(.+)/docs/"),),
    ),
    Value("ingress.host", "Host name.", STRING, (Place("Ingress/gateway *", r"^([\w.-]+\.example\.com)$"),)),
    Value(
        "ingress.className",
        "Class of the controller. null: the default of the cluster.",
        STRING,
        (Place("Ingress/gateway spec ingressClassName"),),
        optional=True,
    ),
    Value(
        "ingress.annotations",
        "Annotations. Those of other controllers than ingress-nginx have other names.",
        STRINGS,
        (Place("Ingress/gateway metadata annotations"),),
    ),
    Value(
        "ingress.secretName", "Secret with the certificate.", STRING, (Place("Ingress/gateway spec tls 0 secretName"),)
    ),
    Value("httpRoute.host", "Host name.", STRING, (Place("HTTPRoute/gateway spec hostnames 0"),)),
    Value("httpRoute.parentRefs", "Your Gateway.", LIST, (Place("HTTPRoute/gateway spec parentRefs"),)),
)

COMPUTED = (
    *(
        Value(
            "",
            "",
            {},
            tuple(
                Place(each, rf"^{name}-(\w{{10}})$")
                for each in (f"ConfigMap/{name} metadata name", f"Deployment/{name} * envFrom 0 configMapRef name")
            ),
            code=f'include "redbatch.hash" {data}',
        )
        for name, data in (("gateway", GATEWAY_SETTINGS), ("worker", ".Values.worker.settings"))
    ),
    Value(
        "",
        "",
        {},
        (
            Place("* metadata namespace", r"^(redbatch)$"),
            Place("ScaledObject/* *", r"\.(redbatch)\.svc"),
            Place("Certificate/* *", r"\.(redbatch)\.svc"),
            Place("PrometheusRule/* expr", r'namespace="(redbatch)"'),
            Place("PrometheusRule/* labels namespace", r"^(redbatch)$"),
        ),
        code=".Release.Namespace",
    ),
)
"""The hash of settings in names, by which a changed setting causes a rollout, and the namespace of the release."""

VALUES = (*GATEWAY_VALUES, *WORKER_VALUES, *REDIS_VALUES, *OTHER_VALUES)
"""In the order of the documents."""


def schema_of(value: Value) -> dict[str, Any]:
    """Returns the JSON schema of a value, with its description."""
    kind = value.schema["type"]
    nullable = {"type": [kind, "null"]} if value.optional else {}
    return {**value.schema, **nullable, "description": value.text}

"""The combinations of overlays and components from which the chart is made, and the values that choose one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Scenario(NamedTuple):
    """One combination. The fields are the flags: values of the chart on which conditions depend."""

    device: str = "gpu"
    autoscaling: str = "none"
    redis: str = "standalone"
    tls: bool = False
    monitoring: bool = False
    ingress: bool = False
    http_route: bool = False

    @property
    def overlay(self) -> str:
        """The folder of k8s/ on which it is based."""
        return "base" if self.device == "cpu" else f"overlays/{self.device}"

    @property
    def components(self) -> list[str]:
        """Its components of k8s/, in the order in which a kustomization lists them."""
        flags = {
            self.autoscaling: self.autoscaling != "none",
            f"redis-{self.redis}": self.redis != "standalone",
            "monitoring": self.monitoring,
            "tls": self.tls,
            "ingress": self.ingress,
            "ingress/httproute": self.http_route,
        }
        return [component for component, included in flags.items() if included]

    @property
    def values(self) -> dict[str, str | bool]:
        """The values of the chart that choose it, by name."""
        return {FLAGS[flag].name: value for flag, value in self._asdict().items()}


class Flag(NamedTuple):
    """A value of the chart that chooses overlays or components: its name, what it may be, and its description."""

    name: str
    choices: tuple[str, ...]
    text: str


FLAGS: Mapping[str, Flag] = {
    "device": Flag(
        "worker.device",
        ("gpu", "gpu-shared", "cpu"),
        "What workers compute on: a GPU each, a GPU for several workers (time slicing), or CPUs.",
    ),
    "autoscaling": Flag(
        "worker.autoscaling.type",
        ("none", "keda", "keda-cpu"),
        "Scaling of workers by KEDA, with the targets for GPUs or for CPUs.",
    ),
    "redis": Flag(
        "redis.mode",
        ("standalone", "sentinel", "cluster"),
        "One Redis, three with sentinels, or none: a Redis Cluster that exists already.",
    ),
    "tls": Flag("redis.tls", (), "TLS between Redis and its clients. Requires cert-manager."),
    "monitoring": Flag("monitoring.enabled", (), "PodMonitors, alerts, and a dashboard for Grafana."),
    "ingress": Flag("ingress.enabled", (), "An Ingress with TLS for the gateways."),
    "http_route": Flag("httpRoute.enabled", (), "An HTTPRoute of the Gateway API for the gateways."),
}
"""By field of Scenario. One without choices is true or false."""

SCENARIOS = (
    Scenario(),
    Scenario(device="gpu-shared"),
    Scenario(device="cpu"),
    Scenario(autoscaling="keda"),
    Scenario(autoscaling="keda-cpu"),
    Scenario(redis="sentinel"),
    Scenario(redis="cluster"),
    Scenario(tls=True),
    Scenario(monitoring=True),
    Scenario(ingress=True),
    Scenario(http_route=True),
    Scenario(autoscaling="keda", redis="sentinel"),
    Scenario(autoscaling="keda", tls=True),
    Scenario(autoscaling="keda-cpu", redis="sentinel"),
    Scenario(autoscaling="keda-cpu", tls=True),
    Scenario(device="gpu-shared", tls=True),
)
"""Each flag alone, and the pairs in which one component changes what another one brings."""


class Conflict(NamedTuple):
    """A combination that k8s/ does not have: a condition in Helm's language, and the message."""

    condition: str
    message: str


CONFLICTS = (
    Conflict(
        'and .Values.redis.tls (eq .Values.redis.mode "sentinel")',
        "redis.tls cannot be combined with redis.mode=sentinel, which has no TLS: set one of them.",
    ),
    Conflict(
        'and .Values.redis.tls (eq .Values.redis.mode "cluster")',
        "redis.tls is for the Redis of this chart: with redis.mode=cluster, make the secrets with "
        "redbatch k8s secrets --cluster --tls, and leave redis.tls false.",
    ),
    Conflict(
        'and (ne .Values.worker.autoscaling.type "none") (eq .Values.redis.mode "cluster")',
        "worker.autoscaling.type must be none with redis.mode=cluster: KEDA's triggers would read one shard of it.",
    ),
    Conflict(
        'and (ne .Values.worker.autoscaling.type "none") (not (kindIs "invalid" .Values.worker.replicas))',
        "worker.replicas must be null if KEDA scales workers: set worker.autoscaling.minReplicas and maxReplicas.",
    ),
)

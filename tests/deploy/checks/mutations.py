"""Faults made on purpose: a line for each, of an object, where in it, and what is there instead.

`pod` and `container` stand for the way there in a workload. A step into a list is a place in it, or what an element of
it is called; `+` is one more. Without a value what is there is taken away. Behind `->` is what the fault is told to be,
where that is not the object's name and the last step. A line that begins with spaces belongs to the one before.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import yaml

from tests.deploy.manifests import Manifest

SHORT = {"pod": "spec.template.spec", "container": "spec.template.spec.containers.0"}
NAMES = ("name", "mountPath", "parameter")


class Fault(NamedTuple):
    """A deliberate fault."""

    kind: str
    name: str
    path: str
    value: str
    told: str

    @classmethod
    def of(cls, line: str) -> Fault:
        """Reads a line."""
        change, _, told = line.partition(" -> ")
        place, _, value = change.partition(" = ")
        kind, name, path = place.split()
        return cls(kind, name, path, value, told)

    def made(self, manifests: list[Manifest]) -> list[Manifest]:
        """Returns manifests with this fault."""
        found = copy.deepcopy(manifests)
        first, *rest = self.path.split(".")
        *way, last = [*SHORT.get(first, first).split("."), *rest]
        tree: Any = next(each for each in found if self._is_of(each))
        for step in way:
            tree = tree[_index(tree, step)]
        if not self.value:
            del tree[_index(tree, last)]
        elif last == "+":
            tree.append(yaml.safe_load(self.value))
        else:
            tree[_index(tree, last)] = yaml.safe_load(self.value)
        return found

    def _is_of(self, manifest: Manifest) -> bool:
        name = str(manifest["metadata"]["name"])
        hashed = self.kind == "ConfigMap" and name.startswith(f"{self.name}-")  # by its content, behind its name
        return manifest["kind"] == self.kind and (name == self.name or hashed)

    def is_told(self, lines: list[str]) -> bool:
        """Whether one of these lines is of it."""
        last = [step for step in self.path.split(".") if step != "+"][-1]
        if self.told:
            return any(self.told in line for line in lines)
        return any(line.startswith(f"{self.kind} {self.name}") and last in line for line in lines)


def _index(tree: Any, step: str) -> Any:  # noqa: ANN401 - a tree of YAML
    """Returns by what a step goes into a tree; dots within it are commas."""
    step = step.replace(",", ".")
    if not isinstance(tree, list):
        return step
    if step.isdigit():
        return int(step)
    return next(place for place, each in enumerate(tree) if step in [each.get(name) for name in NAMES])


def _read(text: str) -> list[Fault]:
    lines = text.strip().replace("\n    ", " ").splitlines()
    return [Fault.of(line) for line in lines if not line.startswith("#")]


OF_BASE = _read("""
# who scales, selects and protects whom
HorizontalPodAutoscaler gateway spec.scaleTargetRef.name = worker
HorizontalPodAutoscaler gateway spec.scaleTargetRef.kind = StatefulSet
HorizontalPodAutoscaler gateway spec.minReplicas = 20
HorizontalPodAutoscaler gateway spec.maxReplicas = "10"
HorizontalPodAutoscaler gateway spec.behavior.scaleUp.selectPolicy = Disabled
PodDisruptionBudget gateway spec.selector.matchLabels = {app.kubernetes.io/component: worker}
PodDisruptionBudget gateway metadata.name = gateways -> Deployment gateway: no PodDisruptionBudget
PodDisruptionBudget gateway spec.minAvailable = 1
Service gateway spec.selector.app = gateways
Service gateway spec.ports.0.targetPort = admin
Service gateway spec.ports.0.protocol = UDP
Service gateway spec.type = ExternalName
Service gateway spec.publishNotReadyAddresses = true
Service gateway metadata.namespace = default -> Service gateway: not in redbatch
Service redis spec.selector = {app.kubernetes.io/name: redbatch}
Service redis spec.clusterIP = None
Service redis spec.ports.0.port = 6380
Service redis-pods spec.clusterIP
# files and secrets
Deployment gateway pod.securityContext.fsGroup
Deployment gateway pod.securityContext.runAsUser = 999
StatefulSet redis pod.securityContext.runAsUser = 65532
Deployment gateway pod.volumes.redis.secret.secretName = worker-redis
Deployment gateway pod.volumes.redis.secret.secretName = admin-redis
Deployment gateway pod.volumes.redis.secret.items = [{key: url, path: uri}]
Deployment gateway pod.volumes.redis.secret.optional = true
Deployment gateway container.volumeMounts./run/secrets/redis.subPath = url
Deployment gateway container.volumeMounts./tmp.readOnly = true
Deployment worker container.env.REDBATCH_REDIS_URL_FILE.value = /run/secrets/redis/uri
Deployment worker container.env.REDBATCH_REDIS_URL_FILE
# what only a pod knows
Deployment worker container.env.REDBATCH_WORKER_ID.valueFrom.fieldRef.fieldPath = metadata.namespace
Deployment worker container.env.REDBATCH_WORKER_ID.valueFrom.fieldRef.fieldPath = metadata.pod
Deployment worker container.env.REDBATCH_WORKER_ID = {name: REDBATCH_WORKER_ID, value: one}
# the one Redis
StatefulSet redis spec.replicas = 3
StatefulSet redis spec.replicas = 0
StatefulSet redis spec.updateStrategy = {type: OnDelete}
StatefulSet redis spec.persistentVolumeClaimRetentionPolicy.whenDeleted = Delete
StatefulSet redis spec.volumeClaimTemplates.0.spec.resources.requests.storage = banana
StatefulSet redis spec.volumeClaimTemplates.0.spec.accessModes.0 = ReadOnlyMany -> accessModes.0: 'ReadOnlyMany'
StatefulSet redis pod.terminationGracePeriodSeconds = 0
StatefulSet redis container.livenessProbe = {exec: {command: [redis-cli, ping]}, periodSeconds: 10, failureThreshold: 3}
StatefulSet redis container.startupProbe.failureThreshold = 1 -> StatefulSet redis: it may take 5 s to start
StatefulSet redis container.image = redis:5.0
StatefulSet redis container.args = [--maxmemory, 8000mb] -> a maxmemory of 8000 MiB
StatefulSet redis container.volumeMounts./data.mountPath = /var/lib/redis -> volumeMounts: no /data
StatefulSet redis container.volumeMounts./etc/redis.mountPath = /etc -> volumeMounts: no /etc/redis
StatefulSet redis container.volumeMounts./data.readOnly = true
StatefulSet redis pod.volumes.users.secret.secretName = gateway-redis
StatefulSet redis pod.volumes.+ = {name: data, emptyDir: {}}
ConfigMap redis data = {valkey.conf: ""}
# network policies
NetworkPolicy gateway spec.ingress.0.ports.0.endPort = 9090
NetworkPolicy redis spec.ingress.0.from.0 = {podSelector: {}}
    -> Ingress open, and not needed: stranger to redis at 6379 (TCP)
NetworkPolicy redis spec.ingress.0.ports.0.port = 6380 -> closed, and needed: gateway to redis at 6379 (TCP)
NetworkPolicy worker spec.egress.+ = {ports: [{port: 80}]} -> open, and not needed: worker to default at 80 (TCP)
NetworkPolicy gateway spec.egress.+ = {ports: [{port: 443}]} -> open, and not needed: gateway to default at 443 (TCP)
NetworkPolicy gateway spec.ingress.0.from = [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name:
    default}}}]
    -> closed, and needed: ingress to gateway at 8080 (TCP)
NetworkPolicy dns spec.egress.0.to = [{namespaceSelector: {}, podSelector: {matchLabels: {k8s-app: kube-dns}}}]
    -> closed, and needed: worker to kube-system at 53 (UDP)
NetworkPolicy default-deny spec.policyTypes = [Egress] -> open, and not needed: stranger to worker at 53 (TCP)
# probes
Deployment gateway container.livenessProbe.httpGet.scheme = HTTPS
Deployment gateway container.livenessProbe.httpGet.host = 127.0.0.1
Deployment gateway container.livenessProbe.tcpSocket = {port: admin}
Deployment gateway container.livenessProbe.terminationGracePeriodSeconds = 1
Deployment gateway container.livenessProbe.failureThreshold = 1 -> it is killed after 10 s
Deployment gateway container.livenessProbe.timeoutSeconds = 1 -> it is killed after 30 s
Deployment gateway container.livenessProbe.successThreshold = 2
Deployment gateway container.startupProbe.initialDelaySeconds = 3600
Deployment gateway container.readinessProbe.httpGet.path = /readyz?exclude=draining
Deployment gateway container.readinessProbe.httpGet.port = metrics
Deployment gateway container.readinessProbe.failureThreshold = 100 -> it is asked for long when it is not ready
Deployment gateway container.ports.admin.hostPort = 9090
Deployment gateway container.ports.admin.containerPort = 9099 -> its ports are {'admin': 9090, 'http': 8080}
Deployment worker container.readinessProbe.httpGet.path = /readyz?exclude=engine
Deployment worker container.livenessProbe.httpGet.path = /readyz
Deployment worker container.startupProbe.failureThreshold = 4 -> it may take 20 s to start
Deployment worker spec.progressDeadlineSeconds = 600 -> its rollout is given up before
# what schemas take and an API server does not, or nobody wants
Deployment gateway container.imagePullPolicies = Always
Deployment gateway pod.restartPolicy = Never
Deployment gateway pod.activeDeadlineSeconds = 60
Deployment gateway pod.dnsPolicy = Default
Deployment gateway pod.nodeName = here
Deployment gateway pod.priorityClassName = mine
Deployment gateway pod.runtimeClassName = nvidia
Deployment gateway pod.initContainers = [{name: first, image: "busybox:1.36"}]
Deployment gateway pod.volumes.+ = {name: tmp, emptyDir: {sizeLimit: 1Gi}} -> volumes: tmp is there twice
Deployment gateway container.env.+ = {name: REDBATCH_REDIS_URL_FILE, value: /run/secrets/redis/url}
    -> env: REDBATCH_REDIS_URL_FILE is there twice
Deployment gateway container.volumeMounts.+ = {name: tmp, mountPath: /tmp} -> volumeMounts: /tmp is there twice
Deployment gateway pod.containers.+ = {name: gateway, image: "redbatch-gateway:0.1.0"}
    -> containers: gateway is there twice
Deployment gateway pod.topologySpreadConstraints.0.maxSkew = 0
Deployment gateway pod.volumes.tmp.emptyDir.sizeLimit = banana
Deployment gateway spec.strategy.type = Recreate
Deployment gateway spec.strategy.rollingUpdate.maxUnavailable = 1
Deployment worker spec.strategy.rollingUpdate.maxSurge = 1
Deployment gateway spec.paused = true
Deployment gateway spec.replicas = 2
Deployment gateway spec.minReadySeconds
Deployment gateway spec.minReadySeconds = 900
Deployment gateway metadata.labels.team = a b -> Deployment gateway.metadata.labels
Deployment gateway metadata.labels.app,kubernetes,io/component = proxy -> Deployment gateway: nobody expects it
Deployment gateway container.imagePullPolicy = Never
Deployment gateway container.command = [sleep, infinity]
Deployment gateway container.args = [worker]
Deployment gateway container.lifecycle
Deployment gateway container.envFrom.+ = {secretRef: {name: gateway-redis}}
Deployment worker container.image = redbatch-gateway:0.1.0
Deployment worker container.image = redbatch-worker:latest
Deployment worker container.image = redbatch-worker:0.1.0-cpu
# rights
Deployment gateway pod.securityContext.runAsNonRoot
Deployment gateway pod.securityContext.appArmorProfile = {type: Unconfined} -> appArmorProfile
Deployment gateway pod.securityContext.sysctls = [{name: kernel.msgmax, value: "1"}]
Deployment gateway pod.securityContext.seLinuxOptions = {type: spc_t}
Deployment gateway pod.securityContext.windowsOptions = {hostProcess: true}
Deployment gateway pod.hostNetwork = true
Deployment gateway pod.volumes.+ = {name: token, projected: {sources: [{serviceAccountToken: {path: token}}]}}
Deployment worker container.securityContext.procMount = Unmasked
Deployment worker container.securityContext.runAsUser = 0
Deployment worker container.securityContext
Namespace redbatch metadata.labels.pod-security,kubernetes,io/enforce-version = v1.0 -> enforce-version is not expected
Namespace redbatch metadata.labels.pod-security,kubernetes,io/enforce -> Namespace redbatch.metadata.labels: no
Deployment gateway kind = DaemonSet -> DaemonSet gateway
# quantities
Deployment worker container.resources.requests.cpu = banana
Deployment worker container.resources.requests.cpu = "400"
Deployment worker container.resources.requests.memory = 16Mi
Deployment worker container.resources.limits.memory = 16Mi
Deployment worker container.resources.limits.memory
Deployment worker pod.volumes.shm.emptyDir.sizeLimit = 16Gi -> what is in /dev/shm counts as its memory
Deployment gateway container.resources.requests.memory = 512m
Deployment gateway container.resources.requests.memory = 2Gi -> asks for more memory than its limit
Deployment gateway container.resources.limits.cpu = 1
# settings
ConfigMap worker data.REDBATCH_BATCH_SIZE = "64" -> REDBATCH_BATCH_SIZE is no setting
ConfigMap worker data.REDBATCH_MAX_BATCH_SIZE = "0" -> max_batch_size: Input should be greater
ConfigMap gateway data.REDBATCH_REDIS_URL = redis://redis -> REDBATCH_REDIS_URL is its pod's own
ConfigMap worker metadata.name = workers -> ConfigMap workers: nobody expects it
Deployment worker pod.terminationGracePeriodSeconds = 30 -> Deployment worker: a grace of 30 s
""")

OF_COMPONENTS = _read("""
ScaledObject worker spec.scaleTargetRef.name = gateway
ScaledObject worker spec.scaleTargetRef.kind = StatefulSet
ScaledObject worker spec.maxReplicas = 4
ScaledObject worker spec.idleReplicaCount = 0
ScaledObject worker spec.pollingInterval = 0
ScaledObject worker spec.fallback
ScaledObject worker spec.triggers.0.authenticationRef
ScaledObject worker spec.triggers.0.metadata.streamLenght = "32"
ScaledObject worker spec.triggers.0.metadata.consumerGroup = workers
ScaledObject worker spec.triggers.0.metadata.stream = "rb:{mpnet}:q:interactive" -> its streams are those of None
ScaledObject worker metadata.name = worker-2 -> ScaledObject worker-2
ScaledObject worker spec.advanced.horizontalPodAutoscalerConfig.behavior.scaleDown.stabilizationWindowSeconds = 0
ScaledObject worker metadata.annotations = {autoscaling.keda.sh/paused: "true"}
TriggerAuthentication redis spec.secretTargetRef.username.key = password
TriggerAuthentication redis spec.secretTargetRef.password.key = pass
TriggerAuthentication redis spec.secretTargetRef.tls
Certificate redis spec.usages = [digital signature, client auth]
Certificate redis spec.dnsNames = [redis.example.com]
Certificate gateway-redis spec.usages = [digital signature, server auth]
Certificate redis-ca spec.isCA = false
Certificate gateway-redis spec.issuerRef.name = redis-ca-root
Certificate gateway-redis spec.renewBefore = 4000h -> Certificate gateway-redis: it is renewed
Certificate gateway-redis spec.duration = 90d
Certificate gateway-redis spec.privateKey.size = 255
Issuer redis-ca spec.ca.secretName = ca
Deployment gateway container.env.REDBATCH_REDIS_TLS_KEY.value = /run/secrets/redis-tls/tls.crt
Deployment gateway container.env.REDBATCH_REDIS_TLS_CA
Deployment gateway container.volumeMounts./run/secrets/redis-tls
Ingress gateway metadata.annotations.nginx,ingress,kubernetes,io/proxy-read-timeout = "30" -> proxy-read-timeout
Ingress gateway metadata.annotations.nginx,ingress,kubernetes,io/proxy-body-size = 1m -> proxy-body-size
Ingress gateway spec.rules.0.http.paths.0.pathType = Exact
Ingress gateway spec.rules.0.http.paths.0.backend.service.name = redis
HTTPRoute gateway spec.rules.0.timeouts.request = 30sec
HTTPRoute gateway spec.rules.0.backendRefs.0.name = redis
HTTPRoute gateway spec.parentRefs
PodMonitor worker spec.podMetricsEndpoints.0.path = /metric
NetworkPolicy keda spec.ingress.0.from.0.namespaceSelector.matchLabels = {kubernetes.io/metadata.name: default}
    -> closed, and needed: keda to redis at 6379
NetworkPolicy monitoring spec.ingress.0.from.0.podSelector = {matchLabels: {app: prometheus}}
    -> closed, and needed: monitoring to gateway
""")

OF_SHARED_GPUS = _read("""
Deployment worker container.env.REDBATCH_GPU_LEASE_POOL.valueFrom.fieldRef.fieldPath = metadata.name
Deployment worker container.env.REDBATCH_GPU_LEASE
Deployment worker container.env.REDBATCH_DEVICE
Deployment worker pod.tolerations
""")

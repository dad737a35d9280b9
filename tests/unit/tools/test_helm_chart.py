"""The generator of the Helm chart: conditions where scenarios differ, values where users choose, and its errors.

tests/deploy/test_helm_chart.py has Helm render the chart.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import pytest

from tools.helm_chart import chart, kustomize
from tools.helm_chart.kustomize import Manifest
from tools.helm_chart.mark import DefaultError, Marker, identity
from tools.helm_chart.merge import merge
from tools.helm_chart.nodes import ABSENT, Expression, Node, Slot, Text
from tools.helm_chart.scenarios import Scenario
from tools.helm_chart.template import condition, template_of
from tools.helm_chart.values import Place, Value

PLAIN, TLS = Scenario(), Scenario(tls=True)
SENTINEL, KEDA = Scenario(redis="sentinel"), Scenario(autoscaling="keda")
STRING = {"type": "string"}


def template(variants: dict[Scenario, Node]) -> list[str]:
    """Returns the lines of the template of an object."""
    return template_of(merge(variants)).splitlines()


def test_equal_objects_have_no_condition() -> None:
    """They are literally in the template."""
    node = {"kind": "Service", "spec": {"ports": [{"port": 80}], "none": {}}}
    assert template({PLAIN: node, TLS: node}) == ["kind: Service", "spec:", "  ports:", "    - port: 80", "  none: {}"]


def test_a_difference_has_a_condition_of_the_flag_that_explains_it() -> None:
    """Not of one that has the same value in both; a third scenario decides between two flags."""
    both = Scenario(tls=True, autoscaling="keda")
    variants = {PLAIN: {"port": "0"}, both: {"port": "6379"}, KEDA: {"port": "0"}}
    lines = ["{{- if not .Values.redis.tls }}", "port: '0'", "{{- else }}", "port: '6379'", "{{- end }}"]
    assert template(variants) == lines


def test_an_object_of_one_component_is_conditional() -> None:
    """As is a difference in it, which another component makes."""
    sentinel = Scenario(autoscaling="keda", redis="sentinel")
    variants = {PLAIN: ABSENT, KEDA: {"kind": "A", "port": 1}, sentinel: {"kind": "A", "port": 2}, SENTINEL: ABSENT}
    assert template(variants) == [
        '{{- if eq .Values.worker.autoscaling.type "keda" }}',
        "kind: A",
        '{{- if eq .Values.redis.mode "standalone" }}',
        "port: 1",
        "{{- else }}",
        "port: 2",
        "{{- end }}",
        "{{- end }}",
    ]


def test_items_of_lists_keep_their_order() -> None:
    """Items of two components stand before and after those that are always there; neighbours share a condition."""
    url, tls, more, last = ({"name": name, "value": "1"} for name in ("URL", "TLS", "MORE", "LAST"))
    variants = {PLAIN: {"env": [url]}, TLS: {"env": [tls, more, url]}, SENTINEL: {"env": [url, last]}}
    assert [line.strip() for line in template(variants) if "value" not in line] == [
        "env:", "{{- if .Values.redis.tls }}", "- name: TLS", "- name: MORE", "{{- end }}", "- name: URL",
        '{{- if eq .Values.redis.mode "sentinel" }}', "- name: LAST", "{{- end }}",
    ]  # fmt: skip


def test_lists_without_a_common_order_are_written_twice() -> None:
    """Nothing but a condition around the whole list renders both."""
    variants = {PLAIN: {"args": [{"name": "a"}, {"name": "b"}]}, TLS: {"args": [{"name": "b"}, {"name": "a"}]}}
    assert [line.strip() for line in template(variants)] == [
        "{{- if not .Values.redis.tls }}", "args:", "- name: a", "- name: b",
        "{{- else }}", "args:", "- name: b", "- name: a", "{{- end }}",
    ]  # fmt: skip


def test_conditions_name_the_shorter_side() -> None:
    """One value, all but one, and a flag that is true or false."""
    assert condition("device", ("gpu",)) == 'eq .Values.worker.device "gpu"'
    assert condition("device", ("gpu", "gpu-shared")) == 'ne .Values.worker.device "cpu"'
    assert (condition("tls", (True,)), condition("tls", (False,))) == (".Values.redis.tls", "not .Values.redis.tls")


def test_texts_are_safe_in_a_template() -> None:
    """Helm finds no action in a text of a manifest, and YAML no number in one."""
    node = {"a": "{{ $value }}", "b": "1", "c": "one\n  two {{x}}\n", "d": "no\n\n"}
    assert template({PLAIN: node}) == [
        """a: '{{ "{{" }} $value }}'""", "b: '1'", "c: |", "  one", """    two {{ "{{" }}x}}""", 'd: "no\\n\\n"',
    ]  # fmt: skip


def deployment(**spec: Node) -> Manifest:
    """Returns an object."""
    return {"kind": "Deployment", "metadata": {"name": "worker"}, "spec": spec}


def marked(value: Value, **spec: Node) -> tuple[Node, Marker]:
    """Returns the spec of an object with a value in it."""
    marker = Marker((value,))
    return marker.mark(deployment(**spec))["spec"], marker


def test_a_value_is_a_field_or_a_part_of_a_text() -> None:
    """Its default is what kustomize renders there."""
    tag = Value("image.tag", "", STRING, (Place("Deployment/worker spec * image", r":(\w+)$"),))
    spec, marker = marked(tag, containers=[{"name": "worker", "image": "here:5000/worker:v1"}])
    assert spec["containers"][0]["image"] == Text(("here:5000/worker:", Expression(".Values.image.tag")))
    assert marker.default(tag) == "v1"
    whole = Value("image", "", STRING, (Place("Deployment/worker spec containers worker image"),))
    spec, marker = marked(whole, containers=[{"name": "worker", "image": "worker:v1"}])
    assert (spec["containers"][0]["image"], marker.default(whole)) == (Slot(".Values.image"), "worker:v1")


def test_an_optional_value_leaves_what_kustomize_renders() -> None:
    """With null the field is as rendered, or absent."""
    replicas = Value("replicas", "", {"type": "integer"}, (Place("Deployment/worker spec replicas"),), optional=True)
    (there, _), (absent, _) = marked(replicas, replicas=3), marked(replicas)
    assert template({PLAIN: there}) == [
        '{{- if kindIs "invalid" .Values.replicas }}', "replicas: 3", "{{- else }}",
        "replicas: {{ toJson .Values.replicas }}", "{{- end }}",
    ]  # fmt: skip
    assert template({PLAIN: absent}) == [
        '{{- if not (kindIs "invalid" .Values.replicas) }}', "replicas: {{ toJson .Values.replicas }}", "{{- end }}",
    ]  # fmt: skip


@pytest.mark.parametrize("found", [(), ("a", "b")])
def test_a_value_must_have_one_default(found: Sequence[str]) -> None:
    """Without one, or with several ones, a place is wrong, or scenarios differ there."""
    value = Value("name", "", STRING, (Place("Deployment/worker spec name"),))
    marker = Marker((value,))
    for each in found:
        marker.mark(deployment(name=each))
    with pytest.raises(DefaultError, match=r"^name must have one default in k8s/"):
        marker.default(value)


def test_a_preset_cannot_remove_a_field() -> None:
    """Helm merges objects of values, so that only null would."""
    gateway: Manifest = {"kind": "ConfigMap", "metadata": {"name": "gateway-2456789bcd"}}
    assert identity(gateway) == "ConfigMap/gateway"
    old, new = ([gateway | {"data": data}] for data in ({"A": "1", "B": "2"}, {"A": "3"}))
    with pytest.raises(DefaultError, match="an overlay has no B"):
        chart.preset(new, old)
    assert chart.preset(old, new) == {"gateway.settings": {"A": "1", "B": "2"}}


def test_an_error_of_kustomize_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its own words."""
    ran = subprocess.CompletedProcess([], 1, "", "no such file")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ran)
    with pytest.raises(kustomize.KustomizeError, match="no such file"):
        kustomize.render_all([("base", ())])

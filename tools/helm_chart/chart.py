"""All files of the chart, from what kustomize renders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.helm_chart import documents
from tools.helm_chart.kustomize import Manifest, render_all
from tools.helm_chart.mark import DefaultError, Marker, identity
from tools.helm_chart.merge import merge
from tools.helm_chart.nodes import ABSENT, Node
from tools.helm_chart.scenarios import SCENARIOS, Scenario
from tools.helm_chart.template import template_of
from tools.helm_chart.value_table import COMPUTED, VALUES

CHART = documents.ROOT / "helm" / "redbatch"
LEFT_OUT = ("Namespace/redbatch",)
"""`redbatch k8s secrets` creates the Namespace, before Helm comes: Helm would refuse to take it over."""
DEV_CPU = ("overlays/dev-cpu", ())
DEV_CPU_TEXT = "For a cluster without GPUs, such as kind or minikube, as k8s/overlays/dev-cpu: no API keys, small pods."


def combinations() -> list[tuple[str, Sequence[str]]]:
    """Returns what `files` needs rendered, in its order."""
    return [*((each.overlay, each.components) for each in SCENARIOS), DEV_CPU]


def files(rendered: Sequence[list[Manifest]]) -> dict[Path, str]:
    """Returns the text of each file, by its path in the chart, from the objects of `combinations`.

    Raises DefaultError: a value has no default in k8s/, or several ones.
    """
    *of_scenarios, dev_cpu = rendered
    marker = Marker((*COMPUTED, *VALUES))
    trees = {scenario: _marked(marker, each) for scenario, each in zip(SCENARIOS, of_scenarios, strict=True)}
    defaults = {each.name: None if each.optional else marker.default(each) for each in VALUES}
    found = documents.entries(defaults)
    names = sorted({name for each in trees.values() for name in each})
    merged = {name: merge({scenario: each.get(name, ABSENT) for scenario, each in trees.items()}) for name in names}
    cpu = of_scenarios[SCENARIOS.index(Scenario(device="cpu"))]
    header = f"{{{{- /* {documents.NOTE} */ -}}}}\n"
    texts = {
        "Chart.yaml": documents.chart_yaml(),
        "values.yaml": documents.values_yaml(found),
        "values-dev-cpu.yaml": documents.preset_yaml(DEV_CPU_TEXT, {"worker.device": "cpu"} | preset(dev_cpu, cpu)),
        "values.schema.json": documents.schema_json(found),
        "README.md": documents.readme(found),
        "templates/_helpers.tpl": header + documents.HELPERS,
        "templates/conflicts.yaml": header + documents.conflicts_template(),
    } | {f"templates/{_file_of(name)}": header + template_of(tree) for name, tree in merged.items()}
    return {Path(name): text for name, text in texts.items()}


def preset(overlay: list[Manifest], base: list[Manifest]) -> dict[str, Any]:
    """Returns the values that make the base an overlay, by name."""
    new, old = Marker((*COMPUTED, *VALUES)), Marker((*COMPUTED, *VALUES))
    _marked(new, overlay)
    _marked(old, base)
    both = [each for each in VALUES if each.name in new.found]
    changed = {each.name: (new.default(each), old.default(each)) for each in both}
    return {name: _difference(*pair) for name, pair in changed.items() if pair[0] != pair[1]}


def current() -> dict[Path, str]:
    """Returns the checked-in files, by their paths in the chart."""
    return {path.relative_to(CHART): path.read_text(encoding="utf-8") for path in CHART.rglob("*") if path.is_file()}


def write() -> None:
    """Writes the chart, and removes the files that it no longer has. Raises KustomizeError and DefaultError."""
    new = files(render_all(combinations()))
    for path in current().keys() - new.keys():
        (CHART / path).unlink()
    for path, text in new.items():
        (CHART / path).parent.mkdir(parents=True, exist_ok=True)
        (CHART / path).write_text(text, encoding="utf-8")


def _marked(marker: Marker, manifests: list[Manifest]) -> Mapping[str, Any]:
    return {identity(each): marker.mark(each) for each in manifests if identity(each) not in LEFT_OUT}


def _file_of(name: str) -> str:
    kind, _, of = name.partition("/")
    return f"{kind.lower()}-{of}.yaml"


def _difference(new: Node, old: Node) -> Node:
    """Returns what has to be given of an object, as Helm merges objects. Raises DefaultError: something is gone."""
    if not (isinstance(new, dict) and isinstance(old, dict)):
        return new
    if gone := old.keys() - new.keys():
        raise DefaultError(f"an overlay has no {', '.join(sorted(gone))}, which a value cannot remove: give it a value")
    return {key: _difference(each, old.get(key)) for key, each in new.items() if each != old.get(key)}

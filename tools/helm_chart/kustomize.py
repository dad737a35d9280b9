"""Renders combinations of overlays and components of k8s/, all in one run of kubectl, without a cluster."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

K8S = Path(__file__).parents[2] / "k8s"
NAMESPACE = "redbatch"
API = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
Manifest = dict[str, Any]


class KustomizeError(RuntimeError):
    """Kubectl could not render the manifests."""


def render_all(combinations: Sequence[tuple[str, Iterable[str]]]) -> list[list[Manifest]]:
    """Returns the objects of each combination: a folder of k8s/, and the components added to it.

    A run of kubectl costs more than a combination. So each one is rendered into a separate namespace, which then shows
    to which combination an object belongs. Raises KustomizeError.
    """
    names = [f"combination-{number}" for number in range(len(combinations))]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for namespace, (overlay, components) in zip(names, combinations, strict=True):
            listed = [os.path.relpath(K8S / "components" / each, folder / namespace) for each in components]
            resources = [os.path.relpath(K8S / overlay, folder / namespace)]
            _write(folder / namespace, {"namespace": namespace, "resources": resources, "components": listed})
        _write(folder, {"resources": names})
        words = ["kubectl", "kustomize", name]
        ran = subprocess.run(words, check=False, capture_output=True, text=True)
    if ran.returncode != 0:
        raise KustomizeError(f"kubectl kustomize cannot render k8s/, correct it: {ran.stderr}")
    found: dict[str, list[Manifest]] = {namespace: [] for namespace in names}
    for manifest in yaml.load_all(ran.stdout, yaml.CSafeLoader):
        metadata = manifest["metadata"]
        key = "name" if manifest["kind"] == "Namespace" else "namespace"
        found[metadata[key]].append(manifest)
        metadata[key] = NAMESPACE
    return [found[namespace] for namespace in names]


def _write(folder: Path, kustomization: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(API | kustomization), encoding="utf-8")

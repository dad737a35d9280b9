"""The files of the chart besides its templates: Chart.yaml, values.yaml, values.schema.json, README.md."""

from __future__ import annotations

import json
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tools.helm_chart.scenarios import CONFLICTS, FLAGS, Flag, Scenario
from tools.helm_chart.value_table import VALUES, schema_of

ROOT = Path(__file__).parents[2]
NOTE = "Written by `make chart` from k8s/ and tools/helm_chart: change it there."
HELPERS = """\
{{- /* The settings of the gateways, as JSON. */ -}}
{{- define "redbatch.gateway-settings" -}}
{{ merge (dict "REDBATCH_QUEUE" .Values.queue) .Values.gateway.settings | toJson }}
{{- end }}

{{- /* The hash that kustomize appends to the name of a ConfigMap with these data. */ -}}
{{- define "redbatch.hash" -}}
{{ dict "kind" "ConfigMap" "name" "" "data" . | toJson | sha256sum | trunc 10
    | replace "0" "g" | replace "1" "h" | replace "3" "k" | replace "a" "m" | replace "e" "t" }}
{{- end }}
"""


class Entry(NamedTuple):
    """A value as users see it: its name with dots, its default, its description and its JSON schema."""

    name: str
    default: Any
    text: str
    schema: Mapping[str, Any]


def entries(defaults: Mapping[str, Any]) -> list[Entry]:
    """Returns all values of the chart: those of an object together, flags first. `defaults` are by name."""
    flags = [Entry(flag.name, chosen, flag.text, _schema_of(flag)) for flag, chosen in _flags()]
    values = [Entry(each.name, defaults[each.name], each.text, schema_of(each)) for each in VALUES]
    every = [*flags, *values]
    first = [each.name.partition(".")[0] for each in (*values, *flags)]
    return [*_flat(_nested(sorted(every, key=lambda each: first.index(each.name.partition(".")[0]))))]


def chart_yaml() -> str:
    """Returns Chart.yaml, with the version of the project."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = {
        "apiVersion": "v2",
        "name": "redbatch",
        "description": project["description"],
        "type": "application",
        "version": project["version"],
        "appVersion": project["version"],
        "kubeVersion": ">=1.30.0-0",
    }
    return f"# {NOTE}\n{yaml.safe_dump(chart, sort_keys=False)}"


def values_yaml(found: list[Entry]) -> str:
    """Returns values.yaml: the defaults, each with its description."""
    return f"# {NOTE}\n" + "\n".join(_yaml_lines(_nested(found), "")) + "\n"


def preset_yaml(text: str, values: Mapping[str, Any]) -> str:
    """Returns a file for `helm install --values`."""
    return f"# {text}\n# {NOTE}\n{yaml.safe_dump(_nest(values), sort_keys=False)}"


def schema_json(found: list[Entry]) -> str:
    """Returns values.schema.json, which refuses values that the chart does not have."""
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "$comment": NOTE, **_object_schema(_nested(found))}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def readme(found: list[Entry]) -> str:
    """Returns README.md of the chart: its values."""
    rows = [f"| `{each.name}` | {_shown(each)} | {each.text} |" for each in found]
    refused = [f"- {each.message}" for each in CONFLICTS]
    purpose = (
        "[docs/deploy.md](../../docs/deploy.md#helm) says how to install it. With the defaults it renders the objects "
        "of `k8s/overlays/gpu`, and with `values-dev-cpu.yaml` those of `k8s/overlays/dev-cpu`. Only the Namespace is "
        "missing: `redbatch k8s secrets` creates it."
    )
    parts = [
        f"<!-- {NOTE} -->",
        "# Helm chart of Redbatch",
        purpose,
        "## Values",
        "\n".join(["| value | default | description |", "|---|---|---|", *rows]),
        "## Refused combinations",
        "\n".join(refused),
    ]
    return "\n\n".join(parts) + "\n"


def conflicts_template() -> str:
    """Returns a template that renders nothing, and fails for combinations that k8s/ does not have."""
    lines = [
        line
        for each in CONFLICTS
        for line in (f"{{{{- if {each.condition} }}}}", f"{{{{- fail {json.dumps(each.message)} }}}}", "{{- end }}")
    ]
    return "\n".join(lines) + "\n"


def _flags() -> Iterator[tuple[Flag, str | bool]]:
    for field, chosen in Scenario()._asdict().items():
        yield FLAGS[field], chosen


def _schema_of(flag: Flag) -> dict[str, Any]:
    kind: dict[str, Any] = {"enum": [*flag.choices]} if flag.choices else {"type": "boolean"}
    return kind | {"description": flag.text}


def _nest(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested objects of names with dots."""
    nested: dict[str, Any] = {}
    for name, value in values.items():
        *parents, last = name.split(".")
        at = nested
        for each in parents:
            at = at.setdefault(each, {})
        at[last] = value
    return nested


def _nested(found: list[Entry]) -> dict[str, Any]:
    return _nest({each.name: each for each in found})


def _flat(nested: dict[str, Any]) -> Iterator[Entry]:
    for each in nested.values():
        if isinstance(each, Entry):
            yield each
        else:
            yield from _flat(each)


def _yaml_lines(nested: dict[str, Any], indent: str) -> Iterator[str]:
    for name, each in nested.items():
        if isinstance(each, Entry):
            choices = f" ({' | '.join(each.schema['enum'])})" if "enum" in each.schema else ""
            yield from textwrap.wrap(
                each.text + choices, 118, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ",
                break_long_words=False, break_on_hyphens=False,
            )  # fmt: skip
            written = yaml.safe_dump({name: each.default}, width=float("inf"), sort_keys=False).rstrip()
            yield from (f"{indent}{line}" for line in written.splitlines())
        else:
            yield f"{indent}{name}:"
            yield from _yaml_lines(each, f"{indent}  ")


def _object_schema(nested: dict[str, Any]) -> dict[str, Any]:
    required = [name for name, each in nested.items() if not isinstance(each, Entry) or each.default is not None]
    properties = {
        name: dict(each.schema) if isinstance(each, Entry) else _object_schema(each) for name, each in nested.items()
    }
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _shown(entry: Entry) -> str:
    choices = " or ".join(f"`{each}`" for each in entry.schema.get("enum", []) if each != entry.default)
    return f"`{json.dumps(entry.default)}`" + (f" ({choices})" if choices else "")

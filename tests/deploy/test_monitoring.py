"""Monitoring on Kubernetes: rules, dashboard and runbooks must agree with the metrics of gateways and workers."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.metrics import MetricWrapperBase

import api.metrics
import gpuworker.metrics
from api.errors import status_of
from shared.error_tree import error_tree
from shared.errors import JobsFullError, TooManyConnectionsError, TooManyHeadsError
from shared.keys import LANES, RELEASED
from shared.messages import STATES
from shared.process.histogram import Histogram
from tests import plain_http
from tests.deploy.custom_resources import violations
from tests.deploy.dockerfile import ROOT
from tests.deploy.promql import groups_in, joins_in, matchers_in, metrics_in
from tests.deploy.promtool import check_rules, promtool
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, metrics_url
from tests.processes import Processes, Program
from tests.waiting import wait_until

COMPONENT = ROOT / "k8s" / "components" / "monitoring"
RULES_TEST = Path(__file__).with_name("rules_test.yml")
RUNBOOKS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
SCRAPE_LABELS = {"namespace", "pod", "instance", "job"}
"""Labels that a scrape adds."""

STATUSES = {cls.code: status_of(cls("")) for cls in error_tree()}
VALUES = {
    "job": {"redbatch-gateway", "redbatch-worker"},
    "lane": set(LANES),
    "state": set(STATES),
    "code": set(STATUSES),
    "status": {"200", "202", "499", *map(str, STATUSES.values())},
    "origin": {RELEASED, gpuworker.metrics.SILENT},
}
"""Possible values of labels, whether they have been exported or not."""


def documents(name: str) -> list[dict[str, Any]]:
    """Returns the documents of a file of the component."""
    return list(yaml.safe_load_all((COMPONENT / name).read_text(encoding="utf-8")))


GROUPS: list[dict[str, Any]] = documents("rules.yaml")[0]["spec"]["groups"]
ALERTS: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
DASHBOARD: dict[str, Any] = json.loads((COMPONENT / "dashboard.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = [each for row in DASHBOARD["panels"] for each in (row, *row.get("panels", []))]
VARIABLES = {"$namespace": ".*", "$queue": "minilm|other", "$__rate_interval": "1m"}


def expressions() -> list[str]:
    """Returns all queries of the dashboard, as Grafana would send them."""
    found = []
    for panel in PANELS:
        for target in panel.get("targets", []):
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            found.append(expression)
    return found


@dataclass(frozen=True)
class Scrapes:
    """The exported metrics of a gateway and a worker."""

    pages: tuple[str, ...]

    def names(self) -> set[str]:
        """Returns the names of all possible series: metrics are exported from the start, some without series."""
        found = set()
        for page in self.pages:
            for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE):
                parts = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
                found |= {name + part for part in parts}
        return found

    def values(self, name: str, label: str) -> set[str]:
        """Returns the exported values of a label of a series."""
        rows = re.findall(rf"^{name}\{{(.*)\}} ", "\n".join(self.pages), re.MULTILINE)
        return {value for row in rows for value in re.findall(rf'\b{label}="([^"]*)"', row)}


def declared() -> dict[str, set[str]]:
    """Returns the labels of each possible series, without those that a scrape adds."""
    found: dict[str, set[str]] = {}
    for module in (api.metrics, gpuworker.metrics):
        for metric in vars(module).values():
            if isinstance(metric, MetricWrapperBase | Histogram):
                (family,) = metric.describe()
                labels = set(getattr(metric, "_labelnames", ()))
                ends = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",)}.get(family.type, ("",))
                found |= {family.name + end: labels | ({"le"} if end == "_bucket" else set()) for end in ends}
    return found


LABELS = declared()


def labels_of(names: Iterable[str]) -> set[str]:
    """Returns the labels that all of these series have."""
    return set.intersection(*(LABELS.get(name, set()) | SCRAPE_LABELS for name in names))


def codes_in(expression: str) -> set[str]:
    """Returns the error codes that an expression selects."""
    return {code for each in matchers_in(expression) if each.label == "code" for code in each.value.split("|")}


@pytest.fixture(scope="module")
def scrapes(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scrapes]:
    """Yields the metrics of both processes after an answered and a refused request."""
    cluster = GatewayCluster(
        Processes(tmp_path_factory.mktemp("scraped")), redis_url, f"scraped-{uuid.uuid4().hex[:8]}"
    )

    async def start() -> tuple[GatewayProcess, Program]:
        gateway, worker = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
        await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
        return gateway, worker

    async def stop() -> None:
        async with cluster.processes:
            pass

    with asyncio.Runner() as runner:
        gateway, worker = runner.run(start())
    assert [gateway.embed(body).status_code for body in ({"text": "a"}, {})] == [200, 400]
    yield Scrapes(tuple(plain_http.get(metrics_url(each)).text for each in (gateway.program, worker)))
    with asyncio.Runner() as runner:
        runner.run(stop())
    cluster.check_leaks()


def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    """The rules have valid syntax and templates, and no duplicate names."""
    check_rules(GROUPS, tmp_path)


def test_each_alert_fires_only_when_it_must(tmp_path: Path) -> None:
    """Each alert fires on its test series above its bound for long enough, and neither below it nor earlier."""
    check_rules(GROUPS, tmp_path)
    tests = tmp_path / RULES_TEST.name
    tests.write_text(RULES_TEST.read_text(encoding="utf-8"), encoding="utf-8")
    assert "SUCCESS" in promtool("test", "rules", tests)


def test_each_alert_is_tested_both_ways() -> None:
    """Each alert has a test time at which it must fire, and one at which it must not."""
    fires: set[str] = set()
    holds: set[str] = set()
    for group in yaml.safe_load(RULES_TEST.read_text(encoding="utf-8"))["tests"]:
        for each in group["alert_rule_test"]:
            (fires if each["exp_alerts"] else holds).add(each["alertname"])
    assert fires == holds == set(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_each_alert_has_a_severity_a_text_and_a_runbook(name: str) -> None:
    """Each alert has a severity and annotations, and its link leads to the heading of its runbook."""
    alert = ALERTS[name]
    assert alert["labels"]["severity"] in {"warning", "critical"}
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
    address, anchor = alert["annotations"]["runbook_url"].split("#")
    assert (address, anchor) == ("https://redbatch.example.com/docs/operations.md", name.lower())
    runbook = re.search(rf"^### {name}\n\n\*(Critical|Warning)\.\*(.*?)(?=^##)", RUNBOOKS, re.MULTILINE | re.DOTALL)
    assert runbook is not None
    assert runbook[1].lower() == alert["labels"]["severity"]
    for part in ("Look", "o**", "Escalate"):
        assert part in runbook[2]


def test_there_is_a_runbook_for_no_other_alert() -> None:
    """The runbooks are those of the existing alerts."""
    headings = re.findall(r"^### (Redbatch\w+)$", RUNBOOKS, re.MULTILINE)
    assert sorted(headings) == sorted(ALERTS)
    assert set(re.findall(r"\bRedbatch[A-Z]\w+", RUNBOOKS)) == set(ALERTS)


def test_promtool_accepts_each_query_of_the_dashboard(tmp_path: Path) -> None:
    """The queries of the dashboard are valid as recording rules."""
    rules = [{"record": f"panel:{n}", "expr": expression} for n, expression in enumerate(expressions())]
    check_rules([{"name": "dashboard", "rules": rules}], tmp_path)


@pytest.mark.redis
@pytest.mark.parametrize("which", [0, 1], ids=["gateway", "worker"])
def test_promtool_accepts_the_metrics(scrapes: Scrapes, which: int) -> None:
    """Names, units, help and types of the exported metrics are valid."""
    assert promtool("check", "metrics", text=scrapes.pages[which]) == ""


EXPRESSIONS = [*(alert["expr"] for alert in ALERTS.values()), *expressions()]


@pytest.mark.redis
def test_all_queried_metrics_are_exported(scrapes: Scrapes) -> None:
    """Each metric of a rule or a panel is exported; only the GPU metrics come from another exporter."""
    named = {name for each in EXPRESSIONS for name in metrics_in(each)} - {"up"}
    assert len(named) > 40
    assert named - scrapes.names() == set()


@pytest.mark.redis
def test_all_queried_label_values_are_possible(scrapes: Scrapes) -> None:
    """Each matcher selects an existing label with a possible value; otherwise its alert could never fire."""
    checked = set()
    for expression in EXPRESSIONS:
        for each in matchers_in(expression):
            assert each.label in labels_of([each.metric]), each
            if each.label not in {"namespace", "queue"}:
                values = scrapes.values(each.metric, each.label) | VALUES.get(each.label, set())
                checked |= {each.label}
                for pattern in each.patterns():
                    assert any(re.fullmatch(pattern, value) for value in values), each
    assert checked == set(VALUES)


def test_all_aggregated_and_joined_labels_exist() -> None:
    """All aggregated series have the labels of `by`, and some joined series have those of `on`."""
    for expression in EXPRESSIONS:
        for labels, inside in groups_in(expression):
            if "DCGM_" not in inside:
                assert set(labels) <= labels_of(metrics_in(inside)), (labels, inside)
        any_of = set.union(SCRAPE_LABELS, *(LABELS.get(name, set()) for name in metrics_in(expression)))
        for labels in joins_in(expression):
            assert set(labels) <= any_of, (labels, expression)


def test_all_displayed_labels_exist() -> None:
    """Labels in legends and in descriptions of alerts exist in the results of the queries."""
    shown = [(alert["expr"], alert["annotations"]["description"]) for alert in ALERTS.values()]
    shown += [(it["expr"], it.get("legendFormat", "")) for panel in PANELS for it in panel.get("targets", [])]
    for expression, text in shown:
        kept = {label for labels, _ in groups_in(expression) for label in labels}
        names = re.findall(r"\$labels\.(\w+)|\{\{(\w+)\}\}", text)
        assert {one or other for one, other in names} <= (kept or SCRAPE_LABELS), (expression, text)


def test_the_codes_of_failed_and_of_shed_requests() -> None:
    """Errors count as failed if they are a 5xx, except those of a bound; shed are the 429 for lack of time or room."""
    of_bounds = {JobsFullError.code, TooManyConnectionsError.code, TooManyHeadsError.code}
    failed = {code for code, status in STATUSES.items() if status >= 500} - of_bounds
    shed = {"overloaded", "queue_full"}
    panels = {panel["title"]: panel["targets"][0]["expr"] for panel in PANELS if panel["type"] == "stat"}
    assert codes_in(ALERTS["RedbatchErrors"]["expr"]) == codes_in(panels["Errors"]) == failed
    assert codes_in(ALERTS["RedbatchShedding"]["expr"]) == codes_in(panels["Refused"]) == shed


def test_the_dashboard_explains_itself() -> None:
    """Each panel has a title, a description and a unit, uses the selected data source, and overlaps no other."""
    assert [each["name"] for each in DASHBOARD["templating"]["list"]] == ["datasource", "namespace", "queue"]
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] not in {"row", "text"}:
            assert panel["title"]
            assert panel["description"].endswith(".")
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            unit = panel["fieldConfig"]["defaults"].get("unit") or panel["options"]["yAxis"]["unit"]
            assert isinstance(unit, str)
            assert panel["targets"]


def test_foreign_metrics_are_in_their_own_row() -> None:
    """Metrics of DCGM are only in the row GPU, which is collapsed and explains them."""
    others = [row["title"] for row in DASHBOARD["panels"] if "DCGM_" in json.dumps(row)]
    assert others == ["GPU"]
    (gpu,) = [row for row in DASHBOARD["panels"] if row["title"] == "GPU"]
    assert gpu["collapsed"] is True
    assert "DCGM" in gpu["panels"][0]["options"]["content"]


@pytest.mark.parametrize(
    "resource", [*documents("podmonitors.yaml"), *documents("rules.yaml")], ids=lambda it: it["kind"]
)
def test_custom_resources_have_the_fields_of_their_kind(resource: dict[str, Any]) -> None:
    """The custom resources match their schemas, which would refuse an unknown field."""
    assert violations(resource) == []
    assert violations(resource | {"spec": resource["spec"] | {"intervall": "15s"}}) != []


def test_gateways_and_workers_are_scraped_as_the_rules_expect() -> None:
    """Both are scraped at the port `admin`, under the job that the rules select."""
    monitors = {each["metadata"]["name"]: each["spec"] for each in documents("podmonitors.yaml")}
    assert set(monitors) == {"gateway", "worker"}
    for name, spec in monitors.items():
        labels = {"app.kubernetes.io/name": "redbatch", "app.kubernetes.io/component": name}
        assert spec["selector"]["matchLabels"] == labels
        (endpoint,) = spec["podMetricsEndpoints"]
        assert (endpoint["port"], endpoint["path"], endpoint["interval"]) == ("admin", "/metrics", "15s")
        assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": f"redbatch-{name}"}]

"""Monitoring on Kubernetes: rules, dashboard and runbooks, beside the metrics that gateways and workers really have."""

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
from shared.errors import JobsFull, error_tree
from shared.keys import LANES, RELEASED
from shared.messages import STATES
from tests import plain_http
from tests.deploy.custom_resources import violations
from tests.deploy.dockerfile import ROOT
from tests.deploy.promql import groups_in, joins_in, matchers_in, metrics_in
from tests.deploy.promtool import check_rules, promtool
from tests.integration.gateway.house import Gateway, House, metrics_url
from tests.processes import Processes, Program
from tests.waiting import wait_until

COMPONENT = ROOT / "k8s" / "components" / "monitoring"
RULES_TEST = Path(__file__).with_name("rules_test.yml")
RUNBOOKS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
OF_PROMETHEUS = {"namespace", "pod", "instance", "job"}
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
"""What labels may say, whether it has been said or not."""


def documents(name: str) -> list[dict[str, Any]]:
    """Returns what stands in a file of the component."""
    return list(yaml.safe_load_all((COMPONENT / name).read_text(encoding="utf-8")))


GROUPS: list[dict[str, Any]] = documents("rules.yaml")[0]["spec"]["groups"]
ALERTS: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
DASHBOARD: dict[str, Any] = json.loads((COMPONENT / "dashboard.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = [each for row in DASHBOARD["panels"] for each in (row, *row.get("panels", []))]
VARIABLES = {"$namespace": ".*", "$queue": "minilm|other", "$__rate_interval": "1m"}


def expressions() -> list[str]:
    """Returns every query of the dashboard, as Grafana would send it."""
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
    """What a gateway and a worker export."""

    pages: tuple[str, ...]

    def names(self) -> set[str]:
        """Every series that there may be: a counter or histogram is exported from the start, if need be without one."""
        found = set()
        for page in self.pages:
            for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE):
                parts = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
                found |= {name + part for part in parts}
        return found

    def values(self, name: str, label: str) -> set[str]:
        """The values that a label of a series has been seen with."""
        rows = re.findall(rf"^{name}\{{(.*)\}} ", "\n".join(self.pages), re.MULTILINE)
        return {value for row in rows for value in re.findall(rf'\b{label}="([^"]*)"', row)}


def declared() -> dict[str, set[str]]:
    """Returns the labels of each series that there may be, as far as a scrape adds none."""
    found: dict[str, set[str]] = {}
    for module in (api.metrics, gpuworker.metrics):
        for metric in vars(module).values():
            if isinstance(metric, MetricWrapperBase):
                (family,) = metric.describe()
                labels = set(metric._labelnames)
                ends = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",)}.get(family.type, ("",))
                found |= {family.name + end: labels | ({"le"} if end == "_bucket" else set()) for end in ends}
    return found


LABELS = declared()


def labels_of(names: Iterable[str]) -> set[str]:
    """Returns the labels that each of these series has."""
    return set.intersection(*(LABELS.get(name, set()) | OF_PROMETHEUS for name in names))


def codes_in(expression: str) -> set[str]:
    """Returns the errors that an expression is about."""
    return {code for each in matchers_in(expression) if each.label == "code" for code in each.value.split("|")}


@pytest.fixture(scope="module")
def scrapes(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scrapes]:
    """What both export after a request and a refused one."""
    house = House(Processes(tmp_path_factory.mktemp("scraped")), redis_url, f"scraped-{uuid.uuid4().hex[:8]}")

    async def start() -> tuple[Gateway, Program]:
        gateway, worker = await asyncio.gather(house.gateway(), house.worker())
        await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker", timeout_s=20.0)
        return gateway, worker

    async def stop() -> None:
        async with house.processes:
            pass

    with asyncio.Runner() as runner:
        gateway, worker = runner.run(start())
    assert [gateway.embed(body).status_code for body in ({"text": "a"}, {})] == [200, 400]
    yield Scrapes(tuple(plain_http.get(metrics_url(each)).text for each in (gateway.program, worker)))
    with asyncio.Runner() as runner:
        runner.run(stop())
    house.check()


def test_promtool_finds_nothing_wrong_with_the_rules(tmp_path: Path) -> None:
    """Syntax, templates, names given twice."""
    check_rules(GROUPS, tmp_path)


def test_each_alert_fires_and_holds_back(tmp_path: Path) -> None:
    """In series made for it: above its bound and for long enough; and not below, nor before."""
    check_rules(GROUPS, tmp_path)
    tests = tmp_path / RULES_TEST.name
    tests.write_text(RULES_TEST.read_text(encoding="utf-8"), encoding="utf-8")
    assert "SUCCESS" in promtool("test", "rules", tests)


def test_each_alert_is_tested_both_ways() -> None:
    """By a moment at which it has to fire, and one at which it must not."""
    fires: set[str] = set()
    holds: set[str] = set()
    for group in yaml.safe_load(RULES_TEST.read_text(encoding="utf-8"))["tests"]:
        for each in group["alert_rule_test"]:
            (fires if each["exp_alerts"] else holds).add(each["alertname"])
    assert fires == holds == set(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_each_alert_says_what_it_is_and_where_to_read_on(name: str) -> None:
    """How bad, what, of what size; and the heading of its runbook is where the link leads."""
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
    """One that is renamed takes its page along."""
    headings = re.findall(r"^### (Redbatch\w+)$", RUNBOOKS, re.MULTILINE)
    assert sorted(headings) == sorted(ALERTS)
    assert set(re.findall(r"\bRedbatch[A-Z]\w+", RUNBOOKS)) == set(ALERTS)


def test_promtool_reads_each_query_of_the_dashboard(tmp_path: Path) -> None:
    """As rules that record them."""
    rules = [{"record": f"panel:{n}", "expr": expression} for n, expression in enumerate(expressions())]
    check_rules([{"name": "dashboard", "rules": rules}], tmp_path)


@pytest.mark.redis
@pytest.mark.parametrize("which", [0, 1], ids=["gateway", "worker"])
def test_promtool_finds_nothing_wrong_with_the_metrics(scrapes: Scrapes, which: int) -> None:
    """Names, units, help and types of what is exported."""
    assert promtool("check", "metrics", text=scrapes.pages[which]) == ""


ASKED = [*(alert["expr"] for alert in ALERTS.values()), *expressions()]


@pytest.mark.redis
def test_what_is_asked_for_is_exported(scrapes: Scrapes) -> None:
    """Every metric that a rule or a panel names; only those of the GPU are others'."""
    named = {name for each in ASKED for name in metrics_in(each)} - {"up"}
    assert len(named) > 40
    assert named - scrapes.names() == set()


@pytest.mark.redis
def test_values_that_are_asked_for_may_come(scrapes: Scrapes) -> None:
    """Of a label that the metric has: what a process has exported, or may yet. Nothing else ever fires an alert."""
    checked = set()
    for expression in ASKED:
        for each in matchers_in(expression):
            assert each.label in labels_of([each.metric]), each
            if each.label not in {"namespace", "queue"}:
                values = scrapes.values(each.metric, each.label) | VALUES.get(each.label, set())
                checked |= {each.label}
                for pattern in each.wanted():
                    assert any(re.fullmatch(pattern, value) for value in values), each
    assert checked == set(VALUES)


def test_labels_that_are_asked_for_are_there() -> None:
    """Those by which series are put together are on each of them; those by which two sides are joined, on some."""
    for expression in ASKED:
        for labels, inside in groups_in(expression):
            if "DCGM_" not in inside:
                assert set(labels) <= labels_of(metrics_in(inside)), (labels, inside)
        any_of = set.union(OF_PROMETHEUS, *(LABELS.get(name, set()) for name in metrics_in(expression)))
        for labels in joins_in(expression):
            assert set(labels) <= any_of, (labels, expression)


def test_labels_that_are_shown_are_there() -> None:
    """In legends, and in what alerts say."""
    shown = [(alert["expr"], alert["annotations"]["description"]) for alert in ALERTS.values()]
    shown += [(it["expr"], it.get("legendFormat", "")) for panel in PANELS for it in panel.get("targets", [])]
    for expression, text in shown:
        kept = {label for labels, _ in groups_in(expression) for label in labels}
        names = re.findall(r"\$labels\.(\w+)|\{\{(\w+)\}\}", text)
        assert {one or other for one, other in names} <= (kept or OF_PROMETHEUS), (expression, text)


def test_what_counts_as_failed_and_as_shed() -> None:
    """All that is a 5xx, but for the bound of jobs; of what is a 429, what the fleet has no time or room for."""
    failed = {code for code, status in STATUSES.items() if status >= 500} - {JobsFull.code}
    shed = {"overloaded", "queue_full"}
    panels = {panel["title"]: panel["targets"][0]["expr"] for panel in PANELS if panel["type"] == "stat"}
    assert codes_in(ALERTS["RedbatchErrors"]["expr"]) == codes_in(panels["Errors"]) == failed
    assert codes_in(ALERTS["RedbatchShedding"]["expr"]) == codes_in(panels["Refused"]) == shed


def test_the_dashboard_explains_itself() -> None:
    """Each panel has a title, a sentence and a unit, asks the data source that was chosen, and covers no other."""
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


def test_what_is_not_ours_is_in_the_row_that_says_so() -> None:
    """DCGM's metrics are in the row GPU, which is closed."""
    others = [row["title"] for row in DASHBOARD["panels"] if "DCGM_" in json.dumps(row)]
    assert others == ["GPU"]
    (gpu,) = [row for row in DASHBOARD["panels"] if row["title"] == "GPU"]
    assert gpu["collapsed"] is True
    assert "DCGM" in gpu["panels"][0]["options"]["content"]


@pytest.mark.parametrize(
    "resource", [*documents("podmonitors.yaml"), *documents("rules.yaml")], ids=lambda it: it["kind"]
)
def test_custom_resources_have_the_fields_of_their_kind(resource: dict[str, Any]) -> None:
    """And a field that does not exist would be found."""
    assert violations(resource) == []
    assert violations(resource | {"spec": resource["spec"] | {"intervall": "15s"}}) != []


def test_gateways_and_workers_are_scraped_as_the_rules_want_it() -> None:
    """Each under the job that rules name, by the port that pods call admin."""
    monitors = {each["metadata"]["name"]: each["spec"] for each in documents("podmonitors.yaml")}
    assert set(monitors) == {"gateway", "worker"}
    for name, spec in monitors.items():
        labels = {"app.kubernetes.io/name": "redbatch", "app.kubernetes.io/component": name}
        assert spec["selector"]["matchLabels"] == labels
        (endpoint,) = spec["podMetricsEndpoints"]
        assert (endpoint["port"], endpoint["path"], endpoint["interval"]) == ("admin", "/metrics", "15s")
        assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": f"redbatch-{name}"}]

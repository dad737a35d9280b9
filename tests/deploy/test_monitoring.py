"""Monitoring on Kubernetes: rules, dashboard and runbooks, beside the metrics that gateways and workers really have."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import plain_http
from tests.deploy.custom_resources import faults
from tests.deploy.dockerfile import ROOT
from tests.deploy.promtool import check_rules, promtool
from tests.integration.gateway.house import Gateway, House, metrics_url
from tests.processes import Processes, Program
from tests.waiting import wait_until

COMPONENT = ROOT / "k8s" / "components" / "monitoring"
RULES_TEST = Path(__file__).with_name("rules_test.yml")
RUNBOOKS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
OF_PROMETHEUS = {"namespace", "pod", "instance", "job", "le"}
"""Labels that a scrape adds, and that of a histogram's buckets."""


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

    def labels(self, name: str) -> set[str]:
        """The labels of a series, as far as there is one."""
        rows = re.findall(rf"^{name}\{{(.*)\}} ", "\n".join(self.pages), re.MULTILINE)
        return {label for row in rows for label in re.findall(r'(\w+)="', row)}


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


@pytest.mark.redis
def test_what_is_asked_for_is_exported(scrapes: Scrapes) -> None:
    """Every metric that a rule or a panel names, by the labels that it has; only those of the GPU are others'."""
    exported = scrapes.names()
    asked = [*(alert["expr"] for alert in ALERTS.values()), *expressions()]
    named = {
        name for each in asked for name in re.findall(r"\b(?:redbatch|process)_\w+", re.sub(r'"[^"]*"', '""', each))
    }
    assert len(named) > 40
    assert named - exported == set()
    for each in asked:
        for name, matchers in re.findall(r"(\w+)\{([^}]*)\}", each):
            labels = set(re.findall(r'(\w+)\s*[=!]~?"', matchers)) - OF_PROMETHEUS
            assert name == "up" or labels <= scrapes.labels(name), f"{name} has no such label"


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
    assert faults(resource) == []
    assert faults(resource | {"spec": resource["spec"] | {"intervall": "15s"}}) != []


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

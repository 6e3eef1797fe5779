"""The alert rules and the dashboard: what they ask Prometheus for is valid, and is what the collection writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.metrics import (
    DRIFT_KINDS,
    FAMILIES,
    capacity_samples,
    drift_samples,
    exposition,
)
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.record import fleet_record
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.plugins.module_utils.fleets import fleet, gpu
from tests.unit.plugins.plugin_utils.views.results import finding, harvester_info

CHECKOUT = Path(__file__).parents[2]
RULES = yaml.safe_load((CHECKOUT / "monitoring/vgpu-fleet-alerts.yml").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((CHECKOUT / "monitoring/vgpu-fleet-dashboard.json").read_text())
TARGETS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
LABEL = re.compile(r"\$labels\.(\w+)")
LEGEND = re.compile(r"{{(\w+)}}")


def written() -> dict[str, set[str]]:
    """The metrics of a generated file with the labels of each."""
    info = harvester_info(fleet(gpu("n1:a", "4Q")), [finding("not_allocatable", "n1")])
    record = fleet_record(info, cluster="lab")
    samples = capacity_samples(record, 1.0) | drift_samples([], 1.0, cluster="lab", platform="harvester")
    text = exposition(samples, cluster="lab", platform="harvester")
    return {family.name: set(family.samples[0].labels) for family in text_string_to_metric_families(text)}


METRICS = written()


def selectors(node: Any) -> Iterator[Any]:
    """Yield everything that an expression selects series with."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    for name in ("expr", "lhs", "rhs"):
        if (child := getattr(node, name, None)) is not None:
            yield from selectors(child)
    for child in getattr(node, "args", None) or ():
        yield from selectors(child)


def used(expression: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for one in selectors(promql_parser.parse(expression)):
        found.setdefault(one.name, set()).update(matcher.name for matcher in one.matchers.matchers)
    return found


@pytest.mark.parametrize("expression", [*(alert["expr"] for alert in ALERTS), *TARGETS])
def test_every_expression_selects_metrics_and_labels_that_are_written(expression: str) -> None:
    selected = used(expression)
    assert selected
    for name, labels in selected.items():
        assert name in METRICS
        assert labels <= METRICS[name]


@pytest.mark.parametrize("alert", ALERTS, ids=[alert["alert"] for alert in ALERTS])
def test_every_alert_is_whole_and_names_labels_that_its_metric_has(alert: dict[str, Any]) -> None:
    assert set(alert) <= {"alert", "expr", "for", "labels", "annotations"}
    assert alert["labels"]["severity"] in {"info", "warning"}
    assert set(alert["annotations"]) == {"summary", "description"}
    assert re.fullmatch(r"\d+[smhd]", alert.get("for", "0s"))
    # The labels of an alert are those of the first metric of its expression.
    labels = METRICS[next(iter(used(alert["expr"])))]
    named = {name for text in alert["annotations"].values() for name in LABEL.findall(text)}
    assert "cluster" in named <= labels


def test_alerts_have_names_of_their_own_and_are_documented() -> None:
    page = (CHECKOUT / "docs/monitoring.md").read_text()
    names = [alert["alert"] for alert in ALERTS]
    assert len(set(names)) == len(names)
    assert [name for name in names if f"`{name}`" not in page] == []


def test_every_metric_is_documented_and_none_else() -> None:
    page = (CHECKOUT / "docs/monitoring.md").read_text()
    assert set(re.findall(r"`(vgpu_fleet_\w+)`", page)) == set(FAMILIES)


def test_the_kinds_of_drift_are_those_of_the_role() -> None:
    rows = re.findall(r"^\| (`.*?`) \|", (CHECKOUT / "roles/vgpu_drift/README.md").read_text(), re.MULTILINE)
    listed = {kind for row in rows for kind in re.findall(r"`(\w+)`", row)}
    assert listed == {kind for kinds in DRIFT_KINDS.values() for kind in kinds}


def test_the_dashboard_can_be_imported() -> None:
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    variables = {one["name"] for one in DASHBOARD["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD))) <= variables | {"__all"}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        assert panel["title"]
        for target in panel["targets"]:
            labels = set.union(*(METRICS[name] for name in used(target["expr"])))
            assert set(LEGEND.findall(target["legendFormat"])) <= labels

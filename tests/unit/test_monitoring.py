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
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import UnboundRequest
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.metrics import (
    DRIFT_KINDS,
    FAMILIES,
    capacity_samples,
    drift_samples,
    exposition,
)
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.record import fleet_record
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.plugins.module_utils.fleets import fleet, gpu, vm
from tests.unit.plugins.plugin_utils.views.results import finding, harvester_info
from tests.unit.promql import alerts, samples

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


HOUR = 3600.0
EXPRESSIONS = {alert["alert"]: alert["expr"] for alert in ALERTS}


def raised(name: str, *gpus: Any, at: float = 0.0, drift: list[Any] | None = None, **more: Any) -> list[dict[str, str]]:
    """Return the alerts of one rule on the metrics of a fleet that was read at time 0."""
    record = fleet_record(harvester_info(fleet(*gpus, **more)), cluster="lab")
    written = capacity_samples(record, 0.0) | drift_samples(drift or [], 0.0, cluster="lab", platform="harvester")
    return alerts(EXPRESSIONS[name], samples(exposition(written, cluster="lab", platform="harvester")), now=at)


@pytest.mark.parametrize(("name", "hours"), [("VgpuFleetCapacityStale", 2), ("VgpuFleetDriftStale", 36)])
def test_metrics_that_nobody_writes_any_more_raise_an_alert(name: str, hours: int) -> None:
    assert raised(name, gpu("n1:a", "4Q"), at=hours * HOUR) == []
    assert [one["cluster"] for one in raised(name, gpu("n1:a", "4Q"), at=hours * HOUR + 1)] == ["lab"]


def test_a_profile_without_a_free_vgpu_raises_an_alert_unless_more_can_be_added() -> None:
    full = raised("VgpuFleetProfileExhausted", gpu("n1:a", "8Q@one 8Q@two"))
    assert [one["profile"] for one in full] == ["A2-8Q"]
    assert raised("VgpuFleetProfileExhausted", gpu("n1:a", "8Q@one 8Q")) == []
    assert raised("VgpuFleetProfileExhausted", gpu("n1:a", "8Q@one")) == []


def test_more_claims_than_vgpus_raise_an_alert() -> None:
    waiting = [UnboundRequest("NVIDIA A2-8Q", 2, vm("waiting", running=False))]
    over = raised("VgpuFleetOverclaimed", gpu("n1:a", "8Q@one 8Q"), claims=waiting)
    assert [one["profile"] for one in over] == ["A2-8Q"]
    assert raised("VgpuFleetOverclaimed", gpu("n1:a", "8Q@one 8Q")) == []


def test_a_node_that_cannot_be_used_raises_one_alert_and_its_vgpus_none() -> None:
    two = (gpu("n1:a", "8Q"), gpu("n2:a", "8Q"))
    assert [one["node"] for one in raised("VgpuFleetNodeUnusable", *two, cordoned=["n2"])] == ["n2"]
    assert raised("VgpuFleetNodeUnusable", *two) == []
    assert raised("VgpuFleetVgpusUnusable", *two, cordoned=["n2"]) == []
    broken = raised("VgpuFleetVgpusUnusable", gpu("n1:a", "8Q ?8Q"), gpu("n2:a", "8Q"))
    assert [(one["node"], one["gpu"]) for one in broken] == [("n1", "n1:a")]


def test_a_vgpu_that_differs_from_its_request_raises_an_alert() -> None:
    assert [one["gpu"] for one in raised("VgpuFleetVgpusDrifted", gpu("n1:a", "4Q~8Q"), gpu("n2:a", "4Q"))] == ["n1:a"]


def test_findings_of_the_drift_role_raise_one_alert_for_each_kind_and_none_for_unused_vgpus() -> None:
    found = [{"kind": kind, "repair": kind == "missing"} for kind in ("missing", "missing", "unused")]
    assert [one["kind"] for one in raised("VgpuFleetDrift", gpu("n1:a", "4Q"), drift=found)] == ["missing"]
    assert raised("VgpuFleetDrift", gpu("n1:a", "4Q")) == []


def test_every_alert_is_evaluated_by_a_test_above() -> None:
    tested = set(re.findall(r'"(VgpuFleet\w+)"', Path(__file__).read_text()))
    assert tested == set(EXPRESSIONS)

# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Addons: values are merged without a loss, and what is written is only what differs."""

from __future__ import annotations

import base64

import pytest
import yaml
from ansible.module_utils.common.dict_transformations import dict_merge
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import paths as r
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.addon.apply import (
    AddonInUse,
    AddonOperation,
    AddonRequest,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.addon.model import (
    Addon,
    AddonFailed,
    InvalidValues,
    NoDriverLocation,
    check_location,
    plan,
    wanted_values,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.client import AdmissionDenied, Conflict, Forbidden
from hypothesis import given, strategies as st

from tests.unit.plugins.module_utils.harvester.objects import Q4, started, vgpu, vm

TEXT = """\
# The driver.
image:
  repo: rancher/harvester-nvidia-driver-toolkit
  tag: v1.8.1
driverLocation: HTTPENDPOINT/NVIDIA-Linux-x86_64-vgpu-kvm.run
"""
scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
trees = st.recursive(
    st.dictionaries(st.text(max_size=3), scalars, max_size=3),
    lambda inner: st.dictionaries(st.text(max_size=3), scalars | inner | st.lists(scalars, max_size=2), max_size=3),
    max_leaves=8,
)


def addon(text=TEXT, *, enabled=True, status="AddonDeploySuccessful", annotations=None, **conditions):
    return Addon.of(
        {
            "metadata": {
                "name": "nvidia-driver-toolkit",
                "namespace": "harvester-system",
                "resourceVersion": "7",
                "annotations": annotations or {},
            },
            "spec": {"chart": "nvidia-driver-runtime", "version": "1", "enabled": enabled, "valuesContent": text},
            "status": {
                "status": status,
                "conditions": [{"type": kind, "status": value} for kind, value in conditions.items()],
            },
        }
    )


def test_values_that_are_so_already_leave_the_text_alone():
    planned = plan(addon(), enabled=True, values={"image": {"tag": "v1.8.1"}})
    assert not planned.changed
    assert planned.after.values_text == TEXT


def test_a_value_is_merged_and_no_key_is_lost():
    planned = plan(addon(), enabled=True, values={"image": {"repository": "mine"}})
    assert planned.patch["metadata"] == {"resourceVersion": "7"}
    assert yaml.safe_load(planned.patch["spec"]["valuesContent"]) == {
        "image": {"repo": "rancher/harvester-nvidia-driver-toolkit", "tag": "v1.8.1", "repository": "mine"},
        "driverLocation": "HTTPENDPOINT/NVIDIA-Linux-x86_64-vgpu-kvm.run",
    }
    assert "enabled" not in planned.patch["spec"]


def test_a_switch_alone_does_not_touch_the_values():
    assert plan(addon(), enabled=False, values={}).patch["spec"] == {"enabled": False}


def test_an_empty_text_stands_for_harvesters_defaults():
    defaults = {"harvesterhci.io/addon-defaults": base64.b64encode(TEXT.encode()).decode()}
    planned = plan(addon("", annotations=defaults), enabled=True, values={"image": {"tag": "v2"}})
    assert planned.after.values["image"]["repo"] == "rancher/harvester-nvidia-driver-toolkit"


@given(trees, trees)
def test_merging_keeps_what_is_not_mentioned_and_takes_what_is(present, wanted):
    result = dict_merge(present, wanted)

    def check(old, new, found):
        for key, value in found.items():
            if key not in new:
                assert value == old[key]
            elif isinstance(new[key], dict) and isinstance(old.get(key), dict):
                check(old[key], new[key], value)
            else:
                assert value == new[key]
        assert set(found) == set(old) | set(new)

    check(present, wanted, result)
    assert dict_merge(result, wanted) == result


@given(trees, trees)
def test_a_second_plan_finds_nothing_to_do(present, wanted):
    first = plan(addon(yaml.safe_dump(present)), enabled=True, values=wanted)
    assert not plan(addon(first.after.values_text), enabled=True, values=wanted).changed


@pytest.mark.parametrize("text", ["a: [", "- a", "word"])
def test_values_that_cannot_be_merged_into_are_refused(text):
    with pytest.raises(InvalidValues):
        plan(addon(text), enabled=True, values={"a": 1})


@pytest.mark.parametrize(
    ("enabled", "status", "progress", "settled"),
    [
        (True, "AddonDeploySuccessful", "False", True),
        (True, "AddonDeploySuccessful", "True", False),
        (True, "AddonEnabling", "False", False),
        (True, "", "False", False),
        (False, "", "False", True),
        (False, "AddonDisabled", "False", True),
        (False, "AddonDisabling", "True", False),
        (False, "AddonDeploySuccessful", "False", False),
    ],
)
def test_an_addon_is_settled_when_it_is_what_its_spec_says(enabled, status, progress, settled):
    assert addon(enabled=enabled, status=status, InProgress=progress).settled is settled


def test_a_failed_operation_is_an_error_until_the_addon_is_disabled():
    stuck = addon(status="AddonEnabling", InProgress="False", OperationFailed="True")
    with pytest.raises(AddonFailed, match="state disabled"):
        plan(stuck, enabled=True, values={"image": {"tag": "v2"}})
    assert plan(stuck, enabled=False, values={}).changed


def test_the_prediction_is_the_end_of_the_operation():
    assert plan(addon(), enabled=False, values={}).after.status == "AddonDisabled"
    assert plan(addon(enabled=False, status=""), enabled=True, values={}).after.status == "AddonDeploySuccessful"
    assert plan(addon(enabled=False, status=""), enabled=False, values={"a": 1}).after.status == ""


@pytest.mark.parametrize(
    "location",
    ["", "HTTPENDPOINT/x.run", "http://HTTPENDPOINT/x.run", "/srv/x.run", "server/x.run", "http://", "http://a b/x"],
)
def test_a_location_that_no_node_can_fetch_from_is_refused(location):
    with pytest.raises(NoDriverLocation):
        check_location(location)


def test_the_drivers_location_is_one_of_the_values():
    url = "https://files.example/NVIDIA.run"
    assert wanted_values("nvidia-driver-toolkit", {"a": 1}, url) == {"a": 1, "driverLocation": url}
    with pytest.raises(InvalidValues, match="two different places"):
        wanted_values("nvidia-driver-toolkit", {"driverLocation": "http://other/x"}, url)
    with pytest.raises(InvalidValues, match="has no driver location"):
        wanted_values("vm-import-controller", None, url)


# What the API server answers
class Server:
    """One addon that is on; writes are answered in turn, by an error or by carrying them out."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.item = {
            "metadata": {"name": "vm-import-controller", "namespace": "harvester-system", "resourceVersion": "1"},
            "spec": {"chart": "c", "version": "1", "enabled": True, "valuesContent": "a: 1"},
            "status": {"status": "AddonDeploySuccessful", "conditions": []},
        }
        self.sent = []

    def get(self, path, **query):
        one = path.endswith("vm-import-controller")
        return self.item if one else {"metadata": {"resourceVersion": "1"}, "items": [self.item]}

    def patch(self, path, body, *, dry_run=False):
        self.sent.append(body)
        if self.answers:
            raise self.answers.pop(0)
        return self.item

    def together(self, calls):
        return [call() for call in calls]


def operation(server, *, enabled=True, values=None):
    request = AddonRequest("vm-import-controller", "harvester-system", enabled, values or {})
    return AddonOperation(server, request, wait=False, seconds=5)


def denied(text):
    return AdmissionDenied(f"The cluster refused to patch it: {text}", status=500)


@pytest.mark.parametrize("check_mode", [True, False])
def test_a_refusal_for_vms_that_were_not_seen_names_them(check_mode):
    text = "nvidia-driver-toolkit addon cannot be disabled as the following VMs are using vGPU devices: default/x"
    server = Server(denied(text))
    with pytest.raises(AddonInUse, match=r"these VMs have .*: default/x\."):
        operation(server, enabled=False).run(check_mode=check_mode)


def test_a_refusal_for_an_operation_in_progress_is_tried_again():
    server = Server(denied("cannot perform operation, as an existing operation is in progress on addon x"))
    assert operation(server, values={"b": 2}).run(check_mode=False).plan.changed
    assert len(server.sent) == 2


def test_any_other_refusal_is_not():
    server = Server(denied("chart field cannot be changed."))
    with pytest.raises(AdmissionDenied, match="chart field"):
        operation(server, values={"b": 2}).run(check_mode=False)
    assert len(server.sent) == 1


def test_a_collision_is_resolved_on_what_is_there_now():
    server = Server(Conflict("changed meanwhile", status=409))
    assert operation(server, values={"b": 2}).run(check_mode=False).plan.changed
    assert len(server.sent) == 2


def test_endless_collisions_end_with_an_error_that_names_the_addon(monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    server = Server(*[Conflict("changed meanwhile", status=409)] * 100)
    with pytest.raises(Conflict, match="changes faster than it can be written"):
        operation(server, values={"b": 2}).run(check_mode=False)
    assert len(server.sent) == 10


class DriverServer(Server):
    """The driver's addon is on, and there are VMs."""

    def __init__(self, vms=(), instances=(), *, enabled=True):
        super().__init__()
        self.lists = {r.VMS: list(vms), r.INSTANCES: list(instances), r.VGPUS: [vgpu(asked=Q4, configured=Q4)]}
        self.item["metadata"]["name"] = "nvidia-driver-toolkit"
        self.item["spec"] |= {"enabled": enabled, "valuesContent": "driverLocation: http://files.example/old.run"}
        self.asked = []

    def get(self, path, **query):
        self.asked.append(path)
        if path.endswith("/addons"):
            return {"metadata": {"resourceVersion": "1"}, "items": [self.item]}
        if path.endswith("nvidia-driver-toolkit"):
            return self.item
        return {"metadata": {"resourceVersion": "1"}, "items": self.lists.get(path, [])}


def driver(server, *, enabled=True, location="http://files.example/new.run", disrupt=False):
    values = {"driverLocation": location}
    request = AddonRequest("nvidia-driver-toolkit", "harvester-system", enabled, values, disrupt=disrupt)
    return AddonOperation(server, request, wait=False, seconds=5)


TRAINER = vm("trainer", devices=[("vgpu-0", "nvidia.com/NVIDIA_A2-4Q")])
PLAIN = vm("plain")


@pytest.mark.parametrize("check_mode", [True, False])
@pytest.mark.parametrize("phase", ["Scheduled", "Running"])
@pytest.mark.parametrize("edited", [True, False])
def test_the_driver_is_not_replaced_under_a_vm_that_runs_with_vgpus(check_mode, phase, edited):
    """H9: any value that changes replaces the driver's pods, on all nodes."""
    machine = vm("trainer") if edited else TRAINER
    server = DriverServer([machine, PLAIN], [started(TRAINER, phase=phase), started(PLAIN)])
    with pytest.raises(AddonInUse, match=r"default/trainer.*disrupt: true") as caught:
        driver(server).run(check_mode=check_mode)
    assert "plain" not in str(caught.value)
    assert server.sent == []
    assert driver(server, disrupt=True).run(check_mode=check_mode).plan.changed


@pytest.mark.parametrize(
    ("server", "location"),
    [
        pytest.param(DriverServer([TRAINER]), "http://files.example/new.run", id="the VM is stopped"),
        pytest.param(DriverServer([PLAIN], [started(PLAIN)]), "http://files.example/new.run", id="it has no vGPU"),
        pytest.param(
            DriverServer([TRAINER], [started(TRAINER)], enabled=False), "http://files.example/new.run", id="it is off"
        ),
        pytest.param(DriverServer([TRAINER], [started(TRAINER)]), "http://files.example/old.run", id="nothing changes"),
    ],
)
def test_the_driver_is_replaced_where_no_vm_needs_it(server, location):
    driver(server, location=location).run(check_mode=False)
    if location.endswith("old.run"):
        # A second run reads no VMs.
        assert not {r.VMS, r.INSTANCES} & set(server.asked)


def launcher_pod(vm_name, *, phase="Running"):
    """A launcher pod with a vGPU whose instance is gone, as on a node that was cut off."""
    resources = {"requests": {"devices.kubevirt.io/kvm": "1", "nvidia.com/NVIDIA_A2-4Q": "1"}}
    return {
        "metadata": {"name": f"virt-launcher-{vm_name}", "namespace": "default", "labels": {r.VM_NAME_LABEL: vm_name}},
        "spec": {"nodeName": "gpu-a", "containers": [{"name": "compute", "resources": resources}]},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize("name", ["nvidia-driver-toolkit", "pcidevices-controller"])
def test_a_launcher_pod_that_outlives_its_instance_keeps_the_addon(name):
    server = DriverServer()
    server.item["metadata"]["name"] = name
    server.lists[r.LAUNCHER_PODS] = [launcher_pod("trainer"), launcher_pod("done", phase="Succeeded")]
    operation = AddonOperation(server, AddonRequest(name, "harvester-system", False, {}), wait=False, seconds=5)
    with pytest.raises(AddonInUse, match="default/trainer") as caught:
        operation.run(check_mode=False)
    assert "done" not in str(caught.value)
    assert server.sent == []
    server.lists[r.LAUNCHER_PODS] = [launcher_pod("done", phase="Succeeded")]
    assert operation.run(check_mode=False).plan.changed


def without_pods(server, *, ready):
    """The server of a user who may not list pods, and a node with a vGPU."""
    node = vgpu()["spec"]["nodeName"]
    server.lists[r.NODES] = [
        {"metadata": {"name": node}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}
    ]
    answer = server.get

    def forbidden(path, **query):
        if path == r.LAUNCHER_PODS:
            raise Forbidden("Not allowed to list pods.", status=403)
        return answer(path, **query)

    server.get = forbidden
    return node


def disabling(server, name):
    server.item["metadata"]["name"] = name
    return AddonOperation(server, AddonRequest(name, "harvester-system", False, {}), wait=False, seconds=5)


ADDONS = ["nvidia-driver-toolkit", "pcidevices-controller"]


@pytest.mark.parametrize("ready", ["True", "Unknown"])
def test_pods_that_cannot_be_listed_count_as_in_use_on_a_node_that_is_not_ready(ready):
    server = DriverServer()
    node = without_pods(server, ready=ready)
    if ready == "True":
        assert driver(server).run(check_mode=False).plan.changed
    else:
        with pytest.raises(AddonInUse, match=f"an unknown VM on node {node}"):
            driver(server).run(check_mode=False)


@pytest.mark.parametrize("name", ADDONS)
@pytest.mark.parametrize("named", [True, False])
def test_both_addons_stay_while_the_pods_of_a_node_that_is_not_ready_are_unknown(name, named):
    """From 1.8 on, the status of a vGPU may lack the name of its type."""
    server = DriverServer()
    if not named:
        server.lists[r.VGPUS] = [vgpu(asked=Q4, status={"vGPUStatus": r.CONFIGURED, "uuid": "746"})]
    node = without_pods(server, ready="Unknown")
    with pytest.raises(AddonInUse, match=f"an unknown VM on node {node}"):
        disabling(server, name).run(check_mode=False)
    assert server.sent == []
    server.lists[r.VGPUS] = [vgpu()]
    assert disabling(server, name).run(check_mode=False).plan.changed


@pytest.mark.parametrize("name", ADDONS)
def test_an_ended_instance_keeps_the_addon_while_its_pods_are_unknown(name):
    ended = [started(machine, phase="Failed", activePods={"uid": "n1"}) for machine in (TRAINER, PLAIN)]
    # The VM was edited since.
    server = DriverServer([vm("trainer"), PLAIN], ended)
    without_pods(server, ready="True")
    with pytest.raises(AddonInUse, match=r": default/trainer\."):
        disabling(server, name).run(check_mode=False)
    assert server.sent == []
    server.lists[r.INSTANCES] = [started(TRAINER, phase="Failed")]
    assert disabling(server, name).run(check_mode=False).plan.changed


def test_a_driver_that_stopped_vms_need_is_not_disabled_unless_that_is_asked_for():
    server = DriverServer([TRAINER])
    with pytest.raises(AddonInUse, match="default/trainer"):
        driver(server, enabled=False).run(check_mode=False)
    assert driver(server, enabled=False, disrupt=True).run(check_mode=False).plan.changed


def test_a_change_that_became_disruptive_while_another_operation_ran_is_refused():
    server = DriverServer([TRAINER], [started(TRAINER)], enabled=False)
    server.answers = [Conflict("changed meanwhile", status=409)]
    seen = server.get

    def enabled_meanwhile(path, **query):
        if path.endswith("nvidia-driver-toolkit"):
            server.item = {**server.item, "spec": {**server.item["spec"], "enabled": True}}
            server.item["metadata"] = {**server.item["metadata"], "resourceVersion": "2"}
        return seen(path, **query)

    server.get = enabled_meanwhile
    with pytest.raises(AddonInUse, match="default/trainer"):
        driver(server).run(check_mode=False)

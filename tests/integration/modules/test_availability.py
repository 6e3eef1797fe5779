"""vgpu_availability against a lab. VMs are only stored here; one that runs is written down as KubeVirt would."""

from __future__ import annotations

from typing import Any

from tests.integration.api import NODES, VMIS, VMS, Json
from tests.integration.labs import Lab
from tests.integration.modules import beginnings
from tests.integration.modules.beginnings import A4, A5, GPU_A, GPU_B, arranged, writes
from tests.integration.modules.examples import examples
from tests.integration.modules.playbooks import Playbooks, Result

MODULE = "vgpu_availability"
B4, B5 = "gpu-b-000008004", "gpu-b-000008005"
FOUR_Q, FOUR_A = "NVIDIA A2-4Q", "NVIDIA A2-4A"
NOTE = "harvesterhci.io/deviceAllocationDetails"
COUNTS = ("allocatable", "configured", "in_use", "claimed", "free_now", "free", "creatable", "drift")


def four_vgpus(lab: Lab) -> None:
    """Two 4Q on the first node, one 4Q and one 4A on the second."""
    lab.enable_gpus(GPU_A, GPU_B)
    lab.enable_vgpus({A4: FOUR_Q, A5: FOUR_Q, B4: FOUR_Q, B5: FOUR_A})


def vm(lab: Lab, name: str, *devices: str, node: str | None = None, count: int = 1, **labels: str) -> None:
    """A VM that asks for 4Q. With devices its note has them; with a node it runs there (and loses its note here)."""
    field, part = ("hostDevices", "hostdevices") if lab.vfio else ("gpus", "gpus")
    resource = "nvidia.com/NVIDIA_A2-4Q"
    asked = [{"name": f"vgpu-{index}", "deviceName": resource} for index in range(len(devices) or count)]
    domain = {"devices": {field: asked}, "resources": {"requests": {"memory": "1Gi"}}}
    metadata: Json = {"name": name, "namespace": "default", "labels": labels}
    if devices:
        quoted = ", ".join(f'"{device}"' for device in devices)
        metadata["annotations"] = {NOTE: f'{{"{part}": {{"{resource}": [{quoted}]}}}}'}
    kinds = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine"}
    spec = {"runStrategy": "Halted", "template": {"spec": {"domain": domain}}}
    lab.make(VMS, {**kinds, "metadata": metadata, "spec": spec})
    if node:
        body = {**kinds, "kind": "VirtualMachineInstance", "metadata": {"name": name}, "spec": {"domain": domain}}
        lab.make(VMIS, {**body, "status": {"phase": "Running", "nodeName": node}})
    lab.control.settle()


def profile(result: Result, name: str = FOUR_Q) -> Json:
    found: Json = next(one for one in result["profiles"] if one["profile"] == name)
    return found


def counts(record: Json) -> dict[str, int]:
    return {name: record[name] for name in COUNTS if record[name]}


def pool(machines: int, count: int = 1, **more: Any) -> dict[str, Any]:
    vgpus = [{"profile": "A2-4Q", "count": count}]
    return {"name": "pool", "machines": machines, "vgpus": vgpus, **more}


@arranged(four_vgpus, stays=True)
def test_what_runs_uses_what_is_stopped_claims_and_the_rest_is_free(lab: Lab, playbooks: Playbooks) -> None:
    vm(lab, "runs", B4, node="gpu-b")
    vm(lab, "stopped", A4)
    lab.mark()
    result = playbooks.task(MODULE)
    assert counts(profile(result)) == {
        "allocatable": 3,
        "configured": 3,
        "in_use": 1,
        "claimed": 1,
        "free_now": 2,
        "free": 1,
        "creatable": 4,
    }
    by_node = {one["node"]: counts(one) for one in profile(result)["nodes"]}
    assert by_node == {
        "gpu-a": {"allocatable": 2, "configured": 2, "claimed": 1, "free_now": 2, "free": 1, "creatable": 2},
        "gpu-b": {"allocatable": 1, "configured": 1, "in_use": 1, "creatable": 2},
    }
    assert profile(result)["spellings"]["resource"] == "nvidia.com/NVIDIA_A2-4Q"
    # Sixteen functions list it, and the card takes four of this size.
    assert profile(result, "NVIDIA A2-4C")["creatable"] == 4
    assert result["devices"][0]["label"] == f"NVIDIA_A2-4Q (profile: {A4} - allocatable: 3)"
    assert result["devices"][0]["holders"] == ["default/stopped"]
    assert not result.changed
    assert writes(lab) == []
    assert len(lab.audit(writes_only=False)) <= 8


@arranged(beginnings.four_4q, stays=True)
def test_the_examples_run(lab: Lab, playbooks: Playbooks) -> None:
    here = [task for task in examples(MODULE) if "vsphere" not in str(task)]
    known, shown, fits, together = playbooks.run(here)
    assert [one["profile"] for one in known["profiles"]] == [FOUR_Q]
    assert not shown.failed
    assert fits["fits"]
    assert not together["fits"]
    assert not all(answer["fits"] for answer in together["demand"])
    assert writes(lab) == []


@arranged(four_vgpus, stays=True)
def test_machines_are_placed_each_on_one_node(lab_vfio: Lab, playbooks: Playbooks) -> None:
    three, pairs, triple = playbooks.tasks(
        (MODULE, {"demand": [pool(3)]}),
        (MODULE, {"demand": [pool(2, count=2)]}),
        (MODULE, {"demand": [pool(1, count=3)], "require": False}),
    )
    assert three["fits"]
    assert three["demand"][0]["nodes"] == [{"node": "gpu-a", "machines": 2}, {"node": "gpu-b", "machines": 1}]
    assert pairs.code == "demand_does_not_fit"
    assert "each needs 2 x NVIDIA A2-4Q on one node" in pairs.message
    assert "Create 1 more NVIDIA A2-4Q on gpu-b" in pairs.message
    assert not triple.failed
    assert not triple["fits"]
    assert triple["suggestions"][0].startswith("Create ")
    assert set(three) == set(triple)


@arranged(four_vgpus, stays=True)
def test_an_owners_vms_are_not_counted_twice_and_a_surge_is(lab: Lab, playbooks: Playbooks) -> None:
    vm(lab, "one", A4, node="gpu-a", pool="gpu")
    vm(lab, "two", A5, pool="gpu")
    strange, owned, surging = playbooks.tasks(
        (MODULE, {"demand": [pool(3)]}),
        (MODULE, {"demand": [pool(3, owner="pool=gpu")]}),
        (MODULE, {"demand": [pool(3, surge=1, owner="pool=gpu")]}),
    )
    assert strange.failed
    assert owned["demand"][0]["existing"] == ["default/one", "default/two"]
    assert owned["demand"][0]["nodes"] == [{"node": "gpu-b", "machines": 1}]
    assert surging.code == "demand_does_not_fit"
    assert "surge 1 included" in surging.message


@arranged(four_vgpus)
def test_nodes_out_of_service_do_not_count_and_their_return_is_offered_as_help(
    lab_vfio: Lab, playbooks: Playbooks
) -> None:
    lab = lab_vfio
    lab.write(f"{NODES}/gpu-b", {"spec": {"unschedulable": True}})
    result = playbooks.task(MODULE, demand=[pool(3)], require=False)
    assert result["nodes"] == [
        {"name": "gpu-a", "usable": True, "reason": ""},
        {"name": "gpu-b", "usable": False, "reason": "cordoned"},
    ]
    assert profile(result)["free"] == 2
    assert "Uncordon node gpu-b." in result["suggestions"]
    not_ready = [{"type": "Ready", "status": "False"}]
    lab.write(f"{NODES}/gpu-b", {"spec": {"unschedulable": None}})
    lab.write(f"{NODES}/gpu-b/status", {"status": {"conditions": not_ready}})
    refused = playbooks.task(MODULE, demand=[pool(3)])
    assert "gpu-b (not ready) does not count" in refused.message
    assert "Bring back node gpu-b." in refused.message


@arranged(four_vgpus, stays=True)
def test_a_selection_of_nodes_and_bad_input(lab_vfio: Lab, playbooks: Playbooks) -> None:
    one, nowhere, unknown, selector, negative = playbooks.tasks(
        (MODULE, {"nodes": ["*-a"]}),
        (MODULE, {"nodes": ["elsewhere"]}),
        (MODULE, {"demand": [{"name": "x", "machines": 1, "vgpus": [{"profile": "A2-5Q"}]}]}),
        (MODULE, {"demand": [pool(1, owner="pool in gpu")]}),
        (MODULE, {"demand": [pool(-1)]}),
    )
    assert profile(one)["allocatable"] == 2
    assert [node["name"] for node in one["nodes"]] == ["gpu-a"]
    assert nowhere.code == "nothing_selected"
    assert "gpu-a, gpu-b" in nowhere.message
    assert unknown.code == "unknown_profile"
    assert selector.code == "invalid_selector"
    assert negative.code == "invalid_demand"


@arranged(four_vgpus)
def test_a_count_that_the_node_does_not_advertise_is_drift_and_not_free(lab: Lab, playbooks: Playbooks) -> None:
    lab.control.process("gpu-a", "kill")
    lab.until(lambda: not lab.amounts("gpu-a").get("nvidia.com/NVIDIA_A2-4Q"))
    result = playbooks.task(MODULE)
    on_a = next(one for one in profile(result)["nodes"] if one["node"] == "gpu-a")
    assert (on_a["configured"], on_a["allocatable"], on_a["drift"], on_a["free"]) == (2, 0, 2, 0)
    assert "Node gpu-a advertises 0 x NVIDIA A2-4Q and has 2 configured." in result["warnings"]


@arranged(scenario="bare", stays=True)
def test_a_cluster_without_the_addon_says_so(lab_vfio: Lab, playbooks: Playbooks) -> None:
    result = playbooks.task(MODULE)
    assert result.code == "addon_missing"
    assert "pcidevices-controller" in result.message


@arranged(beginnings.gpu_a_on, stays=True)
def test_what_could_be_made_is_told_where_nothing_is_there_yet(lab: Lab, playbooks: Playbooks) -> None:
    result = playbooks.task(MODULE, demand=[pool(5)], require=False)
    assert profile(result)["creatable"] == 4
    assert not profile(result)["allocatable"]
    assert any(one.startswith("Enable SR-IOV where it is off and create") for one in result["suggestions"])

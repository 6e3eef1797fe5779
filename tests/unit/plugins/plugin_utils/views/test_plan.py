"""What a dry run would change: both states, the steps, what is stopped and what is waited for."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.vgpu.fleet.plugins.filter.fleet_map import fleet_map
from ansible_collections.vgpu.fleet.plugins.filter.fleet_plan import fleet_plan as plan_filter
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.reprofile.plan import reprofile_plan
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.plan import plan as plan_layout
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.request import Demand, Policy
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.steps import after_steps
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.page import plan_page
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.plan import fleet_plan
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.record import fleet_record, gpus_of

from tests.unit.plugins.module_utils.fleets import fleet, gpu, off
from tests.unit.plugins.module_utils.vsphere import facts
from tests.unit.plugins.plugin_utils.views.fleet_samples import mig
from tests.unit.plugins.plugin_utils.views.results import harvester_info, vsphere_availability, vsphere_info
from tests.unit.plugins.plugin_utils.views.test_map import by_class, parsed, text_of

Json = dict[str, Any]


def step(
    action: str, gpu: str = "n1:a", slot: str | None = None, before: str | None = None, after: str | None = None
) -> Json:
    return {"action": action, "node": gpu[:2], "gpu": gpu, "slot": slot, "before": before, "after": after}


def drawn(results: Any, what: Fleet, **more: Any) -> Json:
    return fleet_plan(results, harvester_info(what), cluster="lab", **more)


def holdings(record: Json) -> dict[str, list[tuple[str, str, list[str]]]]:
    return {
        one["name"]: [(v["short"], v["state"], [holder["path"] for holder in v["holders"]]) for v in one["vgpus"]]
        for _node, one in gpus_of(record)
    }


def test_a_layout_is_drawn_as_the_planner_would_leave_it() -> None:
    what = fleet(gpu("n1:a", "8Q"), off("n2:a"))
    made = plan_layout(what, [Demand("NVIDIA A2-4Q", 2, per="node")], Policy(reprofile=True, enable_sriov=True))
    result = {"plan": {"steps": [one.as_dict() for one in made.steps], "waiting": [], "drifted": []}, "unsettled": []}
    plan = drawn(result, what)
    after = fleet_record(harvester_info(after_steps(what, made.steps)), cluster="lab")
    assert holdings(plan["after"]) == holdings(after)
    assert plan["after"]["profiles"] == after["profiles"]
    assert plan["before"] == fleet_record(harvester_info(what), cluster="lab")
    assert plan["steps"] == [
        "Disable A2-8Q on n1:a-00 of GPU n1:a",
        "Enable A2-4Q on n1:a-01 of GPU n1:a",
        "Enable A2-4Q on n1:a-02 of GPU n1:a",
        "Enable SR-IOV on GPU n2:a",
        "Enable A2-4Q on a new vGPU of GPU n2:a",
        "Enable A2-4Q on a new vGPU of GPU n2:a",
    ]
    assert plan["waits"] == [
        "vGPU n1:a-00 to be disabled",
        "GPU n2:a to have its virtual functions",
        "node n1 to offer 2 more x A2-4Q",
        "node n2 to offer 2 more x A2-4Q",
    ]
    assert plan["summary"] == "6 steps on 2 GPUs, no VM is stopped"
    assert plan["lines"][0] == "1. Disable A2-8Q on n1:a-00 of GPU n1:a"


def test_mig_instances_are_drawn_as_they_will_be() -> None:
    cut = step("create_mig_instances", after="1 x 3g.20gb, 2 x 1g.5gb")
    plan = drawn({"steps": [cut]}, fleet(mig("n1:a", "", {})))
    (card,) = (one for _node, one in gpus_of(plan["after"]))
    assert [(one["instance"], one["count"]) for one in card["geometry"]] == [("3g.20gb", 1), ("1g.5gb", 2)]
    back = drawn(
        {"steps": [step("remove_mig_instances"), step("disable_sriov")]}, fleet(mig("n1:a", "", {"GRID A100-3-20C": 1}))
    )
    (card,) = (one for _node, one in gpus_of(back["after"]))
    assert (card["geometry"], card["vgpu_enabled"]) == ([], False)


def test_results_of_loops_and_of_tasks_that_were_left_out_count_in_their_order() -> None:
    results = [
        {"results": [{"steps": [step("enable_sriov")]}, {"skipped": True}]},
        {"skipped": True, "changed": False},
        {"plan": {"steps": [step("enable", slot="n1:a-00", after="NVIDIA A2-4Q")]}},
    ]
    assert drawn(results, fleet(off("n1:a")))["steps"] == [
        "Enable SR-IOV on GPU n1:a",
        "Enable A2-4Q on n1:a-00 of GPU n1:a",
    ]


def test_reprofiling_says_which_vms_are_stopped_and_where_they_end_up() -> None:
    what = fleet(gpu("n1:a", "4Q@web 4Q@batch- 4Q"))
    layout = [{"profile": "A2-8Q", "count": 2}]
    vms = [
        {"name": "web", "namespace": "default", "vgpus": [{"profile": "A2-8Q", "count": 1}]},
        {"name": "batch", "namespace": "default", "vgpus": [{"profile": "A2-8Q", "count": 1}]},
    ]
    made = reprofile_plan(what, ["n1:a"], [{"profile": "NVIDIA A2-8Q", "count": 2}], vms)
    assert made["refusals"] == []
    plan = drawn({"plan": {"work": made["work"], "lines": made["lines"]}}, what, layout=layout)
    assert plan["stops"] == ["VM default/batch, while GPU n1:a changes", "VM default/web, while GPU n1:a changes"]
    assert plan["steps"] == [
        "Stop VM default/batch",
        "Stop VM default/web",
        "Give GPU n1:a the layout 2 x A2-8Q",
        "Give VM default/batch 1 x A2-8Q; it stays off",
        "Start VM default/web with 1 x A2-8Q",
    ]
    assert sorted(holdings(plan["after"])["n1:a"], key=str) == [
        ("A2-8Q", "claimed", ["default/batch"]),
        ("A2-8Q", "in_use", ["default/web"]),
    ]
    assert plan["summary"] == "5 steps on 1 GPU, 2 VMs are stopped"
    assert "VM default/web to run again" in plan["waits"]


def test_a_pool_says_which_machines_rancher_replaces() -> None:
    what = fleet(gpu("n1:a", "4Q@ml-gpu-1 4Q"))
    pool = {
        "cluster": "ml",
        "name": "gpu",
        "quantity": 2,
        "vgpus": [{"profile": "NVIDIA A2-4Q", "count": 1}],
        "vm_namespace": "default",
        "machines": [{"name": "ml-gpu-1", "vm": "ml-gpu-1", "phase": "Running"}],
    }
    replaced = [{"cluster": "ml", "pool": "gpu", "machines": ["ml-gpu-1"]}]
    plan = drawn({"changed": True, "pool": pool, "machines_replaced": replaced}, what)
    assert plan["stops"] == ["VM default/ml-gpu-1, which Rancher replaces and deletes"]
    assert plan["steps"] == [
        "Replace machine ml-gpu-1 of pool gpu of cluster ml",
        "Pool gpu of cluster ml: 2 machines with 1 x A2-4Q each",
    ]
    assert [paths for _short, _state, paths in holdings(plan["after"])["n1:a"]] == [
        ["default/ml-gpu-new-1"],
        ["default/ml-gpu-new-2"],
    ]
    same = drawn({"changed": False, "pool": pool, "machines_replaced": []}, what)
    assert (same["steps"], same["summary"], same["lines"]) == ([], "nothing changes", ["Nothing is left to change."])
    assert same["after"] == same["before"]


def removed_pool(**diff: Any) -> Json:
    """A dry run of rancher_gpu_pool with state absent, as the module returns it."""
    pool = {"cluster": "ml", "namespace": "fleet-default", "name": "gpu", "machines": []}
    before = {"name": "gpu", "quantity": 2, "vgpus": [{"profile": "NVIDIA A2-4Q", "count": 1}], **diff}
    return {"changed": True, "pool": pool, "machines_replaced": [], "diff": {"before": before, "after": {}}}


def test_a_pool_that_is_removed_says_how_many_machines_rancher_deletes() -> None:
    what = fleet(gpu("n1:a", "4Q@ml-gpu-1 4Q@ml-gpu-2"))
    plan = drawn(removed_pool(), what)
    assert plan["steps"] == ["Delete pool gpu of cluster ml"]
    assert plan["stops"] == ["2 machines of pool gpu, which Rancher deletes"]
    assert plan["summary"] == "1 step, 2 VMs are stopped"
    assert plan["waits"] == []
    assert plan["lines"][1] == "Stopped: 2 machines of pool gpu, which Rancher deletes"
    empty = drawn(removed_pool(quantity=0), what)
    assert (empty["stops"], empty["summary"]) == ([], "1 step, no VM is stopped")


def test_a_pool_that_is_scaled_down_says_how_many_machines_rancher_deletes() -> None:
    pool = {
        "cluster": "ml",
        "name": "gpu",
        "quantity": 1,
        "vgpus": [{"profile": "NVIDIA A2-4Q", "count": 1}],
        "vm_namespace": "default",
        "machines": [{"name": f"ml-gpu-{number}", "vm": f"ml-gpu-{number}"} for number in (1, 2)],
    }
    diff = {"before": {"quantity": 2}, "after": {"quantity": 1}}
    result = {"changed": True, "pool": pool, "machines_replaced": [], "diff": diff}
    what = fleet(gpu("n1:a", "4Q@ml-gpu-1 4Q@ml-gpu-2"))
    plan = drawn(result, what)
    assert plan["steps"] == ["Pool gpu of cluster ml: 1 machine with 1 x A2-4Q each"]
    assert plan["stops"] == ["1 machine of pool gpu, which Rancher deletes"]
    assert plan["summary"] == "1 step, 1 VM is stopped"
    replaced = [{"cluster": "ml", "pool": "gpu", "machines": ["ml-gpu-1", "ml-gpu-2"]}]
    assert len(drawn({**result, "machines_replaced": replaced}, what)["stops"]) == 2


def test_a_pool_of_a_new_cluster_names_profiles_as_its_options_do() -> None:
    """Any spelling will do, and one vGPU needs no count."""
    pool = {"cluster": "ml", "name": "gpu", "quantity": 2, "vgpus": [{"profile": "A2-4Q"}], "machines": []}
    plan = fleet_plan({"changed": True, "pool": pool}, harvester_info(fleet(gpu("n1:a", "4Q 4Q 4Q"))))
    assert plan["steps"] == ["Pool gpu of cluster ml: 2 machines with 1 x A2-4Q each"]
    (drawn,) = [one for _node, one in gpus_of(plan["after"])]
    assert [[holder["path"] for holder in vgpu["holders"]] for vgpu in drawn["vgpus"]] == [
        ["ml-gpu-new-1"],
        ["ml-gpu-new-2"],
        [],
    ]


def test_what_has_not_settled_is_noted() -> None:
    unsettled = [{"gpu": "n1:a", "node": "n1", "reason": "its devices do not agree", "moving": True}]
    plan = drawn(
        {"plan": {"steps": [], "waiting": ["n1:a-00"], "drifted": ["n1:a-01"]}, "unsettled": unsettled},
        fleet(gpu("n1:a")),
    )
    assert plan["notes"] == [
        "vGPU n1:a-01 is not what was requested and stays as it is.",
        "GPU n1:a is still changing (its devices do not agree), so the plan may change with it.",
    ]
    assert plan["waits"] == ["vGPU n1:a-00, which was requested before, to be ready"]


def test_the_page_draws_what_changes_twice_and_the_rest_once() -> None:
    what = fleet(gpu("n1:a", "8Q"), gpu("n2:a", "4Q@web"))
    steps = [
        step("disable", slot="n1:a-00", before="NVIDIA A2-8Q"),
        step("enable", slot="n1:a-00", after="NVIDIA A2-4Q"),
    ]
    page = parsed(fleet_map(drawn({"steps": steps}, what)))
    cards = {card.get("data-name"): card for card in by_class(page, "gpu")}
    assert [text_of(one) for one in by_class(cards["n1:a"], "stage")] == ["Now", "After"]
    now, after = by_class(cards["n1:a"], "bar")
    assert [seg.get("data-profile") for seg in by_class(now, "seg")][:1] == ["A2-8Q"]
    assert [(seg.get("data-profile"), "new" in seg.get("class", "")) for seg in by_class(after, "seg")][:1] == [
        ("A2-4Q", True)
    ]
    assert len(by_class(cards["n2:a"], "bar")) == 1
    assert [cards[name].get("data-changed") for name in ("n1:a", "n2:a")] == ["yes", "no"]
    assert [text_of(one) for one in by_class(page, "steps")[0].iter("li")] == [
        "Disable A2-8Q on n1:a-00 of GPU n1:a",
        "Enable A2-4Q on n1:a-00 of GPU n1:a",
    ]


def test_a_run_begins_the_page_anew_and_its_clusters_share_it() -> None:
    first = drawn({"steps": [step("enable_sriov")]}, fleet(off("n1:a")))
    page = plan_page({**first, "before": {**first["before"], "cluster": "one"}}, 0, run="1")
    both = plan_page({**first, "before": {**first["before"], "cluster": "two"}}, 0, run="1", existing=page)
    assert [text_of(one).split(":")[0] for one in by_class(parsed(both), "plan") for one in one.iter("h2")] == [
        "Plan for one",
        "Plan for two",
    ]
    later = plan_page(first, 0, run="2", existing=both)
    assert len(by_class(parsed(later), "plan")) == 1


def vcenter_results() -> tuple[Json, Json]:
    found = facts.snapshot(
        facts.host("esx1", facts.gpu(facts.FIRST, "worker"), facts.gpu(facts.SECOND, graphics_type="shared")),
        vms=(facts.vm("worker", "nvidia_a40-16q"),),
    )
    return vsphere_info(found), vsphere_availability(found)


def host_result(info: Json, **more: Any) -> Json:
    """A dry run of vsphere_gpu_host that makes all GPUs of all hosts shared direct."""
    hosts = [{"name": node["name"], "reboot_required": False} for node in info["nodes"]]
    diff = {
        "before": {node["name"]: host_settings(node) for node in info["nodes"]},
        "after": {node["name"]: host_settings(node, graphics_type="shared_direct") for node in info["nodes"]},
    }
    return {"changed": True, "hosts": hosts, "restarted": ["esx1"], "diff": diff, **more}


def host_settings(node: Json, graphics_type: str = "", policy: str = "performance", **device: str) -> Json:
    """The settings of a host in the diff of vsphere_gpu_host."""
    devices = {
        one["address"]: {"configured_graphics_type": graphics_type or one["graphics_type"], **device}
        for one in node["gpus"]
    }
    return {"graphics_type": "shared_direct", "assignment_policy": policy, "devices": devices}


def vm_result(name: str, *profiles: str, **more: Any) -> Json:
    vgpus = [{"profile": profile} for profile in profiles]
    return {"changed": True, "vm": {"name": name, "running": True}, "vgpus": vgpus, **more}


def test_a_vcenter_is_planned_in_steps_and_its_gpus_are_drawn_once() -> None:
    info, availability = vcenter_results()
    loop = {
        "results": [
            vm_result("new", "nvidia_a40-8q", "nvidia_a40-8q", created=True),
            vm_result("worker", "nvidia_a40-24c", restarted=True),
            vm_result("off", "nvidia_a40-4q"),
            {**vm_result("same", "nvidia_a40-4q"), "changed": False},
        ]
    }
    plan = fleet_plan([host_result(info), loop], info, cluster="vc", availability=availability)
    (wrong,) = [one["address"] for one in info["nodes"][0]["gpus"] if one["graphics_type"] == "shared"]
    assert plan["steps"] == [
        f"Set the graphics type of GPU {wrong} of host esx1 to shared direct",
        "Restart Xorg on host esx1",
        "Create VM new with 2 x A40-8Q",
        "Stop VM worker, give it 1 x A40-24C, and start it",
        "Give VM off 1 x A40-4Q",
    ]
    assert plan["stops"] == ["VM worker, while its vGPUs change"]
    assert plan["summary"] == "5 steps, 1 VM is stopped"
    assert plan["lines"][-1] == "Stopped: VM worker, while its vGPUs change"
    page = parsed(plan_page(plan, 0, run="1"))
    assert len(by_class(page, "bar")) == 2
    assert [one for one in page.iter("input") if one.get("name") == "changed"] == []


def test_a_plan_shows_every_changed_setting_of_a_host() -> None:
    info, availability = vcenter_results()
    (node,) = info["nodes"]
    first, second = (one["address"] for one in node["gpus"])
    before = host_settings(node, configured_vgpu_mode="same_size")
    after = host_settings(node, "shared_direct", "consolidation", configured_vgpu_mode="mixed_size")
    diff = {"before": {"esx1": before}, "after": {"esx1": after}}
    plan = fleet_plan([vm_result("off"), host_result(info, restarted=[], diff=diff)], info, availability=availability)
    assert plan["steps"] == [
        "Give VM off no vGPUs",
        "Set the assignment policy of host esx1 to consolidation",
        f"Set the vGPU mode of GPU {first} of host esx1 to mixed size",
        f"Set the graphics type of GPU {second} of host esx1 to shared direct",
        f"Set the vGPU mode of GPU {second} of host esx1 to mixed size",
    ]


def test_a_setting_that_only_waits_for_a_restart_is_not_set_again() -> None:
    info, availability = vcenter_results()
    (node,) = info["nodes"]
    same = {"esx1": host_settings(node, "shared_direct")}
    plan = fleet_plan([host_result(info, diff={"before": same, "after": same})], info, availability=availability)
    assert plan["steps"] == ["Restart Xorg on host esx1"]


def vm_change(name: str, before: Json, after: Json, *profiles: str) -> Json:
    power = after.get("power", "off")
    vm = {"name": name, "running": power == "on", "power": power}
    return vm_result(name, *profiles, vm=vm, diff={"before": before, "after": after})


def test_vms_that_are_powered_off_or_deleted_are_shown_as_such() -> None:
    info, availability = vcenter_results()
    fewer = ({"vgpus": {"nvidia_a40-4q": 2}, "power": "on"}, {"vgpus": {"nvidia_a40-4q": 1}, "power": "off"})
    results = [
        vm_change("gone", {"name": "gone", "power": "on"}, {}),
        vm_change("gone-idle", {"name": "gone-idle", "power": "off"}, {}),
        vm_change("paused", {"power": "suspended"}, {"power": "off"}, "nvidia_a40-4q"),
        vm_change("smaller", *fewer, "nvidia_a40-4q"),
        vm_change("started", {"power": "off"}, {"power": "on"}, "nvidia_a40-4q"),
    ]
    plan = fleet_plan(results, info, availability=availability)
    assert plan["steps"] == [
        "Delete VM gone",
        "Delete VM gone-idle",
        "Power off VM paused",
        "Power off VM smaller",
        "Give VM smaller 1 x A40-4Q",
        "Start VM started",
    ]
    assert plan["stops"] == [
        "VM gone, which is deleted",
        "VM paused, which is powered off",
        "VM smaller, which is powered off",
    ]
    assert plan["summary"] == "6 steps, 3 VMs are stopped"
    assert plan["waits"] == ["VM started to run"]


def test_a_dry_run_that_changes_nothing_on_a_vcenter_says_so() -> None:
    info, availability = vcenter_results()
    same = {**host_result(info, restarted=[]), "changed": False}
    plan = fleet_plan([same], info, availability=availability)
    assert (plan["summary"], plan["steps"]) == ("nothing changes", [])


def test_a_plan_for_a_vcenter_needs_its_availability() -> None:
    info, _availability = vcenter_results()
    with pytest.raises(AnsibleFilterError, match=r"needs the result of vgpu\.fleet\.vgpu_availability"):
        plan_filter([], info)

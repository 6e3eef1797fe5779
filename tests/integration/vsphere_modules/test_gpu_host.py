"""vsphere_gpu_host: host graphics as asked for, once, and never under a running VM."""

from __future__ import annotations

import pytest
from pyVmomi import vim

from tests.integration.modules.examples import examples

FIRST, SECOND = "0000:3b:00.0", "0000:3d:00.0"
RUNNING = {"name": "trainer", "host": "esx1", "vgpus": ["nvidia_a40-8q"], "memory_locked": True, "power": "on"}


def host_named(result, name):
    return next(host for host in result["hosts"] if host["name"] == name)


def types(result, host, key="graphics_type"):
    return [device[key] for device in host_named(result, host)["devices"]]


@pytest.fixture
def shared(section):
    """GPU hosts as they come: nothing is shared direct."""
    for host in section["clusters"][0]["hosts"][:2]:
        host["graphics_type"] = "shared"
    return section


def test_a_cluster_is_made_ready_for_vgpus_in_one_task(start, shared, version, playbooks):
    vcenter = start(shared, version)
    run = playbooks(vcenter)
    result = run.task("vsphere_gpu_host", cluster="gpu", graphics_type="shared_direct")
    assert result.changed, result.message
    assert result["restarted"] == ["esx1", "esx2"]
    assert [host["name"] for host in result["hosts"]] == ["esx1", "esx2"]
    assert types(result, "esx1") == ["shared_direct", "shared_direct"]
    assert not any(host["pending"] for host in result["hosts"])
    assert all(gpu["vgpu_enabled"] and not gpu["unavailable_reason"] for gpu in result["gpus"])
    assert [gpu.graphicsType for gpu in vcenter.host("esx2").config.graphicsInfo] == ["sharedDirect", "sharedDirect"]


def test_a_second_run_changes_nothing_and_writes_nothing(start, shared, version, playbooks):
    vcenter = start(shared, version)
    run = playbooks(vcenter)
    wanted = {"cluster": "gpu", "graphics_type": "shared_direct", "assignment_policy": "consolidation"}
    assert run.task("vsphere_gpu_host", **wanted).changed
    vcenter.mark()
    again = run.task("vsphere_gpu_host", **wanted)
    assert not again.failed, again.message
    assert not again.changed
    assert again["diff"] == {"before": {}, "after": {}}
    assert vcenter.writes == 0


def test_check_mode_predicts_the_run_and_writes_nothing(start, shared, playbooks):
    vcenter = start(shared)
    run = playbooks(vcenter)
    wanted = {"cluster": "gpu", "graphics_type": "shared_direct", "vgpu_mode": "mixed_size"}
    vcenter.mark()
    predicted = run.task("vsphere_gpu_host", check=True, **wanted)
    assert vcenter.writes == 0
    done = run.task("vsphere_gpu_host", **wanted)
    for key in ("changed", "hosts", "restarted", "diff"):
        assert predicted[key] == done[key], key
    assert [gpu["vgpu_enabled"] for gpu in predicted["gpus"]] == [gpu["vgpu_enabled"] for gpu in done["gpus"]]
    assert predicted["gpus"] == done["gpus"]


def test_the_diff_names_only_hosts_that_change(vcenter, playbooks):
    result = playbooks(vcenter).task("vsphere_gpu_host", esxi_hosts=["esx1"], assignment_policy="consolidation")
    assert set(result["diff"]["before"]) == {"esx1"}
    assert result["diff"]["before"]["esx1"]["assignment_policy"] == "performance"
    assert result["diff"]["after"]["esx1"]["assignment_policy"] == "consolidation"
    assert result["restarted"] == []


def test_one_gpu_can_differ_and_the_others_stay(vcenter, playbooks):
    run = playbooks(vcenter)
    result = run.task(
        "vsphere_gpu_host", esxi_hosts=["esx1"], devices=[{"pci_id": "3D:00.0", "graphics_type": "shared"}]
    )
    assert result.changed, result.message
    assert types(result, "esx1") == ["shared_direct", "shared"]
    blocked = {gpu["address"]: gpu["unavailable_reason"] for gpu in result["gpus"]}
    assert blocked == {FIRST: "", SECOND: "it is not shared direct"}
    result = run.task("vsphere_gpu_host", esxi_hosts=["esx1"], devices=[{"pci_id": FIRST, "vgpu_mode": "mixed_size"}])
    assert types(result, "esx1", "vgpu_mode") == ["mixed_size", None]
    assert [gpu["mode"] for gpu in result["gpus"]] == ["mixed_size", "time_sliced"]


def test_without_a_restart_of_xorg_it_says_what_is_pending(start, shared, playbooks):
    vcenter = start(shared)
    run = playbooks(vcenter)
    result = run.task("vsphere_gpu_host", esxi_hosts=["esx1"], graphics_type="shared_direct", restart_xorg=False)
    host = host_named(result, "esx1")
    assert (host["pending"], host["reboot_required"]) == (True, False)
    assert types(result, "esx1") == ["shared", "shared"]
    assert types(result, "esx1", "configured_graphics_type") == ["shared_direct", "shared_direct"]
    assert "or a restart of Xorg" in result["warnings"][0]
    assert all("only after a restart" in gpu["unavailable_reason"] for gpu in result["gpus"])
    later = run.task("vsphere_gpu_host", esxi_hosts=["esx1"], graphics_type="shared_direct", restart_pending=True)
    assert later.changed
    assert later["restarted"] == ["esx1"]
    assert not host_named(later, "esx1")["pending"]


@pytest.mark.parametrize(("xorg", "waits"), [("fails", False), ("fails_until_reboot", True)])
def test_a5_vgpus_are_served_although_xorg_does_not_start(start, shared, playbooks, xorg, waits):
    vcenter = start(shared)
    vcenter.control("PUT", "/behaviour", {"xorg": xorg})
    run = playbooks(vcenter)
    wanted = {"esxi_hosts": ["esx1"], "graphics_type": "shared_direct", "wait_timeout": 1}
    result = run.task("vsphere_gpu_host", **wanted)
    assert not result.failed, result.message
    assert result.changed
    assert result["restarted"] == []
    assert any("Xorg did not start on host esx1" in warning for warning in result["warnings"])
    assert (host_named(result, "esx1")["pending"], host_named(result, "esx1")["reboot_required"]) == (waits, waits)
    assert types(result, "esx1", "configured_graphics_type") == ["shared_direct", "shared_direct"]
    vcenter.mark()
    for task in (wanted, {"esxi_hosts": ["esx1"], "assignment_policy": "performance"}):
        again = run.task("vsphere_gpu_host", **task)
        assert not again.changed, again.message
        assert host_named(again, "esx1")["reboot_required"] is waits
    assert vcenter.writes == 0


def test_a5_shared_graphics_fail_without_xorg_and_say_that_they_are_written(vcenter, playbooks):
    vcenter.control("PUT", "/behaviour", {"xorg": "fails_until_reboot"})
    result = playbooks(vcenter).task("vsphere_gpu_host", esxi_hosts=["esx1"], graphics_type="shared")
    assert result.failed
    assert "Xorg on host esx1" in result.message
    assert result.changed
    assert vcenter.host("esx1").config.graphicsConfig.hostDefaultGraphicsType == "shared"


def test_a5_settings_that_wait_for_a_reboot_change_nothing_on_later_runs(start, shared, playbooks):
    vcenter = start(shared)
    vcenter.control("PUT", "/behaviour", {"xorg": "starts_and_waits_for_reboot"})
    run = playbooks(vcenter)
    wanted = {"esxi_hosts": ["esx1"], "graphics_type": "shared_direct", "wait_timeout": 1}
    first = run.task("vsphere_gpu_host", **wanted)
    assert first["restarted"] == ["esx1"]
    assert host_named(first, "esx1")["reboot_required"]
    vcenter.mark()
    again = run.task("vsphere_gpu_host", **wanted)
    assert not again.changed, again.message
    assert host_named(again, "esx1")["reboot_required"]
    assert vcenter.writes == 0


def test_a5_vsga_vms_are_named_before_xorg_restarts(start, shared, playbooks):
    shared["vms"].append({"name": "desk", "host": "esx1", "power": "on", "vsga": True})
    vcenter = start(shared)
    run = playbooks(vcenter)
    wanted = {"esxi_hosts": ["esx1"], "devices": [{"pci_id": SECOND, "graphics_type": "shared_direct"}]}
    vcenter.mark()
    refused = run.task("vsphere_gpu_host", **wanted)
    assert refused.failed
    assert refused.code == "vsga_in_use"
    assert refused["error"]["vms"] == ["desk"]
    assert vcenter.writes == 0
    permitted = run.task("vsphere_gpu_host", interrupt_vsga=True, **wanted)
    assert permitted["restarted"] == ["esx1"], permitted.message
    assert types(permitted, "esx1") == ["shared", "shared_direct"]
    assert any("desk" in warning for warning in permitted["warnings"])


def test_a_gpu_in_use_is_not_touched_and_the_vm_is_named(start, section, playbooks):
    section["vms"].append(RUNNING)
    vcenter = start(section)
    vcenter.mark()
    result = playbooks(vcenter).task("vsphere_gpu_host", cluster="gpu", graphics_type="shared")
    assert result.failed
    assert result.code == "gpu_in_use"
    assert "esx1" in result.message
    assert "trainer" in result.message
    assert vcenter.writes == 0


def test_by_force_it_is_configured_and_waits_for_a_reboot(start, section, playbooks):
    section["vms"].append(RUNNING)
    vcenter = start(section)
    run = playbooks(vcenter)
    wanted = {"esxi_hosts": ["esx1"], "graphics_type": "shared", "force": True}
    predicted = run.task("vsphere_gpu_host", check=True, **wanted)
    result = run.task("vsphere_gpu_host", **wanted)
    host = host_named(result, "esx1")
    assert predicted["hosts"] == result["hosts"]
    assert (host["pending"], host["reboot_required"]) == (True, True)
    assert types(result, "esx1") == ["shared_direct", "shared"]
    assert any("reboot" in warning for warning in result["warnings"])
    vcenter.mark()
    again = run.task("vsphere_gpu_host", **wanted)
    assert not again.changed
    assert host_named(again, "esx1")["reboot_required"]
    assert vcenter.writes == 0


def test_the_policy_can_change_under_running_vms(start, section, playbooks):
    section["vms"].append(RUNNING)
    vcenter = start(section)
    result = playbooks(vcenter).task("vsphere_gpu_host", cluster="gpu", assignment_policy="consolidation")
    assert result.changed, result.message
    assert vcenter.host("esx1").config.graphicsConfig.sharedPassthruAssignmentPolicy == "consolidation"


@pytest.mark.parametrize("old", ["7.0.3", "6.7"])
def test_a_vgpu_mode_on_an_old_host_is_refused_with_its_version(start, section, playbooks, old):
    result = playbooks(start(section, old)).task("vsphere_gpu_host", cluster="gpu", vgpu_mode="mixed_size")
    assert result.code == "not_settable"
    assert "8.0.3" in result.message
    assert f"esx1 has {old}" in result.message


def test_a_gpu_in_mig_mode_keeps_it(start, section, playbooks):
    section["clusters"][0]["hosts"][0]["gpus"] = [{"board": "A100", "mode": "mig"}]
    run = playbooks(start(section))
    result = run.task("vsphere_gpu_host", esxi_hosts=["esx1"], vgpu_mode="mixed_size")
    assert not result.failed, result.message
    assert not result.changed
    assert "MIG" in result["warnings"][0]
    asked = run.task("vsphere_gpu_host", esxi_hosts=["esx1"], devices=[{"pci_id": FIRST, "vgpu_mode": "same_size"}])
    assert asked.code == "not_settable"


def test_a_gpu_given_away_whole_is_left_alone(start, section, playbooks):
    section["clusters"][0]["hosts"][0]["gpus"] = [{"board": "A40"}, {"board": "A40", "graphics_type": "direct"}]
    run = playbooks(start(section))
    result = run.task("vsphere_gpu_host", esxi_hosts=["esx1"], graphics_type="shared")
    assert types(result, "esx1") == ["shared", "direct"]
    asked = run.task("vsphere_gpu_host", esxi_hosts=["esx1"], devices=[{"pci_id": SECOND, "graphics_type": "shared"}])
    assert asked.code == "not_settable"
    assert SECOND in asked.message


def test_what_is_not_there_is_named_with_what_is(vcenter, playbooks):
    run = playbooks(vcenter)
    wrong = run.tasks(
        ("vsphere_gpu_host", {"cluster": "gpus", "graphics_type": "shared"}),
        ("vsphere_gpu_host", {"esxi_hosts": ["esx9"], "graphics_type": "shared"}),
        ("vsphere_gpu_host", {"esxi_hosts": ["esx3"], "graphics_type": "shared"}),
        ("vsphere_gpu_host", {"cluster": "gpu", "devices": [{"pci_id": "ff:00.0", "graphics_type": "shared"}]}),
    )
    assert [result.code for result in wrong] == ["nothing_selected"] * 4
    assert "There are: gpu" in wrong[0].message
    assert "esx1, esx2, esx3" in wrong[1].message
    assert "esx3 has no NVIDIA GPU" in wrong[2].message
    assert FIRST in wrong[3].message


REFUSALS = [
    ("NoPermission", {"privilegeId": "Host.Config.Settings"}, "forbidden", ["Host.Config.Settings", "esx1"]),
    ("NotEnoughLicenses", {}, "not_licensed", ["esx1"]),
    ("InvalidArgument", {"invalidProperty": "config"}, "invalid_argument", ["config", "esx1"]),
    ("HostNotConnected", {}, "host_unavailable", ["esx1"]),
    ("InvalidState", {}, "vsphere_fault", ["esx1"]),
]


def test_a_refusal_names_the_host_and_the_privilege(vcenter, playbooks):
    rules = [
        {"method": "UpdateGraphicsConfig", "fault": fault, "fields": fields, "as": "soap", "count": 1}
        for fault, fields, _code, _words in REFUSALS
    ]
    vcenter.control("PUT", "/faults", rules)
    wanted = {"esxi_hosts": ["esx1"], "assignment_policy": "consolidation"}
    results = playbooks(vcenter).tasks(*[("vsphere_gpu_host", wanted)] * len(REFUSALS))
    for result, (_fault, _fields, code, words) in zip(results, REFUSALS, strict=True):
        assert result.failed
        assert result.code == code, result.message
        assert all(word in result.message for word in words), result.message


def test_one_host_that_fails_does_not_stop_the_others_and_is_named(vcenter, playbooks):
    moid = vcenter.host("esx1").configManager.graphicsManager._moId
    vcenter.order_fault(
        "UpdateGraphicsConfig", "NoPermission", object=moid, fields={"privilegeId": "Host.Config.Settings"}
    )
    result = playbooks(vcenter).task("vsphere_gpu_host", cluster="gpu", assignment_policy="consolidation")
    assert result.failed
    assert result.changed
    assert "esx1" in result.message
    policies = [vcenter.host(name).config.graphicsConfig.sharedPassthruAssignmentPolicy for name in ("esx1", "esx2")]
    assert policies == ["performance", "consolidation"]


def test_a_session_that_ends_in_the_middle_is_opened_again(vcenter, playbooks):
    vcenter.control("PUT", "/sessions", {"expire_after_calls": 6})
    result = playbooks(vcenter).task("vsphere_gpu_host", cluster="gpu", assignment_policy="consolidation")
    assert not result.failed, result.message


def test_sessions_do_not_pile_up(vcenter, playbooks):
    run = playbooks(vcenter)
    before = len(vcenter.content.sessionManager.sessionList)
    run.tasks(
        ("vsphere_gpu_host", {"cluster": "gpu", "graphics_type": "shared_direct"}),
        ("vsphere_gpu_host", {"cluster": "wrong", "graphics_type": "shared_direct"}),
    )
    assert len(vcenter.content.sessionManager.sessionList) == before


def test_the_examples_in_the_documentation_work(start, section, playbooks):
    adapter = {"vendor_id": "15b3", "device_id": "1021", "device_name": "ConnectX-7", "passthrough": False}
    section["clusters"][0]["hosts"][1]["pci_devices"] = [adapter]
    results = playbooks(start(section)).run(examples("vsphere_gpu_host"))
    assert not any(result.failed for result in results)
    assert results[-1]["msg"] == []


def test_a2_h2_hosts_that_nobody_named_are_never_configured(vcenter, playbooks):
    run = playbooks(vcenter)
    vcenter.mark()
    empty = {"graphics_type": "shared"}
    results = run.tasks(
        ("vsphere_gpu_host", {**empty, "esxi_hosts": []}),
        ("vsphere_gpu_host", {**empty, "cluster": ""}),
        ("vsphere_gpu_host", {**empty, "cluster": "", "esxi_hosts": [], "datacenter": "dc1"}),
    )
    assert [result.code for result in results] == ["nothing_selected"] * 3
    role = {"name": "vgpu.fleet.vsphere_gpu_host"}
    for variables in ({}, {"vsphere_gpu_host_datacenter": "dc1"}):
        given = {"vsphere_gpu_host_state": "absent", **variables}
        refused = run.run_all({"ansible.builtin.include_role": role, "vars": given, "ignore_errors": True})[-1]
        assert refused.failed
        assert "vsphere_gpu_host_cluster or vsphere_gpu_host_hosts" in refused.message
    assert vcenter.writes == 0


def test_a2_teardown_gives_back_only_hosts_that_are_named(start, section, playbooks):
    section["clusters"].append({"name": "other", "hosts": [{"name": "esx9", "gpus": [{"board": "A40"}]}]})
    vcenter = start(section)
    run = playbooks(vcenter)
    vms = {"vsphere_gpu_vm_vms": [{"name": "gone-already", "cluster": "gpu"}]}
    unnamed = {"vgpu_teardown_platform": "vsphere", "vgpu_teardown_confirm": True, **vms}
    named = {**unnamed, "vsphere_gpu_host_cluster": "gpu"}

    def shared():
        hosts = {host.name: host for host in vcenter.all(vim.HostSystem)}
        return [name for name, host in sorted(hosts.items()) if (host.config.graphicsInfo or []) and not direct(host)]

    def direct(host):
        return any(gpu.graphicsType == "sharedDirect" for gpu in host.config.graphicsInfo)

    vcenter.mark()
    for variables, check in ((unnamed, True), (unnamed, False), (named, True)):
        results = run.playbook("teardown", variables, check=check)
        assert not results[-1].failed, results[-1]["output"]
        assert any(result.changed for result in results) is (variables is named)
        assert vcenter.writes == 0
    results = run.playbook("teardown", named)
    assert not results[-1].failed, results[-1]["output"]
    assert shared() == ["esx1", "esx2"]

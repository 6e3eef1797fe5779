"""vsphere_vgpu_vm finding a host with room, with and without DRS, on all versions."""

from __future__ import annotations

import pytest

MODULE = "vsphere_vgpu_vm"
FOUR, EIGHT, WHOLE = "nvidia_a40-4q", "nvidia_a40-8q", "nvidia_a40-48q"


def filled(section, *hosts):
    """Both GPUs of these hosts run a vGPU of another size."""
    section["vms"] += [
        {"name": f"{host}-{letter}", "host": host, "vgpus": [EIGHT], "memory_locked": True, "power": "on"}
        for host in hosts
        for letter in "ab"
    ]
    return section


def start_with(profile=FOUR, name="app-1", **options):
    return {"name": name, "cluster": "gpu", "vgpus": [{"profile": profile}], "state": "powered_on", **options}


@pytest.fixture
def section(section):
    section["vms"] = [{"name": "app-1", "host": "esx1"}]
    return section


@pytest.mark.parametrize("drs", ["fully_automated", "partially_automated", "manual", "off"])
def test_a_vm_starts_on_a_host_with_room_whatever_drs_does(start, section, playbooks, drs):
    section["clusters"][0]["drs"] = drs
    vcenter = start(filled(section, "esx1"))
    result = playbooks(vcenter).task(MODULE, **start_with())
    assert result.changed, result.message
    assert result["vm"]["node"] == "esx2"
    assert result["vgpus"][0]["gpu"].startswith("esx2-")
    by_drs = drs in ("fully_automated", "partially_automated")
    assert ("PowerOnMultiVM_Task" in vcenter.calls) is by_drs


def test_without_room_anywhere_nothing_is_changed_and_each_host_has_its_reason(start, section, playbooks):
    section = filled(section, "esx1", "esx2")
    vcenter = start(section)
    vcenter.mark()
    existing, created = playbooks(vcenter).tasks(
        (MODULE, start_with()), (MODULE, start_with(name="trainer", template="ubuntu-22.04-efi"))
    )
    for result in (existing, created):
        assert result.code == "no_room", result.message
        for words in ("esx1: ", "esx2: ", "esx3: it has no GPU", "nvidia_a40-8q", "esx1-a"):
            assert words in result.message
    assert vcenter.writes == 0


def test_left_to_vsphere_the_reasons_of_all_hosts_are_unrolled(start, section, playbooks):
    vcenter = start(filled(section, "esx1", "esx2"))
    result = playbooks(vcenter).task(MODULE, **start_with(placement="none"))
    assert result.code == "no_compatible_host"
    for words in ("esx1", "esx2", "esx3", FOUR, "app-1"):
        assert words in result.message
    assert result.changed
    assert "ReconfigVM_Task" in vcenter.calls


def test_hosts_in_maintenance_are_no_room(start, section, playbooks):
    section["clusters"][0]["hosts"][1]["maintenance"] = True
    vcenter = start(filled(section, "esx1"))
    result = playbooks(vcenter).task(MODULE, **start_with())
    assert result.code == "no_room"
    assert "maintenance" in result.message


def test_the_vms_own_vgpus_are_room_when_it_is_restarted(start, section, playbooks):
    section["clusters"][0]["hosts"] = [{"name": "esx1", "gpus": [{"board": "A40"}]}]
    section["vms"] = [{"name": "app-1", "host": "esx1", "vgpus": [WHOLE], "memory_locked": True}]
    section["vms"][0] |= {
        "power": "on",
        "extra_config": {"pciPassthru.use64bitMMIO": "TRUE", "pciPassthru.64bitMMIOSizeGB": "128"},
    }
    vcenter = start(section)
    result = playbooks(vcenter).task(MODULE, **start_with(EIGHT, power_cycle="hard"))
    assert result.changed, result.message
    assert result["restarted"]


def test_a1_a_running_vm_is_never_moved_and_one_on_another_host_is_not_the_one_that_is_meant(start, section, playbooks):
    section["vms"][0] |= {"vgpus": [FOUR], "memory_locked": True, "power": "on"}
    vcenter = start(section)
    result = playbooks(vcenter).task(MODULE, **start_with(esxi_host="esx2"))
    assert result.code == "vm_elsewhere"
    assert "/dc1/vm/app-1: it runs on host esx1, not on esx2" in result.message
    assert vcenter.writes == 0


def test_a_named_host_is_the_only_one(start, section, playbooks):
    vcenter = start(filled(section, "esx2"))
    there, full = playbooks(vcenter).tasks(
        (MODULE, start_with(name="x", template="ubuntu-22.04-efi", esxi_host="esx1")),
        (MODULE, start_with(esxi_host="esx2")),
    )
    assert there["vm"]["node"] == "esx1", there.message
    assert full.code == "no_room"
    assert "esx2" in full.message
    assert "esx1" not in full.message.split("hint")[0].split("esx2", 1)[0]


def test_where_only_the_driver_knows_the_server_has_the_last_word(start, section, playbooks):
    """Two of 8 GB may leave places for 16 GB. The server has them where one place is left, so that the second fails."""
    section["clusters"][0]["hosts"] = [{"name": "esx1", "gpus": [{"board": "A40", "mode": "mixed_size"}]}]
    section["vms"] = [{"name": f"app-{n}", "host": "esx1"} for n in range(1, 5)]
    vcenter = start(section)
    run = playbooks(vcenter)
    small = run.tasks(*[(MODULE, start_with("A40-8Q", f"app-{n}")) for n in (1, 2)])
    assert not any(result.failed for result in small), [result.message for result in small]
    vcenter.mark()
    large = run.tasks(*[(MODULE, start_with("A40-16Q", f"app-{n}")) for n in (3, 4)])
    assert [result.failed for result in large] == [False, True], [result.message for result in large]
    assert large[1].code == "no_room"
    assert "esx1" in large[1].message


def test_b_a_mixed_size_gpu_without_a_place_in_any_arrangement_is_refused_before_a_change(start, section, playbooks):
    section["clusters"][0]["hosts"] = [{"name": "esx1", "gpus": [{"board": "A40", "mode": "mixed_size"}]}]
    section["vms"] = [{"name": f"app-{n}", "host": "esx1"} for n in range(1, 4)]
    vcenter = start(section)
    run = playbooks(vcenter)
    run.tasks(*[(MODULE, start_with("A40-16Q", f"app-{n}")) for n in (1, 2)])
    vcenter.mark()
    third = run.task(MODULE, **start_with("A40-16Q", "app-3"))
    assert third.code == "no_room", third.message
    assert vcenter.writes == 0


@pytest.mark.parametrize(("level", "cluster"), [("manual", "fully_automated"), ("disabled", "fully_automated")])
def test_a4_a_vm_with_its_own_automation_level_starts_where_there_is_room(start, section, playbooks, level, cluster):
    section = filled(section, "esx1")
    section["clusters"][0]["drs"] = cluster
    for vm in section["vms"]:
        if vm["name"] == "app-1":
            vm |= {"drs": level, "host": "esx1"}
    vcenter = start(section)
    result = playbooks(vcenter).task(MODULE, **start_with())
    assert not result.failed, result.message
    assert result["vm"]["node"] == "esx2"


def test_a4_a_start_that_falls_back_to_another_host_is_a_warning(start, section, playbooks):
    """The named host has room for the vGPU and too little memory, which only vCenter checks."""
    section["clusters"][0]["hosts"][1]["memory_gib"] = 2
    vcenter = start(section)
    result = playbooks(vcenter).task(MODULE, **start_with(esxi_host="esx2"))
    assert not result.failed, result.message
    assert result["vm"]["node"] == "esx1"
    assert any("was to start on host esx2" in warning for warning in result["warnings"])


def test_mig_instances_are_had_as_far_as_the_slices_go(start, section, playbooks):
    section["clusters"][0]["hosts"][0]["gpus"] = [{"board": "A100", "mode": "mig"}]
    section["vms"] = []
    vcenter = start(section)

    def sliced(name, *profiles):
        vgpus = [{"profile": profile} for profile in profiles]
        return {"name": name, "template": "ubuntu-22.04-efi", "vgpus": vgpus, "state": "powered_on"}

    four, again, no_room, three = playbooks(vcenter).tasks(
        (MODULE, sliced("a", "grid_a100-4-20c")),
        (MODULE, sliced("a", "A100-4-20C")),
        (MODULE, sliced("b", "A100-3-20C", "A100-1-5C")),
        (MODULE, sliced("b", "A100-1-5C", "A100-2-10C")),
    )
    assert four.changed, four.message
    assert four["vm"]["node"] == "esx1"
    assert four["diff"]["after"]["mmio_size_gb"] == 64
    assert not again.changed
    assert no_room.code == "no_room"
    assert "esx2: its GPUs do not offer grid_a100-1-5c" in no_room.message
    assert three.changed, three.message
    (card,) = vcenter.books["esx1"]
    assert sorted(slot["profile"] for slot in card["slots"]) == ["grid_a100-1-5c", "grid_a100-2-10c", "grid_a100-4-20c"]


def test_a_start_that_fails_after_a_stop_says_that_the_vm_is_off(start, section, playbooks):
    section["vms"][0] |= {"vgpus": [FOUR], "memory_locked": True, "power": "on"}
    vcenter = start(section)
    vcenter.order_fault(
        "PowerOnVM_Task", "GenericVmConfigFault", form="task", fields={"reason": "Could not initialize"}
    )
    result = playbooks(vcenter).task(MODULE, **start_with(EIGHT, power_cycle="hard"))
    assert result.code == "vm_config"
    assert "app-1 was powered off for the change and is still off" in result.message
    assert result.changed


def test_after_the_start_the_gpu_is_named_that_lists_the_vm(start, section, playbooks):
    vcenter = start(section)
    vcenter.give(vcenter.vm("app-1"), FOUR)
    result = playbooks(vcenter).task(MODULE, **start_with())
    assert result["vm"]["gpus"] == ["esx1-00003b000"], result.message
    assert vcenter.vms_per_gpu("esx1") == [["app-1"], []]


def test_check_mode_asks_the_server_whether_it_would_start(start, section, playbooks):
    section["clusters"][0]["hosts"][0]["memory_gib"] = section["clusters"][0]["hosts"][1]["memory_gib"] = 3
    section["vms"][0] |= {"vgpus": [FOUR], "memory_locked": True}
    vcenter = start(section)
    vcenter.mark()
    result = playbooks(vcenter).task(MODULE, check=True, **start_with())
    assert result.failed
    assert vcenter.calls["CheckPowerOn_Task"] == 1
    for words in ("memory", "esx1", "esx2"):
        assert words in result.message
    assert vcenter.writes == 0


def test_every_version_is_served(start, section, version, playbooks):
    vcenter = start(section, version)
    run = playbooks(vcenter)
    predicted = run.task(MODULE, check=True, **start_with("A40-8Q"))
    made, again, created, gone = run.tasks(
        (MODULE, start_with("A40-8Q")),
        (MODULE, start_with("A40-8Q")),
        (MODULE, start_with("A40-8Q", "trainer", template="ubuntu-22.04-efi")),
        (MODULE, {"name": "trainer", "state": "absent", "power_cycle": "soft"}),
    )
    assert not predicted.failed, predicted.message
    assert predicted["diff"] == made["diff"]
    assert [result.changed for result in (made, again, created, gone)] == [True, False, True, True], created.message
    assert made["vgpus"][0]["gpu"]


# vCenter 9
def test_c_the_capacity_of_vcenter_9_decides_where_a_vm_fits(start, section, playbooks):
    vcenter = start(section, "9.0")
    vcenter.control("PUT", "/behaviour", {"capacity_skew": -1})
    vcenter.mark()
    whole = {"name": "app-1", "state": "powered_on", "vgpus": [{"profile": "A40-48Q", "count": 2}]}
    refused = playbooks(vcenter).task(MODULE, **whole)
    assert refused.code == "no_room", refused.message
    assert "vCenter reports only 1 free vGPUs nvidia_a40-48q" in refused.message
    assert vcenter.writes == 0


def test_c_room_that_only_vcenter_9_sees_is_used_with_a_warning(start, section, playbooks):
    section["vms"] += [
        {
            "name": f"{host}-busy-{number}",
            "host": host,
            "vgpus": ["nvidia_a40-8q"],
            "memory_locked": True,
            "power": "on",
        }
        for host in ("esx1", "esx2")
        for number in (1, 2)
    ]
    vcenter = start(section, "9.1")
    run = playbooks(vcenter)
    whole = {"name": "app-1", "state": "powered_on", "vgpus": [{"profile": "A40-48Q"}]}
    refused = run.task(MODULE, check=True, **whole)
    assert refused.code == "no_room", refused.message
    vcenter.control("PUT", "/behaviour", {"capacity_skew": 1})
    predicted = run.task(MODULE, check=True, **whole)
    assert predicted.changed, predicted.message
    assert any("The number of vCenter is used." in warning for warning in predicted["warnings"])

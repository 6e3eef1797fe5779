"""Vendor device groups: given to a VM by name, taken back as a whole, shown by host and counted (findings C and D)."""

from __future__ import annotations

import pytest

from tests.integration.vsphere_lab.conftest import Specs

MODULE = "vsphere_vgpu_vm"
WHOLE = "nvidia_a40-48q"
NVLINK = "Nvidia:2@nvidia_a40-48q%NVLink"
PAIR = "Nvidia:1@nvidia_a40-48q%NIC"
FIRST, SECOND = "0000:3b:00.0", "0000:3d:00.0"


@pytest.fixture
def section(section):
    """esx1 and esx2 with two A40 that NVLink connects; esx2 also with a network card beside the second A40."""
    nvlink = {"name": NVLINK, "description": "Two GPUs connected by NVLink"}
    nvlink["devices"] = [{"address": address, "profile": WHOLE} for address in (FIRST, SECOND)]
    nic = {"vendor_id": "15b3", "device_id": "1021", "vendor_name": "Mellanox", "device_name": "ConnectX-7"}
    pair = {"name": PAIR, "devices": [{"address": SECOND, "profile": WHOLE}, {"address": "0000:81:00.0"}]}
    hosts = section["clusters"][0]["hosts"]
    hosts[0]["device_groups"] = [dict(nvlink)]
    hosts[1] |= {"pci_devices": [nic], "device_groups": [nvlink, pair]}
    return section


def want(*groups, **more):
    return {"name": "app-1", "device_groups": [{"name": name} for name in groups], **more}


def groups(vcenter, name="app-1"):
    found = vcenter.vm(name).config.deviceGroups
    return sorted(group.deviceGroupName for group in found.deviceGroup) if found else []


def profiles(vcenter, name="app-1"):
    return sorted(device.backing.vgpu for device in Specs.vgpus(vcenter.vm(name)) if hasattr(device.backing, "vgpu"))


@pytest.mark.parametrize("meaning", ["listed", "by_devices"])
def test_a_group_is_given_and_taken_back_as_a_whole(vcenter, playbooks, meaning):
    vcenter.control("PUT", "/behaviour", {"device_groups": meaning})
    run = playbooks(vcenter)
    vcenter.mark()
    predicted = run.task(MODULE, check=True, **want(NVLINK))
    assert predicted.changed, predicted.message
    assert vcenter.writes == 0
    given = run.task(MODULE, **want(NVLINK))
    assert given.changed, given.message
    assert groups(vcenter) == [NVLINK]
    assert profiles(vcenter) == [WHOLE, WHOLE]
    assert vcenter.calls["ReconfigVM_Task"] == 1
    assert given["device_groups"] == [{"name": NVLINK, "devices": ["PCI device 0", "PCI device 1"]}]
    assert predicted["device_groups"] == [{"name": NVLINK, "devices": []}]
    assert given["vgpus"] == []
    assert predicted["diff"] == given["diff"]
    assert (given["diff"]["before"]["device_groups"], given["diff"]["after"]["device_groups"]) == ({}, {NVLINK: 1})
    assert vcenter.vm("app-1").config.version == "vmx-20"
    vcenter.mark()
    # The devices of the group are none of the VM's own vGPUs and PCI devices.
    again, others = run.tasks((MODULE, want(NVLINK)), (MODULE, {"name": "app-1", "vgpus": [], "pci_devices": []}))
    assert not again.changed, again.message
    assert not others.changed, others.message
    assert vcenter.writes == 0
    started = run.task(MODULE, **want(NVLINK, state="powered_on"))
    assert started.changed, started.message
    assert len(started["vm"]["gpus"]) == 2
    refused = run.task(MODULE, **want())
    assert refused.code == "power_cycle_required", refused.message
    assert NVLINK in refused.message
    taken = run.task(MODULE, **want(cluster="gpu", power_cycle="hard", state="powered_off"))
    assert taken.changed, taken.message
    assert (groups(vcenter), profiles(vcenter)) == ([], [])


def test_groups_change_beside_each_other_and_beside_vgpus(vcenter, playbooks):
    run = playbooks(vcenter)
    steps = [
        want(NVLINK, vgpus=[{"profile": WHOLE}]),
        want(NVLINK, PAIR, exclusive=False),
        want(PAIR, vgpus=[]),
    ]
    first, second, third = run.tasks(*[(MODULE, step) for step in steps])
    assert first.changed, first.message
    assert second.changed, second.message
    assert [group["name"] for group in second["device_groups"]] == [PAIR, NVLINK]
    assert third.changed, third.message
    assert groups(vcenter) == [PAIR]
    assert profiles(vcenter) == [WHOLE]
    assert third["vgpus"] == []


def test_a_new_vm_gets_its_group_on_a_host_that_has_it(vcenter, playbooks):
    vm = {"name": "rdma", "template": "ubuntu-22.04-efi", "cluster": "gpu", "state": "powered_on"}
    run = playbooks(vcenter)
    predicted = run.task(MODULE, check=True, device_groups=[{"name": PAIR}], **vm)
    assert predicted.changed, predicted.message
    made = run.task(MODULE, device_groups=[{"name": PAIR}], **vm)
    assert made.changed, made.message
    assert made["vm"]["node"] == "esx2"
    assert made["vm"]["gpus"] == ["esx2-00003d000"]
    assert groups(vcenter, "rdma") == [PAIR]
    again = run.task(MODULE, device_groups=[{"name": PAIR}], **vm)
    assert not again.changed, again.message
    # The network card of esx2 is taken, so another such VM does not fit.
    other = run.task(MODULE, device_groups=[{"name": PAIR}], **{**vm, "name": "rdma-2"})
    assert other.code == "no_room", other.message
    assert PAIR in other.message
    gone = run.task(MODULE, name="rdma", cluster="gpu", state="absent", power_cycle="hard")
    assert gone.changed, gone.message


def test_both_ends_of_nvlink_are_taken_or_none(start, section, playbooks):
    section["vms"] += [
        {"name": f"busy-{host}", "host": host, "vgpus": ["nvidia_a40-8q"], "memory_locked": True, "power": "on"}
        for host in ("esx1", "esx2")
    ]
    vcenter = start(section)
    vcenter.mark()
    refused = playbooks(vcenter).task(MODULE, **want(NVLINK, state="powered_on"))
    assert refused.code == "no_room", refused.message
    assert f"device group {NVLINK}" in refused.message
    assert vcenter.writes == 0


@pytest.mark.parametrize(
    ("asked", "version", "code", "said"),
    [
        (want("Nvidia:2@nvidia_a40-48q%NVlink"), "8.0.3", "device_not_offered", f"nearest ones offered: {NVLINK}"),
        (want(" "), "8.0.3", "invalid_request", "name of a device group is empty"),
        ({"name": "app-1", "device_groups": [{"name": NVLINK, "count": 0}]}, "8.0.3", "invalid_request", "count 0"),
        (want(NVLINK, vgpus=[{"profile": "nvidia_a40-8c"}]), "8.0.3", "cannot_boot", "different series"),
        (want(NVLINK), "7.0.3", "invalid_request", "does not support them"),
    ],
)
def test_bad_requests_change_nothing(start, section, playbooks, asked, version, code, said):
    vcenter = start(section, version)
    vcenter.mark()
    result = playbooks(vcenter).task(MODULE, **asked)
    assert result.code == code, result.message
    assert said in f"{result.message} {result['error'].get('hint', '')}"
    assert vcenter.writes == 0


@pytest.mark.parametrize("version", ["8.0.3", "9.0"])
def test_groups_are_shown_by_host_and_counted(start, section, playbooks, version):
    vcenter = start(section, version)
    run = playbooks(vcenter)
    vm = {"name": "pair", "template": "ubuntu-22.04-efi", "cluster": "gpu", "device_groups": [{"name": NVLINK}]}
    made, info, counted = run.tasks(
        (MODULE, {**vm, "esxi_host": "esx1", "state": "powered_on"}),
        ("vsphere_gpu_info", {}),
        ("vgpu_availability", {"platform": "vsphere"}),
    )
    assert made.changed, made.message
    shown = {node["name"]: {group["name"]: group for group in node["device_groups"]} for node in info["nodes"]}
    assert {name: list(found) for name, found in shown.items()} == {
        "esx1": [NVLINK],
        "esx2": [PAIR, NVLINK],
        "esx3": [],
    }
    taken, pair = shown["esx1"][NVLINK], shown["esx2"][PAIR]
    assert (taken["in_use"], taken["vms"], taken["description"]) == (1, ["pair"], "Two GPUs connected by NVLink")
    assert [device["profile"] for device in taken["devices"]] == [WHOLE, WHOLE]
    assert [(device["type"], device["device_id"]) for device in pair["devices"]] == [
        ("nvidiaVgpu", None),
        ("pciPassthru", "1021"),
    ]
    free = {"8.0.3": (None, None, None), "9.0": (0, 1, 1)}[version]
    assert (taken["free"], shown["esx2"][NVLINK]["free"], pair["free"]) == free
    groups_of = {group["name"]: group for group in counted["device_groups"]}
    nvlink = groups_of[NVLINK]
    assert (nvlink["in_use"], nvlink["claimed"], nvlink["free_now_at_most"]) == (1, 0, 1)
    assert nvlink["free_now"] == {"8.0.3": None, "9.0": 1}[version]
    assert [(node["node"], node["in_use"]) for node in nvlink["nodes"]] == [("esx1", 1), ("esx2", 0)]
    whole = next(profile for profile in counted["profiles"] if profile["profile"] == WHOLE)
    assert (whole["in_use"], whole["free"]) == (2, 2)


def test_vcenter_9_tells_that_a_group_is_taken_though_its_vgpus_would_fit(start, section, playbooks):
    # One network card and two free GPUs: only vCenter knows that the card is not beside the free one.
    section["vms"].append(
        {"name": "busy", "host": "esx2", "vgpus": ["nvidia_a40-8q"], "memory_locked": True, "power": "on"}
    )
    for host in section["clusters"][0]["hosts"]:
        host["assignment_policy"] = "consolidation"
    group = section["clusters"][0]["hosts"][1]["device_groups"][1]
    group["devices"][0]["address"] = FIRST
    vcenter = start(section, "9.0")
    (busy,) = [gpu["address"] for gpu in vcenter.books["esx2"] if gpu["slots"]]
    assert busy == FIRST
    vcenter.mark()
    refused = playbooks(vcenter).task(MODULE, **want(PAIR, state="powered_on"))
    assert refused.code == "no_room", refused.message
    assert f"only 0 free of 1 x device group {PAIR}" in refused.message
    assert vcenter.writes == 0


def test_the_role_gives_groups(vcenter, playbooks):
    run = playbooks(vcenter)
    vm = {"name": "role-1", "cluster": "gpu", "template": "ubuntu-22.04-efi", "device_groups": [{"name": NVLINK}]}

    def role(vms, **variables):
        named = {"vsphere_gpu_vm_vms": vms, **{f"vsphere_gpu_vm_{name}": value for name, value in variables.items()}}
        results = run.play({"roles": [{"role": "vgpu.fleet.vsphere_gpu_vm", "vars": named}]})
        return [result for result in results if result.failed or result.changed]

    made = role([vm])
    assert [result.failed for result in made] == [False], made
    assert groups(vcenter, "role-1") == [NVLINK]
    assert role([vm]) == []
    taken = role([{**vm, "device_groups": []}], power_cycle="hard")
    assert [result.failed for result in taken] == [False], taken
    assert groups(vcenter, "role-1") == []

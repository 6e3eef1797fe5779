"""The role vsphere_gpu_vm takes away only what it made, asks about room where its VMs are, and ignores no option."""

from __future__ import annotations

import json

from pyVmomi import vim

ROLE = "vgpu.fleet.vsphere_gpu_vm"
DEFAULTS = {"template": "ubuntu-22.04-efi", "cluster": "gpu"}


def names(vcenter):
    return sorted(vm.name for vm in vcenter.all(vim.VirtualMachine) if not vm.config.template)


def refusals(run, *runs):
    """What each run of the role failed with, or nothing."""
    tasks = []
    for variables in runs:
        named = {f"vsphere_gpu_vm_{name}": value for name, value in variables.items()}
        tasks += [
            {
                "block": [{"ansible.builtin.include_role": {"name": ROLE}, "vars": named}],
                "rescue": [{"ansible.builtin.debug": {"msg": "refused {{ ansible_failed_result | to_json }}"}}],
                "always": [{"ansible.builtin.debug": {"msg": "end"}}],
            }
        ]
    found, last = [], ""
    for result in run.run_all(*tasks):
        if result.message == "end":
            found.append(last)
            last = ""
        elif result.message.startswith("refused "):
            last = result.message
    assert len(found) == len(runs)
    return found


def test_a1_absent_passes_the_place_and_requires_the_mark(start, section, playbooks):
    section["clusters"].append({"name": "other", "hosts": [{"name": "esx9"}]})
    section["folders"] = ["team-a"]
    section["vms"] = [
        {"name": "ml-1", "host": "esx9", "folder": "team-a", "power": "on"},
        {"name": "ml-2", "host": "esx1"},
    ]
    vcenter = start(section)
    run = playbooks(vcenter)
    counted = {"count": "1", "profile": "A40-8Q", "defaults": DEFAULTS, "power_cycle": "hard"}
    gone = {"state": "absent", **counted}
    vcenter.mark()
    elsewhere, unmarked, no_prefix = refusals(
        run,
        {**gone, "prefix": "ml"},
        {**gone, "vms": [{"name": "ml-2"}]},
        counted,
    )
    assert "vm_elsewhere" in elsewhere
    assert "/dc1/vm/team-a/ml-1" in elsewhere
    assert "vm_not_ours" in unmarked
    assert "/dc1/vm/ml-2" in unmarked
    assert "vsphere_gpu_vm_prefix" in no_prefix
    assert vcenter.writes == 0
    mine = {**counted, "prefix": "team-b", "owner": "team-b"}
    foreign, *fine = refusals(
        run,
        {**mine, "owner": "team-b"},
        {**mine, "state": "absent", "owner": "team-c"},
        {**mine, "state": "absent"},
        {**gone, "vms": [{"name": "ml-2"}], "adopt": True},
    )
    assert [foreign, *fine[1:]] == ["", "", ""]
    assert "belongs to owner team-b" in fine[0]
    assert names(vcenter) == ["ml-1"]


def test_a10_room_is_asked_of_the_cluster_that_the_vms_belong_to(start, section, playbooks):
    small = {"name": "small", "hosts": [{"name": "esx9", "gpus": [{"board": "A40", "count": 2}]}]}
    section["clusters"].append(small)
    section["vms"] = []
    vcenter = start(section)
    vcenter.mark()
    three = {"prefix": "ml", "count": 3, "profile": "A40-48Q"}
    (refused,) = refusals(playbooks(vcenter), {**three, "defaults": {**DEFAULTS, "cluster": "small"}})
    assert "demand_does_not_fit" in refused
    assert vcenter.writes == 0


def test_a14_no_option_is_ignored(start, section, playbooks):
    section["templates"][0]["snapshot"] = "base"
    section["clusters"][0]["hosts"][2]["pci_devices"] = [{"vendor_id": "10de", "device_id": "20f1"}]
    section["vms"] = []
    vcenter = start(section)
    one = {"vms": [{"name": "whole", "pci_devices": [{"vendor_id": "10de", "device_id": "20f1"}]}]}
    run = playbooks(vcenter)
    vcenter.mark()
    typo, in_list = refusals(
        run,
        {**one, "defaults": {**DEFAULTS, "linked_clon": True}},
        {"vms": [{"name": "whole", "pci_devics": []}], "defaults": DEFAULTS},
    )
    assert "linked_clon" in json.loads(typo.removeprefix("refused "))["msg"] + typo
    assert "pci_devics" in in_list
    assert vcenter.writes == 0
    assert refusals(run, {**one, "defaults": {**DEFAULTS, "linked_clone": True, "power_off_force": True}}) == [""]
    devices = vcenter.vm("whole").config.hardware.device
    disk = next(device for device in devices if isinstance(device, vim.vm.device.VirtualDisk))
    assert "ubuntu-22.04-efi" in disk.backing.parent.fileName
    assert any(isinstance(device, vim.vm.device.VirtualPCIPassthrough) for device in devices)

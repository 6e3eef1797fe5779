"""The vSphere modules against a single ESXi host, without a vCenter."""

from __future__ import annotations

MODULE = "vsphere_vgpu_vm"
VM = "ha-host_VM0"


def test_info_finds_no_gpus_and_says_so(esxi, playbooks):
    result = playbooks(esxi).task("vsphere_gpu_info")
    assert not result.failed, result.message
    assert [node["gpus"] for node in result["nodes"]] == [[]]


def test_cpus_power_and_deletion_of_a_vm(esxi, playbooks):
    run = playbooks(esxi)
    assert VM in esxi.vm_names
    vm = {"name": VM, "adopt": True, "power_off_force": True}
    off = run.task(MODULE, **vm, state="powered_off", cpus=2)
    assert off.changed, off.message
    assert esxi.vm(VM).config.hardware.numCPU == 2
    on, again, gone = run.tasks(
        (MODULE, {**vm, "state": "powered_on"}),
        (MODULE, {**vm, "state": "powered_on"}),
        (MODULE, {**vm, "state": "absent", "power_cycle": "hard"}),
    )
    assert on.changed, on.message
    assert not again.failed, again.message
    assert not again.changed
    assert gone.changed, gone.message
    assert VM not in esxi.vm_names

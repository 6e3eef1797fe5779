"""vsphere_vgpu_vm on a vCenter that is slow, busy or vague: a VM that may be fine is never deleted (A3, A4).

And what cloud-init gets stays secret without masking the rest of the result (A9).
"""

from __future__ import annotations

import json
import time

from pyVmomi import vim

MODULE = "vsphere_vgpu_vm"
EIGHT = "nvidia_a40-8q"
SECRET = "kept-from-everybody"


def new(name="trainer", **options):
    return {
        "name": name,
        "template": "ubuntu-22.04-efi",
        "vgpus": [{"profile": EIGHT}],
        "state": "powered_on",
        **options,
    }


def powered_on(vcenter, name="trainer"):
    return vcenter.vm(name).runtime.powerState == vim.VirtualMachine.PowerState.poweredOn


def test_a3_a_gpu_that_lists_the_vm_late_or_never_is_no_failure_of_the_vm(vcenter, playbooks):
    run = playbooks(vcenter)
    # A task such as a backup's is in the way of the first attempt to start the VM.
    busy = {"task": {"type": "Task", "value": "task-1"}}
    vcenter.order_fault("PowerOnVM_Task", "TaskInProgress", form="task", count=1, fields=busy)
    vcenter.control("PUT", "/behaviour", {"graphics_info": "on_refresh"})
    late = run.task(MODULE, **new())
    assert late.changed, late.message
    assert late["vm"]["running"]
    assert len(late["vm"]["gpus"]) == 1
    assert not late.get("warnings")
    vcenter.control("PUT", "/behaviour", {"graphics_info": "never"})
    never = run.task(MODULE, **new("second", wait_timeout=2))
    assert never.changed, never.message
    assert never["vm"]["running"]
    assert never["vm"]["gpus"] == []
    assert "VM second runs on host" in never["warnings"][0]
    assert powered_on(vcenter, "second")
    assert "Destroy_Task" not in vcenter.calls
    assert "PowerOffVM_Task" not in vcenter.calls


def test_a3_a_start_that_takes_too_long_keeps_the_vm_and_the_next_run_finds_it(vcenter, playbooks):
    run = playbooks(vcenter)
    vcenter.control("PUT", "/tasks", {"running_ms": 4000, "methods": ["PowerOnVM_Task"]})
    slow = run.task(MODULE, **new(wait_timeout=1))
    assert slow.code == "timeout", slow.message
    assert slow.changed
    assert "was kept" in slow.message
    assert "not certain" in slow.message
    assert "Destroy_Task" not in vcenter.calls
    deadline = time.monotonic() + 20
    while not powered_on(vcenter):
        assert time.monotonic() < deadline, "the VM was started"
        time.sleep(0.1)
    again = run.task(MODULE, **new())
    assert not again.failed, again.message
    assert again["vm"]["running"]


def test_a4_what_a_start_by_drs_failed_of_is_told_although_no_task_is_named(vcenter, playbooks):
    reason = "Could not initialize plugin /usr/lib64/vmware/plugin/libnvidia-vgx.so."
    vcenter.order_fault(
        "PowerOnVM_Task", "GenericVmConfigFault", form="task", fields={"reason": reason}, message=reason
    )
    before = len(vcenter.all(vim.VirtualMachine))
    failed, plain = playbooks(vcenter).tasks((MODULE, new()), (MODULE, new("plain", vgpus=[])))
    assert failed.code == plain.code == "vm_config", failed.message + plain.message
    assert "Could not initialize plugin" in failed.message
    # vCenter says for certain that the VM did not start, and it never ran: then nothing is left of it.
    assert "was deleted again" in failed.message
    assert len(vcenter.all(vim.VirtualMachine)) == before


def test_a9_meta_data_is_hidden_and_masks_nothing_else(vcenter, playbooks):
    meta_data = {"local-hostname": "trainer", "count": 1, "dc": "dc1", "token": SECRET}
    cloud_init = {"user_data": f"#cloud-config\npassword: {SECRET}", "meta_data": meta_data}
    made, refused, wrong = playbooks(vcenter).tasks(
        (MODULE, new(cloud_init=cloud_init, state="present")),
        (MODULE, new("other", cloud_init=cloud_init, cluster="nowhere")),
        (MODULE, new("other", cloud_init=cloud_init, power_cycle="sometimes")),
    )
    assert made.changed, made.message
    assert made["vm"]["name"] == "trainer"
    assert made["vm"]["folder"] == "/dc1/vm"
    assert made["vm"]["uuid"] == vcenter.vm("trainer").config.uuid
    assert refused.code == "nothing_selected"
    assert "*" not in refused.message
    assert wrong.failed
    for result in (made, refused, wrong):
        assert SECRET not in json.dumps(result)
    assert made["invocation"]["module_args"]["cloud_init"]["meta_data"] == "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"

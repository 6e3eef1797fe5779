"""What came with vSphere 9: capacity as data, and the GPU of each vGPU (vsphere.md 1.7 and 1.9)."""

from __future__ import annotations

import pytest
from pyVmomi import vim

Manager = vim.DirectPathProfileManager


def capacity(vcenter, target, *profiles):
    specs = [
        Manager.CapacityQueryByDeviceConfig(deviceConfig=Manager.VmiopDirectPathConfig(vgpuProfile=profile))
        for profile in profiles
    ]
    return vcenter.content.directPathProfileManager.QueryDirectPathProfileCapacity(target, specs)


@pytest.mark.parametrize("version", ["9.0", "9.1"])
def test_fact_1_9_capacity_of_hosts_and_clusters(start, section, version):
    vcenter = start(section, version)
    host = Manager.TargetHost(host=vcenter.host("esx1"))
    vcenter.running("vm", "nvidia_a40-8q", host=vcenter.host("esx1"))
    eight, four, unknown = capacity(vcenter, host, "nvidia_a40-8q", "nvidia_a40-4q", "nvidia_z9-1q")
    assert (eight.consumed, eight.remaining, eight.max, eight.unusedReservation) == (1, 11, 12, 0)
    # One of the two GPUs is pinned to the other size.
    assert (four.consumed, four.remaining, four.max) == (0, 12, 24)
    assert isinstance(unknown, Manager.CapacityUnknown)
    assert unknown.faultList
    (whole,) = capacity(vcenter, Manager.TargetCluster(cluster=vcenter.cluster()), "nvidia_a40-8q")
    assert (whole.consumed, whole.remaining) == (1, 23)


def test_fact_1_9_older_servers_have_no_such_manager(vcenter):
    assert vcenter.content.directPathProfileManager is None


@pytest.mark.parametrize(("version", "told"), [("9.0", False), ("9.1", True)])
def test_fact_1_7_bindings_name_the_gpu_of_each_vgpu_since_9_1(start, section, version, told):
    vcenter = start(section, version)
    vm = vcenter.running("vm", "nvidia_a40-8q", "nvidia_a40-8q", host=vcenter.host("esx1"))
    bindings = vcenter.host("esx1").config.assignableHardwareBinding
    if not told:
        assert not bindings
        return
    assert {binding.vm for binding in bindings} == {vm}
    assert [binding.deviceKey for binding in bindings] == [13000, 13001]
    assert {binding.pciId for binding in bindings} <= {gpu.pciId for gpu in vcenter.host("esx1").config.graphicsInfo}

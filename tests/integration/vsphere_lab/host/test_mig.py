"""vsphere.md 3.4 and 6.3: MIG instances are admitted by the geometry that the Harvester side of the lab has."""

from __future__ import annotations

import pytest
from pyVmomi import vim

from lab.gpu.mig import GEOMETRIES, MigInstance, NoRoom

PREFIX = {"A30": "nvidia_a30", "A100": "grid_a100", "H100": "nvidia_h100", "H100L": "nvidia_h100l"}
# Sizes of instances, as a VM asks for them one after the other.
SEQUENCES = {
    "A30": [["4g.24gb"], ["1g.6gb", "2g.12gb", "1g.6gb+me"], ["2g.12gb+me", "2g.12gb"], ["2g.12gb", "4g.24gb"]],
    "A100": [
        ["4g.20gb", "3g.20gb"],
        ["4g.20gb", "4g.20gb"],
        ["1g.5gb", "2g.10gb", "4g.20gb"],
        ["1g.10gb", "2g.10gb", "3g.20gb"],
        ["1g.5gb"] * 7,
        ["1g.5gb+me", "1g.5gb+me"],
        ["7g.40gb"],
        ["1g.5gb", "7g.40gb"],
    ],
    "H100L": [["4g.47gb", "3g.47gb"], ["1g.12gb", "2g.24gb", "3g.47gb"], ["7g.94gb"], ["2g.24gb"] * 4],
    "H100": [["3g.40gb", "3g.40gb"], ["1g.10gb+me", "1g.20gb", "4g.40gb"], ["1g.20gb"] * 4, ["4g.40gb", "1g.20gb"] * 2],
}


def places(board, names):
    """Where the lab's own card would put them, or None if it could not."""
    geometry = GEOMETRIES[board]
    profiles = {profile.name: profile for profile in geometry.profiles}
    there: list[MigInstance] = []
    for name in names:
        try:
            there.append(MigInstance(0, profiles[name], geometry.place(profiles[name], there)))
        except NoRoom:
            return None
    return [instance.start for instance in there]


def vgpu_type(board, name):
    """The vGPU type of an instance: 1-5c for 1g.5gb, 1-5cme for 1g.5gb+me."""
    profile = next(one for one in GEOMETRIES[board].profiles if one.name == name)
    size = profile.name.removesuffix(profile.attribute).split("g.")[1].removesuffix("gb")
    return f"{PREFIX[board]}-{profile.compute}-{size}c" + ("me" if profile.media else "")


# The simulated vCenter has no geometry of the other boards.
@pytest.mark.parametrize("board", SEQUENCES)
def test_fact_3_2_instances_lie_where_they_lie_on_the_same_board_elsewhere(start, section, spec, board):
    section["clusters"][0]["hosts"] = [{"name": "esx1", "memory_gib": 4096, "gpus": [{"board": board, "mode": "mig"}]}]
    section["vms"] = [{"name": "app-{n}", "count": len(SEQUENCES[board])}]
    vcenter = start(section)
    for number, names in enumerate(SEQUENCES[board], start=1):
        vm, expected = vcenter.vm(f"app-{number}"), places(board, names)
        changes = [spec.add(vgpu_type(board, name)) for name in names]
        mmio = spec.options(use64bitMMIO="TRUE", **{"64bitMMIOSizeGB": "1024"})
        vcenter.wait(vcenter.reconfigure(vm, deviceChange=changes, memoryReservationLockedToMax=True, extraConfig=mmio))
        if expected is None:
            fault = vcenter.refused(vm.PowerOnVM_Task())
            assert isinstance(fault, vim.fault.InsufficientGraphicsResourcesFault), names
            continue
        vcenter.wait(vm.PowerOnVM_Task())
        (gpu,) = vcenter.control("GET", "/gpus")["esx1"]
        assert [slot["start"] for slot in gpu["slots"]] == expected, names
        vcenter.wait(vm.PowerOffVM_Task())

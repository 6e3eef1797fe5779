# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is refused since it would not boot, and what is only doubted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.version import parse
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.vm.rules import (
    CannotBoot,
    NoRoom,
    NotAdvertised,
    NotOffered,
    firmware_warnings,
    node_with_room,
    refuse_devices_of_different_nodes,
    refuse_what_cannot_boot,
    refuse_what_no_node_has,
    warnings,
)

from tests.unit.plugins.module_utils.fleets import fleet, gpu

FOUR_Q = "NVIDIA A2-4Q"


def advertised(record: Fleet) -> Fleet:
    """The fleet with each node advertising what it has."""
    nodes = []
    for node in record.nodes:
        amounts: dict[str, int] = {}
        for slot in (slot for one in node.gpus for slot in one.slots if slot.profile):
            amounts[slot.profile] = amounts.get(slot.profile, 0) + 1
        nodes.append(replace(node, advertised=amounts))
    return replace(record, nodes=tuple(nodes))


@pytest.mark.parametrize(
    ("vgpus", "said"),
    [
        ({"NVIDIA A2-4Q": 1, "NVIDIA L40S-4Q": 1}, "different boards"),
        ({"NVIDIA A2-4Q": 1, "NVIDIA A2-4C": 1}, "different series"),
        ({"NVIDIA A2-4A": 2}, "several vGPUs of series A"),
        ({"NVIDIA L40S-2B": 2}, "several vGPUs of series B"),
    ],
)
def test_what_cannot_boot_is_refused(vgpus, said):
    with pytest.raises(CannotBoot, match=said):
        refuse_what_cannot_boot("default/vm", vgpus)


@pytest.mark.parametrize("vgpus", [{}, {FOUR_Q: 1}, {FOUR_Q: 4}, {"NVIDIA A2-4A": 1}, {"NVIDIA A40-48C": 2}])
def test_what_can_boot_is_not_refused(vgpus):
    refuse_what_cannot_boot("default/vm", vgpus)


@pytest.mark.parametrize(
    ("vgpus", "compute", "said"),
    [
        ({FOUR_Q: 2}, True, None),
        ({"NVIDIA A40-48Q": 2}, False, None),
        ({"NVIDIA A40-12Q": 2}, False, "depends on the version of NVIDIA's driver"),
        ({"NVIDIA A2-4C": 2}, False, "depends on the version of NVIDIA's driver"),
        ({"NVIDIA L40S-12Q": 2}, False, "depends on the version of NVIDIA's driver"),
        ({"NVIDIA A2-4Q": 1, "NVIDIA A2-8Q": 1}, False, "different sizes"),
        ({"NVIDIA A2-4A": 1}, True, "series for desktops"),
        ({"NVIDIA A2-2B": 1}, True, "series for desktops"),
        ({"NVIDIA A2-4A": 1}, False, None),
    ],
)
def test_what_is_unsure_is_said(vgpus, compute, said):
    found = list(warnings("default/vm", vgpus, compute=compute))
    assert len(found) == bool(said)
    assert not said or said in found[0]


def test_more_than_any_single_node_has_is_refused():
    record = advertised(fleet(gpu("n1:a", "4Q 4Q"), gpu("n2:a", "4Q")))
    refuse_what_no_node_has("default/vm", {FOUR_Q: 2}, record)
    with pytest.raises(NoRoom, match=r"n1: 2 x NVIDIA A2-4Q; n2: 1 x NVIDIA A2-4Q"):
        refuse_what_no_node_has("default/vm", {FOUR_Q: 3}, record)
    with pytest.raises(NotOffered, match="No node offers NVIDIA A2-8Q"):
        refuse_what_no_node_has("default/vm", {"NVIDIA A2-8Q": 1}, record)


def test_vgpus_that_exist_and_are_not_advertised_are_told_apart_from_those_that_do_not_exist():
    """The kubelet or the controller of their node is down: more vGPUs would not help."""
    record = fleet(gpu("n1:a", "4Q 4Q"), gpu("n2:a", ""))
    hidden = replace(record, nodes=tuple(replace(node, advertised={}) for node in record.nodes))
    with pytest.raises(NotAdvertised, match=r"its vGPUs are configured \(2 on node n1\), but no node") as found:
        refuse_what_no_node_has("default/vm", {FOUR_Q: 1}, hidden)
    assert "spec.nodeName=n1" in found.value.hint
    assert "Make some" not in str(found.value)
    down = replace(hidden, nodes=tuple(replace(node, ready=False) for node in hidden.nodes))
    with pytest.raises(NotAdvertised) as found:
        refuse_what_no_node_has("default/vm", {FOUR_Q: 1}, down)
    assert found.value.hint == "Node n1 is not ready."
    with pytest.raises(NotOffered, match="No node offers NVIDIA A2-8Q"):
        refuse_what_no_node_has("default/vm", {"NVIDIA A2-8Q": 1}, hidden)


def test_a_vm_may_count_on_what_it_has_itself():
    record = advertised(fleet(gpu("n1:a", "4Q@vm 4Q"), gpu("n2:a", "4Q@web")))
    assert node_with_room("default/vm", {FOUR_Q: 2}, record) == "n1"
    assert node_with_room("default/web", {FOUR_Q: 2}, record) is None


def test_host_devices_of_different_nodes_are_refused_and_names_that_are_no_devices_do_not_count() -> None:
    nodes = ["gpu", "gpu-a", "gpu-a.example"]
    fine = ["gpu-a-000008004", "gpu-a-000008005", "vgpu-0", "gpu-0000080", "gpu-b-000008004"]
    refuse_devices_of_different_nodes("default/web", fine, nodes)
    with pytest.raises(CannotBoot, match=r"gpu-a-000008004 on gpu-a, gpu-a\.example-000008004 on gpu-a\.example"):
        refuse_devices_of_different_nodes("default/web", ["gpu-a-000008004", "gpu-a.example-000008004"], nodes)


@pytest.mark.parametrize(
    ("version", "efi", "profile", "said"),
    [
        ("1.6", False, "NVIDIA H100-80C", "may need EFI"),
        ("1.6", True, "NVIDIA H100-80C", ""),
        ("v1.5.1", False, "NVIDIA H100-80C", ""),
        ("v1.5.1", True, "NVIDIA H100-80C", "may need BIOS"),
        ("1.9", False, "NVIDIA A2-8C", ""),
        ("1.9", False, "NVIDIA L40S-48Q", ""),
    ],
)
def test_the_firmware_of_a_vm_with_a_large_vgpu_for_computing(version: str, efi: bool, profile: str, said: str) -> None:
    found = parse(version)
    assert found is not None
    told = list(firmware_warnings("default/vm", {profile: 1}, efi=efi, version=found))
    assert len(told) == bool(said)
    assert all(said in one and "default/vm" in one for one in told)
    assert list(firmware_warnings("default/vm", {profile: 0}, efi=efi, version=found)) == []

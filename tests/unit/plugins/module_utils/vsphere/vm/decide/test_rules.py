# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is refused with names before anything is changed."""

from __future__ import annotations

from collections import Counter

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.devices import PciRequest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.rules import (
    CannotBoot,
    InvalidRequest,
    NoSuchDevice,
    NotOffered,
    refuse_what_cannot_boot,
    refuse_what_no_host_has,
    refuse_what_no_host_offers,
    wanted_pci_devices,
    wanted_vgpus,
)

OFFERED = ["nvidia_a40-4q", "nvidia_a40-8q", "nvidia_a40-8c", "grid_a100-10c", "grid_a100-3-20c"]
A100, NIC = (0x10DE, 0x20F1), (0x15B3, 0x101D)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("A40-8Q", "nvidia_a40-8q"),
        ("nvidia_a40-8q", "nvidia_a40-8q"),
        ("NVIDIA A40-8Q", "nvidia_a40-8q"),
        ("grid_a40-8q", "nvidia_a40-8q"),
        ("nvidia.com/NVIDIA_A40-8Q", "nvidia_a40-8q"),
        ("nvidia_a100-10c", "grid_a100-10c"),
        ("A100-3-20C", "grid_a100-3-20c"),
        # Known and not offered, and not known at all: refused later, with what is offered.
        ("L40S-8Q", "nvidia_l40s-8q"),
        ("a40-7q", "a40-7q"),
    ],
)
def test_any_spelling_finds_the_name_that_the_cluster_uses(spelling, name):
    assert wanted_vgpus([{"profile": spelling, "count": 1}], OFFERED) == Counter({name: 1})


def test_spellings_of_one_profile_add_up():
    asked = [{"profile": "A40-4Q", "count": 2}, {"profile": "nvidia_a40-4q", "count": 1}]
    assert wanted_vgpus(asked, OFFERED) == Counter({"nvidia_a40-4q": 3})
    assert wanted_vgpus(None, OFFERED) is None
    assert wanted_vgpus([], OFFERED) == Counter()


def test_a_count_below_one_is_no_request():
    with pytest.raises(InvalidRequest, match="count 0"):
        wanted_vgpus([{"profile": "A40-4Q", "count": 0}], OFFERED)


@pytest.mark.parametrize("ids", [("10de", "20f1"), ("0x10DE", "0x20F1")])
def test_pci_ids_are_hexadecimal(ids):
    asked = [{"vendor_id": ids[0], "device_id": ids[1], "count": 2, "custom_label": None}]
    assert wanted_pci_devices(asked) == [PciRequest(A100)] * 2
    for wrong in ("nvidia", "", "123456", "0"):
        with pytest.raises(InvalidRequest, match="not a PCI id"):
            wanted_pci_devices([{"vendor_id": wrong, "device_id": "20f1", "count": 1}])


@pytest.mark.parametrize(
    ("vgpus", "said"),
    [
        ({"nvidia_a40-4q": 1, "nvidia_l40s-4q": 1}, "different boards"),
        ({"nvidia_a40-8q": 1, "nvidia_a40-8c": 1}, "different series"),
        ({"nvidia_a40-1b": 2}, "several vGPUs of series B"),
        ({"nvidia_a40-4q": 9}, "takes 8"),
    ],
)
def test_sets_that_no_vm_can_have_are_refused(vgpus, said):
    with pytest.raises(CannotBoot, match=said):
        refuse_what_cannot_boot("web", vgpus, most=8)


def test_different_sizes_of_one_board_and_series_are_fine():
    refuse_what_cannot_boot("web", {"nvidia_a40-48c": 1, "nvidia_a40-16c": 1}, most=8)
    refuse_what_cannot_boot("web", {"nvidia_a40-1b": 1}, most=1)


@pytest.mark.parametrize(
    "vgpus", [{"nvidia_a40-8c": 2}, {"nvidia_a40-48c": 1, "nvidia_a40-16c": 1}, {"grid_a100-3-20c": 2}]
)
def test_several_compute_vgpus_with_a_part_of_a_gpu_need_vsphere_8(vgpus):
    with pytest.raises(CannotBoot, match=r"before vSphere 8\.0"):
        refuse_what_cannot_boot("web", vgpus, most=8, api_version=(7, 0, 3, 0))
    refuse_what_cannot_boot("web", vgpus, most=8, api_version=(8, 0, 0, 0))


@pytest.mark.parametrize("vgpus", [{"nvidia_a40-48c": 2}, {"nvidia_a40-8c": 1}, {"nvidia_a40-8q": 2}])
def test_whole_gpus_a_single_vgpu_and_series_q_do_not_need_vsphere_8(vgpus):
    refuse_what_cannot_boot("web", vgpus, most=8, api_version=(7, 0, 3, 0))


def test_an_unknown_profile_is_refused_with_the_nearest_ones_offered():
    with pytest.raises(NotOffered, match="nvidia_a40-9q") as caught:
        refuse_what_no_host_offers("web", {"nvidia_a40-9q": 1}, {"esx1": OFFERED, "esx3": []})
    assert "nvidia_a40-8q" in caught.value.hint
    assert "a100" not in caught.value.hint


def test_a_cluster_that_offers_nothing_points_to_the_hosts_graphics():
    with pytest.raises(NotOffered) as caught:
        refuse_what_no_host_offers("web", {"nvidia_a40-8q": 1}, {"esx3": []})
    assert "vsphere_gpu_host" in caught.value.hint


def test_profiles_that_only_different_hosts_offer_cannot_go_together():
    offers = {"esx1": ["nvidia_a40-4q"], "esx2": ["nvidia_a40-8q"]}
    with pytest.raises(NotOffered, match=r"esx1: nvidia_a40-4q; esx2: nvidia_a40-8q"):
        refuse_what_no_host_offers("web", {"nvidia_a40-4q": 1, "nvidia_a40-8q": 1}, offers)
    refuse_what_no_host_offers("web", {"nvidia_a40-4q": 5}, offers)


def test_a_whole_device_must_be_in_some_host():
    devices = {"esx1": [(A100, "fast"), (A100, "")], "esx2": [(NIC, "")]}
    refuse_what_no_host_has("web", [PciRequest(A100), PciRequest(A100, "fast")], devices)
    with pytest.raises(NoSuchDevice, match="10de:20f1 labelled slow") as caught:
        refuse_what_no_host_has("web", [PciRequest(A100, "slow")], devices)
    assert "10de:20f1 labelled fast" in caught.value.hint
    with pytest.raises(NoSuchDevice, match="3 x PCI device 10de:20f1"):
        refuse_what_no_host_has("web", [PciRequest(A100)] * 3, devices)
    with pytest.raises(NoSuchDevice, match="together"):
        refuse_what_no_host_has("web", [PciRequest(A100), PciRequest(NIC)], devices)

# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a VM needs to start with its devices, by the rules of vsphere.md 4."""

from __future__ import annotations

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.devices import PciRequest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.model import VmState
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.requirements import (
    MMIO_SIZE,
    USE_MMIO,
    NeedsEfi,
    Requirements,
    mmio_gib,
    mmio_settings,
    needs_of,
    prepare,
    refuse_without_efi,
)
from hypothesis import given, strategies as st

READY = VmState("vm-1", "vm", hardware_version=19, firmware="efi", memory_locked=True)
A100_40 = PciRequest((0x10DE, 0x20F1))


@pytest.mark.parametrize(
    ("framebuffers", "size"),
    [([80], 256), ([40], 128), ([24, 24], 128), ([32], 64), ([80, 80], 512), ([16], 32), ([48], 128), ([], 0)],
)
def test_the_mmio_region_is_that_of_the_vendors_article(framebuffers, size):
    assert mmio_gib(gib * 1024 for gib in framebuffers) == size


@given(st.lists(st.integers(min_value=512, max_value=200 * 1024), min_size=1, max_size=8))
def test_the_region_is_a_power_of_two_at_least_double_and_less_than_four_times_the_framebuffers(sizes):
    size, total = mmio_gib(sizes), -(-sum(sizes) // 1024)
    assert size & (size - 1) == 0
    assert 2 * total <= size < 4 * total or total == 1


def test_small_profiles_in_small_vms_need_reserved_memory_and_recent_hardware_only():
    assert needs_of(["nvidia_a40-8q", "nvidia_a40-8q"]) == Requirements(memory_locked=True, hardware_version=17)


def test_without_devices_nothing_is_needed():
    assert needs_of([]) == Requirements()
    assert not prepare(VmState("vm-1", "vm"), needs_of([])).changed


def test_one_large_profile_makes_all_framebuffers_count():
    assert needs_of(["nvidia_a40-48c", "nvidia_a40-16c"]).mmio_gib == 128


def test_a_t4_needs_no_mmio_region_whatever_its_profile():
    assert needs_of(["grid_t4-16q"]).mmio_gib == 0
    assert needs_of(["grid_t4-16c"], memory_mib=64 * 1024).mmio_gib == 0


# NVIDIA's list of boards, and boards that are not in it because they fit into the default region.
NVIDIA_TABLE = {
    "grid_v100-8q": 64,
    "grid_v100d-8q": 64,
    "nvidia_a10-2q": 64,
    "nvidia_a30-1-6c": 64,
    "nvidia_rtxa5000-4q": 64,
    "nvidia_l4-4q": 64,
    "nvidia_a40-8q": 128,
    "grid_a100-4c": 128,
    "nvidia_l40-1b": 128,
    "grid_a100d-10c": 256,
    "nvidia_h100-1-10c": 256,
    "nvidia_h200-18c": 512,
    "nvidia_a16-8q": 0,
    "nvidia_a2-4q": 0,
    "grid_p4-4q": 0,
}


@pytest.mark.parametrize(("profile", "size"), NVIDIA_TABLE.items())
def test_a_vm_with_32_gb_needs_the_mmio_space_of_the_board_whatever_the_profile(profile, size):
    assert needs_of([profile], memory_mib=32 * 1024).mmio_gib == size
    assert needs_of([profile], memory_mib=32 * 1024).efi == bool(size)


@pytest.mark.parametrize("profile", ["nvidia_a40-8q", "nvidia_l40-1b"])
def test_a_vm_with_less_memory_needs_no_region_for_a_small_vgpu(profile):
    assert needs_of([profile], memory_mib=32 * 1024 - 4).mmio_gib == 0


def test_each_vgpu_of_a_large_vm_can_be_on_a_board_of_its_own():
    assert needs_of(["nvidia_a40-8q"] * 3, memory_mib=64 * 1024).mmio_gib == 512


def test_compute_profiles_need_a_region_in_any_vm():
    assert needs_of(["nvidia_a40-4c"], memory_mib=8 * 1024).mmio_gib == 64
    assert needs_of(["nvidia_a16-4c"], memory_mib=8 * 1024).efi


def test_a_large_profile_needs_its_region_in_a_small_vm_as_well():
    assert needs_of(["nvidia_a40-48q"], memory_mib=16 * 1024).mmio_gib == 128


def test_the_keys_for_cluster_api_are_those_that_the_module_writes():
    vm = VmState("vm-1", "vm", memory_mb=64 * 1024)
    needs = needs_of(["NVIDIA A40-8Q"], memory_mib=vm.memory_mb)
    assert needs.extra_config == prepare(vm, needs).extra_config == {USE_MMIO: "TRUE", MMIO_SIZE: "128"}
    assert needs_of(["NVIDIA A40-8Q"]).extra_config == {}


@given(
    st.lists(st.sampled_from(sorted(NVIDIA_TABLE)), max_size=8),
    st.integers(min_value=1024, max_value=256 * 1024),
    st.integers(min_value=0, max_value=256 * 1024),
)
def test_more_memory_or_more_vgpus_never_need_a_smaller_region(profiles, memory, more):
    needs = needs_of(profiles, memory_mib=memory).mmio_gib
    assert needs_of(profiles, memory_mib=memory + more).mmio_gib >= needs
    assert needs_of([*profiles, "nvidia_a40-8q"], memory_mib=memory).mmio_gib >= needs
    assert needs & (needs - 1) == 0


def test_a_whole_gpu_counts_with_the_framebuffer_of_its_board_and_other_devices_do_not():
    assert needs_of([], [A100_40]).mmio_gib == 128
    network_card = needs_of([], [PciRequest((0x15B3, 0x101D))])
    assert network_card == Requirements(memory_locked=True, hardware_version=17)


def test_before_7_0_there_is_no_such_hardware_version():
    assert needs_of(["nvidia_a40-8q"], api_version=(6, 7)).hardware_version == 0


def test_each_setting_that_is_missing_is_written_and_shown():
    old = VmState("vm-1", "vm", hardware_version=13)
    found = prepare(old, needs_of(["nvidia_a40-48q"]))
    assert (found.lock_memory, found.upgrade_to) == (True, 17)
    assert found.extra_config == {USE_MMIO: "TRUE", MMIO_SIZE: "128"}
    assert found.before == {
        "memory_reservation_locked": False,
        "hardware_version": "vmx-13",
        "mmio_64bit": False,
        "mmio_size_gb": None,
    }
    assert found.after == {
        "memory_reservation_locked": True,
        "hardware_version": "vmx-17",
        "mmio_64bit": True,
        "mmio_size_gb": 128,
    }
    assert len(found.words) == 4


@pytest.mark.parametrize(
    "options",
    [
        {"pciPassthru.use64bitMMIO": "TRUE", "pciPassthru.64bitMMIOSizeGB": "128"},
        {"pcipassthru.use64bitmmio": "true", "pciPassthru.64bitMMIOSizeGB": " 512 "},
    ],
)
def test_what_is_there_in_any_spelling_or_larger_is_kept(options):
    vm = VmState("vm-1", "vm", hardware_version=21, memory_locked=True, extra_config=options)
    assert not prepare(vm, needs_of(["nvidia_a40-48q"])).changed


def test_a_region_that_is_too_small_or_no_number_is_replaced():
    for size in ("64", "much", ""):
        vm = VmState("vm-1", "vm", hardware_version=21, memory_locked=True)
        vm = VmState(**{**vm.__dict__, "extra_config": {USE_MMIO: "TRUE", MMIO_SIZE: size}})
        assert prepare(vm, needs_of(["nvidia_a40-48q"])).extra_config == {MMIO_SIZE: "128"}
    assert mmio_settings({MMIO_SIZE: "much"}) == (False, 0)


@pytest.mark.parametrize("creating", [True, False])
def test_large_devices_are_refused_without_efi_and_firmware_is_never_changed(creating):
    bios = VmState("vm-1", "old-bios", firmware="bios")
    with pytest.raises(NeedsEfi, match="old-bios has BIOS firmware"):
        refuse_without_efi(bios, needs_of(["nvidia_a40-48q"]), creating=creating)
    refuse_without_efi(bios, needs_of(["nvidia_a40-8q"]), creating=creating)
    refuse_without_efi(READY, needs_of(["nvidia_a40-48q"]), creating=creating)

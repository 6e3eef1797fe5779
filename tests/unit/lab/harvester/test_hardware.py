"""What a simulated card offers: the size lock, the cap, MIG geometries, and how its functions are numbered."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from lab.gpu import boards
from lab.gpu.mig import GEOMETRIES, MigCard, NoRoom
from lab.harvester.hardware import Gpu, Host
from lab.harvester.pcidevices import permitted_devices
from lab.scenarios.scenario import GpuSpec, NodeSpec


def card(board: str = "A2", address: str = "0000:08:00.0") -> Gpu:
    gpu = Gpu(address, boards.named(board), 0)
    gpu.create_vfs()
    return gpu


def offered(gpu: Gpu, index: int) -> set[str]:
    return {kind.name for kind in gpu.offered(gpu.vfs[index])}


def configure(gpu: Gpu, index: int, name: str) -> None:
    (kind,) = [kind for kind in (*gpu.board.types, *gpu.board.mig_types) if kind.name == name]
    gpu.configure(gpu.vfs[index], kind.id)


def test_functions_are_listed_in_the_order_of_their_link_names() -> None:
    """harvester.md 2.2: virtfn0, virtfn1, virtfn10, ... and nvidia.md 4.1: the first function is .4."""
    assert card().vf_addresses()[:4] == ["0000:08:00.4", "0000:08:00.5", "0000:08:01.6", "0000:08:01.7"]


def test_a_second_pci_domain_is_kept() -> None:
    assert card("L40S", "0001:04:00.0").vf_addresses()[0] == "0001:04:00.4"


def test_the_first_vgpu_fixes_the_size_and_other_series_of_that_size_stay() -> None:
    gpu = card()
    configure(gpu, 0, "NVIDIA A2-4Q")
    assert offered(gpu, 1) == {"NVIDIA A2-4A", "NVIDIA A2-4C", "NVIDIA A2-4Q"}
    assert offered(gpu, 0) == set()


def test_a_full_card_offers_nothing_until_one_is_released() -> None:
    gpu = card()
    for index in range(4):
        configure(gpu, index, "NVIDIA A2-4Q")
    assert offered(gpu, 5) == set()
    gpu.release(gpu.vfs[0])
    assert offered(gpu, 5) == {"NVIDIA A2-4A", "NVIDIA A2-4C", "NVIDIA A2-4Q"}


def test_a_real_driver_refuses_what_it_does_not_offer_and_the_recordings_fake_one_takes_it() -> None:
    gpu = card()
    configure(gpu, 0, "NVIDIA A2-4C")
    with pytest.raises(LookupError, match="refuses"):
        configure(gpu, 1, "NVIDIA A2-8Q")
    gpu.takes_any_type = True
    configure(gpu, 1, "NVIDIA A2-8Q")
    assert gpu.vfs[1].type is not None


def test_types_are_gone_with_the_functions_unless_the_recordings_fake_driver_keeps_them() -> None:
    for keeps in (False, True):
        host = Host(NodeSpec("gpu-a", (GpuSpec("0000:08:00.0", boards.named("A2"), True),)), keeps_types=keeps)
        (gpu,) = host.gpus
        configure(gpu, 0, "NVIDIA A2-4Q")
        uuid = gpu.vfs[0].uuid
        gpu.remove_vfs()
        gpu.create_vfs()
        assert gpu.vfs[0].uuid == (uuid if keeps else "")
        gpu.remove_vfs()
        host.reboot()
        gpu.create_vfs()
        assert not any(vf.type for vf in gpu.vfs)


def test_a_function_that_cannot_be_read_is_named() -> None:
    host = Host(NodeSpec("gpu-a", (GpuSpec("0000:08:00.0", boards.named("A2"), True),)))
    host.check_readable("0000:08:00.4")
    host.unreadable = {"0000:08:00.4"}
    with pytest.raises(LookupError, match=r"0000:08:00\.4"):
        host.check_readable("0000:08:00.5", "0000:08:00.4")


@given(st.lists(st.integers(0, 15), max_size=40))
def test_no_order_of_enables_breaks_the_size_lock_or_the_cap(choices: list[int]) -> None:
    gpu = card()
    for index, choice in enumerate(choices):
        vf = gpu.vfs[index % len(gpu.vfs)]
        kinds = gpu.offered(vf)
        if kinds:
            gpu.configure(vf, kinds[choice % len(kinds)].id)
    held = [vf.type for vf in gpu.vfs if vf.type]
    assert len({kind.framebuffer_gib for kind in held}) <= 1
    assert sum(kind.framebuffer_gib for kind in held) <= gpu.board.memory_gib


def test_a_reboot_forgets_functions_and_instances() -> None:
    host = Host(NodeSpec("n", (GpuSpec("0000:04:00.0", boards.named("A100"), sriov=True),)))
    (gpu,) = host.gpus
    assert gpu.mig is not None
    gpu.mig.create(19)
    host.reboot()
    assert (gpu.vfs, gpu.mig.instances) == ([], [])


@pytest.mark.parametrize(
    ("wanted", "fits"), [([5, 9], True), ([5, 5], False), ([9, 9], True), ([9, 9, 19, 19], False), ([19] * 7, True)]
)
def test_instances_of_an_a100_fit_by_its_slices(wanted: list[int], fits: bool) -> None:
    mig = MigCard(GEOMETRIES["A100"])
    try:
        for number in wanted:
            mig.create(number)
        created = True
    except NoRoom:
        created = False
    assert created is fits


def test_only_one_instance_has_the_media_engines() -> None:
    mig = MigCard(GEOMETRIES["A100"])
    mig.create(20)
    with pytest.raises(NoRoom):
        mig.create(20)


def test_in_mig_mode_only_the_types_of_free_instances_are_offered() -> None:
    gpu = Gpu("0000:04:00.0", boards.named("A100"), 0, mig=MigCard(GEOMETRIES["A100"]), mig_mode=True)
    gpu.create_vfs()
    assert offered(gpu, 0) == set()
    assert gpu.mig is not None
    gpu.mig.create(9)
    assert offered(gpu, 0) == {"GRID A100-3-20C"}


PRO = "NVIDIA RTX Pro 6000 Blackwell DC"


def rtx_pro(*profiles: int) -> Gpu:
    board = "RTX Pro 6000 Blackwell DC"
    gpu = Gpu("0000:04:00.0", boards.named(board), 0, mig=MigCard(GEOMETRIES[board]), mig_mode=True)
    gpu.create_vfs()
    for number in profiles:
        assert gpu.mig is not None
        gpu.mig.create(number)
    return gpu


def test_instances_without_graphics_serve_no_vgpu_on_a_board_with_graphics_instances() -> None:
    assert offered(rtx_pro(14, 14, 14, 14), 0) == set()
    assert offered(rtx_pro(21, 67, 5), 0) == set()
    sizes = {"1-2", "1-3", "1-4", "1-6", "1-8", "1-12", "1-24"}
    assert {name.removeprefix(f"{PRO}-")[:-1] for name in offered(rtx_pro(47), 0)} == sizes
    assert {name.removeprefix(f"{PRO}-")[0] for name in offered(rtx_pro(35, 47), 0)} == {"1", "2"}


def test_a_graphics_instance_takes_vgpus_of_one_size_in_any_series_up_to_its_maximum() -> None:
    gpu = rtx_pro(47, 47)
    configure(gpu, 0, f"{PRO}-1-2Q")
    # The other instance is empty, so that every type is still available.
    assert f"{PRO}-1-24C" in offered(gpu, 1)
    configure(gpu, 1, f"{PRO}-1-24C")
    assert offered(gpu, 2) == {f"{PRO}-1-2Q", f"{PRO}-1-2A", f"{PRO}-1-2B"}
    for place in range(2, 13):
        configure(gpu, place, f"{PRO}-1-2B")
    assert offered(gpu, 13) == set()
    gpu.release(gpu.vfs[1])
    assert f"{PRO}-1-24C" in offered(gpu, 13)
    assert sum(1 for vf in gpu.vfs if vf.type) == 12


def test_a_whole_card_takes_48_vgpus_and_no_more() -> None:
    gpu = rtx_pro(47, 47, 47, 47)
    for place in range(48):
        configure(gpu, place, f"{PRO}-1-2Q")
    assert len(gpu.vfs) == 48
    assert {vf.instance for vf in gpu.vfs} == {11, 12, 13, 14}


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ([65, 67, 67, 67], True),
        ([65, 47], False),
        ([47, 65], False),
        ([21, 65], False),
        ([35, 35], True),
        ([32, 47], False),
    ],
)
def test_instances_of_an_rtx_pro_fit_by_slices_and_media_engines(wanted: list[int], fits: bool) -> None:
    try:
        rtx_pro(*wanted)
        created = True
    except NoRoom:
        created = False
    assert created is fits


def test_instances_of_a_gb200_serve_the_types_of_their_slices() -> None:
    gpu = Gpu("0000:04:00.0", boards.named("GB200"), 0, mig=MigCard(GEOMETRIES["GB200"]), mig_mode=True)
    gpu.create_vfs()
    assert gpu.mig is not None
    gpu.mig.create(19)
    gpu.mig.create(9)
    assert {instance.profile.name for instance in gpu.mig.instances} == {"1g.23gb", "3g.93gb"}
    assert offered(gpu, 0) == {"NVIDIA GB200-1-24C", "NVIDIA GB200-3-95C"}


def entry(name: str) -> dict[str, object]:
    return {"externalResourceProvider": True, "pciVendorSelector": "10de:25b6", "resourceName": name}


def kubevirt(*names: str) -> dict[str, object]:
    return {"spec": {"configuration": {"permittedHostDevices": {"pciHostDevices": [entry(name) for name in names]}}}}


def names(thing: dict[str, object] | None) -> list[str] | None:
    if thing is None:
        return None
    return [
        pci_host_device["resourceName"]
        for pci_host_device in thing["spec"]["configuration"]["permittedHostDevices"]["pciHostDevices"]
    ]  # type: ignore[index]


def test_a_listed_resource_that_is_not_the_last_is_lost_and_the_last_doubled() -> None:
    """harvester.md 9.5: [A, B, C] + A gives [B, C, C]."""
    assert names(permitted_devices.permit_pci(kubevirt("A", "B", "C"), "25b6", "A")) == ["B", "C", "C"]
    assert permitted_devices.permit_pci(kubevirt("A", "B"), "25b6", "B") is None
    assert names(permitted_devices.permit_pci(kubevirt("A"), "25b6", "B")) == ["A", "B"]

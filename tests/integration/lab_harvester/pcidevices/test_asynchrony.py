"""Nothing happens at once, and always in the same order (harvester.md 4.2, 5.2, 6.2 and 6.9)."""

from __future__ import annotations

from tests.integration.api import PCI_DEVICES
from tests.integration.history import first, sequences
from tests.integration.lab_harvester import stories
from tests.integration.lab_harvester.beginnings import FROM_1_8_ON, GPU_A, UP_TO_1_7
from tests.integration.lab_harvester.stories import FIRST, switch


def status(change):
    return change.object.get("status") or {}


def of(kind, name=None):
    return lambda change: change.kind == kind and (name is None or change.name == name)


class TestSplitting:
    def test_fact_12_5_first_the_functions_then_at_a_scan_the_vgpus_and_their_types_last(self, life_of_a_vgpu):
        changes = life_of_a_vgpu.changes
        wanted = first(changes, lambda c: of("SRIOVGPUDevice", GPU_A)(c) and c.object["spec"]["enabled"])
        functions = first(changes, lambda c: of("SRIOVGPUDevice", GPU_A)(c) and status(c).get("vfAddresses"))
        vgpu = first(changes, of("VGPUDevice", FIRST))
        types = first(changes, lambda c: of("VGPUDevice", FIRST)(c) and status(c).get("availableTypes"))
        assert wanted < functions < vgpu < types

    def test_fact_3_3_v0_a_new_vgpu_is_disabled_and_has_no_status_yet(self, life_of_a_vgpu):
        changes = life_of_a_vgpu.changes
        new = changes[first(changes, of("VGPUDevice", FIRST))].object
        assert not new["spec"]["enabled"]
        assert not new.get("status")

    def test_fact_3_1_pci_devices_come_before_the_vgpus_of_the_same_scan(self, life_of_a_vgpu):
        changes = life_of_a_vgpu.changes
        assert first(changes, of("PCIDevice", FIRST)) < first(changes, of("VGPUDevice"))


class TestEnabling:
    def test_fact_12_5_the_node_advertises_a_vgpu_only_after_it_is_configured(self, life_of_a_vgpu):
        changes = life_of_a_vgpu.changes
        configured = first(changes, lambda c: of("VGPUDevice", FIRST)(c) and status(c).get("vGPUStatus"))
        advertised = first(
            changes, lambda c: of("Node", "gpu-a")(c) and "nvidia.com/NVIDIA_A2-4Q" in status(c)["allocatable"]
        )
        assert configured < advertised

    @FROM_1_8_ON
    def test_fact_3_3_v1_from_1_8_on_the_claim_comes_before_the_status(self, life_of_a_vgpu):
        changes = life_of_a_vgpu.changes
        claim = first(changes, of("PCIDeviceClaim", FIRST))
        configured = first(changes, lambda c: of("VGPUDevice", FIRST)(c) and status(c).get("vGPUStatus"))
        assert claim < configured
        assert status(changes[configured])["configureVGPUTypeName"] == "NVIDIA A2-4Q"

    @UP_TO_1_7
    def test_fact_4_4_2_up_to_1_7_the_status_is_half_filled_for_a_moment(self, life_of_a_vgpu):
        changes = life_of_a_vgpu.changes
        configured = status(changes[first(changes, lambda c: of("VGPUDevice", FIRST)(c) and status(c).get("uuid"))])
        assert configured["vGPUStatus"] == "vGPUConfigured"
        assert "configureVGPUTypeName" not in configured

    def test_fact_3_3_v2_disabled_siblings_offer_less_soon_after(self, life_of_a_vgpu):
        changes = life_of_a_vgpu.changes
        configured = first(changes, lambda c: of("VGPUDevice", FIRST)(c) and status(c).get("vGPUStatus"))
        shrunk = first(changes, lambda c: of("VGPUDevice")(c) and len(status(c).get("availableTypes") or {}) == 3)
        assert configured < shrunk


class TestDisabling:
    @FROM_1_8_ON
    def test_fact_3_3_v4_from_1_8_on_the_claim_outlives_the_status_by_seconds(self, life_of_a_vgpu):
        cleared, after = life_of_a_vgpu["cleared"], life_of_a_vgpu["after"]
        assert "vGPUStatus" not in cleared.status(FIRST)
        assert "deletionTimestamp" in cleared.claims[FIRST]["metadata"]
        assert FIRST not in after.claims

    def test_fact_3_3_v4_the_type_stays_in_the_spec(self, life_of_a_vgpu):
        vgpu = life_of_a_vgpu["after"].vgpus[FIRST]
        assert vgpu["spec"]["vGPUTypeName"] == "NVIDIA A2-4Q"
        assert set(vgpu["status"]) == {"availableTypes"}

    def test_fact_3_3_v2_the_siblings_offer_their_new_types_one_by_one_at_the_pace_of_the_process(self, sriov_lab):
        """Recorded on 1.8: the device itself 0.2 s after its status, the last of its siblings 2.2 s later.

        A process sends five requests a second, after a burst of ten.
        """
        lab, names = sriov_lab, [f"gpu-a-00000800{number}" for number in (4, 5, 6, 7)]
        lab.enable_vgpus(dict.fromkeys(names, "NVIDIA A2-4Q"))
        lab.advance(40)
        for name in names:
            switch(lab, name, None)
        refreshed: list[int] = []
        while not refreshed or refreshed[-1] < 16:
            lab.advance(0.1)
            offering = [len((vgpu.get("status") or {}).get("availableTypes") or {}) for vgpu in lab.vgpus(GPU_A)]
            refreshed.append(offering.count(15))
            assert len(refreshed) < 200
        slow = [count for count in refreshed if 9 <= count < 16]
        assert set(slow) == set(range(9, 16))
        assert len(slow) >= 12


class TestScan:
    def test_fact_3_1_what_is_missing_is_made_again_every_30_seconds(self, lab):
        times = []
        for _ in range(2):
            assert lab.api.delete(f"{PCI_DEVICES}/gpu-b-000008000").status == 200
            lab.until(lambda: lab.find(f"{PCI_DEVICES}/gpu-b-000008000"), within=40)
            times.append(lab.control.now())
        assert 28 <= times[1] - times[0] <= 34

    @FROM_1_8_ON
    def test_fact_3_5_from_1_8_on_each_disabled_vgpu_takes_five_seconds(self, lab):
        lab.enable_gpus(GPU_A)
        names = [f"gpu-a-00000800{number}" for number in (4, 5, 6)]
        lab.enable_vgpus(dict.fromkeys(names, "NVIDIA A2-4Q"))
        start = lab.control.now()
        for name in names:
            switch(lab, name, None)
        lab.until(lambda: not any("vGPUStatus" in lab.status(name) for name in names))
        assert any(lab.claim(name) for name in names)
        lab.until(lambda: not any(lab.claim(name) for name in names))
        assert lab.control.now() - start >= 5 * len(names)


class TestTime:
    """A faster clock does not change what happens, nor in which order."""

    def states(self, story):
        kinds = ("SRIOVGPUDevice", "VGPUDevice", "PCIDevice", "PCIDeviceClaim")
        return sequences([change for change in story.changes if change.kind in kinds], self.state)

    def state(self, change):
        spec, seen = change.object.get("spec") or {}, dict(status(change))
        if "-" in seen.get("uuid", ""):
            seen["uuid"] = "random"
        metadata = change.object["metadata"]
        return spec, seen, metadata.get("annotations"), metadata.get("finalizers"), "deletionTimestamp" in metadata

    def test_the_same_acts_have_the_same_consequences_stepped_and_fifty_times_as_fast(self, labs, era, life_of_a_vgpu):
        lab = labs(era).begin()
        lab.run_clock(50)
        assert self.states(stories.life_of_a_vgpu(lab)) == self.states(life_of_a_vgpu)

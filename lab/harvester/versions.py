"""Differences between Harvester versions (harvester.md 1.1 and 1.2)."""

from __future__ import annotations

from dataclasses import dataclass

from lab.errors import LabError


@dataclass(frozen=True)
class Version:
    name: str
    server_version: str
    # Version of both addons' charts and of the pcidevices image; the driver toolkit's image has the date of its base.
    addon_version: str
    toolkit_tag: str
    vendor_vfio: bool
    mig: bool
    upper_case_resources: bool
    validates_device_names: bool
    protects_claims: bool
    rebuilds_allocation_notes: bool
    guards_addons: bool
    # From 1.4 on an annotation of a VM names its devices. 1.3 looks at the names in specs instead.
    notes_allocations: bool
    # KubeVirt up to 1.2 gives each vGPU without options a boot display, and accepts several.
    display_for_each_vgpu: bool
    mig_message: bool
    skip_mig: bool
    # The name of a vGPU's type follows its status, as up to 1.7, and a name that is there is kept.
    name_follows_status: bool
    # The label gpu-baremetal-workloads of a node reserves its GPUs for containers.
    baremetal_label: bool

    @property
    def mdev(self) -> bool:
        return not self.vendor_vfio


VERSIONS = {
    version.name: version
    for version in (
        Version(
            # The versions of its addons are unknown; the lab uses those of 1.4.3.
            name="1.3",
            server_version="v1.3.2",
            addon_version="0.4.3",
            toolkit_tag="v1.4-20250108",
            vendor_vfio=False,
            mig=False,
            upper_case_resources=True,
            validates_device_names=False,
            protects_claims=False,
            rebuilds_allocation_notes=False,
            guards_addons=False,
            notes_allocations=False,
            display_for_each_vgpu=True,
            mig_message=False,
            skip_mig=False,
            name_follows_status=False,
            baremetal_label=False,
        ),
        Version(
            # The last version with KubeVirt 1.2. Its addon versions are unknown; the lab uses those of 1.4.3.
            name="1.4.1",
            server_version="v1.4.1",
            addon_version="0.4.3",
            toolkit_tag="v1.4-20250108",
            vendor_vfio=False,
            mig=False,
            upper_case_resources=True,
            validates_device_names=False,
            protects_claims=False,
            rebuilds_allocation_notes=False,
            guards_addons=False,
            notes_allocations=True,
            display_for_each_vgpu=True,
            mig_message=False,
            skip_mig=False,
            name_follows_status=False,
            baremetal_label=False,
        ),
        Version(
            name="1.4",
            server_version="v1.4.3",
            addon_version="0.4.3",
            toolkit_tag="v1.4-20250108",
            vendor_vfio=False,
            mig=False,
            upper_case_resources=True,
            validates_device_names=False,
            protects_claims=False,
            rebuilds_allocation_notes=False,
            guards_addons=False,
            notes_allocations=True,
            display_for_each_vgpu=False,
            mig_message=False,
            skip_mig=False,
            name_follows_status=False,
            baremetal_label=False,
        ),
        Version(
            # The tag of its toolkit is unknown; the lab uses that of 1.4.3.
            name="1.5",
            server_version="v1.5.2",
            addon_version="1.5.2",
            toolkit_tag="v1.4-20250108",
            vendor_vfio=False,
            mig=False,
            upper_case_resources=False,
            validates_device_names=True,
            protects_claims=False,
            rebuilds_allocation_notes=False,
            guards_addons=False,
            notes_allocations=True,
            display_for_each_vgpu=False,
            mig_message=False,
            skip_mig=False,
            name_follows_status=False,
            baremetal_label=False,
        ),
        Version(
            # The tag of its toolkit is unknown; the lab uses that of 1.7.1.
            name="1.6",
            server_version="v1.6.1",
            addon_version="1.6.1",
            toolkit_tag="v1.7-20251222",
            vendor_vfio=False,
            mig=False,
            upper_case_resources=False,
            validates_device_names=True,
            protects_claims=False,
            rebuilds_allocation_notes=False,
            guards_addons=False,
            notes_allocations=True,
            display_for_each_vgpu=False,
            mig_message=False,
            skip_mig=False,
            name_follows_status=False,
            baremetal_label=False,
        ),
        Version(
            name="1.7",
            server_version="v1.7.1",
            addon_version="1.7.1",
            toolkit_tag="v1.7-20251222",
            vendor_vfio=False,
            mig=True,
            upper_case_resources=False,
            validates_device_names=True,
            protects_claims=False,
            rebuilds_allocation_notes=False,
            guards_addons=False,
            notes_allocations=True,
            display_for_each_vgpu=False,
            mig_message=False,
            skip_mig=False,
            name_follows_status=False,
            baremetal_label=False,
        ),
        Version(
            name="1.8",
            server_version="v1.8.1",
            addon_version="1.8.1",
            toolkit_tag="v1.8-20260415",
            vendor_vfio=True,
            mig=True,
            upper_case_resources=False,
            validates_device_names=True,
            protects_claims=True,
            rebuilds_allocation_notes=False,
            guards_addons=True,
            notes_allocations=True,
            display_for_each_vgpu=False,
            mig_message=False,
            skip_mig=False,
            name_follows_status=False,
            baremetal_label=False,
        ),
        Version(
            name="1.9",
            server_version="v1.9.0-rc6",
            addon_version="1.9.0-rc6",
            toolkit_tag="v1.9-20260819",
            vendor_vfio=True,
            mig=True,
            upper_case_resources=False,
            validates_device_names=True,
            protects_claims=True,
            rebuilds_allocation_notes=True,
            guards_addons=True,
            notes_allocations=True,
            display_for_each_vgpu=False,
            mig_message=True,
            skip_mig=True,
            name_follows_status=True,
            baremetal_label=True,
        ),
    )
}
DEFAULT = "1.8"


def named(name: str) -> Version:
    if name not in VERSIONS:
        raise LabError(
            f"The lab does not simulate Harvester {name}.", hint=f"Available versions: {', '.join(VERSIONS)}."
        )
    return VERSIONS[name]

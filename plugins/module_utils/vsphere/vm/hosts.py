# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Candidate hosts of a VM and their devices, read on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

from ...errors import NothingSelected, join_names
from ..faults import Operation, moid_of
from ..read import direct_path, inventory
from ..read.device_groups import SINCE as GROUPS_SINCE, GroupOffer, offers_of
from ..read.fleet import Snapshot
from ..read.inventory import HostFacts
from ..session import Session
from .decide.model import PciId
from .find.read import pci_devices

DRS_MANUAL = "manual"
DRS_DISABLED = "disabled"


def only_host(hosts: Sequence[HostFacts], name: str) -> list[HostFacts]:
    """Return the host of this name, for options that take a single host instead of patterns."""
    found = [host for host in hosts if host.name == name]
    if not found:
        there = [host.name for host in hosts]
        raise NothingSelected(f"There is no host {name!r}.", hint=f"There are: {join_names(there, limit=20)}.")
    return found


class CandidateHosts:
    def __init__(self, session: Session, hosts: Sequence[HostFacts]) -> None:
        self._session = session
        self.hosts = tuple(hosts)

    @property
    def api_version(self) -> tuple[int, ...]:
        return self._session.version

    @property
    def groups_supported(self) -> bool:
        return self._session.has(GROUPS_SINCE)

    @property
    def offers(self) -> dict[str, tuple[str, ...]]:
        """Return the profiles of each host, free or in use."""
        return {host.name: host.profiles for host in self.hosts}

    @property
    def profiles(self) -> list[str]:
        return sorted({name for host in self.hosts for name in host.profiles})

    @cached_property
    def snapshot(self) -> Snapshot:
        return Snapshot(inventory.complete(self._session, self.hosts))

    def host(self, name: str) -> HostFacts:
        return next(host for host in self.hosts if host.name == name)

    def places_itself(self, moid: str = "") -> bool:
        """Return whether DRS chooses the host when the VM with this id, or a new VM, starts.

        Manual DRS only recommends a host. A VM can have its own automation level, or DRS can be disabled for it
        (vsphere.md 6.1).
        """
        if len(self.hosts) < 2 or not all(host.drs for host in self.hosts):
            return False
        behavior, overrides = self._drs
        return overrides.get(moid, behavior) not in (DRS_MANUAL, DRS_DISABLED)

    @cached_property
    def _drs(self) -> tuple[str, dict[str, str]]:
        """Return the automation level of the cluster, and the different levels of VMs by their id."""
        query = self._session.vmodl.query.PropertyCollector
        vim = self._session.vim
        upward = query.TraversalSpec(name="up", type=vim.HostSystem, path="parent", skip=False)
        default, overriding = "configurationEx.drsConfig.defaultVmBehavior", "configurationEx.drsVmConfig"
        found = self._session.collect(
            Operation("read the settings of the cluster"),
            query.FilterSpec(
                objectSet=[query.ObjectSpec(obj=self.hosts[0].reference, skip=True, selectSet=[upward])],
                propSet=[query.PropertySpec(type=vim.ClusterComputeResource, pathSet=[default, overriding])],
            ),
        )
        values = found[0][1] if found else {}
        behavior = str(values.get(default) or "")
        overrides = {
            moid_of(entry.key): DRS_DISABLED if entry.enabled is False else str(entry.behavior or behavior)
            for entry in values.get(overriding) or []
        }
        return behavior, overrides

    def most_vgpus(self, hardware_version: int) -> int | None:
        """Return the maximum number of vGPUs per VM, or None if no host reports a limit (vsphere.md 1.2)."""
        host = next(
            (candidate for candidate in self.hosts if candidate.profiles and candidate.browser is not None), None
        )
        if host is None:
            return None
        subject = Operation(f"tell what VMs on host {host.name} can have", host=host.name)
        key = f"vmx-{hardware_version:02}" if hardware_version else None
        option = self._session.optional(subject, host.browser.QueryConfigOption, key, host.reference)
        backing = self._session.vim.vm.device.VirtualPCIPassthroughOption.VmiopBackingOption
        limits = [
            int(choice.maxInstances)
            for device in (option.hardwareOptions.virtualDeviceOption if option else None) or []
            for choice in device.backingOption or []
            if isinstance(choice, backing) and choice.maxInstances
        ]
        return max(limits, default=None)

    def free_pci_devices(self, without: str) -> dict[str, list[tuple[PciId, str]]]:
        """Return the PCI devices that no running VM has. Ignore the VM with the id `without`."""
        devices = self.pci_devices
        paths = ["runtime.powerState", "runtime.host", "config.hardware.device"]
        vms = [vm for host in self.hosts if devices.get(host.name) for vm in host.vms if moid_of(vm) != without]
        names = {host.moid: host.name for host in self.hosts}
        free = {name: list(has) for name, has in devices.items()}
        for _vm, values in self._session.read(Operation("read the VMs of the hosts"), vms, paths):
            if str(values.get("runtime.powerState")) != "poweredOn":
                continue
            there = free.get(names.get(moid_of(values.get("runtime.host")), ""), [])
            for device in pci_devices(self._session, values.get("config.hardware.device")):
                taken = next(
                    (
                        pci_device
                        for pci_device in there
                        if pci_device[0] in device.allowed and device.label in ("", pci_device[1])
                    ),
                    None,
                )
                if taken:
                    there.remove(taken)
        return free

    @cached_property
    def _targets(self) -> dict[str, Any]:
        """Return what each connected host can give to VMs."""
        return {
            host.name: self._session.call(
                Operation(f"tell what host {host.name} has", host=host.name),
                host.browser.QueryConfigTarget,
                host=host.reference,
            )
            for host in self.hosts
            if host.connected and host.browser is not None
        }

    @cached_property
    def device_groups(self) -> dict[str, dict[str, GroupOffer]]:
        """Return the device groups of each host by name, free or in use."""
        return {name: offers_of(self._session, target) for name, target in self._targets.items()}

    @property
    def group_offers(self) -> dict[str, GroupOffer]:
        """Return the device groups of all hosts by name."""
        return {name: offer for offers in self.device_groups.values() for name, offer in offers.items()}

    @cached_property
    def remaining(self) -> direct_path.Remaining:
        """Return the free vGPUs by host and profile as vCenter 9.0 and later reports them."""
        return direct_path.remaining(self._session, self.hosts)

    def remaining_groups(self, names: Collection[str]) -> direct_path.Remaining:
        """Return the free device groups of these names by host as vCenter 9.0 and later reports them."""
        asked = {host: sorted(set(names) & set(offers)) for host, offers in self.device_groups.items()}
        return direct_path.remaining_groups(self._session, self.hosts, asked)

    @cached_property
    def pci_devices(self) -> dict[str, list[tuple[PciId, str]]]:
        """Return the ids and labels of the Dynamic DirectPath devices of each host, free or in use."""
        if not self._session.has("7.0"):
            return {host.name: [] for host in self.hosts}
        usable = [host for host in self.hosts if host.connected and host.browser is not None]
        subject = Operation("read the PCI devices of the hosts")
        read = self._session.read(subject, [host.reference for host in usable], ["hardware.pciDevice"])
        numbers = {
            reference: Counter(_ids(device) for device in values.get("hardware.pciDevice") or [])
            for reference, values in read
        }
        found = {}
        for host in usable:
            target = self._targets[host.name]
            listed = (target.dynamicPassthrough if target else None) or []
            found[host.name] = _each(listed, numbers.get(host.reference, Counter()))
        return found


def _each(listed: Sequence[Any], numbers: Mapping[PciId, int]) -> list[tuple[PciId, str]]:
    """Return each device. A host lists every kind of device once, so count the devices among all its PCI devices."""
    kinds = [(_ids(entry), str(entry.customLabel or "")) for entry in listed]
    alike = Counter(ids for ids, _label in kinds)
    return [(ids, label) for ids, label in kinds for _number in range(max(1, numbers.get(ids, 0) - alike[ids] + 1))]


def _ids(entry: Any) -> PciId:
    """Return the PCI ids as unsigned numbers. Ids above 0x7fff arrive as negative shorts (vsphere.md 1.6)."""
    return (int(entry.vendorId) & 0xFFFF, int(entry.deviceId) & 0xFFFF)

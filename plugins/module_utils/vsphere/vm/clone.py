# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Create a VM with its devices from a template, and delete the VM if the creation fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import FleetError, NothingSelected
from .. import privileges, tasks
from ..faults import Operation, moid_of
from ..names import is_same_path, sent_name
from ..read import inventory
from ..read.inventory import HostFacts
from ..session import Session
from . import cloud_init as vm_cloud_init, hosts as vm_reach, spec as vm_spec
from .apply import Decision, HostCache, ReconfigureVm, choose_host, validate_devices, warnings
from .decide import plan as vm_plan
from .decide.mark import CLONED, COMPLETE, OWNER, STAGE
from .decide.plan import VmPlan
from .decide.power import PRESENT
from .decide.privileges import CLONE, DEPLOY, VIEW_POLICIES, for_clone
from .decide.rules import InvalidRequest
from .dry_run import dry_run_clone
from .find import storage_policy as vm_storage_policy
from .find.finder import InventoryItem, VmFinder
from .find.locations import Locations, Pool
from .find.read import VmSnapshot, read_vm
from .hosts import CandidateHosts
from .request import VmRequest
from .result import VmResult, named_pci_devices, named_vgpus, predicted_groups

KIB_PER_GIB = 1 << 20
FIRST_CARD_KEY = -100
LINKED = "createNewChildDiskBacking"


@dataclass(frozen=True)
class ClonePlan:
    """The complete plan to create a VM."""

    source: VmSnapshot
    decision: Decision
    folder: InventoryItem
    pool: Pool
    spec: Any
    # The host to register the new VM on, or None if vSphere chooses.
    host: HostFacts | None
    warnings: tuple[str, ...] = ()


class CloneVm:
    def __init__(
        self, session: Session, request: VmRequest, hosts: HostCache, tree: VmFinder, change: ReconfigureVm
    ) -> None:
        self._session = session
        self._request = request
        self._creation = request.creation
        self._hosts = hosts
        self._tree = tree
        self._change = change

    @property
    def name(self) -> str:
        return self._request.identity.name

    def run(self, *, check_mode: bool) -> VmResult:
        made = self._blueprint()
        if not check_mode:
            return self._make(made)
        source = made.source.reference
        name = sent_name(self.name)
        dry_run_clone(self._session, self._subject(made), source, made.folder.reference, name, made.spec)
        return self._predicted(made)

    def _subject(self, made: ClonePlan) -> Operation:
        profiles = tuple(sorted(set(made.decision.plan.devices.all_vgpus)))
        return Operation(f"make VM {self.name}", vm=self.name, profiles=profiles)

    # Planning
    def _blueprint(self) -> ClonePlan:
        creation = self._creation
        folder = self._tree.folder(self._request.identity)
        source = read_vm(
            self._session, self._tree.template(creation.template, datacenter=folder.datacenter), creation.template
        )
        hosts = self._candidates(folder)
        around = Locations(self._session, hosts)
        pool = around.pool(creation.resource_pool, cluster=hosts[0].cluster if creation.esxi_host else creation.cluster)
        reach = CandidateHosts(self._session, [host for host in hosts if host.cluster == pool.resource])
        machine = source.machine
        offers = reach.group_offers if self._request.device_groups else {}
        wish = self._request.wish(sorted({*reach.profiles, *machine.vgpus}), offers)
        validate_devices(self.name, machine, wish, reach)
        plan = vm_plan.plan(machine, wish, self._session.version, creates=True)
        host, doubts = self._room(plan, reach)
        decision = Decision(plan, wish, reach, host)
        home = reach.host(host or creation.esxi_host) if host or creation.esxi_host else None
        spec, ignored = self._clone_spec(source, plan, pool, around, home)
        return ClonePlan(source, decision, folder, pool, spec, home, (*warnings(plan), *doubts, *ignored))

    def _candidates(self, folder: InventoryItem) -> Sequence[HostFacts]:
        """Return the hosts that the options select."""
        creation = self._creation
        here = [host for host in self._hosts.all if is_same_path(host.datacenter_path, folder.datacenter)]
        if not here:
            raise NothingSelected(f"Datacenter {folder.datacenter} has no hosts.")
        chosen = inventory.selected(here, cluster=creation.cluster or None)
        return vm_reach.only_host(chosen, creation.esxi_host) if creation.esxi_host else chosen

    def _room(self, plan: VmPlan, reach: CandidateHosts) -> tuple[str | None, tuple[str, ...]]:
        """Return the host to start the VM on, or None if the VM is not started or vSphere chooses, and warnings."""
        only = self._creation.esxi_host or None
        if not self._request.auto or not plan.devices.any or not plan.power.start:
            return only, ()
        return choose_host(self.name, plan, reach, without=None, current=None, only=only)

    # Clone specification
    def _clone_spec(
        self, source: VmSnapshot, plan: VmPlan, pool: Pool, around: Locations, home: HostFacts | None
    ) -> tuple[Any, list[str]]:
        vim, creation, machine = self._session.vim, self._creation, source.machine
        doubts: list[str] = []
        location = vim.vm.RelocateSpec(pool=pool.reference)
        if home is not None:
            location.host = home.reference
        if creation.datastore:
            location.datastore = around.datastore(creation.datastore)
        elif creation.datastore_cluster:
            location.datastore = around.emptiest_of(creation.datastore_cluster)
        if creation.storage_policy:
            # The service for storage policies is asked only if it can answer: its refusals do not name the privilege.
            privileges.require(self._session, {self._session.content.rootFolder: [VIEW_POLICIES]})
            location.profile = [vm_storage_policy.profile_spec(self._session, creation.storage_policy)]
        config = vim.vm.ConfigSpec()
        changes = self._cards(source, around)
        if creation.disk_gb and creation.linked_clone:
            doubts.append(
                f"VM {self.name} shares the disk of template {machine.name}, so disk_gb is not applied: a linked clone"
                " keeps the size."
            )
        elif creation.disk_gb:
            changes += self._disk(source, creation.disk_gb)
        if not plan.upgrades:
            # Older hardware versions reject the devices, so they are added after the upgrade (vsphere.md 5.5).
            changes += vm_spec.device_changes(self._session, plan.devices)
            vm_spec.device_groups(self._session, config, plan.devices)
        if changes:
            config.deviceChange = changes
        vm_spec.settings(self._session, config, plan)
        mark = {OWNER: self._request.claim.owner, STAGE: CLONED}
        if not vm_cloud_init.needs_macs(creation) and not plan.upgrades:
            mark |= vm_cloud_init.finishing(self.name, creation, self._given_macs())
        config.extraConfig = [*(config.extraConfig or []), *vm_spec.options(self._session, mark)]
        spec = vim.vm.CloneSpec(location=location, config=config, powerOn=False, template=False)
        if creation.linked_clone:
            location.diskMoveType = LINKED
            spec.snapshot = self._snapshot(source)
        return spec, doubts

    def _given_macs(self) -> list[str]:
        return [network.mac for network in self._creation.networks or ()]

    def _snapshot(self, source: VmSnapshot) -> Any:
        snapshot = source.properties.get("snapshot")
        if snapshot is None or snapshot.currentSnapshot is None:
            raise InvalidRequest(
                f"Template {source.machine.name} has no snapshot, which a linked clone starts from.",
                hint="Make one, or use linked_clone: false.",
            )
        return snapshot.currentSnapshot

    def _disk(self, source: VmSnapshot, gib: int) -> list[Any]:
        disks = source.machine.disks
        if not disks:
            raise InvalidRequest(f"Template {source.machine.name} has no disk to make {gib} GB large.")
        if gib < disks[0].gib:
            raise InvalidRequest(
                f"disk_gb is {gib}, and the disk of template {source.machine.name} has {disks[0].gib} GB.",
                hint="A disk can only grow.",
            )
        if gib == disks[0].gib:
            return []
        disk = self._device(source, disks[0].key)
        disk.capacityInKB = gib * KIB_PER_GIB
        # Set both sizes: the server uses capacityInBytes if they differ.
        disk.capacityInBytes = gib * KIB_PER_GIB * 1024
        return [self._session.vim.vm.device.VirtualDeviceSpec(operation="edit", device=disk)]

    def _cards(self, source: VmSnapshot, around: Locations) -> list[Any]:
        """Connect the template's network cards to the networks in order, then add or remove cards."""
        networks = self._creation.networks
        if networks is None:
            return []
        vim, cards = self._session.vim, source.machine.cards
        change = vim.vm.device.VirtualDeviceSpec
        changes = []
        for number, network in enumerate(networks):
            backing = around.network(network.name)
            if number < len(cards):
                card, operation = self._device(source, cards[number].key), "edit"
            else:
                connected = vim.vm.device.VirtualDevice.ConnectInfo(
                    startConnected=True, allowGuestControl=True, connected=True
                )
                card = vim.vm.device.VirtualVmxnet3(key=FIRST_CARD_KEY - number, connectable=connected)
                operation = "add"
            card.backing = backing
            if network.mac:
                card.macAddress, card.addressType = network.mac, "manual"
            changes.append(change(operation=operation, device=card))
        changes += [
            change(operation="remove", device=self._device(source, card.key)) for card in cards[len(networks) :]
        ]
        return changes

    @staticmethod
    def _device(source: VmSnapshot, key: int) -> Any:
        devices = source.properties["config.hardware"].device
        return next(device for device in devices if device.key == key)

    # Applying
    def _make(self, made: ClonePlan) -> VmResult:
        privileges.require(self._session, self._required_privileges(made))
        reference = self._cloned(made)
        try:
            outcome = self._complete(made, reference)
        except FleetError as error:
            raise self._cleaned_up(reference, error) from error
        outcome.changed = outcome.created = True
        outcome.restarted = False
        outcome.diff = self._diff(made)
        outcome.warnings = list(dict.fromkeys([*made.warnings, *outcome.warnings]))
        return outcome

    def _required_privileges(self, made: ClonePlan) -> dict[Any, list[str]]:
        """Return the privileges for the clone and all later steps. The new VM inherits those of its folder."""
        plan, creation = made.decision.plan, self._creation
        resizes = any(
            isinstance(change.device, self._session.vim.vm.device.VirtualDisk) for change in self._changes(made)
        )
        edits = any(
            change.operation == "edit" and isinstance(change.device, self._session.vim.vm.device.VirtualEthernetCard)
            for change in self._changes(made)
        )
        template = made.source.machine.template
        required = {
            made.source.reference: [DEPLOY if template else CLONE],
            made.folder.reference: for_clone(plan, resizes_disk=resizes, edits_cards=edits),
            made.pool.reference: ["Resource.AssignVMToPool"],
        }
        if creation.datastore or creation.datastore_cluster:
            required[made.spec.location.datastore] = ["Datastore.AllocateSpace"]
        return required

    @staticmethod
    def _changes(made: ClonePlan) -> list[Any]:
        return list(made.spec.config.deviceChange or [])

    def _cloned(self, made: ClonePlan) -> Any:
        try:
            return tasks.run(
                self._session,
                self._subject(made),
                made.source.reference.CloneVM_Task,
                made.folder.reference,
                sent_name(self.name),
                made.spec,
                timeout=self._request.wait_timeout,
            )
        except FleetError as error:
            error.changed = not error.certain
            if isinstance(error, tasks.TaskTimeout):
                error.hint = "The clone goes on there. Run the task again when it has ended: it finishes the VM."
            raise

    def _complete(self, made: ClonePlan, reference: Any) -> VmResult:
        """Apply the changes that the clone request could not contain, and start the VM.

        Plan again from the VM that the clone request created.
        """
        seen = read_vm(self._session, reference, self.name)
        decision, options = made.decision, {}
        if seen.machine.mark.stage != COMPLETE:
            macs = [card.mac for card in seen.machine.cards]
            options = vm_cloud_init.finishing(self.name, self._creation, macs)
            options[OWNER] = self._request.claim.owner
        wish = replace(decision.wish, state=PRESENT, options=options)
        rest = vm_plan.plan(seen.machine, wish, self._session.version)
        if rest.changed:
            self._change.apply(seen, replace(decision, plan=rest, wish=wish))
            seen = read_vm(self._session, reference, self.name)
        ready = replace(rest, power=decision.plan.power)
        return self._change.finish(seen, replace(decision, plan=ready))

    def _cleaned_up(self, reference: Any, error: FleetError) -> FleetError:
        """Delete the VM that this run failed to complete, if the failure is certain and the VM has never run."""
        error.changed = True
        kept = self._why_kept(reference, error)
        if kept:
            error.message += f" The unfinished VM {self.name} was kept ({moid_of(reference)}), since {kept}."
            return error
        subject = Operation(f"delete the unfinished VM {self.name}", vm=self.name)
        try:
            tasks.run(self._session, subject, reference.Destroy_Task, timeout=self._request.wait_timeout)
        except FleetError as other:
            error.message += f" The unfinished VM {self.name} is still there: {other.message}"
            return error
        error.message += f" The unfinished VM {self.name} was deleted again."
        error.changed = False
        return error

    def _why_kept(self, reference: Any, error: FleetError) -> str:
        """Return the reason to keep the VM, or an empty string."""
        if self._creation.keep_failed:
            return "keep_failed is true"
        if not error.certain:
            return "it is not certain that it failed"
        try:
            return "it runs or has run" if self._change.has_run(reference, self.name) else ""
        except FleetError:
            return "it cannot be found out whether it has run"

    # Results
    def _diff(self, made: ClonePlan) -> dict[str, Any]:
        creation = self._creation
        more: dict[str, Any] = {
            "template": made.source.machine.name,
            "folder": made.folder.path,
            "owner": self._request.claim.owner,
            "resource_pool": f"{made.pool.resource}/{made.pool.path}",
        }
        plain = ("datastore", "datastore_cluster", "storage_policy", "disk_gb", "linked_clone", "esxi_host")
        more |= {name: getattr(creation, name) for name in plain if getattr(creation, name)}
        if creation.networks is not None:
            more["networks"] = [network.name for network in creation.networks]
        return made.decision.plan.diff(self.name, more)

    def _predicted(self, made: ClonePlan) -> VmResult:
        plan = made.decision.plan
        machine = plan.machine
        gone = {device.key for device in plan.devices.remove}
        kept = replace(machine, devices=tuple(device for device in machine.devices if device.key not in gone))
        return VmResult(
            changed=True,
            name=self.name,
            folder=made.folder.path,
            owner=self._request.claim.owner,
            power=plan.power.after,
            vgpus=named_vgpus(kept) + [(None, name) for name in plan.devices.add_vgpus],
            pci_devices=named_pci_devices(kept) + [(None, request) for request in plan.devices.add_pci],
            device_groups=predicted_groups(plan.devices),
            created=True,
            diff=self._diff(made),
            warnings=list(made.warnings),
        )

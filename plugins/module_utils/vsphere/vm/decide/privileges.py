# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Privileges that the steps of a plan require on the VM (vsphere.md 9). Pure."""

from __future__ import annotations

from collections.abc import Iterator

from .plan import VmPlan

SETTINGS = {
    "cpus": "VirtualMachine.Config.CPUCount",
    "memory_mb": "VirtualMachine.Config.Memory",
    "annotation": "VirtualMachine.Config.Annotation",
}
EXTRA_CONFIG = "VirtualMachine.Config.AdvancedConfig"
CLONE = "VirtualMachine.Provisioning.Clone"
DEPLOY = "VirtualMachine.Provisioning.DeployTemplate"
VIEW_POLICIES = "StorageProfile.View"
POWER_ON = "VirtualMachine.Interact.PowerOn"


def steps(plan: VmPlan) -> int:
    """Return the number of calls that change the VM."""
    return sum(map(bool, (plan.power.stop, plan.deletes, plan.upgrades, plan.reconfigures, plan.power.start)))


def needed(plan: VmPlan) -> list[str]:
    """Return the privileges for all steps of a plan, in the order of the steps."""
    return list(dict.fromkeys(_needed(plan)))


def _needed(plan: VmPlan) -> Iterator[str]:
    if plan.power.stop:
        yield "VirtualMachine.Interact.PowerOff"
    if plan.deletes:
        yield "VirtualMachine.Inventory.Delete"
        return
    yield from after_clone(plan)
    for setting, privilege in SETTINGS.items():
        if setting in plan.hardware:
            yield privilege
    if plan.preparation.lock_memory:
        yield "VirtualMachine.Config.Resource"
    if plan.preparation.extra_config or plan.options:
        yield EXTRA_CONFIG


def for_clone(plan: VmPlan, *, resizes_disk: bool, edits_cards: bool) -> list[str]:
    """Return the privileges for a new VM on its folder: to create it, for its settings, and for the steps after it."""
    found = ["VirtualMachine.Inventory.CreateFromExisting", "VirtualMachine.Config.AddNewDisk"]
    found += ["VirtualMachine.Config.DiskExtend"] if resizes_disk else []
    found += ["VirtualMachine.Config.EditDevice"] if edits_cards else []
    return list(dict.fromkeys([*found, *_needed(plan), EXTRA_CONFIG]))


def after_clone(plan: VmPlan) -> Iterator[str]:
    """Yield the privileges for the steps that follow the clone of a new VM."""
    if plan.upgrades:
        yield "VirtualMachine.Config.UpgradeVirtualHardware"
    if plan.devices.changed:
        yield "VirtualMachine.Config.AddRemoveDevice"
    if plan.power.start:
        yield POWER_ON

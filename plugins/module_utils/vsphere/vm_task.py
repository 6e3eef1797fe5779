# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One task of vsphere_vgpu_vm from beginning to end."""

from __future__ import annotations

from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.faults import VsphereError
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.session import Session
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm_change import Hosts, VmChange
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm_create import VmCreation
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm_identity import Inventory
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm_outcome import Outcome
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm_power import ABSENT
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm_reading import see
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm_request import Request


def run(session: Session, request: Request, *, check_mode: bool) -> Outcome:
    identity, tree, hosts = request.identity, Inventory(session), Hosts(session)
    change = VmChange(session, request, hosts)
    reference = tree.find(identity)
    if reference is None and request.state == ABSENT:
        return Outcome(changed=False, name=identity.name, diff={"before": {}, "after": {}})
    if reference is None:
        if not identity.name or identity.moid or identity.uuid or not request.creation.template:
            raise tree.not_found(identity)
        creation = VmCreation(session, request, hosts, tree, change)
        try:
            return creation.run(check_mode=check_mode)
        except VsphereError as error:
            # Somebody else was quicker: then it is a VM that exists.
            reference = Inventory(session).find(identity) if error.fault == "DuplicateName" else None
            if reference is None:
                raise
    return change.run(see(session, reference, identity.said), check_mode=check_mode)

# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run of a vsphere_vgpu_vm task: find the VM, then create or change it."""

from __future__ import annotations

from ansible_collections.vgpu.fleet.plugins.module_utils.errors import join_names
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.faults import VsphereError
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.session import Session
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.apply import HostCache, ReconfigureVm
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.clone import CloneVm
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.power import ABSENT
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.find.finder import VmFinder
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.find.lookup import left_alone, look_up
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.request import VmRequest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.result import VmResult


def run(session: Session, request: VmRequest, *, check_mode: bool) -> VmResult:
    identity, tree, hosts = request.identity, VmFinder(session), HostCache(session)
    change = ReconfigureVm(session, request, hosts)
    seen = look_up(session, request, tree, hosts)
    if seen is None and request.state == ABSENT:
        others = left_alone(request, tree)
        return VmResult(
            changed=False,
            name=identity.name,
            diff={"before": {}, "after": {}},
            warnings=[f"There is no VM {identity.said} to delete. Left alone: {join_names(others)}."] if others else [],
        )
    if seen is None:
        if not identity.name or identity.certain or not request.creation.template:
            raise tree.not_found(identity)
        creation = CloneVm(session, request, hosts, tree, change)
        try:
            return creation.run(check_mode=check_mode)
        except VsphereError as error:
            # Another client created the VM in the meantime, so treat the VM as existing.
            seen = look_up(session, request, VmFinder(session), hosts) if error.fault == "DuplicateName" else None
            if seen is None:
                raise
    return change.run(seen, check_mode=check_mode)

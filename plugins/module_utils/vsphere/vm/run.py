# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run of a vsphere_vgpu_vm task: find the VM, then create or change it."""

from __future__ import annotations

from ...errors import join_names
from ..faults import VsphereError
from ..session import Session
from .apply import HostCache, ReconfigureVm
from .clone import CloneVm
from .decide.power import ABSENT
from .find.finder import VmFinder
from .find.lookup import left_alone, look_up
from .request import VmRequest
from .result import VmResult


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

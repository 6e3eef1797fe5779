# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find problems of VMs with vGPUs: plan the vGPUs that each VM already requests, and report what would change. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ..read.snapshot import Snapshot
from ..vm.model import VmState, described, plan


def vm_findings(snapshot: Snapshot) -> Iterator[tuple[str, str, str]]:
    """Yield kind, VM and text of each finding, sorted by VM."""
    for key, vm in sorted(snapshot.vms.items.items()):
        machine = VmState(vm, snapshot.instances.items.get(key), snapshot.version, snapshot.known)
        if machine.restart_required:
            text = f"VM {key} runs with {described(machine.running_vgpus)}, but its spec requests"
            text += f" {described(machine.vgpus)}, which it gets at its next restart."
            yield "restart_required", key, text
        if machine.note_text and machine.note is None:
            continue  # invalid_annotation is a separate finding.
        mended = plan(machine, machine.vgpus, restart=False)
        if mended.note_text != machine.note_text:
            text = f"VM {key} is stopped, and its allocation annotation names vGPUs that it does not request."
            yield "stale_annotation", key, text
        if not machine.version.vendor_vfio and machine.displays > 1:
            yield "two_displays", key, f"VM {key} has several vGPUs with a boot display, so it does not start."

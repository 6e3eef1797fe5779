# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A VM that started is only done when a GPU lists it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere import vm_watch
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm_identity import Identity
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm_request import Creation, Request
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm_running import NotAssigned, Running, Seat

VM, HOST = SimpleNamespace(_moId="vm-1"), SimpleNamespace(_moId="host-1")
REQUEST = Request(Identity(name="web"), "powered_on", None, None, Creation())


def gpu(address, *vms):
    return SimpleNamespace(pciId=address, vm=[SimpleNamespace(_moId=vm) for vm in vms])


def session(*gpus):
    return SimpleNamespace(
        read=lambda _subject, references, _paths: [
            (references[0], {"name": "esx1", "runtime.host": HOST, "config.graphicsInfo": list(gpus)})
        ]
    )


def test_the_gpus_that_list_the_vm_are_told():
    found = Running(session(gpu("0000:3b:00.0", "vm-2"), gpu("0000:3d:00.0", "vm-1")), REQUEST)
    assert found.seat(VM, "web", expected=True) == Seat("esx1", ("0000:3d:00.0",))


def test_a_gpu_that_lists_the_vm_a_little_later_is_waited_for(monkeypatch):
    later = {"name": "esx1", "config.graphicsInfo": [gpu("0000:3b:00.0", "vm-1")]}
    monkeypatch.setattr(vm_watch, "until", lambda *_args, **_options: later)
    assert Running(session(gpu("0000:3b:00.0")), REQUEST).seat(VM, "web", expected=True).gpus == ("0000:3b:00.0",)


def test_a_vm_that_no_gpu_lists_is_an_error(monkeypatch):
    monkeypatch.setattr(vm_watch, "until", lambda *_args, **_options: None)
    with pytest.raises(NotAssigned, match="web runs on host esx1, and none of its GPUs lists it"):
        Running(session(gpu("0000:3b:00.0")), REQUEST).seat(VM, "web", expected=True)

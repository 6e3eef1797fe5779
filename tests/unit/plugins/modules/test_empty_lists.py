"""H2: an empty list is not the same as an option that was not given. It selects nothing, in every module."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.vgpu.fleet.plugins.module_utils.availability.counts import select_nodes
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.result import records as harvester_records
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.vm.apply import VmRequest
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.vm.model import VmState
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.read import inventory
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.result import nodes as vsphere_nodes

from tests.unit.plugins.module_utils import fleets
from tests.unit.plugins.module_utils.harvester import objects
from tests.unit.plugins.module_utils.harvester.apply.test_scale import PROFILE, Fleet

# Some modules are documentation only: an action plugin does their work.
MODULES = sorted(
    path.stem
    for path in (Path(__file__).parents[4] / "plugins" / "modules").glob("*.py")
    if "def main()" in path.read_text()
)

# What the modules would change or look at. An empty list is refused, or there is nothing to show.
SELECTIONS = {
    ("harvester_gpu_info", "gpus"),
    ("harvester_gpu_info", "nodes"),
    ("harvester_gpu_info", "profiles"),
    ("harvester_mig", "gpus"),
    ("harvester_mig", "nodes"),
    ("harvester_repair", "claims"),
    ("harvester_repair", "controllers"),
    ("harvester_reprofile", "gpus"),
    ("harvester_reprofile", "nodes"),
    ("harvester_sriov_gpu", "gpus"),
    ("harvester_sriov_gpu", "nodes"),
    ("harvester_vgpu", "devices"),
    ("harvester_vgpu", "gpus"),
    ("harvester_vgpu", "layout"),
    ("harvester_vgpu", "layout.gpus"),
    ("harvester_vgpu", "layout.nodes"),
    ("harvester_vgpu", "nodes"),
    ("vgpu_availability", "esxi_hosts"),
    ("vgpu_availability", "nodes"),
    ("vsphere_gpu_host", "esxi_hosts"),
    ("vsphere_gpu_info", "esxi_hosts"),
    ("vsphere_gpu_info", "gpus"),
    ("vsphere_gpu_info", "profiles"),
}
# What one named object should have. An empty list declares that it has none.
CONTENTS = {
    # Pools that are not listed stay.
    ("capv_cluster", "addons"),
    ("capv_cluster", "control_plane.pci_devices"),
    ("capv_cluster", "control_plane.taints"),
    ("capv_cluster", "control_plane.vgpus"),
    ("capv_cluster", "pod_cidrs"),
    ("capv_cluster", "pools"),
    ("capv_cluster", "pools.pci_devices"),
    ("capv_cluster", "pools.taints"),
    ("capv_cluster", "pools.vgpus"),
    ("capv_cluster", "service_cidrs"),
    ("capv_cluster", "ssh_authorized_keys"),
    ("harvester_mig", "instances"),
    ("harvester_reprofile", "layout"),
    # Without any, no VM may be stopped.
    ("harvester_reprofile", "vms"),
    ("harvester_reprofile", "vms.vgpus"),
    ("harvester_vgpu_vm", "vgpus"),
    # Nothing is checked for no VM, and a VM can have no disks and networks.
    ("harvester_vm_check", "vms"),
    ("harvester_vm_check", "vms.disks"),
    ("harvester_vm_check", "vms.networks"),
    ("rancher_gpu_pool", "disks"),
    ("rancher_gpu_pool", "networks"),
    ("rancher_gpu_pool", "roles"),
    ("rancher_gpu_pool", "taints"),
    ("rancher_gpu_pool", "vgpus"),
    ("vgpu_availability", "demand"),
    ("vgpu_availability", "demand.vgpus"),
    ("vgpu_availability", "demand.vms"),
    ("vsphere_gpu_host", "devices"),
    ("vsphere_gpu_host", "passthrough"),
    # Nothing is checked for no group.
    ("vsphere_template_check", "groups"),
    ("vsphere_template_check", "groups.pci_devices"),
    ("vsphere_template_check", "groups.vgpus"),
    ("vsphere_vgpu_vm", "networks"),
    ("vsphere_vgpu_vm", "networks.dns"),
    ("vsphere_vgpu_vm", "networks.ip"),
    ("vsphere_vgpu_vm", "device_groups"),
    ("vsphere_vgpu_vm", "pci_devices"),
    ("vsphere_vgpu_vm", "vgpus"),
}
# Tasks that would change as much as they can, but for the option in question.
OFF = {"state": "disabled", "disable_vgpus": True}
NONE = {"exclusive": True, "reprofile": True}
WIDEST: dict[tuple[str, str], dict[str, Any]] = {
    ("harvester_mig", "gpus"): {"gpus": [], "state": "disabled"},
    ("harvester_mig", "nodes"): {"nodes": [], "state": "disabled"},
    ("harvester_repair", "claims"): {"claims": [], "permitted_devices": True},
    ("harvester_repair", "controllers"): {"controllers": [], "permitted_devices": True},
    ("harvester_reprofile", "gpus"): {"gpus": [], "layout": [{"profile": PROFILE, "count": 1}]},
    ("harvester_reprofile", "nodes"): {"nodes": [], "layout": [{"profile": PROFILE, "count": 1}]},
    ("harvester_sriov_gpu", "gpus"): {"gpus": [], **OFF},
    ("harvester_sriov_gpu", "nodes"): {"nodes": [], **OFF},
    ("harvester_vgpu", "devices"): {"devices": [], **NONE},
    ("harvester_vgpu", "gpus"): {"gpus": [], "profile": PROFILE, "count": 0, **NONE},
    ("harvester_vgpu", "nodes"): {"nodes": [], "profile": PROFILE, "count": 0, **NONE},
    ("harvester_vgpu", "layout"): {"layout": [], **NONE},
    ("harvester_vgpu", "layout.gpus"): {"layout": [{"profile": PROFILE, "count": 0, "gpus": []}], **NONE},
    ("harvester_vgpu", "layout.nodes"): {"layout": [{"profile": PROFILE, "count": 0, "nodes": []}], **NONE},
    ("vsphere_gpu_host", "esxi_hosts"): {"esxi_hosts": [], "graphics_type": "shared"},
}


class Captured(Exception):
    pass


def argument_spec(module: str, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    code = importlib.import_module(f"ansible_collections.vgpu.fleet.plugins.modules.{module}")
    found: dict[str, Any] = {}

    def capture(**options: Any) -> None:
        found.update(options["argument_spec"])
        raise Captured

    monkeypatch.setattr(code, "AnsibleModule", capture)
    with pytest.raises(Captured):
        code.main()
    return found


def list_options(spec: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, option in spec.items():
        if option.get("type") == "list":
            yield prefix + name
        yield from list_options(option.get("options") or {}, f"{prefix}{name}.")


def run(module: str, params: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    code = importlib.import_module(f"ansible_collections.vgpu.fleet.plugins.modules.{module}")
    with patch_module_args(params), pytest.raises(SystemExit):
        code.main()
    return dict(json.loads(capsys.readouterr().out))


def test_each_list_option_of_each_module_is_known_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new list option has to say what an empty list means."""
    found = {(module, option) for module in MODULES for option in list_options(argument_spec(module, monkeypatch))}
    assert {one for one in found if one[1] != "impersonate_groups"} == SELECTIONS | CONTENTS


@pytest.mark.parametrize(("module", "option"), sorted(WIDEST), ids=lambda value: value)
def test_a_task_with_an_empty_selection_is_refused_and_writes_nothing(
    module: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Fleet(1, made=True)
    try:
        where = {"host": cluster.server.url, "api_key": "any"}
        if module.startswith("vsphere"):
            where = {"hostname": "127.0.0.1", "port": 9, "username": "reader", "password": "something-secret"}
        result = run(module, {**WIDEST[module, option], **where}, capsys)
    finally:
        cluster.server.stop()
    assert result["failed"]
    assert option.rsplit(".", 1)[-1] in result["msg"]
    assert "empty" in result["msg"]
    assert {asked.method for asked in cluster.server.asked} <= {"GET"}


READERS = {"harvester_gpu_info", "vsphere_gpu_info", "vgpu_availability"}


def test_every_selection_of_a_module_that_writes_is_tried() -> None:
    assert {one for one in SELECTIONS if one[0] not in READERS} == set(WIDEST)


# Those of vSphere are tried on a vCenter, in tests/integration/vsphere_modules.
@pytest.mark.parametrize(
    ("module", "option"),
    sorted(
        one for one in SELECTIONS if one[0] in READERS and not one[0].startswith("vsphere") and "esxi" not in one[1]
    ),
    ids=lambda value: value,
)
def test_a_module_that_reads_shows_nothing_of_an_empty_selection(
    module: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Fleet(1, made=True)
    try:
        where = {"host": cluster.server.url, "api_key": "any"}
        every = run(module, where, capsys)
        none = run(module, {option: [], **where}, capsys)
    finally:
        cluster.server.stop()
    for result, found in ((every, True), (none, False)):
        assert not result.get("failed"), result["msg"]
        assert bool(result["nodes" if "nodes" in result else "profiles"]) is found


def test_reading_with_an_empty_selection_shows_nothing() -> None:
    fleet = fleets.fleet(fleets.gpu("n1:a", "4Q"))
    for filtered in (harvester_records.filtered, vsphere_nodes.filtered):
        assert filtered(fleet, gpus=None, profiles=None) == fleet
        assert not filtered(fleet, gpus=[]).nodes
        assert not filtered(fleet, profiles=[]).nodes
    assert not harvester_records.filtered(fleet, nodes=[]).nodes
    assert select_nodes(fleet, None) == {"n1"}
    assert select_nodes(fleet, []) == frozenset()
    host = inventory.HostFacts("host-1", "esx1")
    assert inventory.selected([host]) == [host]
    assert inventory.selected([host], esxi_hosts=[]) == []


def test_taking_out_an_empty_list_of_vgpus_takes_out_none() -> None:
    vm = objects.vm("web", devices=[("vgpu-0", "nvidia.com/NVIDIA_A2-4Q")])
    snapshot = objects.snapshot(vgpus=[objects.vgpu(asked=objects.Q4, configured=objects.Q4)], vms=[vm])
    machine = VmState(vm, None, snapshot.version, snapshot.known)
    assert VmRequest("web", "default", None, present=False).target(machine) == {}
    assert VmRequest("web", "default", [], present=False).target(machine) == {objects.Q4: 1}

# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a task names a VM, and which entries of an inventory that can mean."""

from __future__ import annotations

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.find.finder import (
    FolderNotFound,
    InventoryItem,
    VmFinder,
    VmSelector,
)


class Known(VmFinder):
    """An inventory that was read before: two datacenters of one name, and one in folders."""

    def __init__(self, *vms: InventoryItem) -> None:
        datacenters = [InventoryItem(path, path, path) for path in ("/dc1", "/emea/dc1", "/emea/prod/dc3")]
        tops = [InventoryItem(f"{one.path}/vm", f"{one.path}/vm", one.path) for one in datacenters]
        self.__dict__["_tree"] = (vms, tuple(tops), tuple(datacenters))

    def _by_path(self, path):
        return next((entry.reference for entry in self.vms if entry.path == path), None)


def vm(path: str, datacenter: str) -> InventoryItem:
    return InventoryItem(path, path, datacenter)


def test_messages_name_a_vm_as_the_task_does():
    assert VmSelector(name="web").said == "web"
    assert VmSelector(name="web", folder="team").said == "web in team"
    assert VmSelector(moid="vm-1").said == "with moid vm-1"
    assert VmSelector(uuid="u").said == "with uuid u"


TOP, TEAM, ROOT = "/emea/prod/dc3/vm/web", "/emea/prod/dc3/vm/team/web", "/dc1/vm/web"


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, [ROOT, TEAM, TOP]),
        ({"datacenter": "dc3"}, [TEAM, TOP]),
        ({"datacenter": "emea/prod/dc3"}, [TEAM, TOP]),
        ({"datacenter": "/emea/prod/dc3", "folder": "vm"}, [TOP]),
        ({"datacenter": "dc3", "folder": "team"}, [TEAM]),
        ({"folder": "/emea/prod/dc3/vm/team"}, [TEAM]),
        ({"folder": "emea/prod/dc3/vm/team"}, [TEAM]),
        ({"folder": "dc3/vm/team"}, [TEAM]),
        # The datacenter at the root comes first. The other one of that name is only meant by its path.
        ({"datacenter": "dc1"}, [ROOT]),
        ({"datacenter": "/emea/dc1"}, []),
    ],
)
def test_a7_vms_are_found_in_datacenters_inside_folders(options, found):
    tree = Known(vm(ROOT, "/dc1"), vm(TEAM, "/emea/prod/dc3"), vm(TOP, "/emea/prod/dc3"))
    assert sorted(tree.candidates(VmSelector(name="web", **options))) == sorted(found)


def test_a7_a_datacenter_that_is_not_there_is_an_error_also_for_absent():
    with pytest.raises(FolderNotFound, match="no datacenter dc9"):
        Known().candidates(VmSelector(name="web", datacenter="dc9"))


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"datacenter": "dc3"}, "/emea/prod/dc3/vm"),
        ({"datacenter": "/emea/dc1"}, "/emea/dc1/vm"),
        ({"folder": "/emea/prod/dc3/vm"}, "/emea/prod/dc3/vm"),
    ],
)
def test_a7_a_new_vm_goes_into_a_datacenter_inside_folders(options, path):
    assert Known().folder(VmSelector(name="web", **options)).path == path


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "could be made in any of the datacenters /dc1, /emea/dc1, /emea/prod/dc3"),
        ({"datacenter": "dc9"}, "no datacenter dc9"),
        ({"folder": "/emea/vm"}, "/emea/vm is in no datacenter"),
        ({"datacenter": "dc3", "folder": "team"}, "no VM folder /emea/prod/dc3/vm/team"),
        ({"datacenter": "dc3", "folder": "/dc1/vm"}, "/dc1/vm is not in datacenter dc3"),
    ],
)
def test_folders_for_a_new_vm_that_are_not_there_are_named(options, words):
    with pytest.raises(FolderNotFound, match=words):
        Known().folder(VmSelector(name="web", **options))


@pytest.mark.parametrize("name", ["100%", "10.0.0.0/24", "a\\b", "50%25"])
def test_a14_names_with_special_characters_are_found_by_the_name_that_people_see(name):
    stored = name.replace("%", "%25").replace("/", "%2f").replace("\\", "%5c")
    tree = Known(vm(f"/dc1/vm/{stored}", "/dc1"))
    assert tree.candidates(VmSelector(name=name)) == [f"/dc1/vm/{stored}"]
    assert tree.candidates(VmSelector(name=name, folder="/dc1/vm")) == [f"/dc1/vm/{stored}"]

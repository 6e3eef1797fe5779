# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Folders in all the ways they are written."""

from __future__ import annotations

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm_identity import Identity, absolute


@pytest.mark.parametrize(
    ("folder", "datacenter", "path"),
    [
        ("/dc1/vm/team/ml", "", "/dc1/vm/team/ml"),
        ("/dc1/vm/team/ml/", "dc1", "/dc1/vm/team/ml"),
        ("dc1/vm/team", "", "/dc1/vm/team"),
        ("team/ml", "dc1", "/dc1/vm/team/ml"),
        ("vm/team", "dc1", "/dc1/vm/team"),
        ("", "dc1", "/dc1/vm"),
        ("team/ml", "", ""),
    ],
)
def test_a_folder_becomes_a_path_where_the_datacenter_is_known(folder, datacenter, path):
    assert absolute(folder, datacenter) == path


def test_messages_name_a_vm_as_the_task_does():
    assert Identity(name="web").said == "web"
    assert Identity(name="web", folder="team").said == "web in team"
    assert Identity(moid="vm-1").said == "with moid vm-1"
    assert Identity(uuid="u").said == "with uuid u"

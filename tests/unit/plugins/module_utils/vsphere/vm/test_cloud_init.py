# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the guest's cloud-init is told."""

from __future__ import annotations

import base64
import json

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.cloud_init import finishing, guest_info, needs_macs
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.rules import InvalidRequest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.request import CloneOptions, Network

MAC = "00:50:56:00:00:01"


def told(creation, macs=(MAC,)):
    options = guest_info("web", creation, macs)
    assert all(options[f"{key}.encoding"] == "base64" for key in options if "encoding" not in key)
    return {key: base64.b64decode(value).decode() for key, value in options.items() if "encoding" not in key}


def test_nothing_said_is_nothing_written():
    assert guest_info("web", CloneOptions(networks=(Network("a"),)), [MAC]) == {}


def test_user_data_comes_with_an_instance_id():
    found = told(CloneOptions(user_data="#cloud-config"))
    assert found["guestinfo.userdata"] == "#cloud-config"
    assert json.loads(found["guestinfo.metadata"]) == {"instance-id": "web", "local-hostname": "web"}


def test_meta_data_can_be_a_mapping_or_text():
    assert json.loads(told(CloneOptions(meta_data={"instance-id": "x"}))["guestinfo.metadata"])["instance-id"] == "x"
    assert told(CloneOptions(meta_data="instance-id: y"))["guestinfo.metadata"] == "instance-id: y"


def test_addresses_are_bound_to_macs():
    creation = CloneOptions(networks=(Network("a", ip=("2001:db8::2/64",), gateway="2001:db8::1"), Network("b")))
    network = json.loads(told(creation, (MAC, "00:50:56:00:00:02"))["guestinfo.metadata"])["network"]
    assert network["ethernets"]["id0"]["match"] == {"macaddress": MAC}
    assert network["ethernets"]["id0"]["routes"] == [{"to": "::/0", "via": "2001:db8::1"}]
    assert network["ethernets"]["id1"]["dhcp4"]


def test_addresses_do_not_go_into_text():
    with pytest.raises(InvalidRequest, match="mapping"):
        guest_info("web", CloneOptions(meta_data="a: b", networks=(Network("a", dhcp4=True),)), [MAC])


def test_macs_are_waited_for_only_if_they_are_needed():
    assert not needs_macs(CloneOptions(networks=(Network("a"),)))
    assert not needs_macs(CloneOptions(networks=(Network("a", mac=MAC, dhcp4=True),)))
    assert needs_macs(CloneOptions(networks=(Network("a", dhcp4=True),)))


def test_a8_the_last_step_of_a_creation_carries_everything_and_says_so():
    creation = CloneOptions(user_data="#cloud-config", networks=(Network("a", ip=("192.0.2.10/24",)),))
    assert finishing("web", creation, [MAC]) == {**guest_info("web", creation, [MAC]), "vgpu.fleet.stage": "complete"}
    assert finishing("web", CloneOptions(), [MAC]) == {"vgpu.fleet.stage": "complete"}

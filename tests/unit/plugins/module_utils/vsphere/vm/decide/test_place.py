# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a task says about the place of a VM has to be true of the VM."""

from __future__ import annotations

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.names import real_name, sent_name, stored_name
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.place import (
    Location,
    Place,
    contradictions,
    elsewhere,
    folder_path,
)

STOPPED = Location(
    path="/emea/dc1/vm/team/gpu-1",
    datacenter="/emea/dc1",
    cluster="a",
    pool="research/ml",
    host="esx1",
    beside=("esx1", "esx2"),
)
RUNNING = Location(**{**STOPPED.__dict__, "running": True})


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
        ("emea/dc1/vm/team", "/emea/dc1", "/emea/dc1/vm/team"),
        ("dc1/vm/team", "/emea/dc1", "/emea/dc1/vm/team"),
        ("team", "/emea/dc1", "/emea/dc1/vm/team"),
        # A folder of that name inside another one.
        ("team/vm/old", "/dc1", "/dc1/vm/team/vm/old"),
        ("a%2fb", "/dc1", "/dc1/vm/a%2fb"),
        ("50%", "/dc1", "/dc1/vm/50%25"),
    ],
)
def test_a_folder_becomes_a_path_where_the_datacenter_is_known(folder, datacenter, path):
    assert folder_path(folder, datacenter) == path


@pytest.mark.parametrize(
    "place",
    [
        Place(),
        Place(datacenter="dc1"),
        Place(datacenter="/emea/dc1", folder="team"),
        Place(folder="/emea/dc1/vm/team"),
        Place(cluster="a"),
        Place(resource_pool="ml"),
        Place(resource_pool="research/ml", cluster="a"),
        Place(resource_pool="/a/Resources/research/ml"),
        Place(esxi_host="esx1"),
    ],
)
def test_a1_a_place_that_is_true_is_no_contradiction(place):
    assert contradictions(place, STOPPED) == contradictions(place, RUNNING) == []


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (Place(datacenter="dc2"), "its datacenter is /emea/dc1, not dc2"),
        (Place(datacenter="/apac/dc1"), "its datacenter is /emea/dc1, not /apac/dc1"),
        (Place(folder="web"), "its folder is /emea/dc1/vm/team, not web"),
        (Place(cluster="b"), "its cluster is a, not b"),
        (Place(resource_pool="research"), "its resource pool is a/research/ml, not research"),
        (Place(esxi_host="esx9"), "host esx9 is not in its cluster, a"),
    ],
)
def test_a1_a_place_that_is_not_true_is_said_and_the_path_named(place, words):
    wrong = contradictions(place, STOPPED)
    assert wrong == [words]
    assert "/emea/dc1/vm/team/gpu-1: " + words in elsewhere("gpu-1", [(STOPPED, wrong)]).message


def test_a1_only_a_running_vm_has_to_be_on_the_named_host_itself():
    assert contradictions(Place(esxi_host="esx2"), STOPPED) == []
    assert contradictions(Place(esxi_host="esx2"), RUNNING) == ["it runs on host esx1, not on esx2"]


@pytest.mark.parametrize(
    ("name", "stored"), [("100%", "100%25"), ("a/b", "a%2fb"), ("a\\b", "a%5cb"), ("web", "web"), ("50%25", "50%2525")]
)
def test_a14_names_have_a_stored_form(name, stored):
    assert stored_name(name) == stored
    assert real_name(stored) == real_name(stored.upper()) or name != name.upper()
    assert real_name(stored) == name


def test_a14_a_name_is_sent_as_it_is_unless_the_server_would_read_an_escape_sequence_into_it():
    assert sent_name("100%") == "100%"
    assert sent_name("a/b") == "a/b"
    assert sent_name("50%25") == "50%2525"

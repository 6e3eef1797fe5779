"""Reading: which hosts are meant, and that nothing is read that is not needed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import NothingSelected
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.read import inventory
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.session import Session
from pyVmomi import vim, vmodl

from tests.unit.plugins.module_utils.vsphere.facts import gpu, host

HOSTS = [host("esx1"), host("esx2"), host("far1", cluster="other", datacenter="dc2")]


def names(**selection):
    return [one.name for one in inventory.selected(HOSTS, **selection)]


def test_clusters_names_and_patterns_select_hosts():
    assert names() == ["esx1", "esx2", "far1"]
    assert names(cluster="gpu") == ["esx1", "esx2"]
    assert names(esxi_hosts=["esx*"]) == ["esx1", "esx2"]
    assert names(cluster="gpu", esxi_hosts=["esx2"]) == ["esx2"]


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        ({"cluster": "gpus"}, "Did you mean gpu"),
        ({"esxi_hosts": ["esx9"]}, "esx1, esx2, far1"),
        ({"cluster": "gpu", "esxi_hosts": ["far1"]}, "host of cluster gpu"),
    ],
)
def test_what_nothing_matches_is_an_error_with_what_there_is(selection, words):
    with pytest.raises(NothingSelected) as caught:
        inventory.selected(HOSTS, **selection)
    assert words in str(caught.value)


TWINS = [
    host("a1", datacenter="dc1", datacenter_path="/dc1", resource="domain-c1"),
    host("b1", datacenter="dc2", datacenter_path="/europe/dc2", resource="domain-c2"),
    host("c1", datacenter="dc2", datacenter_path="/asia/dc2", resource="domain-c3"),
]


def test_a12_two_clusters_of_one_name_are_told_apart_by_their_datacenter_and_never_guessed_between():
    with pytest.raises(NothingSelected, match="several clusters gpu") as caught:
        inventory.selected(TWINS, cluster="gpu")
    assert "Name the datacenter" in caught.value.hint
    assert [one.name for one in inventory.selected(TWINS, cluster="gpu", datacenter="dc1")] == ["a1"]
    for path in ("/europe/dc2", "europe/dc2"):
        assert [one.name for one in inventory.selected(TWINS, cluster="gpu", datacenter=path)] == ["b1"]
    assert [one.name for one in inventory.selected(TWINS, datacenter="/dc1")] == ["a1"]
    with pytest.raises(NothingSelected, match="several datacenters dc2: /asia/dc2, /europe/dc2"):
        inventory.selected(TWINS, datacenter="dc2")
    with pytest.raises(NothingSelected, match="no datacenter with hosts 'dc9'"):
        inventory.selected(TWINS, datacenter="dc9")


def test_h2_an_empty_list_of_hosts_selects_none():
    assert names(esxi_hosts=[]) == names(cluster="gpu", esxi_hosts=[]) == []


def test_a12_clusters_in_datacenters_inside_folders_have_the_path_of_their_datacenter():
    shown = {
        "group-d1": {"name": "europe"},
        "datacenter-1": {"name": "dc1", "parent": "group-d1"},
        "group-h1": {"name": "host", "parent": "datacenter-1"},
        "group-h2": {"name": "racks", "parent": "group-h1"},
        "domain-c1": {"name": "gpu", "parent": "group-h2"},
    }
    assert inventory._datacenter("domain-c1", shown, {"datacenter-1"}) == ("dc1", "/europe/dc1")
    assert inventory._datacenter("domain-c9", shown, {"datacenter-1"}) == ("", "")


def fake_session(version="8.0.3.0"):
    """A session that notes what is asked of it and answers nothing."""
    asked = []
    session = object.__new__(Session)
    session.vim, session.vmodl = vim, vmodl
    session.content = SimpleNamespace(about=SimpleNamespace(apiVersion=version), propertyCollector=None)
    session.stub, session.raw = None, lambda *_call: (500, b"")
    session.collect = lambda _subject, *filters: asked.extend(filters) or []
    return session, asked


def test_only_vms_of_gpu_hosts_are_read():
    session, asked = fake_session()
    gpu_host = host(
        "esx1", gpu(), reference=vim.HostSystem("host-1"), vms=(vim.VirtualMachine("vm-1"), vim.VirtualMachine("vm-2"))
    )
    plain = inventory.HostFacts("host-2", "esx2", reference=vim.HostSystem("host-2"), vms=(vim.VirtualMachine("vm-3"),))
    inventory.complete(session, [gpu_host, plain])
    read = [entry.obj._moId for asked_for in asked for entry in asked_for.objectSet]
    assert read == ["host-1", "vm-1", "vm-2"]


def test_without_gpu_hosts_nothing_more_is_read():
    session, asked = fake_session()
    inventory.complete(session, [inventory.HostFacts("host-2", "esx2")])
    assert asked == []


@pytest.mark.parametrize(
    ("version", "since", "known"),
    [
        ("8.0.3.0", "8.0.3", True),
        ("8.0.2.0", "8.0.3", False),
        ("7.0.3.0", "7.0.3", True),
        ("7.0", "7.0.3", False),
        ("6.7", "6.7", True),
        ("9.1.0.0", "9.1", True),
    ],
)
def test_a_version_knows_what_came_with_it_or_before(version, since, known):
    assert fake_session(version)[0].has(since) is known


def test_bindings_are_asked_for_only_where_they_name_devices():
    for version, wanted in (("8.0.3.0", False), ("9.1.0.0", True)):
        session, asked = fake_session(version)
        inventory.complete(session, [host("esx1", gpu(), reference=vim.HostSystem("host-1"), browser=None)])
        assert ("config.assignableHardwareBinding" in asked[0].propSet[0].pathSet) is wanted

"""Starting and stopping the lab's vCenter, and what a scenario may say."""

from __future__ import annotations

import re
import ssl
import urllib.request

import pytest
from pyVmomi import SoapStubAdapter, pbm, vim

from lab.errors import LabError
from lab.programs import processes
from lab.vsphere import vcsim


def test_the_environment_is_that_of_the_vmware_collections(vcenter):
    assert vcsim.env(vcenter.info) == {
        "VMWARE_HOST": "127.0.0.1",
        "VMWARE_PORT": str(vcenter.info.port),
        "VMWARE_USER": vcenter.info.user,
        "VMWARE_PASSWORD": vcenter.info.password,
        "VMWARE_VALIDATE_CERTS": "false",
    }


def test_a_started_vcenter_is_found_again_and_ends_when_stopped(binary, section, tmp_path):
    started = vcsim.start(tmp_path, vcsim.inventory_from_scenario(section), binary=binary)
    assert vcsim.info(tmp_path) == started
    vcsim.stop(tmp_path)
    assert vcsim.info(tmp_path) is None
    assert processes.identity(started.pid) is None


def test_the_password_is_neither_on_the_command_line_nor_readable_by_others(vcenter, tmp_path):
    with open(f"/proc/{vcenter.info.pid}/cmdline") as command:
        assert vcenter.info.password not in command.read()
    secret = next(tmp_path.rglob("credentials.json"))
    assert secret.stat().st_mode & 0o077 == 0


def test_the_certificate_it_made_is_left_for_those_who_check(vcenter):
    context = ssl.create_default_context(cafile=vcenter.info.certificate)
    url = f"https://127.0.0.1:{vcenter.info.port}/sdk/vimServiceVersions.xml"
    with urllib.request.urlopen(url, context=context, timeout=10) as answer:
        assert b"8.0.3.0" in answer.read()


def test_a_scenario_that_cannot_be_built_fails_with_the_reason(binary, section, tmp_path):
    section["clusters"][0]["hosts"][0]["gpus"] = [{"board": "A41"}]
    with pytest.raises(LabError, match=r"unknown board .A41.; known: A10, "):
        vcsim.start(tmp_path, vcsim.inventory_from_scenario(section), binary=binary)


def test_vms_that_do_not_fit_their_gpus_fail_the_start(binary, section, tmp_path):
    section["vms"] = [
        {
            "name": "vm-{n}",
            "count": 25,
            "host": "esx1",
            "power": "on",
            "memory_locked": True,
            "vgpus": ["nvidia_a40-4q"],
        }
    ]
    with pytest.raises(LabError, match=r"vm-25.*admission control failed"):
        vcsim.start(tmp_path, vcsim.inventory_from_scenario(section), binary=binary)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"datacentre": "dc1"}, "unknown keys datacentre"),
        ({"datacenter": "dc1"}, "no cluster"),
        ({"datacenter": "dc1", "api_version": "5.5", "clusters": []}, "no API version '5.5'"),
        ({"datacenter": "dc1", "clusters": [{"name": "c", "hosts": [{"name": "h", "gpu": 1}]}]}, "unknown keys gpu"),
        (
            {"datacenter": "dc1", "clusters": [{"name": "c"}], "vms": [{"name": "vm", "count": 2}]},
            "needs a placeholder for the number",
        ),
    ],
)
def test_mistakes_in_a_scenario_are_named(wrong, words):
    with pytest.raises(LabError, match=words):
        vcsim.inventory_from_scenario(wrong)


def test_a_scenario_can_have_folders_pools_networks_and_datastore_clusters(start, section):
    section |= {
        "folders": ["team/ml"],
        "networks": ["VM Network", "storage"],
        "datastores": ["ds1", {"name": "ds2", "capacity_gib": 100}],
        "datastore_clusters": [{"name": "pod", "datastores": ["ds2"]}],
        "vms": [
            {"name": "same", "folder": "team/ml", "networks": ["VM Network", "storage"], "resource_pool": "prod"},
            {"name": "same"},
        ],
    }
    section["clusters"][0]["resource_pools"] = ["prod"]
    vcenter = start(section)
    vm = vcenter.content.searchIndex.FindByInventoryPath("dc1/vm/team/ml/same")
    assert vm.resourcePool.name == "prod"
    assert [network.name for network in vm.network] == ["VM Network", "storage"]
    assert len([found for found in vcenter.all(vim.VirtualMachine) if found.name == "same"]) == 2
    pod = vcenter.named(vim.StoragePod, "pod")
    assert [store.name for store in pod.childEntity] == ["ds2"]
    assert vcenter.named(vim.Datastore, "ds2").summary.capacity == 100 << 30


def test_storage_policies_are_served_beside_the_inventory(vcenter):
    stub = SoapStubAdapter(
        host=vcenter.info.host,
        port=vcenter.info.port,
        path="/pbm/sdk",
        version="pbm.version.version1",
        sslContext=ssl._create_unverified_context(),
    )
    # The storage policy service reads the session from the envelope, not from the request.
    session = re.search('vmware_soap_session="?([^";]+)', vcenter.instance._stub.cookie)
    assert session
    stub.requestContext = {"vcSessionCookie": session[1]}
    manager = pbm.ServiceInstance("ServiceInstance", stub).RetrieveContent().profileManager
    assert manager.QueryProfile(pbm.profile.ResourceType(resourceType="STORAGE"), "REQUIREMENT")


def test_two_datacenters_stand_side_by_side(start):
    site = {"clusters": [{"name": "gpu", "hosts": [{"name": "esx"}]}], "vms": [{"name": "vm"}]}
    vcenter = start({"datacenters": [{"name": "dc1", **site}, {"name": "dc2", **site}]})
    assert [vcenter.content.searchIndex.FindByInventoryPath(f"{name}/vm/vm").name for name in ("dc1", "dc2")] == [
        "vm",
        "vm",
    ]

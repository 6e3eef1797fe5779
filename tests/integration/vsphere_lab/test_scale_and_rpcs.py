"""vsphere.md 10.2: a thousand VMs, and how many calls a client makes."""

from __future__ import annotations

import time

import pytest
from pyVmomi import vim, vmodl


@pytest.fixture
def thousand():
    return {
        "datacenter": "dc1",
        "clusters": [
            {
                "name": "gpu",
                "hosts": [{"name": "esx{n}", "count": 16, "memory_gib": 2048, "gpus": [{"board": "A40", "count": 2}]}],
            }
        ],
        "datastores": ["ds1"],
        "vms": [
            {"name": "off-{n}", "count": 700},
            {"name": "on-{n}", "count": 200, "power": "on"},
            {"name": "gpu-{n}", "count": 100, "power": "on", "memory_locked": True, "vgpus": ["nvidia_a40-4q"]},
        ],
    }


def test_fact_9_9_a_thousand_vms_are_there_within_40_seconds(start, thousand):
    began = time.monotonic()
    vcenter = start(thousand)
    assert time.monotonic() - began < 40
    assert len(vcenter.all(vim.VirtualMachine)) == 1000
    assert sum(len(gpu["slots"]) for gpus in vcenter.control("GET", "/gpus").values() for gpu in gpus) == 100


def test_fact_9_10_calls_are_counted_by_method_and_the_count_can_be_reset(vcenter):
    vcenter.control("DELETE", "/rpc")
    vm = vcenter.content.searchIndex.FindByInventoryPath("dc1/vm/app-1")
    vcenter.content.propertyCollector.RetrievePropertiesEx(
        [
            vmodl.query.PropertyCollector.FilterSpec(
                objectSet=[vmodl.query.PropertyCollector.ObjectSpec(obj=vm)],
                propSet=[vmodl.query.PropertyCollector.PropertySpec(type=vim.VirtualMachine, pathSet=["name"])],
            )
        ],
        vmodl.query.PropertyCollector.RetrieveOptions(),
    )
    counted = {"FindByInventoryPath": 1, "RetrievePropertiesEx": 1}
    assert vcenter.control("DELETE", "/rpc") == {"total": 2, "writes": 0, "methods": counted}
    assert vcenter.control("GET", "/rpc")["total"] == 0


def test_fact_9_10_writes_are_told_apart_from_reads(vcenter):
    vm = vcenter.vm("app-1")
    vcenter.control("DELETE", "/rpc")
    vcenter.wait(vcenter.reconfigure(vm, annotation="x"))
    vcenter.wait(vm.PowerOnVM_Task())
    vcenter.host("esx1").configManager.serviceSystem.RestartService("xorg")
    report = vcenter.control("GET", "/rpc")
    assert report["writes"] == 3
    assert report["total"] > 3


def test_what_the_lab_does_itself_is_not_counted(start, section):
    assert set(start(section).control("GET", "/rpc")["methods"]) <= {
        "RetrieveServiceContent",
        "Login",
        "RetrieveInternalContent",
    }

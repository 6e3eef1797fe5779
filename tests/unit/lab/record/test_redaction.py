"""What a recording may tell, and what it may not."""

from __future__ import annotations

import json
import uuid

import pytest
from hypothesis import given, strategies as st

from lab.record.redaction import Redaction, shown, shown_body

JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJzdWIiOiJhZG1pbiJ9.c2lnbmF0dXJlLW9mLXNvbWVib2R5"
RANCHER_TOKEN = "kubeconfig-user-x9z2k:" + "q7w8e9r1t2" * 5 + "abcd"
PEM = "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIU\n-----END CERTIFICATE-----"

# What stands before and after a text in messages and values.
befores = st.sampled_from(["", " ", "'", '"', "(", "denied: ", "/", "=", "[", "@"])
afters = st.sampled_from(["", " ", "'", '"', ")", ", ", "\n", "/", "]:443", ": refused", "."])


@given(st.ip_addresses(), befores, afters)
def test_no_address_survives_whatever_stands_around_it(address, before, after):
    told = Redaction().text(f"{before}{address}{after}")
    assert str(address) not in told


@pytest.mark.parametrize(
    "text",
    [
        JWT,
        RANCHER_TOKEN,
        PEM,
        PEM.replace("\n", "\\n"),
        "d131dd02c5e6eec4693d9a0698aff95c2fcab587",
        "c2VjcmV0OiBteS12ZXJ5LXNlY3JldC1wYXNzd29yZC0xMjM0NQ==",
        "52:54:00:6b:3c:58",
        "gpu7.dc1.customer.example",
        "files.customer.example",
    ],
)
@given(before=befores, after=afters)
def test_no_secret_or_name_of_a_machine_survives(text, before, after):
    assert text not in Redaction().text(f"{before}{text}{after}")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("https://user:pw@10.0.0.7:6443/k8s/clusters/local", "https://<host>/k8s/clusters/local"),
        ("Authorization: Bearer abcdefgh12345678", "Authorization: <secret>"),
        ("password: hunter2, then", "password: <secret>, then"),
        (
            "dial tcp 192.168.0.4:443: connect: connection refused",
            "dial tcp <address>:443: connect: connection refused",
        ),
    ],
)
def test_what_stands_for_it_says_what_it_was(text, told):
    assert Redaction().text(text) == told


@pytest.mark.parametrize(
    "text",
    [
        "0000:08:00.4",
        "gpu-a-000008004",
        "nvidia.com/NVIDIA_A2-4Q",
        "nvidia.com/GA107GL_A2___A16",
        "/apis/devices.harvesterhci.io/v1beta1/vgpudevices/gpu-a-000008004?dryRun=All",
        "harvesterhci.io/parentSRIOVGPUDevice",
        "wrangler.cattle.io/PCIDeviceClaimOnRemove",
        'admission webhook "pcidevices.harvesterhci.io" denied the request: VGPUTypeName NVIDIA A2-8Q is not a valid '
        "profile for vGPU device gpu-a-000008006",
        ".status.configureVGPUTypeName",
        'strict decoding error: unknown field "spec.vgpuTypeName"',
        "error in remove for path: '/spec/template/spec/domain/devices/gpus/1': Unable to access invalid index: 1",
        "gpu-a allocatable nvidia.com/NVIDIA_A2-4Q == 1",
        "v1.8.1",
        "10de:25b6",
        "application/merge-patch+json",
        "<uuid-1>",
    ],
)
def test_what_a_recording_is_about_stays_word_for_word(text):
    assert Redaction().text(text) == text


def test_names_of_nodes_stay():
    assert Redaction(["node2.dc1.example"]).text("on node2.dc1.example") == "on node2.dc1.example"


def test_the_credentials_of_the_recorder_are_found_wherever_they_are():
    redaction = Redaction(secrets=["harmless-looking"])
    assert redaction.of({"a": ["say harmless-looking"], "harmless-looking": 1}) == {
        "a": ["say <secret>"],
        "<secret>": 1,
    }


def test_one_uuid_has_one_placeholder_and_another_one_another():
    first, second = str(uuid.uuid4()), str(uuid.uuid4())
    redaction = Redaction()
    assert redaction.of([first, f"mdev {second}", first]) == ["<uuid-1>", "mdev <uuid-2>", "<uuid-1>"]


MACHINE = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachine",
    "metadata": {
        "name": "u1",
        "namespace": "default",
        "uid": "0",
        "annotations": {
            "harvesterhci.io/deviceAllocationDetails": "{}",
            "harvesterhci.io/volumeClaimTemplates": "planted",
            "network.harvesterhci.io/ips": "planted",
        },
        "labels": {"owner": "planted"},
    },
    "spec": {
        "runStrategy": "Halted",
        "template": {
            "metadata": {"labels": {"team": "planted"}},
            "spec": {
                "domain": {
                    "resources": {"requests": {"memory": "1Gi"}},
                    "devices": {
                        "hostDevices": [{"name": "gpu-a-000008004", "deviceName": "nvidia.com/NVIDIA_A2-4Q"}],
                        "interfaces": [{"name": "planted", "macAddress": "52:54:00:6b:3c:58"}],
                    },
                },
                "hostname": "planted",
                "volumes": [{"cloudInitNoCloud": {"userData": "#cloud-config\npassword: planted"}}],
            },
        },
    },
    "status": {"printableStatus": "planted"},
}


@pytest.mark.parametrize("told", [shown(MACHINE), shown_body("VirtualMachine", MACHINE)])
def test_of_a_machine_only_what_it_asks_of_gpus_is_told(told):
    assert "planted" not in json.dumps(told)
    domain = told["spec"]["template"]["spec"]["domain"]
    assert domain["devices"] == {"hostDevices": [{"name": "gpu-a-000008004", "deviceName": "nvidia.com/NVIDIA_A2-4Q"}]}
    assert told["metadata"]["annotations"] == {"harvesterhci.io/deviceAllocationDetails": "{}"}


def test_a_list_is_told_item_by_item():
    told = shown({"kind": "VirtualMachineList", "apiVersion": "kubevirt.io/v1", "items": [MACHINE]})
    assert "planted" not in json.dumps(told)
    assert told["items"][0]["metadata"]["name"] == "u1"


def test_of_a_node_the_driver_label_and_the_gpu_resources_are_told():
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "gpu-a",
            "labels": {
                "kubernetes.io/hostname": "gpu-a",
                "sriovgpu.harvesterhci.io/driver-needed": "true",
                "rack": "planted",
            },
            "annotations": {"etcd.rke2.cattle.io/node-address": "planted"},
        },
        "spec": {"podCIDR": "planted"},
        "status": {
            "addresses": [{"address": "planted"}],
            "capacity": {"nvidia.com/NVIDIA_A2-4Q": "1", "cpu": "planted"},
            "allocatable": {},
        },
    }
    assert shown(node) == {
        "kind": "Node",
        "metadata": {
            "name": "gpu-a",
            "labels": {"kubernetes.io/hostname": "gpu-a", "sriovgpu.harvesterhci.io/driver-needed": "true"},
        },
        "status": {"capacity": {"nvidia.com/NVIDIA_A2-4Q": "1"}, "allocatable": {}},
    }


def test_a_host_name_that_is_not_the_nodes_is_not_told():
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "gpu-a", "labels": {"kubernetes.io/hostname": "planted"}},
    }
    assert "planted" not in json.dumps(shown(node))


@pytest.mark.parametrize(("user", "told"), [("admin", "admin"), ("jane.doe", "<user>")])
def test_who_claimed_a_device_is_told_only_of_the_usual_user(user, told):
    claim = {"kind": "PCIDeviceClaim", "metadata": {"name": "x"}, "spec": {"userName": user}}
    assert shown(claim)["spec"]["userName"] == told


def test_of_an_addon_its_values_are_not_told():
    addon = {"kind": "Addon", "metadata": {"name": "x"}, "spec": {"enabled": True, "valuesContent": "planted"}}
    assert shown(addon)["spec"] == {"enabled": True}

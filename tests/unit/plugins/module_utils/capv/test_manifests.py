"""The objects of a cluster, in both API versions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.capv import manifests
from ansible_collections.vgpu.fleet.plugins.module_utils.capv.versions import MARKERS, ApiVersions

from tests.unit.plugins.module_utils.capv.clusters import MACHINE, NEW, OLD, one_of, params, request, wanted

Json = dict[str, Any]
CORE, INFRASTRUCTURE = "cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io"


def test_everything_exists_before_the_cluster_that_starts_the_controllers() -> None:
    kinds = [one["kind"] for one in manifests.objects(request(), NEW)]
    assert kinds == [
        "Secret",
        "VSphereCluster",
        "VSphereMachineTemplate",
        "VSphereMachineTemplate",
        "KubeadmConfigTemplate",
        "KubeadmControlPlane",
        "MachineDeployment",
        "Cluster",
    ]


def test_v1beta2_has_references_by_group_lists_of_arguments_and_the_strategy_in_rollout() -> None:
    found = wanted(request(), NEW)
    deployment = one_of(found, "MachineDeployment")["spec"]
    assert deployment["template"]["spec"]["infrastructureRef"] == {
        "apiGroup": INFRASTRUCTURE,
        "kind": "VSphereMachineTemplate",
        "name": deployment["template"]["spec"]["infrastructureRef"]["name"],
    }
    assert deployment["rollout"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert "strategy" not in deployment
    control_plane = one_of(found, "KubeadmControlPlane")["spec"]
    assert control_plane["machineTemplate"]["spec"]["infrastructureRef"]["apiGroup"] == INFRASTRUCTURE
    arguments = control_plane["kubeadmConfigSpec"]["initConfiguration"]["nodeRegistration"]["kubeletExtraArgs"]
    assert arguments == [{"name": "cloud-provider", "value": "external"}]


def test_v1beta1_has_references_with_versions_mappings_of_arguments_and_the_strategy_in_the_spec() -> None:
    found = wanted(request(), OLD)
    deployment = one_of(found, "MachineDeployment")["spec"]
    assert deployment["template"]["spec"]["infrastructureRef"]["apiVersion"] == f"{INFRASTRUCTURE}/v1beta1"
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert "rollout" not in deployment
    control_plane = one_of(found, "KubeadmControlPlane")["spec"]
    assert "infrastructureRef" in control_plane["machineTemplate"]
    assert control_plane["rolloutStrategy"]["rollingUpdate"] == {"maxSurge": 1}
    arguments = control_plane["kubeadmConfigSpec"]["initConfiguration"]["nodeRegistration"]["kubeletExtraArgs"]
    assert arguments == {"cloud-provider": "external"}


def test_cluster_api_and_its_provider_can_have_different_versions() -> None:
    mixed = ApiVersions(dict.fromkeys(MARKERS, "v1beta2") | {INFRASTRUCTURE: "v1beta1"})
    found = wanted(request(), mixed)
    assert one_of(found, "VSphereCluster")["apiVersion"] == f"{INFRASTRUCTURE}/v1beta1"
    assert one_of(found, "Cluster")["apiVersion"] == f"{CORE}/v1beta2"
    assert one_of(found, "Cluster")["spec"]["infrastructureRef"]["apiGroup"] == INFRASTRUCTURE


def test_an_upgrade_of_the_management_cluster_replaces_no_machines() -> None:
    references = [
        one_of(wanted(request(), versions), "MachineDeployment")["spec"]["template"]["spec"] for versions in (OLD, NEW)
    ]
    names = [(one["infrastructureRef"]["name"], one["bootstrap"]["configRef"]["name"]) for one in references]
    assert names[0] == names[1]


def test_workers_and_the_control_plane_have_devices_and_their_settings() -> None:
    asked = request(
        control_plane={"machine": MACHINE, "pci_devices": [{"vendor_id": "10de", "device_id": "0x20B5", "count": 2}]},
        pools=[
            {
                "name": "gpu",
                "machine": MACHINE | {"customVMXKeys": {"pciPassthru.64bitMMIOSizeGB": "256"}},
                "vgpus": [{"profile": "nvidia_a40-8q"}],
                "pci_devices": [{"vendor_id": "15b3", "device_id": "101e", "custom_label": "rdma"}],
                "vmx_keys": {"pciPassthru.use64bitMMIO": "TRUE", "pciPassthru.64bitMMIOSizeGB": "128"},
            }
        ],
    )
    specs = {
        one["metadata"]["name"].rsplit("-", 1)[0]: one["spec"]["template"]["spec"]
        for key, one in wanted(asked).items()
        if key.startswith("VSphereMachineTemplate/")
    }
    assert specs["ml-control-plane"]["pciDevices"] == [{"deviceId": 0x20B5, "vendorId": 0x10DE}] * 2
    assert specs["ml-gpu"]["pciDevices"] == [
        {"vGPUProfile": "nvidia_a40-8q"},
        {"deviceId": 0x101E, "vendorId": 0x15B3, "customLabel": "rdma"},
    ]
    assert specs["ml-gpu"]["customVMXKeys"] == {
        "pciPassthru.64bitMMIOSizeGB": "256",
        "pciPassthru.use64bitMMIO": "TRUE",
    }


def test_other_devices_have_another_template_and_the_same_devices_the_same() -> None:
    def name(profile: str) -> str:
        pools = [{"name": "gpu", "machine": MACHINE, "vgpus": [{"profile": profile}]}]
        deployment = one_of(wanted(request(pools=pools)), "MachineDeployment")
        return str(deployment["spec"]["template"]["spec"]["infrastructureRef"]["name"])

    assert name("nvidia_a40-8q") == name("nvidia_a40-8q") != name("nvidia_a40-8c")


def test_without_a_surge_a_machine_goes_first() -> None:
    asked = request(pools=[{"name": "gpu", "machine": MACHINE, "surge": 0}])
    strategy = one_of(wanted(asked), "MachineDeployment")["spec"]["rollout"]["strategy"]
    assert strategy["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_the_password_is_only_in_the_secret() -> None:
    shown = {key: json.dumps(one) for key, one in wanted(request()).items() if not key.startswith("Secret/")}
    assert not [key for key, text in shown.items() if "hush" in text]
    secret = one_of(wanted(request()), "Secret")
    assert "annotations" not in secret["metadata"], "A hash of a password helps to guess it."
    assert "hush" not in repr(request())


def test_an_identity_replaces_the_secret() -> None:
    vcenter = {"server": "vcenter.example", "identity": {"kind": "VSphereClusterIdentity", "name": "team"}}
    found = wanted(request(vcenter=vcenter))
    assert not [key for key in found if key.startswith("Secret/")]
    assert one_of(found, "VSphereCluster")["spec"]["identityRef"] == {"kind": "VSphereClusterIdentity", "name": "team"}


@pytest.mark.parametrize(("version", "changes"), [("v1.28.9", False), ("v1.29.0", True)])
def test_kube_vip_uses_the_super_admin_only_where_it_exists(version: str, changes: bool) -> None:
    config = one_of(wanted(request(kubernetes_version=version)), "KubeadmControlPlane")["spec"]["kubeadmConfigSpec"]
    pod = json.loads(config["files"][0]["content"])
    assert {"name": "address", "value": "10.0.0.1"} in pod["spec"]["containers"][0]["env"]
    assert any("super-admin.conf" in command for command in config["preKubeadmCommands"]) is changes


def test_labels_taints_and_further_settings_of_kubeadm_reach_the_nodes() -> None:
    pool = {
        "name": "gpu",
        "machine": MACHINE,
        "labels": {"accelerator": "vgpu"},
        "taints": [{"key": "gpu", "value": None, "effect": "NoSchedule"}],
        "kubeadm": {"preKubeadmCommands": ["modprobe x"], "format": "cloud-config"},
    }
    template = one_of(wanted(request(pools=[pool])), "KubeadmConfigTemplate")["spec"]["template"]["spec"]
    registration = template["joinConfiguration"]["nodeRegistration"]
    assert {"name": "node-labels", "value": "accelerator=vgpu"} in registration["kubeletExtraArgs"]
    assert registration["taints"] == [{"key": "gpu", "effect": "NoSchedule"}]
    assert template["preKubeadmCommands"][-1] == "modprobe x"
    assert template["preKubeadmCommands"][0].startswith("hostnamectl")
    assert template["format"] == "cloud-config"


def test_addons_are_secrets_that_a_resource_set_applies() -> None:
    found = wanted(request(addons=[{"name": "cni", "manifest": "kind: DaemonSet"}]))
    resource_set = one_of(found, "ClusterResourceSet")["spec"]
    assert resource_set["resources"] == [{"kind": "Secret", "name": "ml-addon-cni"}]
    assert found["Secret/ml-addon-cni"]["type"] == "addons.cluster.x-k8s.io/resource-set"


def test_the_options_of_the_test_are_those_of_the_module() -> None:
    from ansible_collections.vgpu.fleet.plugins.modules.capv_cluster import argument_spec

    assert set(params()) <= set(argument_spec())

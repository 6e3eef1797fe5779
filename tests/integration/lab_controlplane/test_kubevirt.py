"""KubeVirt on the control plane, installed where Harvester installs it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from lab.kubernetes import controlplane, kubevirt
from lab.programs import binaries, processes
from lab.rundir import RunDir
from tests.integration.lab_controlplane.callers import Api, eventually

VGPU = "nvidia.com/NVIDIA_A2-4Q"
KUBEVIRT = "/apis/kubevirt.io/v1/namespaces/harvester-system/kubevirts/kubevirt"
VMS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
VMIS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
SUBRESOURCES = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines"
PODS = "/api/v1/namespaces/default/pods"
LABELS = {
    "kubevirt.io/schedulable": "true",
    "kubernetes.io/arch": "amd64",
    "machine-type.node.kubevirt.io/q35": "true",
}
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    built = binaries.ensure([*controlplane.BINARIES, *kubevirt.BINARIES])
    run = RunDir(tmp_path_factory.mktemp("kubevirt"))
    try:
        controlplane.start_api(run, built, meanwhile=lambda: kubevirt.start_early(run, built))
        kubevirt.install_crds(run, runs=True)
        kubevirt.create_cr(run)
        controlplane.start_controllers(run)
        kubevirt.start(run, built)
        controlplane.wait_ready(run)
        kubevirt.wait_ready(run)
        api = Api(run)
        add_node(api)
        yield api
    finally:
        processes.stop_all(run)


def add_node(api):
    amounts = {"cpu": "32", "memory": "128Gi", "pods": "110", "ephemeral-storage": "1Ti", VGPU: "4"}
    amounts |= {f"devices.kubevirt.io/{name}": "1k" for name in ("kvm", "tun", "vhost-net")}
    api("POST", "/api/v1/nodes", {"metadata": {"name": "gpu-a", "labels": LABELS}})
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions}}
    api("PATCH", "/api/v1/nodes/gpu-a/status", status, content_type=MERGE)
    api("PATCH", "/api/v1/nodes/gpu-a", {"spec": {"taints": None}}, content_type=MERGE)


def vm(name, device=VGPU, run_strategy="Always"):
    devices = {"gpus": [{"name": "gpu", "deviceName": device}]}
    domain = {"devices": devices, "resources": {"requests": {"memory": "1Gi"}}}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name},
        "spec": {"runStrategy": run_strategy, "template": {"spec": {"domain": domain}}},
    }


def launcher(api, name):
    pods = api("GET", PODS, params={"labelSelector": f"vm.kubevirt.io/name={name}"})["items"]
    return pods[0] if pods else None


def test_both_components_run_and_the_object_says_deployed(api):
    running = {process.name for process in processes.status(api.run) if process.running}
    assert set(kubevirt.BINARIES) <= running
    assert api("GET", KUBEVIRT)["status"]["phase"] == "Deployed"


def test_a_vm_becomes_a_launcher_pod_on_the_node_with_its_vgpu(api):
    api("POST", VMS, vm("bound"))
    pod = eventually(lambda: (found := launcher(api, "bound")) and found["spec"].get("nodeName") and found)
    assert pod["spec"]["nodeName"] == "gpu-a"
    compute = next(container for container in pod["spec"]["containers"] if container["name"] == "compute")
    assert compute["resources"]["limits"][VGPU] == "1"
    # Only virt-api's mutation asks for a machine type.
    assert pod["spec"]["nodeSelector"]["machine-type.node.kubevirt.io/q35"] == "true"


def test_start_and_stop_are_served_by_virt_api(api):
    api("POST", VMS, vm("halted", run_strategy="Halted"))
    # virt-api answers these in plain text.
    api("PUT", f"{SUBRESOURCES}/halted/start", {}, accept="*/*")
    eventually(lambda: launcher(api, "halted"))
    refused = api.refusal("PUT", f"{SUBRESOURCES}/halted/start", {}, accept="*/*")
    assert refused.status == 409
    assert "VM is already running" in refused.message


def test_permitted_host_devices_in_harvester_system_are_honoured(api):
    other = {"mediatedDevices": [{"mdevNameSelector": "NVIDIA A2-8Q", "resourceName": "nvidia.com/NVIDIA_A2-8Q"}]}
    configuration = {"spec": {"configuration": {"permittedHostDevices": other}}}
    api("PATCH", KUBEVIRT, configuration, content_type=MERGE)
    try:
        api("POST", VMS, vm("unpermitted"))

        def refusal():
            found = api("GET", VMIS)["items"]
            conditions = [
                condition
                for vmi in found
                if vmi["metadata"]["name"] == "unpermitted"
                for condition in (vmi.get("status") or {}).get("conditions") or []
            ]
            return next((condition for condition in conditions if condition.get("reason") == "FailedCreate"), None)

        assert f"{VGPU} is not permitted in permittedHostDevices configuration" in eventually(refusal)["message"]
    finally:
        reset = {"spec": {"configuration": {"permittedHostDevices": None}}}
        api("PATCH", KUBEVIRT, reset, content_type=MERGE)


def test_an_admin_may_not_edit_a_running_instance_but_the_handler_may(api):
    eventually(lambda: launcher(api, "bound"))
    patch = [{"op": "add", "path": "/spec/nodeSelector", "value": {"example": "x"}}]

    def edit(user):
        return api.as_user(user)("PATCH", f"{VMIS}/bound", patch, content_type="application/json-patch+json")

    with pytest.raises(Exception, match="admission webhook"):
        edit("admin")
    assert edit("virt-handler")["spec"]["nodeSelector"]["example"] == "x"


def test_no_program_takes_an_inotify_instance(api):
    """A system has 128 per user by default, which a few labs side by side would use up."""
    ours = {
        name for name, path in api.run.read()["binaries"].items() if Path(path).is_relative_to(binaries.cache_dir())
    }
    assert ours >= set(kubevirt.BINARIES)
    running = [process for process in processes.status(api.run) if process.name in ours]
    assert {process.name: inotify_instances(process.pid) for process in running} == dict.fromkeys(ours, 0)


def inotify_instances(pid):
    found = 0
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(one) == "anon_inode:inotify"
    return found


def test_components_survive_a_restart_of_the_api_server(api):
    controlplane.restart_apiserver(api.run)
    api("POST", VMS, vm("later", run_strategy="Halted"))
    eventually(lambda: api("GET", f"{VMS}/later").get("status", {}).get("printableStatus") == "Stopped", 60)
    assert all(process.running for process in processes.status(api.run))


def test_without_kubevirt_vms_are_stored(built, own_run):
    controlplane.start_api(own_run, built)
    kubevirt.install_crds(own_run, runs=False)
    kubevirt.create_cr(own_run)
    api = Api(own_run)
    assert api("POST", VMS, vm("stored"))["metadata"]["uid"]
    assert api("GET", KUBEVIRT)["metadata"]["generation"] == 1

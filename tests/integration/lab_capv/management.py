"""A lab's management cluster as tests use it."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable
from typing import Any

from pyVim.connect import Disconnect, SmartConnect
from pyVmomi import vim

from lab.capv import management
from lab.capv.resources import Resources
from lab.lifecycle import up
from lab.rundir import RunDir
from lab.vsphere import vcsim
from tests.integration.api import Api, Json

PATIENCE_SECONDS = 120.0
POLL_SECONDS = 0.05
WRITES = {"create", "update", "patch", "delete", "deletecollection"}
NETWORK = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "cni", "namespace": "kube-system"},
    "spec": {
        "selector": {"matchLabels": {"app": "cni"}},
        "template": {"metadata": {"labels": {"app": "cni"}}, "spec": {"containers": [{"name": "cni", "image": "cni"}]}},
    },
}
MACHINE = {
    "template": "ubuntu-22.04-efi",
    "datacenter": "dc1",
    "resourcePool": "gpu/Resources",
    "numCPUs": 4,
    "memoryMiB": 8192,
    "network": {"devices": [{"networkName": "VM Network", "dhcp4": True}]},
}


class Management:
    def __init__(self, run: RunDir) -> None:
        self.run = run
        self.resources = Resources(run.read()["capv"]["version"])
        self.api = Api(management.folder(run).kubeconfig("admin"))
        self._log = management.folder(run).audit_log
        self._mark = 0

    def begin(self, *, version: str, guests: bool) -> None:
        """Start over: an empty management cluster, and a vCenter as at the beginning."""
        with self.run.editing() as state:
            state["capv"] |= {"version": version, "guests": guests}
        up.reset(self.run)
        self.resources = Resources(version)

    def is_empty(self) -> bool:
        return not any(self.items(kind) for kind in ("cluster", "template", "vsphere_cluster"))

    @property
    def variables(self) -> Json:
        """The variables of the role for a small cluster, without devices."""
        environment = up.environment(self.run)
        return {
            "capv_gpu_cluster_connection": {"kubeconfig": environment["LAB_CAPV_KUBECONFIG"]},
            "capv_gpu_cluster_name": "ml",
            "capv_gpu_cluster_kubernetes_version": "v1.34.1",
            "capv_gpu_cluster_endpoint": environment["LAB_CAPV_ENDPOINT"],
            "capv_gpu_cluster_server": f"{environment['VMWARE_HOST']}:{environment['VMWARE_PORT']}",
            "capv_gpu_cluster_username": environment["VMWARE_USER"],
            "capv_gpu_cluster_password": environment["VMWARE_PASSWORD"],
            "capv_gpu_cluster_vsphere_cluster": "gpu",
            "capv_gpu_cluster_machine": MACHINE,
            "capv_gpu_cluster_addons": [{"name": "cni", "manifest": json.dumps(NETWORK)}],
            "capv_gpu_cluster_wait_timeout": 120,
        }

    # Objects
    def items(self, kind: str) -> list[Json]:
        resource = getattr(self.resources, kind)
        answer = self.api.get(resource.collection_in("default"))
        assert answer.status == 200, answer
        return answer.items

    def names(self, kind: str) -> list[str]:
        return sorted(one["metadata"]["name"] for one in self.items(kind))

    def make(self, kind: str, body: Json) -> None:
        resource = getattr(self.resources, kind)
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        answer = self.api.post(resource.collection_in("default"), body)
        assert answer.status == 201, answer

    def until(self, condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (found := condition()):
            assert time.monotonic() < deadline, "It did not come true."
            time.sleep(POLL_SECONDS)
        return found

    # Who wrote what
    def mark(self) -> None:
        self._mark = self._log.stat().st_size

    def writes(self) -> list[str]:
        """Return the writes of the collection since the mark, without dry runs."""
        found = []
        with self._log.open("rb") as log:
            log.seek(self._mark)
            for line in log:
                event = json.loads(line) if line.endswith(b"\n") else {}
                ours = event.get("userAgent") == "vgpu.fleet" and event["verb"] in WRITES
                if ours and "dryRun" not in event["requestURI"]:
                    found.append(f"{event['verb']} {event['objectRef']['resource']}")
        return found

    # vCenter
    def vms(self) -> dict[str, Json]:
        """Return the VMs of vCenter that are not templates, with what devices need."""
        vcenter = vcsim.info(self.run)
        assert vcenter is not None
        unverified = ssl.create_default_context()
        unverified.check_hostname = False
        unverified.verify_mode = ssl.CERT_NONE
        instance = SmartConnect(
            host=vcenter.host, port=vcenter.port, user=vcenter.user, pwd=vcenter.password, sslContext=unverified
        )
        try:
            content = instance.RetrieveContent()
            view = content.viewManager.CreateContainerView(content.rootFolder, [vim.VirtualMachine], True).view
            return {vm.name: _facts(vm) for vm in view if not vm.config.template}
        finally:
            Disconnect(instance)


def _facts(vm: Any) -> Json:
    kind = vim.vm.device.VirtualPCIPassthrough
    devices = [device.backing for device in vm.config.hardware.device if isinstance(device, kind)]
    return {
        "power": str(vm.runtime.powerState),
        "locked": vm.config.memoryReservationLockedToMax,
        "extra": {option.key: option.value for option in vm.config.extraConfig},
        "vgpus": [one.vgpu for one in devices if isinstance(one, kind.VmiopBackingInfo)],
        "pci": [
            f"{one.allowedDevice[0].vendorId & 0xFFFF:04x}:{one.allowedDevice[0].deviceId & 0xFFFF:04x}"
            for one in devices
            if isinstance(one, kind.DynamicBackingInfo)
        ],
    }

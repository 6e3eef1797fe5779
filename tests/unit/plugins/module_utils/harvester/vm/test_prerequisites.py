"""Everything that a new VM needs is checked at once, before anything changes."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.vm.prerequisites import (
    MissingPrerequisites,
    read_prerequisites,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.client import Forbidden, NotFound

IMAGES = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachineimages"
NETWORKS = "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions"
VMS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
NAMESPACE = "/api/v1/namespaces/default"
READY = {"status": {"storageClassName": "longhorn-ubuntu"}}


class Server:
    """A server with some objects, of which a user may not read some paths."""

    def __init__(self, *paths: str, forbidden: str = "/nowhere", **bodies: Any) -> None:
        self.objects: dict[str, Any] = {NAMESPACE: {}, f"{IMAGES}/ubuntu": READY, f"{NETWORKS}/vlan1": {}}
        self.objects.update({key: {} for key in paths})
        self.objects.update({f"{IMAGES}/{name}": body for name, body in bodies.items()})
        self.forbidden = forbidden

    def get_or_none(self, path: str) -> Any:
        if path.startswith(self.forbidden):
            raise Forbidden("forbidden", status=403)
        return self.objects.get(path)

    def get(self, path: str) -> Any:
        if path.startswith(self.forbidden):
            raise Forbidden("forbidden", status=403)
        names = [key.removeprefix(f"{path}/") for key in self.objects if key.startswith(f"{path}/")]
        if not names:
            raise NotFound("missing", status=404)
        return {"items": [{"metadata": {"name": name}} for name in names if "/" not in name]}

    def together(self, calls: Any) -> list[Any]:
        return [call() for call in calls]


def vm(name: str = "trainer", image: str = "default/ubuntu", network: str = "default/vlan1", **more: Any) -> Any:
    return {"name": name, "disks": [{"image": image, "size_gib": 40}], "networks": [network], **more}


def refused(server: Server, *vms: Any) -> str:
    with pytest.raises(MissingPrerequisites) as caught:
        read_prerequisites(server, vms).require()  # type: ignore[arg-type]
    return caught.value.message


def test_nothing_is_missing() -> None:
    found = read_prerequisites(Server(), [vm(), vm("other")])  # type: ignore[arg-type]
    found.require()
    assert found.storage_classes == {"default/ubuntu": "longhorn-ubuntu"}
    assert found.warnings == ()


def test_all_missing_objects_are_reported_at_once_with_similar_names() -> None:
    message = refused(
        Server(),
        vm("a", image="default/ubunto", network="default/vlan2"),
        vm("b", image="default/ubunto", namespace="ai"),
        {"name": "c", "disks": [{"storage_class": "fast", "size_gib": 1}]},
    )
    assert message == (
        "Image default/ubunto of VMs ai/b, default/a does not exist. Did you mean default/ubuntu? "
        "Namespace ai of VM ai/b does not exist. Existing: default. "
        "Network default/vlan2 of VM default/a does not exist. Did you mean default/vlan1? "
        "StorageClass fast of VM default/c does not exist."
    )


def test_an_image_that_is_still_loading_is_not_ready() -> None:
    assert refused(Server(big={"status": {}}), vm(image="default/big")) == (
        "Image default/big of VM default/trainer is not ready."
    )


def test_an_existing_vm_is_not_checked() -> None:
    found = read_prerequisites(Server(f"{VMS}/trainer"), [vm(image="default/gone")])  # type: ignore[arg-type]
    found.require()
    assert found.existing_vms == ("default/trainer",)


def test_what_may_not_be_read_is_unknown_and_said() -> None:
    found = read_prerequisites(Server(forbidden=NETWORKS), [vm(network="default/gone")])  # type: ignore[arg-type]
    found.require()
    assert found.warnings == (
        "The user may not read these objects, so it is unknown whether they exist: Network default/gone.",
    )

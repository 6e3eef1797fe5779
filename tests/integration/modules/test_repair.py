"""What a VM needs besides its vGPU: KubeVirt permits its type."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lab.lifecycle.control import Control
from tests.integration.api import KUBEVIRT
from tests.integration.labs import Lab
from tests.integration.modules import beginnings
from tests.integration.modules.beginnings import A4, A5, GPU_A, GPU_B, arranged
from tests.integration.modules.permissions import Automation
from tests.integration.modules.playbooks import Playbooks, predicting

MODULE, VGPU, INFO = "harvester_repair", "harvester_vgpu", "harvester_gpu_info"
Q4, C4 = "NVIDIA A2-4Q", "NVIDIA A2-4C"
RESOURCE, OTHER = "nvidia.com/NVIDIA_A2-4Q", "nvidia.com/NVIDIA_A2-4C"
TWO_4Q = {"profile": Q4, "count": 2, "nodes": ["gpu-a"]}


def lost_4q(lab: Lab) -> None:
    """Two A2-4Q that are ready, except that KubeVirt's list has lost their type and has another one twice."""
    lab.enable_gpus(GPU_A, GPU_B)
    lab.enable_vgpus({A4: Q4, A5: Q4})
    lab.enable_vgpus({"gpu-b-000008004": C4})
    lab.control.fault("permitted-list")


def listed(lab: Lab) -> list[str]:
    lists = lab.read(KUBEVIRT)["spec"]["configuration"]["permittedHostDevices"]
    return [entry["resourceName"] for entry in lists["pciHostDevices" if lab.vfio else "mediatedDevices"]]


def changes(user: Automation) -> set[tuple[str, str]]:
    return {(verb, resource) for verb, resource in user.used() if verb not in ("get", "list", "watch")}


@contextmanager
def once_watched(lab: Lab, deed: Callable[[Control], None]) -> Iterator[None]:
    """Do something as soon as a module watches KubeVirt's configuration."""
    lab.mark()
    stop = threading.Event()

    def act() -> None:
        while not stop.wait(0.02):
            events = lab.audit(writes_only=False)
            if any(one["verb"] == "watch" and one["objectRef"]["resource"] == "kubevirts" for one in events):
                deed(Control(lab.run))
                return

    acting = threading.Thread(target=act)
    acting.start()
    try:
        yield
    finally:
        stop.set()
        acting.join()


@arranged(beginnings.two_4q, stays=True)
def test_a_missing_right_to_read_the_list_is_a_warning(lab_vfio: Lab, playbooks: Playbooks) -> None:
    user = Automation(lab_vfio)
    user.grant("vgpu-fleet-reader", "vgpu-fleet-devices", "vgpu-fleet-version", without=["kubevirts"])
    info, room, vgpus, repair = playbooks.tasks(
        (INFO, {}),
        ("vgpu_availability", {"platform": "harvester"}),
        (VGPU, {"profile": Q4, "count": 2, "nodes": ["gpu-a"]}),
        (MODULE, {"permitted_devices": True}),
        kubeconfig=user.kubeconfig,
    )
    user.withdraw()
    for result in (info, vgpus):
        assert not result.failed, result.message
        assert any("kubevirts" in warning for warning in result["warnings"])
    assert {one["permitted"] for one in room["profiles"]} == {None}
    assert repair.code == "permitted_devices_unknown"


@arranged(lost_4q)
def test_m3_a_lost_type_is_added_to_the_list_with_the_right_to_do_so_and_nothing_else_changes(
    lab: Lab, playbooks: Playbooks
) -> None:
    assert listed(lab) == [OTHER, OTHER]
    user = Automation(lab)
    user.grant("vgpu-fleet-reader", "vgpu-fleet-devices", "vgpu-fleet-version")
    # A short time, since nothing that is waited for comes.
    ask = {**TWO_4Q, "wait_timeout": 3}
    (refused,) = playbooks.tasks((VGPU, ask), kubeconfig=user.kubeconfig)
    assert (refused.code, refused.changed) == ("not_permitted", False), refused.message
    assert RESOURCE in refused.message
    assert "right to patch kubevirts in namespace harvester-system" in refused.message
    assert (changes(user), listed(lab)) == (set(), [OTHER, OTHER])

    user.grant("vgpu-fleet-repair")
    lab.mark()
    predicted, warned = playbooks.tasks(
        predicting(VGPU, ask), (VGPU, {**ask, "wait": False}), kubeconfig=user.kubeconfig
    )
    assert (predicted.changed, predicted["permitted"], predicted.steps) == (True, [RESOURCE], [])
    assert (warned.changed, warned["permitted"]) == (False, [])
    for told, remedy in ((predicted, "The task adds it"), (warned, "vgpu.fleet.harvester_repair")):
        assert any(f"does not permit {RESOURCE}" in text and remedy in text for text in told["warnings"])
    assert (changes(user), listed(lab)) == (set(), [OTHER, OTHER])

    done, again = playbooks.tasks((VGPU, ask), (VGPU, ask), kubeconfig=user.kubeconfig)
    user.withdraw()
    assert (done.failed, done.changed, done["permitted"], done.steps) == (False, True, [RESOURCE], []), done.message
    assert (again.failed, again.changed, again["permitted"]) == (False, False, [])
    assert changes(user) == {("patch", "kubevirts")}
    assert listed(lab) == [OTHER, OTHER, RESOURCE]


@arranged(lost_4q)
def test_m3_a_type_that_comes_into_the_list_is_waited_for_and_nothing_is_changed(
    lab: Lab, playbooks: Playbooks
) -> None:
    user = Automation(lab)
    user.grant("vgpu-fleet-reader", "vgpu-fleet-devices", "vgpu-fleet-version", "vgpu-fleet-repair")
    with once_watched(lab, lambda control: control.fault("permitted-list", on=False)):
        (done,) = playbooks.tasks((VGPU, TWO_4Q), kubeconfig=user.kubeconfig)
    user.withdraw()
    assert (done.failed, done.changed, done["permitted"]) == (False, False, []), done.message
    assert changes(user) == set()
    assert listed(lab) == [RESOURCE, OTHER]

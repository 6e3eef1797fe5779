"""What the collection pulls in: packages in ranges, images and charts by version, or by digest if a user gives it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.vgpu.fleet.plugins.plugin_utils.guest import smoke_test
from ansible_collections.vgpu.fleet.plugins.plugin_utils.vm_manifest import Disk

from tests.unit.plugins.module_utils.capv import clusters
from tools import matrix

CHECKOUT = Path(__file__).parents[2]
IMAGE = f"registry.example:5000/team/thing@sha256:{'0a' * 32}"
REQUIREMENT = re.compile(r"(?P<name>[a-z0-9-]+) >= (?P<oldest>[0-9.]+), < (?P<end>[0-9]+)")
# Options of roles and modules that name an image of a container registry, with the test of a digest in it.
WITH_DIGEST = {
    "capv_gpu_cluster_kube_vip_image": "kube-vip",
    "gpu_operator_driver_image": "driver",
    "gpu_smoke_test_image": "smoke test",
    "harvester_gpu_vm_vms.disks.container": "container disk",
}
# Options with "image" in their name that name something else: an image of Harvester, or what an image contains.
NO_IMAGE = {
    "gpu_operator_driver_in_image",
    "harvester_gpu_vm_vms.disks.image",
}


def options(spec: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found = {}
    for name, option in spec.items():
        found[f"{prefix}{name}"] = option
        found.update(options(option.get("options") or {}, f"{prefix}{name}."))
    return found


def role_options() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in (CHECKOUT / "roles").glob("*/meta/argument_specs.yml"):
        found.update(options(yaml.safe_load(path.read_text())["argument_specs"]["main"]["options"]))
    return found


def test_each_requirement_has_an_oldest_and_an_end() -> None:
    lines = (CHECKOUT / "requirements.txt").read_text().splitlines()
    found = [REQUIREMENT.fullmatch(line) for line in lines]
    assert all(found), lines
    assert {one["name"] for one in found if one} == {"kubernetes", "pyvmomi", "jmespath", "urllib3"}
    locked = dict(
        re.findall(r"^([a-z0-9-]+)==([0-9.]+)", (CHECKOUT / "requirements/dev.txt").read_text(), re.MULTILINE)
    )
    for one in found:
        # The tests here run with the newest: the range ends behind it, and not further than the next major version.
        assert one
        assert int(one["end"]) == int(locked[one["name"]].split(".")[0]) + 1, one[0]


def test_the_oldest_line_of_the_matrix_has_the_oldest_of_every_package_and_the_others_the_newest() -> None:
    oldest = [line for line in matrix.LINES if line.oldest_packages]
    assert oldest == [matrix.LINES[0]]
    assert all("==" in package for package in oldest[0].packages)
    assert not any("==" in package for package in matrix.LINES[-1].packages)
    assert matrix.oldest_versions()["jmespath"] == "1.0.0"


def test_every_image_option_is_known_here() -> None:
    """A new option has to say whether it takes a digest, and has to be tested."""
    named = {name for name in role_options() if re.search(r"image|container$", name.rpartition(".")[2])}
    pools = {name for name in named if name.startswith(("rancher_gpu_", "capv_gpu_pool", "vsphere_"))}
    assert named - pools == set(WITH_DIGEST) | NO_IMAGE
    assert all("Harvester" in str(role_options()[name]["description"]) or "template" in name for name in pools), pools


def test_images_and_charts_have_a_version_by_default() -> None:
    for name in ("capv_gpu_cluster_kube_vip_image", "gpu_smoke_test_image"):
        assert re.search(r":[^:/]*[0-9]+\.[0-9]+", role_options()[name]["default"]), name
    assert re.fullmatch(r"v[0-9]+\.[0-9]+\.[0-9]+", role_options()["gpu_operator_chart_version"]["default"])
    for path in (CHECKOUT / "roles").glob("*/defaults/main.yml"):
        assert ":latest" not in path.read_text(), path


def test_the_smoke_test_takes_a_digest() -> None:
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"nvidia.com/gpu": "1"}}}
    (job,) = smoke_test.jobs([node], [], smoke_test.JobOptions("run", IMAGE))
    pod = job["spec"]["template"]["spec"]
    assert [one["image"] for one in (*pod["containers"], *pod["initContainers"])] == [IMAGE, IMAGE]


def test_kube_vip_takes_a_digest() -> None:
    made = clusters.wanted(clusters.request(kube_vip={"image": IMAGE}))
    (file,) = clusters.one_of(made, "KubeadmControlPlane")["spec"]["kubeadmConfigSpec"]["files"]
    assert yaml.safe_load(file["content"])["spec"]["containers"][0]["image"] == IMAGE


def test_a_container_disk_takes_a_digest() -> None:
    assert Disk.read({"container": IMAGE}, "vm").container == IMAGE


@pytest.mark.parametrize("version", [f"sha256:{'0a' * 32}", "570.172.08"])
def test_the_driver_of_the_gpu_operator_takes_a_digest(version: str) -> None:
    """The operator joins repository, image and version, and with an @ if the version is a digest."""
    variables = {
        **yaml.safe_load((CHECKOUT / "roles/gpu_operator/defaults/main.yml").read_text()),
        **yaml.safe_load((CHECKOUT / "roles/gpu_operator/vars/main.yml").read_text()),
        "gpu_operator_driver_version": version,
        "gpu_operator_driver_repository": "registry.example:5000/team",
    }
    trusted = {name: trust_as_template(value) if isinstance(value, str) else value for name, value in variables.items()}
    driver = Templar(DataLoader(), trusted).template(trust_as_template("{{ __gpu_operator_driver }}"))
    assert driver["version"] == version
    assert driver["repository"] == "registry.example:5000/team"

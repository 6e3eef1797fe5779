# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which machine driver a Rancher has, and where its machines can have several vGPUs (H7)."""

from __future__ import annotations

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import version as versions
from ansible_collections.vgpu.fleet.plugins.module_utils.rancher.machine_driver import (
    MachineDriver,
    refuse_several_vgpus,
)

RELEASES = "https://releases.rancher.com/harvester-node-driver"
GITHUB = "https://github.com/harvester/docker-machine-driver-harvester/releases/download"
FILE = "docker-machine-driver-harvester-amd64.tar.gz"


def driver(url: str) -> MachineDriver:
    return MachineDriver.of({"spec": {"url": url, "builtin": True}})


def refusal(harvester: str, machine_driver: MachineDriver, count: int = 2, *, allow: bool = False) -> str:
    version = versions.parse(harvester)
    assert version is not None
    try:
        refuse_several_vgpus("demo/gpu", count, version, machine_driver, allow_unknown=allow)
    except FleetError as error:
        return f"{error.code}: {error}"
    return ""


@pytest.mark.parametrize(
    ("url", "version"),
    [
        (f"{RELEASES}/v0.7.2/{FILE}", "v0.7.2"),
        (f"{GITHUB}/v1.0.6/docker-machine-driver-harvester-arm64.tar.gz", "v1.0.6"),
        (f"{GITHUB}/v1.1.0-rc1/{FILE}", "v1.1.0-rc1"),
        (f"https://files.example/{FILE}", ""),
        ("local://", ""),
        ("", ""),
    ],
)
def test_h7_the_version_is_part_of_the_url(url: str, version: str) -> None:
    found = driver(url)
    assert found.version == version
    assert bool(found.problem) is not bool(version)
    assert url in found.problem or version


@pytest.mark.parametrize(
    ("harvester", "works"),
    [
        ("v1.3.2", False),
        ("v1.4.1", False),
        ("v1.4.2", True),
        ("1.4", True),
        ("v1.7.3", True),
        ("v1.8.0", False),
        ("v1.9.0-rc6", False),
    ],
)
@pytest.mark.parametrize("release", ["v0.6.7", "v0.7.2", "v1.0.0", "v1.0.6"])
def test_h7_released_drivers_make_two_vgpus_work_from_1_4_2_to_1_7(harvester: str, release: str, works: bool) -> None:
    found = driver(f"{RELEASES}/{release}/{FILE}")
    said = refusal(harvester, found)
    assert (said == "") is works
    assert works or said.startswith("cannot_boot")
    # What is known to fail is not allowed by option.
    assert refusal(harvester, found, allow=True) == said
    assert refusal(harvester, found, count=1) == ""


def test_h7_the_reason_names_the_versions() -> None:
    found = driver(f"{RELEASES}/v1.0.6/{FILE}")
    assert "on Harvester 1.4.1: its KubeVirt gives each of them a boot display" in refusal("v1.4.1", found)
    assert "machine driver v1.0.6 writes them to gpus[]" in refusal("v1.8.1", found)


@pytest.mark.parametrize(
    ("unknown", "reason"),
    [
        (driver(f"{GITHUB}/v1.0.7/{FILE}"), "version v1.0.7 is newer than the ones this collection knows"),
        (driver(f"{GITHUB}/v1.1.0-rc1/{FILE}"), "version v1.1.0-rc1 is newer"),
        (driver("local://"), "names no version"),
        (MachineDriver.of(None), "no NodeDriver harvester"),
        (MachineDriver(problem="this user must not read NodeDriver harvester"), "must not read"),
    ],
)
def test_h7_an_unknown_driver_is_refused_from_1_8_on_unless_it_is_allowed_by_name(
    unknown: MachineDriver, reason: str
) -> None:
    said = refusal("v1.8.0", unknown)
    assert said.startswith("unknown_machine_driver")
    assert reason in said
    assert refusal("v1.8.0", unknown, allow=True) == ""
    # Before 1.8 it makes no difference what the driver writes, and up to 1.4.1 no option helps.
    assert refusal("v1.7.3", unknown) == ""
    assert refusal("v1.4.1", unknown, allow=True).startswith("cannot_boot")

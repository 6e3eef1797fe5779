"""The Harvester version, as its setting, an option or its devices tell it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import version as versions

MDEV = {"status": {"availableTypes": {"NVIDIA A2-4Q": "nvidia-742"}}}
VFIO = {"status": {"availableTypes": {"NVIDIA A2-4Q": "742"}}}


@pytest.mark.parametrize(
    ("told", "vgpus", "version"),
    [
        ("v1.7.1", [], (1, 7, 1)),
        ("v1.8-5bb68f7d-head", [MDEV], (1, 8, 99)),
        ("v1.3.0", [], (1, 3, 0)),
        ("master-head", [MDEV], (1, 7, 0)),
        ("master-head", [VFIO], (1, 8, 0)),
        ("", [], (1, 8, 0)),
    ],
)
def test_the_servers_word_counts_and_then_the_devices(
    told: str, vgpus: list[dict[str, Any]], version: tuple[int, int, int]
) -> None:
    assert (versions.from_setting(told) or versions.from_devices(vgpus)).numbers == version


@pytest.mark.parametrize("version", ["v1.2.2", "1.0", "0.3.0"])
def test_a_version_without_vgpus_is_refused_however_it_is_known(version: str) -> None:
    for find in (versions.from_setting, versions.from_option):
        with pytest.raises(versions.TooOld, match="has no vGPUs"):
            find(version)


def test_a_version_that_is_none_is_refused() -> None:
    with pytest.raises(versions.UnknownVersion):
        versions.from_option("latest")


@pytest.mark.parametrize("text", ["1.1", "1.2"])
def test_a_version_that_yaml_has_shortened_is_refused_with_the_reason(text: str) -> None:
    # 1.10 without quotes is the number 1.1, which Ansible turns into this text.
    assert str(yaml.safe_load(f"{text}0")) == text
    with pytest.raises(versions.TooOld) as refusal:
        versions.from_option(text)
    assert f'"{text}0"' in str(refusal.value.hint)
    assert versions.from_option(f"{text}0").numbers[:2] == (1, int(f"{text}0".partition(".")[2]))


@pytest.mark.parametrize(("text", "warned"), [("1.3", False), ("v1.9.0-rc6", False), ("v1.10.0", True), ("2.0", True)])
def test_m15_a_version_that_was_not_tested_is_a_warning(text: str, warned: bool) -> None:
    found = versions.parse(text)
    assert found is not None
    assert bool(found.warnings) == warned

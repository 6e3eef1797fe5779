# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The capacity that vCenter 9.0 reports: when it is asked, and that servers and clients without it still work."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.read.direct_path import remaining

from tests.unit.plugins.module_utils.vsphere.facts import host


class Info(SimpleNamespace):
    pass


TYPES = SimpleNamespace(
    CapacityQueryByDeviceConfig=SimpleNamespace,
    VmiopDirectPathConfig=SimpleNamespace,
    TargetHost=SimpleNamespace,
    CapacityInfo=Info,
)


class Manager:
    def __init__(self):
        self.asked = []

    def QueryDirectPathProfileCapacity(self, target, specs):  # noqa: N802, the name in pyVmomi
        self.asked.append((target.host, [spec.deviceConfig.vgpuProfile for spec in specs]))
        return [Info(remaining=number) for number, _spec in enumerate(specs[:-1])] + [SimpleNamespace(faultList=[])]


def session(manager, *, version=(9, 0), types=TYPES):
    vim = SimpleNamespace(DirectPathProfileManager=types) if types else SimpleNamespace()
    content = SimpleNamespace(directPathProfileManager=manager) if manager else SimpleNamespace()
    return SimpleNamespace(
        vim=vim,
        content=content,
        has=lambda since: version >= tuple(map(int, since.split("."))),
        call=lambda _subject, method, *args: method(*args),
    )


PROFILES = ("nvidia_a40-4q", "nvidia_a40-8q", "nvidia_a40-48q")
HOSTS = [host("esx1", profiles=PROFILES, reference="host-1"), host("esx2", profiles=(), reference="host-2")]


def test_each_host_with_profiles_is_asked_once_for_all_of_them():
    manager = Manager()
    assert remaining(session(manager), HOSTS) == {"esx1": {"nvidia_a40-4q": 0, "nvidia_a40-8q": 1}}
    assert manager.asked == [("host-1", list(PROFILES))]


@pytest.mark.parametrize(
    "without",
    [session(Manager(), version=(8, 0, 3)), session(Manager(), types=None), session(None)],
    ids=["an older server", "an older pyVmomi", "no manager"],
)
def test_without_it_nothing_is_asked(without):
    assert remaining(without, HOSTS) == {}

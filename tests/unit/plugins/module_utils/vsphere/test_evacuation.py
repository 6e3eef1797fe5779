# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a host can be emptied, how, and why not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.result.evacuation import evacuations

from tests.unit.plugins.module_utils.vsphere.facts import FIRST, SECOND, gpu, host, snapshot, vm

SMALL = vm("small", "nvidia_a40-8q")


def hosts(*on_esx1, **more):
    given = {"resource": "cluster-1", "drs_evacuation": "-1", **more}
    return host("esx1", gpu(FIRST, *on_esx1), **given), host("esx2", gpu(FIRST), **given)


def esx1(*facts, vms=(SMALL,), hot_migrate=True):
    return evacuations(snapshot(*facts, vms=vms), hot_migrate=hot_migrate)["esx1"]


def test_a_host_whose_vms_fit_elsewhere_is_emptied_by_drs():
    found = esx1(*hosts("small"))
    assert (found.how, found.reasons) == ("automatic", ())
    assert [one.name for one in found.vms] == ["small"]


def test_a_host_without_vgpus_in_use_is_empty_whatever_the_settings():
    assert esx1(*hosts(), vms=(), hot_migrate=False).how == "automatic"
    assert esx1(*hosts(), vms=(replace(SMALL, power="poweredOff"),), hot_migrate=False).how == "automatic"


@pytest.mark.parametrize(
    ("hot_migrate", "more", "vms", "said"),
    [
        (False, {}, (SMALL,), "vgpu.hotmigrate.enabled is not true, so VM small cannot move"),
        (True, {"connected": False}, (SMALL,), "not connected"),
        (True, {}, (replace(SMALL, passthrough=True),), "VM small has a PCI device of the host"),
    ],
)
def test_what_keeps_vms_on_a_host(hot_migrate, more, vms, said):
    found = esx1(*hosts("small", **more), vms=vms, hot_migrate=hot_migrate)
    assert found.how == "impossible"
    assert any(said in reason for reason in found.reasons)


def test_a_host_without_room_in_its_own_cluster_cannot_be_emptied():
    first, second = hosts("large")
    large, other = vm("large", "nvidia_a40-48q"), vm("other", "nvidia_a40-48q", on="esx2")
    full = replace(second, gpus=(gpu(FIRST, "other"),))
    elsewhere = host("esx3", gpu(FIRST), gpu(SECOND), resource="cluster-2")
    found = esx1(first, full, elsewhere, vms=(large, other))
    assert (found.how, found.reasons) == ("impossible", ("No other host of cluster gpu has room for VM large.",))
    assert esx1(first, second, elsewhere, vms=(large,)).how == "automatic"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"drs_evacuation": ""}, "VgpuMMAutomationTimeoutSecs"),
        ({"drs_evacuation": "600"}, "is not -1"),
        ({"drs": False}, "DRS is off"),
    ],
)
def test_without_its_option_drs_leaves_the_vms_to_an_administrator(more, said):
    found = esx1(*hosts("small", **more))
    assert found.how == "by_hand"
    assert said in found.reasons[0]


def test_the_stun_time_is_the_sum_over_the_vgpus_and_missing_if_one_has_no_estimate():
    pair = vm("pair", "nvidia_a40-8q", "nvidia_a40-4q")
    found = esx1(*hosts("pair"), vms=(pair,))
    times = {"nvidia_a40-8q": {10_000: 7, 25_000: 3}, "nvidia_a40-4q": {10_000: 4}}
    assert found.as_dict(times)["vms"][0]["stun_times"] == [{"bandwidth_mbps": 10_000, "seconds": 11}]
    assert found.as_dict({})["vms"][0]["stun_times"] == []

# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes that collide with someone else's: the VM is read again and the change computed anew."""

from __future__ import annotations

import copy

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.cluster import Cluster
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.read.snapshot import Snapshot
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.version import HarvesterVersion
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.vm.apply import VmChange, VmRequest
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.client import Conflict, ConnectionBroken
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.objects import ObjectList

RESOURCE = "nvidia.com/NVIDIA_A2-4Q"
NODE = {
    "metadata": {"name": "gpu-a"},
    "status": {"allocatable": {RESOURCE: "4"}, "conditions": [{"type": "Ready", "status": "True"}]},
}


def vm(revision, *names):
    devices = {"hostDevices": [{"name": name, "deviceName": RESOURCE} for name in names]}
    return {
        "metadata": {"name": "web", "namespace": "default", "resourceVersion": revision},
        "spec": {"template": {"spec": {"domain": {"devices": devices}}}},
    }


class BusyServer:
    """Someone else writes the VM before each of the first writes of ours."""

    def __init__(self, *versions):
        self.versions = list(versions)
        self.sent = []

    def patch(self, path, body, *, dry_run=False):
        self.sent.append(copy.deepcopy(body))
        if body["metadata"]["resourceVersion"] != self.versions[0]["metadata"]["resourceVersion"]:
            raise Conflict("changed meanwhile", status=409)
        return self.versions[0]

    def get(self, path, **query):
        return self.versions[0] if len(self.versions) == 1 else self.versions.pop(0)

    def get_or_none(self, path):
        return None

    def together(self, calls):
        return [call() for call in calls]


def change(api, vgpus):
    listings = {"default/web": vm("1")}
    snapshot = Snapshot(
        HarvesterVersion((1, 8, 0)),
        ObjectList(),
        ObjectList(),
        ObjectList({"gpu-a": NODE}),
        ObjectList(listings),
        ObjectList(),
        ObjectList(),
    )
    request = VmRequest("web", "default", [{"profile": "A2-4Q", "count": vgpus}])
    return VmChange(Cluster(api, snapshot), request, wait=False, seconds=1)


def test_a_conflict_is_resolved_on_what_is_there_now():
    api = BusyServer(vm("2", "theirs"))
    outcome = change(api, 2).run(check_mode=False)
    assert outcome.plan.changed
    written = api.sent[-1]["spec"]["template"]["spec"]["domain"]["devices"]["hostDevices"]
    assert [device["name"] for device in written] == ["theirs", "vgpu-0"]
    assert api.sent[-1]["metadata"]["resourceVersion"] == "2"


def test_someone_else_may_have_done_it_already():
    api = BusyServer(vm("2", "theirs"))
    outcome = change(api, 1).run(check_mode=False)
    assert not outcome.plan.changed
    assert len(api.sent) == 1


class Unanswering(BusyServer):
    """Ends the connection instead of an answer; `repeated` answers the second attempt, as the client reports it."""

    def __init__(self, *versions, repeated=False):
        super().__init__(*versions)
        self.repeated = repeated

    def patch(self, path, body, *, dry_run=False):
        self.sent.append(copy.deepcopy(body))
        if self.repeated:
            error = Conflict("changed meanwhile", status=409)
            error.repeated = True
            raise error
        raise ConnectionBroken("The API server cannot be reached: the connection ended.")


@pytest.mark.parametrize("repeated", [False, True])
def test_a_write_whose_answer_got_lost_is_looked_up_and_is_a_change(repeated):
    api = Unanswering(vm("2", "vgpu-0"), repeated=repeated)
    outcome = change(api, 1).run(check_mode=False)
    assert outcome.plan.changed
    assert len(api.sent) == 1


def test_a_write_that_was_not_carried_out_is_an_error_if_there_is_no_answer():
    with pytest.raises(ConnectionBroken):
        change(Unanswering(vm("2")), 1).run(check_mode=False)


def test_a_vm_that_never_holds_still_is_an_error():
    api = BusyServer(*(vm(str(number)) for number in range(2, 40)))
    with pytest.raises(Conflict, match="changes faster"):
        change(api, 1).run(check_mode=False)

"""VMs with volumes are deleted: what was made with them goes, and everything else stays and is listed."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.api import VMS
from tests.integration.labs import Lab
from tests.integration.modules.playbooks import Json, Playbooks, Result
from tests.integration.ranchers import Rancher
from tests.integration.warm_interpreter import Warm

CLAIMS, SECRETS = "/api/v1/namespaces/default/persistentvolumeclaims", "/api/v1/namespaces/default/secrets"
TEMPLATES = "harvesterhci.io/volumeClaimTemplates"
TRAINER: Json = {
    "name": "trainer",
    "running": False,
    "user_data": "#cloud-config\npassword: do-not-tell",
    "disks": [
        {"image": "default/image-ubuntu", "size_gib": 10},
        {"storage_class": "harvester-longhorn", "size_gib": 5},
    ],
}
DB: Json = {"name": "db", "running": False, "disks": [{"storage_class": "harvester-longhorn", "size_gib": 5}]}

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ansible_collections.kubernetes") is None, reason="kubernetes.core is not installed"
)


@pytest.fixture
def on_harvester(running: Lab, tmp_path: Path, warm: Warm) -> Playbooks:
    return Playbooks(tmp_path, running.env, warm=warm)


def role(plays: Playbooks, *, check: bool = False, **variables: Any) -> list[Result]:
    given = {f"harvester_gpu_vm_{name}": value for name, value in variables.items()}
    found = plays.play({"roles": [{"role": "vgpu.fleet.harvester_gpu_vm", "vars": given}]}, check=check)
    assert not any(one.failed for one in found), found[-1]["output"]
    assert "do-not-tell" not in found[-1]["output"]
    return found


def kept(results: list[Result]) -> list[str]:
    (found,) = [facts["harvester_gpu_vm_kept"] for one in results if (facts := _facts(one))]
    return list(found)


def _facts(result: Result) -> Json:
    facts: Json = result.get("ansible_facts") or {}
    return facts if "harvester_gpu_vm_kept" in facts else {}


def names(lab: Lab, path: str) -> set[str]:
    return {one["metadata"]["name"] for one in lab.items(path)}


def claim(name: str) -> Json:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Block"}
    return {"metadata": {"name": name}, "spec": {**spec, "storageClassName": "harvester-longhorn"}}


def attach(lab: Lab, claim_name: str, *, listed: bool) -> None:
    """A volume that somebody else made, on the trainer: as Harvester's page does it, or as KubeVirt does."""
    lab.make(CLAIMS, claim(claim_name))
    vm = lab.read(f"{VMS}/trainer")
    spec = vm["spec"]["template"]["spec"]
    volume = {"name": claim_name, "persistentVolumeClaim": {"claimName": claim_name}}
    disk = {"name": claim_name, "disk": {"bus": "virtio"}}
    volumes, disks = [*spec["volumes"], volume], [*spec["domain"]["devices"]["disks"], disk]
    templates = json.loads(vm["metadata"]["annotations"][TEMPLATES]) + ([claim(claim_name)] if listed else [])
    lab.write(
        f"{VMS}/trainer",
        {
            "metadata": {"annotations": {TEMPLATES: json.dumps(templates)}},
            "spec": {"template": {"spec": {"volumes": volumes, "domain": {"devices": {"disks": disks}}}}},
        },
    )


def test_the_volumes_and_the_secret_that_the_role_made_go_and_others_stay_and_are_listed(
    rancher: Rancher, on_harvester: Playbooks
) -> None:
    lab = rancher.lab
    before, secrets = names(lab, CLAIMS), names(lab, SECRETS)
    role(on_harvester, vms=[TRAINER, DB])
    made = {"trainer-disk-0", "trainer-disk-1", "db-disk-0"}
    lab.until(lambda: names(lab, CLAIMS) - before == made, real=True)
    assert names(lab, SECRETS) - secrets == {"trainer-cloudinit"}
    attach(lab, "data", listed=True)
    attach(lab, "shared", listed=False)
    # Somebody's own, which only has the name of one that the role would make.
    lab.make(SECRETS, {"metadata": {"name": "db-cloudinit"}, "stringData": {"userdata": "theirs"}})

    # Who deletes a VM need not know what it was made of.
    gone = [{"name": "trainer"}, {"name": "db", "user_data": "any"}]
    lab.mark()
    foreseen = role(on_harvester, state="absent", vms=gone, check=True)
    assert [event for event in lab.audit() if "dryRun=All" not in event["requestURI"]] == []
    done = role(on_harvester, state="absent", vms=gone)
    assert kept(foreseen) == kept(done)
    told = " ".join(kept(done))
    assert "PersistentVolumeClaim default/data is kept" in told
    assert "PersistentVolumeClaim default/shared is kept" in told
    assert "default/db-cloudinit" in told
    assert len(kept(done)) == 3, told

    lab.until(lambda: names(lab, CLAIMS) - before == {"data", "shared"}, real=True)
    assert names(lab, SECRETS) - secrets == {"db-cloudinit"}
    assert not names(lab, VMS) & {"trainer", "db"}
    again = role(on_harvester, state="absent", vms=gone)
    assert not any(one.changed for one in again)
    for path in (f"{CLAIMS}/data", f"{CLAIMS}/shared", f"{SECRETS}/db-cloudinit"):
        lab.api.delete(path)

"""What a task writes and deletes, and what it leaves alone."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.capv import plan as plans
from ansible_collections.vgpu.fleet.plugins.module_utils.capv.ownership import CLUSTER_NAME, marks
from ansible_collections.vgpu.fleet.plugins.module_utils.capv.plan import DELETE, UPDATE, Namespace, NotOurs
from ansible_collections.vgpu.fleet.plugins.module_utils.capv.request import ClusterRequest
from ansible_collections.vgpu.fleet.plugins.module_utils.capv.versions import ApiVersions
from hypothesis import given, strategies as st

from tests.unit.plugins.module_utils.capv.clusters import MACHINE, NEW, OLD, applied, request, with_machine

Json = dict[str, Any]
DEPLOYMENT = {"cluster.x-k8s.io/deployment-name": "ml-gpu", CLUSTER_NAME: "ml"}


def made(asked: ClusterRequest, versions: ApiVersions = NEW) -> Namespace:
    return applied(plans.plan(asked, versions, Namespace()))


def with_profile(profile: str, **pool: Any) -> ClusterRequest:
    return request(pools=[{"name": "gpu", "machine": MACHINE, "vgpus": [{"profile": profile}], **pool}])


@pytest.mark.parametrize("versions", [NEW, OLD])
def test_a_second_run_changes_nothing_although_the_server_has_set_defaults(versions: ApiVersions) -> None:
    assert plans.plan(request(), versions, made(request(), versions)).steps == ()


@given(
    st.lists(st.sampled_from(["nvidia_a40-8q", "nvidia_a40-24c", "nvidia_l4-4q"]), max_size=4),
    st.integers(0, 5),
    st.integers(0, 3),
    st.dictionaries(st.sampled_from(["a", "b"]), st.text("xyz", max_size=3), max_size=2),
    st.integers(0, 20),
)
def test_a_killed_run_is_finished_by_the_next(
    profiles: list[str], replicas: int, surge: int, labels: dict[str, str], stop: int
) -> None:
    pool = {
        "name": "gpu",
        "machine": MACHINE,
        "replicas": replicas,
        "surge": surge,
        "labels": labels,
        "vgpus": [{"profile": profile} for profile in profiles],
    }
    asked = request(pools=[pool])
    whole = plans.plan(asked, NEW, Namespace())
    half = applied(plans.Plan(whole.steps[:stop]))
    repaired = plans.plan(asked, NEW, half)
    assert [step.said for step in repaired.steps] == [step.said for step in whole.steps[stop:]]
    assert plans.plan(asked, NEW, applied(repaired, half)).steps == ()


@pytest.mark.parametrize("kind", ["Cluster", "VSphereCluster", "KubeadmControlPlane", "MachineDeployment", "Secret"])
@pytest.mark.parametrize("labels", [{}, marks("team-b", "ml"), marks("vgpu.fleet", "other")])
def test_an_object_that_is_not_ours_is_refused_and_named(kind: str, labels: Json) -> None:
    there = made(request())
    name, body = next(iter(there.by_kind[kind].items()))
    foreign = Namespace({kind: {name: {**body, "metadata": {**body["metadata"], "labels": labels}}}})
    with pytest.raises(NotOurs, match=f"{kind} {name} exists and"):
        plans.plan(request(), NEW, foreign)


def test_other_devices_make_a_new_template_and_keep_the_old_one_while_it_is_used() -> None:
    there = made(with_profile("nvidia_a40-8q"))
    (old,) = [name for name in there.by_kind["VSphereMachineTemplate"] if name.startswith("ml-gpu")]
    there = with_machine(there, "m1", old, labels=DEPLOYMENT)
    asked = with_profile("nvidia_a40-24c")
    first = plans.plan(asked, NEW, there)
    assert first.rolls == ("gpu",)
    assert [step.action for step in first.steps] == ["create", "update"]
    rolling = applied(first, there)
    assert plans.plan(asked, NEW, rolling).steps == (), "A machine was made from the old template."
    gone = Namespace({kind: found for kind, found in rolling.by_kind.items() if "Machine" not in kind or "T" in kind})
    gone.by_kind["MachineDeployment"] = rolling.by_kind["MachineDeployment"]  # type: ignore[index]
    assert [step.said for step in plans.plan(asked, NEW, gone).steps] == [f"delete VSphereMachineTemplate {old}"]


def test_templates_of_others_stay() -> None:
    there = made(request())
    other = {"kind": "VSphereMachineTemplate", "metadata": {"name": "theirs", "labels": {CLUSTER_NAME: "ml"}}}
    there.by_kind["VSphereMachineTemplate"]["theirs"] = other  # type: ignore[index]
    assert plans.plan(request(), NEW, there).steps == ()


def test_a_setting_that_is_not_requested_any_more_is_removed() -> None:
    """The object alone does not show that, since the server adds fields as well."""
    taints = [{"key": "gpu", "effect": "NoSchedule"}]
    before = request(control_plane={"machine": MACHINE, "taints": taints})
    there = made(before)
    (step,) = plans.plan(request(), NEW, there).steps
    assert (step.action, step.kind) == (UPDATE, "KubeadmControlPlane")
    after = applied(plans.Plan((step,)), there).get("KubeadmControlPlane", "ml")
    assert after is not None
    assert "taints" not in after["spec"]["kubeadmConfigSpec"]["initConfiguration"]["nodeRegistration"]
    assert after["spec"]["defaulted"] is True


def test_an_update_keeps_what_others_wrote() -> None:
    there = made(request())
    cluster = there.by_kind["Cluster"]["ml"]
    cluster["spec"]["controlPlaneEndpoint"] = {"host": "10.0.0.1", "port": 6443}
    cluster["metadata"]["labels"]["team"] = "a"
    plan = plans.plan(request(pod_cidrs=["10.1.0.0/16"]), NEW, there)
    after = applied(plan, there).get("Cluster", "ml")
    assert after is not None
    assert after["spec"]["controlPlaneEndpoint"] == {"host": "10.0.0.1", "port": 6443}
    assert after["metadata"]["labels"]["team"] == "a"
    assert after["spec"]["clusterNetwork"]["pods"]["cidrBlocks"] == ["10.1.0.0/16"]


def test_a_pool_goes_only_with_state_absent_and_only_if_it_is_ours() -> None:
    there = made(request())
    silent = plans.plan(request(pools=[]), NEW, there)
    assert not [step for step in silent.steps if step.kind == "MachineDeployment"]
    assert silent.kept == ("MachineDeployment ml-gpu stays: the request does not mention it.",)
    asked = request(pools=[{"name": "gpu", "state": "absent"}])
    assert "delete MachineDeployment ml-gpu" in [step.said for step in plans.plan(asked, NEW, there).steps]
    there.by_kind["MachineDeployment"]["ml-gpu"]["metadata"]["labels"] = {}
    foreign = plans.plan(asked, NEW, there)
    assert not [step for step in foreign.steps if step.kind == "MachineDeployment"]
    assert "was not made by this collection" in foreign.kept[0]


# Removing
def removal(there: Namespace, **options: Any) -> plans.Plan:
    asked = ClusterRequest("ml")
    return plans.removal(asked, there, **{"foreign_pools": False, **options})


def test_removal_deletes_everything_of_ours_and_nothing_else() -> None:
    there = made(request())
    mine = {(kind, name) for kind, found in there.by_kind.items() for name in found}
    for kind in ("Secret", "VSphereMachineTemplate"):
        foreign = {"kind": kind, "metadata": {"name": "theirs", "labels": {CLUSTER_NAME: "ml"}}}
        there.by_kind[kind]["theirs"] = foreign  # type: ignore[index]
    for kind, name in mine:
        there.by_kind[kind][name]["metadata"]["uid"] = f"{kind}-{name}"
    plan = removal(there)
    assert {(step.kind, step.name) for step in plan.steps if step.action == DELETE} == mine
    assert all(step.uid == f"{step.kind}-{step.name}" for step in plan.steps)
    assert plan.steps[0].said == "delete Cluster ml"
    assert len(plan.kept) == 2


def test_removal_refuses_a_cluster_of_others_and_pools_of_others() -> None:
    there = made(request())
    there.by_kind["MachineDeployment"]["ml-gpu"]["metadata"]["labels"] = {}
    with pytest.raises(NotOurs, match="ml-gpu"):
        removal(there)
    assert removal(there, foreign_pools=True).steps
    there.by_kind["Cluster"]["ml"]["metadata"]["labels"] = marks("team-b", "ml")
    with pytest.raises(NotOurs, match="team-b"):
        removal(there, foreign_pools=True)


def test_removal_cleans_up_after_a_run_that_was_killed_before_the_cluster() -> None:
    whole = plans.plan(request(), NEW, Namespace())
    half = applied(plans.Plan(whole.steps[:3]))
    assert len(removal(half).steps) == 3
    assert removal(Namespace()).steps == ()

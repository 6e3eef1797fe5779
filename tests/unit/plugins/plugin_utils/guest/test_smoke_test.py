from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.plugin_utils.guest.smoke_test import JobOptions, jobs, results

SAMPLE = JobOptions(run="abc", image="registry.example/vectoradd", runtime_class="nvidia", pull_secrets=["pull"])


def node(name: str, gpus: int = 0, **labels: str) -> dict[str, Any]:
    allocatable = {"cpu": "4", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}}


NODES = [node("gpu-1", 2, **{"kubernetes.io/hostname": "gpu-1.example"}), node("plain"), node("gpu-2", 1)]


def limits(job: dict[str, Any]) -> dict[str, Any]:
    return job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]


def ran(job: dict[str, Any], **status: Any) -> dict[str, Any]:
    return {**job, "status": status}


def pod(job: dict[str, Any], **status: Any) -> dict[str, Any]:
    return {"metadata": {"labels": {"job-name": job["metadata"]["name"]}}, "status": status}


def licence_log(*statuses: str) -> str:
    return "".join(
        f"GPU 00000000:0{number}:00.0\n    vGPU Software Licensed Product\n        License Status : {status}\n"
        for number, status in enumerate(statuses, start=1)
    )


GOOD = "Licensed (Expiry: 2026-11-19 8:12:9 GMT)"


def test_m1_each_job_reads_the_licenses_of_all_gpus_of_its_node():
    first, _second = jobs(NODES, [], SAMPLE)
    (container,) = first["spec"]["template"]["spec"]["initContainers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 2}
    assert {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"} in container["env"]
    assert "initContainers" not in jobs(NODES, [], replace(SAMPLE, licence=False))[0]["spec"]["template"]["spec"]
    # A node without a GPU has nothing to license.
    assert "initContainers" not in jobs(NODES, ["plain"], SAMPLE)[0]["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("labels", "resource"),
    [
        ({"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.count": "1"}, "nvidia.com/gpu"),
        ({"nvidia.com/gpu.sharing-strategy": "mps"}, "nvidia.com/gpu"),
        ({}, "nvidia.com/gpu.shared"),
    ],
)
def test_of_gpus_that_the_device_plugin_shares_one_share_is_tested(labels, resource):
    shared = {"metadata": {"name": "gpu-1", "labels": labels}, "status": {"allocatable": {resource: "4"}}}
    (job,) = jobs([shared], [], SAMPLE)
    (container,) = job["spec"]["template"]["spec"]["initContainers"]
    # The device plugin may refuse requests for more than one share.
    assert container["resources"]["limits"] == limits(job) == {resource: 1}
    name = job["metadata"]["name"]
    logs, licensed = {name: "Test PASSED\n"}, {name: licence_log(GOOD)}
    (result,) = results([ran(job, succeeded=1)], [pod(job)], logs, licensed)
    assert (result["passed"], result["gpus"], result["licensed"]) == (True, 1, True)


@pytest.mark.parametrize("labels", [{"nvidia.com/gpu.replicas": "1", "nvidia.com/gpu.sharing-strategy": "none"}, {}])
def test_of_gpus_that_are_not_shared_all_are_tested(labels):
    (job,) = jobs([node("gpu-1", 4, **labels)], [], SAMPLE)
    (container,) = job["spec"]["template"]["spec"]["initContainers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 4}


def test_m1_an_unlicensed_gpu_fails_a_node_on_which_cuda_works():
    """Unlicensed guests run at full speed for 20 minutes."""
    first, _second = jobs(NODES, [], SAMPLE)
    name, ended = first["metadata"]["name"], [ran(first, succeeded=1)]
    logs = {name: "Test PASSED\n"}
    (good,) = results(ended, [pod(first)], logs, {name: licence_log(GOOD, GOOD)})
    assert (good["passed"], good["licensed"], good["licence_expires"]) == (True, True, "2026-11-19T08:12:09Z")
    (bad,) = results(ended, [pod(first)], logs, {name: licence_log(GOOD, "Unlicensed (Unrestricted)")})
    assert (bad["passed"], bad["licensed"]) == (False, False)
    assert bad["reason"] == "GPU 00000000:02:00.0 has license status Unlicensed (Unrestricted)"
    (unread,) = results(ended, [pod(first)], logs, {})
    assert "nvidia-smi shows no GPU" in unread["reason"]


def test_a_pod_that_has_not_started_fails_for_that_reason_only():
    first, _second = jobs(NODES, [], SAMPLE)
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "Insufficient nvidia.com/gpu"}
    (result,) = results([ran(first)], [pod(first, conditions=[unscheduled])], {}, {})
    assert (result["reason"], result["licensed"]) == ("Insufficient nvidia.com/gpu", False)


def test_without_names_every_node_that_offers_a_gpu_gets_a_job():
    made = jobs(NODES, [], SAMPLE)
    assert [job["metadata"]["annotations"]["vgpu.fleet/node"] for job in made] == ["gpu-1", "gpu-2"]
    assert len({job["metadata"]["name"] for job in made}) == 2
    pods = [job["spec"]["template"]["spec"] for job in made]
    assert [pod["nodeSelector"]["kubernetes.io/hostname"] for pod in pods] == ["gpu-1.example", "gpu-2"]
    assert all(pod["runtimeClassName"] == "nvidia" and pod["tolerations"] == [{"operator": "Exists"}] for pod in pods)
    assert all(pod["imagePullSecrets"] == [{"name": "pull"}] for pod in pods)
    assert all(limits(job) == {"nvidia.com/gpu": 1} for job in made)


def test_sm1_a_job_of_a_run_that_was_killed_ends_by_itself():
    """A job that waits for a busy GPU would otherwise stay, and take the next GPU that becomes free."""
    for seconds in (0, 1, 600):
        made = jobs(NODES, [], replace(SAMPLE, seconds=seconds))
        # Later than the run, which reads what the pods say.
        assert all(seconds < job["spec"]["activeDeadlineSeconds"] <= 2 * seconds + 120 for job in made)
        assert all(job["spec"]["ttlSecondsAfterFinished"] > 0 for job in made)
    ended = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "Job was active too long"}
    (result,) = results([ran(made[0], failed=1, conditions=[ended])], [], {})
    assert result["reason"] == "DeadlineExceeded: Job was active too long"


def test_a_named_node_without_gpus_is_asked_for_none():
    (job,) = jobs(NODES, ["plain"], SAMPLE)
    assert limits(job) == {}


def test_a_node_passed_if_the_job_succeeded_and_says_so():
    first, second = jobs(NODES, [], replace(SAMPLE, licence=False))
    times = {"startTime": "2026-11-16T10:00:00Z", "completionTime": "2026-11-16T10:00:42Z"}
    ended = [ran(second, succeeded=1, **times), ran(first, succeeded=1, **times)]
    logs = {first["metadata"]["name"]: "Test PASSED\nDone\n", second["metadata"]["name"]: "something else"}
    good, bad = results(ended, [pod(second)], logs)
    assert good == {
        "node": "gpu-1",
        "gpus": 1,
        "passed": True,
        "seconds": 42,
        "log": "Test PASSED\nDone\n",
        "licensed": None,
        "licences": [],
        "licence_expires": None,
        "reason": "",
    }
    assert (bad["node"], bad["passed"], bad["reason"]) == ("gpu-2", False, "its log does not say Test PASSED")
    (unread,) = results(ended[:1], [pod(second)], {})
    assert unread["reason"] == "its log cannot be read, though the job succeeded"


def test_what_a_pod_waits_for_or_died_of_is_told():
    (job,) = jobs(NODES, ["plain"], SAMPLE)
    name = job["metadata"]["name"]

    def reason(**status: Any) -> str:
        return str(results([ran(job, failed=1)], [pod(job, **status)], {name: "no CUDA-capable device"})[0]["reason"])

    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes: Insufficient nvidia.com/gpu"}
    assert reason(containerStatuses=[{"state": waiting}]).endswith("ImagePullBackOff: no such image")
    assert "Insufficient nvidia.com/gpu" in reason(conditions=[unscheduled])
    assert reason(reason="UnexpectedAdmissionError", message="Allocate failed").endswith("Allocate failed")
    assert "exit code 1" in reason(containerStatuses=[{"state": {"terminated": {"exitCode": 1}}}])
    assert reason() == "it offers no nvidia.com/gpu"
    (unmade,) = results([ran(jobs(NODES, ["gpu-2"], SAMPLE)[0])], [], {})
    assert (unmade["reason"], unmade["seconds"]) == ("its pod has not been made", None)

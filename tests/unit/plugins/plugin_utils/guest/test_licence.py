"""The license status of vGPUs as nvidia-smi shows it (M1)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.vgpu.fleet.plugins.plugin_utils.guest.licence import SCRIPT, earliest, licences, problem

HEAD = "\n==============NVSMI LOG==============\n\nDriver Version                            : 570.172.08\n"
GPU = """
GPU 00000000:0{number}:00.0
    Product Name                          : NVIDIA A2-4Q
    GPU Virtualization Mode
        Virtualization Mode               : VGPU
    vGPU Software Licensed Product
        Product Name                      : NVIDIA RTX Virtual Workstation
        License Status                    : {status}
    FB Memory Usage
        Total                             : 4096 MiB
"""
GOOD = "Licensed (Expiry: 2026-11-19 8:12:9 GMT)"


def log(*statuses: str) -> str:
    gpus = [GPU.format(number=number, status=status) for number, status in enumerate(statuses, start=1)]
    return HEAD + f"Attached GPUs                             : {len(gpus)}\n" + "".join(gpus)


def test_a_licensed_gpu_is_read_with_product_and_expiry() -> None:
    (found,) = licences(log(GOOD))
    assert found == {
        "gpu": "00000000:01:00.0",
        "product": "NVIDIA RTX Virtual Workstation",
        "status": GOOD,
        "licensed": True,
        "expires": "2026-11-19T08:12:09Z",
    }
    assert problem([found], 1, "") == ""


@pytest.mark.parametrize("status", ["Unlicensed", "Unlicensed (Unrestricted)", "Unlicensed (Restricted)"])
def test_m1_one_unlicensed_gpu_is_a_problem_that_names_it(status: str) -> None:
    found = licences(log(GOOD, status))
    assert [one["licensed"] for one in found] == [True, False]
    assert problem(found, 2, "") == f"GPU 00000000:02:00.0 has license status {status}"


@pytest.mark.parametrize(
    ("status", "expires"),
    [
        ("Licensed (Expiry: Permanent)", "Permanent"),
        ("Licensed", None),
        ("Licensed (Expiry: 2026-13-99 1:1:1 GMT)", "2026-13-99 1:1:1 GMT"),
    ],
)
def test_an_expiry_that_is_no_date_is_kept_as_it_is(status: str, expires: str | None) -> None:
    (found,) = licences(log(status))
    assert (found["licensed"], found["expires"]) == (True, expires)


def test_m1_a_gpu_that_nvidia_smi_does_not_show_is_a_problem() -> None:
    found = licences(log(GOOD))
    assert problem(found, 2, "") == "nvidia-smi shows 1 of 2 GPUs"
    assert "shows no GPU: sh: nvidia-smi: not found" in problem([], 1, "sh: nvidia-smi: not found\n")


def test_m1_a_gpu_without_a_license_block_does_not_count_as_licensed() -> None:
    text = log(GOOD).replace("vGPU Software Licensed Product", "Something else")
    found = licences(text)
    assert found[0]["status"] == "no license status"
    assert "no license status, so it is no vGPU" in problem(found, 1, text)


def test_the_first_expiry_counts() -> None:
    assert earliest(licences(log(GOOD, "Licensed (Expiry: 2026-11-18 1:0:0 GMT)"))) == "2026-11-18T01:00:00Z"
    assert earliest([]) is None


@pytest.mark.parametrize("statuses", [[GOOD, GOOD], [GOOD, "Unlicensed"]])
def test_the_script_runs_in_any_shell_and_prints_what_nvidia_smi_says(tmp_path: Path, statuses: list[str]) -> None:
    """Licensed GPUs end it at once; for others it waits as long as it may, which is not at all here."""
    tool = tmp_path / "nvidia-smi"
    (tmp_path / "answer").write_text(log(*statuses))
    tool.write_text(f"#!/bin/sh\ncat {tmp_path}/answer\n")
    tool.chmod(0o755)
    script = SCRIPT.replace("/tmp/status", str(tmp_path / "status"))
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SECONDS_TO_WAIT": "0"}
    shell = shutil.which("dash") or "/bin/sh"
    done = subprocess.run([shell, "-c", script], capture_output=True, text=True, env=env, check=True, timeout=30)
    assert [one["status"] for one in licences(done.stdout)] == statuses

"""What several tests begin with; a lab stays in it as long as nobody changes anything."""

from __future__ import annotations

import pytest

from tests.integration.labs import Lab

# For what only one era has.
UP_TO_1_7 = pytest.mark.parametrize("era", ["mdev"], indirect=True)
FROM_1_8_ON = pytest.mark.parametrize("era", ["vfio"], indirect=True)

GPU_A, GPU_B = "gpu-a-000008000", "gpu-b-000008000"
VGPUS_OF_BOTH = {
    "gpu-a-000008004": "NVIDIA A2-4Q",
    "gpu-a-000008005": "NVIDIA A2-4Q",
    "gpu-b-000008004": "NVIDIA A2-4Q",
    "gpu-b-000008005": "NVIDIA A2-4A",
}


def one_card_split(lab: Lab) -> None:
    """SR-IOV is on at gpu-a: sixteen vGPUs without a type."""
    lab.enable_gpus(GPU_A)


def four_vgpus(lab: Lab) -> None:
    """SR-IOV is on at both nodes; two vGPUs are 4Q on gpu-a, one 4Q and one 4A on gpu-b."""
    lab.enable_gpus(GPU_A, GPU_B)
    lab.enable_vgpus(VGPUS_OF_BOTH)

"""The most rewarding line of a run: which GPU of which node passed, and how long it took."""

from __future__ import annotations

from ansible_collections.vgpu.fleet.plugins.plugin_utils.guest.smoke_test import lines

LICENCE = {"gpu": "00000000:02:00.0", "licensed": True}


def test_each_node_has_a_line() -> None:
    assert lines(
        [
            {"node": "a", "gpus": 1, "passed": True, "seconds": 12, "licences": [LICENCE]},
            {"node": "b", "gpus": 2, "passed": True, "seconds": None, "licences": []},
            {"node": "c", "gpus": 1, "passed": False, "seconds": 3, "licences": [{**LICENCE, "licensed": False}]},
        ]
    ) == [
        "Node a: Test PASSED on 1 GPU (00000000:02:00.0, licensed) in 12 s",
        "Node b: Test PASSED on 2 GPUs",
        "Node c: FAILED on 1 GPU (00000000:02:00.0, not licensed)",
    ]

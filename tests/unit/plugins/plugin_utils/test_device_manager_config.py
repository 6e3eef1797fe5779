from __future__ import annotations

import pytest
from ansible_collections.vgpu.fleet.plugins.plugin_utils.device_manager_config import InvalidConfiguration, layout_of

CONTENT = {
    "version": "v1",
    "vgpu-configs": {
        "all": [{"devices": "all", "vgpu-devices": {"A2-4Q": 3, "A2-4C": 1}}],
        "some": [{"devices": [1], "vgpu-devices": {"A2-8Q": 2}}],
        "filtered": [{"device-filter": ["0x25B610DE"], "devices": "all", "vgpu-devices": {"A2-4Q": 4}}],
        "wrong": [{"device-filter": "0x26B910DE", "devices": "all", "vgpu-devices": {"A2-4Q": 4}}],
        "odd": [{"devices": "first", "vgpu-devices": {}}],
        "none": [{"gpus": "all"}],
    },
}


def test_counts_are_per_gpu():
    assert layout_of(CONTENT, "all", nodes=["n*"]) == [
        {"profile": "A2-4Q", "count": 3, "per": "gpu", "nodes": ["n*"]},
        {"profile": "A2-4C", "count": 1, "per": "gpu", "nodes": ["n*"]},
    ]
    assert layout_of(CONTENT, "filtered") == [{"profile": "A2-4Q", "count": 4, "per": "gpu"}]
    assert layout_of(CONTENT, "all", gpus=[])[0]["gpus"] == []


def test_numbers_stand_for_names():
    assert layout_of(CONTENT, "some", gpus=["g0", "g1"])[0]["gpus"] == ["g1"]


@pytest.mark.parametrize(
    ("content", "config", "said"),
    [
        (CONTENT, "more", "Existing ones: all"),
        (CONTENT, "some", "by number"),
        (CONTENT, "wrong", "L40S"),
        (CONTENT, "odd", "neither 'all' nor"),
        (CONTENT, "none", "is not valid"),
        ({"version": "v2", "vgpu-configs": {}}, "all", "version v2"),
        ("text", "all", "no vgpu-configs"),
    ],
)
def test_what_is_wrong_with_it(content, config, said):
    with pytest.raises(InvalidConfiguration, match=said) as caught:
        layout_of(content, config)
    assert caught.value.code == "invalid_configuration"

"""The devices of a machine on vSphere are requested in the same words by all modules that take them."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import yaml
from ansible_collections.vgpu.fleet.plugins.module_utils.device_options import device_spec

PLACES = {
    "vsphere_vgpu_vm": ((),),
    "vsphere_template_check": (("groups",),),
    "capv_cluster": (("control_plane",), ("pools",)),
}


def below(options: dict[str, Any], path: tuple[str, ...], suboptions: str) -> dict[str, Any]:
    for name in path:
        options = options[name][suboptions]
    return options


def facts(options: dict[str, Any], suboptions: str) -> dict[str, Any]:
    """What both the documentation and the specification say of options."""
    return {
        name: {key: option[key] for key in ("type", "elements", "default", "required") if key in option}
        | {"options": facts(option.get(suboptions, {}), suboptions)}
        for name, option in options.items()
    }


@pytest.mark.parametrize(("module", "path"), [(name, path) for name, paths in PLACES.items() for path in paths])
def test_devices_are_the_same_options_everywhere(module, path):
    code = importlib.import_module(f"ansible_collections.vgpu.fleet.plugins.modules.{module}")
    given = below(code.argument_spec(), path, "options")
    documented = below(yaml.safe_load(code.DOCUMENTATION)["options"], path, "suboptions")
    for name, option in device_spec().items():
        assert given[name] == option
        assert facts({name: documented[name]}, "suboptions") == facts({name: option}, "options")

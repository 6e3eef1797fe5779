"""Arguments of modules as Hypothesis strategies, made from the argument specs of the modules themselves."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import strategies as st

from tests.unit.fuzz.tasks import TASKS

Spec = Mapping[str, Any]
# Some modules are documentation only: an action plugin does their work.
MODULES = sorted(
    path.stem
    for path in (Path(__file__).parents[3] / "plugins/modules").glob("*.py")
    if "def main()" in path.read_text()
)
PROFILES = ["NVIDIA A2-4Q", "A2-8Q", "nvidia.com/NVIDIA_A2-4Q", "A100-1-5C", "1-5c", "nvidia_a40-8q", "A40-8C", "4Q"]
# Names of objects in the worlds.
NAMES = [
    *("n1", "n2", "n1-000008000", "n2-000008000", "n1-000008004", "n1-000008006", "trainer", "idle", "default"),
    *("nvidia-driver-toolkit", "pcidevices-controller", "harvester-system", "ml", "gpu", "fleet-default", "image"),
    *("esx1", "esx2", "dc1", "gpu", "template", "ds", "VM Network", "vm-1", "0000:3b:00.0", "default/image"),
    *("v1.34.1", "1.8", "1.4", "shared", "sharedDirect", "default/vlan1", "MIG 1g.5gb", "1g.5gb", "10de:2235"),
]
ODD = [
    *("", " ", "*", "?", "[", "n*", "../x", "a/b", "/", "A" * 300, "日本語", "\u202e", "\x00", "{{ 7 }}", "1k", "1Gi"),
    *(
        "-1",
        "0",
        "1e3",
        "null",
        "true",
        "NaN",
        "\n",
        "%s",
        "nvidia.com/",
        "💥",
        "a:b:c",
        "9" * 5000,
        "A2-" + "9" * 5000 + "Q",
    ),
]
TEXT = st.one_of(
    st.sampled_from(NAMES), st.sampled_from(NAMES), st.sampled_from(PROFILES), st.sampled_from(ODD), st.text(max_size=8)
)
NUMBERS = st.one_of(st.integers(0, 9), st.integers(0, 9), st.sampled_from([-1, 65536, 1 << 31, 1 << 70, 10**30]))
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.floats(), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)
SELDOM = st.integers(0, 25)
# How many of these sets are a task of the worlds in which up to three options are changed.
MOSTLY = 18
# Connections that the worlds answer.
ALWAYS = {"host": "http://127.0.0.1:9", "api_key": "fuzz-token"}
VCENTER = {"hostname": "127.0.0.1", "username": "fuzz", "password": "fuzz-password"}


class _Captured(Exception):
    pass


@cache
def declared(module: str) -> Mapping[str, Any]:
    """Return what a module gives to AnsibleModule."""
    code = importlib.import_module(f"ansible_collections.vgpu.fleet.plugins.modules.{module}")
    with mock.patch.object(code, "AnsibleModule", side_effect=_Captured) as called:
        try:
            code.main()
        except _Captured:
            return dict(called.call_args.kwargs)
    raise AssertionError(f"{module} does not create an AnsibleModule")


def values(option: Spec) -> st.SearchStrategy[Any]:
    """Return values of an option, most of them of its type."""
    typed = _typed(option)
    return st.one_of(typed, typed, typed, typed, typed, ANYTHING)


def _typed(option: Spec) -> st.SearchStrategy[Any]:
    kind = option.get("type") or "str"
    if option.get("choices"):
        return st.sampled_from([*option["choices"]])
    if kind == "list":
        inner = {**option, "type": option.get("elements", "str")}
        return st.lists(_typed(inner) if "options" in option else values(inner), max_size=3)
    if kind == "dict":
        return arguments(option["options"]) if option.get("options") else st.dictionaries(TEXT, ANYTHING, max_size=3)
    found = {"bool": st.booleans(), "int": NUMBERS, "float": st.one_of(NUMBERS, st.floats()), "raw": ANYTHING}
    return found[kind] if isinstance(kind, str) and kind in found else TEXT


def arguments(spec: Spec) -> st.SearchStrategy[dict[str, Any]]:
    """Return arguments: the required ones nearly always, a few others, seldom one that does not exist."""
    required = [name for name, option in sorted(spec.items()) if option.get("required")]
    others = [name for name in sorted(spec) if name not in required]
    by_name = {name: values(option) for name, option in spec.items()}
    some = st.lists(st.sampled_from(others), unique=True, max_size=6) if others else st.just([])

    @st.composite
    def draw_arguments(draw: st.DrawFn) -> dict[str, Any]:
        chosen = [*required, *draw(some)]
        odd = draw(SELDOM)
        made = {name: draw(by_name[name]) for name in (chosen[1:] if odd == 1 else chosen)}
        if odd == 2:
            made[draw(TEXT)] = draw(ANYTHING)
        return made

    return draw_arguments()


@cache
def sets(module: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return sets of arguments of a module, usually with a connection that works."""
    spec = declared(module)["argument_spec"]
    connection = VCENTER if module.startswith("vsphere") else ALWAYS
    if "platform" in spec:
        connection = {**ALWAYS, **VCENTER}

    whole = arguments(spec)
    one_option = {name: values(option) for name, option in spec.items() if name not in connection}
    names = st.lists(st.sampled_from(sorted(one_option)), unique=True, min_size=1, max_size=3)
    begin = st.sampled_from(TASKS[module])

    @st.composite
    def draw_set(draw: st.DrawFn) -> dict[str, Any]:
        how = draw(SELDOM)
        if how < MOSTLY:
            made = {**draw(begin), **{name: draw(one_option[name]) for name in draw(names)}}
        else:
            made = draw(whole)
        return made if how == MOSTLY + 1 else {**made, **connection}

    return draw_set()
